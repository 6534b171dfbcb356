from __future__ import annotations

from collections.abc import Generator

import pytest

from legation import Platform
from legation.api.documentation import ApiDocumentation, Asset
from legation.config import structure
from legation_testing import Client, ClientResponse

from ....callers import Issuer, demo

FILES = {
    "swagger-ui-bundle.js": b"swagger",
    "swagger-ui.css": b"css",
    "redoc.standalone.js": b"redoc",
    "oauth2-redirect.js": b"redirect",
    "swagger-ui.LICENSE.txt": b"licence",
    "unknown.bin": b"\0",
}
PAGES = ("/docs", "/redoc", "/docs/oauth2-redirect")
OWN = ("docs.js", "page.css", "redoc.js")


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


def built(platform: Platform) -> Platform:
    platform.load_assets(FILES)
    return platform


@pytest.fixture(scope="module")
def client(issuer: Issuer) -> Generator[Client]:
    with Client(built(demo(issuer))) as opened:
        yield opened


def asset_links(page: ClientResponse) -> list[str]:
    parts = page.text.split('"')
    return [part for part in parts if "docs/assets/" in part]


# --- The document ------------------------------------------------------------------------------


def test_the_document_is_served_to_everybody(client: Client) -> None:
    answer = client.get("/openapi.json")

    assert answer.status == 200
    assert answer.header("content-type") == "application/json"
    assert answer.json()["openapi"] == "3.1.0"


def test_head_of_the_document_has_its_length_and_no_body(client: Client) -> None:
    whole, head = client.get("/openapi.json"), client.request("HEAD", "/openapi.json")

    assert (head.status, head.body) == (200, b"")
    assert head.header("content-length") == str(len(whole.body))


# --- Pages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", PAGES)
def test_a_page_takes_everything_from_this_server(client: Client, target: str) -> None:
    page = client.get(target)

    assert page.status == 200
    assert page.header("content-type") == "text/html; charset=utf-8"
    assert "//" not in page.text
    assert asset_links(page)


@pytest.mark.parametrize("target", PAGES)
def test_no_script_stands_in_a_page_and_none_could_run(client: Client, target: str) -> None:
    page = client.get(target)
    policy = dict(
        directive.strip().split(" ", 1)
        for directive in (page.header("content-security-policy") or "").split(";")
    )

    assert "<script>" not in page.text
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["style-src"] == ("'self' 'unsafe-inline'" if target == "/redoc" else "'self'")
    assert policy["worker-src"] == ("blob:" if target == "/redoc" else "'none'")
    assert page.header("x-content-type-options") == "nosniff"
    assert page.header("referrer-policy") == "no-referrer"


@pytest.mark.parametrize(
    ("target", "root"),
    [
        ("/docs", "./"),
        ("/docs/", "../"),
        ("/docs?deep=/a/b", "./"),
        ("/redoc", "./"),
        ("/docs/oauth2-redirect", "../"),
        ("/docs/oauth2-redirect/?state=s", "../../"),
    ],
)
def test_links_are_relative_so_that_a_mounted_platform_has_its_pages(
    client: Client, target: str, root: str
) -> None:
    links = asset_links(client.get(target))

    assert all(link.startswith(f"{root}docs/assets/") for link in links)


@pytest.mark.parametrize("target", PAGES)
def test_whatever_a_page_links_is_there(client: Client, target: str) -> None:
    for link in asset_links(client.get(target)):
        assert client.get("/" + link.lstrip("./")).status == 200


def test_the_title_is_the_name_and_no_markup(issuer: Issuer) -> None:
    with Client(built(demo(issuer, name="<b>&"))) as client:
        assert "<title>&lt;b&gt;&amp;</title>" in client.get("/docs").text


@pytest.mark.parametrize("target", PAGES)
def test_without_its_files_a_page_says_so_and_links_the_document(
    issuer: Issuer, target: str
) -> None:
    with Client(demo(issuer)) as client:
        page = client.get(target)

    assert page.status == 200
    assert "not installed" in page.text
    assert 'openapi.json">' in page.text
    assert "<script" not in page.text


