"""The smallest hosts that can run units of work: one for each engine, without a thread or a queue.

They do what `legation_host` promises for a unit that holds the migration lock, so that tests of
units need no host, and they can be interfered with: a test is told before each thing they are
about to do, and may change a statement, cut the connection, or lose the answer to COMMIT.
"""

from __future__ import annotations

import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from secrets import token_bytes
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, cast

import psycopg
from attrs import define, field

from legation.effects import Effect, Now, Program, RandomBytes, Sleep, ThisNode, Transact
from legation.store.failures import (
    Busy,
    CommitLost,
    Conflict,
    StatementFailed,
    StoreFailure,
    Unavailable,
)
from legation.store.units import Dialect, Rows, Sql, Statement, Undo, Unit
from legation_host.sqlite_connection import set_journal_mode

from .statements import statements_of

__all__ = ["Cut", "Driver", "Interfere", "PostgresDriver", "SqliteDriver", "drive", "leave_alone"]

R = TypeVar("R")

LOCK_TIMEOUT_MS: Final = 200
_LOCK_NAMESPACE: Final = 0x4C45474E
_PRAGMAS: Final = ("synchronous=OFF", "foreign_keys=ON", "busy_timeout=0")

Interfere: TypeAlias = Callable[[str | None], str | None]
"""Told of what comes next, None for anything but a statement; returns the text to run instead."""


class Cut(BaseException):
    """The process is gone: raised by what interferes, and caught by nobody but the test."""


def leave_alone(text: str | None) -> str | None:
    """Interfere with nothing."""
    return text


@define
class Driver(ABC):
    """Runs units of work on one connection, which is opened when it is needed.

    Three things come to `interfere` beside the statements: before BEGIN, before COMMIT, and
    after COMMIT, before anybody has heard of it.
    """

    dialect: ClassVar[Dialect]

    interfere: Interfere = field(default=leave_alone, kw_only=True)

    @abstractmethod
    def begin(self, *, writes: bool = True, exclusive: bool = False) -> None:
        """Start a transaction; without `writes` it only reads, and sees one snapshot."""

    @abstractmethod
    def execute(self, text: str, statement: Statement) -> Rows:
        """Run one statement of a unit."""

    @abstractmethod
    def commit(self) -> None:
        """Keep the transaction."""

    @abstractmethod
    def rollback(self) -> None:
        """Drop the transaction, if there is one."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection without a word."""

    @abstractmethod
    def translated(self) -> Any:
        """Return a context that turns errors of the engine into failures of the store."""

    def run(self, unit: Unit[R]) -> R:
        """Run `unit` in one transaction and return its result."""
        try:
            with self.translated():
                return self._run(unit)
        except Cut:
            self.close()
            raise
        finally:
            self.rollback()

    def ask(self, text: str) -> Rows:
        """Run one statement by itself and return its rows; what it changed is kept."""
        return self.execute(text, Statement(Sql(text, registered=False)))

    def _run(self, unit: Unit[R]) -> R:
        self.interfere(None)
        self.begin(writes=unit.writes, exclusive=unit.exclusive)
        statements = statements_of(unit, self.dialect)
        rows: Rows | None = None
        while True:
            try:
                statement = next(statements) if rows is None else statements.send(rows)
            except StopIteration as stop:
                result: R | Undo[R] = stop.value
                break
            text = statement.text(self.dialect)
            rows = self.execute(self.interfere(text) or text, statement)
        if isinstance(result, Undo):
            return cast(Undo[R], result).result
        self.interfere(None)
        self.commit()
        self.interfere(None)
        return result


