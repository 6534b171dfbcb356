"""Rolling restarts under streams: every stream has its end, also where a worker is killed.

They are run on the newest Python alone: `test_server_prefork` and `test_cluster_restart` replace
processes on the oldest.
"""

from __future__ import annotations

import http.client
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from attrs import define, field

from ..transcripts import ROOT
from .command_kit import Command, running
from .drain_kit import RUNS, Outcome, ask_run, read_events

NIGHTLY: Final = "LEGATION_NIGHTLY" in os.environ
RESTARTS: Final = 20 if NIGHTLY else 3
SECONDS: Final = 12.0 if NIGHTLY else 3.0
PAUSE: Final = 2.5 if NIGHTLY else 0.5
"""Seconds between two restarts."""
CLIENTS: Final = 16 if NIGHTLY else 6

pytestmark = [
    pytest.mark.newest,
    pytest.mark.skipif(sys.platform != "linux", reason="slots are spread on Linux"),
]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/main.db"
    found: str = request.getfixturevalue("postgres")
    return found


def environ(url: str, seconds: float) -> dict[str, str]:
    return {
        "PIECEWISE_URL": url,
        "PIECEWISE_SECONDS": str(seconds),
        "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
    }


@define(eq=False)
class Readers:
    """Clients that ask for one stream after the other, and one that only asks how it is."""

    port: int
    outcomes: list[Outcome] = field(factory=list[Outcome])
    healthy: int = 0
    failures: list[str] = field(factory=list[str])
    _stop: threading.Event = field(factory=threading.Event)
    _threads: list[threading.Thread] = field(factory=list[threading.Thread])

    def begin(self) -> None:
        for number in range(CLIENTS):
            self._start(threading.Thread(target=self._read, args=(number,)))
        self._start(threading.Thread(target=self._knock))

    def _start(self, thread: threading.Thread) -> None:
        thread.start()
        self._threads.append(thread)

    def _knock(self) -> None:
        while not self._stop.is_set():
            try:
                with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as c:
                    c.request("GET", "/health")
                    self.healthy += c.getresponse().read() != b""
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
            time.sleep(0.005)

    def _read(self, number: int) -> None:
        time.sleep(number * SECONDS / CLIENTS)  # so that there is one in every phase
        while not self._stop.is_set():
            outcome = Outcome()
            ask_run(self.port, outcome, message="go")
            self.outcomes.append(outcome)

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)


def restart(command: Command, turn: int) -> None:
    """Replace both workers, and wait until their successors serve."""
    command.signal(signal.SIGHUP)
    command.until(lambda: len(command.named("worker_serves")) == 4 + 2 * turn)
    time.sleep(PAUSE)


def test_every_stream_has_its_end_while_workers_are_replaced(
    url: str, figures: Callable[[str], None]
) -> None:
    arguments = ("tests.providers.piecewise:platform", "--port", "0", "--workers", "2")
    with running(*arguments, env=environ(url, SECONDS), cwd=ROOT) as command:
        readers = Readers(command.port())
        readers.begin()
        time.sleep(1.0)
        for turn in range(RESTARTS):
            restart(command, turn)
        readers.finish()
        command.signal(signal.SIGTERM)
        assert command.ended() == 0
    outcomes = readers.outcomes
    ended = sum(each.whole and each.names[-1] == "RunCompleted" for each in outcomes)
    kind = url.partition(":")[0]
    figures(
        f"{RESTARTS} rolling restarts under {SECONDS:g} s streams ({kind}):"
        f" {ended} of {len(outcomes)} have their end, {readers.healthy} requests beside them"
    )

    assert [each for each in outcomes if not each.whole] == []
    assert readers.failures == []
    assert readers.healthy > RESTARTS
    assert ended == len(outcomes) >= CLIENTS


def go_on(port: int, run_id: str, last_id: str, outcome: Outcome) -> None:
    """Read the events of a run from behind the one with `last_id`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        headers = {"last-event-id": last_id}
        connection.request("GET", f"{RUNS}/{run_id}/events", headers=headers)
        read_events(connection.getresponse(), outcome)
    finally:
        connection.close()


def numbers(*outcomes: Outcome) -> list[int]:
    lines = "".join(each.text for each in outcomes).splitlines()
    return [int(line.rpartition(":")[2]) for line in lines if line.startswith("id: ")]


def test_a_client_goes_on_behind_its_last_event_after_its_worker_was_killed(url: str) -> None:
    arguments = ("tests.providers.piecewise:platform", "--port", "0", "--workers", "2")
    with running(*arguments, env=environ(url, 10.0), cwd=ROOT) as command:
        port = command.port()
        stopped = Outcome()
        reader = threading.Thread(target=ask_run, args=(port, stopped), kwargs={"message": "go"})
        reader.start()
        command.until(lambda: "RunContent" in stopped.names)
        for pid in command.workers:
            os.kill(pid, signal.SIGKILL)
        reader.join(20)
        command.until(lambda: len(command.named("worker_serves")) >= 4)
        rest = Outcome()
        go_on(port, stopped.run_id, stopped.last_id, rest)

    assert not stopped.whole
    assert (rest.names[-1], rest.whole) == ("RunCompleted", True)
    assert numbers(stopped, rest) == [*range(1, len(numbers(stopped, rest)) + 1)]


def test_a_client_of_a_server_that_ends_goes_on_at_the_next_one(url: str) -> None:
    """The follower is at a server that does not execute the run, so it is sent elsewhere."""
    module = "tests.providers.piecewise:platform"
    options = ("--port", "0", "--limit", "grace_seconds=0.2")
    env = environ(url, 4.0)
    begun, cut = Outcome(), Outcome()
    with (
        running(module, *options, env=env, cwd=ROOT) as one,
        running(module, *options, env=env, cwd=ROOT) as two,
    ):
        port, other = one.port(), two.port()
        reader = threading.Thread(target=ask_run, args=(port, begun), kwargs={"message": "go"})
        reader.start()
        one.until(lambda: "RunContent" in begun.names)
        follower = threading.Thread(target=go_on, args=(other, begun.run_id, "", cut))
        follower.start()
        two.until(lambda: "RunContent" in cut.names)
        two.signal(signal.SIGTERM)
        follower.join(20)
        assert two.ended() == 0
        rest = Outcome()
        go_on(port, cut.run_id, cut.last_id, rest)
        reader.join(20)

    assert not cut.whole
    words = [line for line in cut.text.splitlines() if line][-1]
    path = f"{RUNS}/{begun.run_id}/events"
    assert words == f": this server ends; go on with GET {path} and Last-Event-ID {cut.last_id}"
    assert (rest.names[-1], rest.whole) == ("RunCompleted", True)
    assert (begun.names[-1], begun.whole) == ("RunCompleted", True)
    assert numbers(cut, rest) == numbers(begun)
