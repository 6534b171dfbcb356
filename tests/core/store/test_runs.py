from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import groupby
from typing import Any, Final

import pytest
from attrs import evolve

from legation.store.copies import FORGET_ANSWERS
from legation.store.counts import ANY_COUNT_RUNS, ANY_OLDEST_PAUSED
from legation.store.run_keeping import ANY_EXPIRY, CancelsAsked, ClaimWaiting, Missed
from legation.store.run_rows import MANY_EVENTS, RunLease, StoredEvent, insert_events
from legation.store.run_steering import CancelRun, Continued, ContinueRun
from legation.store.runs import (
    INSERT_RUN,
    NEXT,
    OPEN_SESSION,
    TOUCH_SESSION,
    AppendEvents,
    Ended,
    FinishRun,
    Started,
    StartRun,
    merge_objects,
)
from legation.store.session_pages import ANY_COUNT, ListSessions
from legation.store.turns import LOOK, LOOK_BEHIND, RunShare
from legation.store.units import Dialect, Numbered, Statement, Undo, Unit, all_sql

from ...one_database import Database
from ...statements import statements_of

HOSTED = ("agent:x",)
EVENTS = (StoredEvent(1, "a", "{}"), StoredEvent(2, "b", "{}"))
APPEND = AppendEvents("o", "r", RunLease("n", 1), 5, EVENTS, EVENTS[-1].seq)


def played(
    unit: Unit[Any], *answers: Sequence[Any], dialect: Dialect = Dialect.SQLITE
) -> tuple[list[Statement], Any]:
    """Run `unit` on these rows; return its statements and its result."""
    work = statements_of(unit, dialect)
    statements: list[Statement] = []
    try:
        statements.append(next(work))
        for rows in answers:
            statements.append(work.send(rows))
    except StopIteration as stop:
        return statements, stop.value
    raise AssertionError("the unit wants more rows")


def test_events_are_inserted_as_one_statement_on_each_engine() -> None:
    rows, result = played(APPEND, [(None,)], [])
    arrays, _ = played(APPEND, [(7,)], [], dialect=Dialect.POSTGRESQL)

    assert result is False
    assert tuple(rows[1].parameters.values()) == ("r", 5, 1, "a", "{}", 2, "b", "{}")
    assert arrays[1].parameters["seqs"] == [1, 2]


@pytest.mark.parametrize("size", range(1, 13))
def test_on_sqlite_each_event_has_a_row_however_many_there_are(size: int) -> None:
    events = tuple(StoredEvent(seq, f"e{seq}", '{"a":"\u2028"}') for seq in range(1, size + 1))
    statement = insert_events(Dialect.SQLITE, "r", 5, events)
    parameters = statement.parameters
    given = parameters.row if isinstance(parameters, Numbered) else parameters
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(
            "create table events (run_id, seq, at_us, name, data, unique (run_id, seq))"
        )
        for _ in range(2):  # the second time changes nothing
            connection.execute(statement.text(Dialect.SQLITE), given)
        stored = connection.execute("select * from events").fetchall()

    assert stored == [("r", e.seq, 5, e.name, e.data) for e in events]


def test_nothing_ends_without_the_lease() -> None:
    finish = FinishRun(
        owner="o",
        session_id="s",
        run_id="r",
        lease=RunLease("n", 1),
        node="n",
        now_us=5,
        status="COMPLETED",
        output="{}",
        reason=None,
        usage=None,
        events=EVENTS,
        hosted=HOSTED,
    )
    _, result = played(finish, [], [], [], [])

    assert result == Undo(Ended(kept=False))