@define
class SqliteDriver(Driver):
    """A database in a file; another one that writes is `Busy` at once."""

    dialect: ClassVar[Dialect] = Dialect.SQLITE

    path: Path
    _connection: sqlite3.Connection | None = field(default=None, init=False)

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection; `synchronous=OFF`, for the tests pull no plug."""
        if self._connection is None:
            with ExitStack() as stack:
                opened = stack.enter_context(
                    closing(sqlite3.connect(self.path, isolation_level=None))
                )
                set_journal_mode(opened, "wal", 5_000)
                for pragma in _PRAGMAS:
                    opened.execute(f"pragma {pragma}").fetchall()
                stack.pop_all()
            self._connection = opened
        return self._connection

    def begin(self, *, writes: bool = True, exclusive: bool = False) -> None:
        self.connection.execute("begin immediate" if writes else "begin")

    def execute(self, text: str, statement: Statement) -> Rows:
        return self.connection.execute(text, dict(statement.parameters)).fetchall()

    def commit(self) -> None:
        self.connection.execute("commit")

    def rollback(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            self._connection.execute("rollback")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def translated(self) -> Generator[None]:
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise Conflict(str(error)) from error
        except sqlite3.Error as error:
            busy = error.sqlite_errorname.startswith("SQLITE_BUSY")
            raise (Busy if busy else StatementFailed)(str(error)) from error


@define
class PostgresDriver(Driver):
    """A schema, as its URL names it, with the lock that a migration takes on it."""

    dialect: ClassVar[Dialect] = Dialect.POSTGRESQL

    url: str
    _connection: psycopg.Connection | None = field(default=None, init=False)
    _committing: bool = field(default=False, init=False)

    @property
    def connection(self) -> psycopg.Connection:
        """The connection, opened anew when it was closed or broke."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.url, autocommit=True, prepare_threshold=None)
        return self._connection

    def begin(self, *, writes: bool = True, exclusive: bool = False) -> None:
        self.connection.execute(
            "begin" if writes else "begin isolation level repeatable read read only"
        )
        if exclusive:
            self.connection.execute(f"set local lock_timeout = {LOCK_TIMEOUT_MS}".encode())
            cursor = self.connection.execute(
                "select pg_try_advisory_xact_lock(%s, hashtext(current_schema()))",
                (_LOCK_NAMESPACE,),
            )
            if cursor.fetchone() != (True,):
                raise Busy("another migration")

    def execute(self, text: str, statement: Statement) -> Rows:
        cursor = self.connection.execute(text.encode(), dict(statement.parameters))
        return cursor.fetchall() if cursor.description else []

    def commit(self) -> None:
        self._committing = True
        self.connection.execute("commit")
        self._committing = False

    def rollback(self) -> None:
        self._committing = False
        if self._connection is not None and not self._connection.closed:
            self._connection.execute("rollback")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.pgconn.finish()
            self._connection.close()

    @contextmanager
    def translated(self) -> Generator[None]:
        try:
            yield
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            raise Busy(str(error)) from error
        except psycopg.errors.UniqueViolation as error:
            raise Conflict(str(error)) from error
        except psycopg.Error as error:
            raise self._failure()(str(error)) from error

    def _failure(self) -> type[StoreFailure]:
        if self._committing:
            return CommitLost
        broken = self._connection is None or self._connection.closed
        return Unavailable if broken else StatementFailed


def drive(driver: Driver, program: Program[R]) -> R:
    """Run `program` to its end on one database."""
    answer: Any = None
    with closing(program):
        while True:
            failed = isinstance(answer, StoreFailure)
            try:
                effect = program.throw(answer) if failed else program.send(answer)
            except StopIteration as stop:
                result: R = stop.value
                return result
            answer = _performed(driver, effect)


def _performed(driver: Driver, effect: Effect) -> Any:
    """Return the answer to `effect`, or the failure to throw."""
    match effect:
        case ThisNode():
            return "node"
        case Now():
            return time.time_ns() // 1000
        case RandomBytes(size):
            return token_bytes(size)
        case Sleep(seconds):
            time.sleep(seconds)
            return None
        case Transact(unit=unit):
            try:
                return driver.run(unit)
            except StoreFailure as failure:
                return failure
        case _:
            raise NotImplementedError(type(effect))
