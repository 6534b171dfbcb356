"""The CPU time of a run on PostgreSQL, of the node and of the server.

    python benchmarks/postgres_runs.py postgresql://… [TREE]

Joined runs of a canned agent, 16 at once, in process: without HTTP, with a PostgreSQL on this
machine, on which a database of its own is made and dropped.  CPU time is that of the node's process
and of all processes of the server, per run.

With TREE, the folder of another state of the sources, both are measured in turns, and the answer is
the median of the ratios of each turn.  The aim is 0.4 of what a run cost with a round trip for each
statement: 4.5 ms and 2.5 ms.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import IO, Any, Final
from urllib.parse import urlencode, urlsplit

import psycopg
import trio

from legation import Agent, Database, Platform, Request
from legation_host.hosting import open_platform

TREE: Final = Path(__file__).resolve().parent.parent
AT_ONCE: Final = 16
RUNS: Final = 320
TURNS: Final = 21
TICKS: Final = os.sysconf("SC_CLK_TCK")

_FORM: Final = (
    (b"content-type", b"application/x-www-form-urlencoded"),
    (b"host", b"localhost"),
)


# --- A node ------------------------------------------------------------------------------------


class _Body:
    def __init__(self, content: bytes) -> None:
        self.content = content

    async def read(self, limit: int) -> bytes:
        return self.content


async def serve(url: str) -> None:
    """Do `RUNS` runs for each line of the input, and print the CPU time of one in µs."""
    platform = Platform(
        agents=[Agent(id="concierge")], databases=[Database("main", url, auto_migrate=True)]
    )
    body = urlencode({"message": "hello", "stream": "false"}).encode()
    headers = (*_FORM, (b"content-length", str(len(body)).encode()))
    async with open_platform(platform) as host:

        async def run_some() -> None:
            for _ in range(RUNS // AT_ONCE):
                request = Request("POST", "/agents/concierge/runs", headers)
                answer = await host.run(platform.answer(request), body=_Body(body))
                assert answer.status == 200, answer

        while await trio.to_thread.run_sync(sys.stdin.readline):
            begin = time.process_time()
            async with trio.open_nursery() as nursery:
                for _ in range(AT_ONCE):
                    nursery.start_soon(run_some)
            used = (time.process_time() - begin) / RUNS * 1e6
            sys.stdout.write(f"{json.dumps(used)}\n")
            sys.stdout.flush()


# --- In turns ----------------------------------------------------------------------------------


def _stat(pid: int | str) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def server_time(postmaster: int) -> float:
    """Return the CPU time in µs that the server has used, with that of processes that ended."""
    ticks = sum(int(one) for one in _stat(postmaster)[11:15])
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = _stat(entry.name)
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[1]) == postmaster:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS * 1e6


@contextmanager
def new_database(url: str) -> Generator[str]:
    """Yield the URL of a database that is dropped afterwards."""
    name = f"benchmark_{token_hex(4)}"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"create database {name}".encode())
        try:
            yield urlsplit(url)._replace(path=f"/{name}").geturl()
        finally:
            admin.execute(f"drop database {name} with (force)".encode())


@contextmanager
def node(tree: Path, url: str) -> Generator[subprocess.Popen[str]]:
    """Yield a process that does runs with the sources of `tree`."""
    path = os.pathsep.join(str(tree / part) for part in ("core", "frontends"))
    command = [sys.executable, __file__, url, "--node"]
    with new_database(url) as database:
        command[2] = database
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)


def turn(process: subprocess.Popen[str], postmaster: int) -> tuple[float, float]:
    """Return the CPU time of a run in µs: of the node, and of the server."""
    pipes: tuple[IO[str] | None, IO[str] | None] = process.stdin, process.stdout
    given, said = pipes
    assert given is not None
    assert said is not None
    before = server_time(postmaster)
    given.write("go\n")
    given.flush()
    used = float(json.loads(said.readline()))
    return used, (server_time(postmaster) - before) / RUNS


def compare(url: str, trees: list[Path]) -> None:
    """Measure `trees` in turns, and print what came of it."""
    with psycopg.connect(url) as connection:
        postmaster = int(_stat(connection.info.backend_pid)[1])
    found: dict[Path, list[tuple[float, float]]] = {tree: [] for tree in trees}
    with ExitStack() as stack:
        nodes = {tree: stack.enter_context(node(tree, url)) for tree in trees}
        for number in range(-2, TURNS):  # the first two warm up
            for tree, process in nodes.items():
                used = turn(process, postmaster)
                if number >= 0:
                    found[tree].append(used)
    for tree, times in found.items():
        for place, what in enumerate(("node", "server")):
            own = [one[place] for one in times]
            median, least = statistics.median(own), min(own)
            sys.stdout.write(f"{tree.name}: {what} {median:,.0f} µs, at least {least:,.0f}\n")
    if len(trees) == 2:
        mine, other = (found[tree] for tree in trees)
        for place, what in enumerate(("node", "server")):
            ratios = [a[place] / b[place] for a, b in zip(mine, other, strict=True)]
            sys.stdout.write(f"{what}: {statistics.median(ratios):.2f} of {trees[1].name}\n")


def main(url: str, *more: Any) -> None:
    """Be a node, or measure one or two."""
    if more == ("--node",):
        trio.run(serve, url)
    else:
        compare(url, [TREE, *map(Path, more)])


if __name__ == "__main__":
    main(*sys.argv[1:])
