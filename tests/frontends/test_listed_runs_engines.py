"""Lists of runs on both engines: the same pages, and as much read of many runs as of few."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from legation.store import listed_runs
from legation.store.counts import CountPaused, PausedRuns
from legation.store.listed_runs import CountListed, FindListed, ListRuns
from legation.store.pauses import FetchPauses, ForgetResolution
from legation.store.units import Sql, Statement

from ..drivers import Driver, PostgresDriver, SqliteDriver
from ..listed_runs import INSERT, expect, follow, make_rows, row
from .migrating import with_tables

ROWS = make_rows(200)
ASKED = (
    ListRuns(),
    ListRuns(size=7),
    ListRuns(size=7, newest_first=False, statuses=("PAUSED", "RUNNING")),
    ListRuns(size=7, owner="ada", alias="~~eve"),
    ListRuns(size=7, session_id="s3", component="agent:desk"),
    ListRuns(size=7, error_type="timeout", statuses=("ERROR",)),
    ListRuns(size=7, allowed=("agent:shop", "team:*"), since_us=3, until_us=50),
    ListRuns(size=7, allowed=()),
    ListRuns(size=7, resolved=True),
    ListRuns(size=7, session_id="' or 1=1 --", component="agent:\\"),
)


def put(driver: Driver, rows: Sequence[dict[str, Any]]) -> None:
    insert = Sql(INSERT, registered=False)
    text = Statement(insert).text(driver.dialect)
    for one in rows:
        driver.execute(text, Statement(insert, one))


def put_event(driver: Driver, run_id: str, seq: int, name: str, data: str) -> None:
    driver.ask(
        "insert into events (run_id, seq, at_us, name, data)"
        f" values ('{run_id}', {seq}, 5, '{name}', '{data}')"
    )


@pytest.fixture
def drivers(tmp_path: Path, postgres: str) -> Generator[Sequence[Driver]]:
    file = tmp_path / "main.db"
    with closing(SqliteDriver(file)) as sqlite, closing(PostgresDriver(postgres)) as postgresql:
        yield tuple(map(with_tables, (sqlite, postgresql)))


def test_both_engines_count_the_same_paused_runs(drivers: Sequence[Driver]) -> None:
    rows = [{**one, "ended_us": 900 - one["created_us"]} for one in ROWS]
    own = [one for one in rows if one["status"] == "PAUSED" and one["parent_run_id"] is None]
    for driver in drivers:
        assert driver.run(CountPaused()) == PausedRuns()
        put(driver, rows)
        oldest_us = min(one["ended_us"] for one in own)
        assert driver.run(CountPaused()) == PausedRuns(len(own), oldest_us)


def test_both_engines_list_the_same_runs(
    monkeypatch: pytest.MonkeyPatch, drivers: Sequence[Driver]
) -> None:
    for driver in drivers:
        put(driver, ROWS)
    for window, few in ((10_000, 2_000), (16, 3)):
        monkeypatch.setattr(listed_runs, "WINDOW", window)
        monkeypatch.setattr(listed_runs, "FEW", few)
        for asked in ASKED:
            for driver in drivers:
                runs = chain(*follow(driver.run, asked))
                assert [run.run_id for run in runs] == expect(ROWS, asked)
    here, there = (driver.run(CountListed(owner="ada", alias="ada")) for driver in drivers)
    assert here == there
    ids = ("r00001", "none", "r00005")
    here_found, there_found = (driver.run(FindListed(ids)) for driver in drivers)
    assert here_found == there_found != ()


def test_both_engines_find_the_same_pauses(drivers: Sequence[Driver]) -> None:
    own = '{"run_id":"r00001","requires_confirmation":true,"x":"\u20ac"}'
    found: list[Any] = []
    for driver in drivers:
        put(driver, [row(1, status="PAUSED", events=2), row(2, resolved_us=7)])
        driver.ask("update runs set resolved_events = 3 where run_id = 'r00002'")
        put_event(driver, "r00001", 2, "RunPaused", own)
        put_event(driver, "r00001", 3, "RunContinued", "{}")
        keys = (("r00001", 2), ("r00001", 3), ("r00002", 2))
        pauses = driver.run(FetchPauses(keys)), driver.run(FetchPauses(keys, 0))
        listed = driver.run(ListRuns(pauses=True))
        forgotten = [driver.run(ForgetResolution("ada", "r00002", 3)) for _ in range(2)]
        found.append((pauses, listed, forgotten))
    (here, there) = found
    assert here == there
    assert here[1].runs[1].pause == own
    assert here[2] == [True, False]


def test_the_same_rows_are_read_of_many_runs_as_of_few(drivers: Sequence[Driver]) -> None:
    """What SQLite steps through, and what PostgreSQL fetches, for a page at both sizes."""
    steps: list[list[int]] = []
    for size in (100, 5_000):
        for driver in drivers:
            driver.ask("delete from runs")
            put(driver, [row(n, status=("COMPLETED", "ERROR")[n % 2]) for n in range(size)])
            driver.ask("analyze")
        steps.append([count_work(driver, ListRuns(size=50)) for driver in drivers])
    few, many = steps

    assert all(more <= 1.5 * less for less, more in zip(few, many, strict=True)), steps


def count_work(driver: Driver, asked: ListRuns) -> int:
    """Return how much an engine does for a page: steps of its program, or rows of its plan."""
    statement = next(asked.statements(driver.dialect))
    text = statement.text(driver.dialect)
    if isinstance(driver, SqliteDriver):
        steps = [0]

        def count() -> int:
            steps[0] += 1
            return 0

        driver.connection.set_progress_handler(count, 10)
        driver.execute(text, statement)
        driver.connection.set_progress_handler(None, 0)
        return steps[0]
    ((plan,),) = driver.execute(f"explain (analyze, format json) {text}", statement)
    return add_up(plan[0]["Plan"])


def add_up(plan: dict[str, Any]) -> int:
    rows = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    return int(rows * plan["Actual Loops"]) + sum(map(add_up, plan.get("Plans", ())))
