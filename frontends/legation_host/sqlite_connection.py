"""SQLite, synchronously: a connection that keeps what it acknowledges, and units run on it.

`sqlite` puts a thread and an event loop around this; a test or a command line may use it
as it stands.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from legation.store import failures
from legation.store.failures import StoreFailure
from legation.store.units import Dialect, Numbered, Rows, Statement, Unit

from .errors import UnusableDatabase
from .logs import Write, quiet
from .units import carry_out, failure, short

__all__ = [
    "MEMORY",
    "Connect",
    "classify",
    "connect",
    "file_id",
    "in_transaction",
    "limit_statements",
    "make_execute",
    "run_unit",
    "set_journal_mode",
    "translate",
]

R = TypeVar("R")

MEMORY: Final = ":memory:"

BUSY_MS: Final = 5_000

IN_FILES: Final = 1
IN_MEMORY: Final = 2
"""The places for `temp_store`, where SQLite sorts, and keeps what a statement may undo."""

# Every pragma is read back: a build of SQLite may ignore one, or say yes and do otherwise.
# `secure_delete` overwrites what is deleted, which costs a run no byte more (`test_counts`).
# `fullfsync` matters on macOS alone, where fsync does not reach the disk; elsewhere it is idle.
# `temp_store` keeps in memory what a statement would be undone with, a third of the bytes that a
# batch of runs wrote: no crash needs it.  A long read sorts in files, as a migration does.
DURABLE: Final = (
    ("synchronous", 2),
    ("foreign_keys", 1),
    ("secure_delete", 1),
    ("temp_store", IN_MEMORY),
    ("fullfsync", 1),
    ("checkpoint_fullfsync", 1),
    ("busy_timeout", BUSY_MS),
    ("wal_autocheckpoint", 1_000),
    ("journal_size_limit", 64 << 20),
)

# A reader never checkpoints, so that one connection of the process alone ever resets the WAL, and
# waits hardly at all: it runs on the thread of the event loop.
READING: Final = (
    ("query_only", 1),
    ("busy_timeout", 50),
    ("wal_autocheckpoint", 0),
)

INCREMENTAL: Final = 2
_AGAIN_SECONDS: Final = 0.005
_STEPS: Final = 1_000_000
"""Instructions of SQLite's machine between two looks at the clock: some ten milliseconds."""


class Connect(Protocol):
    """Opens the connections of a database."""

    def __call__(self, path: str, *, read_only: bool = ...) -> sqlite3.Connection: ...


def connect(path: str, *, read_only: bool = False, busy_ms: int = BUSY_MS) -> sqlite3.Connection:
    """Open the database at `path`, or a fresh one in memory for `:memory:`.

    The file is created readable for its owner alone.  A read-only connection needs a file that a
    writing one has opened before.  Transactions are the caller's: the connection begins none.

    Raises:
        UnusableDatabase: It cannot be opened, or a pragma does not hold.
    """
    if path != MEMORY and not read_only:
        _refuse_overwritten(path)
        _create_private(path)
    try:
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, cached_statements=256
        )
    except sqlite3.Error as error:
        raise UnusableDatabase(f"{path}: cannot be opened: {error}") from error
    try:
        _configure(connection, path, read_only, busy_ms)
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_overwritten(path: str) -> None:
    """Refuse an empty file beside a WAL: SQLite would delete that, and begin anew.

    A file that is just being made has its first page before there is anything in its WAL.
    """
    log = f"{path}-wal"
    if _size(log) and _size(path) == 0:
        raise UnusableDatabase(
            f"{path}: the file is empty, and {log} is not: the database was overwritten;"
            " restore it, or delete both files to begin with an empty one"
        )


def _size(path: str) -> int | None:
    """Return the size of a file in bytes, None where there is none."""
    try:
        return os.stat(path).st_size  # noqa: PTH116  as above, paths are text here
    except OSError:
        return None