@pytest.mark.parametrize("stored", [EVENTS[:1], EVENTS])
def test_who_ends_a_run_for_a_silent_node_writes_over_nothing(
    stored: tuple[StoredEvent, ...],
) -> None:
    """The node stores an event between the look at its run and the end that follows from that."""
    database = Database()
    database.run(
        StartRun(
            owner="o",
            session_id="s",
            run_id="r",
            kind="agent",
            component_id="x",
            version=None,
            input="{}",
            name="",
            node="n",
            now_us=1,
        )
    )
    end = FinishRun(
        owner="o",
        session_id="s",
        run_id="r",
        lease=RunLease("n", 1),
        node="m",
        now_us=5,
        status="ERROR",
        output="{}",
        reason="interrupted",
        usage=None,
        events=(StoredEvent(1, "RunError", "{}"),),
        hosted=HOSTED,
        lapsed=True,
    )
    assert (
        database.run(AppendEvents("o", "r", RunLease("n", 1), 4, stored, stored[-1].seq)) is False
    )

    last = StoredEvent(len(stored) + 1, "RunError", "{}")
    assert database.run(end) == Ended(kept=False)
    assert database.run(evolve(end, events=(last,))).kept
    names = [name for (name,) in database.ask("select name from events order by seq")]
    assert names == [*(event.name for event in stored), "RunError"]


def test_nothing_is_appended_without_the_lease() -> None:
    statements, result = played(APPEND, [])

    assert (len(statements), result) == (1, Undo(None))


def test_ids_are_one_parameter_on_each_engine() -> None:
    unit = CancelsAsked(("a", "b"))
    (row,), _ = played(unit, [])
    (array,), _ = played(unit, [], dialect=Dialect.POSTGRESQL)

    assert row.parameters["runs"] == '["a", "b"]'
    assert array.parameters["runs"] == ["a", "b"]


def test_what_is_gone_cannot_be_cancelled() -> None:
    unit = CancelRun("o", "s", "r", 5, "{}", ("RunCancelled", "{}"))

    assert played(unit, [("{}",)], [])[1] == Undo(None)


def test_what_is_gone_cannot_be_continued() -> None:
    unit = ContinueRun("o", "s", "r", 1, "{}", "t", "n", 5, HOSTED)

    assert played(unit, [("{}",)], [])[1] == Undo(Continued(None))


def test_events_go_on_where_the_stored_ones_end() -> None:
    """A database restored from a backup has fewer: the lease is lost, and there is no gap."""
    database = Database()
    database.run(StartRun("o", "s", "a", "agent", "x", "{}", "", "n", 1))

    def append(*numbers: int) -> bool | None:
        events = tuple(StoredEvent(number, "e", "{}") for number in numbers)
        return database.run(AppendEvents("o", "a", RunLease("n", 1), 5, events, events[-1].seq))

    assert append(2, 3) is None
    assert append(1, 2) is False
    assert append(1, 2) is False  # after a commit without an answer
    assert append(2, 3) is False  # with what was noted meanwhile
    assert append(5) is None
    database.connection.execute("update runs set events = 1")
    assert append(4) is None
    assert database.ask("select seq from events order by seq") == [(1,), (2,), (3,)]


@pytest.mark.parametrize("status", ["COMPLETED", "PAUSED", "CANCELLED"])
def test_an_end_goes_on_where_the_stored_events_end(status: str) -> None:
    database = Database()
    database.run(StartRun("o", "s", "a", "agent", "x", "{}", "", "n", 1))
    if status == "CANCELLED":
        database.connection.execute("update runs set cancel_us = 1")
    finish = FinishRun(
        owner="o",
        session_id="s",
        run_id="a",
        lease=RunLease("n", 1),
        node="n",
        now_us=5,
        status=status,
        output="{}",
        reason=None,
        usage=None,
        events=(StoredEvent(2, "e", "{}"),),
        hosted=HOSTED,
    )

    assert database.run(finish) == Ended(kept=False)
    assert database.run(evolve(finish, events=(StoredEvent(1, "e", "{}"),))).kept


