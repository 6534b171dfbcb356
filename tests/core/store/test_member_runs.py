from __future__ import annotations

import json
from operator import attrgetter
from typing import Any

import pytest
from attrs import evolve

from legation.store.leases import FOREVER
from legation.store.member_runs import MemberMove, Root, StartMember
from legation.store.run_keeping import ClaimWaiting, FindNeglected
from legation.store.run_pages import ReadRuns
from legation.store.run_reads import RecentRuns
from legation.store.run_rows import RunLease, RunRow, StoredEvent
from legation.store.run_steering import CancelRun
from legation.store.runs import AppendEvents, FinishRun, StartRun
from legation.store.steps import Records

from ...one_database import Database

LEASE = RunLease("n", 1)
ROOT = Root("ada", "s", "team", LEASE)
HOSTED = ("agent:crew", "team:crew")
EVENT = StoredEvent(1, "TeamRunError", "{}")


def as_it_is(row: RunRow) -> RunRow:
    return row


def started(run_id: str = "team") -> StartRun:
    return StartRun("ada", "s", run_id, "team", "crew", '{"message":"x"}', "x", "n", 1)


def member(run_id: str = "m", parent: str = "team", root: Root = ROOT) -> StartMember:
    output = json.dumps({"run_id": run_id, "status": "RUNNING"})
    return StartMember(root, run_id, parent, "agent", "ann", '{"message":"x"}', output, 2)


def moved(status: str, run_id: str = "m", root: Root = ROOT) -> AppendEvents:
    output = json.dumps({"status": status, "content": "hi", "requirements": []})
    move = MemberMove(
        root.owner, root.session_id, run_id, status, output, None, '{"input_tokens":1}', 3
    )
    return AppendEvents(root.owner, root.run_id, root.lease, 3, (), 0, Records(moves=(move,)))


def ended(status: str = "ERROR", *, members: bool = True) -> FinishRun:
    return FinishRun(
        owner="ada",
        session_id="s",
        run_id="team",
        lease=LEASE,
        node="n",
        now_us=9,
        status=status,
        output="{}",
        reason="interrupted",
        usage=None,
        events=(EVENT,),
        hosted=HOSTED,
        members=members,
    )


@pytest.fixture
def database() -> Database:
    database = Database()
    database.ask(
        "insert into nodes (node_id, started_us, beat_us, code_version, schema_version)"
        " values ('n', 0, 0, '', '')"
    )
    database.run(started())
    return database


def rows(database: Database) -> dict[str, tuple[Any, ...]]:
    """Return status, reason and end of each member's run."""
    found = database.ask(
        "select run_id, status, reason, ended_us from runs where parent_run_id is not null"
    )
    return {run_id: tuple(rest) for run_id, *rest in found}


def test_run_of_a_member_is_a_row_under_that_of_the_team(database: Database) -> None:
    assert database.run(member()) is False
    assert database.run(member("n", "m")) is False

    listed = database.run(ReadRuns("ada", "s", as_it_is, members=True)).items
    assert [(row.run_no, row.run_id, row.parent_run_id, row.status) for row in listed] == [
        (1, "team", None, "RUNNING"),
        (2, "m", "team", "RUNNING"),
        (3, "n", "m", "RUNNING"),
    ]
    assert [row.lease_us for row in listed] == [FOREVER, None, None]
    assert database.run(ReadRuns("ada", "s", attrgetter("run_id"))).items == ("team",)


def test_run_of_a_member_is_stored_once(database: Database) -> None:
    assert [database.run(member()), database.run(member())] == [False, False]
    assert database.ask("select run_no from runs where run_id = 'm'") == [(2,)]
    assert database.ask("select runs from sessions") == [(2,)]


@pytest.mark.parametrize("status", ["COMPLETED", "ERROR", "PAUSED", "RUNNING"])
def test_run_of_a_member_moves(database: Database, status: str) -> None:
    database.run(member())

    assert [database.run(moved(status)), database.run(moved(status))] == [False, False]
    assert rows(database) == {"m": (status, None, None if status == "RUNNING" else 3)}


def test_run_that_is_over_staysas_it_is(database: Database) -> None:
    database.run(member())
    database.run(moved("COMPLETED"))

    assert database.run(moved("ERROR")) is False
    assert rows(database)["m"][0] == "COMPLETED"


def test_run_of_a_client_is_not_moved_so(database: Database) -> None:
    database.run(moved("COMPLETED", "team"))

    assert database.ask("select status from runs") == [("RUNNING",)]


OTHERS = {
    "another node": evolve(ROOT, lease=RunLease("other", 1)),
    "another attempt": evolve(ROOT, lease=RunLease("n", 2)),
    "another owner": evolve(ROOT, owner="eve"),
    "a session that is gone": evolve(ROOT, session_id="gone", run_id="gone"),
}


@pytest.mark.parametrize("who", OTHERS)
def test_who_does_not_hold_the_lease_writes_nothing(database: Database, who: str) -> None:
    database.run(member())
    before = database.ask("select * from runs"), database.ask("select * from sessions")

    assert database.run(member("n", root=OTHERS[who])) is None
    assert database.run(moved("COMPLETED", root=OTHERS[who])) is None
    assert (database.ask("select * from runs"), database.ask("select * from sessions")) == before


def test_wish_to_cancel_is_told(database: Database) -> None:
    database.run(CancelRun("ada", "s", "team", 5, "{}", ("TeamRunCancelled", "{}")))

    assert database.run(member()) is True
    assert database.run(member()) is True
    assert database.run(moved("COMPLETED")) is True


@pytest.mark.parametrize("status", ["ERROR", "CANCELLED"])
def test_members_end_with_the_team(database: Database, status: str) -> None:
    for run in (member("done"), member("m"), member("below", "m"), member("waits")):
        database.run(run)
    database.run(moved("COMPLETED", "done"))
    database.run(moved("PAUSED", "waits"))
    if status == "CANCELLED":
        database.run(CancelRun("ada", "s", "team", 5, "{}", ("TeamRunCancelled", "{}")))

    assert database.run(ended(status)).kept

    over = (status, "interrupted", 9)
    assert rows(database) == {
        "done": ("COMPLETED", None, 3),
        "m": over,
        "below": over,
        "waits": over,
    }
    (output,) = database.ask("select output from runs where run_id = 'waits'")[0]
    told = "was cancelled" if status == "CANCELLED" else "ended in an error"
    assert json.loads(output) == {
        "status": status,
        "content": f"The run that this one is part of {told}",
        "content_type": "str",
    }


def test_members_of_other_teams_do_not_end_with_it(database: Database) -> None:
    database.run(member())
    database.run(ended("PAUSED", members=False))
    database.run(started("other"))
    database.run(member("o", "other", evolve(ROOT, run_id="other")))

    cancelled = ("TeamRunCancelled", "{}")
    database.run(CancelRun("ada", "s", "team", 11, "{}", cancelled, members=True))

    assert rows(database) == {"m": ("CANCELLED", "cancelled", 11), "o": ("RUNNING", None, None)}


def test_runs_of_members_do_not_make_a_session_busy(database: Database) -> None:
    database.run(member())
    database.run(ended("PAUSED", members=False))

    assert database.run(started("next")).claim is not None
    assert database.run(FindNeglected(HOSTED)).expired == ()
    assert database.run(ClaimWaiting("n", 50, HOSTED)) is None
    assert database.run(RecentRuns("ada", "s", 9, 9)) == ()
