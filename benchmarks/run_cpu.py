"""The CPU time of a run in this tree, against that in another one.

    python benchmarks/run_cpu.py CHECKOUT [PAIRS]     CHECKOUT is a tree of the other version

Runs of 16 clients side by side on a SQLite file, in process: joined, streamed, and with one call of
a tool, by this tree and by the other one in turns (10 pairs).  Of the times of a process for 80
runs each the lower quartile counts, since others on the machine only add to it; the answer is the
median of the ratios of the pairs, and the least time of either.  Aim: no more than the other tree.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import trio

from legation import Agent, Database, Platform, Request
from legation.http.messages import Streamed
from legation.models.conversation import Prompt, ToolCall
from legation_host.hosting import open_platform
from legation_testing import ScriptedModel, call

HERE: Final = Path(__file__).parents[1]
CLIENTS: Final = 16
CHUNK: Final = 80  # runs that are timed together
CHUNKS: Final = 16
PAIRS: Final = 10
AIM: Final = 1.0
CASES: Final = {
    "joined": ("speaker", "false"),
    "streamed": ("speaker", "true"),
    "joined, one call": ("clerk", "false"),
    "streamed, one call": ("clerk", "true"),
}
FORM: Final = ((b"content-type", b"application/x-www-form-urlencoded"), (b"host", b"localhost"))


async def look(number: int) -> str:
    """Look at something."""
    return f"{number} looked at"


def answer(prompt: Prompt) -> str | ToolCall:
    """Want one call of the tool, then answer."""
    called = any(message.role == "tool" for message in prompt.messages)
    return "It was looked at, and is as it was." if called else call("look", number=1)


class Body:
    """A body that is there."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def read(self, limit: int) -> bytes:
        """Return it."""
        return self.content


class Sink:
    """A client that reads all it is sent."""

    async def send(self, data: bytes) -> None:
        """Take a part of a stream."""


async def measure(case: str, folder: str) -> dict[str, float]:
    """Return the µs of CPU per run: of the process, and of the thread of its event loop."""
    agent, stream = CASES[case]
    model = ScriptedModel([answer] * (2 * CHUNK * (CHUNKS + 4)))
    platform = Platform(
        agents=[Agent(id="speaker"), Agent(id="clerk", model=model, tools=[look])],
        databases=[Database("main", f"sqlite:///{folder}/main.db")],
        environ={},
    )
    body = urlencode({"message": "How are you today?", "stream": stream}).encode()
    headers = (*FORM, (b"content-length", b"%d" % len(body)))
    request = Request("POST", f"/agents/{agent}/runs", headers)
    async with open_platform(platform) as host:

        async def run_some(runs: int) -> None:
            for _ in range(runs):
                got = await host.run(platform.answer(request), body=Body(body))
                assert got.status == 200, got
                if isinstance(got, Streamed):
                    await host.run(got.body, sink=Sink())

        async def run_chunk() -> tuple[float, float]:
            gc.collect()
            process, loop = time.process_time(), time.thread_time()
            async with trio.open_nursery() as clients:
                for _ in range(CLIENTS):
                    clients.start_soon(run_some, CHUNK // CLIENTS)
            process, loop = time.process_time() - process, time.thread_time() - loop
            return process / CHUNK * 1e6, loop / CHUNK * 1e6

        for _ in range(3):
            await run_chunk()
        times = [await run_chunk() for _ in range(CHUNKS)]
    quartiles = [statistics.quantiles(one, n=4)[0] for one in zip(*times, strict=True)]
    return {"process": quartiles[0], "loop": quartiles[1]}


def measure_apart(tree: Path, case: str) -> dict[str, Any]:
    """Return what a process of its own measures with the code of `tree`."""
    paths = os.pathsep.join(str(tree / part) for part in ("core", "frontends"))
    environ = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, __file__, "--case", case]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def main() -> None:
    """Measure one case, or compare this tree with another."""
    if sys.argv[1] == "--case":
        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.write(json.dumps(trio.run(measure, sys.argv[2], folder)))
        return
    other, pairs = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else PAIRS
    worst = 0.0
    for case in CASES:
        found: dict[str, list[dict[str, float]]] = {"here": [], "there": []}
        for pair in range(pairs):
            trees = [("here", HERE), ("there", other)]
            for name, tree in trees if pair % 2 else reversed(trees):
                found[name].append(measure_apart(tree, case))
        for kind in ("process", "loop"):
            here, there = ([one[kind] for one in found[name]] for name in ("here", "there"))
            ratio = statistics.median(a / b for a, b in zip(here, there, strict=True))
            worst = max(worst, ratio)
            print(
                f"{case}, {kind}: {min(here):.0f} µs here, {min(there):.0f} there at least;"
                f" ratio {ratio:.3f}, of the least {min(here) / min(there):.3f}"
            )
    print(f"aim: {AIM}; {'met' if worst <= AIM else 'not met'}")


if __name__ == "__main__":
    main()
