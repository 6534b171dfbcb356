"""Nodes of one cluster as processes of their own, and clients that do not let go of their runs."""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final
from urllib.parse import urlencode

from attrs import define, field

from ..providers.deliveries import Delivery
from ..transcripts import ROOT
from .command_kit import Command, running
from .drain_kit import RUNS, Outcome, ask_run, read_events

__all__ = [
    "NIGHTLY",
    "Talk",
    "ask_json",
    "await_true",
    "begin_run",
    "begin_talks",
    "finish_talks",
    "node",
    "report_talks",
    "send",
    "status_of",
]

NIGHTLY: Final = "LEGATION_NIGHTLY" in os.environ
"""Try with the times of a real outage what CI tries with short ones."""

_PAUSE: Final = 0.2
_PATIENCE: Final = 60.0


@contextmanager
def node(
    url: str,
    *options: str,
    lease: float = 30.0,
    clock: float = 0.0,
    provider: str = "http://127.0.0.1:9",
    env: Mapping[str, str] | None = None,
    **started: Any,
) -> Generator[Command]:
    """Serve `tests.providers.clustered` on a free port, with a clock that is wrong by seconds."""
    set_to = {
        "CLUSTER_URL": url,
        "CLUSTER_LEASE": str(lease),
        "CLUSTER_CLOCK": str(clock),
        "CLUSTER_PROVIDER": provider,
        "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
        **(env or {}),
    }
    module = "tests.providers.clustered:platform"
    with running(module, "--port", "0", *options, env=set_to, cwd=ROOT, **started) as command:
        yield command


def ask_json(port: int, method: str, target: str, **form: str) -> tuple[int, Any]:
    """Send a request, and return the status and the JSON of the answer."""
    headers = {"content-type": "application/x-www-form-urlencoded"} if form else {}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)) as connection:
        connection.request(method, target, urlencode(form) or None, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def await_true(told: Callable[[], Any], seconds: float = _PATIENCE) -> float:
    """Wait until `told` is true; return how many seconds that took."""
    started = time.monotonic()
    while not told():
        waited = time.monotonic() - started
        assert waited < seconds, f"not after {waited:.1f} s"
        time.sleep(0.02)
    return time.monotonic() - started


def begin_run(port: int, message: str, session: str) -> str:
    """Begin a run in the background; return its id."""
    form = {"message": message, "session_id": session, "background": "true"}
    run_id: str = ask_json(port, "POST", RUNS, **form)[1]["run_id"]
    return run_id


def status_of(port: int, run_id: str) -> Any:
    """Return the status of a run, None where there is no such run."""
    return ask_json(port, "GET", f"{RUNS}/{run_id}")[1].get("status")


def send(port: int, delivery: Delivery) -> int:
    """Deliver messages as their provider does; return the status of the answer."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)) as connection:
        connection.request("POST", delivery.target, delivery.body, dict(delivery.headers))
        return connection.getresponse().status


@define(eq=False)
class Talk:
    """A run in a session of its own, and the client that waits for its end.

    A stream that stops before its end is gone on with behind the last event, at the same node.
    """

    port: int
    words: int
    seconds: float
    streamed: bool
    session: str
    outcome: Outcome = field(factory=Outcome)
    resumed: int = 0
    run: Mapping[str, Any] = field(factory=dict[str, Any])
    _thread: threading.Thread = field(init=False)

    @property
    def expected(self) -> str:
        """The content of the run."""
        return "".join(f"{number} " for number in range(self.words))

    @property
    def is_begun(self) -> bool:
        """Whether the run has an id."""
        return bool(self.outcome.run_id)

    def begin(self) -> None:
        """Ask for the run, on a thread."""
        self._thread = threading.Thread(target=self._talk, daemon=True)
        self._thread.start()

    def finish(self, seconds: float) -> None:
        """Wait until its client has heard its end."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), (self.session, self.outcome.names[-3:])

    def _talk(self) -> None:
        form = {"message": f"{self.words} words in {self.seconds} s", "session_id": self.session}
        if self.streamed:
            ask_run(self.port, self.outcome, **form)
        else:
            _, accepted = ask_json(self.port, "POST", RUNS, background="true", **form)
            self.outcome.run_id = accepted["run_id"]
        self.follow()

    def follow(self) -> None:
        """Read the events behind the last one, until the run has ended."""
        while not self.outcome.ended:
            time.sleep(_PAUSE)
            self._go_on()

    def _go_on(self) -> None:
        self.resumed += 1
        headers = {"last-event-id": self.outcome.last_id} if self.outcome.last_id else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        with closing(connection):
            try:
                target = f"{RUNS}/{self.outcome.run_id}/events"
                connection.request("GET", target, headers=headers)
                response = connection.getresponse()
            except (OSError, http.client.HTTPException):
                return
            if response.status == 200:
                read_events(response, self.outcome)

    @property
    def numbers(self) -> list[int]:
        """The numbers of the events, as they were heard."""
        lines = self.outcome.text.splitlines()
        return [int(line.rpartition(":")[2]) for line in lines if line.startswith("id: ")]

    @property
    def fault(self) -> str:
        """Say what is wrong with the run; nothing is the empty text."""
        status, run = ask_json(self.port, "GET", f"{RUNS}/{self.outcome.run_id}")
        if (status, run.get("status")) != (200, "COMPLETED"):
            return f"{self.session}: {status} {run.get('status')}: {run.get('content')}"
        if run["content"].split() != self.expected.split():
            return f"{self.session}: says {run['content']!r}"
        if self.numbers != [*range(1, len(self.numbers) + 1)]:
            return f"{self.session}: events {self.numbers}"
        started = self.outcome.names.count("RunStarted")
        if (started, self.outcome.names[-1]) != (1, "RunCompleted"):
            return f"{self.session}: {self.outcome.names}"
        return ""


def begin_talks(ports: Sequence[int], count: int, seconds: float) -> list[Talk]:
    """Begin runs, on one node after the other, half of them streamed; return once they have."""
    talks = [
        Talk(ports[n % len(ports)], 12, seconds, n // len(ports) % 2 == 0, f"s{n}")
        for n in range(count)
    ]
    for talk in talks:
        talk.begin()
    await_true(lambda: all(talk.is_begun for talk in talks))
    return talks


def finish_talks(talks: Sequence[Talk], seconds: float) -> None:
    """Wait for the ends of `talks`, and check that each is as it was to be."""
    due = time.monotonic() + seconds
    for talk in talks:
        talk.finish(due - time.monotonic())
    faults = [talk.fault for talk in talks]
    assert not any(faults), "\n".join(fault for fault in faults if fault)


def report_talks(talks: Sequence[Talk]) -> str:
    """Return the figure of `talks` that all came to their end."""
    streams = [talk for talk in talks if talk.streamed]
    cut = sum(talk.resumed > 0 for talk in streams)
    return f"{len(talks)} of {len(talks)} runs COMPLETED, {cut} of {len(streams)} streams resumed"
