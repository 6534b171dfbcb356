"""The table of refusals on both engines: the same rows, and bounded whoever writes beside."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from attrs import astuple

from legation.store.refusals import (
    MINUTE_ROWS,
    OTHERS,
    AddRefusals,
    ListRefusals,
    RefusalCount,
    RefusalPlace,
)

from ..drivers import Driver, PostgresDriver, SqliteDriver
from .migrating import with_tables

EVERY = RefusalPlace(1 << 40)
NODES = 6


@pytest.fixture
def drivers(tmp_path: Path, postgres: str) -> Generator[Sequence[Driver]]:
    file = tmp_path / "main.db"
    with closing(SqliteDriver(file)) as sqlite, closing(PostgresDriver(postgres)) as postgresql:
        yield tuple(map(with_tables, (sqlite, postgresql)))


def pages(driver: Driver, size: int, only: str | None = None) -> list[RefusalCount]:
    found: list[RefusalCount] = []
    place = EVERY
    while rows := driver.run(ListRefusals(place, 0, size, only)):
        found += rows
        place = RefusalPlace(*astuple(rows[-1])[:4])
    return found


def test_both_engines_have_the_same_rows_in_the_same_order(drivers: Sequence[Driver]) -> None:
    clients = ("", "192.0.2.1", "2001:db8::/64", "a", "B", "É", "☕")
    counted = tuple(
        RefusalCount(minute, client, route, status, 1 + len(client))
        for minute in (100_000, 100_001)
        for client in clients
        for route in ("*", "/agents/{agent_id}", "/me")
        for status in (401, 404)
    )
    flood = tuple(RefusalCount(100_001, f"c{n}", "/me", 401, n + 1) for n in range(1_500))
    found: list[list[RefusalCount]] = []
    for driver in drivers:
        for part in (counted, counted[::2], flood):
            driver.run(AddRefusals(part, forgets=True))
        found.append(pages(driver, 97))
        assert {one.client for one in pages(driver, 3, "É")} == {"É"}
    here, there = found

    assert here == there == sorted(here, key=astuple, reverse=True)
    total = sum(one.count for part in (counted, counted[::2], flood) for one in part)
    assert sum(one.count for one in here) == total
    assert len([one for one in here if one.minute == 100_001]) == MINUTE_ROWS + 1


def test_old_rows_go_on_both_engines(drivers: Sequence[Driver]) -> None:
    for driver in drivers:
        driver.run(AddRefusals((RefusalCount(1, "old", "/me", 401, 1),)))
        driver.run(AddRefusals((RefusalCount(1 << 20, "new", "/me", 401, 1),), forgets=True))
        assert [one.client for one in pages(driver, 9)] == ["new"]


def test_nodes_that_write_at_once_share_the_rows_of_a_minute(postgres: str) -> None:
    with closing(PostgresDriver(postgres)) as first:
        with_tables(first)

        def write(node: int) -> None:
            counted = tuple(
                RefusalCount(100_000, f"c{number}", f"/{node % 3}", 401, 1) for number in range(900)
            )
            with closing(PostgresDriver(postgres)) as driver:
                for _ in range(3):
                    driver.run(AddRefusals(counted))

        with ThreadPoolExecutor(NODES) as pool:
            list(pool.map(write, range(NODES)))
        found = pages(first, 1_000)

    assert len(found) == MINUTE_ROWS + 1
    assert [one.client for one in found if not one.status] == [OTHERS]
    assert sum(one.count for one in found) == NODES * 3 * 900
