"""Old sessions and runs go, a bite at a time; what is not finished, or young, stays as it is."""

from __future__ import annotations

from typing import Any, Final

import pytest

from legation.store import pruning
from legation.store.inbox import INBOX, AttachRun, CompleteMessage, NewMessage, PutMessages
from legation.store.outbox import NewReply
from legation.store.periods import FOR_EVER, Kind, Periods
from legation.store.pruning import BITERS
from legation.store.retention import CountOld
from legation.store.run_rows import DAY_US, RunLease, StoredEvent
from legation.store.runs import FinishRun, StartRun
from legation.store.sessions import CreateSession, DeleteSessions
from legation.store.table_pruning import START, Bite, Old
from legation.store.turns import RunShare
from legation.store.units import Dialect, Statements, Unit
from legation.store.usage import FetchUsage
from legation.values import frozen

from ...old_data import NODE, NOW_US, OLD_US, YOUNG_US, claim, store_run, sweep
from ...one_database import Database
from ...people_rows import put_summary

MONTH: Final = 30
BEFORE_US: Final = NOW_US - MONTH * DAY_US
TABLES: Final = ("sessions", "runs", "events", "steps", "session_states")


@frozen
class TakeOne(Unit[Bite]):
    """One bite of a kind, alone."""

    kind: Kind
    place: tuple[str | int, ...] = START

    def statements(self, dialect: Dialect) -> Statements[Bite]:
        """Yield what the bite yields."""
        return (yield from BITERS[self.kind](dialect, Old(BEFORE_US, NOW_US), self.place))


@pytest.fixture
def database() -> Database:
    made = Database()
    made.clock_us = NOW_US
    made.enter(NODE)
    return made


def count(database: Database, *tables: str) -> list[int]:
    return [database.ask(f"select count(*) from {table}")[0][0] for table in tables or TABLES]


def runs(database: Database) -> list[str]:
    return [run_id for (run_id,) in database.ask("select run_id from runs order by run_id")]


def sessions(database: Database) -> list[str]:
    found = database.ask("select session_id from sessions order by session_id")
    return [session_id for (session_id,) in found]


def stored(database: Database, session_id: str) -> int:
    """Return how many bytes of runs are stored for a session."""
    text = """select coalesce(sum(length(cast(input as blob)) + length(cast(output as blob))
        + (select coalesce(sum(length(cast(data as blob))), 0) from events e
            where e.run_id = runs.run_id)
        + (select coalesce(sum(length(cast(outcome as blob))), 0) from steps s
            where s.run_id = runs.run_id)), 0)
        from runs where session_id = ?"""
    states = """select coalesce(sum(length(cast(document as blob))), 0) from session_states
        where session_id = ?"""
    return sum(database.ask(one, session_id)[0][0] for one in (text, states))


def counted(database: Database, session_id: str = "s") -> tuple[int, int]:
    """Return what is counted for a session, and for its owner in all."""
    ((size,),) = database.ask("select bytes from sessions where session_id = ?", session_id)
    return size, database.run(FetchUsage("ada", "ada", NOW_US)).bytes


# --- sessions


def test_an_old_session_goes_with_all_that_belongs_to_it(database: Database) -> None:
    store_run(database.run, "r1", OLD_US, session_id="old", steps=2, state='{"k":1}')
    store_run(database.run, "r2", YOUNG_US, session_id="young")

    assert database.run(CountOld(Kind.SESSIONS, Periods(sessions=MONTH), NOW_US)) == 1
    assert sweep(database.run, Periods(sessions=MONTH)) == {"sessions": 1}
    assert (sessions(database), runs(database)) == (["young"], ["r2"])
    assert count(database) == [1, 1, 2, 0, 0]
    assert counted(database, "young")[1] == counted(database, "young")[0]


def test_a_session_goes_by_its_last_activity(database: Database) -> None:
    store_run(database.run, "r1", OLD_US)
    store_run(database.run, "r2", YOUNG_US)

    assert sweep(database.run, Periods(sessions=MONTH)) == {}
    assert runs(database) == ["r1", "r2"]


