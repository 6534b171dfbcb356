"""SQLite behind an event loop: reads on its thread, writes in groups on a thread of their own.

A read that may be long is performed on one of few threads beside it (`long_reads`).

A durable commit costs one fsync however much it holds.  So the writer takes everything that
queued while the last commit was under way, runs one unit after the other, those too that are
queued meanwhile, and commits once; each unit gets its own outcome, and the event loop is woken
once for all of them.  A group in which a
unit fails, or undoes itself, is begun again with a savepoint for each.

Nothing is acknowledged that nobody would find: after each commit, the path has to lead to the file
that is open.
"""

from __future__ import annotations

import math
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
from attrs import field

from legation.diagnosis.engines import BugSeverity
from legation.store.failures import (
    Busy,
    CommitLost,
    DatabaseFull,
    FileReplaced,
    StatementFailed,
    StoreFailure,
    Unavailable,
)
from legation.store.health import PATIENCE_SECONDS, Inspection
from legation.store.units import Dialect, Unit
from legation.values import define

from .commit_lock import WAIT_SECONDS as LOCK_SECONDS
from .commit_lock import has_wal_reset_bug, open_commit_lock
from .logs import Write, quiet
from .long_reads import LongReads
from .names import Names, place_beside
from .native import Event, find_native
from .sqlite_connection import (
    BUSY_MS,
    MEMORY,
    Connect,
    classify,
    connect,
    file_id,
    in_transaction,
    limit_statements,
    make_execute,
    run_unit,
    translate,
)
from .units import carry_out, failure
from .wakeup import Wake, waker

__all__ = ["SqliteDatabase"]

R = TypeVar("R")

GROUP: Final = 64
"""Units in one commit at most: bounds how long the first of them waits for the last."""

JOIN_SECONDS: Final = 1.0
"""For so long a group takes in what is queued meanwhile: behind a slow unit others have their own
time."""

IDLE_SECONDS: Final = 1.0
"""After so long without a write the WAL is brought home."""


UNIT_SECONDS: Final = 35.0
"""For the statements of a group, and of a unit alone."""

EXCLUSIVE_SECONDS: Final = 600.0
"""For those of a migration, which may have to rewrite a large table."""

READ_SECONDS: Final = 5.0
"""For those of a unit on the thread of the event loop, where everything waits for it."""

WAIT_SECONDS: Final = UNIT_SECONDS + 5.0
"""For the way of a unit through the writer, from the queue to the disk."""

ROOM: Final = 1 << 20
"""Bytes: a file system that has less is full."""


_REFUSALS: Final = (DatabaseFull, CommitLost)


@define(eq=False)
class _Limit:
    """The time, by `time.monotonic`, at which the statements of a connection have to be over."""

    due: float = math.inf

    def is_over(self) -> bool:
        """Tell whether the time is up."""
        return time.monotonic() > self.due


@define(eq=False)
class _Ticket(Generic[R]):
    """A unit on its way through the writer, with its outcome.

    Attributes:
        taken: The writer has begun with it; until then it can be withdrawn.
        expired: The failure for its caller, who does not wait any longer.
    """

    unit: Unit[R]
    done: Event
    queued: float = field(factory=time.monotonic)
    taken: bool = False
    expired: StoreFailure | None = None
    result: R | None = None
    error: BaseException | None = None
    abandoned: bool = False

    @property
    def alone(self) -> bool:
        """Tell whether this unit needs a transaction of its own."""
        return self.unit.exclusive or not self.unit.writes

    def withdraw(self) -> None:
        """Tell the caller that the time is up, and whether the unit may still be committed."""
        self.abandoned = True
        self.expired = CommitLost("overdue") if self.taken else Unavailable("overdue")
        self.done.set()


