"""Lists of runs of every owner: each page is what the rows say, whatever it is narrowed by."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legation.store import listed_runs
from legation.store.listed_runs import (
    PAUSE_BYTES,
    CountListed,
    FindListed,
    ListedRun,
    ListRuns,
    RunPlace,
)
from legation.store.run_rows import StoredEvent
from legation.store.units import Dialect

from ...listed_runs import INSERT, STATES, expect, follow, make_rows, row
from ...one_database import Database

ROWS = make_rows(200)


def fill(rows: list[dict[str, Any]]) -> Database:
    database = Database()
    database.connection.executemany(INSERT, rows)
    return database


@pytest.fixture(scope="module")
def database() -> Database:
    return fill(ROWS)


def ids(database: Database, asked: ListRuns) -> list[str]:
    return [run.run_id for run in chain(*follow(database.run, asked))]


NARROWED: dict[str, dict[str, Any]] = {
    "all": {},
    "a state": {"statuses": ("PAUSED",)},
    "what is active": {"statuses": ("PENDING", "RUNNING")},
    "an active and an ended one": {"statuses": ("RUNNING", "ERROR")},
    "no state": {"statuses": ()},
    "an owner": {"owner": "ada", "alias": "ada"},
    "an owner of two names": {"owner": "~~eve", "alias": "bob"},
    "an owner of none": {"owner": "nobody", "alias": "nobody"},
    "a session": {"session_id": "s3"},
    "a session of an owner": {"session_id": "s3", "owner": "ada", "alias": "ada"},
    "an agent": {"component": "agent:desk"},
    "a reason": {"error_type": "timeout"},
    "a time": {"since_us": 10, "until_us": 40},
    "no time": {"since_us": 40, "until_us": 10},
    "what one may see": {"allowed": ("agent:shop", "team:*")},
    "nothing that one may see": {"allowed": ()},
    "answered ones": {"resolved": True},
    "all at once": {
        "owner": "ada",
        "alias": "ada",
        "session_id": "s0",
        "component": "team:desk",
        "since_us": 1,
        "allowed": ("team:desk",),
        "statuses": ("COMPLETED", "PAUSED"),
    },
}


@pytest.mark.parametrize("newest_first", [True, False], ids=["newest", "oldest"])
@pytest.mark.parametrize("size", [1, 7, 200])
@pytest.mark.parametrize("narrowed", NARROWED.values(), ids=NARROWED)
def test_pages_are_together_what_the_rows_say(
    database: Database, narrowed: dict[str, Any], size: int, *, newest_first: bool
) -> None:
    asked = ListRuns(**narrowed, size=size, newest_first=newest_first)

    assert ids(database, asked) == expect(ROWS, asked)


@pytest.mark.parametrize("newest_first", [True, False], ids=["newest", "oldest"])
@pytest.mark.parametrize("narrowed", NARROWED.values(), ids=NARROWED)
def test_a_window_makes_pages_short_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
    database: Database,
    narrowed: dict[str, Any],
    *,
    newest_first: bool,
) -> None:
    monkeypatch.setattr(listed_runs, "WINDOW", 16)
    monkeypatch.setattr(listed_runs, "FEW", 3)
    asked = ListRuns(**narrowed, size=3, newest_first=newest_first)

    assert ids(database, asked) == expect(ROWS, asked)


def test_a_page_looks_at_no_more_than_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    database = fill([row(number, owner="ada" if number else "bob") for number in range(100)])
    monkeypatch.setattr(listed_runs, "WINDOW", 10)
    monkeypatch.setattr(listed_runs, "FEW", -1)

    pages = list(follow(database.run, ListRuns(owner="bob", alias="bob")))

    assert [len(page) for page in pages] == [*[0] * 9, 1, 0]


@settings(max_examples=50, deadline=None)
@given(st.integers(-1, 70), st.text(st.characters(exclude_characters="\0", codec="utf-8")))
def test_any_place_is_one_to_go_on_from(at_us: int, run_id: str) -> None:
    database = _hypothesis_database()
    for newest in (True, False):
        asked = ListRuns(place=RunPlace(at_us, run_id), size=200, newest_first=newest)
        places = {one["run_id"]: (one["created_us"], one["run_id"]) for one in ROWS}
        behind = [
            one
            for one in expect(ROWS, asked)
            if (places[one] < (at_us, run_id) if newest else places[one] > (at_us, run_id))
        ]

        assert [run.run_id for run in database.run(asked).runs] == behind


_FILLED: list[Database] = []


def _hypothesis_database() -> Database:
    if not _FILLED:
        _FILLED.append(fill(ROWS))
    return _FILLED[0]


def test_a_run_has_its_columns() -> None:
    database = fill(
        [
            row(
                7,
                status="ERROR",
                reason="timeout",
                started_us=8,
                ended_us=9,
                usage="{}",
                model="m",
                incident="0f",
                events=3,
            )
        ]
    )

    (run,) = database.run(ListRuns()).runs

    assert run == ListedRun(
        *("r00007", "s", "ada", "agent", "desk", "ERROR", 7, 8, 9, "{}", "timeout", "m", "0f", 3)
    )


def put_pause(database: Database, number: int, data: str) -> None:
    database.connection.execute(INSERT, row(number, status="PAUSED", events=2))
    event = StoredEvent(2, "RunPaused", data)
    database.connection.execute(
        "insert into events (run_id, seq, at_us, name, data) values (?, ?, 0, ?, ?)",
        (f"r{number:05}", event.seq, event.name, event.data),
    )


def test_the_calls_of_paused_runs_are_read_where_they_are_asked_for_and_short() -> None:
    database = fill([row(1)])
    put_pause(database, 2, "{}")
    put_pause(database, 3, "x" * PAUSE_BYTES)
    put_pause(database, 4, "\u20ac" * (PAUSE_BYTES // 3 + 1))

    def pauses(**asked: Any) -> list[str | None]:
        return [run.pause for run in database.run(ListRuns(newest_first=False, **asked)).runs]

    assert pauses(pauses=True) == [None, "{}", "x" * PAUSE_BYTES, None]
    assert pauses() == [None] * 4
    assert database.run(ListRuns(pauses=True, statuses=("COMPLETED",))).runs[0].pause is None


def test_runs_are_found_by_their_ids_but_for_those_of_members(database: Database) -> None:
    found = database.run(FindListed(("r00001", "r00005", "none", "r00003")))

    assert sorted(run.run_id for run in found) == ["r00001", "r00003"]


@pytest.mark.parametrize(
    "narrowed", [{}, {"owner": "ada", "alias": "ada"}, {"allowed": ("team:*",)}]
)
def test_runs_are_counted_by_state(database: Database, narrowed: dict[str, Any]) -> None:
    counts = database.run(CountListed(**narrowed))

    assert counts == {
        state: len(expect(ROWS, ListRuns(**narrowed, statuses=(state,)))) for state in STATES
    }
    assert set(database.run(CountListed(most=2)).values()) == {2}


@pytest.mark.parametrize("narrowed", NARROWED.values(), ids=NARROWED)
def test_no_list_reads_every_run(database: Database, narrowed: dict[str, Any]) -> None:
    """The heads of the states come from the index, and what is active from one of its own."""
    asked = ListRuns(**narrowed)
    generator = asked.statements(Dialect.SQLITE)
    statement = next(generator)
    if asked.owner is not None:
        statement = generator.send([(9_999,)])
    text = statement.text(Dialect.SQLITE)
    plan = database.connection.execute(f"explain query plan {text}", statement.parameters)

    steps = [step for *_, step in plan]
    assert [step for step in steps if step.startswith("SCAN runs")] == [
        "SCAN runs USING INDEX runs_leased"  # those that are active
    ]
    assert len([step for step in steps if "runs_listed (status=?" in step]) == 4
