"""The databases of a simulation: real SQLite files, or real SQLite in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, TypeAlias, TypeVar

from legation.store.failures import StoreFailure
from legation.store.units import Unit
from legation_host.sqlite_connection import MEMORY, connect, run_unit

from .clock import Clock

__all__ = ["MEMORY", "Databases", "Write"]

R = TypeVar("R")

Write: TypeAlias = Callable[[str, str, Mapping[str, Any]], None]


class Databases:
    """Connections by name.

    A unit is one step of a simulation, so that a killed process never leaves one half done: a
    database in memory outlives it like a file.
    """

    def __init__(self, paths: Mapping[str, str], write: Write, clock: Clock) -> None:
        """Name them; `write` takes what the driver said when a unit failed."""
        self._paths = dict(paths)
        self._clock = clock
        self._write = write
        self._connections: dict[str, sqlite3.Connection] = {}
        self._incidents = count(1)

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order given."""
        return tuple(self._paths)

    def connection(self, name: str) -> sqlite3.Connection:
        """Return the connection to the database `name`, opened if need be."""
        if name not in self._connections:
            connection = self._connections[name] = connect(self._paths[name])
            # What the statements ask for the database's own clock.
            connection.create_function("julianday", 1, self._julian_day)
        return self._connections[name]

    def _julian_day(self, _: str) -> float:
        return 2440587.5 + self._clock.now_us / 86_400_000_000

    def run(self, name: str, unit: Unit[R]) -> R:
        """Run `unit` in a transaction of its own; one that only reads cannot write.

        Raises:
            StoreFailure: With a numbered incident, where the host draws one: runs repeat.
        """
        said: list[tuple[str, str, Mapping[str, Any]]] = []

        def hear(level: str, event: str, fields: Mapping[str, Any]) -> None:
            said.append((level, event, fields))

        connection = self.connection(name)
        connection.execute(f"pragma query_only = {int(not unit.writes)}")
        try:
            return run_unit(connection, unit, database=name, write=hear)
        except StoreFailure as failure:
            incident = f"{next(self._incidents):08x}"
            for level, event, fields in said:
                self._write(level, event, {**fields, "incident": incident})
            raise type(failure)(f"incident {incident}") from failure.__cause__

    def close_files(self) -> None:
        """Close what is on disk, as the end of a process does."""
        for name, path in self._paths.items():
            if path != MEMORY and name in self._connections:
                self._connections.pop(name).close()

    def close(self) -> None:
        """Close all; what was in memory is gone."""
        while self._connections:
            self._connections.popitem()[1].close()
