"""The steps of runs on both engines: they store the same, and a deletion leaves nothing behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from legation.store.run_rows import RunLease, StoredEvent
from legation.store.runs import AppendEvents, StartRun
from legation.store.sessions import Deleted, DeleteSessions
from legation.store.steps import Definition, FetchDefinitions, FetchSteps, Records, Step, StepKind

from ..drivers import Driver, PostgresDriver, SqliteDriver
from .migrating import with_tables

LEASE: Final = RunLease("n", 1)
MICROSECONDS: Final = st.integers(-(2**62), 2**62)
# PostgreSQL has no U+0000 in texts; what is stored is JSON, which writes it with an escape.
TEXTS: Final = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
STEPS: Final = st.builds(
    Step,
    place=st.sampled_from([f"{n}" for n in range(8)]),
    kind=st.sampled_from(StepKind),
    asked=TEXTS,
    begun_us=MICROSECONDS,
    ended_us=st.none() | MICROSECONDS,
    outcome=st.none() | TEXTS,
)
BATCHES: Final = st.lists(
    st.lists(STEPS, min_size=1, max_size=7, unique_by=lambda step: step.place), max_size=6
)


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Generator[Driver]:
    with closing(SqliteDriver(tmp_path_factory.mktemp("steps") / "main.db")) as driver:
        yield with_tables(driver)


@pytest.fixture
def postgresql(postgres: str) -> Generator[Driver]:
    with closing(PostgresDriver(postgres)) as driver:
        yield with_tables(driver)


def start(driver: Driver, run_id: str = "r", owner: str = "ada") -> None:
    driver.run(StartRun(owner, "s", run_id, "agent", "desk", "{}", "", "n", 1))


def batch(seq: int, steps: Sequence[Step], run_id: str = "r") -> AppendEvents:
    event = (StoredEvent(seq, "e", "{}"),)
    return AppendEvents("ada", run_id, LEASE, 7, event, seq, Records(tuple(steps)))


def forget(driver: Driver) -> None:
    for table in ("events", "steps", "definitions", "runs", "sessions"):
        driver.ask(f"delete from {table}")


def merged(batches: Sequence[Sequence[Step]]) -> dict[str, tuple[Any, ...]]:
    """Return the steps that are to be stored: as they began first, until one has an outcome."""
    found: dict[str, tuple[Any, ...]] = {}
    for step in (step for steps in batches for step in steps):
        began = (step.place, str(step.kind), step.asked, step.begun_us)
        before = found.setdefault(step.place, (*began, step.ended_us, step.outcome, 1))
        if before[5] is None and step.outcome is not None:
            found[step.place] = (*before[:3], *began[3:], step.ended_us, step.outcome, 1)
    return found


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES)
def test_engines_store_the_same_steps(
    batches: list[list[Step]], sqlite: Driver, postgresql: Driver
) -> None:
    for driver in (sqlite, postgresql):
        forget(driver)
        start(driver)
        for seq, steps in enumerate(batches, 1):
            assert driver.run(batch(seq, steps)) is False
        stored = driver.run(FetchSteps("ada", "r"))
        assert {step.place: _columns(step) for step in stored} == merged(batches)


def _columns(step: Step) -> tuple[Any, ...]:
    began = (step.place, step.kind, step.asked, step.begun_us)
    return (*began, step.ended_us, step.outcome, step.attempt)


@pytest.fixture(params=["sqlite", "postgresql"])
def driver(request: pytest.FixtureRequest) -> Driver:
    made: Driver = request.getfixturevalue(request.param)
    forget(made)
    return made


def test_a_thousand_outcomes_and_one_of_a_megabyte(driver: Driver) -> None:
    start(driver)
    steps = [Step(f"{n}", StepKind.CALL, "a", n, n, f'{{"n":{n}}}') for n in range(1_000)]
    large = Step("large", StepKind.CALL, "a", 1, 2, "\U0001f600\u2028" * (1 << 18))
    assert driver.run(batch(1, steps)) is False
    assert driver.run(batch(2, [large])) is False
    assert driver.run(batch(3, [*steps[:5], large])) is False

    stored = {step.place: step.outcome for step in driver.run(FetchSteps("ada", "r"))}
    assert stored == {step.place: step.outcome for step in (*steps, large)}


def test_what_is_fetched_is_the_owner_s(driver: Driver) -> None:
    start(driver)
    definition = Definition("d", "agent", "desk", "{}")
    steps = (Step("1", StepKind.MODEL, "gpt", 1),)
    event = (StoredEvent(1, "e", "{}"),)
    for _ in range(2):
        unit = AppendEvents("ada", "r", LEASE, 7, event, 1, Records(steps, (definition,)))
        assert driver.run(unit) is False

    assert len(driver.run(FetchSteps("ada", "r"))) == 1
    assert driver.run(FetchSteps("eve", "r")) == ()
    assert driver.run(FetchDefinitions(("d", "e"))) == {"d": "{}"}


def test_under_a_lost_lease_nothing_is_stored(driver: Driver) -> None:
    start(driver)
    driver.ask("update runs set lease_by = 'm', attempt = 2")

    assert driver.run(batch(1, [Step("1", StepKind.MODEL, "gpt", 1, 2, "{}")])) is None
    assert driver.ask("select count(*) from steps") == [(0,)]


# --- a deletion beside an executor that is storing


def counts(driver: Driver) -> list[int]:
    tables = ("sessions", "runs", "events", "steps")
    return [driver.ask(f"select count(*) from {table}")[0][0] for table in tables]


def wait_until_blocked(driver: Driver) -> None:
    """Return when a transaction waits for a lock on a row of another."""
    deadline = time.monotonic() + 20
    waits = "select count(*) from pg_locks where not granted and database is null"
    while driver.ask(waits)[0][0] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_deletion_leaves_nothing_of_what_is_stored_meanwhile(
    postgresql: Driver, postgres: str
) -> None:
    """The deletion looks for steps before the executor has committed them."""
    start(postgresql)
    postgresql.run(batch(1, [Step("1", StepKind.MODEL, "gpt", 1)]))
    deleted: list[Deleted] = []

    def delete() -> None:
        with closing(PostgresDriver(postgres)) as other:
            deleted.append(other.run(DeleteSessions((("ada", "s", None),), None, 9)))

    thread = threading.Thread(target=delete)
    with closing(PostgresDriver(postgres)) as watcher, closing(PostgresDriver(postgres)) as one:

        def overlap() -> None:
            thread.start()
            wait_until_blocked(watcher)

        one.interfere = _before_commit(overlap)
        stored = one.run(batch(2, [Step("2", StepKind.MODEL, "gpt", 3)]))
    thread.join(20)

    assert (stored, deleted) == (False, [Deleted(1, ("r",))])
    assert counts(postgresql) == [0, 0, 0, 0]


def _before_commit(act: Callable[[], object]) -> Callable[[str | None], str | None]:
    """Return what acts between the last statement of a unit and its COMMIT."""
    seen: list[str | None] = []

    def interfere(text: str | None) -> str | None:
        seen.append(text)
        if text is None and len(seen) > 1 and seen[-2] is not None:
            act()
        return text

    return interfere


def test_a_deletion_leaves_nothing(driver: Driver) -> None:
    start(driver)
    start(driver, "q", "eve")
    driver.run(batch(1, [Step("1", StepKind.MODEL, "gpt", 1)]))
    driver.run(DeleteSessions((("ada", "s", None),), None, 9))

    assert counts(driver) == [1, 1, 0, 0]
