"""The price of going on after a crash: the steps of a run, against a version that keeps none.

    python benchmarks/steps.py CHECKOUT [PAIRS]     CHECKOUT is a tree of that version

Runs without a tool and of ten rounds with a call each, joined and streamed, on a SQLite file, by
this tree and by the other one in turns (7 pairs).  Of the CPU times of the process for some runs
each the lower quartile counts, since others on the machine only add to it; the answer is the median
of the ratios of the pairs.  Bytes, commits and rows of steps are those of the database.

Then a run of a thousand steps is read back and folded, as the next node does after a crash.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import trio

from legation import Agent, Database, Platform, Request
from legation.effects import Program, Transact
from legation.http.messages import Streamed
from legation.models.conversation import Message, Prompt, ToolCall
from legation.runs.turn_state import ModelTurn, TurnState
from legation.store.run_reads import FetchRun
from legation.store.run_rows import RunRow
from legation_host import Host
from legation_host.hosting import open_platform
from legation_testing import ScriptedModel, call

CHUNK: Final = 10  # runs that are timed together
CHUNKS: Final = 20
RUNS: Final = CHUNK * CHUNKS
PAIRS: Final = 7
ROUNDS: Final = 10
LONG: Final = 500  # rounds with a call each: a thousand steps
HERE: Final = Path(__file__).parents[1]
AIMS: Final = {"no call": 1.02, "ten rounds": 1.10}
AIM_BYTES: Final = 600
AIM_MS: Final = 20.0
FORM: Final = ((b"content-type", b"application/x-www-form-urlencoded"), (b"host", b"localhost"))
CASES: Final = {
    f"{way}, {calls}": (agent, way == "streamed")
    for way in ("joined", "streamed")
    for agent, calls in (("speaker", "no call"), ("clerk", "ten rounds"))
}

commits: list[str] = []


async def look(number: int) -> str:
    """Look at something."""
    return f"{number} looked at"


def answer(rounds: int, prompt: Prompt) -> str | ToolCall:
    """Want so many calls one after the other where there is a tool, and answer then."""
    made = sum(message.role == "tool" for message in prompt.messages)
    return call("look", number=made) if prompt.tools and made < rounds else "Done."


class Body:
    """A body that is there."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def read(self, limit: int) -> bytes:
        """Return it."""
        return self.content


class Sink:
    """A client that reads all that it is sent."""

    async def send(self, data: bytes) -> None:
        """Take a part of a stream."""


def trace(sql: str) -> None:
    """Count a commit."""
    if sql.upper().startswith("COMMIT"):
        commits.append(sql)


def make_platform(path: str, rounds: int) -> Platform:
    """Return the platform, with an agent that has a tool and one that has none."""
    model = ScriptedModel([partial(answer, rounds)] * (2 + RUNS * (rounds + 2)))
    clerk = Agent(id="clerk", model=model, tools=[look], max_rounds=rounds + 1, history_runs=0)
    return Platform(
        agents=[Agent(id="speaker", model=model), clerk],
        databases=[Database("main", f"sqlite:///{path}")],
    )


async def ask(platform: Platform, host: Host, agent: str, streamed: bool) -> bytes:
    """Have a run and read its answer to the end; return the answer of a joined one."""
    body = urlencode({"message": "hello", "stream": str(streamed).lower()}).encode()
    headers = (*FORM, (b"content-length", str(len(body)).encode()))
    request = Request("POST", f"/agents/{agent}/runs", headers)
    said = await host.run(platform.answer(request), body=Body(body))
    assert said.status == 200, said
    if not isinstance(said, Streamed):
        return said.body
    await host.run(said.body, sink=Sink())
    return b""


