from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

import pytest
from attrs import frozen

from legation import Agent, Database, Platform
from legation.effects import (
    Concurrently,
    Effect,
    Inspect,
    Interrupted,
    Interruptible,
    Job,
    Log,
    Now,
    Program,
    RandomBytes,
    Sleep,
    Spawn,
    ThisNode,
    Transact,
)
from legation.migrations.catalogue import CATALOGUE, Catalogue, Migration, Step
from legation.migrations.ledger import LedgerReading, ReadLedger, State
from legation.migrations.migrate import Attempt, Migrated
from legation.migrations.plan import Drift
from legation.migrations.schema_guard import (
    ANSWER_SECONDS,
    LOOK_SECONDS,
    GuardedJob,
    SchemaGuard,
    WatchSchema,
    WatchSchemas,
)
from legation.migrations.schema_version import EMPTY, Version
from legation.store.failures import (
    Busy,
    CommitLost,
    DatabaseFull,
    FileReplaced,
    NotServed,
    StatementFailed,
    StoreFailure,
    Unavailable,
    WrongSchema,
)
from legation.store.health import PATIENCE_SECONDS, REASONS, Condition, Inspection, ProbeWrite
from legation.store.units import Dialect, Sql, Statements, Unit
from legation_testing import Client, close_at_every_effect, effects_of, play

V1, V2, V3 = Version(1), Version(2), Version(3)
TWO: Final = Catalogue(
    (
        Migration(V1, "one", up=(Step("create table a (x)"),), serves=V1),
        Migration(V2, "two", up=(Step("create table b (x)"),), serves=V1),
    )
)
DULL: Final[dict[type, object]] = {Now: 0, ThisNode: "n1", RandomBytes: b"\0" * 16}
ASK: Final = Sql("select x from a", registered=False)
LEDGER: Final = Transact("main", ReadLedger())
LOOK: Final = Interruptible(iter(LEDGER), "look:main", ANSWER_SECONDS)
WATCH: Final = Interruptible(iter(LEDGER), "look:main", PATIENCE_SECONDS)
INSPECT: Final = Inspect("main")
UNREACHABLE: Final = Log(
    "error",
    "database_unavailable",
    (("database", "main"), ("condition", "unreachable"), ("reason", "It cannot be reached")),
)
AVAILABLE: Final = Log("info", "database_available", (("database", "main"),))
BEHIND: Final = (
    "The database 'main' is not served: The schema is at 1.0.0; migrate it to 2.0.0"
    " (`legation migrate main` or POST /databases/main/migrate does it)"
)


@frozen
class Ask(Unit[int]):
    """Needs the schema."""

    def statements(self, dialect: Dialect) -> Statements[int]:
        yield ASK()
        return 1


ASKING: Final = Transact("main", Ask())


def reading(version: Version, seal: str | None = None, serves: Version = V1) -> LedgerReading:
    sealed = TWO.seal(version, Dialect.SQLITE) if seal is None else seal
    return LedgerReading(Dialect.SQLITE, (), State(version, sealed, serves, 1))


def serving(reason: str | None = None) -> SchemaGuard:
    made = SchemaGuard(("main",), TWO)
    if reason is not None:
        made.reasons["main"] = reason
    return made


def asking() -> Program[int]:
    return (yield from ASKING)


# --- standing


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (reading(V2), None),
        (reading(V3, "any", serves=V2), None),
        (reading(V1), BEHIND),
        (
            reading(V3, "any", serves=V3),
            (
                "The database 'main' is not served: The schema is at 3.0.0, which needs code for"
                " 3.0.0 or later"
            ),
        ),
        (
            reading(V2, "another"),
            (
                "The database 'main' is not served: The history of the database up to 2.0.0 is not"
                " the one this server knows"
            ),
        ),
        (
            reading(EMPTY),
            (
                "The database 'main' is not served: The database is empty; migrate it to 2.0.0"
                " (`legation migrate main` or POST /databases/main/migrate does it)"
            ),
        ),
    ],
    ids=["current", "ahead, served", "behind", "ahead, not served", "drifted", "empty"],
)
def test_a_look_says_whether_a_database_is_served(found: LedgerReading, reason: str | None) -> None:
    for before in (None, "old"):
        made = serving(before)
        play(made.look("main"), [(LOOK, found)])

        assert made.reasons.get("main") == reason


