from __future__ import annotations

import json
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from legation_asgi import asgi
from legation_host.assets import read_assets

from ..browser import Browser, NoBrowser, browser
from ..callers import Issuer, demo
from .hosted import hosted
from .test_asgi_servers import outer_application, quiet, uvicorn_in_a_thread

pytestmark = [
    pytest.mark.newest,
    pytest.mark.skipif(
        not read_assets(), reason="the files of the pages are not here: build the package, or -e it"
    ),
]

LOCAL: Final = ("data", "blob", "about")


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def origin(issuer: Issuer) -> Generator[str]:
    with hosted(demo(issuer, options={})) as base:
        yield base


@pytest.fixture(scope="module")
def chromium() -> Generator[Browser]:
    try:
        with browser() as started:
            yield started
    except NoBrowser as reason:
        pytest.skip(str(reason))


@pytest.fixture
def page(chromium: Browser) -> Browser:
    chromium.open()
    return chromium


def token(issuer: Issuer, *scopes: str) -> str:
    now = int(time.time())
    return issuer.token(*scopes, iat=now, exp=now + 600)


def assert_at_home(page: Browser, origin: str) -> None:
    """Nothing was asked of anybody else, and nothing went wrong."""
    assert page.requests
    elsewhere = [
        url
        for url in page.requests
        if not url.startswith(f"{origin}/") and urlsplit(url).scheme not in LOCAL
    ]
    assert not elsewhere
    assert not page.complaints


def test_an_operation_is_tried_on_the_page(
    origin: str, issuer: Issuer, page: Browser, tmp_path: Path
) -> None:
    page.go(f"{origin}/docs")
    page.click(".btn.authorize")
    page.type(".auth-container input", token(issuer, "agents:read"))
    page.shoot(tmp_path / "docs-token.png")
    page.click(".auth-btn-wrapper .authorize")
    page.click(".auth-btn-wrapper .btn-done")
    page.click("#operations-Agents-get_agents .opblock-summary-control")
    page.click("#operations-Agents-get_agents .try-out__btn")
    page.click("#operations-Agents-get_agents .execute")

    answer = "#operations-Agents-get_agents .live-responses-table tbody"
    status = page.text(f"{answer} .response-col_status")
    body = page.text(f"{answer} .highlight-code code")

    page.run("document.querySelector('#operations-Agents-get_agents').scrollIntoView()")
    page.shoot(tmp_path / "docs.png")
    assert status.startswith("200")
    assert [agent["id"] for agent in json.loads(body)] == ["alpha", "beta"]
    assert_at_home(page, origin)


def test_an_operation_is_tried_where_the_platform_is_mounted(issuer: Issuer, page: Browser) -> None:
    mounted = outer_application(asgi(demo(issuer, options={}), log=quiet), "/mission")
    with uvicorn_in_a_thread(mounted) as port:
        origin = f"http://127.0.0.1:{port}"
        page.go(f"{origin}/mission/docs")
        page.click("#operations-Health-health_check .opblock-summary-control")
        page.click("#operations-Health-health_check .try-out__btn")
        page.click("#operations-Health-health_check .execute")

        answer = "#operations-Health-health_check .live-responses-table tbody"
        assert page.text(f"{answer} .response-col_status").startswith("200")
        assert f"{origin}/mission/health" in page.requests
        assert_at_home(page, origin)
        page.go("about:blank")


def test_every_operation_is_on_the_page(origin: str, page: Browser, tmp_path: Path) -> None:
    page.go(f"{origin}/docs/")
    page.wait("document.querySelectorAll('.opblock').length > 40")
    page.shoot(tmp_path / "docs-all.png")

    assert "2.5.6" in page.text(".info")
    assert not page.run("document.querySelectorAll('.errors-wrapper').length")
    assert_at_home(page, origin)


def test_the_reference_is_read(origin: str, page: Browser, tmp_path: Path) -> None:
    page.go(f"{origin}/redoc")
    page.wait("document.querySelectorAll('[data-section-id^=\"tag/\"]').length > 5")
    page.shoot(tmp_path / "redoc.png")

    assert "Migrate Database" in page.text("body")
    assert page.text("h1").startswith("Legation")
    assert_at_home(page, origin)


def test_the_reference_is_searched(origin: str, page: Browser) -> None:
    page.go(f"{origin}/redoc")
    page.type(".menu-content input", "migrate")
    page.wait("!!document.querySelector('[data-role=\"search:results\"] li')")

    assert_at_home(page, origin)


def test_a_token_comes_back_from_a_provider(origin: str, page: Browser) -> None:
    page.go(f"{origin}/docs")
    page.wait("!!document.querySelector('.info')")
    page.run(
        """window.swaggerUIRedirectOauth2 = {
            state: "s",
            auth: {schema: new Map([["flow", "implicit"]])},
            callback: (answer) => { window.answer = answer; },
        };
        window.open("docs/oauth2-redirect#state=s&access_token=t") && true"""
    )

    assert page.wait("window.answer && window.answer.token.access_token") == "t"
    assert page.run("window.answer.isValid")
    assert_at_home(page, origin)


def test_a_request_elsewhere_would_be_noticed(origin: str, page: Browser) -> None:
    page.go(f"{origin}/docs")
    page.wait("!!document.querySelector('.info')")
    page.run("fetch('https://example.com/').catch(() => true)")
    page.wait("true")

    with pytest.raises(AssertionError):
        assert_at_home(page, origin)