def test_a_session_without_runs_goes_as_well(database: Database) -> None:
    database.run(CreateSession("ada", "empty", "agent", "", OLD_US))

    assert sweep(database.run, Periods(sessions=MONTH)) == {"sessions": 1}


@pytest.mark.parametrize("status", [None, "PAUSED"])
def test_a_session_with_a_run_that_is_not_over_stays(
    database: Database, status: str | None
) -> None:
    store_run(database.run, "r1", OLD_US)
    store_run(database.run, "r2", OLD_US, status=status)
    store_run(database.run, "r3", OLD_US, status=None)  # it waits, or is under way
    before = count(database)

    assert sweep(database.run, Periods(sessions=MONTH)) == {}
    assert count(database) == before
    assert database.run(CountOld(Kind.SESSIONS, Periods(sessions=MONTH), NOW_US)) == 0


def test_an_open_run_of_an_old_session_stays_when_old_runs_go(database: Database) -> None:
    """What it may tell its model about stays as well: it goes on with it."""
    store_run(database.run, "r1", OLD_US)
    store_run(database.run, "r2", OLD_US, status="PAUSED")
    store_run(database.run, "r3", OLD_US)
    store_run(database.run, "t1", OLD_US, session_id="t")
    store_run(database.run, "t2", OLD_US, session_id="t", status=None)
    periods = Periods(sessions=MONTH, runs=MONTH)

    assert database.run(CountOld(Kind.RUNS, periods, NOW_US)) == 1
    assert sweep(database.run, periods) == {"runs": 1}
    assert runs(database) == ["r1", "r2", "t1", "t2"]


def test_sessions_of_many_owners_and_kinds_are_all_looked_at(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "BITE_ROWS", 3)
    for owner in ("ada", "bob", "eve"):
        for number in range(5):
            at_us = OLD_US if number % 2 else YOUNG_US
            for kind in ("agent", "team"):
                session_id = f"{owner}{kind}{number}"
                database.run(CreateSession(owner, session_id, kind, "", at_us + number))

    assert sweep(database.run, Periods(sessions=MONTH)) == {"sessions": 12}
    assert count(database, "sessions") == [18]


def test_a_bite_takes_so_many_sessions(database: Database) -> None:
    for number in range(45):
        store_run(database.run, f"r{number}", OLD_US + number, session_id=f"s{number:02}")

    first = database.run(TakeOne(Kind.SESSIONS))
    second = database.run(TakeOne(Kind.SESSIONS, first.place or ()))
    third = database.run(TakeOne(Kind.SESSIONS, second.place or ()))
    assert (first.pruned, second.pruned, third.pruned, third.place) == (20, 20, 5, None)
    assert count(database) == [0] * 5


def test_a_bite_takes_no_more_sessions_than_are_little_together(database: Database) -> None:
    for number in range(3):
        session_id = f"s{number}"
        store_run(database.run, f"r{number}", OLD_US, session_id=session_id, events=1_200)

    assert [database.run(TakeOne(Kind.SESSIONS)).pruned for _ in range(4)] == [1, 1, 1, 0]


def test_a_large_session_goes_in_pieces_the_first_runs_first(database: Database) -> None:
    for number in range(4):
        store_run(database.run, f"r{number}", OLD_US + number, events=1_500, steps=1)

    left = list[list[int]]()
    while not left or left[-1][-1]:
        database.run(TakeOne(Kind.SESSIONS))
        left.append(count(database, "runs", "events", "steps", "sessions"))

    assert left == [[3, 4_000, 3, 1], [2, 2_000, 2, 1], [1, 0, 1, 1], [0, 0, 0, 0]]
    assert database.ask("select bytes from usage") == [(0,)]


def test_a_run_of_very_many_events_goes_in_pieces(database: Database) -> None:
    store_run(database.run, "r", OLD_US, events=4_500)
    pieces = 0
    while count(database, "sessions") == [1]:
        database.run(TakeOne(Kind.SESSIONS))
        pieces += 1

    assert pieces == 4
    assert count(database) == [0] * 5