@pytest.mark.parametrize("before", [None, "old"])
def test_a_database_that_does_not_answer_keeps_its_standing(before: str | None) -> None:
    made = serving(before)
    play(made.look("main"), [(LOOK, Unavailable()), (UNREACHABLE, None)])

    assert made.reasons.get("main") == before


def test_a_database_that_never_answered_is_not_served() -> None:
    made = serving()
    play(made.begin("main", migrate=False), [(LOOK, Unavailable()), (UNREACHABLE, None)])

    with pytest.raises(NotServed, match="it has not answered yet"):
        play(made.guard(asking()), [])


# --- the guard


def test_what_is_served_passes_through() -> None:
    assert play(serving().guard(asking()), [(ASKING, 1)]) == 1


def test_no_statement_is_sent_to_what_is_not_served() -> None:
    with pytest.raises(NotServed, match="too old"):
        play(serving("too old").guard(asking()), [])


def test_the_refusal_can_be_handled_like_any_failure() -> None:
    def careful() -> Program[str]:
        try:
            yield from ASKING
        except NotServed as refused:
            now = yield from Now()
            return f"{refused} {now}"
        return ""

    assert play(serving("too old").guard(careful()), [(Now(), 7)]) == "too old 7"


def test_another_database_goes_on() -> None:
    made = serving("too old")
    other = Transact("second", Ask())

    def program() -> Program[int]:
        return (yield from other)

    assert play(made.guard(program()), [(other, 1)]) == 1


def test_a_unit_that_needs_no_schema_passes() -> None:
    def program() -> Program[LedgerReading]:
        return (yield from LEDGER)

    assert play(serving("too old").guard(program()), [(LEDGER, reading(V1))]) == reading(V1)


def test_a_failure_of_an_effect_reaches_the_program() -> None:
    with pytest.raises(Unavailable):
        play(serving().guard(asking()), [(ASKING, Unavailable())])


@pytest.mark.parametrize(
    ("found", "failure"),
    [(reading(V1), NotServed), (reading(V2), WrongSchema), (Busy(), WrongSchema)],
    ids=["behind", "current", "no answer"],
)
def test_a_missing_table_is_a_reason_to_look_at_once(found: Any, failure: type[Exception]) -> None:
    with pytest.raises(failure):
        play(serving().guard(asking()), [(ASKING, WrongSchema()), (LOOK, found)])


@pytest.mark.parametrize("answer", ["an outcome", Busy()], ids=["done", "failed"])
def test_a_migration_that_was_tried_is_a_reason_to_look_at_once(answer: Any) -> None:
    made = serving("too old")
    attempt = Transact("main", Attempt(TWO, None, False, False, "", "", "", "", 0))

    def program() -> Program[None]:
        try:
            yield from attempt
        except Busy:
            pass
        yield from ASKING

    play(made.guard(program()), [(attempt, answer), (LOOK, reading(V2)), (ASKING, 1)])

    assert made.reasons == {}


def test_what_a_guarded_program_spawns_is_guarded() -> None:
    made = serving("too old")

    def program() -> Program[None]:
        yield from Spawn(Asking())

    play(made.guard(program()), [(Spawn(GuardedJob(made, Asking())), None)])
    with pytest.raises(NotServed):
        play(GuardedJob(made, Asking()).program(), [])


def test_what_a_guarded_program_may_interrupt_is_guarded() -> None:
    asked: list[Effect] = []

    def program() -> Program[object]:
        return (yield from Interruptible(asking(), "topic", 1.0))

    def answer(effect: Effect) -> None:
        asked.append(effect)

    effects_of(serving("too old").guard(program()), answer)

    (within,) = asked
    assert isinstance(within, Interruptible)
    with pytest.raises(NotServed):
        play(within.program, [])


