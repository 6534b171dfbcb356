"""What a run and a read cost is counted, and is not more than it was.

Whoever makes a path longer raises its number here, and says why in the change.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from ..postgres_messages import message_relay
from .counting_postgres import count_trips

# An older Python calls a function for each comprehension, so that the numbers are those of one.
pytestmark = [
    pytest.mark.enumeration,
    pytest.mark.skipif(sys.version_info < (3, 12), reason="counted on newer Pythons"),
    pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="bytes are counted in /proc"),
]

PAGE: Final = 4_120
"""How many bytes a page of SQLite is in the write-ahead log; ids are drawn, so that how many pages
a run changes varies by one.  With a call it varies by more: rows fill their pages at other times
where others were stored before."""

# `on the loop` counts every call of a function in Python on the thread of the event loop, those of
# trio, anyio and attrs as well, but for those of the pause behind an operation, which takes one or
# two more at some times.  A message of a channel waits for another system, some more often.
LIMITS: Final[dict[str, dict[str, int]]] = {
    "GET /agents": {"calls": 31, "on the loop": 39, "statements": 0, "commits": 0, "bytes": 0},
    # A statement, and the page that it changes, counts in `usage` what a run has stored and used.
    # Another page is that of the index in which lists find a run that is over.
    # A run may be a fork, and its turn may be made by a replay: 5 calls, 6 of a streamed one.
    # Its entry in the audit trail is a page, with a root and a signature: 3 calls.  A stream may
    # end with its token: 2 calls.
    # What a joined run comes to is told to its request, which asks the database for nothing: before
    # that it took 40 calls and a statement more, with a call of a tool 89.
    # Who follows a run is known, so that nobody has to ask for it again and again: 4 calls more of
    # a streamed run, and the rounds of the watcher that fall into the time of a message.
    # The change of the session returns who is busy and whether anybody waits, and the end of the
    # chain of the trail is known: 3 statements less.  A page less is an index that is gone.
    # What is asked of models and tools is counted for the metrics, by numbers that are added: 1
    # call of a run, 4 of a request to a model, of which 3 are the program around it, and 2 of a
    # call of a tool.
    "joined run": {
        "calls": 373,
        "on the loop": 549,
        "statements": 7,
        "commits": 2,
        "bytes": 115_360,
    },
    # Its first event is stored with the run, so that a client waits for one commit and not for two:
    # a statement and a page more, and 15 calls, which make, store and send that event by itself.
    "streamed run": {
        "calls": 433,
        "on the loop": 655,
        "statements": 8,
        "commits": 2,
        "bytes": 123_600,
    },
    # Before steps were stored: 962 calls, 14 statements, 4 commits, 177,160 bytes; streamed 1061
    # calls, 13 statements, 4 commits, 177,160 bytes.  A streamed one has its first event by itself.
    "joined run, one call": {
        "calls": 760,
        "on the loop": 1226,
        "statements": 13,
        "commits": 4,
        "bytes": 197_760,
    },
    "streamed run, one call": {
        "calls": 882,
        "on the loop": 1527,
        "statements": 14,
        "commits": 4,
        "bytes": 210_120,
    },
    # Steps and what they define are read once; each is decoded by so many calls.  Three are those
    # of a reader that `check --runs` has as well.
    "going on with 101 steps": {
        "calls": 1158,
        "on the loop": 2227,
        "statements": 2,
        "commits": 0,
        "bytes": 0,
    },
    # Before tokens were shown in windows, on connections that wait: 39,359 calls, 23 statements, 7
    # commits; before chunks that come together were one, and repeated ones parsed once: 22,500.
    # How many windows there are depends on what is read at once; at a pace there are as many as
    # tests/core/runs/test_token_windows.py counts.
    "1,000 tokens of a model": {"calls": 9_000, "statements": 22, "commits": 6, "bytes": 152_440},
    # Taken, answered by a run, and sent.  Before replies named their message: 1494 calls, 25
    # statements, 9 commits, 148,320 bytes; the page is that of the index by message.  15 calls are
    # those of a fork, and of options without use here: a router, functions, answers that grow; 3
    # are those of the history of a session, which may be told by tokens or by a summary.  28 are
    # those of a connection that can be held, and of a transport that opens it: the client has as
    # many of its own, which are not counted; 2 choose the one node that is told of it, where it
    # were all.  5 count for the metrics, as those of a run do.  From one count to the next, 38 or
    # 39 pages are written.
    "message of a channel": {"calls": 1450, "statements": 22, "commits": 9, "bytes": 156_560},
}

TRIPS: Final[dict[str, dict[str, int]]] = {
    # A start and an end take two each, and so does what a call has stored before and behind it.
    # Before statements were sent together: 16, 15, 27 and 26.  The first event of a stream goes in
    # the round trip of its run.
    "joined run": {"trips": 4, "statements": 10},
    "streamed run": {"trips": 4, "statements": 11},
    "joined run, one call": {"trips": 8, "statements": 16},
    "streamed run, one call": {"trips": 8, "statements": 17},
}


@pytest.fixture(scope="module")
def counted() -> dict[str, dict[str, Any]]:
    """The counts of a process of its own: calls of functions of ours, SQL, bytes written."""
    script = Path(__file__).with_name("counting.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    counts: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return counts


@pytest.mark.parametrize("operation", LIMITS)
def test_an_operation_costs_no_more_than_it_did(
    operation: str, counted: dict[str, dict[str, Any]], figures: Callable[[str], None]
) -> None:
    found, limits = counted[operation], LIMITS[operation]
    figures(f"{operation}: {', '.join(f'{found[name]:g} {name}' for name in limits)}")

    spare = {"bytes": PAGE if limits["bytes"] else 0}
    too_much = {name for name in limits if found[name] > limits[name] + spare.get(name, 0)}
    assert {name: found[name] for name in too_much} == {}


def test_a_run_on_postgresql_takes_no_more_round_trips_than_it_did(
    postgres_database: str, figures: Callable[[str], None]
) -> None:
    with message_relay(postgres_database) as relay:
        found = trio.run(count_trips, relay)
    for operation, made in found.items():
        figures(f"PostgreSQL, {operation}: {made['trips']:g} trips, {made['statements']:g} SQL")

    too_many = {
        operation: made
        for operation, made in found.items()
        if any(made[name] > most for name, most in TRIPS[operation].items())
    }
    assert too_many == {}
