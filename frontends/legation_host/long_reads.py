"""Long reads of a SQLite file: few threads, each with a connection of its own.

They keep the event loop free, and leave it a part of the interpreter: so there are two of them,
however many programs read.  Who waits is served in order, one unit at a time, so that a list that
is read page by page takes turns with the others.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

import anyio
from attrs import define, field

from legation.store.failures import Unavailable
from legation.store.units import Unit

from .errors import HostError
from .logs import Write
from .sqlite_connection import limit_statements, run_unit
from .units import failure
from .wakeup import Wake, waker

__all__ = ["LongReads"]

R = TypeVar("R")

READERS: Final = 2
"""Threads: two calls of C at most keep the event loop from the interpreter."""

READ_SECONDS: Final = 20.0
"""For the statements of one unit."""

WAIT_SECONDS: Final = 40.0
"""For the way of a unit, from the queue to its result."""


@define(eq=False)
class _Read(Generic[R]):
    """A unit on its way through a reader, with its outcome.

    Attributes:
        due: When its statements have to be over, by `time.monotonic`; None before it is begun.
        abandoned: Nobody waits for it any more.
    """

    unit: Unit[R]
    queued: float = field(factory=time.monotonic)
    due: float | None = None
    abandoned: bool = False
    done: anyio.Event = field(factory=anyio.Event)
    result: R | None = None
    error: BaseException | None = None

    def is_over(self) -> bool:
        """Tell whether its statements are to be interrupted."""
        return self.abandoned or (self.due is not None and time.monotonic() > self.due)


class LongReads:
    """The readers of one database; they are there from the first read on.

    A caller that is cancelled gets away at once, and what was read for it is interrupted soon.
    """

    def __init__(
        self, database: str, connect: Callable[[], sqlite3.Connection], write: Write
    ) -> None:
        """Keep how to open a connection that only reads the file; open none."""
        self._database = database
        self._connect = connect
        self._log = write
        self._queue: SimpleQueue[_Read[Any] | None] = SimpleQueue()
        self._waiting: dict[_Read[Any], None] = {}
        self._threads: list[threading.Thread] = []
        self._wake: Wake = lambda _: None

    async def run(self, unit: Unit[R]) -> R:
        """Return the result of `unit`.

        Raises:
            StoreFailure: It failed, or did not come to its turn in time.
        """
        if not self._threads:
            self._start()
        read = _Read(unit)
        self._waiting[read] = None
        self._queue.put(read)
        try:
            await read.done.wait()
        finally:
            read.abandoned = True
            del self._waiting[read]
        if read.error is not None:
            raise read.error
        result: Any = read.result
        return result  # type: ignore[no-any-return]  # the unit's

    def expire(self, now: float) -> None:
        """Tell those who have waited for too long; the readers may hang in the disk."""
        for read in tuple(self._waiting):  # the oldest first
            if now - read.queued <= WAIT_SECONDS:
                return
            read.error = Unavailable("overdue")
            read.abandoned = True
            read.done.set()

    def close(self) -> None:
        """End the threads, on another thread than the event loop's; nobody waits any more."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        self._wake = waker()
        for number in range(READERS):
            name = f"sqlite {self._database} reader {number}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    # From here on: the readers' threads.

    def _serve(self) -> None:
        connection: sqlite3.Connection | None = None
        while (read := self._queue.get()) is not None:
            if not read.abandoned:
                connection = self._perform(read, connection)
            with suppress(RuntimeError):  # the event loop is gone, and with it who waited
                self._wake(read.done.set)
            del read  # what it read is large, and may wait here for long
        if connection is not None:
            connection.close()

    def _perform(
        self, read: _Read[Any], connection: sqlite3.Connection | None
    ) -> sqlite3.Connection | None:
        """Run one unit; return the connection for the next."""

        def write(level: str, event: str, fields: Mapping[str, Any]) -> None:
            if not read.abandoned:  # else it was interrupted, and that is no failure
                self._log(level, event, fields)

        try:
            connection = connection or self._open()
            read.due = time.monotonic() + READ_SECONDS
            limit_statements(connection, read.is_over)
            try:
                read.result = run_unit(connection, read.unit, database=self._database, write=write)
            finally:
                limit_statements(connection, bool)  # which holds nothing of what was read
        except BaseException as error:  # noqa: BLE001 (its caller's to handle)
            read.error = read.error or error
        return connection

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except HostError as error:
            raise failure(Unavailable, error, self._database, self._log) from error