def test_what_guarded_programs_do_side_by_side_is_guarded() -> None:
    def program() -> Program[tuple[object, ...]]:
        return (yield from Concurrently((asking(), asking())))

    asked: list[Effect] = []
    effects_of(serving("too old").guard(program()), asked.append)

    (within,) = asked
    assert isinstance(within, Concurrently)
    for one in within.programs:
        with pytest.raises(NotServed):
            play(one, [])


@frozen
class Asking(Job):
    def program(self) -> Program[None]:
        yield from ASKING


def test_a_guarded_program_that_is_closed_is_closed_within() -> None:
    closed: list[str] = []

    def program() -> Program[int]:
        try:
            return (yield from ASKING)
        finally:
            closed.append("yes")

    script: list[tuple[Effect, Any]] = [(ASKING, 1)]
    assert close_at_every_effect(lambda: serving().guard(program()), script) == 1
    assert closed == ["yes", "yes"]


# --- at the host


def test_a_host_that_asks_runs_a_program_as_it_is() -> None:
    made, program = serving("too old"), asking()
    made.at_host = True

    assert made.guard(program) is program
    assert play(GuardedJob(made, Asking()).program(), [(ASKING, 1)]) is None


def test_nothing_is_learned_of_what_the_guard_itself_asks_for() -> None:
    made = serving()
    asked: list[Effect] = []

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Interruptible):
            (look,), _ = effects_of(effect.program, lambda _: reading(V1))
            asked.append(look)
            return reading(V1)
        if isinstance(effect, Transact):
            asked.append(effect)
            assert made.lesson(effect, Busy()) is None
            raise Busy
        return DULL.get(type(effect))

    made.due.add("main")
    with pytest.raises(Busy):
        effects_of(made.look("main"), answer)
    look, tried = asked

    assert isinstance(look, Transact)
    assert made.lesson(look, WrongSchema()) is None
    assert isinstance(tried, Transact)
    assert isinstance(tried.unit, Attempt)
    assert made.lesson(tried, Busy()) is not None  # now that the guard does not migrate any more


@pytest.mark.parametrize("trouble", [None, Unavailable(), Busy(), StatementFailed()], ids=repr)
def test_most_answers_and_failures_are_no_lesson(trouble: StoreFailure | None) -> None:
    assert serving().lesson(ASKING, trouble) is None


# --- the start


def options(**databases: bool | None) -> Platform:
    return Platform(
        agents=[Agent(id="concierge")],
        databases=[Database(name, "sqlite://", auto) for name, auto in databases.items()],
    )


def test_a_database_is_migrated_at_the_start_where_that_is_due() -> None:
    with Client(options(main=None, second=True, third=False)) as client:
        states = {told["id"]: told["state"] for told in client.get("/databases").json()}

        assert states == {"main": "current", "second": "current", "third": "empty"}
        assert client.platform.schema_guard.due == set()  # type: ignore[attr-defined]
        history = client.get("/databases/main/migrations").json()["data"]
        assert [entry["actor"] for entry in history] == ["startup"]


def test_a_database_that_is_served_is_not_migrated_at_the_start() -> None:
    made = serving()
    play(made.begin("main", migrate=True), [(LOOK, reading(V3, "any", serves=V1))])

    assert (made.due, made.reasons) == (set(), {})


@pytest.mark.parametrize("failure", [Busy(), StatementFailed(), Unavailable()], ids=repr)
def test_what_was_not_done_at_the_start_is_done_later(failure: Exception) -> None:
    client = Client(options(main=None))
    fault = client.fail_at(Attempt, failure, times=None)
    with client:
        assert client.get("/sessions").status == 503
        assert "migration_failed" in [line.event for line in client.logs]
        fault.disarm()
        client.advance(LOOK_SECONDS + 1)

        assert client.get("/sessions").status == 200


def test_an_unknown_outcome_is_looked_up_later() -> None:
    client = Client(options(main=None))
    client.fail_at(Attempt, CommitLost(), after=True)
    with client:
        assert client.get("/sessions").status == 200


