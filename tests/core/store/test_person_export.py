from __future__ import annotations

import json
from typing import Any, Final

import pytest

from legation.store.erasure import LettersOf
from legation.store.person_export import LETTERS, STEPS, TABLES, ReadLetters, ReadTable

from ...one_database import Database
from ...people_rows import ADA, EVE, fill, put_answer, put_run, put_session

OF_ADA: Final = LettersOf("chat", ("1",), ("1",))
# The owner and the channel are known; the rest is of the platform, and of no person.
LEFT_OUT: Final = {
    "owner",
    "version",
    "started_us",
    "lease_by",
    "lease_us",
    "attempt",
    "token",
    "tries",
    "recorded",
    "turn",
    "at_once",
    "events",
    "resolved_events",
    "state",
    "fingerprint",
    "position",
    "ready_us",
    "spared",
    "run_id",
}


def rows(database: Database, table: str, owner: str, run_id: str = "") -> list[dict[str, Any]]:
    found: list[str] = []
    page = database.run(ReadTable(table, owner, None, run_id))
    found += page.rows
    while page.last is not None:
        page = database.run(ReadTable(table, owner, page.last, run_id))
        found += page.rows
    return [json.loads(row) for row in found]


@pytest.mark.parametrize("table", [*TABLES, *LETTERS, "steps"])
def test_every_column_is_exported_or_is_nobodys(table: str) -> None:
    columns = {name for _, name, *_ in Database().ask(f"pragma table_info({table})")}
    known = {**TABLES, **LETTERS, "steps": STEPS}[table]

    assert columns - set(known.columns) <= LEFT_OUT
    assert set(known.columns) - columns <= {"session_state"}


@pytest.mark.parametrize("table", TABLES)
def test_rows_are_those_of_one_person(table: str) -> None:
    database = fill()
    read = rows(database, table, ADA)

    assert read
    assert EVE not in json.dumps(read)
    assert len(read) == len(rows(database, table, EVE))
    assert rows(database, table, "nobody") == []


@pytest.mark.parametrize("table", LETTERS)
def test_letters_are_those_of_one_person(table: str) -> None:
    database = fill()
    page = database.run(ReadLetters(table, OF_ADA))

    assert page.rows
    assert page.last is None
    assert EVE not in "".join(page.rows)


def test_documents_stand_as_they_are_stored() -> None:
    database = Database()
    put_session(database, ADA, "s", state='{"é": [1]}', metadata=None, name='a"b')

    (read,) = rows(database, "sessions", ADA)
    assert (read["state"], read["metadata"], read["name"]) == ({"é": [1]}, None, 'a"b')


def test_an_answer_that_is_no_text_is_shown_all_the_same() -> None:
    database = Database()
    put_answer(database, ADA, "k", b"\xff\x00a")

    (read,) = rows(database, "idempotency", ADA)
    assert read["body"] == "\\xff\x00a"


def test_a_message_that_is_done_has_no_content() -> None:
    database = fill()
    database.ask("update inbox set payload = '' where message_id = 'm-ada-a'")
    page = database.run(ReadLetters("inbox", OF_ADA))

    assert [json.loads(row)["payload"] == "" for row in page.rows] == [True, False]


@pytest.mark.parametrize("count", [0, 1, 11])
def test_pages_go_on_behind_each_other(count: int) -> None:
    database = Database()
    for number in range(count):
        put_session(database, ADA, f"s{number}")
        put_run(database, ADA, f"s{number}", f"r{number}")

    for table in ("sessions", "session_states", "runs"):
        assert len(rows(database, table, ADA)) == count
    assert {one["run_id"] for one in rows(database, "runs", ADA)} == {
        f"r{number}" for number in range(count)
    }


def test_the_steps_are_those_of_a_run_of_the_owner() -> None:
    database = fill()

    assert len(rows(database, "steps", ADA, "ada-a")) == 1
    assert rows(database, "steps", EVE, "ada-a") == []
