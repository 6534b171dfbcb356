from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Any

import pytest

from legation import Console, Platform
from legation.api.routes import ROUTES
from legation.effects import Now
from legation.http.messages import Answer, Request, Response
from legation_testing import Client, ClientResponse, play

from ....callers import Issuer, demo

FILES = {
    "main.js": b"import './parts/table.js';",
    "parts/table.js": b"export {};",
    "vendor/lit-html.LICENSE.txt": b"licence",
    "console.css": b"body {}",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; require-trusted-types-for 'script'; trusted-types lit-html;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
BROWSER = [("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")]


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


def built(platform: Platform) -> Platform:
    platform.load_console(FILES)
    return platform


@pytest.fixture(scope="module")
def client(issuer: Issuer) -> Generator[Client]:
    with Client(built(demo(issuer))) as opened:
        yield opened


def links(page: ClientResponse) -> list[str]:
    return [link for link in re.findall(r'(?:src|href)="([^"]*)"', page.text) if "assets" in link]


def settings(page: ClientResponse) -> dict[str, str]:
    return dict(re.findall(r' data-([a-z-]+)="([^"]*)"', page.text))


# --- The page -----------------------------------------------------------------------------------


def test_the_page_is_served_to_everybody_and_checked_each_time(client: Client) -> None:
    page = client.get("/console")

    assert page.status == 200
    assert page.header("content-type") == "text/html; charset=utf-8"
    assert page.header("cache-control") == "no-cache"
    assert page.header("x-content-type-options") == "nosniff"
    assert page.header("referrer-policy") == "no-referrer"
    assert page.header("cross-origin-opener-policy") == "same-origin"


def test_the_policy_lets_nothing_else_in(client: Client) -> None:
    page = client.get("/console")

    assert page.header("content-security-policy") == POLICY
    assert "<script>" not in page.text
    assert "style=" not in page.text


def test_the_identity_provider_alone_may_be_asked_beside(issuer: Issuer) -> None:
    console = Console(issuer="https://id.example.com:8443/realms/main", client_id="c")
    with Client(built(demo(issuer, console=console))) as client:
        policy = client.get("/console").header("content-security-policy") or ""

    connect = "connect-src 'self' https://id.example.com:8443;"
    assert policy == POLICY.replace("connect-src 'self';", connect)


def test_head_of_the_page_has_its_length_and_no_body(client: Client) -> None:
    whole, head = client.get("/console"), client.request("HEAD", "/console")

    assert (head.status, head.body) == (200, b"")
    assert head.header("content-length") == str(len(whole.body))


def test_a_browser_that_has_the_page_is_told_so(client: Client) -> None:
    etag = client.get("/console").header("etag") or ""

    again = client.get("/console", headers=[("if-none-match", etag)])
    assert (again.status, again.body) == (304, b"")
    assert again.header("content-security-policy") == POLICY


@pytest.mark.parametrize(
    ("target", "root"), [("/console", "./"), ("/console/", "../"), ("/console?code=a/b", "./")]
)
def test_links_are_relative_so_that_a_mounted_platform_has_its_console(
    client: Client, target: str, root: str
) -> None:
    page = client.get(target)

    assert all(link.startswith(f"{root}console/assets/") for link in links(page))
    assert settings(page)["root"] == root


def test_whatever_the_page_links_is_there(client: Client) -> None:
    found = [link.removeprefix("./") for link in links(client.get("/console"))]

    assert len(found) == 4  # the style, two modules, and the one of them that begins
    assert [client.get(f"/{link}").status for link in found] == [200] * 4


def test_the_settings_are_text_and_no_markup(issuer: Issuer) -> None:
    console = Console(issuer="https://id.example.com/", client_id='"><b>', scope="a b")
    name = '<b>&"'
    with Client(built(demo(issuer, name=name, console=console))) as client:
        page = client.get("/console")

    assert "<title>&lt;b&gt;&amp;&quot;</title>" in page.text
    assert settings(page) == {
        "root": "./",
        "id": "legation",
        "name": "&lt;b&gt;&amp;&quot;",
        "version": settings(page)["version"],
        "authorization": "on",
        "issuer": "https://id.example.com/",
        "client-id": "&quot;&gt;&lt;b&gt;",
        "scope": "a b",
        "audience": "",
    }


@pytest.mark.parametrize("console", [True, Console()])
def test_without_a_provider_nothing_is_said_of_one(issuer: Issuer, console: bool | Console) -> None:
    with Client(built(demo(issuer, console=console))) as client:
        page = client.get("/console")

    assert [*settings(page)] == ["root", "id", "name", "version", "authorization"]
    assert page.header("content-security-policy") == POLICY


def test_the_page_says_that_no_token_is_needed() -> None:
    with Client(built(demo(None))) as client:
        assert settings(client.get("/console"))["authorization"] == "off"


def test_without_its_files_the_page_says_so(issuer: Issuer) -> None:
    with Client(demo(issuer)) as client:
        page = client.get("/console")

    assert page.status == 200
    assert "has not brought its files" in page.text
    assert links(page) == []


# --- Files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("main.js", "text/javascript; charset=utf-8"),
        ("parts/table.js", "text/javascript; charset=utf-8"),
        ("console.css", "text/css; charset=utf-8"),
        ("vendor/lit-html.LICENSE.txt", "text/plain; charset=utf-8"),
    ],
)
def test_a_file_is_kept_for_ever_under_the_digest_of_all(
    client: Client, name: str, media_type: str
) -> None:
    folder = links(client.get("/console"))[0].removeprefix(".").rpartition("/")[0]
    answer = client.get(f"{folder}/{name}")

    assert (answer.status, answer.body) == (200, FILES[name])
    assert answer.header("content-type") == media_type
    assert answer.header("cache-control") == "public, max-age=31536000, immutable"
    assert answer.header("x-content-type-options") == "nosniff"
    again = client.get(f"{folder}/{name}", headers=[("if-none-match", answer.header("etag") or "")])
    assert (again.status, again.body) == (304, b"")
    head = client.request("HEAD", f"{folder}/{name}")
    assert (head.status, head.body) == (200, b"")


