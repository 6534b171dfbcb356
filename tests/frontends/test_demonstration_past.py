"""The past of the demonstration: it is made once, whole, and whatever happens meanwhile."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import frozen

from legation import Request
from legation.api.openapi import example_ids as ids
from legation.channels.standard import Standard
from legation_cli.demonstration import demonstration
from legation_cli.past import make_past
from legation_host.host import system_clock
from legation_host.hosting import open_platform

from .command_kit import running

pytestmark = pytest.mark.newest

MAKE: Final = """
import sys
from pathlib import Path
import trio
from legation_cli.past import make_past
trio.run(make_past, Path(sys.argv[1]), print)
"""
RUNS: Final = {
    ids.RUN: "COMPLETED",
    ids.SECOND_RUN: "COMPLETED",
    ids.PAUSED_RUN: "PAUSED",
    ids.WAITING_RUN: "PAUSED",
    ids.TEAM_RUN: "COMPLETED",
    ids.TEAM_PAUSED_RUN: "PAUSED",
    ids.FAILED_RUN: "ERROR",
}

HOUR_US: Final = 3_600_000_000
OTHERS: Final = 2 + 4
"""The runs of the channel's messages, and of the two members in each run of the team."""


@frozen
class Sent:
    """The content of a request."""

    content: bytes

    async def read(self, limit: int) -> bytes:
        """Return it."""
        return self.content[:limit]


