from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from attrs import evolve

from legation.effects import Effect, Now, Program, RandomBytes, Sleep, Transact
from legation.migrations.catalogue import Catalogue, Migration, Step
from legation.migrations.ledger import Entry
from legation.migrations.migrate import (
    Attempt,
    CheckRefused,
    FindAttempt,
    Migrated,
    MigrationBusy,
    MigrationFailed,
    MigrationOutcome,
    MigrationUnknown,
    migrate,
)
from legation.migrations.plan import Drift, LosesData, UnknownVersion, moves_between
from legation.migrations.schema_version import EMPTY, Version
from legation.store.audit import AppendAudit
from legation.store.audit_entries import AuditEntry
from legation.store.failures import (
    Busy,
    CommitLost,
    Conflict,
    DatabaseFull,
    StatementFailed,
    StoreFailure,
    Unavailable,
    WrongSchema,
)
from legation.store.units import Dialect, Rows, Statement, Undo

V1, V2 = Version(1), Version(2)
CATALOGUE = Catalogue(
    (
        Migration(V1, "one", (Step("up 1"), Step("", "up 1 pg")), (Step("down 1"),), ("all",), V1),
        Migration(
            V2,
            "two",
            up=(Step("check 2", refuse_if="rows are left"), Step("up 2")),
            down=(Step("down 2"),),
            serves=V1,
        ),
    )
)
SEALS = {v: CATALOGUE.seal(v, Dialect.SQLITE) for v in CATALOGUE.versions}
UP = moves_between(CATALOGUE, EMPTY, V2)
MIGRATED = Migrated(EMPTY, V2, UP)
START = 1_000_000
ID = bytes(range(16))

ATTEMPT = Attempt(
    CATALOGUE,
    None,
    allow_data_loss=False,
    rehearse=False,
    actor="ada",
    node="n1",
    request_id="r1",
    attempt=ID.hex(),
    at_us=START,
)
ROW_1 = (1, "0.0.0", "1.0.0", SEALS[V1], "1.0.0", "ada", "n1", "r0", "a0", 5)
ROW_2 = (1, "0.0.0", "2.0.0", SEALS[V2], "1.0.0", "ada", "n1", "r1", ID.hex(), START)


# --- the unit of work


def attempt(unit: Attempt, *answers: Rows) -> tuple[list[Statement], Any]:
    """Play `answers` and then no rows for ever; return what was asked and what came back."""
    statements = unit.statements(Dialect.SQLITE)
    asked: list[Statement] = []
    rows: Rows | None = None
    script = iter(answers)
    none: Rows = ()
    while True:
        try:
            statement = statements.send(rows) if rows is not None else next(statements)
        except StopIteration as stop:
            return asked, stop.value
        if " if not exists trail" in statement.text(Dialect.SQLITE):
            rows = none  # the tables of the audit trail are made beside the ledger
            continue
        asked.append(statement)
        rows = next(script, none)


def texts(asked: list[Statement]) -> list[str]:
    """Return what was asked, the ledger's own statements by their first word."""
    lines = [" ".join(statement.text(Dialect.SQLITE).split()) for statement in asked]
    return [line.split()[0] if "schema_ledger" in line else line for line in lines]


def written(insert: Statement) -> tuple[Any, ...]:
    """What an insert writes, in the order of its columns."""
    return tuple(insert.parameters[name] for name in insert.sql.names)


def test_an_attempt_holds_the_migration_lock_and_writes() -> None:
    assert Attempt.exclusive
    assert Attempt.writes
    assert FindAttempt.exclusive


def test_all_steps_and_the_row_are_one_unit() -> None:
    asked, result = attempt(ATTEMPT)

    assert result == MIGRATED
    assert texts(asked) == ["create", "select", "up 1", "check 2", "up 2", "insert"]
    assert written(asked[-1]) == ROW_2