@pytest.mark.parametrize(("busy", "mark"), [(False, "claimed"), (True, "waiting")])
def test_who_continues_leaves_a_mark_and_beside_it_a_token(busy: bool, mark: str) -> None:
    database = paused(busy=busy)
    unit = ContinueRun("o", "s", "a", 1, "answered", "t", "n", 5, HOSTED)
    continued = database.run(unit)

    assert database.ask("select reason, token from runs where run_id = 'a'") == [(mark, "t")]
    assert (continued.kept, continued.claim is None) == (True, busy)
    assert database.run(unit) == continued
    assert database.run(evolve(unit, token="u")) == Continued("PENDING" if busy else "RUNNING")


def test_who_asks_again_when_it_has_gone_on_is_given_nothing_to_execute() -> None:
    database = paused()
    unit = ContinueRun("o", "s", "a", 1, "answered", "t", "n", 5, HOSTED)
    claim = database.run(unit).claim
    assert claim is not None
    append = AppendEvents("o", "a", RunLease("n", 2), 6, (StoredEvent(2, "b", "{}"),), 2)
    assert database.run(append) is False

    assert database.run(unit) == Continued("PAUSED", kept=True)
    assert database.run(evolve(unit, node="m")) == Continued("PAUSED", kept=True)


def paused(*, busy: bool = False) -> Database:
    """Return a database with a run that paused, and another that has the session's turn."""
    database = Database()
    database.run(StartRun("o", "s", "a", "agent", "x", "{}", "", "n", 1))
    database.run(
        FinishRun(
            owner="o",
            session_id="s",
            run_id="a",
            lease=RunLease("n", 1),
            node="n",
            now_us=2,
            status="PAUSED",
            output="{}",
            reason=None,
            usage=None,
            events=(StoredEvent(1, "a", "{}"),),
            hosted=HOSTED,
        )
    )
    if busy:
        database.run(StartRun("o", "s", "b", "agent", "x", "{}", "", "n", 3))
    return database


FOUND: Final = ("o", "s", 1, "o")


def test_a_session_in_which_somebody_was_quicker_is_left_alone() -> None:
    """SQLite lets nobody write between the two looks."""
    unit = ClaimWaiting("n", 5, HOSTED)
    answers = ([("o", "r", 1, "o"), FOUND], [("{}", "o", "s")], [("",)])
    found = played(unit, *answers, [], dialect=Dialect.POSTGRESQL)

    assert found[1] == Undo(Missed())
    again = played(unit, *answers, [(1,)], [], dialect=Dialect.POSTGRESQL)[0]
    assert again[1].parameters == {"owners": ["o", "o"], "sessions": ["r", "s"]}
    assert "advisory" in again[2].text(Dialect.POSTGRESQL)


def test_sessions_that_others_are_claiming_in_are_left_to_them() -> None:
    unit = ClaimWaiting("n", 5, HOSTED)

    assert played(unit, [FOUND], [], dialect=Dialect.POSTGRESQL)[1] is None


def test_a_subject_close_to_its_limit_is_looked_at_under_its_lock() -> None:
    unit = StartRun("o", "s", "r", "agent", "x", "{}", "", "n", 1, share=RunShare(at_once=17))
    few, close, taken = ([(0, 0, executed, 0, 0, 0, 0)] for executed in (0, 1, 17))
    opened = [(1, "{}")]

    free = played(unit, opened, few, [], dialect=Dialect.POSTGRESQL)
    assert free[1].claim is not None
    last = played(unit, opened, close, [("",)], close, [], dialect=Dialect.POSTGRESQL)
    assert last[1].claim is not None
    gone = played(unit, opened, close, [("",)], taken, [], dialect=Dialect.POSTGRESQL)
    assert gone[1] == Started(1, None, queued=True)
    busy = played(unit, opened, [(1, 0, 1, 0, 0, 0, 0)], [], dialect=Dialect.POSTGRESQL)
    assert busy[1] == Started(1, None)


