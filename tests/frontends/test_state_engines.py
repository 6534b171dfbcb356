"""The state of a session on both engines: they store the same, and what writes at once is kept."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from legation.store.failures import CommitLost
from legation.store.run_reads import FetchEvents, FetchRun
from legation.store.run_rows import RunLease, StoredEvent
from legation.store.runs import AppendEvents, FinishRun, StartRun
from legation.store.session_state import (
    FetchState,
    StateChange,
    StateChanges,
    apply,
    change_to,
)
from legation.store.sessions import CreateSession, DeleteSessions, SessionChange, UpdateSession
from legation.store.steps import Records, Step, StepKind
from legation.store.units import Unit

from ..drivers import Driver, PostgresDriver, SqliteDriver, leave_alone
from .migrating import with_tables

OUTPUT: Final = '{"content":"x","session_state":{}}'
LEASE: Final = RunLease("n", 1)
# PostgreSQL has no U+0000 in texts; what is stored is JSON, which writes it with an escape.
KEYS: Final = st.sampled_from(["a", "b", "\u00e9\u2028", "\0", "", "\U0001f600"])
CHANGES: Final = st.builds(
    change_to,
    st.dictionaries(KEYS, st.none() | st.integers() | st.text(st.characters(codec="utf-8"))),
    st.lists(KEYS, max_size=2),
)


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Generator[Driver]:
    with closing(SqliteDriver(tmp_path_factory.mktemp("states") / "main.db")) as driver:
        yield with_tables(driver)


@pytest.fixture
def postgresql(postgres: str) -> Generator[Driver]:
    with closing(PostgresDriver(postgres)) as driver:
        yield with_tables(driver)


@pytest.fixture(params=["sqlite", "postgresql"])
def driver(request: pytest.FixtureRequest) -> Driver:
    made: Driver = request.getfixturevalue(request.param)
    forget(made)
    return made


def forget(driver: Driver) -> None:
    for table in ("events", "steps", "session_states", "runs", "sessions"):
        driver.ask(f"delete from {table}")


def start(driver: Driver, run_id: str = "r", **others: Any) -> None:
    driver.run(StartRun("ada", "s", run_id, "agent", "desk", "{}", "", "n", 1, **others))


def write(seq: int, *of: tuple[str, StateChange]) -> AppendEvents:
    """Return the batch number `seq` with the outcomes of calls, and what these write."""
    steps = tuple(Step(place, StepKind.CALL, "add", 1, 2, "{}") for place, _ in of)
    records = Records(steps, state=StateChanges("ada", "s", of))
    return AppendEvents("ada", "r", LEASE, 7, (StoredEvent(seq, "e", "{}"),), seq, records)


def finish(last: int, **others: Any) -> FinishRun:
    return FinishRun(
        owner="ada",
        session_id="s",
        run_id="r",
        lease=LEASE,
        node="n",
        now_us=8,
        status="COMPLETED",
        output=OUTPUT,
        reason=None,
        usage=None,
        events=(StoredEvent(last, "RunCompleted", OUTPUT),),
        hosted=(),
        **others,
    )


def state(driver: Driver) -> Any:
    return json.loads(driver.run(FetchState("ada", "s")))


def lose_the_answer(driver: Driver, unit: Unit[Any]) -> None:
    """Run `unit`, whose COMMIT is done and never heard of."""
    seen: list[str | None] = []

    def interfere(text: str | None) -> str | None:
        seen.append(text)
        if seen[-2:] == [None, None] and len(seen) > 2:
            raise CommitLost("no answer")
        return text

    driver.interfere = interfere
    try:
        with pytest.raises(CommitLost):
            driver.run(unit)
    finally:
        driver.interfere = leave_alone


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(CHANGES, max_size=3), max_size=4))
def test_engines_store_the_same_state(
    batches: Sequence[Sequence[StateChange]], sqlite: Driver, postgresql: Driver
) -> None:
    expected = apply("{}", *(change for batch in batches for change in batch))
    for driver in (sqlite, postgresql):
        forget(driver)
        start(driver)
        for seq, batch in enumerate(batches, 1):
            places = ((f"{seq}.{n}", change) for n, change in enumerate(batch, 1))
            assert driver.run(write(seq, *places)) is False
        ended = driver.run(finish(len(batches) + 1))
        assert driver.run(FetchState("ada", "s")) == expected
        shown = None if expected == "{}" else expected
        assert (ended.kept, ended.state) == (True, shown)
        row = driver.run(FetchRun("r", "ada"))
        assert row is not None
        assert (row.state, row.output) == (shown, OUTPUT)
        last = driver.run(FetchEvents("ada", "r", 0)).events[-1].data
        assert last == f'{{"content":"x","session_state":{expected}}}' == row.shown


@pytest.mark.parametrize("between", ["nothing", "patch"])
def test_a_commit_without_an_answer_is_applied_once(driver: Driver, between: str) -> None:
    start(driver, state='{"n":0}')
    put = UpdateSession("ada", "s", SessionChange(state={"by": "client"}), 9)
    one = write(1, ("1.1", change_to({"n": 1}, ())))
    at_end = StateChanges("ada", "s", (("r", change_to({"e": 1}, ())),))
    end = finish(2, records=Records(state=at_end))

    def try_twice(unit: Unit[Any]) -> Any:
        lose_the_answer(driver, unit)
        if between == "patch":
            driver.run(put)
        driver.run(unit)
        return state(driver)

    found = [try_twice(one), try_twice(end)]
    assert found == [{"by": "client"}] * 2 if between == "patch" else [{"n": 1}, {"n": 1, "e": 1}]
    ended = driver.run(end)
    shown = {"by": "client", "e": 1} if between == "patch" else {"n": 1, "e": 1}
    assert json.loads(ended.state or "") == shown


def test_a_change_is_stored_with_all_of_its_batch_or_not_at_all(driver: Driver) -> None:
    """The connection breaks before each statement, and before COMMIT."""
    start(driver)
    unit, points = write(1, ("1.1", change_to({"n": 1}, ()))), 0
    for point in range(20):
        left = [point]

        def cut(text: str | None, left: list[int] = left) -> str | None:
            left[0] -= 1
            if left[0] < 0:
                raise CommitLost("cut")
            return text

        driver.interfere = cut
        try:
            driver.run(unit)
        except CommitLost:
            points += 1
        else:
            break
        finally:
            driver.interfere = leave_alone
        stored = driver.ask("select count(*) from steps")[0][0]
        assert state(driver) == ({"n": 1} if stored else {})

    assert points >= 7  # before BEGIN, five statements, before COMMIT, and behind it


def test_a_deletion_leaves_no_state(driver: Driver) -> None:
    start(driver)
    driver.run(write(1, ("1.1", change_to({"n": 1}, ()))))
    driver.run(finish(2))
    assert driver.ask("select count(*) from session_states") == [(1,)]

    driver.run(DeleteSessions((("ada", "s", None),), None, 9))

    assert driver.ask("select count(*) from session_states") == [(0,)]


def test_what_a_tool_writes_and_what_new_runs_bring_is_all_kept(
    postgresql: Driver, postgres: str
) -> None:
    """Two connections: 20 batches of the run that is executed, and 20 runs that queue behind it."""
    start(postgresql)

    def write_all() -> None:
        with closing(PostgresDriver(postgres)) as one:
            for seq in range(1, 21):
                unit = write(seq, (f"{seq}.1", change_to({f"tool{seq}": seq}, ())))
                assert one.run(unit) is False

    def ask_all() -> None:
        with closing(PostgresDriver(postgres)) as other:
            for number in range(1, 21):
                start(other, f"q{number}", state=json.dumps({f"run{number}": number}))

    run_all(write_all, ask_all)

    expected = {f"{who}{n}": n for who in ("tool", "run") for n in range(1, 21)}
    assert state(postgresql) == expected


def run_all(*work: Callable[[], None]) -> None:
    """Do all of it at once, and wait; what fails is raised."""
    wrong: list[BaseException] = []

    def guarded(one: Callable[[], None]) -> None:
        try:
            one()
        except BaseException as error:  # noqa: BLE001 (raised below, in the thread of the test)
            wrong.append(error)

    threads = [threading.Thread(target=guarded, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_a_message_to_a_session_with_a_long_state_does_not_write_the_state_again(
    tmp_path: Path,
) -> None:
    state, written = {"x": "y" * 3_000_000}, list[int]()
    with closing(SqliteDriver(tmp_path / "long.db")) as driver:
        with_tables(driver)
        driver.run(CreateSession("ada", "s", "agent", "desk", 1, "a name", state))
        for number in range(10):
            driver.ask("pragma wal_checkpoint(truncate)")
            run_id = f"r{number}"
            start(driver, run_id)
            driver.run(evolve(finish(1), run_id=run_id, now_us=1))
            written.append((tmp_path / "long.db-wal").stat().st_size)

    # The first keeps the state beside the runs, where it stays.
    assert 3_000_000 < written[0] < 3_200_000
    assert max(written[1:]) < 100_000
