"""The path of a newcomer, in seconds: from the README's first command to an approved booking.

    python -m tests.newcomer

clones this checkout into a temporary folder, types the first command of its README there, opens
the console in a real browser, asks for a room in the playground, approves the booking, and reads
its number.  It prints the seconds of each step, and fails where all of them take more than 90.

Two things differ from a newcomer's machine: the server takes a free port, and pip has no cache.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from attrs import define, field

from .browser import NoBrowser
from .frontends.console_kit import Console, console
from .ports import free_port
from .transcripts import ROOT, blocks

__all__ = ["LIMIT", "Laps", "book", "first_command", "main", "walk"]

LIMIT: Final = 90.0
"""Seconds that the whole path may take, install included."""

_QUESTION: Final = "Which rooms are free tomorrow?"
_WISH: Final = "Book a double room for two nights for Ada"

_POLL: Final = 0.05
_BOOKED: Final = re.compile(r"Booked: .* The number is H-\d+")
_ARTICLE: Final = """
[...document.querySelectorAll("article.approval")].find((one) => one.innerHTML.includes("RUN"))
"""


@define
class Laps:
    """A stopwatch: the seconds of each step, in order; `limit` is for all of them."""

    steps: list[tuple[str, float]] = field(factory=list[tuple[str, float]])
    limit: float = LIMIT
    _since: float = field(factory=time.monotonic)

    def end(self, step: str) -> None:
        """End a step; the next one begins."""
        now = time.monotonic()
        self.steps.append((step, now - self._since))
        self._since = now

    @property
    def total(self) -> float:
        """The seconds of all steps."""
        return sum(seconds for _, seconds in self.steps)

    def table(self) -> str:
        """Return a line for each step, and one for all of them."""
        rows = [*self.steps, (f"in all, of {self.limit:.0f} s", self.total)]
        return "\n".join(f"{seconds:6.1f} s  {step}" for step, seconds in rows)


def first_command(readme: Path) -> str:
    """Return the first command of a README, as it stands there."""
    shell = (block for block in blocks(readme) if block.language in ("sh", "console"))
    return next(shell).text.strip().removeprefix("$ ")


def book(shown: Console, origin: str, laps: Laps) -> str:
    """Book a room in the console and approve it; return the answer, which has the number."""
    shown.open(origin)
    laps.end("open the console")
    shown.click("Playground", "link")
    shown.choose("Agent or team", "agent/desk")
    shown.write("Message", _QUESTION)
    shown.click("Send")
    shown.wait_for("link", "Show the run")
    laps.end("ask for free rooms")
    shown.write("Message", _WISH)
    shown.click("Send")
    shown.wait_for("button", "Approve")
    run = _last_run(shown)
    shown.picture("booking")
    laps.end("ask for a room")
    shown.click("Approvals", "link")
    article = _ARTICLE.replace("RUN", run).strip()
    shown.page.wait(f"!!({article})")
    laps.end("find it under approvals")
    shown.page.run(f"({article}).querySelector('button.primary').click()")
    shown.wait_for("textbox", "Note")
    shown.click("Approve")
    shown.wait_text("Approved: the run goes on.")
    laps.end("approve it")
    shown.click("Runs", "link")
    shown.page.click(f"a[href*='{run}']")
    shown.until(lambda: _BOOKED.search(shown.text("main")))
    laps.end("read the number of the booking")
    booked = _BOOKED.search(shown.text("main"))
    assert booked is not None
    return booked[0]


def _last_run(shown: Console) -> str:
    """Return the id of the last run that the playground shows."""
    links = "[...document.querySelectorAll('.tools a')]"
    address = str(shown.page.wait(f"{links}.length === 2 && {links}[1].getAttribute('href')"))
    found = re.search(r"runs/([\w-]+)", address)
    assert found is not None
    return found[1]


def walk(folder: Path) -> Laps:
    """Walk the whole path in `folder`, which is empty; return the seconds of its steps."""
    laps = Laps()
    clone = folder / "legation"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    laps.end("clone the repository")
    with _typed(first_command(clone / "README.md"), clone, laps) as origin, console() as shown:
        laps.end("start a browser")
        _say(book(shown, origin, laps))
    return laps


@contextmanager
def _typed(command: str, folder: Path, laps: Laps) -> Generator[str]:
    """Type the command that ends in a server; yield where that is, and end it."""
    environ = {
        **{name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"},
        "LEGATION_DATA": str(folder / "data"),
        "PIP_NO_CACHE_DIR": "1",
    }
    log, port = folder / "serve.log", free_port()
    with log.open("w") as file:
        shell = subprocess.Popen(
            ["bash", "-c", f"{command} --port {port}"],
            cwd=folder,
            env=environ,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        try:
            _wait(shell, log, (folder / ".venv/bin/pip").exists)
            laps.end("make an environment")
            _wait(shell, log, (folder / ".venv/bin/legation").exists)
            laps.end("install Legation")
            _wait(shell, log, lambda: " served at " in log.read_text("utf-8"))
            laps.end("serve the demonstration")
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(shell.pid, signal.SIGKILL)  # the shell leads a group of its own
            shell.wait()


def _wait(shell: subprocess.Popen[bytes], log: Path, happened: Callable[[], bool]) -> None:
    """Wait for something that the command in `shell` does."""
    while not happened():
        if shell.poll() is not None:
            raise SystemExit(f"the command ended with {shell.returncode}:\n{log.read_text()}")
        time.sleep(_POLL)


def main() -> int:
    """Walk the path, print its steps; return 1 beyond the limit."""
    with tempfile.TemporaryDirectory(prefix="legation-newcomer-") as folder:
        try:
            laps = walk(Path(folder))
        except NoBrowser as reason:
            _say(str(reason))
            return 2
    _say(laps.table())
    return int(laps.total > LIMIT)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
