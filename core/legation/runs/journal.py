"""The journal of a run: what happened, in the order and words that clients know.

Events are stored before they are shown, a batch at a time: what is noted while nothing waits goes
into the database in one transaction when the run is about to wait, or ends.  So a client that has
seen an event can always be given what came after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import define, field, frozen

from ..effects import Now, Program, Publish, RunEvent
from ..messages import compact_json
from ..store.runs import AppendEvents, ClaimedRun, Lease, StoredEvent
from .patience import patiently

__all__ = ["LEASE_US", "CancelAsked", "Journal", "LeaseLost", "Speaker", "shown"]

LEASE_US: Final = 30_000_000
"""How long a node may be silent before its runs are taken for dead, in microseconds."""


class CancelAsked(Exception):
    """Somebody wants the run to end: go no further."""


class LeaseLost(Exception):
    """Another node has taken the run for dead: stop, and write nothing more."""


@frozen
class Speaker:
    """Whose events these are: the members every event of a run has in common."""

    run: ClaimedRun
    name: str

    def event(self, name: str, now_us: int, fields: Mapping[str, Any]) -> tuple[str, str]:
        """Return the full name of an event and its data, in the order clients expect."""
        kind = self.run.kind
        full = f"Team{name}" if kind == "team" else name
        data = {
            "created_at": now_us // 1_000_000,
            "event": full,
            f"{kind}_id": self.run.component_id,
            f"{kind}_name": self.name,
            "run_id": self.run.run_id,
            "session_id": self.run.session_id,
            **fields,
        }
        return full, compact_json(data)


@define
class Journal:
    """Notes events and stores them under the lease; a `Listener` for the model."""

    database: str
    speaker: Speaker
    node: str
    streamed: bool
    now_us: int
    seq: int = 0
    pending: list[StoredEvent] = field(factory=list[StoredEvent])
    heard: list[str] = field(factory=list[str])

    def note(self, name: str, **fields: Any) -> None:
        """Add an event to the next batch."""
        self.seq += 1
        full, data = self.speaker.event(name, self.now_us, fields)
        self.pending.append(StoredEvent(self.seq, full, data))

    def hear(self, piece: str) -> None:
        """Keep a piece of the answer, and note it for the sake of those who follow it live."""
        self.heard.append(piece)
        if self.streamed:
            self.note("RunContent", content=piece, content_type="str", reasoning_content="")

    def lease(self) -> Lease:
        """Return the lease as the next statement writes it."""
        return Lease(self.node, self.speaker.run.attempt, self.now_us + LEASE_US)

    def settle(self) -> Program[None]:
        """Store what is pending and show it.

        Whoever closes the program meanwhile may find the events stored and still pending: they
        are stored again with the end of the run, which changes nothing.

        Raises:
            LeaseLost: The run is no longer ours.
            CancelAsked: Somebody wants it to end.
        """
        self.now_us = yield from Now()
        if not self.pending:
            return
        events = tuple(self.pending)
        run = self.speaker.run
        append = AppendEvents(run.owner, run.run_id, self.lease(), self.now_us, events)
        asked = yield from patiently(self.database, append)
        if asked is None:
            raise LeaseLost(run.run_id)
        self.pending.clear()
        yield from Publish(run.run_id, shown(events))
        if asked:
            raise CancelAsked(run.run_id)


def shown(events: tuple[StoredEvent, ...], *, final: bool = False) -> tuple[RunEvent, ...]:
    """Return stored events as those who follow see them; the last one is marked if `final`."""
    last = events[-1].seq if events else 0
    return tuple(RunEvent(e.seq, e.name, e.data, final and e.seq == last) for e in events)
