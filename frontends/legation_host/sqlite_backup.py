"""A copy of a SQLite file beside whoever serves it, and a file put in the place of another one.

The copy is made by SQLite's backup API, on a connection that holds one snapshot for all of it:
otherwise each commit of another process would begin the copy anew.  Commits go on meanwhile, into a
WAL that grows by what they write.  The copy goes in steps, and rests after each as long as the step
took, so that half of the disk is left to others.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from .errors import UnusableDatabase
from .sqlite_connection import connect

__all__ = [
    "FileInUse",
    "check_database",
    "check_unused",
    "copy_database",
    "drop_file",
    "free_bytes",
    "put_in_place",
    "sync_folder",
]

STEP_PAGES: Final = 1_024
"""Pages of 4 KiB in one step."""

SYNC_STEPS: Final = 4
"""After so many steps the copy goes to the disk: written at its end it would block the others."""

REST_SECONDS: Final = 1.0
"""The longest rest after a step."""

_LOCK_START: Final = 0x4000_0000
_LOCK_LENGTH: Final = 512
"""The bytes by which SQLite locks a file (fileformat2.html, section 1.4): pending to shared."""

_MAGIC: Final = b"SQLite format 3\0"
_BESIDE: Final = ("-wal", "-journal")
"""What SQLite would apply to a file: it stays with the file that it belongs to."""


_IN_USE: Final = "{}: another process has the file open: stop the server first"


class FileInUse(UnusableDatabase):
    """Another process has the file open."""


def free_bytes(folder: Path) -> int:
    """Return how many bytes this user may still write to the file system of `folder`."""
    return shutil.disk_usage(folder).free


def copy_database(
    source: str,
    target: Path,
    advance: Callable[[], object],
    check_room: Callable[[int], object],
) -> None:
    """Copy the database at `source` to the new file `target`, and check the copy.

    Args:
        source: The path of the file; it may be served meanwhile.
        target: It is private, and on the disk when this returns; no WAL is beside it.
        advance: Called after each step.
        check_room: Told once how many bytes the copy will have.

    Raises:
        UnusableDatabase: It cannot be read or written, or the copy is damaged.
    """
    try:
        with closing(connect(source, read_only=True)) as live:
            # With the first read the snapshot begins; it lasts until the connection is closed.
            live.execute("begin")
            live.execute("select count(*) from sqlite_master").fetchone()
            (pages,) = live.execute("pragma page_count").fetchone()
            (page_size,) = live.execute("pragma page_size").fetchone()
            check_room(pages * page_size)
            _copy(live, target, advance)
        check_database(target)
    except sqlite3.Error as error:
        raise UnusableDatabase(f"{source}: cannot be copied: {error}") from error


def _copy(live: sqlite3.Connection, target: Path, advance: Callable[[], object]) -> None:
    descriptor = os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        with closing(sqlite3.connect(target, isolation_level=None)) as copy:
            # The file is nothing before it is whole: it needs no journal and no sync of SQLite's.
            copy.execute("pragma journal_mode = off").fetchall()
            copy.execute("pragma synchronous = off").fetchall()
            live.backup(copy, pages=STEP_PAGES, progress=_Pace(descriptor, advance), sleep=0)
            # The header says WAL, as that of the source does.
            copy.execute("pragma journal_mode = delete").fetchall()
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Pace:
    """Called after each step of a copy."""

    def __init__(self, descriptor: int, advance: Callable[[], object]) -> None:
        self._descriptor = descriptor
        self._advance = advance
        self._steps = 0
        self._began = time.monotonic()

    def __call__(self, status: int, remaining: int, total: int) -> None:
        self._steps += 1
        if self._steps % SYNC_STEPS == 0:
            os.fsync(self._descriptor)
        if remaining:
            time.sleep(min(time.monotonic() - self._began, REST_SECONDS))
        self._advance()
        self._began = time.monotonic()


def check_database(path: Path) -> None:
    """Read all of the database at `path`, which nobody uses.

    Raises:
        UnusableDatabase: It is damaged, or no database.
    """
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("pragma query_only = 1").fetchall()
            (found,) = connection.execute("pragma integrity_check(1)").fetchone()
    except sqlite3.Error as error:
        raise UnusableDatabase(f"{path}: damaged: {error}") from error
    if found != "ok":
        raise UnusableDatabase(f"{path}: damaged: {found}")


# --- Put in place --------------------------------------------------------------------------------


def put_in_place(new: Path, path: Path, aside: Path) -> bool:
    """Give the file `new` the name `path`, in one step; keep what was there as `aside`.

    At every moment `path` leads to the old file or to the new one, and never to the new one with a
    WAL of the old one.  Return whether there was an old one.

    Args:
        new: On the disk already, in the folder of `path`.
        path: No link.
        aside: A free name in the same folder.

    Raises:
        FileInUse: A process has the old file open.
        OSError: A file cannot be linked or renamed.
    """
    with _hold_alone(path) as found:
        if found:
            os.link(path, aside)
        for suffix in _BESIDE:
            with suppress(FileNotFoundError):
                os.link(f"{path}{suffix}", f"{aside}{suffix}")
        sync_folder(path.parent)
        for suffix in (*_BESIDE, "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        if found:
            _give(new, path.stat())
        sync_folder(path.parent)
        new.replace(path)
        sync_folder(path.parent)
    return found


def drop_file(path: Path) -> None:
    """Delete a database that nobody uses, with what is beside it."""
    for suffix in ("", *_BESIDE, "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def check_unused(path: Path) -> None:
    """Raise `FileInUse` where another process has the database at `path` open; write nothing."""
    with suppress(FileNotFoundError):
        _hold_bytes(path)()


@contextmanager
def _hold_alone(path: Path) -> Generator[bool]:
    """Keep others from the database at `path` for the length of the block; tell whether it exists.

    A file that is sound has no WAL then.  That of a damaged one is left as it is.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        yield False
        return
    if not stat.S_ISREG(status.st_mode):
        raise UnusableDatabase(f"{path}: is not a file")
    free = _hold(path)
    try:
        yield True
    finally:
        free()


def _hold(path: Path) -> Callable[[], object]:
    """Lock the file at `path`, and return what frees it.

    Raises:
        FileInUse: Another process has it open.
    """
    # SQLite deletes the WAL of a file that is empty or is no database: it may be all that is left.
    with path.open("rb") as file:
        sound = file.read(len(_MAGIC)) == _MAGIC
    if sound:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=0
        )
        try:
            # Only the one connection that there is can end the WAL mode.
            connection.execute("pragma journal_mode = delete").fetchall()
            connection.execute("begin exclusive")
        except sqlite3.DatabaseError as error:
            connection.close()
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise FileInUse(_IN_USE.format(path)) from None
        else:
            return connection.close
    return _hold_bytes(path)


def _hold_bytes(path: Path) -> Callable[[], object]:
    """Lock the bytes that SQLite locks, whatever is in the file; return what frees them.

    Raises:
        FileInUse: Another process has it open.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCK_LENGTH, _LOCK_START)
    except (BlockingIOError, PermissionError):
        os.close(descriptor)
        raise FileInUse(_IN_USE.format(path)) from None
    return partial(os.close, descriptor)


def _give(path: Path, like: os.stat_result) -> None:
    """Give `path` the mode of the file before it, and its owner where that may be done."""
    path.chmod(stat.S_IMODE(like.st_mode))
    with suppress(PermissionError):
        os.chown(path, like.st_uid, like.st_gid)


def sync_folder(folder: Path) -> None:
    """Have the names in `folder` on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
