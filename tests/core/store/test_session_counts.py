"""The number of an owner's sessions: most of it is kept, and it is right after whatever happens."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given

from legation.store.runs import StartRun
from legation.store.session_counts import COUNT, KEEP, MOST_COUNTED, KeepSessionCount
from legation.store.sessions import DeleteSessions
from legation.store.units import Dialect

from ...one_database import Database
from ...session_moves import BEGINNING, KEPT, KINDS, MOVES, OWN, OWNERS, SessionMove, list_kind

MANY: Final = MOST_COUNTED + 44
FILL: Final = """
    insert into sessions (owner, session_id, kind, component_id, created_us, updated_us)
    with recursive n (i) as (select 1 union all select i + 1 from n where i < ?)
    select 'ada', 's' || i, 'agent', 'c', i, i from n"""
KEEP_OF_ADA: Final = KeepSessionCount("ada", "agent")


def filled(sessions: int) -> Database:
    database = Database()
    database.ask(FILL, sessions)
    return database


def rows(database: Database) -> list[tuple[str, str, int, int]]:
    return database.ask("select owner, kind, until_us, sessions from session_counts order by kind")


@pytest.mark.parametrize(("sessions", "keep"), [(MOST_COUNTED, None), (MANY, KEEP_OF_ADA)])
def test_what_takes_long_to_count_is_to_be_kept(
    sessions: int, keep: KeepSessionCount | None
) -> None:
    page = filled(sessions).run(list_kind("ada", "agent"))

    assert (page.total, page.keep) == (sessions, keep)


def test_without_sessions_nothing_is_kept() -> None:
    database = Database()
    database.run(KEEP_OF_ADA)

    assert rows(database) == []


def test_what_is_kept_is_not_counted_again() -> None:
    database = filled(MANY)
    database.run(KEEP_OF_ADA)

    assert rows(database) == [("ada", "agent", MANY, MANY)]
    found = database.connection.execute(COUNT.text, {"owner": "ada", "kind": "agent"})
    assert found.fetchall() == [(MANY, 0)]


def test_new_sessions_change_no_row_until_they_are_kept_as_well() -> None:
    database = filled(MANY)
    database.run(KEEP_OF_ADA)
    kept = rows(database)
    for number in range(1, MOST_COUNTED + 2):
        order = ("ada", f"n{number}", f"r{number}", "agent", "c", "{}")
        database.run(StartRun(*order, "", "n", MANY + number))

    assert rows(database) == kept
    page = database.run(list_kind("ada", "agent"))
    assert (page.total, page.keep) == (MANY + MOST_COUNTED + 1, KEEP_OF_ADA)
    database.run(KEEP_OF_ADA)
    assert rows(database) == [("ada", "agent", MANY + MOST_COUNTED + 1, page.total)]
    assert database.run(list_kind("ada", "agent")).keep is None


def test_the_row_goes_with_the_last_session_that_it_counts() -> None:
    database = filled(2)
    database.run(KEEP_OF_ADA)
    database.run(DeleteSessions((("ada", "s1", None),), None, 3))
    assert rows(database) == [("ada", "agent", 2, 1)]
    database.run(DeleteSessions((("ada", "s2", None),), None, 3))

    assert rows(database) == []


@given(MOVES)
def test_the_number_is_right_after_every_move(moves: list[SessionMove]) -> None:
    database = Database()
    for move in (*BEGINNING, *moves):
        database.ask(move.text) if move.text else database.run(move.unit)

        for owner in OWNERS:
            for kind in KINDS:
                ((count,),) = database.ask(OWN.format(owner, kind))
                assert database.run(list_kind(owner, kind)).total == count, move
        assert [kept for kept, _ in database.ask(KEPT)] == [n for _, n in database.ask(KEPT)]


def test_postgresql_lets_nobody_change_a_session_meanwhile() -> None:
    work = KEEP_OF_ADA.statements(Dialect.POSTGRESQL)

    assert next(work).text(Dialect.POSTGRESQL).startswith("lock table session_counts in share row")
    assert work.send(()).parameters == {"owner": "ada", "kind": "agent"}
    assert work.send([(7,)]).parameters == {"owner": "ada", "kind": "agent", "until_us": 7}
    work.close()


@pytest.mark.parametrize("text", [COUNT.text, KEEP.text])
def test_an_index_alone_is_read(text: str) -> None:
    database = filled(MANY)
    database.run(KEEP_OF_ADA)
    database.ask("analyze")
    named = {"owner": "ada", "kind": "agent", "until_us": 1}
    plan = database.connection.execute(f"explain query plan {text}", named)

    sessions = [detail for *_, detail in plan if " sessions " in detail]
    assert sessions
    for detail in sessions:
        assert "COVERING INDEX sessions_created (owner=? AND kind=? AND created_us>?)" in detail
