"""The leases of one database: the messages and replies that this node works on."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, TypeVar

from attrs import field

from ..effects import Program
from ..hosted.registry import HostedChannel
from ..runs.executor import ExecutorContext
from ..runs.register import InFlight, Key, SharedWork
from ..store.inbox import INBOX
from ..store.leased_queue import Lease, LeasedQueue
from ..store.outbox import OUTBOX
from ..values import define

__all__ = ["MOST", "LeaseLost", "WorkerLeases", "leases_of"]

R = TypeVar("R")

MOST: Final = 16
"""How many messages, and how many replies, a node works on at a time."""

# At least so many places are free before more is claimed: a claim for each that becomes free
# would keep the database busy when the node is.
_WORTHWHILE: Final = MOST // 4


class LeaseLost(Exception):
    """Raised where somebody else works on the message now."""


@define(eq=False)
class WorkerLeases:
    """Leases under work.  Only these are kept: what nobody works on any more is released.

    Attributes:
        claims: How many claims have been sent to the database and not been answered.
        taken: How many items have been claimed, by the table of their queue.
        forgot_us: When this process last deleted all that was to be forgotten.
        silent: What providers of channels refuse, as it is logged once: the id of a channel for its
            typing indicator.
    """

    context: ExecutorContext
    database: str
    in_flight: InFlight[Lease] = field(factory=InFlight[Lease])
    claims: int = 0
    forgot_us: int = field(default=0, init=False)
    taken: Counter[str] = field(factory=Counter[str], init=False)
    silent: set[str] = field(factory=set[str], init=False)

    def __attrs_post_init__(self) -> None:
        self.shared.registers.add(self.in_flight)

    @property
    def shared(self) -> SharedWork[Lease]:
        """The messages and replies that this process works on in the database."""
        return self.context.cluster.member(self.database).letters

    @property
    def busy(self) -> bool:
        """Whether anything is under work here, or a claim is on its way."""
        return bool(self.in_flight or self.claims)

    @property
    def lease_us(self) -> int:
        """The microseconds that a node may be silent before its messages are taken over."""
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

    def list_leases(self, queue: LeasedQueue[Any, Any]) -> tuple[Lease, ...]:
        """Return the leases on items of `queue`."""
        return tuple(self.in_flight.at(queue.table).values())

    def room(self, queue: LeasedQueue[Any, Any]) -> int:
        """Return how many items of `queue` may be claimed now.

        None may where the process is about to end.
        """
        free = MOST - len(self.list_leases(queue))
        if free < _WORTHWHILE or self.context.draining:
            return 0
        return max(0, int(min(free, self.context.left))) if self._is_limited(queue) else free

    def count(self, queue: LeasedQueue[Any, Any], taken: int) -> None:
        """Note that so many items of `queue` were claimed."""
        if self._is_limited(queue):
            self.context.left -= taken
        self.taken[queue.table] += taken

    def _is_limited(self, queue: LeasedQueue[Any, Any]) -> bool:
        """Whether the limit holds for `queue`: not for the replies to messages within the limit."""
        return queue is not OUTBOX or not self.taken[INBOX.table]

    def claim(self, program: Program[R]) -> Program[R]:
        """Run `program`, which claims, and note as long that a claim is on its way."""
        self.claims += 1
        try:
            return (yield from self.shared.claim(program))
        finally:
            self.claims -= 1

    def enter(self, lease: Lease) -> None:
        """Note that work under `lease` begins."""
        self.in_flight.enter(_key(lease), lease)

    def leave(self, lease: Lease) -> None:
        """Note that work under `lease` is over."""
        self.in_flight.leave(_key(lease), lease)

    def is_idle(self, lease: Lease) -> bool:
        """Return whether no program of this process works under `lease`."""
        return not self.shared.holds(_key(lease), lease)


def _key(lease: Lease) -> Key:
    return lease.queue.table, lease.key.channel, lease.key.item_id


def leases_of(context: ExecutorContext) -> tuple[WorkerLeases, ...]:
    """Return the leases of every database that a channel stores its messages in."""
    databases = {c.component.database for c in context.registry.channels.values()}
    return tuple(WorkerLeases(context, name) for name in sorted(databases))
