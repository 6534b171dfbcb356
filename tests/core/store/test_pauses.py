"""Pauses of runs: what was asked, what came next, and who answered, forgotten."""

from __future__ import annotations

import pytest

from legation.store.pauses import FetchPauses, ForgetResolution, Pause
from legation.store.units import Dialect

from ...listed_runs import INSERT, row
from ...one_database import Database

OWN = '{"event":"RunPaused","run_id":"r00001","requirements":[]}'


def put(database: Database, number: int, *events: tuple[str, str]) -> None:
    database.connection.execute(INSERT, row(number, status="PAUSED", events=len(events)))
    for seq, (name, data) in enumerate(events, 1):
        database.connection.execute(
            "insert into events (run_id, seq, at_us, name, data) values (?, ?, ?, ?, ?)",
            (f"r{number:05}", seq, seq * 10, name, data),
        )


@pytest.fixture
def database() -> Database:
    database = Database()
    put(database, 1, ("RunStarted", "{}"), ("RunPaused", OWN), ("RunContinued", '{"tools":[]}'))
    return database


def test_a_pause_is_found_with_what_came_next(database: Database) -> None:
    found = database.run(FetchPauses((("r00001", 2), ("r00001", 1), ("r00001", 9), ("none", 2))))

    assert found == {("r00001", 2): Pause(20, False, False, OWN, "RunContinued", '{"tools":[]}')}


def test_of_the_last_event_nothing_came_next(database: Database) -> None:
    put(database, 2, ("TeamRunPaused", OWN.replace("r00001", "r00002")))

    (pause,) = database.run(FetchPauses((("r00002", 1),))).values()

    assert (pause.next_name, pause.next_data) == (None, None)


def test_the_pause_of_a_member_is_none_of_the_run(database: Database) -> None:
    put(database, 3, ("RunPaused", '{"run_id":"member","parent_run_id":"r00003"}'))

    assert database.run(FetchPauses((("r00003", 1),))) == {}


@pytest.mark.parametrize(
    ("data", "external", "confirms"),
    [
        ('"requires_confirmation":true', False, True),
        ('"external_execution_required":true', True, False),
        ('"requires_confirmation":true,"external_execution_required":true', True, True),
        (r'"content":"\"requires_confirmation\":true"', False, False),
    ],
)
def test_what_kind_of_answer_it_waits_for(
    database: Database, data: str, *, external: bool, confirms: bool
) -> None:
    put(database, 4, ("RunPaused", f'{{"run_id":"r00004",{data}}}'))

    (pause,) = database.run(FetchPauses((("r00004", 1),), 0)).values()

    assert (pause.external, pause.confirms, pause.data) == (external, confirms, None)


def test_a_text_is_as_long_as_is_asked_for_in_bytes(database: Database) -> None:
    data = '{"run_id":"r00005","x":"\u20ac"}'
    put(database, 5, ("RunPaused", data))
    size = len(data.encode())

    for most, text in ((size, data), (size - 1, None)):
        (pause,) = database.run(FetchPauses((("r00005", 1),), most)).values()
        assert pause.data == text


def test_who_answered_is_forgotten_once(database: Database) -> None:
    database.connection.execute(
        "update runs set resolved_us = 5, resolved_by = 'x', resolution = 'approved',"
        " resolved_events = 2 where run_id = 'r00001'"
    )

    for owner, run_id, events in (("bob", "r00001", 2), ("ada", "r2", 2), ("ada", "r00001", 3)):
        assert not database.run(ForgetResolution(owner, run_id, events))
    assert database.run(ForgetResolution("ada", "r00001", 2))
    assert not database.run(ForgetResolution("ada", "r00001", 2))
    found = database.connection.execute(
        "select resolved_us, resolved_by, resolution, resolved_events from runs"
    ).fetchall()
    assert found == [(None, None, None, 2)]


def test_postgresql_is_given_the_keys_as_two_lists() -> None:
    asked = FetchPauses((("a", 1), ("b", 2)), 7).statements(Dialect.POSTGRESQL)

    assert next(asked).parameters == {"ids": ["a", "b"], "seqs": [1, 2], "most": 7}
