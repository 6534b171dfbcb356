"""The lock that keeps two processes of ours apart in the WAL of a SQLite file.

From 3.7.0 to 3.51.2 SQLite has the WAL-reset bug (sqlite.org/wal.html, section 11): a checkpoint
that is not the first after all was brought home reads the header of the WAL; before it goes on, a
transaction of another connection begins the WAL anew and writes into it; the checkpoint then takes
frames for copied that are not, and a later one leaves them out.  What was committed is lost, and
the file is corrupt.  It takes a checkpoint without the lock of writers, as each automatic one after
a commit is, beside a transaction that writes.

So each process holds this lock from the beginning of a transaction that writes until after the
automatic checkpoint at its end, and for each checkpoint of its own.  The checkpoint at the close of
the last connection needs none: SQLite makes it alone with the file, by an exclusive lock on it.
A process of others that writes to the file knows nothing of this lock.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from legation.store.failures import Busy
from legation.values import define

from .file_locks import FileLock, LockFolder
from .logs import Write, quiet

__all__ = ["CommitLock", "has_wal_reset_bug", "open_commit_lock"]

WAIT_SECONDS: Final = 5.0
"""As long as SQLite waits for a lock of its own."""

_PAUSES: Final = (0.000_1, 0.000_2, 0.000_5, 0.001, 0.002)
"""Seconds between two tries; the last again and again."""


def has_wal_reset_bug(version: tuple[int, int, int]) -> bool:
    """Tell whether this SQLite has the WAL-reset bug (sqlite.org/wal.html, section 11).

    It was fixed in 3.51.3, and on two older branches in 3.44.6 and 3.50.7.
    """
    fixed = {(3, 44): (3, 44, 6), (3, 50): (3, 50, 7)}.get(version[:2], (3, 51, 3))
    return (3, 7, 0) <= version < fixed


def open_commit_lock(
    path: str,
    database: str,
    write: Write = quiet,
    version: tuple[int, int, int] = sqlite3.sqlite_version_info,
) -> CommitLock | None:
    """Open the lock of the file at `path`; None where this `version` of SQLite needs none.

    None also where there can be none, which is logged: no second process may write to the file.
    """
    if not has_wal_reset_bug(version):
        return None
    real = os.path.realpath(path)
    folder = LockFolder(f"{real}-locks", like=real)
    try:
        return CommitLock(_open(folder, os.path.join(folder.path, "commit")))  # noqa: PTH118  text
    except OSError as error:
        fields = {
            "database": database,
            "sqlite": sqlite3.sqlite_version,
            "error": f"{type(error).__name__}: {error}",
            "advice": "let no second process write to the file, or use SQLite 3.51.3",
        }
        write("warning", "sqlite_wal_reset_bug", fields)
        return None


def _open(folder: LockFolder, path: str) -> FileLock:
    folder.prepare()
    try:
        lock = FileLock.open(path)
    except FileNotFoundError:
        try:
            lock = folder.make(path)
        except FileExistsError:
            lock = FileLock.open(path)
    try:
        if lock.try_hold():
            lock.check(path)
            lock.free()
    except OSError:
        lock.close()
        raise
    return lock


@define(eq=False)
class CommitLock:
    """The lock of one SQLite file; `fd` is locked by `flock`."""

    _lock: FileLock

    @property
    def fd(self) -> int:
        """The descriptor, for who locks it without a call."""
        return self._lock.fd

    def take(self, seconds: float = WAIT_SECONDS) -> bool:
        """Take the lock, wait for it for so long, and tell whether it is ours."""
        due = time.monotonic() + seconds
        tries = 0
        while not self._lock.try_hold():
            if time.monotonic() >= due:
                return False
            time.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
            tries += 1
        return True

    def free(self) -> None:
        """Give it to another."""
        self._lock.free()

    @contextmanager
    def held(self, seconds: float = WAIT_SECONDS) -> Generator[None]:
        """Hold the lock for the length of the block.

        Raises:
            Busy: Others have held it all the time.
        """
        if not self.take(seconds):
            raise Busy("the lock of commits")
        try:
            yield
        finally:
            self.free()

    def close(self) -> None:
        """Close it; free if it is held."""
        self._lock.close()
