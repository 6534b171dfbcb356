"""The leases of one database: the messages and replies that this node works on."""

from __future__ import annotations

from typing import Any, Final

from attrs import define, field

from ..hosted.registry import HostedChannel
from ..runs.executor import ExecutorContext
from ..runs.register import InFlight, Key
from ..store.leased_queue import Lease, LeasedQueue

__all__ = ["MOST", "WorkerLeases", "leases_of"]

MOST: Final = 16
"""How many messages, and how many replies, a node works on at a time."""


@define(eq=False)
class WorkerLeases:
    """Leases under work.  Only these are extended: what nobody works on any more runs out.

    `claims` is how many claims have been sent to the database and not been answered.
    """

    context: ExecutorContext
    database: str
    in_flight: InFlight[Lease] = field(factory=InFlight[Lease])
    claims: int = 0

    @property
    def busy(self) -> bool:
        """Whether anything is under work here, or a claim is on its way."""
        return bool(self.in_flight or self.claims)

    @property
    def lease_us(self) -> int:
        """How long a node may be silent before its messages are taken over, in microseconds."""
        return self.context.lease_us

    @property
    def inbox(self) -> str:
        """The topic under which new messages are announced on this node."""
        return f"inbox:{self.database}"

    @property
    def outbox(self) -> str:
        """The topic under which new replies are announced on this node."""
        return f"outbox:{self.database}"

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels that this node knows in the database, sorted: it claims of no other."""
        hosted = self.context.registry.channels.values()
        return tuple(sorted(c.id for c in hosted if c.component.database == self.database))

    def channel(self, name: str) -> HostedChannel:
        """Return the channel of something claimed."""
        return self.context.registry.channels[name]

    def held(self, queue: LeasedQueue[Any, Any]) -> tuple[Lease, ...]:
        """Return the leases on items of `queue`."""
        return tuple(self.in_flight.at(queue.table).values())

    def enter(self, lease: Lease) -> None:
        """Note that work under `lease` begins."""
        self.in_flight.enter(_key(lease), lease)

    def leave(self, lease: Lease) -> None:
        """Note that work under `lease` is over."""
        self.in_flight.leave(_key(lease), lease)


def _key(lease: Lease) -> Key:
    return lease.queue.table, lease.key.channel, lease.key.item_id


def leases_of(context: ExecutorContext) -> tuple[WorkerLeases, ...]:
    """Return the leases of every database that a channel stores its messages in."""
    databases = {c.component.database for c in context.registry.channels.values()}
    return tuple(WorkerLeases(context, name) for name in sorted(databases))
