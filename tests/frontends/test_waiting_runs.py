"""Runs that wait for their place, with the node dead that had them, and followed at another one."""

from __future__ import annotations

import http.client
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from typing import Final

from legation.runs.watched_runs import LEFT_SECONDS

from .cluster_kit import await_true, begin_run, node, status_of
from .drain_kit import RUNS, Outcome, read_events

LEASE: Final = 5.0
ONE_AT_ONCE: Final = {"CLUSTER_RUNS": "1"}

nodes: Final = partial(node, lease=LEASE, env=ONE_AT_ONCE)


def begin_two(port: int, seconds: float) -> tuple[str, str]:
    """Begin a run that takes so long, and one that waits for it; return their ids."""
    busy = begin_run(port, f"4 words in {seconds} s", "busy")
    await_true(lambda: status_of(port, busy) == "RUNNING")
    waiting = begin_run(port, "2 words in 0.1 s", "waiting")
    assert status_of(port, waiting) == "PENDING"
    return busy, waiting


def follow_run(port: int, run_id: str) -> Outcome:
    """Return the events of a run, up to the end of the stream."""
    outcome = Outcome()
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60.0)) as connection:
        connection.request("GET", f"{RUNS}/{run_id}/events")
        read_events(connection.getresponse(), outcome)
    return outcome


def test_run_that_waited_ends_after_the_crash_of_the_only_node(url: str) -> None:
    with nodes(url) as first:
        busy, waiting = begin_two(first.port(), 2.0)
        first.signal(signal.SIGKILL)
        first.ended()

    with nodes(url) as again:
        outcome = follow_run(again.port(), waiting)

        assert outcome.whole
        assert outcome.names.count("RunStarted") == 1
        assert outcome.names[-1] == "RunCompleted"
        assert status_of(again.port(), busy) == "COMPLETED"


def test_run_that_waits_at_a_node_that_dies_is_followed_at_the_other_to_its_end(url: str) -> None:
    with ExitStack() as stack:
        first, second = (stack.enter_context(nodes(url)) for _ in range(2))
        busy, waiting = begin_two(first.port(), 2.0)
        first.signal(signal.SIGKILL)

        outcome = follow_run(second.port(), waiting)

        assert outcome.names[-1] == "RunCompleted"
        assert [status_of(second.port(), run) for run in (busy, waiting)] == ["COMPLETED"] * 2


def test_run_that_waits_for_long_is_followed_at_both_nodes(postgres: str) -> None:
    with ExitStack() as stack:
        both = [stack.enter_context(nodes(postgres)) for _ in range(2)]
        ports = [one.port() for one in both]
        _, waiting = begin_two(ports[0], LEFT_SECONDS + 2.0)

        with ThreadPoolExecutor() as threads:
            outcomes = [*threads.map(partial(follow_run, run_id=waiting), ports)]

        assert [one.names[-1] for one in outcomes] == ["RunCompleted"] * 2
        assert outcomes[0].names == outcomes[1].names
        assert all(one.text.startswith(": heartbeat") for one in outcomes)
