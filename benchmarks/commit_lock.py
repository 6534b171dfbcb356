"""The cost of the lock that keeps processes apart in the WAL of one SQLite file.

Units per second of 1 and of 3 processes on one file, with the lock and without, in turns within one
run; the ratio is the answer.  Beside it stand the units of the slowest process against the fastest
in the same time, and the longest that one unit took.  `python benchmarks/commit_lock.py`.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from subprocess import PIPE
from typing import Final

import anyio
from attrs import frozen

from legation.store.units import Dialect, Sql, Statements, Unit
from legation_host.sqlite import SqliteDatabase
from legation_host.sqlite_connection import connect, run_unit

SECONDS: Final = 1.0
ROUNDS: Final = 9
PROCESSES: Final = (1, 3)
TASKS: Final = (1, 16)
VERSIONS: Final = {"with": (3, 40, 1), "without": (3, 51, 3)}

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


@frozen
class Outcome:
    """The units that one process stored, and the longest that one took, in seconds."""

    units: int
    longest: float


async def write(path: str, which: str, tasks: int, process: str) -> Outcome:
    """Store units from when the parent says so until the time is up."""
    database = SqliteDatabase("bench", path, version=VERSIONS[which])
    done: list[float] = []
    print(flush=True)
    sys.stdin.readline()
    begin = time.monotonic()

    async def work(task: int) -> None:
        number = 0
        while time.monotonic() < begin + SECONDS:
            before = time.monotonic()
            await database.run(Receive(f"{process} {task} {number}"))
            done.append(time.monotonic() - before)
            number += 1

    async with anyio.create_task_group() as group:
        for task in range(tasks):
            group.start_soon(work, task)
    await database.aclose()
    return Outcome(len(done), max(done))


def write_at_once(which: str, processes: int, tasks: int) -> list[Outcome]:
    """Let so many processes write to a new file at the same time."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "bench.db"))
        with closing(connect(path)) as connection:
            run_unit(connection, Create())
        command = [sys.executable, __file__, path, which, str(tasks)]
        with ExitStack() as stack:
            started = [
                stack.enter_context(
                    subprocess.Popen([*command, str(number)], stdin=PIPE, stdout=PIPE, text=True)
                )
                for number in range(processes)
            ]
            for process in started:
                (process.stdout or sys.stdin).readline()
            for process in started:
                print(file=process.stdin, flush=True)
            return [Outcome(*json.loads(process.communicate()[0])) for process in started]


def measure(processes: int, tasks: int) -> float:
    """Print a line; return the rate with the lock by that without."""
    rates: dict[str, list[float]] = {which: [] for which in VERSIONS}
    fair: dict[str, list[float]] = {which: [] for which in VERSIONS}
    longest: dict[str, list[float]] = {which: [] for which in VERSIONS}
    for _ in range(ROUNDS):
        for which in VERSIONS:
            outcomes = write_at_once(which, processes, tasks)
            units = [outcome.units for outcome in outcomes]
            rates[which].append(sum(units) / SECONDS)
            fair[which].append(min(units) / max(units))
            longest[which].append(max(outcome.longest for outcome in outcomes))
    rate, ratio, slowest = (
        {which: statistics.median(found) for which, found in table.items()}
        for table in (rates, fair, longest)
    )
    said = "; ".join(
        f"{which} the lock {rate[which]:7,.0f} units/s, slowest by fastest {ratio[which]:4.0%},"
        f" longest {slowest[which] * 1000:5.0f} ms"
        for which in VERSIONS
    )
    answer = rate["with"] / rate["without"]
    print(f"{processes} processes of {tasks:2d} tasks: {said}: {answer:.2f} times")
    return answer


async def tell(*given: str) -> None:
    """Write in this process, and print the outcome."""
    path, which, tasks, process = given
    outcome = await write(path, which, int(tasks), process)
    print(json.dumps([outcome.units, outcome.longest]))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        anyio.run(tell, *sys.argv[1:])
    else:
        for number in PROCESSES:
            for tasks in TASKS:
                measure(number, tasks)
