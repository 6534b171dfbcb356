"""The databases of a simulation: real SQLite files, or real SQLite in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any, Final, TypeAlias, TypeVar

from legation.store.failures import StoreFailure
from legation.store.units import Unit
from legation_host.sqlite_connection import MEMORY, connect, run_unit

from .clock import Clock
from .misuse import Misuse

__all__ = ["MEMORY", "Databases", "Write"]

R = TypeVar("R")

Write: TypeAlias = Callable[[str, str, Mapping[str, Any]], None]

_Content: TypeAlias = dict[str, list[tuple[Any, ...]]]
"""The rows of each table."""


_PROVEN: Final = "legation.store."
"""The modules whose units are known by what the core's tests find of them."""


class Databases:
    """Connections by name.

    A unit is one step of a simulation, so that a killed process never leaves one half done: a
    database in memory outlives it like a file.

    Attributes:
        clock: The clock of the simulation.
        skew_us: How far the own clock of each database is ahead of that, in microseconds.
    """

    def __init__(self, paths: Mapping[str, str], write: Write, clock: Clock) -> None:
        """Name them; `write` takes what the driver said when a unit failed."""
        self.clock = clock
        self.skew_us = dict.fromkeys(paths, 0)
        self._paths = dict(paths)
        self._write = write
        self._connections: dict[str, sqlite3.Connection] = {}
        self._writable: dict[str, bool] = {}
        self._readers: set[type[Unit[Any]]] = set()
        self._incidents = count(1)
        self._kept: dict[str, _Content] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order given."""
        return tuple(self._paths)

    def connection(self, name: str) -> sqlite3.Connection:
        """Return the connection to the database `name`, opened if need be."""
        if name not in self._connections:
            connection = self._connections[name] = connect(self._paths[name])
            # What the statements ask for the database's own clock.
            connection.create_function("julianday", 1, partial(self._julian_day, name))
            self._writable[name] = True
        return self._connections[name]

    def _julian_day(self, name: str, _: str) -> float:
        return 2440587.5 + (self.clock.now_us + self.skew_us[name]) / 86_400_000_000

    def keep(self) -> None:
        """Keep what the databases hold now, for `rewind`."""
        for name in self._paths:
            connection = self.connection(name)
            tables = connection.execute("select name from sqlite_master where type = 'table'")
            self._kept[name] = {
                table: connection.execute(f"select * from {table}").fetchall()
                for (table,) in tables.fetchall()
            }

    def rewind(self) -> None:
        """Bring all back to what `keep` found, at the beginning of time.

        The schema and the statements that were prepared stay: that is what takes long.
        """
        self.clock = Clock()
        self.skew_us = dict.fromkeys(self._paths, 0)
        self._incidents = count(1)
        for name, content in self._kept.items():
            connection = self.connection(name)
            self._allow(name, writes=True)
            connection.execute("begin")
            for table, rows in content.items():
                connection.execute(f"delete from {table}")
                if rows:
                    places = ", ".join("?" * len(rows[0]))
                    connection.executemany(f"insert into {table} values ({places})", rows)
            connection.execute("commit")

    def _allow(self, name: str, *, writes: bool) -> None:
        """Let statements write, or not; SQLite prepares all of them anew after a change."""
        if self._writable[name] != writes:
            self._writable[name] = writes
            self._connections[name].execute(f"pragma query_only = {int(not writes)}")

    def run(self, name: str, unit: Unit[R]) -> R:
        """Run `unit` in a transaction of its own; one that only reads cannot write.

        The engine holds that; of the core's own units a count does, from the second time on.

        Raises:
            StoreFailure: With a numbered incident, where the host draws one: runs repeat.
        """
        said: list[tuple[str, str, Mapping[str, Any]]] = []

        def hear(level: str, event: str, fields: Mapping[str, Any]) -> None:
            said.append((level, event, fields))

        connection = self.connection(name)
        before, kind = connection.total_changes, type(unit)
        self._allow(name, writes=unit.writes or kind in self._readers)
        try:
            result = run_unit(connection, unit, database=name, write=hear)
        except StoreFailure as failure:
            incident = f"{next(self._incidents):08x}"
            for level, event, fields in said:
                self._write(level, event, {**fields, "incident": incident})
            raise type(failure)(f"incident {incident}") from failure.__cause__
        if not unit.writes:
            if connection.total_changes != before:
                raise Misuse(f"{kind.__name__} says that it only reads, and wrote")
            if kind.__module__.startswith(_PROVEN):
                self._readers.add(kind)
        return result

    def close_files(self) -> None:
        """Close what is on disk, as the end of a process does."""
        for name, path in self._paths.items():
            if path != MEMORY and name in self._connections:
                self._connections.pop(name).close()

    def close(self) -> None:
        """Close all; what was in memory is gone."""
        while self._connections:
            self._connections.popitem()[1].close()