def test_objects_are_merged_and_all_else_is_replaced() -> None:
    under = {"a": {"b": 1, "c": {"d": 1}}, "e": [1], "f": {"g": 1}}
    over = {"a": {"c": {"d": 2}}, "e": [2], "f": 3, "h": {"i": 1}}

    assert merge_objects(under, over) == {
        "a": {"b": 1, "c": {"d": 2}},
        "e": [2],
        "f": 3,
        "h": {"i": 1},
    }


def test_every_statement_on_the_data_of_users_names_the_owner() -> None:
    tables = ("sessions", "runs", "idempotency")
    # Asked for as the next test says, and numbers alone.
    numbers = (*ANY_COUNT.values(), ANY_COUNT_RUNS, ANY_OLDEST_PAUSED, ANY_EXPIRY, FORGET_ANSWERS)
    of_everybody = {sql.text for sql in numbers}
    texts = [sql.text for sql in all_sql() if sql.text.split()[0] in ("select", "update", "delete")]
    of_users = [t for t in texts if any(f" {table} " in f"{t} " for table in tables)]
    owned = [t for t in of_users if t not in of_everybody]
    unowned = [" ".join(text.split())[:60] for text in owned if "owner" not in text]

    assert len(of_users) > 20
    for text in unowned:
        assert "lease_by" in text or "run_id" in text or "count(*)" in text, text


@pytest.mark.parametrize("any_owner", [False, True])
@pytest.mark.parametrize("owner", [None, "o"])
@pytest.mark.parametrize("component", [None, "c"])
@pytest.mark.parametrize("name", [None, "n"])
def test_only_who_sees_all_owners_lists_the_sessions_of_everybody(
    any_owner: bool, owner: str | None, component: str | None, name: str | None
) -> None:
    unit = ListSessions(owner, "agent", bool, component, name, any_owner=any_owner)
    kept = owner is not None and component is None and name is None
    statements, _ = played(unit, [(0, 0) if kept else (0,)], [])

    owned = ["owner = :owner" in statement.sql.text for statement in statements]
    assert owned == [not (any_owner and owner is None)] * 2


def asked_by(database: Database, unit: Unit[Any]) -> tuple[list[str], Any]:
    """Run `unit`; return the first words of its statements, and its result."""
    asked: list[str] = []
    database.connection.set_trace_callback(asked.append)
    try:
        result = database.run(unit)
    finally:
        database.connection.set_trace_callback(None)
    # What stands in a trigger is traced as the statement that fires it, once more.
    ours = (" ".join(text.split()[:3]) for text, _ in groupby(asked))
    return [text for text in ours if not text.lower().startswith(("savepoint", "release"))], result


def start_of(run: str, session: str = "s", **more: Any) -> StartRun:
    """Return the start of a run of `o`."""
    run_input = '{"message":"hi","stream":false}'
    return StartRun(
        "o", session, run, "agent", "x", run_input, name="hi", node="n", now_us=5,
        hosted=HOSTED, **more,
    )  # fmt: skip


def end_of(run: str, session: str = "s") -> FinishRun:
    """Return the end of a run of `o`."""
    return FinishRun(
        "o", session, run, RunLease("n", 1), "n", 9, "COMPLETED", "{}", None, None, EVENTS, HOSTED
    )


@pytest.mark.parametrize("subject", [None, "team"])
def test_on_sqlite_a_start_is_two_statements_and_an_end_is_four(subject: str | None) -> None:
    database = Database()
    begun, started = asked_by(database, start_of("r", share=RunShare(subject)))
    over, ended = asked_by(database, end_of("r"))

    assert started.claim is not None
    assert begun == ["insert into sessions", "insert into runs"]
    assert ended.kept
    assert [text.replace(" update", "") for text in over] == [
        *("update sessions set", "update runs set", "insert into events", "insert into usage"),
    ]


