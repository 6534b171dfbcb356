"""The cost of a page of sessions far back, against that of the first one.

    python benchmarks/pages.py [postgresql://…]

200,000 sessions of one owner; the first page and page 900, of 50 each, sorted either way that
clients may ask for; units of work in turns on one SQLite file, and on the PostgreSQL database given
(a schema of its own is made there, and dropped).  The answer is the ratio of the medians.
"""

from __future__ import annotations

import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import psycopg
from attrs import evolve, frozen

from legation.migrations.catalogue import CATALOGUE
from legation.migrations.migrate import Attempt
from legation.store.session_pages import ListSessions
from legation.store.units import Dialect, Sql, Statements, Unit
from legation_host.postgres import PostgresDatabase
from legation_host.sqlite_connection import connect, run_unit

SESSIONS: Final = 200_000
PAGE: Final = 50
FAR: Final = 900
ROUNDS: Final = 15
AIM: Final = 1.5  # times

Run = Callable[[Unit[Any]], Any]

MIGRATE: Final = Attempt(CATALOGUE, None, False, False, "benchmark", "n", "r", "a", 0)
FIRST: Final = ListSessions("ada", "agent", bool, size=PAGE)

# The order in which sessions were used is not the one in which they were made.
FILL: Final = Sql(
    """insert into sessions (owner, session_id, kind, component_id, name, created_us, updated_us)
    with recursive n(i) as (select 1 union all select i + 1 from n where i < :sessions)
    select 'ada', 'session ' || i, 'agent', 'concierge', 'a name', i, (i * 7919) % :sessions
    from n""",
    registered=False,
)


@frozen
class Fill(Unit[None]):
    """Every session of one owner."""

    def statements(self, dialect: Dialect) -> Statements[None]:
        yield FILL(sessions=SESSIONS)


@contextmanager
def on_sqlite() -> Generator[Run]:
    """Yield what runs a unit on a file."""
    with tempfile.TemporaryDirectory() as folder:
        connection = connect(str(Path(folder, "main.db")))
        try:
            yield partial(run_unit, connection)
        finally:
            connection.close()


@contextmanager
def on_postgresql(url: str) -> Generator[Run]:
    """Yield what runs a unit in a schema of its own."""
    schema = f"pages_{secrets.token_hex(4)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}".encode())
        sign = "&" if "?" in url else "?"
        database = PostgresDatabase("main", f"{url}{sign}options=-csearch_path%3D{schema}")
        try:
            yield database.run_unit
        finally:
            anyio.run(database.aclose)
            connection.execute(f"drop schema {schema} cascade".encode())


def measure(name: str, run: Run) -> list[float]:
    """Print a line for each order; return the ratios."""
    run(MIGRATE)
    run(Fill())
    ratios: list[float] = []
    for column in ("created_us", "updated_us"):
        for order in ("desc", "asc"):
            first = evolve(FIRST, sort_by=column, order=order)
            pages = {first: list[float](), evolve(first, start=(FAR - 1) * PAGE): list[float]()}
            for _ in range(ROUNDS):
                for unit, taken in pages.items():
                    started = time.perf_counter()
                    assert len(run(unit).items) == PAGE
                    taken.append(time.perf_counter() - started)
            near, far = (statistics.median(taken) for taken in pages.values())
            ratios.append(far / near)
            print(
                f"{name}, by {column} {order}: first page {near * 1e3:.2f} ms,"
                f" page {FAR} {far * 1e3:.2f} ms: {far / near:.2f} times"
            )
    return ratios


def main() -> None:
    """Measure each engine."""
    with on_sqlite() as run:
        ratios = measure("sqlite", run)
    for url in sys.argv[1:2]:
        with on_postgresql(url) as run:
            ratios += measure("postgresql", run)
    print(f"    aim: at most {AIM} times: {'reached' if max(ratios) <= AIM else 'MISSED'}")


if __name__ == "__main__":
    main()
