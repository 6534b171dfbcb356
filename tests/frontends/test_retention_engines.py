"""Old data goes alike on both engines; what stores meanwhile and what sweeps lose nothing."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest

from legation.migrations.catalogue import CATALOGUE
from legation.store.nodes import Beat
from legation.store.periods import Kind, Periods
from legation.store.retention import CountOld, FetchSweep
from legation.store.run_rows import DAY_US
from legation.store.usage import FetchUsage

from ..drivers import Driver
from ..old_data import NODE, NOW_US, OLD_US, YOUNG_US, plant, store_run, sweep
from .migrating import driver_of, move

TABLES: Final = (
    *("sessions", "runs", "events", "steps", "session_states", "inbox", "outbox"),
    *("idempotency", "incidents", "refusals", "usage"),
)
HOUR_US: Final = 3_600_000_000


def enter(driver: Driver) -> None:
    beat = Beat(NODE, HOUR_US, 0, (), "", session_lock=False, code_version="1", schema_version="1")
    driver.run(beat)


@pytest.fixture
def drivers(tmp_path: Path, postgres: str) -> Generator[list[Driver]]:
    with (
        closing(driver_of(f"sqlite:///{tmp_path}/main.db")) as one,
        closing(driver_of(postgres)) as other,
    ):
        for driver in (one, other):
            move(driver, CATALOGUE.latest)
            enter(driver)
        yield [one, other]


def count(driver: Driver) -> dict[str, int]:
    return {t: driver.ask(f"select count(*) from {t}")[0][0] for t in TABLES}


def tell(driver: Driver, kind: Kind) -> list[Any]:
    """Plant, sweep one kind, and return what was counted, what went and what is left."""
    for at_us, name in ((OLD_US, "old"), (YOUNG_US, "young")):
        plant(driver.run, at_us, name)
    store_run(driver.run, "t", OLD_US, session_id="t", kind="team", members=2, steps=1)
    store_run(driver.run, "u", YOUNG_US, session_id="t")
    # The clock of the engine is that of now; the planted times are long ago.
    driver.ask(f"update inbox set done_us = received_us, ready_us = {OLD_US}")
    periods = Periods(**{kind.value: 30})
    expected = driver.run(CountOld(kind, periods, NOW_US))
    gone = sweep(driver.run, periods)
    assert sum((gone or {}).values()) == expected
    usage = driver.run(FetchUsage("ada", "ada", NOW_US)).bytes
    ((sizes,),) = driver.ask("select coalesce(sum(bytes), 0) from sessions")
    assert usage == sizes
    return [expected, gone, count(driver), int(usage)]


@pytest.mark.parametrize("kind", tuple(Kind)[:-1])
def test_both_engines_delete_the_same(drivers: list[Driver], kind: Kind) -> None:
    one, other = (tell(driver, kind) for driver in drivers)

    assert one == other
    assert one[0] > 0


def test_a_sweep_of_everything_leaves_what_is_young(drivers: list[Driver]) -> None:
    every = Periods(**dict.fromkeys((kind.value for kind in tuple(Kind)[:-1]), 30))
    for driver in drivers:
        plant(driver.run, OLD_US, "old")
        plant(driver.run, YOUNG_US, "young")
        driver.ask("update inbox set done_us = received_us")
        gone = sweep(driver.run, every)

        assert gone is not None
        # What belongs to a session goes with it, and is counted with it.
        of_sessions = {"runs", "events", "steps"}
        assert {*gone} == {kind.value for kind in tuple(Kind)[:-1]} - of_sessions
        left = count(driver)
        assert {table for table in TABLES if left[table] != 1} == {"events", "idempotency"}
        assert (left["events"], left["idempotency"]) == (2, 0)


def test_nodes_that_sweep_and_nodes_that_store_at_once_lose_nothing(
    drivers: list[Driver], postgres: str
) -> None:
    """On PostgreSQL: two sweeps one after the other's bites, and two who store runs."""
    _, driver = drivers
    for number in range(60):
        store_run(driver.run, f"o{number}", OLD_US, session_id=f"s{number % 30}", owner="ada")
    failed: list[Exception] = []

    def work(act: Callable[[Driver], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                with closing(driver_of(postgres)) as own:
                    act(own)
            except Exception as error:  # noqa: BLE001 (a deadlock, which is `Busy`, or worse)
                failed.append(error)

        return run

    def clean(own: Driver) -> None:
        for day in range(5):
            sweep(own.run, Periods(runs=30, sessions=90), NOW_US + day * 2 * DAY_US)

    def store(own: Driver) -> None:
        for number in range(30):
            store_run(own.run, f"{id(own)}-{number}", YOUNG_US, session_id=f"s{number}")

    threads = [Thread(target=work(act)) for act in (clean, clean, store, store)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failed == []
    sweep(driver.run, Periods(runs=30), NOW_US + 20 * DAY_US)
    assert driver.ask("select count(*) from runs where created_us < 2") == [(0,)]
    ((usage, sizes),) = driver.ask(
        "select (select bytes from usage where subject = 'ada'),"
        " (select coalesce(sum(bytes), 0) from sessions)"
    )
    assert usage == sizes
    assert driver.run(FetchSweep()).active is False
