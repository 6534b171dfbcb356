"""Clients that are at work while a server is signalled: a stream, one who waits, one who left."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from attrs import define, field

__all__ = ["RUNS", "Clients", "Outcome", "ask_run", "read_events", "write_slow_platform"]

RUNS: Final = "/agents/concierge/runs"
SECONDS: Final = 60.0
FORM: Final = {"content-type": "application/x-www-form-urlencoded"}

PLATFORM: Final = """
[databases.main]
url = "{url}"
auto_migrate = true

[models.slow]
provider = "echo"
delay_seconds = {delay}

[[agents]]
id = "concierge"
model = "slow"
"""


def write_slow_platform(folder: Path, delay: float, url: str | None = None) -> Path:
    """Write a platform whose agent takes `delay` seconds; return the path of its file."""
    path = folder / "platform.toml"
    path.write_text(PLATFORM.format(url=url or f"sqlite:///{folder / 'legation.db'}", delay=delay))
    return path


@define
class Outcome:
    """What came of one answer: its events, and whether the body came to its end."""

    status: int = 0
    names: list[str] = field(factory=list[str])
    run_id: str = ""
    last_id: str = ""
    text: str = ""
    whole: bool = False
    error: str = ""

    @property
    def ended(self) -> bool:
        """Whether the run's own end was heard."""
        return bool(self.names) and self.names[-1] in ("RunCompleted", "RunError", "RunCancelled")


def read_events(response: http.client.HTTPResponse, outcome: Outcome) -> None:
    """Read a stream of events to its end, or to where it is cut.

    Line by line, `http.client` takes a body without its last chunk for a whole one.
    """
    try:
        rest = b""
        while data := response.read1(65536):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                _take(line.decode(), outcome)
        outcome.whole = True
    except (OSError, http.client.HTTPException) as error:
        outcome.error = repr(error)


def _take(line: str, outcome: Outcome) -> None:
    outcome.text += f"{line}\n"
    name, _, value = line.partition(": ")
    if name == "event":
        outcome.names.append(value)
    elif name == "id":
        outcome.last_id = value
        outcome.run_id = value.partition(":")[0]


def ask_run(port: int, outcome: Outcome, target: str = RUNS, **sent: str) -> dict[str, Any]:
    """POST a run and read what is answered; a stream unless `sent` says otherwise."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("POST", target, urlencode(sent), FORM)
        response = connection.getresponse()
        outcome.status = response.status
        if response.getheader("content-type", "").startswith("text/event-stream"):
            read_events(response, outcome)
            return {}
        answer: dict[str, Any] = json.loads(response.read())
        outcome.whole = True
        return answer
    except (OSError, http.client.HTTPException) as error:
        outcome.error = repr(error)
        return {}
    finally:
        connection.close()


@define(eq=False)
class Clients:
    """One who reads a stream, one who waits for the answer, and a run in the background."""

    port: int
    stream: Outcome = field(factory=Outcome)
    waiting: Outcome = field(factory=Outcome)
    left: Outcome = field(factory=Outcome)
    answer: dict[str, Any] = field(factory=dict[str, Any])
    _threads: list[threading.Thread] = field(factory=list[threading.Thread])

    def begin(self) -> None:
        """Ask, and return when all three runs are under way."""
        sessions = self._count_sessions() + 3
        ask_run(self.port, self.left, message="a", background="true")
        self._start(lambda: ask_run(self.port, self.stream, message="b"))
        self._start(self._wait)
        due = time.monotonic() + SECONDS
        while "RunStarted" not in self.stream.names or self._count_sessions() < sessions:
            assert time.monotonic() < due, self.stream
            time.sleep(0.01)

    def _count_sessions(self) -> int:
        """Return how many sessions there are; each run has its own."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)) as asked:
            asked.request("GET", "/sessions?limit=1")
            return int(json.loads(asked.getresponse().read())["meta"]["total_count"])

    def _wait(self) -> None:
        self.answer = ask_run(self.port, self.waiting, message="c", stream="false")

    def _start(self, work: Callable[[], object]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        self._threads.append(thread)

    def finish(self) -> None:
        """Wait until both have their answer."""
        for thread in self._threads:
            thread.join(SECONDS)
            assert not thread.is_alive()
