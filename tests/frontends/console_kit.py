"""The console in a real browser: signed in with a token, worked by roles and names, and judged.

A person, or a screen reader, finds a button by its role and its name; so do these tests.  Clicks
and keys are real ones.  What the page asks of anybody else counts, and what its policy refuses.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from attrs import define

from .. import axe
from ..browser import SECONDS, Browser, CallFailed, browser

__all__ = ["NARROW", "PICTURES", "Console", "console"]

WIDE: Final = (1280, 800)
NARROW: Final = (390, 844)
"""The size of a telephone, in CSS pixels."""

PICTURES: Final = os.environ.get("LEGATION_PICTURES")
"""The folder that pictures of the screens are written to; none are made without it."""

_LOCAL: Final = ("data", "blob", "about")
_WATCH: Final = """
window.reports = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.reports.push(`${event.effectiveDirective} ${event.blockedURI} ${event.sample}`));
"""
_AXE: Final = """
axe.run(document, {resultTypes: ["violations"]}).then(({violations}) =>
  violations.map(({id, nodes}) => [id, ...nodes.map((node) => node.html.slice(0, 200))]))
"""
_OVERFLOW: Final = """
document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("body *")]
  .filter((e) => e.getBoundingClientRect().left + e.scrollWidth > innerWidth + 1)
  .map((e) => e.outerHTML.slice(0, 200))