def make(folder: Path) -> subprocess.Popen[str]:
    """Make the past in another process."""
    command = [sys.executable, "-c", MAKE, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ask(folder: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(folder / "hotel.db")) as database:
        return database.execute(statement).fetchall()


def check_whole(folder: Path, *, incidents: Collection[int] = (1,)) -> None:
    runs = dict(ask(folder, "select run_id, status from runs"))
    assert {name: status for name, status in runs.items() if name in RUNS} == RUNS
    assert len(runs) == len(RUNS) + OTHERS
    assert ask(folder, "select idempotency_key, state from outbox order by 1") == [
        (f"reply-{ids.MESSAGE}", "dead"),
        (ids.REPLY, "dead"),
    ]
    ((noted,),) = ask(folder, "select count(*) from incidents")
    assert noted in incidents


def is_whole(folder: Path) -> bool:
    try:
        check_whole(folder, incidents={0, 1})
    except (AssertionError, sqlite3.OperationalError):
        return False
    return True


def start_until_whole(folder: Path) -> None:
    """Serve the demonstration until its past is there.

    Once is enough, unless what was killed had just begun and is held for alive for its lease.
    """
    for _ in range(4):
        with running("--port", "0", env={"LEGATION_DATA": str(folder)}) as command:
            command.until_served()
            patience = time.monotonic() + 15
            while not is_whole(folder) and time.monotonic() < patience:
                time.sleep(0.1)
        if is_whole(folder):
            break


def no_line(*line: object) -> None:
    raise AssertionError(line)


async def test_the_past_is_made_once(tmp_path: Path) -> None:
    await make_past(tmp_path, no_line)
    before = ask(tmp_path, "select count(*) from events")
    await make_past(tmp_path, no_line)

    check_whole(tmp_path)
    assert ask(tmp_path, "select count(*) from events") == before


async def test_a_database_in_use_is_given_no_past(tmp_path: Path) -> None:
    await make_past(tmp_path, no_line)
    with closing(sqlite3.connect(tmp_path / "hotel.db")) as database, database:
        database.execute("delete from runs where run_id = ?", (ids.SECOND_RUN,))
        database.execute("update sessions set session_id = 'mine' where session_id = 'fault'")
    await make_past(tmp_path, no_line)

    assert (ids.SECOND_RUN,) not in ask(tmp_path, "select run_id from runs")


async def test_what_was_not_made_is_made_at_the_next_start(tmp_path: Path) -> None:
    await make_past(tmp_path, no_line)
    with closing(sqlite3.connect(tmp_path / "hotel.db")) as database, database:
        database.execute("delete from runs where run_id = ?", (ids.SECOND_RUN,))
        database.execute("update sessions set state = '{}' where session_id = 'welcome'")
    await make_past(tmp_path, no_line)

    check_whole(tmp_path)


def test_two_processes_that_start_at_once_make_one_past(tmp_path: Path) -> None:
    with make(tmp_path) as one, make(tmp_path) as other:
        printed = [process.communicate()[0] for process in (one, other)]

    assert printed == ["", ""]
    check_whole(tmp_path)


async def test_messages_that_were_delivered_and_not_answered_are_answered_in_the_past(
    tmp_path: Path,
) -> None:
    """A reply of today would be tried for a day, and be no dead letter until then."""
    platform = demonstration(tmp_path, pause_seconds=0.0)
    async with open_platform(platform, jobs=False) as host:
        host.clock = lambda: system_clock() - 26 * HOUR_US
        for message_id in (ids.MESSAGE, ids.SECOND_MESSAGE):
            body = b'{"type": "message", "data": {"sender": "grace", "text": "Hello"}}'
            codec = platform.registry.channels[ids.CHANNEL].codec
            assert isinstance(codec, Standard)
            signed = codec.sign(message_id, body, host.clock()).headers
            raw = tuple((name.encode(), value.encode()) for name, value in signed)
            request = Request("POST", f"/{ids.CHANNEL}/webhook", raw)
            await host.run(platform.answer(request), body=Sent(body))
    assert ask(tmp_path, "select state from inbox") == [("ready",), ("ready",)]
    await make_past(tmp_path, no_line)

    check_whole(tmp_path)


REACHED: Final = {
    "a message was delivered": "select 1 from inbox",
    "a message is answered": "select 1 from runs",
    "a reply waits": "select 1 from outbox where attempts > 0",
    "a run failed": f"select 1 from runs where run_id = '{ids.FAILED_RUN}'",
    "a team works": f"select 1 from runs where run_id = '{ids.TEAM_RUN}'",
    "the last run began": f"select 1 from runs where run_id = '{ids.SECOND_RUN}'",
}


def has_reached(folder: Path, statement: str) -> bool:
    try:
        return bool(ask(folder, statement))
    except sqlite3.OperationalError:  # there is no database yet, or no table
        return False


@pytest.mark.parametrize("statement", REACHED.values(), ids=REACHED)
def test_what_was_killed_while_it_made_the_past_is_completed(
    tmp_path: Path, statement: str
) -> None:
    with make(tmp_path) as process:
        while process.poll() is None and not has_reached(tmp_path, statement):
            time.sleep(0.005)
        process.kill()
    start_until_whole(tmp_path)

    check_whole(tmp_path, incidents={0, 1})  # one that is not written yet dies with its process


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_served_demonstration_has_what_the_examples_name(tmp_path: Path, workers: str) -> None:
    environ = {"LEGATION_DATA": str(tmp_path)}
    with running("--port", "0", "--workers", workers, env=environ) as command:
        url = command.until_served()

        def get(path: str) -> Any:
            with urllib.request.urlopen(f"{url}{path}", timeout=10) as answer:
                return json.load(answer)

        chat = get(f"/sessions/{ids.SESSION}")["chat_history"]
        approval = get(f"/approvals/{ids.APPROVAL}")
        failed = get(f"/agents/{ids.AGENT}/runs/{ids.FAILED_RUN}?session_id={ids.FAILED_SESSION}")
        (incident,) = get("/incidents")["data"]
        dead = get(f"/channels/{ids.CHANNEL}/replies?state=dead")["data"]
        message = get(f"/channels/{ids.CHANNEL}/messages/{ids.MESSAGE}")

    assert [each["content"] for each in chat if each["role"] == "user"] == [
        "Which rooms are free tomorrow?",
        "Book a single room for Grace",
    ]
    assert approval["status"] == "pending"
    assert approval["session_id"] == ids.PAUSED_SESSION
    assert approval["requirements"][0]["tool_execution"]["tool_call_id"] == ids.TOOL_CALL
    assert failed["status"] == "ERROR"
    assert incident["run_id"] == ids.FAILED_RUN
    assert ids.REPLY in {each["id"] for each in dead}
    assert message["replies"][0]["state"] == "dead"
    check_whole(tmp_path)


async def test_a_folder_that_cannot_be_locked_is_served_without_a_past(tmp_path: Path) -> None:
    lines: list[tuple[object, ...]] = []

    def note(*line: object) -> None:
        lines.append(line)

    await make_past(tmp_path / "absent", note)

    assert lines == [("warning", "past_failed", {"reason": "FileNotFoundError"})]
