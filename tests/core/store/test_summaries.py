"""Summaries of sessions are stored once, and never with what was deleted meanwhile."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from legation.store.run_reads import (
    LongRecentRuns,
    RecentRuns,
    estimate_tokens,
    fit_tokens,
)
from legation.store.sessions import NoRoom, SessionChange, SessionRow, UpdateSession
from legation.store.summaries import FetchSummary, StoreSummary, Summary, SummaryOfNumber

from ...one_database import Database
from ...people_rows import ADA, EVE, put, put_run, put_session

MADE: Final = Summary(2, "They said é.", "r", "m", '{"input_tokens":1}', 9)


@pytest.fixture
def database() -> Database:
    made = Database()
    for owner in (ADA, EVE):
        put_session(made, owner, "s", bytes=0, runs=4)
        put(made, "usage", subject=owner, bytes=0)
        for number in range(1, 5):
            put_run(made, owner, "s", f"{owner}-{number}", run_no=number)
    return made


def store(database: Database, summary: Summary = MADE, base: int = 0, **more: Any) -> Any:
    runs = tuple(range(base + 1, summary.run_no + 1))
    unit = StoreSummary(ADA, "s", summary, more.get("before", 5), base, more.get("runs", runs))
    return database.run(unit)


def fetch(database: Database, before: int = 5, owner: str = ADA) -> Summary | None:
    return database.run(FetchSummary(owner, "s", before))


def test_a_summary_is_read_by_the_runs_behind_it_and_by_nobody_else(database: Database) -> None:
    assert store(database) == MADE

    assert [fetch(database, before) for before in (5, 3, 2)] == [MADE, MADE, None]
    assert fetch(database, owner=EVE) is None
    assert database.run(SummaryOfNumber(ADA, "s", 2)) == MADE
    assert database.run(SummaryOfNumber(ADA, "s", 3)) is None
    assert database.run(SummaryOfNumber(EVE, "s", 2)) is None


def test_its_bytes_are_counted(database: Database) -> None:
    store(database)

    size = len(MADE.text.encode())
    assert database.ask("select bytes from usage where subject = ?", ADA) == [(size,)]
    assert database.ask("select bytes from sessions where owner = ?", ADA) == [(size,)]


def test_of_two_that_are_made_at_once_the_first_counts(database: Database) -> None:
    other = Summary(3, "others", "q", "m", None, 9)

    assert store(database) == MADE
    assert store(database, other) == MADE
    assert database.ask("select count(*) from session_summaries") == [(1,)]
    assert store(database, other, base=2) == other
    assert fetch(database) == other
    assert fetch(database, 3) == MADE


def test_nothing_is_stored_that_was_deleted_meanwhile(database: Database) -> None:
    later = Summary(3, "others", "q", "m", None, 9)
    assert store(database, later, base=2) is None  # the summary before is gone
    database.ask("delete from runs where owner = ? and run_no = 1", ADA)
    assert store(database) is None
    database.ask("delete from sessions where owner = ?", ADA)
    assert store(database, runs=()) is None
    assert database.ask("select count(*) from session_summaries") == [(0,)]


# --- what a client says


def patch(database: Database, summary: dict[str, Any], most: int | None = None) -> Any:
    return database.run(UpdateSession(ADA, "s", SessionChange(summary=summary), 11, most))


def test_a_client_corrects_the_newest_summary(database: Database) -> None:
    store(database)
    later = Summary(3, "later", "q", "m", None, 9)
    store(database, later, base=2)

    assert isinstance(patch(database, {"summary": "corrected", "topics": ["x"]}), SessionRow)
    newest = fetch(database)
    assert newest is not None
    assert (newest.text, newest.model, newest.at_us) == ("corrected", "", 11)
    assert fetch(database, 3) == MADE
    kept = len(json.dumps({"summary": "corrected", "topics": ["x"]}))
    size = len(MADE.text.encode()) + len("corrected") + kept
    assert database.ask("select bytes from sessions where owner = ?", ADA) == [(size,)]


@pytest.mark.parametrize("said", [{"topics": ["x"]}, {"summary": ["no text"]}])
def test_what_has_no_text_corrects_nothing(database: Database, said: dict[str, Any]) -> None:
    store(database)
    patch(database, said)

    assert fetch(database) == MADE


def test_a_summary_for_which_there_is_no_room_corrects_nothing(database: Database) -> None:
    store(database)

    assert patch(database, {"summary": "y" * 99}, 50) == NoRoom()
    assert fetch(database) == MADE


# --- history by tokens


def output(*texts: str, arguments: str = "") -> str:
    calls = [{"id": "1", "function": {"name": "f", "arguments": arguments}}]
    messages = [{"role": "user", "content": text} for text in texts]
    more = [{"role": "assistant", "content": "", "tool_calls": calls}] if arguments else []
    return json.dumps({"messages": [*messages, *more]})


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (output(), 0),
        ("{}", 0),
        (output("a"), 1),
        (output("abcd"), 1),
        (output("abcde"), 2),
        (output("ab", "cd", arguments="efgh"), 2),
        (output("é" * 4), 2),
    ],
)
def test_a_token_is_four_bytes(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_the_newest_runs_that_fit_are_told_and_never_half_of_one() -> None:
    runs = [(1, output("a" * 4)), (2, output("b" * 40)), (3, output("c" * 8))]

    found = [tuple(n for n, _ in fit_tokens(runs, most)) for most in (1, 2, 11, 12, 13)]
    assert found == [(), (3,), (3,), (2, 3), (1, 2, 3)]
    assert fit_tokens((), 5) == ()


@pytest.mark.parametrize("unit", [RecentRuns, LongRecentRuns])
def test_the_last_runs_are_read_by_their_number_and_tokens(unit: Any) -> None:
    database = Database()
    put_session(database, ADA, "s")
    for number in range(1, 6):
        told = {"run_no": number, "output": output("x" * 4 * number)}
        put_run(database, ADA, "s", f"r{number}", **told)

    def read(size: int, **more: Any) -> list[int]:
        found = database.run(unit(ADA, "s", 6, size, **more)) or ()
        return [number for number, _ in found]

    assert read(3) == [3, 4, 5]
    assert read(9, after=3) == [4, 5]
    assert read(3, tokens=9) == [4, 5]
    assert read(3, tokens=4) == []
