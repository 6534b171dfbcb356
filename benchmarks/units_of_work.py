"""The rate of durable units of work that one SQLite file takes.

Group commit (`SqliteDatabase`) against a thread hop and a commit for every unit, at 1, 16 and 64
tasks, in turns within one run; the ratio is the answer.  `python benchmarks/units_of_work.py`.
"""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
from attrs import frozen

from legation.store.units import Dialect, Sql, Statements, Unit
from legation_host.sqlite import SqliteDatabase
from legation_host.sqlite_connection import connect, run_unit

UNITS: Final = 4_000
ROUNDS: Final = 3
TASKS: Final = (1, 16, 64)
AIM: Final = 5.0  # times, at 64 tasks

CREATE: Final = Sql("create table inbox (message_id text primary key, payload text not null)")
INSERT: Final = Sql("insert into inbox (message_id, payload) values (:message_id, :payload)")


@frozen
class Create(Unit[None]):
    """An empty inbox."""

    def statements(self, dialect: Dialect) -> Statements[None]:
        yield CREATE()


@frozen
class Receive(Unit[None]):
    """One message of 500 bytes."""

    message_id: str

    def statements(self, dialect: Dialect) -> Statements[None]:
        yield INSERT(message_id=self.message_id, payload="x" * 500)


Perform = Callable[[Unit[None]], Awaitable[None]]


async def rate(perform: Perform, tasks: int, units: int) -> float:
    """Return how many units per second `tasks` tasks get done, each one after the other."""
    numbers = iter(range(units))

    async def work() -> None:
        for number in numbers:
            await perform(Receive(f"message {number}"))

    started = time.perf_counter()
    async with anyio.create_task_group() as group:
        for _ in range(tasks):
            group.start_soon(work)
    return units / (time.perf_counter() - started)


async def time_groups(path: str, tasks: int) -> float:
    """Return the rate with group commit."""
    database = SqliteDatabase("bench", path)
    await database.run(Create())
    try:
        return await rate(database.run, tasks, UNITS)
    finally:
        await database.aclose()


async def time_hops(path: str, tasks: int) -> float:
    """Return the rate with a hop into a thread and a commit for every unit."""
    connection: sqlite3.Connection = connect(path)
    run_unit(connection, Create())
    one_at_a_time = anyio.CapacityLimiter(1)

    async def perform(unit: Unit[None]) -> None:
        await anyio.to_thread.run_sync(run_unit, connection, unit, limiter=one_at_a_time)

    try:
        return await rate(perform, tasks, UNITS)
    finally:
        connection.close()


async def measure() -> float:
    """Print a line for each number of tasks; return the ratio of the last."""
    ratio = 0.0
    for tasks in TASKS:
        rates: dict[Any, list[float]] = {time_groups: [], time_hops: []}
        for _ in range(ROUNDS):
            for way, taken in rates.items():
                with tempfile.TemporaryDirectory() as folder:
                    taken.append(await way(str(Path(folder, "bench.db")), tasks))
        group, hop = (statistics.median(taken) for taken in rates.values())
        ratio = group / hop
        print(
            f"{tasks:3d} tasks: {group:8,.0f} units/s in groups,"
            f" {hop:7,.0f} with a hop each: {ratio:4.1f} times"
        )
    return ratio


if __name__ == "__main__":
    for backend in ("trio", "asyncio"):
        print(backend)
        reached = anyio.run(measure, backend=backend)
        verdict = "reached" if reached >= AIM else "MISSED"
        print(f"    aim at {TASKS[-1]} tasks: {AIM} times: {verdict}")
