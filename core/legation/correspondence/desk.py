"""The desk of one database: what this node is working on of its inbox and outbox."""

from __future__ import annotations

from typing import Final

from attrs import define, field

from ..runs.execute import Workshop
from ..store.inbox import Lease, MessageKey
from ..store.outbox import ReplyKey, ReplyLease

__all__ = ["LEASE_US", "MOST", "Desk"]

LEASE_US: Final = 30_000_000
"""How long a node may be silent before its messages are taken over, in microseconds."""

MOST: Final = 16
"""How many messages, and how many replies, a node works on at a time."""


@define(eq=False)
class Desk:
    """Leases under work.  Only these are extended: what nobody works on any more runs out."""

    workshop: Workshop
    database: str
    leases: dict[MessageKey, Lease] = field(factory=dict[MessageKey, Lease])
    sending: dict[ReplyKey, ReplyLease] = field(factory=dict[ReplyKey, ReplyLease])

    @property
    def inbox(self) -> str:
        """The topic under which new messages are announced on this node."""
        return f"inbox:{self.database}"

    @property
    def outbox(self) -> str:
        """The topic under which new replies are announced on this node."""
        return f"outbox:{self.database}"
