"""A headless Chromium, driven by the protocol of its developer tools.

Every request it makes and every complaint of its console is kept.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from attrs import define, field
from websockets.sync.client import ClientConnection, connect

__all__ = ["Browser", "CallFailed", "NoBrowser", "browser", "chromium"]

SECONDS: Final = 30.0  # a page of two megabytes on a busy machine
_LISTENING: Final = re.compile(r"DevTools listening on (ws://\S+)")
_FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--remote-debugging-port=0", "--window-size=1280,1000"),
    # Whatever would leave this machine finds no address.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class NoBrowser(Exception):
    """There is no Chromium on this machine; the tests that need it are skipped."""


class CallFailed(AssertionError):
    """The developer tools refuse a call: what it names may have gone, with its page."""


def chromium() -> str:
    """Return where Chromium is."""
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    raise NoBrowser(f"none of {', '.join(_NAMES)} is on PATH; install the package chromium")


@define(eq=False)
class Browser:
    """One page, and what became of it."""

    _socket: ClientConnection
    _session: str = ""
    _target: str = ""
    _number: int = 0
    requests: list[str] = field(factory=list[str])
    complaints: list[str] = field(factory=list[str])

    def open(self) -> None:
        """Make a page; the last one is closed, and what it did is forgotten."""
        last, self._session = self._target, ""
        self.requests.clear()
        self.complaints.clear()
        self._target = self.call("Target.createTarget", url="about:blank")["targetId"]
        if last:
            self.call("Target.closeTarget", targetId=last)
        attached = self.call("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Call the developer tools and return the result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            received = json.loads(self._socket.recv(timeout=SECONDS))
            if received.get("id") == self._number:
                if "error" in received:
                    raise CallFailed(f"{method}: {received['error']}")
                return received["result"]
            if received.get("sessionId") == self._session:
                self._hear(received)

    def _hear(self, message: dict[str, Any]) -> None:
        told = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(told["exceptionDetails"])[:500])
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                texts = [str(a.get("value", a.get("description"))) for a in told["args"]]
                self.complaints.append(" ".join(texts)[:500])
            case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
            case _:
                pass

    def go(self, url: str) -> None:
        """Open `url`."""
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Return what `script` evaluates to."""
        done = self.call(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in done, (script, done["exceptionDetails"])
        return done["result"].get("value")

    def wait(self, script: str) -> Any:
        """Return what `script` evaluates to as soon as that is true."""
        deadline = time.monotonic() + SECONDS
        while not (found := self.run(script)):
            assert time.monotonic() < deadline, f"in vain: {script}; {self.complaints}"
            time.sleep(0.05)
        return found

    def click(self, selector: str) -> None:
        """Wait for what `selector` finds and click it."""
        self.wait(f"!!document.querySelector({json.dumps(selector)})")
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def type(self, selector: str, text: str) -> None:
        """Type `text` into a field."""
        self.wait(f"!!document.querySelector({json.dumps(selector)})")
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def text(self, selector: str) -> str:
        """Wait for what `selector` finds and return its text."""
        found = f"document.querySelector({json.dumps(selector)})"
        return str(self.wait(f"{found} && {found}.innerText"))

    def shoot(self, path: Path) -> None:
        """Write a picture of the page, a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def browser() -> Generator[Browser]:
    """Start Chromium with a profile of its own; it is gone at the end."""
    program = chromium()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        try:
            with connect(_address(process), max_size=None) as socket:
                yield Browser(socket)
        finally:
            process.kill()
            process.communicate()


def _address(process: subprocess.Popen[bytes]) -> str:
    assert process.stderr is not None
    lines: list[str] = []
    readline: Callable[[], bytes] = process.stderr.readline
    for raw in iter(readline, b""):
        lines.append(raw.decode("utf-8", "replace"))
        if listening := _LISTENING.search(lines[-1]):
            return listening[1]
    raise NoBrowser(f"{process.args!r} ended: {''.join(lines)[-500:]}")
