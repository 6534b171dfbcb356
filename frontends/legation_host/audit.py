"""Audit entries on their way to the store: gathered for a tenth of a second, written as a batch.

These are the decisions on reads, and refusals.  A process that is killed loses the last 100 ms of
them; one that ends in order loses none.  A change is not among them: its row is stored with it, in
its own transaction (`legation.store.audit.Audited`).
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import anyio
from attrs import asdict, field

from legation.effects import Program
from legation.incidents import where
from legation.observability.request_log import Gauge, Gauges
from legation.store.audit_entries import AuditEntry
from legation.store.failures import StoreFailure
from legation.values import define

from .logs import Write
from .native import Event, find_native

__all__ = ["Trail", "WriteAudit", "trail_gauges"]

WriteAudit: TypeAlias = Callable[[tuple[AuditEntry, ...]], Program[None]]
"""Makes the program that stores a batch; it may be asked for the same batch again."""

Store: TypeAlias = Callable[[tuple[AuditEntry, ...]], Awaitable[None]]

BATCH: Final = 256
WAITING: Final = 8_192
GATHER_SECONDS: Final = 0.1
PATIENCE: Final = (0.1, 0.5, 2.0)
LAST_WORDS_SECONDS: Final = 5.0


@define(eq=False)
class Trail:
    """The entries not stored yet, at most `WAITING` of them; what is more goes to the log at once.

    What cannot be stored is written to the log, as warnings, and never dropped.  An entry is stored
    at least once: twice where the answer to a commit was lost.
    """

    write: Write
    store: Store | None = None
    _waiting: list[AuditEntry] = field(factory=list[AuditEntry], init=False)
    _some: Event = field(factory=anyio.Event, init=False)
    _many: Event = field(factory=anyio.Event, init=False)

    @property
    def waiting(self) -> int:
        """The number of entries that are not stored yet."""
        return len(self._waiting)

    def record(self, entry: AuditEntry) -> None:
        """Take `entry`; it is stored within a tenth of a second, or logged where that fails."""
        before = len(self._waiting)
        if self.store is None or before >= WAITING:
            self._log(entry)
            return
        self._waiting.append(entry)
        if before == 0:
            self._some.set()
        elif before == BATCH - 1:
            self._many.set()

    async def serve(self) -> None:
        """Store what is recorded, for ever.

        What arrives while a batch is stored is gathered in its turn: a commit costs as much as
        some tens of entries.
        """
        native = find_native()
        while True:
            await self._some.wait()
            with native.limit(GATHER_SECONDS):
                await self._many.wait()
            await self._store_batch()
            self._some, self._many = native.make_event(), native.make_event()
            if self._waiting:
                self._some.set()
            if len(self._waiting) >= BATCH:
                self._many.set()

    async def aclose(self) -> None:
        """Store what is left, once `serve` has ended; what takes too long is logged."""
        with anyio.move_on_after(LAST_WORDS_SECONDS, shield=True):
            while self._waiting:
                await self._store_batch()
        for entry in self._waiting:
            self._log(entry)
        self._waiting.clear()

    async def _store_batch(self) -> None:
        """Store the oldest entries; an entry leaves the list when it is stored or logged."""
        batch = tuple(self._waiting[:BATCH])
        if not await self._try_to_store(batch):
            for entry in batch:
                self._log(entry)
        del self._waiting[: len(batch)]

    async def _try_to_store(self, batch: tuple[AuditEntry, ...]) -> bool:
        if self.store is None:
            return False
        for pause in (*PATIENCE, None):
            try:
                await self.store(batch)
            except StoreFailure:
                if pause is not None:
                    await anyio.sleep(pause)
            except Exception as error:  # noqa: BLE001 (its fault must not end the trail)
                incident = secrets.token_hex(4)
                fields = {"incident": incident, "error": where(error)}
                self.write("error", "audit_failed", fields)
                return False
            else:
                return True
        return False

    def _log(self, entry: AuditEntry) -> None:
        self.write("warning", "audit", asdict(entry))


def trail_gauges(trail: Trail, database: str) -> Gauges:
    """Return what waits to be stored in the trail, which is that of `database`."""
    text = f"Entries of the audit trail that wait to be stored; {WAITING} at most."
    return {
        "legation_audit_waiting": Gauge("gauge", text, {(("database", database),): trail.waiting})
    }