async def measure(path: str, agent: str, streamed: bool) -> dict[str, float]:
    """Return what a run of `agent` takes, in a file of its own."""
    found: list[sqlite3.Connection] = []
    sys.addaudithook(
        lambda event, args: found.append(args[0]) if event == "sqlite3.connect/handle" else None
    )
    platform = make_platform(path, ROUNDS)
    async with open_platform(platform) as host:

        async def run() -> None:
            await ask(platform, host, agent, streamed)

        await repeat(run, CHUNK)
        for connection in found:
            connection.set_trace_callback(trace)
        empty = sizes(path)
        times = [await chunk(run) for _ in range(CHUNKS)]
        full = sizes(path)
    stored = {name: (full[name] - empty[name]) / RUNS for name in full}
    cpu = statistics.quantiles(times, n=4)[0]
    return {"cpu": cpu, "commits": round(len(commits) / RUNS, 1), **stored}


async def repeat(run: Callable[[], Awaitable[None]], times: int) -> None:
    """Do it so often."""
    for _ in range(times):
        await run()


async def chunk(run: Callable[[], Awaitable[None]]) -> float:
    """Return the CPU time of a chunk of runs."""
    begun = time.process_time()
    await repeat(run, CHUNK)
    return time.process_time() - begun


def sizes(path: str) -> dict[str, int]:
    """Return the bytes of all rows of the database and its indexes, and its rows of steps."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        [(size,)] = database.execute("select sum(pgsize - unused) from dbstat").fetchall()
        kept = database.execute("select 1 from sqlite_schema where name = 'steps'").fetchall()
        rows = database.execute("select count(*) from steps").fetchone()[0] if kept else 0
    return {"bytes": size, "rows": rows}


def read(run_id: str) -> Program[RunRow | None]:
    """Return a run as it is stored."""
    return (yield from Transact("main", FetchRun(run_id, None, any_owner=True)))


async def go_on(path: str) -> tuple[int, float]:
    """Return how many steps a long run has, and the milliseconds of their read and their fold."""
    # The version that keeps no steps has not got these modules.
    from legation.runs.fold import fold  # noqa: PLC0415
    from legation.runs.run_record import fetch_record  # noqa: PLC0415

    platform = make_platform(path, LONG)
    async with open_platform(platform) as host:
        run_id = json.loads(await ask(platform, host, "clerk", streamed=False))["run_id"]
        row = await host.run(read(run_id))
        assert row is not None
        asked = Message("user", "hello")
        base = TurnState(said=(ModelTurn(asked, 0),))
        took: list[float] = []
        count = 0
        for _ in range(CHUNKS):
            begun = time.perf_counter()
            record = await host.run(fetch_record("main", row.claim, {}))
            assert record is not None
            state = fold(record, "", base)
            took.append((time.perf_counter() - begun) * 1e3)
            count = len(record.steps)
            assert state.rounds == LONG
    return count, statistics.quantiles(took, n=4)[0]


def measure_apart(tree: Path, case: str) -> dict[str, Any]:
    """Return what a process of its own measures, with the packages of `tree`."""
    paths = os.pathsep.join((str(tree / "core"), str(tree / "frontends")))
    environ = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, __file__, "--measure", case]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure both in turns, and print the ratios."""
    if sys.argv[1] == "--measure":
        with tempfile.TemporaryDirectory() as folder:
            found: Any = trio.run(measure, f"{folder}/main.db", *CASES[sys.argv[2]])
        print(json.dumps(found))
        return
    before, pairs = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else PAIRS
    for case in CASES:
        pair = [(measure_apart(HERE, case), measure_apart(before, case)) for _ in range(pairs)]
        ratio = statistics.median(here["cpu"] / there["cpu"] for here, there in pair)
        here, there = pair[-1]
        aim = AIMS[case.partition(", ")[2]]
        more = (here["bytes"] - there["bytes"]) / (ROUNDS if here["rows"] else 1)
        print(
            f"{case:20} {ratio:5.3f} of the CPU (aim {aim:.2f});"
            f" {here['commits']:g} commits, not {there['commits']:g};"
            f" {more:+5.0f} bytes a round (aim {AIM_BYTES}); {here['rows']:g} rows of steps"
        )
    with tempfile.TemporaryDirectory() as folder:
        steps, took = trio.run(go_on, f"{folder}/main.db")
    print(f"going on with {steps:,} steps: {took:.1f} ms (aim {AIM_MS:g})")


if __name__ == "__main__":
    main()