# --- what waits in channels


def deliver(database: Database, message_id: str, sender: str, payload: str = "{}") -> None:
    database.run(PutMessages("chat", (NewMessage(message_id, sender, payload),), OLD_US))


def test_a_run_that_a_message_waits_for_stays_with_its_session(database: Database) -> None:
    store_run(database.run, "r1", OLD_US)
    deliver(database, "m", "4911")
    database.run(AttachRun(claim(database.run, INBOX), "r1"))

    periods = Periods(sessions=MONTH, runs=MONTH, events=MONTH, steps=MONTH)
    assert sweep(database.run, periods) == {}
    assert [database.run(CountOld(kind, periods, NOW_US)) for kind in tuple(Kind)[:4]] == [0] * 4


def test_a_session_whose_reply_waits_stays(database: Database) -> None:
    store_run(database.run, "r1", OLD_US)
    deliver(database, "m", "4911")
    lease = claim(database.run, INBOX)
    database.run(AttachRun(lease, "r1"))
    reply = NewReply("reply-m", "4911", "{}", "m")
    database.clock_us = OLD_US
    database.run(CompleteMessage(lease, OLD_US, (reply,)))
    database.clock_us = NOW_US

    periods = Periods(sessions=MONTH, runs=MONTH, messages=MONTH)
    assert sweep(database.run, periods) == {}
    assert count(database, "inbox", "outbox") == [1, 1]


@pytest.mark.parametrize(
    ("session_id", "held"),
    [
        ("chat:4911", True),
        ("chat:4911#m7", True),
        ("chat:4911!legal#m7", True),
        ("chat:C02:171.2", True),
        ("chat:a%3Ab", True),
        ("chat:=abc", True),
        ("chat:4912", False),
        ("chat:C03:171.2", False),
        ("other:4911", False),
        ("4911", False),
    ],
)
def test_a_session_that_a_waiting_message_may_belong_into_stays(
    database: Database, session_id: str, held: bool
) -> None:
    store_run(database.run, "r1", OLD_US, session_id=session_id)
    deliver(database, "m1", "4911")
    deliver(database, "m2", "U7", '{"conversation":"C02","thread":"171.2"}')
    deliver(database, "m3", "a:b")

    assert sweep(database.run, Periods(sessions=MONTH)) == ({} if held else {"sessions": 1})


# --- runs


@pytest.mark.parametrize("status", ["COMPLETED", "CANCELLED", "ERROR"])
def test_old_runs_go_and_their_session_stays(database: Database, status: str) -> None:
    store_run(database.run, "r1", OLD_US, steps=2)
    store_run(database.run, "r2", YOUNG_US, steps=1)
    database.ask("update runs set status = ?", status)

    assert database.run(CountOld(Kind.RUNS, Periods(runs=MONTH), NOW_US)) == 1
    assert sweep(database.run, Periods(runs=MONTH)) == {"runs": 1}
    assert count(database) == [1, 1, 2, 1, 0]


def test_a_run_goes_by_its_end(database: Database) -> None:
    store_run(database.run, "r1", OLD_US)
    database.ask("update runs set ended_us = ?", YOUNG_US)

    assert sweep(database.run, Periods(runs=MONTH)) == {}


def test_the_runs_of_members_go_with_theirs_and_no_others(database: Database) -> None:
    store_run(database.run, "r1", OLD_US, kind="team", members=2)
    store_run(database.run, "r2", YOUNG_US, kind="team", members=2)

    assert sweep(database.run, Periods(runs=MONTH)) == {"runs": 1}
    assert runs(database) == ["r2", "r2.0", "r2.1"]


def test_runs_go_in_bites_that_are_not_too_much(database: Database) -> None:
    for number in range(5):
        store_run(database.run, f"r{number}", OLD_US + number, events=900)

    place: tuple[str | int, ...] | None = START
    taken = list[int]()
    while place is not None:
        bite = database.run(TakeOne(Kind.RUNS, place))
        taken.append(bite.pruned)
        place = bite.place

    assert sum(taken) == 5
    assert max(taken) <= 3
    assert count(database) == [1, 0, 0, 0, 0]


