"""The cost of lists of runs at 100 and at 100,000 runs, and `/health` beside a summary.

    python benchmarks/console_lists.py [ROUNDS]

A page of `GET /runs` is asked of a server of its own, on a SQLite file: the median of the rounds at
each size, which has a whole page, and their ratio, which is asked to be at most 1.5.  Then the
server sums up 100,000 runs again and again, while `/health` is asked: its 99th percentile in ms,
asked to be under 50.
"""

from __future__ import annotations

import http.client
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from health_under_long_message import run_server

SIZES: Final = (100, 100_000)
PAGES: Final = {
    "newest": "/runs",
    "paused": "/runs?status=PAUSED&limit=1",
    "failed": "/runs?status=ERROR&error_type=timeout&limit=9",
    "an agent": "/runs?component=agent:echo",
}
COLUMNS: Final = (
    "owner, session_id, run_no, run_id, kind, component_id, status, input, output, reason,"
    " created_us, started_us, ended_us, events, usage, model"
)
OUTPUT: Final = '{"content":"' + "x" * 2_000 + '"}'
USAGE: Final = '{"input_tokens":10,"output_tokens":20,"total_tokens":30}'


def make_rows(size: int) -> Iterable[tuple[Any, ...]]:
    """Yield runs of a hundred users, one of a hundred of them paused, one of ten failed."""
    for number in range(size):
        status = "PAUSED" if number % 100 == 1 else "ERROR" if number % 10 == 0 else "COMPLETED"
        reason = "timeout" if status == "ERROR" else None
        at_us = 1_700_000_000_000_000 + number * 1_000_000
        yield (
            *(f"user{number % 100}", f"s{number % 1_000}", number, f"run{number:08}"),
            *("agent", "echo", status, '{"message":"hi","stream":false}', OUTPUT, reason),
            *(at_us, at_us + 1_000, at_us + number % 5_000_000, 5, USAGE, "echo"),
        )


def fill(folder: Path, size: int) -> None:
    """Store runs beside the server that made the tables."""
    with closing(sqlite3.connect(folder / "main.db", timeout=60)) as database, database:
        database.execute("delete from runs")
        places = ", ".join("?" * len(COLUMNS.split(",")))
        database.executemany(f"insert into runs ({COLUMNS}) values ({places})", make_rows(size))


def http_status(port: int, path: str) -> int:
    """Return the status of one request."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


def ask(port: int, path: str, rounds: int) -> list[float]:
    """Return how long each of so many requests took, in ms."""
    times: list[float] = []
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        for _ in range(rounds):
            begun = time.perf_counter()
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            times.append((time.perf_counter() - begun) * 1_000)
            if response.status != 200:
                raise SystemExit(f"{path}: {response.status}")
    return times


def main(rounds: int) -> None:
    """Print the ratio of each page, and the time of `/health` beside summaries."""
    with tempfile.TemporaryDirectory() as name, run_server(Path(name)) as port:
        while http_status(port, "/ready") != 200:
            time.sleep(0.1)
        medians: dict[str, list[float]] = {page: [] for page in PAGES}
        for size in SIZES:
            fill(Path(name), size)
            for page, path in PAGES.items():
                ask(port, path, 5)
                medians[page].append(statistics.median(ask(port, path, rounds)))
        for page, (few, many) in medians.items():
            print(f"{page:>12}: {few:6.2f} ms, {many:6.2f} ms, ratio {many / few:.2f}")
        measure_health(port)


def measure_health(port: int) -> None:
    """Print the times of `/health` while all runs are summed up."""
    alone = ask(port, "/health", 500)
    summaries: list[float] = []
    over = threading.Event()

    def sum_up() -> None:
        while not over.is_set():
            summaries.extend(ask(port, "/runs/summary?by=user", 1))

    thread = threading.Thread(target=sum_up)
    thread.start()
    beside: list[float] = []
    while len(summaries) < 5:
        beside += ask(port, "/health", 20)
    over.set()
    thread.join()
    for title, times in (("alone", alone), ("beside summaries", beside)):
        ranked = sorted(times)
        p99 = ranked[int(len(ranked) * 0.99)]
        print(f"/health {title}: p50 {statistics.median(ranked):.2f} ms, p99 {p99:.2f} ms")
    print(f"a summary: {statistics.median(summaries):.0f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