def test_each_engine_takes_its_own_steps() -> None:
    statements = ATTEMPT.statements(Dialect.POSTGRESQL)
    asked = [next(statements), *(statements.send([]) for _ in range(11))]

    beside = asked[1:6]
    assert all(" if not exists trail" in s.text(Dialect.POSTGRESQL) for s in beside)
    assert [s.text(Dialect.POSTGRESQL) for s in asked[7:11]] == [
        "up 1",
        "up 1 pg",
        "check 2",
        "up 2",
    ]


def test_an_attempt_goes_on_from_where_the_database_stands() -> None:
    asked, result = attempt(ATTEMPT, [], [ROW_1])

    assert result == Migrated(V1, V2, UP[1:])
    assert texts(asked) == ["create", "select", "check 2", "up 2", "insert"]
    assert written(asked[-1])[:5] == (2, "1.0.0", "2.0.0", SEALS[V2], "1.0.0")


def test_going_down_is_a_new_row() -> None:
    down = evolve(ATTEMPT, target=EMPTY, allow_data_loss=True)
    asked, result = attempt(down, [], [ROW_2])

    assert result == Migrated(V2, EMPTY, moves_between(CATALOGUE, V2, EMPTY))
    assert texts(asked) == ["create", "select", "down 2", "down 1", "insert"]
    assert written(asked[-1])[:5] == (2, "2.0.0", "0.0.0", "", "0.0.0")


def test_an_empty_plan_leaves_no_trace() -> None:
    asked, result = attempt(ATTEMPT, [], [ROW_2])

    assert result == Undo(Migrated(V2, V2, ()))
    assert texts(asked) == ["create", "select"]


def test_a_rehearsal_takes_every_step_and_undoes_it() -> None:
    asked, result = attempt(evolve(ATTEMPT, rehearse=True))

    assert result == Undo(Migrated(EMPTY, V2, UP, rehearsed=True))
    assert texts(asked) == ["create", "select", "up 1", "check 2", "up 2"]


def test_a_refusal_of_the_planner_touches_nothing() -> None:
    asked, result = attempt(evolve(ATTEMPT, target=EMPTY), [], [ROW_2])

    assert result == Undo(LosesData(EMPTY, ("all",)))
    assert texts(asked) == ["create", "select"]


def test_a_check_that_finds_rows_refuses() -> None:
    asked, result = attempt(ATTEMPT, [], [ROW_1], [(1,)])
    refused = CheckRefused(V2, "two", 1, "rows are left")

    assert result == Undo(refused)
    assert texts(asked) == ["create", "select", "check 2"]
    assert refused.detail == "Version 2.0.0 (two), step 1: rows are left"


def test_rows_of_a_step_that_is_no_check_do_not_refuse() -> None:
    _, result = attempt(ATTEMPT, [], [], [(1,)])

    assert result == MIGRATED


def test_a_corrupt_ledger_is_drift_and_touches_nothing() -> None:
    asked, result = attempt(ATTEMPT, [], [ROW_2, ROW_2])

    assert result == Undo(
        Drift("The ledger of the schema contradicts itself: row 1 does not follow row 1")
    )
    assert texts(asked) == ["create", "select"]


def test_a_unit_starts_anew_at_every_call() -> None:
    assert attempt(ATTEMPT) == attempt(ATTEMPT)


@pytest.mark.parametrize("rows", [[], [ROW_2]], ids=["not there", "there"])
def test_looking_for_a_row_never_keeps_anything(rows: Rows) -> None:
    statements = FindAttempt(ID.hex()).statements(Dialect.SQLITE)
    next(statements)
    statements.send([(1,)])
    with pytest.raises(StopIteration) as stop:
        statements.send(rows)

    entry = Entry(1, EMPTY, V2, SEALS[V2], V1, "ada", "n1", "r1", ID.hex(), START)
    assert stop.value.value == Undo(entry if rows else None)


# --- the program

Script = Sequence[tuple[Effect, Any]]
PATIENCE = 300_000  # microseconds


def start(target: Version | None = None, **options: Any) -> Program[MigrationOutcome]:
    return migrate("main", CATALOGUE, target, actor="ada", request_id="r1", node="n1", **options)