"""
_SETTLE: Final = "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))"
_KEYS: Final = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38}


@define(eq=False)
class Console:
    """A page with the console of the platform at `origin`, where it may be mounted."""

    page: Browser
    origin: str = ""

    def open(self, origin: str, token: str | None = None, screen: str = "") -> None:
        """Open a fresh page, signed in with `token`, on a screen such as `/runs`.

        The page shows no screen before it knows what the token allows.
        """
        self.origin = origin
        self.page.open()
        self.page.call("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)
        self.page.call("Accessibility.enable")
        self.resize(*WIDE)
        self.page.go(f"{origin}/console{'' if token is None else f'#token={quote(token)}'}")
        self.page.wait("!!document.querySelector('main h1')")
        if screen:
            self.show(screen)

    def show(self, screen: str) -> None:
        """Go to a screen by its address, as a link does."""
        self.page.run(f"location.hash = {json.dumps('#' + screen)}")

    def resize(self, width: int, height: int) -> None:
        """Give the page this size, in CSS pixels."""
        self.page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, scheme: str) -> None:
        """Prefer a `light` or a `dark` page."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.page.call("Emulation.setEmulatedMedia", features=features)

    # What is on the page

    def find(self, role: str, name: str) -> list[int]:
        """Return the nodes of the page that have a role and exactly this name.

        None has while the page gives way to the next.
        """
        try:
            made = self.page.call("Runtime.evaluate", expression="document")["result"]
            found = self.page.call(
                "Accessibility.queryAXTree",
                objectId=made["objectId"],
                role=role,
                accessibleName=name,
            )
        except CallFailed:
            return []
        return [n["backendDOMNodeId"] for n in found["nodes"] if not n.get("ignored")]

    def wait_for(self, role: str, name: str) -> int:
        """Return the first node with this role and name as soon as there is one."""
        deadline = time.monotonic() + SECONDS
        while not (found := self.find(role, name)):
            assert time.monotonic() < deadline, f"no {role} {name!r} in {self.text()!r}"
            time.sleep(0.05)
        return found[0]

    def wait_text(self, text: str) -> None:
        """Wait until the screen has `text` on it."""
        deadline = time.monotonic() + SECONDS
        while text not in self.text():
            assert time.monotonic() < deadline, f"no {text!r} in {self.text()!r}"
            time.sleep(0.05)

    def until(self, happened: Callable[[], object]) -> None:
        """Wait for something outside of the page."""
        deadline = time.monotonic() + SECONDS
        while not happened():
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.05)

    def text(self, selector: str = "body") -> str:
        """Return what can be read on the page, or a part of it; nothing where that is not there."""
        found = f"document.querySelector({json.dumps(selector)})"
        try:
            return str(self.page.run(f"{found} ? {found}.innerText : ''"))
        except CallFailed:  # the page gives way to the next
            return ""

    def screens(self) -> list[str]:
        """Return the names of the screens that the page leads to."""
        links = "document.querySelectorAll('nav a')"
        return list(self.page.run(f"[...{links}].map((link) => link.innerText.trim())"))

    # What a person does

    def click(self, name: str, role: str = "button") -> None:
        """Click what has this name; once more where it was drawn anew meanwhile."""
        try:
            self._click(self.wait_for(role, name))
        except CallFailed:
            self._click(self.wait_for(role, name))

    def _click(self, node: int) -> None:
        self.page.call("DOM.scrollIntoViewIfNeeded", backendNodeId=node)
        quads = self.page.call("DOM.getContentQuads", backendNodeId=node)["quads"]
        assert quads, "it cannot be seen"
        x, y = (sum(quads[0][at::2]) / 4 for at in (0, 1))
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def write(self, name: str, text: str, role: str = "textbox") -> None:
        """Write `text` into the field of this name, instead of what is there."""
        self.page.call("DOM.focus", backendNodeId=self.wait_for(role, name))
        self.page.run("document.activeElement.select()")
        self.page.call("Input.insertText", text=text)

    def choose(self, name: str, value: str) -> None:
        """Choose a value of the list of this name."""
        self.page.call("DOM.focus", backendNodeId=self.wait_for("combobox", name))
        chosen = json.dumps(value)
        script = f"(e => {{ e.value = {chosen}; return e.value === {chosen}; }})"
        assert self.page.run(f"{script}(document.activeElement)"), f"no {value!r} in {name!r}"
        for kind in ("input", "change"):
            event = f"new Event('{kind}', {{bubbles: true}})"
            self.page.run(f"document.activeElement.dispatchEvent({event})")

    def press(self, key: str) -> None:
        """Press a key that has a name."""
        code: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        typed = {"text": "\r"} if key == "Enter" else {}
        self.page.call("Input.dispatchKeyEvent", type="keyDown", **code, **typed)
        self.page.call("Input.dispatchKeyEvent", type="keyUp", **code)

    # What is judged

    def violations(self) -> list[list[str]]:
        """Return the rules of axe-core that the page breaks, each with where."""
        if not self.page.run("'axe' in window"):
            self.page.run(f"{axe.read()};true")
        return list(self.page.run(_AXE))

    def overflow(self) -> list[str]:
        """Return what makes the page wider than its window: it would have to be moved sideways."""
        return list(self.page.run(_OVERFLOW))

    def foreign(self, *allowed: str) -> list[str]:
        """Return what was asked of anybody else, but those whose origins are `allowed`."""
        home = urlsplit(self.origin)
        homes = (f"{home.scheme}://{home.netloc}", *allowed)
        return [
            url
            for url in self.page.requests
            if urlsplit(url).scheme not in _LOCAL
            and not any(url.startswith(f"{origin}/") for origin in homes)
        ]

    def assert_clean(self, *allowed: str) -> None:
        """Nothing was asked of anybody else, nothing was stopped by the policy, nothing complained.

        A browser notes each refusal of the platform as well; the screen shows those, and they count
        for nothing here.
        """
        reports = self.page.run("window.reports")
        assert reports == [], reports
        assert self.foreign(*allowed) == []
        refused = "Failed to load resource: the server responded with a status of "
        assert [c for c in self.page.complaints if not c.startswith(refused)] == []

    def picture(self, name: str) -> None:
        """Write pictures of the screen, where they are asked for: light, dark, and narrow."""
        if not PICTURES:
            return
        folder = Path(PICTURES)
        folder.mkdir(parents=True, exist_ok=True)
        for kind, size, scheme in (
            ("light", WIDE, "light"),
            ("dark", WIDE, "dark"),
            ("narrow", NARROW, "light"),
        ):
            self.resize(*size)
            self.prefer(scheme)
            self.page.run(
                "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))"
            )
            shot = self.page.call("Page.captureScreenshot", format="png")["data"]
            (folder / f"{name}-{kind}.png").write_bytes(base64.b64decode(shot))
        self.resize(*WIDE)
        self.prefer("light")


@contextmanager
def console() -> Generator[Console]:
    """Start a browser for consoles; it is gone at the end."""
    with browser() as started:
        yield Console(started)
