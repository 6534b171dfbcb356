"""The cost of a run: bytes in the database, and CPU of the server.

    python benchmarks/capacity.py [RUNS]

In process, on a SQLite file and on a PostgreSQL of its own: runs (1,000 unless given) with a
question of 200 characters and an answer of 800, ten in each session, joined, streamed, and streamed
with one call of a tool.  Bytes are those of the file, or of the tables with their indexes, once
everything is written out; the CPU is that of this process, the client's part included.  Of
PostgreSQL, the bytes of each table are printed as well.  Bytes and CPU seconds alone: it prints no
time of a wall clock.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import psycopg
import trio
from run_cpu import FORM, Body, Sink

from legation import Agent, Database, Platform, Request
from legation.http.messages import Streamed
from legation.models.conversation import Prompt
from legation_host.hosting import open_platform
from legation_testing import ScriptedModel, call

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.engines import cluster

RUNS: Final = 1_000
PER_SESSION: Final = 10
QUESTION: Final = "Is there a quiet room for two nights? " * 5
ANSWER: Final = "There is one with a view of the garden. " * 20
CASES: Final = {
    "joined": ("speaker", "false"),
    "streamed": ("speaker", "true"),
    "streamed, one call": ("clerk", "true"),
}
TABLES: Final = """select relname, pg_total_relation_size(oid) from pg_class
    where relkind = 'r' and relnamespace = current_schema()::regnamespace order by 2 desc"""


async def look(number: int) -> str:
    """Look at something."""
    return f"{number} looked at, and it is as it was"


def answer(prompt: Prompt) -> Any:
    """Want one call of the tool, then answer."""
    called = any(message.role == "tool" for message in prompt.messages)
    return ANSWER if called else call("look", number=1)


async def run_all(url: str, case: str, runs: int) -> float:
    """Make runs; return the CPU seconds of one."""
    agent, stream = CASES[case]
    speaker = ScriptedModel([ANSWER] * runs)
    clerk = ScriptedModel([answer] * (2 * runs))
    platform = Platform(
        databases=(Database("main", url, auto_migrate=True),),
        agents=(Agent(id="speaker", model=speaker), Agent(id="clerk", model=clerk, tools=[look])),
    )
    async with open_platform(platform) as host:
        began = time.process_time()
        for number in range(runs):
            session = f"{case}-{number // PER_SESSION}"
            form = {"message": QUESTION, "stream": stream, "session_id": session, "user_id": "ada"}
            body = Body(urlencode(form).encode())
            request = Request("POST", f"/agents/{agent}/runs", FORM)
            reply = await host.run(platform.answer(request), body=body)
            if isinstance(reply, Streamed):
                await host.run(reply.body, sink=Sink())
            else:
                assert reply.status == 200, reply.body
        return (time.process_time() - began) / runs


def size_of_file(path: Path) -> int:
    """Return the bytes of a SQLite database, once its log is in it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    return path.stat().st_size


def sizes_of_tables(url: str) -> Mapping[str, int]:
    """Return the bytes of the tables of a PostgreSQL, with their indexes."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("vacuum")
        return dict(connection.execute(TABLES).fetchall())


def report(engine: str, case: str, size: float, cpu: float) -> None:
    """Print a line of the table."""
    print(f"| {engine} | {case} | {size:,.0f} | {1_000 * cpu:.2f} | {1 / cpu:,.0f} |", flush=True)


def measure_sqlite(case: str, runs: int) -> None:
    """Measure runs on a file; the tables alone are there before."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "main.db"
        trio.run(run_all, f"sqlite:///{path}", case, 1)
        before = size_of_file(path)
        cpu = trio.run(run_all, f"sqlite:///{path}", case, runs)
        report("SQLite", case, (size_of_file(path) - before) / runs, cpu)


def measure_postgresql(url: str, case: str, runs: int) -> Mapping[str, float]:
    """Measure runs on a schema of its own; return the bytes of each table for a run."""
    trio.run(run_all, url, case, 1)
    before = sizes_of_tables(url)
    cpu = trio.run(run_all, url, case, runs)
    after = sizes_of_tables(url)
    grown = {name: (after[name] - before.get(name, 0)) / runs for name in after}
    report("PostgreSQL", case, sum(grown.values()), cpu)
    return {name: size for name, size in grown.items() if size >= 1}


def main() -> None:
    """Measure both engines, and print tables in Markdown."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    print("| engine | run | bytes | CPU ms | runs per second of a core |")
    print("| --- | --- | --- | --- | --- |")
    for case in CASES:
        measure_sqlite(case, runs)
    tables: dict[str, Mapping[str, float]] = {}
    with cluster() as server:
        for case in CASES:
            with server.new_schema() as url:
                tables[case] = measure_postgresql(url, case, runs)
    for case, grown in tables.items():
        print(f"PostgreSQL, {case}:", ", ".join(f"{n} {s:,.0f}" for n, s in grown.items()))


if __name__ == "__main__":
    main()
