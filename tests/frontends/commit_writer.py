"""A process that writes to a SQLite file, and tells when it did so.

`python commit_writer.py PATH NUMBER VERSION` stores so many units, with a checkpoint now and then.
It prints the intervals as JSON, by the monotonic clock, which all processes of a machine share: of
a transaction, from where it has begun until after its automatic checkpoint, and of each checkpoint.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from typing import Any, cast

import anyio

from legation.store.units import Dialect, Sql, Statements, Unit
from legation_host.logs import quiet
from legation_host.sqlite import SqliteDatabase

PUT = Sql("insert into accounts (name, amount) values (:name, 0)", registered=False)


class Put(Unit[None]):
    """A row."""

    def __init__(self, name: str) -> None:
        self.name = name

    def statements(self, dialect: Dialect) -> Statements[None]:
        yield PUT(name=self.name)


class Watched:
    """A connection that keeps the intervals."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._begun = 0
        self.intervals: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *more: Any) -> Any:
        before = time.monotonic_ns()
        cursor = self._connection.execute(sql, *more)
        if sql == "begin immediate":
            self._begun = time.monotonic_ns()
        elif sql in ("commit", "rollback"):
            self.intervals.append((self._begun, time.monotonic_ns()))
        elif "wal_checkpoint" in sql:
            self.intervals.append((before, time.monotonic_ns()))
        return cursor


async def main() -> None:
    path, number, version = sys.argv[1], int(sys.argv[2]), tuple(json.loads(sys.argv[3]))
    database = SqliteDatabase("main", path, quiet, version=cast("tuple[int, int, int]", version))
    database._writer.execute("pragma wal_autocheckpoint = 1")  # after every commit
    watched = Watched(database._writer)
    database._writer = cast(sqlite3.Connection, watched)
    for count in range(number):
        await database.run(Put(f"{os.getpid()} {count}"))
        if count % 10 == 9:
            await anyio.to_thread.run_sync(database._checkpoint)
    await database.aclose()
    sys.stdout.write(json.dumps(watched.intervals))


if __name__ == "__main__":
    anyio.run(main)
