"""The tables of the catalogue, on which units of work run one at a time, on either engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final, Protocol, TypeGuard, TypeVar

import psycopg
from attrs import astuple, evolve, fields, frozen

from legation.migrations.catalogue import CATALOGUE
from legation.store.leases import FOREVER, fill_clock
from legation.store.run_rows import RunRow
from legation.store.units import Dialect, Statement, Undo, Unit

from ..one_database import Database
from ..statements import statements_of

__all__ = [
    "CLOCK_TABLE",
    "PostgresTables",
    "SqliteTables",
    "StoredRun",
    "Tables",
    "spoiling",
    "with_clock",
]

R = TypeVar("R")


@frozen
class StoredRun(RunRow):
    """A run with what only the units of the store read of it."""

    token: str | None = None
    version: str | None = None


COLUMNS: Final = ", ".join(field.name for field in fields(StoredRun))
NAMES: Final = COLUMNS.split(", ")


class Tables(Protocol):
    """Rows of runs of the session `s` of `o`, as they are put there and read."""

    def run(self, unit: Unit[R]) -> R:
        """Run `unit` as a host does."""
        ...

    def load(self, rows: Iterable[StoredRun], now: int) -> None:
        """Have exactly `rows`, whose leases are relative to `now`."""
        ...

    def rows(self) -> tuple[StoredRun, ...]:
        """Return what there is."""
        ...

    def ask(self, text: str) -> list[Any]:
        """Return the rows of a statement of the test's own."""
        ...


def _is_undo(result: object) -> TypeGuard[Undo[Any]]:
    return isinstance(result, Undo)


def _schema(dialect: Dialect) -> list[str]:
    steps = (step.statement(dialect) for m in CATALOGUE.migrations for step in m.up)
    return [statement.text(dialect) for statement in steps if statement is not None]


def _played(unit: Unit[R], dialect: Dialect, execute: Callable[[str, dict[str, Any]], Any]) -> Any:
    """Return what the statements of `unit` return, `Undo` included."""
    work = statements_of(unit, dialect)
    try:
        statement = next(work)
        while True:
            statement = work.send(execute(statement.text(dialect), dict(statement.parameters)))
    except StopIteration as stop:
        return stop.value


def spoiling(clause: str, instead: str) -> tuple[Callable[[str], str], list[str]]:
    """Return what puts `instead` for `clause` in a text, and the texts in which it stood."""
    found: list[str] = []

    def spoil(text: str) -> str:
        one_line = " ".join(text.split())
        if clause in one_line:
            found.append(one_line)
        return one_line.replace(clause, instead)

    return spoil, found


CLOCK_TABLE: Final = "create temp table database_clock as select cast(0 as bigint) as now_us"
_CLOCK: Final = fill_clock("select $CLOCK")


def with_clock(dialect: Dialect, rewrite: Callable[[str], str] = str) -> Callable[[str], str]:
    """Return `rewrite` for a database whose own clock is in a table, made by `CLOCK_TABLE`."""
    clock = Statement(_CLOCK).text(dialect).removeprefix("select ")

    @cache
    def rewritten(text: str) -> str:
        return rewrite(text.replace(clock, "(select now_us from database_clock)"))

    return rewritten


def _loaded(rows: Iterable[StoredRun], now: int) -> list[tuple[Any, ...]]:
    """Return the values of `rows`; a lease that has an end is relative to `now`."""
    moved = (
        evolve(row, lease_us=row.lease_us + now, output=None)
        if row.lease_us not in (None, FOREVER)
        else evolve(row, output=None)
        for row in rows
    )
    return [astuple(row) for row in moved]


_SESSION: Final = (
    "insert into sessions (owner, session_id, kind, component_id, runs, created_us, updated_us)"
    " values ('o', 's', 'agent', 'x', {}, 0, 0)"
)


class SqliteTables(Database):
    """In memory; `rewrite` may spoil the SQL of the units."""

    def load(self, rows: Iterable[StoredRun], now: int) -> None:
        for table in ("events", "runs", "sessions"):
            self.connection.execute(f"delete from {table}")
        values = _loaded(rows, now)
        if values:
            self.connection.execute(_SESSION.format(len(values)))
        places = ", ".join("?" * len(NAMES))
        self.connection.executemany(f"insert into runs ({COLUMNS}) values ({places})", values)

    def rows(self) -> tuple[StoredRun, ...]:
        found = self.connection.execute(f"select {COLUMNS} from runs order by run_no").fetchall()
        return tuple(StoredRun(*row) for row in found)


class PostgresTables:
    """In an empty database of PostgreSQL, at `url`; `rewrite` as of `SqliteTables`."""

    def __init__(self, url: str, rewrite: Callable[[str], str] = str) -> None:
        self.rewrite = rewrite
        self.connection = psycopg.connect(url)
        for text in _schema(Dialect.POSTGRESQL):
            self.connection.execute(text.encode())
        self.connection.commit()

    def ask(self, text: str) -> list[Any]:
        """Return the rows of a statement of the test's own."""
        cursor = self.connection.execute(text.encode())
        return cursor.fetchall() if cursor.description is not None else []

    def close(self) -> None:
        """Give the database back."""
        self.connection.close()

    def run(self, unit: Unit[R]) -> R:
        result = _played(unit, Dialect.POSTGRESQL, self._execute)
        if _is_undo(result):
            self.connection.rollback()
            undone: R = result.result
            return undone
        self.connection.commit()
        outcome: R = result
        return outcome

    def _execute(self, text: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(self.rewrite(text).encode(), parameters)
        return cursor.fetchall() if cursor.description is not None else []

    def load(self, rows: Iterable[StoredRun], now: int) -> None:
        for table in ("events", "runs", "sessions"):
            self.connection.execute(f"delete from {table}".encode())
        values = _loaded(rows, now)
        if values:
            self.connection.execute(_SESSION.format(len(values)).encode())
        places = ", ".join(["%s"] * len(NAMES))
        text = f"insert into runs ({COLUMNS}) values ({places})"
        with self.connection.cursor() as cursor:
            cursor.executemany(text.encode(), values)
        self.connection.commit()

    def rows(self) -> tuple[StoredRun, ...]:
        text = f"select {COLUMNS} from runs order by run_no"
        found = self.connection.execute(text.encode()).fetchall()
        self.connection.commit()
        return tuple(StoredRun(*row) for row in found)
