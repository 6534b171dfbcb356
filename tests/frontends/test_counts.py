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

# An older Python calls a function for each comprehension, so that the numbers are those of one.
pytestmark = [
    pytest.mark.enumeration,
    pytest.mark.skipif(sys.version_info < (3, 12), reason="counted on newer Pythons"),
    pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="bytes are counted in /proc"),
]

PAGE: Final = 4_120
"""How many bytes a page of SQLite is in the write-ahead log; ids are drawn, so that how many pages
a run changes varies by one."""

# `on the loop` counts every call of a function in Python on the thread of the event loop, those of
# trio, anyio and attrs as well.  A message of a channel waits for another system, some more often.
LIMITS: Final[dict[str, dict[str, int]]] = {
    "GET /agents": {"calls": 41, "on the loop": 172, "statements": 0, "commits": 0, "bytes": 0},
    # A statement, and the page that it changes, counts in `usage` what a run has stored and used.
    # Another page is that of the index in which lists find a run that is over.
    # A run may be a fork, and its turn may be made by a replay: 5 calls, 6 of a streamed one.
    # Its entry in the audit trail is a page, with a root and a signature: 3 calls.  A stream may
    # end with its token: 2 calls.
    "joined run": {
        "calls": 483,
        "on the loop": 990,
        "statements": 11,
        "commits": 2,
        "bytes": 119_480,
    },
    "streamed run": {
        "calls": 527,
        "on the loop": 1059,
        "statements": 10,
        "commits": 2,
        "bytes": 127_720,
    },
    # Before steps were stored: 962 calls, 14 statements, 4 commits, 177,160 bytes; streamed 1061
    # calls, 13 statements, 4 commits, 177,160 bytes.
    "joined run, one call": {
        "calls": 924,
        "on the loop": 1884,
        "statements": 17,
        "commits": 4,
        "bytes": 197_760,
    },
    "streamed run, one call": {
        "calls": 1000,
        "on the loop": 1995,
        "statements": 16,
        "commits": 4,
        "bytes": 210_120,
    },
    # Steps and what they define are read once; each is decoded by so many calls.  Three are those
    # of a reader that `check --runs` has as well.
    "going on with 101 steps": {
        "calls": 1158,
        "on the loop": 2352,
        "statements": 2,
        "commits": 0,
        "bytes": 0,
    },
    # Taken, answered by a run, and sent.  Before replies named their message: 1494 calls, 25
    # statements, 9 commits, 148,320 bytes; the page is that of the index by message.  15 calls are
    # those of a fork, and of options without use here: a router, functions, answers that grow; 3
    # are those of the history of a session, which may be told by tokens or by a summary.
    "message of a channel": {"calls": 1440, "statements": 24, "commits": 9, "bytes": 152_440},
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