def test_what_is_refused_is_not_tried_again() -> None:
    made = serving()
    drifted = reading(V2, "another")
    found = iter([drifted, Drift("another history"), drifted])

    def answer(effect: Effect) -> Any:
        asked = isinstance(effect, Transact | Interruptible)
        return next(found) if asked else DULL.get(type(effect))

    asked, _ = effects_of(made.begin("main", migrate=True), answer)

    told = (("database", "main"), ("reason", "another history"))
    assert Log("error", "migration_failed", told) in asked
    assert made.due == set()
    assert made.reasons["main"].endswith("is not the one this server knows")


def test_another_node_may_have_been_faster() -> None:
    made = serving()
    found = iter([reading(EMPTY), Migrated(V2, V2, ()), reading(V2)])

    def answer(effect: Effect) -> Any:
        asked = isinstance(effect, Transact | Interruptible)
        return next(found) if asked else DULL.get(type(effect))

    asked, _ = effects_of(made.begin("main", migrate=True), answer)

    assert not any(isinstance(effect, Log) for effect in asked)
    assert (made.due, made.reasons) == (set(), {})


def test_who_takes_a_database_down_finds_it_left_there() -> None:
    with Client(options(main=None)) as client:
        down = "/databases/main/migrate?target_version=2.5.0&allow_data_loss=true"
        client.post(down).expect_success()
        client.advance(10 * LOOK_SECONDS)

        assert client.get("/databases/main").json()["version"] == "2.5.0"
        assert client.get("/sessions").status == 503


# --- the watch


@pytest.fixture
def watched() -> Generator[tuple[SchemaGuard, Program[None]]]:
    made = serving()
    program = WatchSchema(made, "main").program()
    yield made, program
    program.close()


def test_the_watch_tells_of_each_change_once(watched: tuple[SchemaGuard, Program[None]]) -> None:
    made, program = watched
    told: list[Log] = []
    answer: Any = None
    found = iter([reading(V2), reading(V1), reading(V1), Unavailable(), reading(V2)])
    for _ in range(100):
        effect = program.throw(answer) if isinstance(answer, Exception) else program.send(answer)
        answer = None
        if isinstance(effect, Log):
            told.append(effect)
        elif isinstance(effect, Inspect):
            answer = Inspection()
        elif isinstance(effect, Sleep):
            assert effect.seconds == LOOK_SECONDS
        elif (answer := next(found, None)) is None:
            break

    database = ("database", "main")
    assert told == [
        Log("warning", "schema_rejected", (database, ("reason", BEHIND))),
        UNREACHABLE,
        AVAILABLE,
        Log("info", "schema_accepted", (database,)),
    ]
    assert made.reasons == {}


# --- the condition of a database


def unavailable(condition: Condition) -> Log:
    reason = (("condition", condition.value), ("reason", REASONS[condition]))
    return Log("error", "database_unavailable", (("database", "main"), *reason))


ANSWER: Final = (WATCH, reading(V2))
PROBE: Final = Interruptible(iter(Transact("main", ProbeWrite())), "look:main", PATIENCE_SECONDS)


def test_what_works_is_inspected_and_asked() -> None:
    made = serving()
    play(made.examine("main"), [(INSPECT, Inspection()), ANSWER])

    assert (made.conditions, made.readings) == ({}, {"main": reading(V2)})


def test_no_answer_in_time_is_written_once_and_passes() -> None:
    made = serving()
    silence = (WATCH, Interrupted("timeout"))
    line = (unavailable(Condition.SILENT), None)
    play(made.examine("main"), [(INSPECT, Inspection()), silence, line])
    play(made.examine("main"), [(INSPECT, Inspection()), silence])
    assert made.conditions == {"main": Condition.SILENT}
    assert made.reasons == {}

    play(made.examine("main"), [(INSPECT, Inspection()), (WATCH, reading(V2)), (AVAILABLE, None)])
    assert made.conditions == {}


def test_a_write_that_does_not_end_is_no_answer() -> None:
    made = serving()
    waits = Inspection(waiting_seconds=60.0)
    line = (unavailable(Condition.SILENT), None)

    script = [(INSPECT, waits), line, ANSWER, (AVAILABLE, None)]
    play(made.examine("main"), script)


