"""Units on imports, on the tables that the catalogue builds; PostgreSQL is the frontends'."""

from __future__ import annotations

from typing import Any, Final

import pytest
from attrs import evolve

from legation.store.imports import (
    FindImported,
    FoundSession,
    ImportedRun,
    ImportedSession,
    ImportSession,
)
from legation.store.run_reads import FetchRun, RecentRuns
from legation.store.runs import StartRun
from legation.store.sessions import DeleteSessions, FetchSession, SessionRow
from legation.store.summaries import FetchSummary

from ...one_database import Database

SESSION: Final = ImportedSession(
    "ada", "s", "agent", "desk", "Hello", '{"a":1}', '{"m":1}', None, 5, 6
)
NOW: Final = 1_000


@pytest.fixture
def database() -> Database:
    return Database()


def run(run_id: str, **more: Any) -> ImportedRun:
    output = f'{{"run_id":"{run_id}","content":"{run_id}","session_state":{{}}}}'
    given: dict[str, Any] = {
        "parent_run_id": None, "kind": "agent", "component_id": "desk", "status": "COMPLETED",
        "created_us": 3, "ended_us": 4, "input": '{"message":"m","stream":false}',
        "output": output, **more,
    }  # fmt: skip
    return ImportedRun(run_id, **given)


def store(database: Database, *runs: ImportedRun, **change: Any) -> int | None:
    return database.run(ImportSession(evolve(SESSION, **change), runs, NOW))


def kept(database: Database) -> tuple[int, int]:
    """Return the bytes that are counted, for the session and for its owner."""
    ((size,),) = database.ask("select bytes from sessions")
    ((total,),) = database.ask("select bytes from usage")
    return size, total


def session(database: Database) -> SessionRow:
    row = database.run(FetchSession("s", ("ada",)))
    assert isinstance(row, SessionRow)
    return row


def test_a_session_comes_in_with_its_runs(database: Database) -> None:
    left = run("a", state='{"a":1}', usage='{"input_tokens":2}', model="gpt")
    member = run("b", parent_run_id="a")
    assert store(database, left, member, run("c", state="{}")) == 3
    row = database.run(FetchRun("a", "ada"))

    assert session(database) == SessionRow(
        "ada", "s", "agent", "desk", "Hello", {"a": 1}, {"m": 1}, None, 3, 5, 6
    )
    assert row is not None
    assert (row.run_no, row.status, row.attempt, row.events) == (1, "COMPLETED", 0, 0)
    assert (row.created_us, row.started_us, row.ended_us) == (3, 3, 4)
    assert (row.shown or "").endswith(',"session_state":{"a":1}}')
    recent = database.run(RecentRuns("ada", "s", 9, 9))
    assert recent is not None
    assert [number for number, _ in recent] == [1, 3]
    size = sum(one.size for one in (left, member, run("c")))
    assert kept(database) == (SESSION.size + size + len('{"a":1}'),) * 2


def test_what_is_here_is_not_stored_again(database: Database) -> None:
    store(database, run("a"))
    before = kept(database)

    assert store(database, run("a")) == 0
    assert store(database, run("a"), run("b")) == 1
    assert kept(database)[0] == before[0] + run("b").size
    assert database.ask("select run_id, run_no from runs order by run_no") == [("a", 1), ("b", 2)]


def test_a_run_of_another_session_is_not_touched(database: Database) -> None:
    store(database, run("a"))

    assert store(database, run("a"), run("b"), session_id="t") == 1
    assert database.ask("select session_id, run_id from runs order by run_id") == [
        ("s", "a"), ("t", "b"),
    ]  # fmt: skip


@pytest.mark.parametrize("change", [{"kind": "team"}, {"component_id": "other"}])
def test_the_session_of_another_agent_stays_as_it_is(
    database: Database, change: dict[str, str]
) -> None:
    store(database, run("a"))

    assert store(database, run("b"), **change) is None
    assert (session(database).runs, session(database).component_id) == (1, "desk")


def test_values_that_changed_there_replace_those_that_did_not_here(database: Database) -> None:
    store(database, component_id="")
    assert store(database, name="Old", updated_us=6) == 0
    assert session(database).name == "Hello"
    new: dict[str, Any] = {
        "name": "New",
        "state": '{"b":22}',
        "metadata": None,
        "summary": '{"c":3}',
    }

    assert store(database, **new, updated_us=7) == 0
    row = session(database)
    assert (row.name, row.state, row.metadata) == ("New", {"b": 22}, None)
    assert (row.summary, row.updated_us, row.component_id) == ({"c": 3}, 7, "desk")
    assert kept(database) == (evolve(SESSION, **new).size,) * 2


def test_values_of_a_session_that_went_on_here_stay(database: Database) -> None:
    store(database, run("a"))
    message = '{"message":"m","stream":false}'
    database.run(StartRun("ada", "s", "own", "agent", "desk", message, "n", "n", 50))

    assert store(database, run("b"), name="New", updated_us=99) == 1
    assert session(database).name == "Hello"
    assert database.run(FindImported("ada", "s", ())).gone_on


def test_a_summary_covers_the_runs_up_to_its_own(database: Database) -> None:
    unit = ImportSession(SESSION, (run("a"), run("b")), NOW, "They met.", "a")
    database.run(unit)
    made = database.run(FetchSummary("ada", "s", 9))

    assert made is not None
    assert (made.run_no, made.text, made.run_id, made.model, made.at_us) == (
        1, "They met.", "a", "", 6,
    )  # fmt: skip
    assert kept(database)[0] == SESSION.size + 2 * run("a").size + len("They met.")
    assert database.run(unit) == 0
    absent = ImportSession(SESSION, (), NOW, "They met.", "gone")
    assert database.run(absent) == 0


def test_what_is_here_is_found(database: Database) -> None:
    store(database, run("a"))
    store(database, run("b"), session_id="t")

    assert database.run(FindImported("ada", "s", ("a", "b", "c"))) == FoundSession(
        "agent", "desk", 6, False, frozenset({"a"}), frozenset({"b"})
    )
    assert database.run(FindImported("eve", "s", ("a",))) == FoundSession(taken=frozenset({"a"}))


def test_what_was_imported_is_given_back_when_it_is_deleted(database: Database) -> None:
    store(database, run("a", state='{"a":1}'))
    database.run(DeleteSessions((("ada", "s", None),), None, NOW))

    assert database.ask("select bytes from usage") == [(0,)]