def test_under_the_digest_of_another_release_it_is_not_kept(client: Client) -> None:
    answer = client.get("/console/assets/0123456789abcdef/main.js")

    assert (answer.status, answer.body) == (200, FILES["main.js"])
    assert answer.header("cache-control") == "no-cache"


@pytest.mark.parametrize(
    "name",
    [
        "other.js",
        "parts",
        "parts/other.js",
        "main.js/x",
        "..",
        "parts/..%2fmain.js",
    ],
)
def test_no_other_file_is_there(client: Client, issuer: Issuer, name: str) -> None:
    assert client.get(f"/console/assets/0/{name}", token=issuer.token()).status == 404


@pytest.mark.parametrize("digest", ["null,null", "DEADBEEF", "0" * 65, "xyz"])
def test_a_folder_that_is_no_digest_has_no_files(client: Client, digest: str) -> None:
    assert client.get(f"/console/assets/{digest}/main.js").status == 404


# --- Who may, and whether there is one ------------------------------------------------------------


@pytest.mark.parametrize(
    "target", ["/console", "/console/assets/0/main.js", "/console/assets/0/parts/table.js"]
)
def test_it_can_be_switched_off(issuer: Issuer, target: str) -> None:
    with Client(built(demo(issuer, console=False))) as client:
        assert client.get(target).status == 404
        assert client.get("/docs").status == 200


def test_files_go_with_the_page(issuer: Issuer) -> None:
    with Client(built(demo(issuer, options={"excluded_routes": ("/", "/console")}))) as client:
        assert client.get("/console").status == 200
        assert client.get("/console/assets/0/main.js").status == 200
        assert client.get("/console/assets/0/parts/table.js").status == 200
    with Client(built(demo(issuer, options={"excluded_routes": ("/",)}))) as client:
        assert client.get("/console").status == 401
        assert client.get("/console/assets/0/main.js").status == 401


def test_a_channel_cannot_have_its_place() -> None:
    templates = [route.template for route in ROUTES if route.template.startswith("/console")]

    assert templates == [
        "/console",
        "/console/assets/{digest}/{name}",
        "/console/assets/{digest}/{name}/{part}",
    ]


# --- The root ---------------------------------------------------------------------------------


def test_a_browser_is_led_to_the_console(client: Client) -> None:
    answer = client.get("/", headers=BROWSER)

    assert (answer.status, answer.body) == (303, b"")
    assert answer.header("location") == "console"
    assert answer.header("vary") == "accept"
    assert client.request("HEAD", "/", headers=BROWSER).status == 303


@pytest.mark.parametrize("console", [True, False])
def test_below_a_mount_without_a_slash_links_begin_with_its_name(console: bool) -> None:
    platform = built(demo(None, console=console))
    headers = ((b"accept", b"text/html"), (b"x-request-id", b"id"))
    request = Request("GET", "/", headers, folder="./a&b/")
    answer: Answer = play(platform.answer(request), [(Now(), 10), (Now(), 20)])

    assert isinstance(answer, Response)
    assert dict(answer.headers).get(b"location") == (b"./a&b/console" if console else None)
    assert (b'href="./a&amp;b/docs"' in answer.body) is not console


@pytest.mark.parametrize(
    "headers", [[], [("accept", "*/*")], [("accept", "application/json, text/html;q=0.9")]]
)
def test_a_program_gets_what_it_got(client: Client, headers: list[tuple[str, str]]) -> None:
    answer = client.get("/", headers=headers)
    wanted: dict[str, Any] = {
        "name": "Legation",
        "id": "legation",
        "version": "2.5.6",
        "health": "/health",
        "info": "/info",
        "docs": "/docs",
    }

    assert answer.status == 200
    assert answer.body == json.dumps(wanted, separators=(",", ":")).encode()
    assert answer.header("content-type") == "application/json"
    assert answer.header("vary") == "accept"


def test_where_there_is_no_console_a_plain_page_says_where_to_go(issuer: Issuer) -> None:
    with Client(demo(issuer, console=False, name="<b>")) as client:
        page = client.get("/", headers=BROWSER)

    assert page.status == 200
    assert page.header("content-type") == "text/html; charset=utf-8"
    assert page.header("vary") == "accept"
    assert (page.header("content-security-policy") or "").startswith("default-src 'none'; base-uri")
    assert "<h1>&lt;b&gt;</h1>" in page.text
    assert re.findall('<a href="([^"]*)">', page.text) == ["docs", "info", "health"]


def test_where_there_are_no_documentation_pages_it_does_not_link_them(issuer: Issuer) -> None:
    with Client(demo(issuer, console=False, docs=False)) as client:
        page = client.get("/", headers=BROWSER)

    assert re.findall('<a href="([^"]*)">', page.text) == ["info", "health"]


def test_a_browser_is_not_led_where_it_is_refused(issuer: Issuer) -> None:
    with Client(built(demo(issuer, options={"excluded_routes": ("/",)}))) as client:
        assert client.get("/", headers=BROWSER).status == 200


def test_without_authorization_a_browser_is_led_to_it() -> None:
    with Client(built(demo(None))) as client:
        assert client.get("/", headers=BROWSER).status == 303
