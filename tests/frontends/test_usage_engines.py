"""What is stored and used is counted alike on both engines, and by several who count at once."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
from attrs import evolve

from legation.migrations.catalogue import CATALOGUE
from legation.store.run_rows import RunLease, StoredEvent
from legation.store.run_steering import CancelRun
from legation.store.runs import AppendEvents, FinishRun, StartRun
from legation.store.sessions import CreateSession, DeleteSessions, SessionChange, UpdateSession
from legation.store.turns import RunShare
from legation.store.usage import FetchUsage, MeasureLog

from ..drivers import Driver
from .migrating import driver_of, move

INPUT: Final = '{"message":"é","stream":false}'
OUTPUT: Final = '{"content":"\N{SNOWMAN}"}'
EVENT: Final = '{"n":"é"}'
FIRST: Final = StoredEvent(1, "RunStarted", EVENT)
ROUNDS: Final = 15
AGENTS: Final = "~agent:desk:ada"
OVERS: Final = ("tokens", "cost", "stored_bytes", "state_bytes")


def start(run_id: str, session_id: str = "s", subject: str | None = None, **share: Any) -> StartRun:
    columns = ("ada", session_id, run_id, "agent", "desk", INPUT, "", "n", 1)
    return StartRun(*columns, state='{"k":"é"}', share=RunShare(subject, **share))


def finish(run_id: str, session_id: str = "s", subject: str | None = None) -> FinishRun:
    return FinishRun(
        "ada", session_id, run_id, RunLease("n", 1), "n", 2, "COMPLETED", OUTPUT, None, None,
        (StoredEvent(1, "RunCompleted", EVENT),), (), bytes=len(INPUT.encode()), tokens=7,
        cost=10**15 - 1, subject=subject,
    )  # fmt: skip


def tell(driver: Driver) -> list[Any]:
    """Store, change and delete; return what is counted after each."""
    change = SessionChange(metadata={"m": "é"}, summary={"a": 1})
    units: list[Any] = [
        start("r1"), finish("r1"), finish("r1"),
        start("r2", subject=AGENTS), finish("r2", subject=AGENTS),
        CreateSession("ada", "t", "agent", "", 1, state={"k": "é"}, metadata={"m": 1}),
        UpdateSession("ada", "t", change, 3),
        start("r3", "t"), start("r4", "t"),
        CancelRun("ada", "t", "r4", 5, "{}", ("RunCancelled", "{}")),
        start("r5", "u", tokens_per_day=7), start("r5", "u", cost_per_day=10**15 - 1),
        start("r6", "u", stored_bytes=10),
        start("r7", "u", state_bytes=5),
        MeasureLog("ada", "r1", 0, 0),
        evolve(start("r8", "v"), first=FIRST), MeasureLog("ada", "r8", 0, 0),
        AppendEvents("ada", "r8", RunLease("n", 1), 2, (evolve(FIRST, seq=2),), 2),
        MeasureLog("ada", "r8", 0, 0),
        DeleteSessions((("ada", "s", None),), None, 6),
        DeleteSessions((("ada", "t", None), ("ada", "v", None)), None, 6),
    ]  # fmt: skip
    told: list[Any] = []
    for unit in units:
        found = driver.run(unit)
        told += [getattr(found, "over", ""), getattr(found, "used", None)]
        if isinstance(unit, MeasureLog):
            told.append(found)
        told += [driver.run(FetchUsage("ada", subject, 9)) for subject in ("ada", AGENTS)]
        ((size,),) = driver.ask("select coalesce(sum(bytes), 0) from sessions")
        assert size == driver.run(FetchUsage("ada", "ada", 9)).bytes
    return told


@pytest.fixture
def drivers(tmp_path: Path, postgres: str) -> Generator[list[Driver]]:
    with (
        closing(driver_of(f"sqlite:///{tmp_path}/main.db")) as one,
        closing(driver_of(postgres)) as other,
    ):
        for driver in (one, other):
            move(driver, CATALOGUE.latest)
        yield [one, other]


def test_both_engines_count_alike(drivers: list[Driver]) -> None:
    one, other = map(tell, drivers)

    assert one == other
    assert [told for told in one if told in OVERS] == list(OVERS)
    assert one[-2].bytes == 0
    size = len(EVENT.encode())
    assert [told for told in one if isinstance(told, int)] == [size, size, 2 * size]


def test_nodes_that_count_at_once_lose_nothing(drivers: list[Driver], postgres: str) -> None:
    """Three subjects of one owner, and the owner itself: each row is locked by several."""
    failed: list[Exception] = []

    def count(name: str, subject: str | None) -> Callable[[], None]:
        def work() -> None:
            try:
                with closing(driver_of(postgres)) as driver:
                    for number in range(ROUNDS):
                        driver.run(start(f"{name}{number}", name, subject))
                        driver.run(finish(f"{name}{number}", name, subject))
            except Exception as error:  # noqa: BLE001 (a deadlock, which is `Busy`, or worse)
                failed.append(error)

        return work

    threads = [
        Thread(target=count(name, subject))
        for name, subject in (("a", None), ("b", AGENTS), ("c", "Zoe"), ("d", AGENTS))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failed == []
    used = {name: drivers[1].run(FetchUsage("ada", name, 9)) for name in ("ada", AGENTS, "Zoe")}
    assert [one.tokens for one in used.values()] == [7 * ROUNDS, 14 * ROUNDS, 7 * ROUNDS]
    each = sum(len(text.encode()) for text in (INPUT, OUTPUT, EVENT))
    state = 4 * len('{"k":"é"}'.encode())
    assert used["ada"].bytes == 4 * ROUNDS * each + state
