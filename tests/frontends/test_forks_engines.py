"""Forks on both engines: they copy the same, a hundred thousand steps in one statement."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any, Final

import pytest

from legation.store.forks import FindCopied, ForkSession, RunFork, SessionCopy
from legation.store.run_reads import FetchRun
from legation.store.run_rows import RunLease, StoredEvent
from legation.store.runs import AppendEvents, FinishRun, StartRun
from legation.store.sessions import SessionRow
from legation.store.steps import FetchSteps, Records, Step, StepKind

from ..drivers import Driver, PostgresDriver, SqliteDriver
from .migrating import with_tables

LEASE: Final = RunLease("n", 1)
MANY: Final = 100_000
MESSAGE: Final = json.dumps({"message": "go", "stream": False})


@pytest.fixture(params=["sqlite", "postgresql"])
def driver(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Driver]:
    made: Driver
    if request.param == "sqlite":
        made = SqliteDriver(tmp_path_factory.mktemp("forks") / "main.db")
    else:
        made = PostgresDriver(request.getfixturevalue("postgres"))
    with closing(made) as opened:
        with_tables(opened)
        for table in ("events", "steps", "definitions", "runs", "sessions"):
            opened.ask(f"delete from {table}")
        yield opened


def finish(driver: Driver, run_id: str, *steps: Step) -> None:
    driver.run(StartRun("ada", 's"1', run_id, "agent", "desk", MESSAGE, "go", "n", 1))
    event = (StoredEvent(1, "e", "{}"),)
    driver.run(AppendEvents("ada", run_id, LEASE, 2, event, 1, Records(steps)))
    head = json.dumps({"run_id": run_id, "session_id": 's"1', "content": f"said {run_id}"})
    output = head.replace('": "', '":"').replace('", "', '","')
    last = (StoredEvent(2, "RunCompleted", "{}"),)
    end = FinishRun("ada", 's"1', run_id, LEASE, "n", 3, "COMPLETED", output, None, None, last, ())
    assert driver.run(end).kept


def fork(run_id: str, **more: Any) -> StartRun:
    taken = RunFork("r", 1, start=True, **more)
    return StartRun("ada", "t", run_id, "agent", "desk", MESSAGE, "", "n", 9, fork=taken)


def test_a_hundred_thousand_steps_are_copied_in_one_statement(
    driver: Driver, figures: Callable[[str], None]
) -> None:
    finish(driver, "r")
    driver.ask(
        "insert into steps (run_id, place, kind, asked, attempt, begun_us, ended_us, outcome)"
        " with recursive n (i) as (select 1 union all select i + 1 from n where i < 100000)"
        " select 'r', cast(i as text), 'model', 'm', 1, 1, 2, '{\"f\":1}' from n"
    )
    took: list[float] = []
    for number, last in enumerate((MANY // 10, MANY)):
        began = time.perf_counter()
        assert not driver.run(fork(f"f{number}", last=last)).changed
        took.append(time.perf_counter() - began)
        ((copied,),) = driver.ask(f"select count(*) from steps where run_id = 'f{number}'")
        assert copied == last

    name = type(driver).__name__
    figures(f"forks: {name}, {MANY} steps copied in {took[1]:.2f} s, a tenth in {took[0]:.2f} s")


def test_engines_copy_the_same(driver: Driver) -> None:
    places = ("0", "1", "1.1", "1.1/1", "1.2", "2", "10")
    steps = [Step(one, StepKind.CALL, "a", 1, 2, f'{{"n":"{one}"}}') for one in places]
    finish(driver, "r", *steps, Step("2.1", StepKind.CALL, "a", 1))
    added = (Step("2.2", StepKind.CALL, "a", 1, 2, "{}"),)
    driver.run(fork("f", last=2, call="1.1", added=added, bytes=20))
    driver.run(fork("g", last=1))

    kept = {one: {s.place for s in driver.run(FetchSteps("ada", one))} for one in "fg"}
    assert kept == {"f": {"0", "1", "1.2", "2", "2.2"}, "g": {"0", "1", "1.1", "1.1/1", "1.2"}}


def test_engines_fork_a_session_alike(driver: Driver) -> None:
    step = Step("1", StepKind.MODEL, "m", 1, 2, "{}")
    for run_id in ("q", "r"):
        finish(driver, run_id, step)
    found = driver.run(FindCopied("ada", 's"1', 2, 10))
    names = (json.dumps('s"1'), json.dumps("copy"))
    pairs = tuple((one, f"{one}'copy") for one in found.runs)
    copy = SessionCopy("ada", 's"1', "copy", names, "{}", pairs, 2, found.bytes, 5)
    row = driver.run(ForkSession(copy))

    assert isinstance(row, SessionRow)
    assert (row.name, row.runs) == ("go (fork)", 2)
    copied = driver.run(FetchRun("q'copy", "ada"))
    assert copied is not None
    shown = json.loads(copied.output or "")
    assert shown == {"run_id": "q'copy", "session_id": "copy", "content": "said q"}
    assert len(driver.run(FetchSteps("ada", "r'copy"))) == 1
    assert driver.run(ForkSession(copy)) is None
