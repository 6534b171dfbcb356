"""Units on forks, on the tables that the catalogue builds; PostgreSQL is the frontends'."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from attrs import evolve

from legation.runs.forking import Place, read_trail
from legation.store.forks import CopiedRuns, FindCopied, ForkSession, RunFork, SessionCopy
from legation.store.run_reads import FetchRun
from legation.store.run_rows import RunLease, RunRow, StoredEvent
from legation.store.runs import AppendEvents, FinishRun, StartRun
from legation.store.sessions import NoRoom, SessionRow
from legation.store.steps import FetchSteps, Records, Step, StepKind
from legation.store.turns import RunShare

from ...one_database import Database

LEASE: Final = RunLease("n", 1)
PLACES: Final = (
    "0", "1", "1.1", "1.1/0", "1.1/1", "1.1/1.2", "1.2", "2", "2.1", "2.10", "2.10/1", "10", "10.1",
)  # fmt: skip


@pytest.fixture
def database() -> Database:
    made = Database()
    made.enter("n")
    return made


def finish(database: Database, run_id: str, *steps: Step, session_id: str = "s") -> RunRow:
    """Store a run that is over, with these steps."""
    message = json.dumps({"message": run_id, "stream": False})
    database.run(StartRun("ada", session_id, run_id, "agent", "desk", message, "n", "n", 1))
    if steps:
        event = (StoredEvent(1, "e", "{}"),)
        database.run(AppendEvents("ada", run_id, LEASE, 2, event, 1, Records(steps)))
    last = StoredEvent(2 if steps else 1, "RunCompleted", "{}", final=True)
    head = f'{{"run_id":"{run_id}","session_id":"{session_id}"'
    output = f'{head},"content":"r","session_state":{{}}}}'
    end = FinishRun(
        "ada", session_id, run_id, LEASE, "n", 3, "COMPLETED", output, None, None, (last,), ()
    )
    assert database.run(end).kept
    row = database.run(FetchRun(run_id, "ada"))
    assert row is not None
    return row


def step(place: str) -> Step:
    call = "." in place.rpartition("/")[2]
    kind = StepKind.CALL if call else StepKind.MODEL
    return Step(place, kind, "asked", 1, 2, f'{{"f":1,"n":"{place}","usage":[0,0,0,0,0]}}')


def fork(run_id: str = "f", session_id: str = "t", **more: Any) -> StartRun:
    fork = RunFork("r", 1, **more)
    message = '{"message":"m","stream":false}'
    return StartRun("ada", session_id, run_id, "agent", "desk", message, "", "n", 9, fork=fork)


def copy(*runs: str, **more: Any) -> SessionCopy:
    values: dict[str, Any] = {
        "owner": "ada",
        "session_id": "s",
        "copy_id": "copy",
        "names": ('"s"', '"copy"'),
        "state": '{"a":1}',
        "pairs": tuple((run_id, f"{run_id}-copy") for run_id in runs),
        "runs": 7,
        "bytes": 100,
        "now_us": 5,
    }
    return SessionCopy(**{**values, **more})


@pytest.mark.parametrize("at", ["1", "2", "3", "1.1", "1.2", "2.1", "2.10", "10", "10.1", "11"])
def test_the_steps_before_a_place_are_copied_as_a_trail_says(database: Database, at: str) -> None:
    row = finish(database, "r", *map(step, PLACES))
    number, _, call = at.partition(".")
    place = Place(int(number), int(call or 0))
    steps: tuple[Step, ...] = database.run(FetchSteps("ada", "r"))
    trail = read_trail(row, steps)
    made = fork(last=place.round if call else place.round - 1, call=at if call else "", start=True)

    assert database.run(made).claim is not None
    stored = database.run(FetchSteps("ada", "f"))
    assert {one.place for one in stored} == {one for one in PLACES if trail.keeps(one, place)}
    assert {one.attempt for one in stored} <= {-1}
    before = {one.place: one for one in database.run(FetchSteps("ada", "r"))}
    assert all(evolve(one, attempt=1) == before[one.place] for one in stored)


def test_a_step_without_an_outcome_is_not_copied_and_one_is_added(database: Database) -> None:
    finish(database, "r", step("1"), Step("1.1", StepKind.CALL, "book", 1))
    added = Step("1.2", StepKind.CALL, "look", 1, 2, '{"f":1}')
    database.run(fork(last=1, added=(added,), bytes=50))

    stored = {one.place for one in database.run(FetchSteps("ada", "f"))}
    assert stored == {"1", "1.2"}
    assert database.ask("select bytes from sessions where session_id = 't'") == [(50,)]


def test_nothing_is_stored_where_the_run_is_not_as_it_was(database: Database) -> None:
    finish(database, "r", step("1"))
    tables = ("sessions", "runs", "steps")
    before = [database.ask(f"select count(*) from {table}") for table in tables]
    wrong = evolve(fork(last=1), fork=RunFork("r", 2, last=1))
    absent = evolve(fork(last=1), fork=RunFork("none", 1, last=1))
    foreign = evolve(fork(last=1), owner="eve")
    taken = evolve(fork(), fork=RunFork("r", 1, copy=copy(copy_id="s")))

    assert all(database.run(unit).changed for unit in (wrong, absent, foreign, taken))
    assert before == [database.ask(f"select count(*) from {table}") for table in tables]


def test_a_fork_over_a_limit_leaves_nothing(database: Database) -> None:
    finish(database, "r", step("1"))
    share = RunShare(stored_bytes=60)
    over = database.run(evolve(fork(last=1, copy=copy()), session_id="copy", share=share))

    assert over.over == "stored_bytes"
    assert database.ask("select count(*) from sessions") == [(1,)]


def test_runs_are_copied_with_their_numbers_and_ids_of_their_own(database: Database) -> None:
    finish(database, "q", step("1"))
    finish(database, "r")
    found = database.run(FindCopied("ada", "s", 2, 10))
    row = database.run(ForkSession(copy("q", "r", bytes=found.bytes)))

    assert (found.runs, found.last, found.state) == (("q", "r"), 2, "{}")
    assert isinstance(row, SessionRow)
    assert (row.name, row.state, row.runs) == ("n (fork)", {"a": 1}, 7)
    copied = database.run(FetchRun("q-copy", "ada"))
    assert copied is not None
    assert (copied.run_no, copied.session_id, copied.events) == (1, "copy", 0)
    assert json.loads(copied.output or "")["run_id"] == "q-copy"
    assert json.loads(copied.output or "")["session_id"] == "copy"
    assert [one.place for one in database.run(FetchSteps("ada", "q-copy"))] == ["1"]
    assert database.ask("select bytes from sessions where session_id = 'copy'") == [(found.bytes,)]
    assert database.ask("select usage from runs where run_id = 'q-copy'") == [(None,)]


def test_a_session_is_forked_once_and_within_its_owners_bytes(database: Database) -> None:
    finish(database, "r")

    assert database.run(ForkSession(copy(), stored_bytes=99)) == NoRoom()
    assert database.run(ForkSession(copy(session_id="none"))) is None
    assert isinstance(database.run(ForkSession(copy())), SessionRow)
    assert database.run(ForkSession(copy())) is None


def test_what_is_copied_is_the_owners_and_over(database: Database) -> None:
    finish(database, "r")
    database.run(StartRun("ada", "s", "open", "agent", "desk", "{}", "", "n", 1))

    assert database.run(FindCopied("ada", "s", 9, 10)).runs == ("r",)
    assert database.run(FindCopied("ada", "s", 0, 10)) == CopiedRuns((), 0, 0, None)
    assert database.run(FindCopied("eve", "s", 9, 10)).runs == ()


def test_the_state_of_an_older_release_stands_in_the_output(database: Database) -> None:
    finish(database, "r")
    database.ask("""update runs set output = '{"content":"r","session_state":{"old":1}}'""")
    stood = database.run(FindCopied("ada", "s", 9, 10)).state
    database.ask("""update runs set output = '{"content":"r"}'""")

    assert stood == '{"old": 1}'
    assert database.run(FindCopied("ada", "s", 9, 10)).state is None