def play(program: Program[Any], script: Script) -> Any:
    """Compare each effect with the script and play its answer; an exception is thrown."""
    answer: Any = None
    for expected, then in script:
        effect = program.throw(answer) if isinstance(answer, Exception) else program.send(answer)
        assert effect == expected
        answer = then
    with pytest.raises(StopIteration) as stop:
        program.throw(answer) if isinstance(answer, Exception) else program.send(answer)
    return stop.value.value


def tried(**changes: Any) -> Effect:
    return Transact("main", evolve(ATTEMPT, **changes))


BEGIN: Script = [(RandomBytes(16), ID), (Now(), START), (Now(), START)]


def paused(seconds: float, share: bytes = b"\xff\xff") -> Script:
    return [(RandomBytes(2), share), (Sleep(seconds), None)]


THEN: Script = [(Now(), START)]
FIND = Transact("main", FindAttempt(ID.hex()))
ENTRY = Entry(1, EMPTY, V2, SEALS[V2], V1, "ada", "n1", "r1", ID.hex(), START)
FAILED = MigrationFailed("CommitLost", "The migration failed (CommitLost): the old version stands")


def test_a_migration_that_goes_well_is_one_unit_of_work() -> None:
    outcome = play(start(), [*BEGIN, (tried(), MIGRATED), *THEN])

    assert outcome == MIGRATED
    assert MIGRATED.detail == "Database migrated successfully to version 2.0.0"


def test_what_was_asked_for_reaches_the_unit() -> None:
    rehearsed = Migrated(V2, V1, (), rehearsed=True)
    program = start(V1, allow_data_loss=True, rehearse=True)
    unit = tried(target=V1, allow_data_loss=True, rehearse=True)

    assert play(program, [*BEGIN, (unit, rehearsed), *THEN]) == rehearsed
    assert rehearsed.detail == "Migration from 2.0.0 to 1.0.0 rehearsed and undone"


def test_a_refusal_is_handed_on() -> None:
    refused = UnknownVersion(Version(9), CATALOGUE.versions)

    assert play(start(Version(9)), [*BEGIN, (tried(target=Version(9)), refused), *THEN]) == refused


def test_a_busy_database_is_tried_again_with_longer_and_longer_pauses() -> None:
    busy: Script = [
        line
        for pause in (0.05, 0.1, 0.2, 0.4, 0.4, 0.4)
        for line in ((tried(), Busy()), (Now(), START + PATIENCE - 1), *paused(pause))
    ]
    script: Script = [*BEGIN, *busy, (tried(), MIGRATED), (Now(), START + 2 * PATIENCE)]

    assert play(start(patience_us=PATIENCE), script) == MIGRATED


@pytest.mark.parametrize(
    ("share", "seconds"), [(b"\0\0", 0.025), (b"\x33\x33", 0.03), (b"\xff\xff", 0.05)]
)
def test_who_began_together_comes_back_apart(share: bytes, seconds: float) -> None:
    script: Script = [
        *BEGIN,
        (tried(), Busy()),
        *THEN,
        *paused(seconds, share),
        (tried(), MIGRATED),
        *THEN,
    ]

    assert play(start(), script) == MIGRATED


@pytest.mark.parametrize("later", [PATIENCE, 10 * PATIENCE, -1], ids=["just", "long", "set back"])
def test_patience_ends(later: int) -> None:
    script: Script = [
        *BEGIN,
        (tried(), Busy()),
        (Now(), START),
        *paused(0.05),
        (tried(), Busy()),
        (Now(), START + later),
    ]
    outcome = play(start(patience_us=PATIENCE), script)

    assert outcome == MigrationBusy(PATIENCE)
    assert outcome.detail == (
        "The database was busy for 0.3 s; nothing was changed, and the migration may be tried again"
    )