def test_a_full_disk_is_noticed_before_a_write_fails_and_passes_with_a_write() -> None:
    made = serving()
    full = (INSPECT, Inspection(room=False))
    play(made.examine("main"), [full, (unavailable(Condition.FULL), None), ANSWER])
    play(made.examine("main"), [full, ANSWER])
    assert made.conditions == {"main": Condition.FULL}

    again = [(INSPECT, Inspection()), (PROBE, DatabaseFull()), ANSWER]
    play(made.examine("main"), again)
    assert made.conditions == {"main": Condition.FULL}

    stored = [(INSPECT, Inspection()), (PROBE, None), (AVAILABLE, None), ANSWER]
    play(made.examine("main"), stored)
    assert made.conditions == {}


def test_a_write_that_is_refused_says_so_at_once_and_no_probe_contradicts_it() -> None:
    made = serving()
    line = (unavailable(Condition.FULL), None)
    with pytest.raises(DatabaseFull):
        play(made.guard(asking()), [(ASKING, DatabaseFull()), line])
    assert made.conditions == {"main": Condition.FULL}

    play(made.examine("main"), [(INSPECT, Inspection()), ANSWER])
    assert made.conditions == {"main": Condition.FULL}
    stored = [(INSPECT, Inspection()), (PROBE, None), (AVAILABLE, None), ANSWER]
    play(made.examine("main"), stored)


@pytest.mark.parametrize("by", ["a look", "a write", "a probe"])
def test_where_the_file_is_another_one_nothing_is_sent_any_more(by: str) -> None:
    made = serving()
    line = (unavailable(Condition.REPLACED), None)
    if by == "a look":
        play(made.examine("main"), [(INSPECT, Inspection(replaced=True)), line])
    elif by == "a write":
        with pytest.raises(FileReplaced):
            play(made.guard(asking()), [(ASKING, FileReplaced()), line])
    else:
        play(made.look("main"), [(LOOK, FileReplaced()), line])

    with pytest.raises(NotServed, match=r"deleted or replaced .* restart the server"):
        play(made.guard(asking()), [])
    play(made.examine("main"), [(INSPECT, Inspection())])
    play(made.look("main"), [(LOOK, reading(V2))])
    assert made.conditions == {"main": Condition.REPLACED}
    assert list(made.reasons) == ["main"]


def test_a_failure_in_a_guarded_program_is_noted_by_that_program_alone() -> None:
    made = serving()

    def program() -> Program[object]:
        return (yield from Interruptible(asking(), "topic", 1.0))

    effect = Interruptible(iter(ASKING), "topic", 1.0)
    with pytest.raises(DatabaseFull):
        play(made.guard(program()), [(effect, DatabaseFull())])
    assert made.conditions == {}


def test_a_connection_that_broke_is_left_to_the_next_look() -> None:
    made = serving()
    with pytest.raises(Unavailable):
        play(made.guard(asking()), [(ASKING, Unavailable())])

    assert made.conditions == {}


def test_a_watch_writes_one_line_of_a_file_that_was_replaced(
    watched: tuple[SchemaGuard, Program[None]],
) -> None:
    _, program = watched
    asked: list[Effect] = []
    answer: Any = None
    for _ in range(6):
        asked.append(program.send(answer))
        answer = Inspection(replaced=True) if asked[-1] == INSPECT else None

    sleep = Sleep(LOOK_SECONDS)
    assert asked == [sleep, INSPECT, unavailable(Condition.REPLACED), sleep, INSPECT, sleep]


def test_every_database_has_a_watch_of_its_own() -> None:
    made = SchemaGuard(("main", "second"), TWO)

    play(
        WatchSchemas(made).program(),
        [
            (Spawn(WatchSchema(made, "main")), None),
            (Spawn(WatchSchema(made, "second")), None),
        ],
    )


def test_the_catalogue_is_the_released_one_unless_told() -> None:
    assert SchemaGuard(()).catalogue is CATALOGUE
