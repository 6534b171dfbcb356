"""Summaries on both engines: two nodes that summarize one session at once store one."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing, suppress
from pathlib import Path
from threading import Barrier, Thread
from typing import Final

import pytest

from legation.migrations.catalogue import CATALOGUE
from legation.store.erasure import DeleteRun, EraseRuns, Tally
from legation.store.failures import Busy
from legation.store.run_reads import RecentRuns
from legation.store.summaries import FetchSummary, StoreSummary, Summary, SummaryOfNumber

from ..drivers import Driver
from ..old_data import NODE, YOUNG_US, store_run
from .migrating import driver_of, move

RUNS: Final = 6
NODES: Final = 4


@pytest.fixture(params=["sqlite", "postgresql"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Driver]:
    url = f"sqlite:///{tmp_path}/main.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres")
    return lambda: driver_of(url)


@pytest.fixture
def driver(connect: Callable[[], Driver]) -> Generator[Driver]:
    with closing(connect()) as made:
        move(made, CATALOGUE.latest)
        for owner in ("ada", "eve"):
            for number in range(1, RUNS + 1):
                store_run(
                    made.run, f"{owner}-{number}", YOUNG_US + number, owner=owner, session_id="s"
                )
        yield made


def make(text: str, owner: str = "ada", last: int = 3, base: int = 0) -> StoreSummary:
    summary = Summary(last, text, f"{owner}-7", NODE, '{"input_tokens":1}', 9)
    return StoreSummary(owner, "s", summary, RUNS + 1, base, tuple(range(base + 1, last + 1)))


def test_of_nodes_that_summarize_at_once_one_stores_and_all_tell_the_same(
    driver: Driver, connect: Callable[[], Driver]
) -> None:
    barrier, found = Barrier(NODES), list[Summary | None]()

    def summarize(number: int) -> None:
        with closing(connect()) as node:
            barrier.wait(60)
            while True:  # as a run does
                with suppress(Busy):
                    found.append(node.run(make(f"by {number}")))
                    return

    threads = [Thread(target=summarize, args=(number,)) for number in range(NODES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    stored = driver.run(FetchSummary("ada", "s", RUNS + 1))
    assert stored is not None
    assert found == [stored] * NODES
    assert driver.ask("select count(*) from session_summaries") == [(1,)]
    assert driver.run(FetchSummary("eve", "s", RUNS + 1)) is None


def test_both_engines_read_and_delete_summaries_alike(driver: Driver) -> None:
    first, second = driver.run(make("é")), driver.run(make("two", last=5, base=3))
    driver.run(make("hers", "eve"))

    assert driver.run(SummaryOfNumber("ada", "s", 3)) == first
    assert driver.run(FetchSummary("ada", "s", RUNS + 1)) == second
    assert [n for n, _ in driver.run(RecentRuns("ada", "s", 7, 9, after=5)) or ()] == [6]
    driver.run(DeleteRun("ada", "s", "ada-4", 9))
    assert driver.run(FetchSummary("ada", "s", RUNS + 1)) == first
    assert driver.run(make("none", last=5, base=3)) is None  # without the fourth run
    erased = Tally()
    while (tally := driver.run(EraseRuns("ada", "s", 2))) != Tally():
        erased += tally
    assert erased.summaries == 1
    assert driver.ask("select owner from session_summaries") == [("eve",)]