@pytest.mark.parametrize(
    "failure", [StatementFailed, DatabaseFull, Unavailable, Conflict, WrongSchema, StoreFailure]
)
def test_any_other_failure_leaves_the_old_version(failure: type[StoreFailure]) -> None:
    outcome = play(start(), [*BEGIN, (tried(), failure("driver text")), *THEN])

    assert isinstance(outcome, MigrationFailed)
    assert outcome.reason == failure.__name__
    assert outcome.detail.endswith("the old version stands")
    assert "driver text" not in outcome.detail


LOST: Script = [*BEGIN, (tried(), CommitLost()), (Now(), START), (Now(), START)]


def test_a_lost_commit_that_was_kept_is_a_migration() -> None:
    assert play(start(), [*LOST, (FIND, ENTRY), *THEN]) == MIGRATED


def test_a_lost_commit_that_was_not_kept_has_failed() -> None:
    assert play(start(), [*LOST, (FIND, None), *THEN]) == FAILED


@pytest.mark.parametrize("failure", [Busy, Unavailable])
def test_the_look_after_a_lost_commit_is_tried_again(failure: type[StoreFailure]) -> None:
    again: Script = [(FIND, failure()), (Now(), START), *paused(0.05)]

    assert play(start(), [*LOST, *again, (FIND, ENTRY), *THEN]) == MIGRATED


@pytest.mark.parametrize("failure", [StatementFailed, CommitLost])
def test_a_look_that_fails_leaves_the_outcome_unknown(failure: type[StoreFailure]) -> None:
    outcome = play(start(), [*LOST, (FIND, failure()), *THEN])

    assert outcome == MigrationUnknown()
    assert "did not say" in outcome.detail


def test_a_look_without_an_answer_ends_with_the_patience() -> None:
    script: Script = [*LOST, (FIND, Unavailable()), (Now(), START + PATIENCE)]

    assert play(start(patience_us=PATIENCE), script) == MigrationUnknown()


LONGEST: Script = [
    *BEGIN,
    (tried(), Busy()),
    (Now(), START),
    *paused(0.05),
    (tried(), CommitLost()),
    (Now(), START),
    (Now(), START),
    (FIND, Busy()),
    (Now(), START),
    *paused(0.05),
    (FIND, ENTRY),
    (Now(), START),
]


@pytest.mark.parametrize("effects", range(1, len(LONGEST) + 1))
def test_a_program_closed_at_any_effect_yields_nothing_more(effects: int) -> None:
    program = start()
    answer: Any = None
    for expected, then in LONGEST[:effects]:
        effect = program.throw(answer) if isinstance(answer, Exception) else program.send(answer)
        assert effect == expected
        answer = then

    program.close()  # raises RuntimeError if the program yields


@pytest.mark.parametrize("effects", range(1, 7))
def test_a_unit_closed_at_any_statement_yields_nothing_more(effects: int) -> None:
    statements = ATTEMPT.statements(Dialect.SQLITE)
    next(statements)
    for _ in range(effects - 1):
        statements.send([])

    statements.close()


def test_a_bug_is_not_mistaken_for_a_failure_of_the_database() -> None:
    program = start()
    program.send(None)
    program.send(ID)
    program.send(START)
    program.send(START)

    with pytest.raises(ZeroDivisionError):
        program.throw(ZeroDivisionError())


# --- the audit trail


def test_a_record_is_appended_in_the_transaction_of_the_migration() -> None:
    entry = AuditEntry(START, "r1", "ada", None, "op", "main/2.0.0", "allow", "s", 200, "c")
    unit = evolve(ATTEMPT, record=AppendAudit("n1", (entry,), None))
    ledger: tuple[Rows, ...] = ((), (), (), (), (), ())
    asked, result = attempt(unit, *ledger, (("chained/n1", None, None),))

    assert result == MIGRATED
    assert texts(asked[:6]) == ["create", "select", "up 1", "check 2", "up 2", "insert"]
    assert [text.split(" ", 3)[:3] for text in texts(asked[6:])] == [
        ["select", ":writer,", "last,"],
        ["insert", "into", "trail"],
    ]
    rehearsed, _ = attempt(evolve(unit, rehearse=True))
    assert texts(rehearsed) == ["create", "select", "up 1", "check 2", "up 2"]
