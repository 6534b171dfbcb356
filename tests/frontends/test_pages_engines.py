"""Pages bounded in bytes on both engines: they cut at the same places, and all is there."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from legation.store.nodes import Beat
from legation.store.run_pages import PAGE_BYTES, ReadRuns
from legation.store.run_reads import (
    EVENTS_BYTES,
    HISTORY_BYTES,
    FetchEvents,
    FindProgress,
    LongRecentRuns,
    RecentRuns,
    RunProgress,
)
from legation.store.session_pages import ListSessions, SessionPlace

from ..drivers import Driver, PostgresDriver, SqliteDriver
from .migrating import with_tables

# Bytes of each run, in characters of three bytes: what is alone, what fits together, and not quite.
SIZES = (9, PAGE_BYTES + 2, PAGE_BYTES // 2, PAGE_BYTES // 2 - 8, 300_000, *(33,) * 40, 900_000)


@pytest.fixture
def drivers(tmp_path: Path, postgres: str) -> Generator[Sequence[Driver]]:
    file = tmp_path / "main.db"
    with closing(SqliteDriver(file)) as sqlite, closing(PostgresDriver(postgres)) as postgresql:
        yield tuple(map(with_tables, (sqlite, postgresql)))


def put(driver: Driver, number: int, size: int) -> None:
    columns = "owner, session_id, run_no, run_id, kind, component_id, status, input, created_us"
    written = "'" + "\u20ac" * (size // 3) + "'"
    driver.ask(
        f"insert into runs ({columns}) values"
        f" ('ada', 's', {number}, 'r{number}', 'agent', 'a', 'COMPLETED', {written}, {number})"
    )


def pages_of_runs(driver: Driver, asked: ReadRuns[int]) -> list[tuple[int, ...]]:
    pages = [driver.run(asked)]
    while (following := pages[-1].following) is not None:
        pages.append(driver.run(following))
    return [page.items for page in pages]


def test_runs_are_cut_into_the_same_pages(drivers: Sequence[Driver]) -> None:
    for driver in drivers:
        for number, size in enumerate(SIZES, 1):
            put(driver, number, size)
    for asked in (
        ReadRuns("ada", "s", attrgetter("run_no")),
        ReadRuns("ada", "s", attrgetter("run_no"), size=3, newest=True),
        ReadRuns("ada", "s", attrgetter("run_no"), size=3, start=1, after=1, kind="agent"),
        ReadRuns("ada", "s", attrgetter("run_no"), status="ERROR", members=True),
    ):
        here, there = (pages_of_runs(driver, asked) for driver in drivers)
        assert here == there
    whole = pages_of_runs(drivers[0], ReadRuns("ada", "s", attrgetter("run_no")))
    assert [number for page in whole for number in page] == list(range(1, len(SIZES) + 1))
    for page in whole:
        assert len(page) == 1 or sum(SIZES[number - 1] for number in page) <= PAGE_BYTES


def test_a_history_is_cut_at_the_same_run(drivers: Sequence[Driver]) -> None:
    for driver in drivers:
        for number, size in enumerate((9, 9, HISTORY_BYTES - 30, 30, 3), 1):
            put(driver, number, size)
        driver.ask("update runs set output = '{}'")
    for size in (1, 2, 3, 4, 5):
        place = ("ada", "s", 99, size)
        here, there = (driver.run(LongRecentRuns(*place)) for driver in drivers)
        assert here is not None
        assert here == there
        assert [number for number, _ in here] == list(range(max(6 - size, 3), 6))
        here, there = (driver.run(RecentRuns(*place)) for driver in drivers)
        assert here == there
        assert (here is None) == (size > 3)


def test_sessions_are_cut_into_the_same_pages(drivers: Sequence[Driver]) -> None:
    columns = "owner, session_id, kind, component_id, name, state, created_us, updated_us"
    for driver in drivers:
        for number, size in enumerate(SIZES, 1):
            owner, name = ("ada", "eve")[number % 2], ("Name", "other")[number % 3 == 0]
            state = '{"a":"' + "\u20ac" * (size // 3) + '"}'
            driver.ask(
                f"insert into sessions ({columns}) values ('{owner}', 's{number:02}', 'agent', 'a',"
                f" '{name}', '{state}', {number // 4}, {-number % 5})"
            )
    narrowings: tuple[dict[str, Any], ...] = ({}, {"name": "AM", "component_id": "a"})
    for whose in ("ada", None):
        for sort_by in ("created_us", "updated_us"):
            for order in ("asc", "desc"):
                for narrowed in narrowings:
                    asked = ListSessions(
                        whose,
                        "agent",
                        attrgetter("session_id"),
                        size=30,
                        any_owner=True,
                        sort_by=sort_by,
                        order=order,
                        **narrowed,
                    )
                    here, there = (pages_of_sessions(driver, asked) for driver in drivers)
                    assert here == there
                    assert len(here) > 1


def pages_of_sessions(
    driver: Driver, asked: ListSessions[str]
) -> list[tuple[int, SessionPlace | None, bool, tuple[str, ...]]]:
    """Read a list to its end, and the list behind it."""
    found: list[tuple[int, SessionPlace | None, bool, tuple[str, ...]]] = []
    following: ListSessions[str] | None = asked
    while following is not None:
        page = driver.run(following)
        found.append((page.total, page.last, page.more, page.items))
        following = page.following
        if following is None and page.last is not None and found[0][2] and not asked.behind:
            return found + pages_of_sessions(driver, evolve(asked, behind=page.last))
    return found


def test_events_are_cut_at_the_same_places(drivers: Sequence[Driver]) -> None:
    sizes = (3, EVENTS_BYTES - 3, 3, EVENTS_BYTES, *(9,) * 300)
    for driver in drivers:
        put(driver, 1, 3)
        for seq, size in enumerate(sizes, 1):
            data = "\u20ac" * (size // 3)
            driver.ask(f"insert into events values ('r1', {seq}, 1, 'e', '{data}')")
    after = 0
    while after < len(sizes):
        here, there = (driver.run(FetchEvents("ada", "r1", after)) for driver in drivers)
        assert here.events == there.events
        assert here.events[0].seq == after + 1
        after = here.events[-1].seq
    assert [d.run(FetchEvents("ada", "r1", 0)).events[-1].seq for d in drivers] == [3, 3]


def test_the_progress_of_runs_is_the_same(drivers: Sequence[Driver]) -> None:
    for driver in drivers:
        for number in range(1, 301):
            put(driver, number, 3)
        driver.ask("update runs set events = run_no, session_id = run_id where run_no > 3")
        driver.ask("update runs set status = 'RUNNING', lease_us = 0 where run_no = 1")
        driver.ask("update runs set status = 'PENDING' where run_no in (2, 4)")
        driver.ask(
            "update runs set status = 'RUNNING', lease_by = 'n', lease_us = 9223372036854775807"
            " where run_no = 5"
        )
    asked = FindProgress((*(f"r{number}" for number in range(1, 257)), "gone"))
    here, there = (driver.run(asked) for driver in drivers)

    assert dict(here) == dict(there)
    assert set(here) == set(asked.runs) - {"gone"}
    for number in (1, 2, 4, 5, 6):
        row, page = here[f"r{number}"], drivers[0].run(FetchEvents("ada", f"r{number}", 0))
        assert row == RunProgress(page.status or "", page.last, page.held)
    assert here["r6"] == RunProgress("COMPLETED", 6, held=False)
    assert [driver.run(FindProgress(())) for driver in drivers] == [{}, {}]


def test_a_run_that_waits_is_held_as_long_as_a_living_node_hosts_it(
    drivers: Sequence[Driver],
) -> None:
    """Where its session has no other run under way; else it is held as that one is."""
    asked = FindProgress(tuple(f"r{number}" for number in range(1, 6)))
    for driver in drivers:
        for number in range(1, 7):
            put(driver, number, 3)
        driver.ask("update runs set status = 'PENDING', session_id = run_id")
        driver.ask("update runs set component_id = 'gone' where run_no = 2")
        driver.ask("update runs set version = '2' where run_no in (3, 4)")
        driver.ask("update runs set component_id = 'é' where run_no = 4")
        driver.ask(
            "update runs set status = 'RUNNING', session_id = 'r5', lease_by = 'dead',"
            " lease_us = 9223372036854775807 where run_no = 6"
        )
        assert {run.held for run in driver.run(asked).values()} == {False}, "no node lives"

        driver.run(beat_of("agent:b"))
        assert {run.held for run in driver.run(asked).values()} == {False}, "it hosts others"

        driver.run(beat_of("agent:b", "agent:a", "agent:é@2"))
        held = {run_id for run_id, run in driver.run(asked).items() if run.held}
        assert held == {"r1", "r4"}
        for run_id in asked.runs:
            assert driver.run(FetchEvents("ada", run_id, 0)).held == (run_id in held)


def beat_of(*hosts: str) -> Beat:
    """The beat of a node that hosts them."""
    return Beat(
        node="n",
        lease_us=15_000_000,
        now_us=1,
        hosts=hosts,
        place="",
        session_lock=False,
        code_version="1",
        schema_version="2.14.0",
    )