# --- Files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("swagger-ui.css", "text/css; charset=utf-8"),
        ("swagger-ui-bundle.js", "text/javascript; charset=utf-8"),
        ("swagger-ui.LICENSE.txt", "text/plain; charset=utf-8"),
        ("unknown.bin", "application/octet-stream"),
    ],
)
def test_a_file_is_sent_as_what_it_is(client: Client, name: str, media_type: str) -> None:
    answer = client.get(f"/docs/assets/{name}")

    assert (answer.status, answer.body) == (200, FILES[name])
    assert answer.header("content-type") == media_type
    assert answer.header("x-content-type-options") == "nosniff"


@pytest.mark.parametrize("name", OWN)
def test_what_the_platform_itself_brings_is_there(client: Client, name: str) -> None:
    assert client.get(f"/docs/assets/{name}").status == 200


@pytest.mark.parametrize("name", ["other.js", "..", "%2e%2e%2fopenapi.json", "docs.js%00"])
def test_no_other_file_is_there(client: Client, name: str) -> None:
    token = ""
    assert client.get(f"/docs/assets/{name}", token=token).status in (401, 404)


@pytest.mark.parametrize("target", ["/openapi.json", "/docs", "/docs/assets/swagger-ui.css"])
def test_a_client_that_has_it_is_told_so(client: Client, target: str) -> None:
    etag = client.get(target).header("etag") or ""

    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        answer = client.get(target, headers=[("if-none-match", known)])
        assert (answer.status, answer.body) == (304, b"")
        assert answer.header("etag") == etag
        assert answer.header("cache-control") == "no-cache"
    assert client.get(target, headers=[("if-none-match", '"other"')]).status == 200


def test_other_bytes_have_another_etag() -> None:
    assert Asset("a.js", b"1").etag != Asset("a.js", b"2").etag


def test_the_description_is_made_when_somebody_asks() -> None:
    made: list[int] = []

    def describe() -> dict[str, str]:
        made.append(1)
        return {}

    documentation = ApiDocumentation(describe)
    assert not made
    assert documentation.document.body == documentation.document.body == b"{}"
    assert made == [1]


# --- Who may, and whether there is anything ----------------------------------------------------


def test_files_go_with_the_pages_that_are_made_of_them(issuer: Issuer) -> None:
    with Client(built(demo(issuer, options={"excluded_routes": ("/redoc",)}))) as client:
        assert client.get("/redoc").status == 200
        assert client.get("/docs").status == 401
        assert client.get("/docs/assets/redoc.js").status == 200


def test_without_an_excluded_page_its_files_need_a_token(issuer: Issuer) -> None:
    with Client(built(demo(issuer, options={"excluded_routes": ("/health",)}))) as client:
        assert client.get("/docs/assets/redoc.js").status == 401
        assert client.get("/docs/assets/redoc.js", token=issuer.token()).status == 200


def test_files_need_no_mention_among_the_excluded_routes(issuer: Issuer) -> None:
    template = "/docs/assets/{name}"
    with Client(built(demo(issuer))) as client:
        lines = client.get("/me", token=issuer.token()).json()["routes"]

    (line,) = [line for line in lines if line["route"] == template]
    assert line["needs"] == "nothing: the route is excluded"


@pytest.mark.parametrize("target", [*PAGES, "/openapi.json", "/docs/assets/docs.js"])
def test_they_can_be_switched_off(issuer: Issuer, target: str) -> None:
    with Client(built(demo(issuer, docs=False))) as client:
        assert client.get(target).status == 404
        assert client.get("/health").status == 200


def test_the_switch_stands_in_the_table_of_the_platform() -> None:
    assert structure({"platform": {"docs": False}}).docs is False
    assert structure({}).docs is True