class SqliteDatabase:
    """A SQLite database of this process: one writer thread, and reads on the event loop's thread.

    A read begins its snapshot after every commit that was acknowledged before.  In memory there
    is one connection, so that reads go through the writer too.

    A caller cancelled while it waits does not learn whether its unit was committed.

    Attributes:
        disk: The bytes of its file system, and those that are free, as it was inspected last.
        wal_reset_bug: How grave it is that SQLite has the WAL-reset bug; None where it has it not.
    """

    def __init__(
        self,
        name: str,
        path: str,
        write: Write = quiet,
        connect: Connect = connect,
        *,
        version: tuple[int, int, int] = sqlite3.sqlite_version_info,
    ) -> None:
        """Open the file; `version` is that of the SQLite from whose faults it is to be kept."""
        self.name = name
        self.dialect = Dialect.SQLITE
        self.path = path
        self._log = write
        self._writer = connect(path)
        in_memory = path == MEMORY
        self._file = None if in_memory else file_id(path)
        self._lock = None if in_memory else open_commit_lock(path, name, write, version)
        self._lock_fd = None if self._lock is None else self._lock.fd
        self.wal_reset_bug: BugSeverity | None = None
        if not in_memory and has_wal_reset_bug(version):
            self.wal_reset_bug = "medium" if self._lock is None else "low"
        self.names = Names(name, None if in_memory else place_beside(path), write)
        self._replaced = self._refused = False
        self.disk: tuple[int, int] | None = None
        self._looking = False
        self._reader = None if path == MEMORY else connect(path, read_only=True)
        self._writing, self._reading = _Limit(), _Limit()
        limit_statements(self._writer, self._writing.is_over)
        self._long: LongReads | None = None
        if self._reader is not None:
            limit_statements(self._reader, self._reading.is_over)
            self._long = LongReads(name, self._connect_again, write)
        self._connect = connect
        self._waiting: dict[_Ticket[Any], None] = {}
        self._taking = threading.Lock()
        self._queue: SimpleQueue[_Ticket[Any] | None] = SimpleQueue()
        self._held: _Ticket[Any] | None = None
        self._wake: Wake = _nobody
        self._make_event: Callable[[], Event] = anyio.Event
        self._closed = False
        self._units = self._commits = 0
        self._thread = threading.Thread(target=self._serve, name=f"sqlite {name}", daemon=True)
        self._thread.start()

    def inline(self, unit: Unit[R]) -> Callable[[Unit[R]], R] | None:
        """Return `read` for a unit that only reads, where there is a connection for that."""
        if self._reader is None or unit.writes or unit.exclusive or unit.long:
            return None
        return self.read

    def _connect_again(self) -> sqlite3.Connection:
        """Open one more connection that reads the file which this database has open."""
        connection = self._connect(self.path, read_only=True)
        if self._is_replaced():
            connection.close()
            raise Unavailable("replaced")
        return connection

    def read(self, unit: Unit[R]) -> R:
        """Run a unit that only reads, at once, on this thread."""
        if self._reader is None or self._closed:
            raise Unavailable("closed")
        self._reading.due = time.monotonic() + READ_SECONDS
        return run_unit(self._reader, unit, database=self.name, write=self._log)

    async def run(self, unit: Unit[R]) -> R:
        """Run `unit` in the writer, where it is no long read; its result is durable then."""
        if self._closed:
            raise Unavailable("closed")
        if unit.long and self._long is not None:
            return await self._long.run(unit)
        if self._wake is _nobody:
            self._wake, self._make_event = waker(), find_native().make_event
        ticket = _Ticket(unit, self._make_event())
        self._waiting[ticket] = None
        self._queue.put(ticket)
        try:
            await ticket.done.wait()
        except BaseException:
            ticket.abandoned = True
            raise
        finally:
            del self._waiting[ticket]
        if ticket.expired is not None:
            raise ticket.expired
        if ticket.error is not None:
            raise ticket.error
        result: Any = ticket.result
        return result  # type: ignore[no-any-return]  # the unit's

    def expire(self, now: float) -> None:
        """Tell those who have waited for too long; the writer may hang in the disk."""
        if self._long is not None:
            self._long.expire(now)
        for ticket in tuple(self._waiting):  # the oldest first
            if now - ticket.queued <= WAIT_SECONDS:
                return
            with self._taking:
                if not ticket.unit.exclusive or now - ticket.queued > EXCLUSIVE_SECONDS:
                    ticket.withdraw()

    async def inspect(self) -> Inspection:
        """Return whether the file is still the one that was opened, and has room."""
        if self.path == MEMORY or self._closed:
            await anyio.lowlevel.checkpoint()
            return Inspection()
        waiting = self._oldest()
        if self._looking:
            return Inspection(waiting_seconds=math.inf)  # the last look has not come back
        self._looking = True
        with anyio.move_on_after(PATIENCE_SECONDS):
            room = await anyio.to_thread.run_sync(self._look, abandon_on_cancel=True)
            refused, self._refused = self._refused, False
            return Inspection(self._replaced, room and not refused, waiting)
        return Inspection(waiting_seconds=math.inf)

    def _oldest(self) -> float:
        """Return how long the oldest unit waits, in seconds."""
        first = next(iter(self._waiting), None)
        return 0.0 if first is None or first.unit.exclusive else time.monotonic() - first.queued

    def _look(self) -> bool:
        """Look at the file, on a thread: the disk may hang; tell whether there is room."""
        try:
            if self._is_replaced():
                return True
            disk = shutil.disk_usage(self.path)
            self.disk = disk.total, disk.free
            return disk.total == 0 or disk.free >= ROOM
        except OSError:
            return True
        finally:
            self._looking = False

    def _is_replaced(self) -> bool:
        """Tell whether the path leads to another file than the one that is open; it stays so."""
        if self._file is not None and not self._replaced and file_id(self.path) != self._file:
            self._replaced = True
        return self._replaced

    def usage(self) -> Mapping[str, float]:
        """Return what the writer has done and has before it."""
        waiting, units, commits = self._queue.qsize(), self._units, self._commits
        return {"units_waiting": waiting, "units_total": units, "commits_total": commits}

    async def aclose(self) -> None:
        """Finish what is queued, bring the WAL home and close."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join)
            if self._long is not None:
                await anyio.to_thread.run_sync(self._long.close)
            if self._reader is not None:
                self._reader.close()
            await anyio.to_thread.run_sync(self._finish)
        self.names.close()

    # From here on: the writer's thread, and at the end another.

    def _finish(self) -> None:
        """Bring the WAL home and close."""
        self._checkpoint()
        self._writer.close()
        if self._lock is not None:
            self._lock.close()

    def _checkpoint(self, patience_ms: int = 0) -> None:
        """Bring the WAL home, unless others write to it for so long that it is theirs to do.

        Who reads an old snapshot, as a backup does, is waited for as long as `patience_ms` says:
        nothing is written meanwhile.
        """
        self._writing.due = math.inf
        if self.path == MEMORY:
            return
        try:
            with nullcontext() if self._lock is None else self._lock.held(LOCK_SECONDS):
                self._writer.execute(f"pragma busy_timeout = {patience_ms}").fetchall()
                try:
                    self._writer.execute("pragma wal_checkpoint(truncate)").fetchall()
                finally:
                    self._writer.execute(f"pragma busy_timeout = {BUSY_MS}").fetchall()
        except (sqlite3.Error, OSError) as error:
            translate(error, self.name, self._log)
        except Busy:
            pass

    def _serve(self) -> None:
        dirty = False
        while (first := self._held or self._next(dirty)) is not None:
            self._held = None
            dirty = True
            batch = self._take([first])
            if not first.alone:
                self._gather(batch)
            self._commits += 1
            self._perform(batch)
            for ticket in batch:  # `any` costs each commit two calls
                if ticket.unit.erases:
                    self._checkpoint(BUSY_MS)
            self._tell(batch)

    def _take(self, tickets: Sequence[_Ticket[Any]]) -> list[_Ticket[Any]]:
        """Return what nobody has withdrawn; it cannot be withdrawn from now on."""
        self._units += len(tickets)
        with self._taking:
            taken = [ticket for ticket in tickets if not ticket.abandoned]
            for ticket in taken:
                ticket.taken = True
        return taken

    def _next(self, dirty: bool) -> _Ticket[Any] | None:
        """Return the next ticket; None at the end."""
        if dirty:
            try:
                return self._queue.get(timeout=IDLE_SECONDS)
            except Empty:
                self._checkpoint()
        return self._queue.get()

    def _gather(self, batch: list[_Ticket[Any]]) -> None:
        """Add what is queued and may share the commit of `batch`; hold back what may not."""
        found: list[_Ticket[Any]] = []
        while self._held is None and len(batch) + len(found) < GROUP:
            try:
                ticket = self._queue.get_nowait()
            except Empty:
                break
            if ticket is None:
                self._queue.put(None)
                break
            if ticket.alone:
                self._held = ticket
            else:
                found.append(ticket)
        if found:
            batch += self._take(found)

    def _perform(self, batch: list[_Ticket[Any]]) -> None:
        """Run every unit of `batch`, and of what joins it; each ticket has its outcome then."""
        exclusive = len(batch) == 1 and batch[0].unit.exclusive  # one is always alone
        lock = self._lock_fd
        try:
            if lock is not None:
                try:
                    flock(lock, LOCK_EX | LOCK_NB)
                except OSError:
                    self._await_lock(0.0 if exclusive else LOCK_SECONDS)
            due = EXCLUSIVE_SECONDS if exclusive else UNIT_SECONDS
            self._writing.due = time.monotonic() + due
            if self._replaced:
                self._refuse(batch)
            elif batch and batch[0].alone:
                self._alone(batch[0])
            elif batch:
                self._together(batch)
            if self._is_replaced():
                self._refuse(batch)
            for ticket in batch:
                if ticket.error is not None and isinstance(ticket.error, _REFUSALS):
                    self._refused = True
        except StoreFailure as failed:
            for ticket in batch:  # each its own instance: it is raised in as many tasks
                ticket.error = ticket.error or type(failed)(*failed.args)
        except BaseException as error:  # noqa: BLE001 (nobody else tells those who wait)
            for ticket in batch:
                ticket.error = ticket.error or error
        finally:
            if lock is not None:
                try:
                    flock(lock, LOCK_UN)
                except OSError:
                    pass  # whoever tries to take it next is told

    def _await_lock(self, seconds: float) -> None:
        """Wait for the lock that another process has.

        Raises:
            Busy: It was not to be had in time.
            Unavailable: It is not to be had at all.
        """
        try:
            if self._lock is None or self._lock.take(seconds):
                return
        except OSError as error:
            raise failure(Unavailable, error, self.name, self._log) from error
        late = TimeoutError("another process holds the lock of commits")
        raise failure(Busy, late, self.name, self._log)

    def _refuse(self, batch: Sequence[_Ticket[Any]]) -> None:
        """Acknowledge nothing that stands in a file which nobody will open again."""
        for ticket in batch:
            if ticket.unit.writes:
                ticket.error = ticket.error or FileReplaced("replaced")

    def _alone(self, ticket: _Ticket[Any]) -> None:
        """Run one unit in a transaction of its own."""
        reading = not ticket.unit.writes
        if reading:
            self._writer.execute("pragma query_only = 1")
        try:
            ticket.error = None
            ticket.result = run_unit(self._writer, ticket.unit, database=self.name, write=self._log)
        except Exception as error:  # noqa: BLE001 (its caller's to handle)
            ticket.error = error
        finally:
            if reading:
                self._writer.execute("pragma query_only = 0")

    def _together(self, batch: list[_Ticket[Any]]) -> None:
        """Run `batch` in one transaction, however often it takes.

        First without savepoints: with one, SQLite keeps a copy of each page that a unit writes to,
        in a temporary file as soon as there are 16 of them, and there are as many in a run.

        An error that makes SQLite roll back the whole transaction (lang_transaction.html, section
        3.1) concerns the unit it struck: the others are run again without that one.  A unit that
        nothing joined is run again in a transaction of its own.
        """
        if not self._begin(batch):
            return
        if self._straight(batch):
            self._commit(batch)
            return
        if self._writer.in_transaction:
            self._writer.execute("rollback")
        if len(batch) == 1:
            self._alone(batch[0])
            return
        left = list(batch)
        while left:
            struck = self._attempt(left)
            if struck is None:
                return
            left.remove(struck)

    def _attempt(self, batch: Sequence[_Ticket[Any]]) -> _Ticket[Any] | None:
        """Return the unit that cost the others their transaction; None when all have an outcome."""
        if not self._begin(batch):
            return None
        try:
            for ticket in batch:
                self._in_savepoint(ticket)
                if not self._writer.in_transaction:
                    return ticket
        except sqlite3.Error as error:
            self._fail(batch, error, at_commit=False)
            return None
        self._commit(batch)
        return None

    def _begin(self, batch: Sequence[_Ticket[Any]]) -> bool:
        """Begin a transaction; else tell the whole batch why not."""
        try:
            self._writer.execute("begin immediate")
        except sqlite3.Error as error:
            self._fail(batch, error, at_commit=False)
            return False
        return True

    def _straight(self, batch: list[_Ticket[Any]]) -> bool:
        """Run one unit after the other, and those that are queued meanwhile.

        Tell whether what all of them did is to stay.
        """
        execute = make_execute(self._writer)
        joinable = time.monotonic() + JOIN_SECONDS
        for ticket in batch:  # it grows at its end
            ticket.error = None
            try:
                ticket.result, kept = carry_out(ticket.unit.statements(Dialect.SQLITE), execute)
            except Exception:  # noqa: BLE001 (raised again in a savepoint, for its caller)
                return False
            if not kept:
                return False
            if ticket is batch[-1] and time.monotonic() < joinable:
                self._gather(batch)
        return True

    def _commit(self, batch: Sequence[_Ticket[Any]]) -> None:
        """Commit what the batch did, or tell it why that failed."""
        try:
            self._writer.execute("commit")
        except sqlite3.Error as error:
            if self._writer.in_transaction:
                self._writer.execute("rollback")
            if classify(error) is StatementFailed:
                # A deferred constraint, of which SQLite does not say whose it was.
                for ticket in batch:
                    self._alone(ticket)
            else:
                self._fail(batch, error, at_commit=True)

    def _fail(
        self, batch: Sequence[_Ticket[Any]], error: sqlite3.Error, *, at_commit: bool
    ) -> None:
        """Tell the whole batch, but for those that had failed by themselves."""
        if self._writer.in_transaction:
            self._writer.execute("rollback")
        failed = translate(error, self.name, self._log, at_commit=at_commit)
        for ticket in batch:
            # Each its own instance: it is raised in as many tasks.
            ticket.error = ticket.error or type(failed)(*failed.args)

    def _in_savepoint(self, ticket: _Ticket[Any]) -> None:
        """Run one unit of a group; what it did is undone when it fails or says so."""
        run = self._writer.execute
        ticket.error = None
        run("savepoint unit")
        try:
            ticket.result, kept = in_transaction(self._writer, ticket.unit)
        except sqlite3.Error as error:
            ticket.error = translate(error, self.name, self._log)
        except Exception as error:  # noqa: BLE001 (its caller's to handle)
            ticket.error = error
        else:
            if kept:
                run("release unit")
                return
        if self._writer.in_transaction:
            run("rollback to unit")
            run("release unit")

    def _tell(self, batch: Sequence[_Ticket[Any]]) -> None:
        """Wake who waits for `batch`, all with one call into the event loop."""

        def wake_all() -> None:
            for ticket in batch:
                ticket.done.set()

        try:
            self._wake(wake_all)
        except RuntimeError:
            pass  # the event loop is gone, and with it who waited


def _nobody(_: Callable[[], object]) -> None:
    """Stand for the event loop until there is one."""
