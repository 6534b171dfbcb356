"""What is stored and used is counted once, in the transaction that stores it, and given back."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from legation.store.run_rows import RunLease, StoredEvent
from legation.store.run_steering import CancelRun
from legation.store.runs import FinishRun, Started, StartRun
from legation.store.sessions import (
    CreateSession,
    DeleteSessions,
    NoRoom,
    SessionChange,
    UpdateSession,
)
from legation.store.steps import Records, Step, StepKind
from legation.store.turns import RunShare
from legation.store.usage import (
    FetchUsage,
    MeasureLog,
    SubjectUsage,
    add_usage,
    count_octets,
    keeper_of,
)

from ...one_database import Database

DAY_US: Final = 86_400_000_000
INPUT: Final = '{"message":"hello","stream":false}'


@pytest.fixture
def database() -> Database:
    made = Database()
    made.enter("n")
    return made


def start(owner: str = "ada", run_id: str = "r", session_id: str = "s", **more: Any) -> StartRun:
    return StartRun(owner, session_id, run_id, "agent", "desk", INPUT, "", "n", 1, **more)


def finish(owner: str = "ada", run_id: str = "r", session_id: str = "s", **more: Any) -> FinishRun:
    return FinishRun(
        owner, session_id, run_id, RunLease("n", 1), "n", more.pop("now_us", 2),
        more.pop("status", "COMPLETED"), more.pop("output", '{"content":"é"}'), None, None,
        (StoredEvent(1, "RunCompleted", '{"n":1}'),), (), **more,
    )  # fmt: skip


def usage(database: Database, owner: str = "ada", now_us: int = 2) -> SubjectUsage:
    found: SubjectUsage = database.run(FetchUsage(owner, owner, now_us))
    return found


def sum_sessions(database: Database, owner: str = "ada") -> int:
    text = "select coalesce(sum(bytes), 0) from sessions where owner = ?"
    ((size,),) = database.ask(text, owner)
    return int(size)


def test_texts_are_counted_in_the_bytes_of_utf_8() -> None:
    assert count_octets(("abc", "é", None, "", "\N{SNOWMAN}")) == 3 + 2 + 3


@pytest.mark.parametrize(
    ("owner", "subject", "keeper"),
    [
        ("ada", None, "ada"),
        ("ada", "~agent:a:ada", "ada"),
        ("~nobody:r", "~address:10.0.0.1", "~address:10.0.0.1"),
        ("~nobody:r", None, "~nobody:r"),
    ],
)
def test_bytes_are_the_owners_if_that_is_anybody(
    owner: str, subject: str | None, keeper: str
) -> None:
    assert keeper_of(owner, subject) == keeper


def test_a_run_is_counted_where_it_ends_and_once(database: Database) -> None:
    database.run(start())
    assert usage(database) == SubjectUsage(1, 0, 0, 0)

    unit = finish(bytes=len(INPUT), tokens=7)
    ended = database.run(unit)
    again = database.run(unit)

    size = len(INPUT) + len('{"content":"é"}'.encode()) + len('{"n":1}')
    assert (ended.used, again.used) == ((0, 7, 0), None)
    assert usage(database) == SubjectUsage(0, 0, size, 7)
    assert sum_sessions(database) == size


def test_tokens_are_those_of_a_day(database: Database) -> None:
    for number, day in enumerate((0, 0, 1, 0)):
        database.run(start(run_id=f"r{number}"))
        unit = finish(run_id=f"r{number}", tokens=10, cost=4, now_us=day * DAY_US + 5)
        used = database.run(unit).used
        # The clock of a node that is behind counts for the newest day.
        assert used == [(0, 10, 4), (0, 20, 8), (1, 10, 4), (1, 20, 8)][number]
    assert usage(database, now_us=DAY_US) == SubjectUsage(0, 0, sum_sessions(database), 20, 8)
    assert usage(database, now_us=2 * DAY_US) == SubjectUsage(0, 0, sum_sessions(database), 0, 0)


def test_a_cost_beyond_all_measure_still_fits_the_column(database: Database) -> None:
    for number in range(3):
        database.run(start(run_id=f"r{number}"))
        database.run(finish(run_id=f"r{number}", cost=6 * 10**17))

    assert usage(database).cost_nano == 12 * 10**17


@pytest.mark.parametrize("subject", ["~agent:desk:ada", "zoe"])
def test_bytes_are_counted_for_the_owner_and_tokens_for_the_subject(
    database: Database, subject: str
) -> None:
    database.run(start(share=RunShare(subject)))
    ended = database.run(finish(subject=subject, tokens=7))

    assert ended.used == (0, 7, 0)
    assert usage(database).tokens == usage(database, subject).bytes == 0
    assert usage(database, subject).tokens == 7
    assert usage(database).bytes == sum_sessions(database) > 0


def test_what_a_session_stores_is_given_back_when_it_is_deleted(database: Database) -> None:
    for session_id in ("s", "t"):
        database.run(start(run_id=session_id, session_id=session_id, state='{"k":1}'))
        database.run(finish(run_id=session_id, session_id=session_id, tokens=3))
    each = usage(database).bytes // 2
    database.run(DeleteSessions((("ada", "s", None), ("ada", "none", None)), None, 3))

    assert usage(database).bytes == sum_sessions(database) == each > len('{"k":1}')
    database.run(DeleteSessions((("ada", "t", None),), None, 3))
    assert usage(database) == SubjectUsage(0, 0, 0, 6)


def test_of_a_session_of_nobody_it_is_given_back_to_its_address(database: Database) -> None:
    owner, address = "~nobody:r", "~address:10.0.0.1"
    database.run(start(owner, share=RunShare(address)))
    database.run(finish(owner, subject=address))
    assert usage(database, address).bytes > 0
    assert usage(database, owner).bytes == 0

    database.run(DeleteSessions(((owner, "s", None),), None, 3))
    assert usage(database, address).bytes == 0


def test_a_session_of_nobody_without_runs_stays_counted(database: Database) -> None:
    owner, address = "~nobody:s", "~address:10.0.0.1"
    database.run(CreateSession(owner, "s", "agent", "", 1, state={"k": 1}, subject=address))
    database.run(DeleteSessions(((owner, "s", None),), None, 3))

    assert usage(database, address).bytes == len('{"k": 1}')
    assert usage(database, owner).bytes == 0


def test_a_state_that_a_run_leaves_is_counted_once_for_each_version(database: Database) -> None:
    database.run(start(state='{"k":1}'))
    database.run(finish())
    first = usage(database).bytes
    database.run(start(run_id="r2"))
    database.run(finish(run_id="r2"))

    assert usage(database).bytes == sum_sessions(database) == 2 * first - len('{"k":1}')


def test_sessions_are_counted_as_they_are_made_and_changed(database: Database) -> None:
    database.run(CreateSession("ada", "s", "agent", "", 1, state={"k": 1}, metadata={"m": "é"}))
    made = len('{"k": 1}') + len(json.dumps({"m": "é"}))
    assert usage(database).bytes == sum_sessions(database) == made

    database.run(UpdateSession("ada", "s", SessionChange(metadata={}, summary={"a": 1}), 2))
    assert usage(database).bytes == made + 2 - len(json.dumps({"m": "é"})) + len('{"a": 1}')
    database.run(UpdateSession("ada", "s", SessionChange(name="n"), 2))
    assert usage(database).bytes == sum_sessions(database)
    assert database.run(UpdateSession("ada", "t", SessionChange(name="n"), 2)) is None


def test_an_owner_who_keeps_as_much_as_it_may_stores_no_more(database: Database) -> None:
    most = len('{"k": 1}') + 1
    made = CreateSession("ada", "s", "agent", "", 1, state={"k": 1}, stored_bytes=most)
    assert database.run(made) is not None
    assert database.run(evolve(made, session_id="t")) == NoRoom()
    longer = UpdateSession("ada", "s", SessionChange(summary={"k": 1}), 2, most)
    assert database.run(longer) == NoRoom()
    assert usage(database).bytes == sum_sessions(database) == most - 1

    shorter = UpdateSession("ada", "s", SessionChange(name="n"), 2, 0)
    assert not isinstance(database.run(shorter), NoRoom)


@pytest.mark.parametrize(
    ("share", "over"),
    [
        (RunShare(tokens_per_day=7), "tokens"),
        (RunShare(tokens_per_day=8), ""),
        (RunShare(cost_per_day=5), "cost"),
        (RunShare(cost_per_day=6), ""),
        (RunShare(stored_bytes=10), "stored_bytes"),
        (RunShare(stored_bytes=1_000), ""),
        (RunShare(state_bytes=12), "state_bytes"),
        (RunShare(state_bytes=13), ""),
    ],
)
def test_a_run_that_is_over_a_limit_is_not_stored(
    database: Database, share: RunShare, over: str
) -> None:
    database.run(start())
    database.run(finish(tokens=7, cost=5))
    before = usage(database)

    started = database.run(start(run_id="r2", share=share, state='{"key":"é1"}'))
    assert started.over == over
    if over:
        assert started == Started(0, None, over=over)
        assert usage(database) == before
    else:
        assert started.claim is not None
        assert (started.claim.used, started.claim.used_nano) == (7, 5)


def test_a_state_over_its_limit_may_shrink(database: Database) -> None:
    database.run(CreateSession("ada", "s", "agent", "", 1, state={"k": "long and longer"}))
    shorter = database.run(start(share=RunShare(state_bytes=5), state='{"k":"long"}'))

    assert shorter.over == ""


def test_a_run_that_is_cancelled_before_it_begins_is_counted(database: Database) -> None:
    database.run(start())
    database.run(start(run_id="r2"))
    cancel = CancelRun("ada", "s", "r2", 5, "{}", ("RunCancelled", "{}"))
    assert database.run(cancel) == "PENDING"
    database.run(cancel)

    size = len(INPUT) + len('{"status":"CANCELLED"}') + len("{}")
    assert usage(database).bytes == sum_sessions(database) == size


def test_what_counts_while_a_run_waits_and_goes_on(database: Database) -> None:
    database.run(start())
    database.run(start(run_id="r2"))

    assert usage(database) == SubjectUsage(1, 1, 0, 0)


def test_the_log_of_a_run_is_measured_behind_what_was_counted(database: Database) -> None:
    database.run(start())
    step = Step("1", StepKind.MODEL, "m", 1, 2, '{"é":1}')
    unit = finish(records=Records((step,)))
    database.run(unit)

    whole = len('{"n":1}') + len('{"é":1}'.encode())
    assert database.run(MeasureLog("ada", "r", 0, 0)) == whole
    assert database.run(MeasureLog("ada", "r", 1, 1)) == 0
    assert database.run(MeasureLog("eve", "r", 0, 0)) == 0


def test_the_rows_of_two_subjects_are_locked_in_one_order() -> None:
    for keeper, subject in (("ada", "~agent:x:ada"), ("zoe", "~agent:x:zoe"), ("b", "a")):
        (statement,) = [next(add_usage(keeper, 5, subject, 7, 0))]
        row = statement.parameters
        names = [row["subject"], row["other"]]
        assert names == sorted((keeper, subject))
        place = names.index(keeper)
        assert (row["bytes"], row["other_bytes"])[place] == 5
        assert (row["tokens"], row["other_tokens"])[1 - place] == 7


SESSIONS: Final = ("s", "t")
MOVES: Final = st.lists(
    st.tuples(
        st.sampled_from(("run", "make", "change", "delete", "cancel")), st.sampled_from(SESSIONS)
    ),
    max_size=12,
)


@settings(max_examples=25)
@given(MOVES)
def test_the_bytes_of_an_owner_are_those_of_its_sessions(moves: list[tuple[str, str]]) -> None:
    database = Database()
    database.enter("n")
    for number, (move, session_id) in enumerate(moves):
        run_id = f"r{number}"
        match move:
            case "run" | "cancel":
                state = json.dumps({"n": number})
                database.run(start(run_id=run_id, session_id=session_id, state=state))
                if move == "run":
                    unit = finish(run_id=run_id, session_id=session_id, bytes=number)
                    database.run(unit)
                    database.run(unit)
                else:
                    event = ("RunCancelled", "{}")
                    database.run(CancelRun("ada", session_id, run_id, 5, "{}", event))
            case "make":
                database.run(CreateSession("ada", session_id, "agent", "", 1, state={"k": "é"}))
            case "change":
                change = SessionChange(state={"n": number}, metadata={"m": "x" * number})
                database.run(UpdateSession("ada", session_id, change, 2))
            case _:
                database.run(DeleteSessions((("ada", session_id, None),), None, 3))
        assert usage(database).bytes == sum_sessions(database)
    database.run(DeleteSessions(tuple(("ada", one, None) for one in SESSIONS), None, 3))
    assert usage(database).bytes == 0
