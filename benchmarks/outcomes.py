"""The CPU of a run in process, joined and streamed, and how much another tree needs for the same.

    python benchmarks/outcomes.py [--url URL] [--rounds 24] [--tasks 16] [--against FOLDER]

One process opens a platform on SQLite, or at URL, and asks it from TASKS tasks for runs whose model
answers at once; no socket is there.  The figures are microseconds of the process's CPU per run,
medians and minima over ROUNDS rounds of 64 runs.  With `--against`, a checkout of another commit
does the same in a process of its own, round by round in turns, and the median of the ratios of
neighbouring rounds is the answer: a busy machine slows down both.

The aim, against the commit before an outcome was told: a joined run at 0.9 of it or less.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final
from urllib.parse import urlencode

import trio

from legation import Agent, Database, Platform, Request
from legation.http.messages import Streamed
from legation_host import Host
from legation_host.hosting import open_platform

RUNS: Final = 64
KINDS: Final = ("joined", "streamed")
FIELDS: Final = ((b"content-type", b"application/x-www-form-urlencoded"), (b"host", b"localhost"))
HERE: Final = Path(__file__).resolve().parent.parent


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


async def ask(host: Host, platform: Platform, *, stream: bool) -> None:
    """Ask for one run, and wait for its end."""
    body = urlencode({"message": "hello", "stream": str(stream).lower()}).encode()
    fields = (*FIELDS, (b"content-length", str(len(body)).encode()))
    request = Request("POST", "/agents/agent/runs", fields)
    answer = await host.run(platform.answer(request), body=Body(body))
    assert answer.status == 200, answer
    if isinstance(answer, Streamed):
        await host.run(answer.body, sink=Sink())


async def work(url: str, tasks: int) -> None:
    """For each line of the input, do `RUNS` runs of that kind, and write their CPU."""
    databases = [Database("main", url, auto_migrate=True)]
    platform = Platform(agents=[Agent(id="agent")], databases=databases)
    async with open_platform(platform) as host:
        while kind := (await trio.to_thread.run_sync(sys.stdin.readline)).strip():
            left = iter(range(RUNS))

            async def take(kind: str = kind, left: object = left) -> None:
                for _ in left:  # type: ignore[attr-defined]
                    await ask(host, platform, stream=kind == "streamed")

            before = time.process_time()
            async with trio.open_nursery() as nursery:
                for _ in range(tasks):
                    nursery.start_soon(take)
            sys.stdout.write(f"{(time.process_time() - before) / RUNS * 1e6}\n")
            sys.stdout.flush()


class Worker:
    """A process that runs the code of one tree."""

    def __init__(self, tree: Path, url: str, tasks: int) -> None:
        paths = os.pathsep.join((str(tree / "core"), str(tree / "frontends")))
        command = [sys.executable, __file__, "--work", url, "--tasks", str(tasks)]
        pipe = subprocess.PIPE
        environ = {**os.environ, "PYTHONPATH": paths}
        self.process = subprocess.Popen(command, env=environ, stdin=pipe, stdout=pipe, text=True)

    def measure(self, kind: str) -> float:
        """Return the microseconds of CPU per run of one round."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{kind}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self.process.communicate("\n")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url")
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--work")
    told = parser.parse_args()
    if told.work:
        trio.run(work, told.work, told.tasks)
        return
    with ExitStack() as stack:
        workers: list[Worker] = []
        for tree in (HERE, told.against) if told.against else (HERE,):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            url = told.url or f"sqlite:///{folder}/main.db"
            workers.append(Worker(tree.resolve(), url, told.tasks))
            stack.callback(workers[-1].close)
        for kind in KINDS:
            compare(kind, workers, told.rounds)


def compare(kind: str, workers: list[Worker], rounds: int) -> None:
    """Measure one kind of run in each worker, in turns, and print it."""
    for worker in workers * 3:
        worker.measure(kind)
    found: list[list[float]] = [[] for _ in workers]
    for number in range(rounds):
        order = list(zip(workers, found, strict=True))
        for worker, figures in order[:: -1 if number % 2 else 1]:
            figures.append(worker.measure(kind))
    line = ", against ".join(f"{median(f):.0f} µs (least {min(f):.0f})" for f in found)
    ratio = ""
    if len(found) > 1:
        ratios = [here / there for here, there in zip(*found, strict=True)]
        ratio = f": x {median(ratios):.3f}"
    sys.stdout.write(f"{kind}: {line}{ratio}\n")


if __name__ == "__main__":
    main()
