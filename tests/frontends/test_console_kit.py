"""The judge of the console: it notices what a good page never does."""

from __future__ import annotations

from collections.abc import Generator
from http.server import BaseHTTPRequestHandler

import pytest

from ..browser import NoBrowser
from ..http_threads import Quiet, ThreadedServer, serve
from .console_kit import NARROW, Console, console

POLICY = "default-src 'self'; require-trusted-types-for 'script'"
GOOD = b"""<!doctype html><html lang="en"><title>good</title><main><h1>Good</h1>
<label>Name <input></label><select aria-label="Kind"><option>a<option>b</select>
<button>Do it</button></main>"""
BAD = b"""<!doctype html><html><title>bad</title><main><h1>Bad</h1><button></button>
<img src="//other.test/x.png"><script>location.hash = "ran"</script>
<div><pre>%s</pre></div></main>""" % (b"x" * 400)


class Pages(Quiet, BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = BAD if self.path.startswith("/bad") else GOOD
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-security-policy", POLICY)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def origin() -> Generator[str]:
    with serve(ThreadedServer(Pages)) as address:
        yield address


@pytest.fixture(scope="module")
def shown() -> Generator[Console]:
    try:
        with console() as started:
            yield started
    except NoBrowser as reason:
        pytest.skip(str(reason))


def test_a_good_page_is_worked_by_names_and_found_clean(origin: str, shown: Console) -> None:
    shown.open(f"{origin}/good", "a token")
    shown.page.run(
        """document.querySelector("button").addEventListener("click", (event) => {
            event.target.textContent = `${event.isTrusted} ${document.querySelector("input").value}`
              + document.querySelector("select").value;
        }); true"""
    )
    shown.write("Name", "first")
    shown.write("Name", "second ")
    shown.choose("Kind", "b")
    shown.click("Do it")
    shown.wait_for("button", "true second b")
    assert shown.find("button", "Do it") == []
    assert shown.violations() == []
    assert shown.overflow() == []
    assert shown.page.run("location.hash") == "#token=a%20token"
    shown.assert_clean()


def test_a_bad_page_is_found_out(origin: str, shown: Console) -> None:
    shown.open(f"{origin}/bad")
    shown.resize(*NARROW)

    rules = {rule for rule, *_ in shown.violations()}
    reports = shown.page.run("window.reports.map((report) => report.split(' ')[0])")

    assert {"button-name", "html-has-lang", "image-alt"} <= rules
    assert sorted(reports) == ["img-src", "script-src-elem"]
    assert shown.page.run("location.hash") == ""
    assert any(html.startswith("<pre>") for html in shown.overflow())
    with pytest.raises(AssertionError):
        shown.assert_clean()


def test_a_request_elsewhere_is_foreign(origin: str, shown: Console) -> None:
    shown.open(f"{origin}/good")
    shown.page.call("Page.setBypassCSP", enabled=True)
    shown.page.go(f"{origin}/good/again")
    shown.page.wait("location.pathname === '/good/again' && !!document.querySelector('main h1')")
    shown.page.run("fetch('https://example.com/').catch(() => true)")

    assert shown.foreign() == ["https://example.com/"]
    assert shown.foreign("https://example.com") == []
