"""Long reads of a SQLite file: a thread with a connection of its own, beside the event loop.

A thread that renders rows keeps the event loop from the interpreter for some milliseconds at a
time, two of them for twice as long, and they would read no faster: so there is one, however many
programs read.  Owners take turns, one unit each: who reads much waits behind itself.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

import anyio
from attrs import field

from legation.store.failures import Unavailable
from legation.store.units import Unit
from legation.values import define

from .errors import HostError
from .logs import Write
from .sqlite_connection import limit_statements, run_unit
from .units import failure
from .wakeup import Wake, waker

__all__ = ["LongReads"]

R = TypeVar("R")

READ_SECONDS: Final = 20.0
"""For the statements of one unit."""

WAIT_SECONDS: Final = 40.0
"""For the way of a unit, from the queue to its result."""


class _Line:
    """The units that wait, each owner's in their order."""

    def __init__(self) -> None:
        self._waiting: dict[object, deque[_Read[Any]]] = {}
        self._changed = threading.Condition()
        self._closed = False

    def put(self, read: _Read[Any]) -> None:
        """Let `read` wait; the owners who wait already have their turn before a new one."""
        owner = getattr(read.unit, "owner", None)
        with self._changed:
            self._waiting.setdefault(owner, deque()).append(read)
            self._changed.notify()

    def take(self) -> _Read[Any] | None:
        """Return the next, as soon as there is one; None at the end."""
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return None
                self._changed.wait()
            owner = next(iter(self._waiting))
            line = self._waiting.pop(owner)
            read = line.popleft()
            if line:
                self._waiting[owner] = line  # behind all others
            return read

    def close(self) -> None:
        """Let who takes come to the end."""
        with self._changed:
            self._closed = True
            self._changed.notify()


@define(eq=False)
class _Read(Generic[R]):
    """A unit on its way through the reader, with its outcome.

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
    """The reader of one database; it is there from the first read on.

    A caller that is cancelled gets away at once, and what was read for it is interrupted soon.
    """

    def __init__(
        self, database: str, connect: Callable[[], sqlite3.Connection], write: Write
    ) -> None:
        """Keep how to open a connection that only reads the file; open none."""
        self._database = database
        self._connect = connect
        self._log = write
        self._line = _Line()
        self._waiting: dict[_Read[Any], None] = {}
        self._thread: threading.Thread | None = None
        self._wake: Wake = lambda _: None

    async def run(self, unit: Unit[R]) -> R:
        """Return the result of `unit`.

        Raises:
            StoreFailure: It failed, or did not come to its turn in time.
        """
        if self._thread is None:
            self._wake = waker()
            name = f"sqlite {self._database} reader"
            self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._thread.start()
        read = _Read(unit)
        self._waiting[read] = None
        self._line.put(read)
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
        """Tell those who have waited for too long; the reader may hang in the disk."""
        for read in tuple(self._waiting):  # the oldest first
            if now - read.queued <= WAIT_SECONDS:
                return
            read.error = Unavailable("overdue")
            read.abandoned = True
            read.done.set()

    def close(self) -> None:
        """End the thread, from another one than the event loop's; nobody waits any more."""
        self._line.close()
        if self._thread is not None:
            self._thread.join()

    # From here on: the reader's thread.

    def _serve(self) -> None:
        connection: sqlite3.Connection | None = None
        while (read := self._line.take()) is not None:
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