def test_the_bite_that_is_full_leaves_the_next_run(database: Database) -> None:
    store_run(database.run, "r1", OLD_US, events=1_999)
    store_run(database.run, "r2", OLD_US + 1)

    first = database.run(TakeOne(Kind.RUNS))
    assert (first.pruned, runs(database)) == (1, ["r2"])
    assert first.place is not None
    assert database.run(TakeOne(Kind.RUNS, first.place)).pruned == 1


def test_a_run_of_very_many_events_goes_in_pieces_when_runs_go(database: Database) -> None:
    store_run(database.run, "r1", OLD_US, events=4_500)

    assert sweep(database.run, Periods(runs=MONTH)) == {"runs": 1}
    assert counted(database) == (0, 0)


def test_more_runs_than_a_bite_looks_at_are_all_looked_at(database: Database) -> None:
    for number in range(250):
        store_run(database.run, f"r{number}", OLD_US + number, events=1)

    first = database.run(TakeOne(Kind.RUNS))
    assert (first.pruned, first.place is None) == (200, False)
    assert sweep(database.run, Periods(runs=MONTH)) == {"runs": 50}


def test_a_state_goes_with_the_last_run_that_left_it(database: Database) -> None:
    store_run(database.run, "r1", OLD_US, state='{"k":1}')
    store_run(database.run, "r2", OLD_US, state='{"k":2}')
    store_run(database.run, "r3", YOUNG_US)  # it leaves the state as it is
    assert count(database, "session_states") == [2]

    assert sweep(database.run, Periods(runs=MONTH)) == {"runs": 2}
    assert count(database, "session_states") == [1]
    assert counted(database)[0] == stored(database, "s")


def test_a_summary_goes_with_the_first_run_that_it_covers(database: Database) -> None:
    store_run(database.run, "r1", YOUNG_US)
    store_run(database.run, "r2", OLD_US)
    store_run(database.run, "r3", YOUNG_US)
    for number in (1, 2, 3):
        put_summary(database, "ada", "s", number)
    database.ask("update sessions set bytes = bytes + 27")
    database.ask("update usage set bytes = bytes + 27")

    assert sweep(database.run, Periods(runs=MONTH)) == {"runs": 1}
    assert database.ask("select run_no from session_summaries") == [(1,)]
    assert counted(database) == (stored(database, "s") + 9,) * 2


# --- events and steps


def test_the_events_of_old_runs_go_and_the_runs_stay(database: Database) -> None:
    store_run(database.run, "r1", OLD_US, events=3, steps=2)
    store_run(database.run, "r2", YOUNG_US, events=3, steps=2)
    periods = Periods(events=MONTH)

    assert database.run(CountOld(Kind.EVENTS, periods, NOW_US)) == 3
    assert sweep(database.run, periods) == {"events": 3}
    assert count(database) == [1, 2, 3, 4, 0]


def test_the_steps_of_old_runs_go_and_the_runs_stay(database: Database) -> None:
    store_run(database.run, "r1", OLD_US, events=3, steps=2)
    store_run(database.run, "r2", YOUNG_US, events=3, steps=2)
    periods = Periods(steps=MONTH)

    assert database.run(CountOld(Kind.STEPS, periods, NOW_US)) == 2
    assert sweep(database.run, periods) == {"steps": 2}
    assert count(database) == [1, 2, 6, 2, 0]


def test_very_many_events_go_in_pieces(database: Database) -> None:
    store_run(database.run, "r1", OLD_US, events=4_500)
    store_run(database.run, "r2", OLD_US, events=2_000)

    assert sweep(database.run, Periods(events=MONTH)) == {"events": 6_500}
    assert counted(database)[0] == stored(database, "s")