def _create_private(path: str) -> None:
    """Create the file at `path` with mode 0600, as its WAL then has too, unless it exists."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise UnusableDatabase(f"{path}: cannot be opened: {error.strerror}") from error


def _configure(connection: sqlite3.Connection, path: str, read_only: bool, busy_ms: int) -> None:
    try:
        _hold(connection, path, "busy_timeout", busy_ms)
        if read_only:
            for name, value in READING:
                _hold(connection, path, name, value)
            return
        _lay_out(connection, path, busy_ms)
        for name, value in DURABLE:
            _hold(connection, path, name, busy_ms if name == "busy_timeout" else value)
    except sqlite3.Error as error:
        raise UnusableDatabase(f"{path}: not usable as a database: {error}") from error


def _lay_out(connection: sqlite3.Connection, path: str, busy_ms: int) -> None:
    """Choose what is part of the file: auto_vacuum while it is empty, then the journal."""
    (pages,) = connection.execute("pragma page_count").fetchone()
    if pages == 0:
        _hold(connection, path, "auto_vacuum", INCREMENTAL)
    wanted = "memory" if path == MEMORY else "wal"
    mode = set_journal_mode(connection, wanted, busy_ms)
    if mode != wanted:
        raise UnusableDatabase(f"{path}: journal_mode is {mode}, not {wanted}")


def set_journal_mode(connection: sqlite3.Connection, wanted: str, busy_ms: int) -> str:
    """Ask for a journal mode, for `busy_ms` while the database is locked; return what it is then.

    Where several connections turn a new file to a WAL at the same moment, SQLite may refuse one
    at once, whatever its `busy_timeout`: each would hold what the other waits for.
    """
    due = time.monotonic() + busy_ms / 1_000
    while True:
        try:
            (mode,) = connection.execute(f"pragma journal_mode = {wanted}").fetchone()
        except sqlite3.OperationalError as error:
            if _primary(error) != sqlite3.SQLITE_BUSY or time.monotonic() > due:
                raise
            time.sleep(_AGAIN_SECONDS)
        else:
            return str(mode)


def _hold(connection: sqlite3.Connection, path: str, name: str, value: int) -> None:
    """Set a pragma and read it back."""
    connection.execute(f"pragma {name} = {value}").fetchall()
    row = connection.execute(f"pragma {name}").fetchone()
    if row is None or row[0] != value:
        raise UnusableDatabase(f"{path}: pragma {name} does not hold: {row}, not {value}")


def file_id(path: str) -> tuple[int, int] | None:
    """Return what tells the file at `path` from every other while it is open; None without one."""
    try:
        found = os.stat(path)  # noqa: PTH116  a call for each commit
    except OSError:
        return None
    return found.st_dev, found.st_ino


def limit_statements(connection: sqlite3.Connection, is_over: Callable[[], bool]) -> None:
    """Interrupt a statement of `connection` soon after `is_over`.

    What waits for the disk is not interrupted; a wait for a lock has `busy_timeout`.
    """
    connection.set_progress_handler(is_over, _STEPS)


def run_unit(
    connection: sqlite3.Connection,
    unit: Unit[R],
    *,
    database: str = "sqlite",
    write: Write = quiet,
) -> R:
    """Run `unit` in a transaction of its own and return its result.

    An exclusive unit does not wait for the lock, and sorts in files: a migration may make an
    index of any size.

    Raises:
        StoreFailure: Nothing was kept, but for `CommitLost`.
    """
    if not unit.exclusive:
        return _run(connection, unit, database, write)
    (patience,) = connection.execute("pragma busy_timeout").fetchone()
    connection.execute("pragma busy_timeout = 0")
    connection.execute(f"pragma temp_store = {IN_FILES}")
    try:
        return _run(connection, unit, database, write)
    finally:
        connection.execute(f"pragma temp_store = {IN_MEMORY}")
        connection.execute(f"pragma busy_timeout = {patience}")


def _run(connection: sqlite3.Connection, unit: Unit[R], database: str, write: Write) -> R:
    at_commit = False
    try:
        execute = make_execute(connection)
        read = short(unit, Dialect.SQLITE, execute)
        if read is not None:
            return read[0]
        # A deferred transaction that reads and then writes fails without waiting.
        connection.execute("begin immediate" if unit.writes or unit.exclusive else "begin")
        result, kept = carry_out(unit.statements(Dialect.SQLITE), execute)
        if kept:
            at_commit = True
            connection.execute("commit")
        else:
            connection.execute("rollback")
        return result
    except sqlite3.Error as error:
        raise translate(error, database, write, at_commit=at_commit) from error
    finally:
        if connection.in_transaction:
            connection.execute("rollback")


def in_transaction(connection: sqlite3.Connection, unit: Unit[R]) -> tuple[R, bool]:
    """Run the statements of `unit` in the transaction that is open.

    Returns the result, and whether what was done is to stay.
    """
    return carry_out(unit.statements(Dialect.SQLITE), make_execute(connection))


def make_execute(connection: sqlite3.Connection) -> Callable[[Statement], Rows]:
    """Return what runs one statement after the other on `connection`, and returns its rows."""
    run, join, is_text = connection.cursor().execute, "".join, str.__instancecheck__

    # Called for each statement of each request, so that it calls nothing of ours.
    def execute(statement: Statement) -> Rows:
        sql, parameters = statement.sql, statement.parameters
        row: Sequence[Any]
        if type(parameters) is Numbered:
            row = parameters.row
        else:
            row = list(map(parameters.__getitem__, sql.names))
        # PostgreSQL refuses U+0000 in text; SQLite stores it and then loses what follows.
        if "\0" in join(filter(is_text, row)):
            raise sqlite3.DataError("text holds U+0000")
        # An error of these kinds is the engine's here; the same from a unit would be its bug.
        try:
            return run(sql.numbered, row).fetchall()
        except (OverflowError, UnicodeError) as error:
            raise sqlite3.DataError("a value that SQLite does not store") from error

    return execute


def translate(
    error: Exception, database: str, write: Write, *, at_commit: bool = False
) -> StoreFailure:
    """Return the failure that stands for `error`, whose text goes to the log alone."""
    kind = classify(error)
    # The commit record may have reached the disk although the sync after it failed: a crash now
    # would bring the transaction back.
    if at_commit and _primary(error) == sqlite3.SQLITE_IOERR:
        kind = failures.CommitLost
    return failure(kind, error, database, write)


_UNREADABLE: Final = {
    sqlite3.SQLITE_IOERR_READ,
    sqlite3.SQLITE_IOERR_SHORT_READ,
    sqlite3.SQLITE_IOERR_CORRUPTFS,
}

_UNIQUE: Final = {
    sqlite3.SQLITE_CONSTRAINT_UNIQUE,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
    sqlite3.SQLITE_CONSTRAINT_ROWID,
}

_BY_PRIMARY: Final[Mapping[int, type[StoreFailure]]] = {
    sqlite3.SQLITE_BUSY: failures.Busy,
    sqlite3.SQLITE_LOCKED: failures.Busy,
    sqlite3.SQLITE_FULL: failures.DatabaseFull,
    sqlite3.SQLITE_IOERR: failures.DatabaseFull,
    sqlite3.SQLITE_CANTOPEN: failures.Unavailable,
    sqlite3.SQLITE_CORRUPT: failures.Unavailable,
    sqlite3.SQLITE_NOTADB: failures.Unavailable,
    sqlite3.SQLITE_NOMEM: failures.Unavailable,
    sqlite3.SQLITE_INTERRUPT: failures.Unavailable,
    sqlite3.SQLITE_SCHEMA: failures.WrongSchema,
}

# SQLite gives these no code of their own: both are SQLITE_ERROR at prepare.
_WRONG_SCHEMA: Final = ("no such table", "no such column", "has no column named")


def classify(error: Exception) -> type[StoreFailure]:
    """Return the kind of failure that `error` is, by SQLite's result code (rescode.html)."""
    code = getattr(error, "sqlite_errorcode", None)
    if code in _UNIQUE:
        return failures.Conflict
    if code in _UNREADABLE:
        return failures.Unavailable
    if _primary(error) == sqlite3.SQLITE_ERROR and any(t in str(error) for t in _WRONG_SCHEMA):
        return failures.WrongSchema
    return _BY_PRIMARY.get(_primary(error), failures.StatementFailed)


def _primary(error: Exception) -> int:
    """Return the primary result code, the low byte; 0 where Python raised by itself."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return 0 if code is None else code & 0xFF
