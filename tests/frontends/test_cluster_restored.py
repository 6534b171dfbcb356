"""A database restored from a backup under running nodes: no run in two places, and a clear line.

The core decides that by what SQL answers, so these are run on the newest Python alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import psycopg
import pytest
from attrs import define, field

from .cluster_kit import Talk, ask_json, await_true, begin_run, node, status_of
from .drain_kit import RUNS

pytestmark = pytest.mark.newest

LEASE: Final = 6.0
TABLES: Final = "select tablename from pg_tables where schemaname = current_schema()"


class Backup(Protocol):
    """All that is in a database at one time."""

    url: str

    def take(self) -> None:
        """Copy the database."""

    def restore(self) -> None:
        """Have the database as it was, while nodes use it."""


@define
class SqliteBackup:
    """By SQLite's own backup, which writes to the file that is in use."""

    url: str
    path: Path
    copy: sqlite3.Connection = field(init=False)

    def take(self) -> None:
        self.copy = sqlite3.connect(":memory:")
        with closing(sqlite3.connect(self.path)) as live:
            live.backup(self.copy)

    def restore(self) -> None:
        with closing(sqlite3.connect(self.path, timeout=20)) as live:
            self.copy.backup(live)
        self.copy.close()


@define
class PostgresBackup:
    """Of every table, put back in one transaction, as a restore of the data alone does."""

    url: str
    rows: dict[str, list[tuple[Any, ...]]] = field(factory=dict[str, "list[tuple[Any, ...]]"])

    def take(self) -> None:
        with psycopg.connect(self.url) as live:
            live.execute("set transaction isolation level repeatable read")
            for (table,) in live.execute(TABLES).fetchall():
                self.rows[table] = live.execute(f"select * from {table}".encode()).fetchall()

    def restore(self) -> None:
        with psycopg.connect(self.url) as live:
            live.execute(f"lock table {', '.join(self.rows)}".encode())
            for table, rows in self.rows.items():
                live.execute(f"delete from {table}".encode())
                if rows:
                    places = ", ".join(["%s"] * len(rows[0]))
                    with live.cursor() as cursor:
                        cursor.executemany(f"insert into {table} values ({places})".encode(), rows)


@pytest.fixture(params=["sqlite", "postgresql"])
def backup(request: pytest.FixtureRequest, tmp_path: Path) -> Backup:
    if request.param == "sqlite":
        path = tmp_path / "main.db"
        return SqliteBackup(f"sqlite:///{path}", path)
    return PostgresBackup(request.getfixturevalue("postgres"))


def events_of(port: int, run_id: str) -> list[str]:
    """Return the names of the events of a run that has ended, of which none is there twice."""
    talk = Talk(port, 1, 1.0, streamed=True, session="")
    talk.outcome.run_id = run_id
    talk.follow()
    assert talk.numbers == sorted({*talk.numbers})
    return talk.outcome.names


def test_no_run_is_in_two_places(backup: Backup, figures: Callable[[str], None]) -> None:
    """One run was under way at the backup and has ended; one has begun since."""
    with node(backup.url, lease=LEASE) as one, node(backup.url, lease=LEASE) as two:
        ports = [one.port(), two.port()]
        before = [begin_run(port, "6 words in 3.0 s", f"s{port}") for port in ports]
        still = [begin_run(port, "30 words in 15.0 s", f"t{port}") for port in ports]
        await_true(lambda: {status_of(ports[0], run) for run in before + still} == {"RUNNING"})
        backup.take()
        await_true(lambda: {status_of(ports[0], run) for run in before} == {"COMPLETED"})
        since = [begin_run(port, "12 words in 6.0 s", f"u{port}") for port in ports]
        await_true(lambda: {status_of(ports[0], run) for run in since} == {"RUNNING"})

        backup.restore()

        for each in (one, two):
            await_true(partial(each.named, "database_restored"))
        await_true(lambda: {status_of(ports[0], run) for run in before} == {"COMPLETED"})
        await_true(lambda: {status_of(ports[1], run) for run in still} == {"COMPLETED"})
        after = [begin_run(port, "hello", f"v{port}") for port in ports]
        await_true(lambda: {status_of(ports[0], run) for run in after} == {"COMPLETED"})
        events = {run: events_of(ports[0], run) for run in before + still + after}
        gone = [ask_json(port, "GET", f"{RUNS}/{run}")[0] for port in ports for run in since]
        said = [len(each.named("database_restored")) for each in (one, two)]

    kind = backup.url.partition(":")[0]
    ended = sorted(names[-1] for names in events.values())
    figures(f"restored under two nodes, {kind}: {said} lines, the runs ended {ended}")
    assert gone == [404] * 4
    assert said == [1, 1]
    assert max(names.count("RunStarted") for names in events.values()) == 1
