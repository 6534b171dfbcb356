"""The console as both servers send it: its page, its files, and the root of the platform."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final

import httpx2
import pytest

from legation_asgi import asgi

from ..callers import demo
from .hosted import hosted
from .test_asgi_servers import quiet, uvicorn_in_a_thread

BROWSER: Final = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


@pytest.fixture(scope="module", params=["trio", "uvicorn"])
def client(request: pytest.FixtureRequest) -> Generator[httpx2.Client]:
    if request.param == "trio":
        with hosted(demo(None)) as base, httpx2.Client(base_url=base) as opened:
            yield opened
    else:
        with (
            uvicorn_in_a_thread(asgi(demo(None), log=quiet)) as port,
            httpx2.Client(base_url=f"http://127.0.0.1:{port}") as opened,
        ):
            yield opened


def test_a_browser_is_led_to_the_page_and_a_program_is_not(client: httpx2.Client) -> None:
    led = client.get("/", headers=BROWSER)
    told = client.get("/")

    assert (led.status_code, led.headers["location"]) == (303, "console")
    assert led.next_request is not None and led.next_request.url.path == "/console"
    assert told.json()["docs"] == "/docs"
    assert led.headers["vary"] == told.headers["vary"] == "accept"
    assert client.head("/", headers=BROWSER).status_code == 303


def test_the_page_and_its_files_are_sent_once(client: httpx2.Client) -> None:
    page = client.get("/console", headers=BROWSER)
    (folder,) = set(re.findall(r'="\./(console/assets/[0-9a-f]+)/', page.text))
    files = {f"/{folder}/main.js": "public, max-age=31536000, immutable", "/console": "no-cache"}

    for target, kept in files.items():
        whole, head = client.get(target), client.head(target)
        assert (whole.status_code, head.status_code, head.content) == (200, 200, b"")
        assert int(head.headers["content-length"]) == len(whole.content)
        assert whole.headers["cache-control"] == kept
        again = client.get(target, headers={"if-none-match": whole.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