def test_what_goes_with_its_run_or_session_is_not_counted_twice(database: Database) -> None:
    store_run(database.run, "r1", OLD_US, session_id="a")
    store_run(database.run, "r2", OLD_US, session_id="b")
    store_run(database.run, "r3", YOUNG_US, session_id="b")
    periods = Periods(sessions=MONTH, runs=MONTH, events=5)

    found = {kind: database.run(CountOld(kind, periods, NOW_US)) for kind in tuple(Kind)[:3]}
    assert found == {Kind.SESSIONS: 1, Kind.RUNS: 1, Kind.EVENTS: 2}
    assert sweep(database.run, periods) == {"sessions": 1, "runs": 1, "events": 2}


# --- what is counted


@pytest.mark.parametrize("kind", [Kind.RUNS, Kind.EVENTS, Kind.STEPS])
def test_what_goes_is_given_back(database: Database, kind: Kind) -> None:
    for number in range(3):
        at_us = OLD_US if number < 2 else YOUNG_US
        store_run(database.run, f"r{number}", at_us, steps=2, state=f'{{"k":{number}}}')
    store_run(database.run, "t1", YOUNG_US, session_id="t")
    before, other = counted(database), counted(database, "t")[0]
    assert before[0] == stored(database, "s")

    sweep(database.run, FOR_EVER.over(Periods(**{kind.value: MONTH})))

    size, usage = counted(database)
    assert size == stored(database, "s") < before[0]
    assert usage == size + other


def test_no_more_is_given_back_than_is_counted(database: Database) -> None:
    store_run(database.run, "r1", OLD_US)
    database.ask("update sessions set bytes = 3")
    database.ask("update usage set bytes = 3")

    assert sweep(database.run, Periods(events=MONTH)) == {"events": 2}
    assert sweep(database.run, Periods(runs=MONTH), NOW_US + DAY_US) == {"runs": 1}
    assert counted(database) == (0, 0)


@pytest.mark.parametrize(("kind", "pruned"), [(Kind.SESSIONS, 1), (Kind.RUNS, 2)])
def test_what_somebody_else_deleted_meanwhile_is_passed_over(
    database: Database, kind: Kind, pruned: int
) -> None:
    """Between the look and the locks, as it may be on PostgreSQL."""
    store_run(database.run, "r1", OLD_US)
    store_run(database.run, "r2", OLD_US, session_id="t")

    assert database.run(_Overtaken(kind)).pruned == pruned
    assert count(database, "runs", "events") == [0, 0]


@frozen
class _Overtaken(Unit[Bite]):
    """A bite before whose first lock somebody deletes a session."""

    kind: Kind

    def statements(self, dialect: Dialect) -> Statements[Bite]:
        """Yield what the bite yields, and the deletion."""
        bite = BITERS[self.kind](dialect, Old(BEFORE_US, NOW_US), START)
        done, rows = False, None
        while True:
            try:
                statement = bite.send(rows)  # type: ignore[arg-type]
            except StopIteration as stop:
                found: Bite = stop.value
                return found
            if not done and statement.sql.sqlite_text.startswith("update sessions"):
                done = True
                yield from DeleteSessions((("ada", "t", None),), None, 1).statements(dialect)
            rows = yield statement


def test_bytes_of_nobody_are_given_back_to_the_subject_that_they_are_counted_for(
    database: Database,
) -> None:
    owner, subject = "~nobody:r", "~address:10.0.0.1"
    database.run(
        StartRun(owner, "s", "r", "agent", "desk", "{}", "", NODE, OLD_US, share=RunShare(subject))
    )
    _finish(database, owner, subject)
    ((before,),) = database.ask("select bytes from usage where subject = ?", subject)

    sweep(database.run, Periods(runs=MONTH))

    assert before > 0
    assert database.ask("select subject, bytes from usage") == [(subject, 0)]


def _finish(database: Database, owner: str, subject: str) -> None:
    events: Any = (StoredEvent(1, "RunCompleted", "{}"),)
    database.run(
        FinishRun(
            owner, "s", "r", RunLease(NODE, 1), NODE, OLD_US, "COMPLETED", "{}", None, None,
            events, (), bytes=2, subject=subject,
        )
    )  # fmt: skip
