"""The steps of runs, on the tables that the catalogue builds.

That both engines store the same is in `tests/frontends/test_steps_engines`.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from attrs import evolve

from legation.store.member_runs import MemberMove, Root, StartMember
from legation.store.run_keeping import ClaimWaiting, FindNeglected, ReleaseRun
from legation.store.run_reads import FetchRun
from legation.store.run_rows import ClaimedRun, RunLease, RunRow, StoredEvent
from legation.store.run_steering import ContinueRun
from legation.store.runs import AppendEvents, Ended, FinishRun, StartRun
from legation.store.sessions import DeleteSessions
from legation.store.steps import (
    FEW_STEPS,
    MANY_STEPS,
    NO_RECORDS,
    Definition,
    FetchDefinitions,
    FetchMembersOver,
    FetchSteps,
    Records,
    Step,
    StepKind,
    write_records,
)
from legation.store.units import Dialect, Numbered, Statement, Unit

from ...one_database import Database
from ...statements import one_by_one

HOSTED: Final = ("agent:desk",)
BEGUN: Final = Step("1.1", StepKind.CALL, "book", 5)
ENDED: Final = evolve(BEGUN, ended_us=9, outcome='{"f":1,"result":"booked"}')
ENDED_MODEL: Final = Step("1", StepKind.MODEL, "gpt", 2, 4, "{}")
DEFINITION: Final = Definition("d", "agent", "desk", "{}")
LARGE: Final = "\u00e9\u2028\U0001f600" * 150_000  # more than 1 MiB as UTF-8


@pytest.fixture
def database() -> Database:
    made = Database()
    made.enter("n", "m")
    return made


def start(
    database: Database, run_id: str = "r", *, owner: str = "ada", session_id: str = "s"
) -> ClaimedRun | None:
    return database.run(
        StartRun(owner, session_id, run_id, "agent", "desk", "{}", "", "n", 1)
    ).claim


def append(
    database: Database, *steps: Step, run_id: str = "r", attempt: int = 1, owner: str = "ada"
) -> bool | None:
    """Append one event with `steps`, behind what is stored."""
    ((last,),) = database.ask("select events from runs where run_id = ?", run_id)
    event = (StoredEvent(last + 1, "e", "{}"),)
    lease = RunLease("n", attempt)
    return database.run(AppendEvents(owner, run_id, lease, 7, event, last + 1, Records(steps)))


def finish(database: Database, status: str = "COMPLETED", *steps: Step, attempt: int = 1) -> Ended:
    ((last,),) = database.ask("select events from runs where run_id = 'r'")
    return database.run(
        FinishRun(
            owner="ada",
            session_id="s",
            run_id="r",
            lease=RunLease("n", attempt),
            node="n",
            now_us=8,
            status=status,
            output="{}",
            reason=None,
            usage=None,
            events=(StoredEvent(last + 1, "e", "{}"),),
            hosted=HOSTED,
            records=Records(steps),
        )
    )


def fetch(database: Database, run_id: str = "r", owner: str = "ada") -> dict[str, Step]:
    return {step.place: step for step in database.run(FetchSteps(owner, run_id))}


def counters(database: Database, run_id: str = "r") -> tuple[int, int, int]:
    """Return how often the run was claimed, of that since it came further, and recorded."""
    (row,) = database.ask("select attempt, tries, recorded from runs where run_id = ?", run_id)
    return tuple(row)


def row_of(database: Database, run_id: str = "r") -> RunRow:
    row = database.run(FetchRun(run_id, "ada"))
    assert row is not None
    return row


def statements(dialect: Dialect, records: Records) -> list[Statement]:
    return list(write_records(dialect, "r", 2, 7, records))


# --- writing


def test_nothing_is_written_where_nothing_is_recorded() -> None:
    assert [statements(dialect, NO_RECORDS) for dialect in Dialect] == [[], []]
    assert not NO_RECORDS.progress


def test_a_run_comes_further_where_a_step_ends() -> None:
    assert not Records((BEGUN,)).progress
    assert Records((BEGUN, evolve(ENDED, place="1"))).progress


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 1000])
def test_steps_of_any_number_are_one_statement(database: Database, size: int) -> None:
    start(database)
    kinds = tuple(StepKind)
    steps = [
        Step(f"{n}", kinds[n % 4], f"a{n}", n, n + 1 if n % 2 else None, f"{n}" if n % 2 else None)
        for n in range(size)
    ]
    assert append(database, *steps) is False

    assert fetch(database) == {step.place: evolve(step, attempt=1) for step in steps}
    written = [statements(dialect, Records(tuple(steps))) for dialect in Dialect]
    assert [len(one) for one in written] == [1, 1]
    assert [one.sql for (one,) in written] == [FEW_STEPS.get(size, MANY_STEPS), MANY_STEPS]


def test_parameters_are_numbered_for_few_a_document_for_many_and_arrays_for_postgresql() -> None:
    (few,) = statements(Dialect.SQLITE, Records((BEGUN,)))
    (many,) = statements(Dialect.SQLITE, Records((BEGUN,) * 5))
    (arrays,) = statements(Dialect.POSTGRESQL, Records((BEGUN, ENDED)))

    row = ("1.1", "call", "book", 5, None, None)
    assert few.parameters == Numbered(("r", 2, *row))
    assert json.loads(many.parameters["steps"]) == [list(row)] * 5
    assert arrays.parameters == {
        "run_id": "r",
        "attempt": 2,
        "places": ["1.1", "1.1"],
        "kinds": ["call", "call"],
        "asked": ["book", "book"],
        "begun": [5, 5],
        "ended": [None, 9],
        "outcomes": [None, ENDED.outcome],
    }


def padded(step: Step, size: int) -> tuple[Step, ...]:
    """Return `step` with others, which end nothing."""
    return (step, *(Step(f"9.{n}", StepKind.CALL, "other", 1) for n in range(size - 1)))


@pytest.mark.parametrize("size", [1, 4, 5])
def test_an_outcome_is_written_once(database: Database, size: int) -> None:
    start(database)
    append(database, *padded(BEGUN, size))
    append(database, *padded(ENDED, size))
    ended = fetch(database)["1.1"]
    append(database, *padded(BEGUN, size))
    append(database, *padded(evolve(ENDED, ended_us=99, outcome="another"), size))

    assert ended == evolve(ENDED, attempt=1)
    assert fetch(database)["1.1"] == ended
    assert len(fetch(database)) == size


def test_a_step_that_is_done_again_is_of_who_did_it(database: Database) -> None:
    start(database)
    append(database, BEGUN)
    release(database)
    claim(database)
    again = evolve(BEGUN, begun_us=50)
    append(database, again, attempt=2)
    assert fetch(database)["1.1"] == evolve(BEGUN, attempt=1)

    append(database, evolve(again, ended_us=60, outcome="booked"), attempt=2)
    assert fetch(database)["1.1"] == evolve(again, attempt=2, ended_us=60, outcome="booked")


@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("text", ["", "'; drop table steps; --", '"\\%_?1', "\u2028\u00e9", LARGE])
def test_any_text_is_stored_as_it_is(database: Database, text: str, size: int) -> None:
    start(database)
    hostile = Step(f"1{text[:99]}", StepKind.CALL, text[:99], -1, 2**62, text)
    append(database, *padded(hostile, size))

    assert fetch(database)[hostile.place] == evolve(hostile, attempt=1)
    assert len(fetch(database)) == size


def test_a_definition_is_stored_once(database: Database) -> None:
    start(database)
    one, two = (Definition(d, "agent", "desk", f'{{"of":"{d}"}}') for d in "ab")
    for records in (
        Records((BEGUN,), (one,)),
        Records((), (evolve(one, document="another"), two)),
    ):
        ((last,),) = database.ask("select events from runs")
        event = (StoredEvent(last + 1, "e", "{}"),)
        database.run(AppendEvents("ada", "r", RunLease("n", 1), 7, event, last + 1, records))

    assert database.run(FetchDefinitions(("a", "b", "absent"))) == {
        "a": one.document,
        "b": two.document,
    }
    assert database.run(FetchDefinitions(())) == {}
    assert database.ask("select distinct first_us from definitions") == [(7,)]


def test_steps_may_be_stored_without_events(database: Database) -> None:
    start(database)
    append(database, BEGUN)
    alone = AppendEvents("ada", "r", RunLease("n", 1), 7, (), 1, Records((ENDED,)))
    assert database.run(alone) is False
    assert fetch(database)["1.1"].outcome == ENDED.outcome
    assert row_of(database).events == 1

    for last in (0, 2):  # as where an older database has been restored
        assert database.run(evolve(alone, last=last, records=Records((ENDED_MODEL,)))) is None
    assert set(fetch(database)) == {"1.1"}


def test_moves_of_members_are_stored_with_the_steps(database: Database) -> None:
    start(database)
    root = Root("ada", "s", "r", RunLease("n", 1))
    database.run(StartMember(root, "m", "r", "agent", "ann", "{}", "{}", 2))
    move = MemberMove("ada", "s", "m", "COMPLETED", '{"a":1}', None, None, 9)
    event = (StoredEvent(1, "e", "{}"),)
    unit = AppendEvents("ada", "r", RunLease("n", 1), 7, event, 1, Records((BEGUN,), (), (move,)))
    asked = "select status, output, ended_us from runs where run_id = 'm'"

    assert database.run(evolve(unit, lease=RunLease("n", 2))) is None
    assert database.ask(asked) == [("RUNNING", "{}", None)]
    assert database.run(unit) is False
    assert database.ask(asked) == [("COMPLETED", '{"a":1}', 9)]
    assert set(fetch(database)) == {"1.1"}


# --- the fence


@pytest.mark.parametrize(
    ("owner", "lease", "seq"),
    [
        ("ada", RunLease("m", 1), 2),
        ("ada", RunLease("n", 2), 2),
        ("eve", RunLease("n", 1), 2),
        ("ada", RunLease("n", 1), 3),
    ],
    ids=["another node", "another attempt", "another owner", "a restored database"],
)
def test_without_the_lease_no_step_is_written(
    database: Database, owner: str, lease: RunLease, seq: int
) -> None:
    start(database)
    append(database, BEGUN)
    event, records = (StoredEvent(seq, "e", "{}"),), Records((ENDED,), (DEFINITION,))
    lost = AppendEvents(owner, "r", lease, 7, event, seq, records)
    end = FinishRun(
        owner=owner,
        session_id="s",
        run_id="r",
        lease=lease,
        node="n",
        now_us=8,
        status="COMPLETED",
        output="{}",
        reason=None,
        usage=None,
        events=event,
        hosted=HOSTED,
        records=records,
    )

    assert database.run(lost) is None
    assert not database.run(end).kept
    assert fetch(database) == {"1.1": evolve(BEGUN, attempt=1)}
    assert database.ask("select count(*) from definitions") == [(0,)]
    assert row_of(database).status == "RUNNING"


def test_an_executor_that_was_succeeded_writes_no_step(database: Database) -> None:
    """It stood still beyond its lease, and ends its call while its successor makes it again."""
    start(database)
    append(database, BEGUN)
    release(database)
    claim(database)

    assert append(database, ENDED) is None
    assert not finish(database, "COMPLETED", ENDED).kept
    assert fetch(database) == {"1.1": evolve(BEGUN, attempt=1)}
    assert append(database, ENDED, attempt=2) is False


@pytest.mark.parametrize("status", ["COMPLETED", "PAUSED", "ERROR"])
def test_what_ends_a_run_stores_its_last_steps(database: Database, status: str) -> None:
    start(database)
    append(database, BEGUN)
    end = finish(database, status, ENDED, evolve(BEGUN, place="1.2"))

    assert end.kept
    assert [fetch(database)[place].outcome for place in ("1.1", "1.2")] == [ENDED.outcome, None]


# --- whose they are


def test_steps_are_those_of_one_run_of_one_owner(database: Database) -> None:
    start(database)
    start(database, "q", owner="eve")
    append(database, BEGUN)
    append(database, ENDED, run_id="q", owner="eve")

    assert fetch(database) == {"1.1": evolve(BEGUN, attempt=1)}
    assert fetch(database, "q", "eve") == {"1.1": evolve(ENDED, attempt=1)}
    for owner, run_id in (("ada", "q"), ("eve", "r"), ("", "r"), ("ada", "absent")):
        assert fetch(database, run_id, owner) == {}


def test_databases_know_nothing_of_each_other(database: Database) -> None:
    other = Database()
    start(database)
    start(other)
    append(database, BEGUN)

    assert fetch(other) == {}
    append(other, ENDED)
    assert fetch(database) == {"1.1": evolve(BEGUN, attempt=1)}


def test_steps_go_with_their_session_and_no_others_do(database: Database) -> None:
    same, other_session, other_owner = ("r", "ada", "s"), ("q", "ada", "t"), ("p", "eve", "s")
    for run_id, owner, session_id in (same, other_session, other_owner):
        start(database, run_id, owner=owner, session_id=session_id)
        append(database, BEGUN, ENDED_MODEL, run_id=run_id, owner=owner)
    database.run(DeleteSessions((("ada", "s", None), ("ada", "absent", None)), None, 9))

    assert fetch(database) == {}
    assert [len(fetch(database, *of[:2])) for of in (other_session, other_owner)] == [2, 2]
    assert database.ask("select run_id from steps group by 1 order by 1") == [("p",), ("q",)]


def test_members_that_are_over_are_found_among_those_asked_for(database: Database) -> None:
    start(database)
    root = Root("ada", "s", "r", RunLease("n", 1))
    for run_id in ("over", "works", "of eve"):
        database.run(StartMember(root, run_id, "r", "agent", "ann", "{}", "{}", 2))
    database.connection.execute(
        "update runs set ended_us = 5, status = 'COMPLETED', output = '{\"a\":1}'"
        " where run_id in ('over', 'of eve')"
    )
    database.connection.execute("update runs set owner = 'eve' where run_id = 'of eve'")
    asked = ("over", "works", "of eve", "absent")

    assert database.run(FetchMembersOver("ada", asked)) == {"over": ("COMPLETED", '{"a":1}')}
    assert database.run(FetchMembersOver("ada", ("works",))) == {}
    assert database.run(FetchMembersOver("ada", ())) == {}


def statement(unit: Unit[Any], dialect: Dialect) -> Statement:
    return next(one_by_one(unit.statements(dialect)))


@pytest.mark.parametrize(
    "unit", [FetchDefinitions(("a", "b")), FetchMembersOver("ada", ("a", "b"))]
)
def test_lists_are_arrays_for_postgresql(unit: FetchDefinitions | FetchMembersOver) -> None:
    parameters = [list(statement(unit, dialect).parameters.values()) for dialect in Dialect]
    assert '["a", "b"]' in parameters[0]
    assert ["a", "b"] in parameters[1]


# --- tries and recorded


def release(database: Database, *, attempt: int = 1, node: str = "n", tried: bool = True) -> bool:
    unit = ReleaseRun("ada", "r", RunLease(node, attempt), tried=tried)
    return database.run(unit)


def claim(database: Database, node: str = "n") -> ClaimedRun | None:
    claimed = database.run(ClaimWaiting(node, 20, HOSTED))
    return claimed if isinstance(claimed, ClaimedRun) else None


def test_a_claim_counts_as_a_try_until_a_step_ends(database: Database) -> None:
    claimed = start(database)
    assert claimed is not None
    assert (claimed.tries, counters(database)) == (1, (1, 1, 1))

    append(database, BEGUN)
    for attempt in (2, 3):
        assert release(database, attempt=attempt - 1)
        again = claim(database)
        assert again is not None
        assert (again.attempt, again.tries) == (attempt, attempt)
        assert counters(database) == (attempt, attempt, attempt)
        append(database, evolve(BEGUN, place=f"1.{attempt}"), attempt=attempt)
    append(database, ENDED, attempt=3)
    assert counters(database) == (3, 1, 3)
    assert release(database, attempt=3)
    claimed = claim(database)
    assert claimed is not None
    assert (claimed.attempt, claimed.tries, claimed.events) == (4, 2, 4)


def test_an_orderly_release_is_no_try(database: Database) -> None:
    start(database)
    append(database, BEGUN)
    assert release(database, tried=False)
    assert counters(database) == (1, 0, 1)

    claim(database)
    assert counters(database) == (2, 1, 2)
    assert release(database, attempt=2)
    assert counters(database) == (2, 1, 2)


def test_a_run_that_waited_for_its_turn_has_one_try(database: Database) -> None:
    start(database)
    assert start(database, "q") is None
    assert counters(database, "q") == (0, 0, 0)

    following = finish(database).following
    assert following is not None
    assert (following.run_id, following.attempt, following.tries) == ("q", 1, 1)
    assert counters(database, "q") == (1, 1, 1)


@pytest.mark.parametrize("queued", [False, True])
def test_a_continue_begins_to_count_anew(database: Database, queued: bool) -> None:
    start(database)
    append(database, BEGUN)
    for attempt in (1, 2):
        release(database, attempt=attempt)
        claim(database)
    assert counters(database) == (3, 3, 3)
    assert finish(database, "PAUSED", attempt=3).kept
    if queued:
        start(database, "q")
    continued = database.run(ContinueRun("ada", "s", "r", 3, "answered", "t", "n", 9, HOSTED))
    assert continued.kept
    if queued:
        assert (continued.claim, counters(database)) == (None, (3, 0, 3))
        database.connection.execute("delete from runs where run_id = 'q'")
        claim(database)
    assert counters(database) == (4, 1, 4)
    row = row_of(database)
    assert (row.untouched, row.is_recorded) == (True, True)


def test_an_attempt_without_steps_is_remembered_until_the_next_pause(database: Database) -> None:
    """A node of the release before claims, and counts neither tries nor records."""
    start(database)
    append(database, BEGUN)
    database.connection.execute("update runs set attempt = 2")
    assert not row_of(database).is_recorded

    assert not release(database, attempt=2)
    finish(database, "PAUSED", attempt=2)
    database.run(ContinueRun("ada", "s", "r", 2, "answered", "t", "n", 9, HOSTED))
    assert counters(database) == (3, 1, 3)


def test_nothing_is_missing_of_a_run_that_nobody_had_touched(database: Database) -> None:
    """A node of the release before claimed it, and died before anything happened."""
    start(database)
    database.connection.execute("update runs set recorded = 0")
    assert release(database)
    assert row_of(database).reason is None

    claim(database)
    assert counters(database) == (2, 2, 2)


# --- waiting to go on


def enter(database: Database, schema_version: str) -> None:
    database.ask(
        "insert into nodes (node_id, started_us, beat_us, code_version, schema_version)"
        " values ('old', 0, 0, '', ?)",
        schema_version,
    )


def test_a_touched_run_waits_with_a_mark_until_its_next_event(database: Database) -> None:
    start(database)
    append(database, BEGUN)
    assert not row_of(database).untouched
    assert release(database)
    waiting = row_of(database)
    assert (waiting.status, waiting.reason, waiting.untouched) == ("PENDING", "recorded", False)
    assert (waiting.lease_by, waiting.lease_us, waiting.started_us) == (None, None, None)

    claimed = claim(database)
    assert claimed is not None
    assert claimed.events == 1
    assert (row_of(database).reason, row_of(database).untouched) == ("recorded", False)
    append(database, ENDED, attempt=2)
    assert row_of(database).reason is None


def test_who_claims_to_go_on_and_dies_leaves_a_run_that_goes_on(database: Database) -> None:
    start(database)
    append(database, BEGUN)
    for attempt in (1, 2):
        assert release(database, attempt=attempt)
        claim(database)
    database.bury("n")

    (row,) = database.run(FindNeglected(HOSTED)).expired
    assert (row.tries, row.untouched, row.is_recorded) == (3, False, True)


@pytest.mark.parametrize("before", ["2.5.6", "2.6.0"])
def test_beside_a_node_without_steps_a_touched_run_is_not_released(
    database: Database, before: str
) -> None:
    """It would claim the run, and begin it again."""
    start(database)
    append(database, BEGUN)
    enter(database, before)
    assert not release(database)
    assert row_of(database).status == "RUNNING"

    database.bury("old")
    assert release(database)


def test_beside_a_node_with_steps_it_is_released(database: Database) -> None:
    start(database)
    append(database, BEGUN)
    enter(database, "2.7.0")
    assert release(database)


@pytest.mark.parametrize("recorded", [0, 2])
def test_what_is_not_recorded_is_not_released(database: Database, recorded: int) -> None:
    start(database)
    append(database, BEGUN)
    database.ask("update runs set recorded = ?", recorded)
    assert not release(database)


@pytest.mark.parametrize(
    ("owner", "node", "attempt", "lapsed"),
    [("eve", "n", 1, False), ("ada", "m", 1, False), ("ada", "n", 2, False), ("ada", "n", 1, True)],
    ids=["another owner", "another node", "another attempt", "a node that lives"],
)
def test_only_under_its_lease_is_it_released(
    database: Database, owner: str, node: str, attempt: int, lapsed: bool
) -> None:
    start(database)
    append(database, BEGUN)
    assert not database.run(ReleaseRun(owner, "r", RunLease(node, attempt), lapsed))
    assert row_of(database).status == "RUNNING"


def test_a_run_that_somebody_wants_to_end_is_not_released(database: Database) -> None:
    start(database)
    append(database, BEGUN)
    database.ask("update runs set cancel_us = 5")
    assert not release(database)


@pytest.mark.parametrize(
    ("events", "reason", "untouched"),
    [
        (0, None, True),
        (0, "recorded", True),
        (3, None, False),
        (3, "recorded", False),
        (3, "claimed", True),
        (3, "waiting", True),
        (3, "released", True),
        (3, "claimed:of a release before", True),
    ],
)
def test_rows_and_statements_agree_on_what_is_untouched(
    database: Database, events: int, reason: str | None, untouched: bool
) -> None:
    start(database)
    database.ask("update runs set events = ?, reason = ?, recorded = 0", events, reason)

    assert row_of(database).untouched is untouched
    assert release(database) is untouched


def test_a_claim_whose_answer_was_lost_finds_a_run_that_waited_to_go_on(database: Database) -> None:
    """An end is stored a second time after its claim of the next run, which was to go on."""
    start(database)
    append(database, BEGUN)
    release(database)
    database.connection.execute("update runs set run_no = 5 where run_id = 'r'")
    database.connection.execute("update sessions set runs = 0")
    start_before = StartRun("ada", "s", "q", "agent", "desk", "{}", "", "n", 1)
    database.run(start_before)
    database.connection.execute(
        "update runs set status = 'RUNNING', attempt = 1, lease_by = 'n' where run_id = 'q'"
    )
    end = FinishRun(
        owner="ada",
        session_id="s",
        run_id="q",
        lease=RunLease("n", 1),
        node="n",
        now_us=8,
        status="COMPLETED",
        output="{}",
        reason=None,
        usage=None,
        events=(StoredEvent(1, "e", "{}"),),
        hosted=HOSTED,
    )
    first = database.run(end)
    assert first.following is not None
    assert (first.following.run_id, first.following.events) == ("r", 1)
    assert database.run(end) == first
