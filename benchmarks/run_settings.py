"""The gain of two settings for a run: SQLite's `temp_store`, and the collector's thresholds.

    python benchmarks/run_settings.py [ROUNDS] [--json FILE]

Joined runs with the echo model in one process, 16 at a time, each in a new session.  Both values of
a setting take turns, 64 runs each; medians over ROUNDS (30) pairs of CPU per run and of bytes
written per run, and of the ratio within a pair.  Aim: CPU 0.97 with `temp_store`, and a third fewer
bytes; CPU 0.95 with the thresholds.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlencode

import trio

from legation import Agent, Database, Platform, PlatformLimits, Request
from legation_cli.service import GARBAGE
from legation_host import Host
from legation_host.hosting import open_platform
from legation_host.sqlite import SqliteDatabase
from legation_host.sqlite_connection import IN_FILES, IN_MEMORY

EACH: Final = 64
AT_A_TIME: Final = 16
USUAL: Final = gc.get_threshold()

Figures: TypeAlias = tuple[float, float]
"""Microseconds of CPU and bytes written, for each run."""


class Body:
    """A body that is there."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def read(self, limit: int) -> bytes:
        """Return what is left of it."""
        content, self.content = self.content, b""
        return content


def count_written_bytes() -> int:
    """Return how many bytes this process has handed to the kernel, as Linux counts them."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


async def run_some(host: Host, platform: Platform) -> Figures:
    """Have `EACH` runs, some at a time; return the cost of one."""
    form = urlencode({"message": "hello", "stream": "false"}).encode()
    fields = (
        (b"host", b"localhost"),
        (b"content-type", b"application/x-www-form-urlencoded"),
        (b"content-length", str(len(form)).encode()),
    )

    async def run() -> None:
        for _ in range(EACH // AT_A_TIME):
            request = Request("POST", "/agents/concierge/runs", fields)
            answer = await host.run(platform.answer(request), body=Body(form))
            assert answer.status == 200, answer

    begun, before = time.process_time(), count_written_bytes()
    async with trio.open_nursery() as nursery:
        for _ in range(AT_A_TIME):
            nursery.start_soon(run)
    return (time.process_time() - begun) * 1e6 / EACH, (count_written_bytes() - before) / EACH


def report(name: str, pairs: list[tuple[Figures, Figures]]) -> dict[str, float]:
    """Print the medians of both sides and of their ratio; return them."""
    found: dict[str, float] = {}
    for index, unit in enumerate(("us of CPU", "bytes written")):
        old, new = (statistics.median(pair[side][index] for pair in pairs) for side in (0, 1))
        ratio = statistics.median(pair[1][index] / pair[0][index] for pair in pairs)
        print(f"{name}: {unit} per run {old:,.0f} -> {new:,.0f}, ratio of pairs {ratio:.2f}")
        found |= {f"{name}, {unit}, before": old, f"{name}, {unit}": new}
        found[f"{name}, {unit}, ratio"] = ratio
    return found


async def measure(rounds: int, folder: Path) -> dict[str, float]:
    """Measure both settings; return the figures."""
    platform = Platform(
        agents=[Agent(id="concierge")],
        databases=[Database("main", f"sqlite:///{folder}/main.db")],
        limits=PlatformLimits(requests_per_second=0),
    )
    found: dict[str, float] = {}
    async with open_platform(platform) as host:
        database = host.databases["main"]
        assert isinstance(database, SqliteDatabase)
        writer = database._writer  # pyright: ignore[reportPrivateUsage]

        async def compare(name: str, old: Callable[[], object], new: Callable[[], object]) -> None:
            pairs: list[tuple[Figures, Figures]] = []
            for number in range(rounds + 3):
                pair: list[Figures] = []
                for choose in (old, new):
                    choose()
                    await trio.sleep(0.05)
                    pair.append(await run_some(host, platform))
                if number >= 3:
                    pairs.append((pair[0], pair[1]))
            found.update(report(name, pairs))

        await compare(
            "temp_store",
            lambda: writer.execute(f"pragma temp_store = {IN_FILES}"),
            lambda: writer.execute(f"pragma temp_store = {IN_MEMORY}"),
        )
        gc.collect()
        gc.freeze()
        await compare(
            "thresholds", lambda: gc.set_threshold(*USUAL), lambda: gc.set_threshold(*GARBAGE)
        )
    return found


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=30)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = trio.run(measure, options.rounds, Path(folder))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
