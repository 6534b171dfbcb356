"""What a recording needs of a run beside its row and its steps."""

from __future__ import annotations

from typing import Any

import pytest

from legation.store.recordings import EarlierRuns, FetchMarks, FetchStateBefore
from legation.store.run_rows import StoredEvent

from ...listed_runs import INSERT, row
from ...one_database import Database

MARKS = ("RunStarted", "ModelRequestStarted", "ModelRequestCompleted", "RunContinued")


@pytest.fixture
def database() -> Database:
    return Database()


def put(database: Database, number: int, **columns: Any) -> None:
    database.connection.execute(INSERT, row(number, **columns))


def note(database: Database, run_id: str, *names: str) -> None:
    for seq, name in enumerate(names, 1):
        database.connection.execute(
            "insert into events (run_id, seq, at_us, name, data) values (?, ?, 1, ?, ?)",
            (run_id, seq, name, f'{{"event":"{name}"}}'),
        )


def leave(database: Database, number: int, digest: str) -> None:
    """Let a run have left the state `{"DIGEST":1}`."""
    execute = database.connection.execute
    execute("update runs set state = ? where run_no = ?", (digest, number))
    execute(
        "insert into session_states (owner, session_id, digest, document, first_us)"
        " values ('ada', 's', ?, ?, 1)",
        (digest, f'{{"{digest}":1}}'),
    )


def test_marks_are_the_events_that_frame_a_run(database: Database) -> None:
    put(database, 1)
    note(database, "r00001", *MARKS, "RunContent", "ToolCallStarted", *(f"Team{n}" for n in MARKS))

    found = database.run(FetchMarks("ada", "r00001"))

    assert [event.name for event in found] == [*MARKS, *(f"Team{name}" for name in MARKS)]
    assert found[1] == StoredEvent(2, MARKS[1], '{"event":"ModelRequestStarted"}')
    assert database.run(FetchMarks("eve", "r00001")) == ()
    assert FetchMarks.long


def test_runs_that_were_completed_by_then_are_earlier(database: Database) -> None:
    put(database, 1, output="1", ended_us=10)
    put(database, 2, output="2", ended_us=30)
    put(database, 3, output="3", ended_us=20, status="ERROR")
    put(database, 4, output="4", ended_us=20, parent_run_id="r00001")
    put(database, 5, output="5", ended_us=20)
    put(database, 6, output="6", ended_us=20, owner="eve")

    def earlier(size: int, before_us: int) -> Any:
        return database.run(EarlierRuns("ada", "s", 7, size, before_us=before_us))

    assert earlier(9, 20) == ((1, "1"), (5, "5"))
    assert earlier(9, 30) == ((1, "1"), (2, "2"), (5, "5"))
    assert earlier(1, 20) == ((5, "5"),)
    assert earlier(9, 9) == ()


def test_a_long_history_is_no_reason_to_read_none_of_it(database: Database) -> None:
    for number in (1, 2):
        put(database, number, output="x" * (5 << 20), ended_us=number)

    unit = EarlierRuns("ada", "s", 7, 9, before_us=20)

    assert [number for number, _ in database.run(unit) or ()] == [2]


def test_the_state_is_that_of_the_last_run_that_had_ended(database: Database) -> None:
    put(database, 1, ended_us=10)
    put(database, 2, ended_us=30)
    put(database, 3, status="RUNNING")
    put(database, 4, ended_us=15)
    for number, digest in ((1, "a"), (2, "b")):
        leave(database, number, digest)

    def before(run_no: int, before_us: int) -> str:
        return database.run(FetchStateBefore("ada", "s", run_no, before_us))

    assert before(4, 30) == '{"b":1}'
    assert before(4, 20) == '{"a":1}'
    assert before(9, 20) == "{}"
    assert before(1, 20) == "{}"