def test_the_first_event_is_stored_with_a_run_that_is_claimed_and_with_none_that_waits() -> None:
    database = Database()
    first = EVENTS[0]
    begun, started = asked_by(database, start_of("r", first=first))
    waits = database.run(start_of("later", first=first))

    assert begun == ["insert into sessions", "insert into runs", "insert into events"]
    assert (started.claim.events, started.first) == (0, first)
    assert (waits.claim, waits.first) == (None, None)
    rows = database.ask("select run_id, events from runs order by run_no")
    assert rows == [("r", 1), ("later", 0)]
    assert database.ask("select run_id, seq, at_us, name, data from events") == [
        ("r", 1, 5, first.name, first.data)
    ]
    assert database.run(evolve(APPEND, events=EVENTS[1:], last=2)) is False


def test_on_postgresql_the_first_event_goes_with_the_run_in_one_round_trip() -> None:
    """Neither returns anything, so that both are held until there is a round trip to make."""
    rows: list[list[tuple[Any, ...]]] = [[(1, "{}")], [(0, 0, 0, 0, 0, 0, 0)], [], []]
    unit = start_of("r", first=EVENTS[0])
    *_, run, events = played(unit, *rows, dialect=Dialect.POSTGRESQL)[0]

    assert (run.sql, run.parameters["events"]) == (INSERT_RUN, 1)
    assert (events.sql, events.parameters["seqs"]) == (MANY_EVENTS, [1])


@pytest.mark.parametrize("session", ["s", "elsewhere"])
def test_an_end_asks_who_is_next_where_anybody_waits(session: str) -> None:
    database = Database()
    database.run(start_of("r"))
    if session != "s":
        database.run(start_of("other", session))
    waits = database.run(start_of("later", session))
    over, ended = asked_by(database, end_of("r"))

    assert waits.claim is None
    assert "select run_no, asked_of," in over
    assert (ended.following is not None) == (session == "s")
    assert ended.contended == (session != "s")


@pytest.mark.parametrize("behind", [False, True])
def test_on_postgresql_who_is_ahead_is_looked_for_where_any_run_waits(behind: bool) -> None:
    look = (0, 1, 0, None, 0, 0, 0)
    begun, started = played(
        start_of("r"), [(1, "{}")], [look], [(behind,)], [], dialect=Dialect.POSTGRESQL
    )

    assert [statement.sql for statement in begun[:3]] == [OPEN_SESSION, LOOK, LOOK_BEHIND]
    assert started.queued == behind
    assert "not exists" not in LOOK.psycopg_text


def test_on_postgresql_who_is_ahead_is_looked_for_where_no_run_may_wait() -> None:
    look, unit = (0, 0, 0, None, 0, 0, 0), evolve(start_of("r"), share=RunShare(waiting=0))
    asked, undo = played(unit, [(1, "{}")], [look], [(True,)], dialect=Dialect.POSTGRESQL)

    assert asked[2].sql is LOOK_BEHIND
    assert undo == Undo(Started(0, None, over="waiting"))


def test_on_postgresql_the_session_is_locked_before_anybody_looks() -> None:
    """What a statement there returns is read as it stood before the statement waited."""
    postgresql = Dialect.POSTGRESQL
    begun, _ = played(start_of("r"), [(1, "{}")], [(0, 0, 0, 0, 0, 0, 0)], [], dialect=postgresql)
    rows: list[list[tuple[Any, ...]]] = [[("{}",)], [("o",)], [], [], [("o", 0, 0, 0)]]
    over, _ = played(end_of("r"), *rows, dialect=postgresql)

    assert [statement.sql for statement in begun[:2]] == [OPEN_SESSION, LOOK]
    assert over[0].sql is TOUCH_SESSION
    assert over[2].sql is NEXT
    for sql in (OPEN_SESSION, TOUCH_SESSION):
        assert "runs where" in sql.sqlite_text
        assert "runs where" not in sql.psycopg_text
