"""Units of work on the outbox: replies that are stored before they are sent.

A reply is sent at least once, under an idempotency key that never changes.  The outbox is a leased
queue whose lane is the recipient of a reply, so that each hears his in their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from attrs import field

from ..values import frozen
from .leased_queue import STANDS, ClaimedItem, LeasedQueue
from .leases import FOREVER, due_at, end_of_lease, fill_clock, has_lapsed, is_due, is_held
from .units import Dialect, Statements, Unit

__all__ = ["OUTBOX", "ClaimedReply", "Letter", "NewReply", "PutReply", "ReplyRow", "put_replies"]


@frozen
class NewReply:
    """A reply to store; `payload` is what the channel's codec needs to send it."""

    idempotency_key: str
    recipient: str = field(repr=False)
    payload: str = field(repr=False)


@frozen
class ClaimedReply(ClaimedItem):
    """A reply to send."""

    recipient: str = field(repr=False)
    payload: str = field(repr=False)
    created_us: int


@frozen
class ReplyRow:
    """A reply as an operator sees it: without its text."""

    channel: str
    idempotency_key: str
    recipient: str = field(repr=False)
    state: str
    created_us: int
    ready_us: int
    attempts: int
    error: str | None
    sent_us: int | None


# `place` is the row's place in its lane, `busy` what stands there of leases.  Nothing is
# joined before a few are picked: without statistics PostgreSQL would do it by loops within loops.
# What the row itself says is asked once more where it is changed, for PostgreSQL may have waited.
_LANES: Final = """with lanes as (
        select channel, idempotency_key, ready_us, created_us, attempts,
        row_number() over (lane order by created_us, idempotency_key) as place,
        max({busy}) over lane as busy
        from outbox where state = 'ready' window lane as (partition by channel, recipient)
    )"""
_HELD: Final = f"case when {is_held('outbox')} then 1 else 0 end"
_CLAIM: Final = f"""{_LANES.format(busy=_HELD)}, picked as materialized (
        select channel, idempotency_key from lanes
        where {STANDS} and place = 1 and busy = 0 and {is_due("lanes")} and {{served}}
        order by ready_us, created_us, idempotency_key limit :limit
    )
    update outbox set lease_by = :node, lease_us = {FOREVER}, attempts = attempts + 1
    from picked where outbox.channel = picked.channel
    and outbox.idempotency_key = picked.idempotency_key and state = 'ready'
    and {is_due("outbox")} and (lease_us is null or {has_lapsed("outbox")})
    returning outbox.channel, outbox.idempotency_key, attempts, recipient, payload,
    created_us"""
_DUE: Final = f"""{_LANES.format(busy=end_of_lease("outbox"))}
    select min({{later}}({due_at("lanes")}, coalesce(busy, 0))) from lanes
    where place = 1 and {{served}}"""
_SQLITE: Final = {
    "served": "(:channels is null or channel in (select value from json_each(:channels)))"
}
_POSTGRESQL: Final = {
    "served": """(cast(:channels as text[]) is null
            or channel = any (cast(:channels as text[])))"""
}
CLAIM: Final = fill_clock(_CLAIM.format(**_SQLITE), _CLAIM.format(**_POSTGRESQL))
DUE: Final = fill_clock(
    _DUE.format(**_SQLITE, later="max"), _DUE.format(**_POSTGRESQL, later="greatest")
)
OUTBOX: Final = LeasedQueue(
    "outbox",
    order=("created_us", "idempotency_key"),
    end="sent",
    claim=CLAIM,
    due=DUE,
    claimed=ClaimedReply,
    row=ReplyRow,
    lock=5075194603161137442,
)
PUT: Final = fill_clock(
    """insert into outbox
    (channel, idempotency_key, recipient, payload, state, created_us, ready_us, attempts)
    values (:channel, :idempotency_key, :recipient, :payload, 'ready', :created_us, $CLOCK, 0)
    on conflict do nothing returning idempotency_key"""
)


@frozen
class Letter:
    """A reply and the channel that sends it, to be stored with something else."""

    channel: str
    reply: NewReply


@frozen
class PutReply(Unit[bool]):
    """Store one reply that answers no message; whether it was new."""

    channel: str
    reply: NewReply
    now_us: int

    def statements(self, dialect: Dialect) -> Statements[bool]:
        """Insert it, unless its key is there."""
        return bool((yield from put_replies(self.channel, (self.reply,), self.now_us)))


def put_replies(
    channel: str, replies: Iterable[NewReply], now_us: int
) -> Statements[tuple[str, ...]]:
    """Store `replies` and return the keys that were new; part of a larger unit.

    Each is a microsecond younger than the one before it: the parts of an answer stay in order.
    """
    new: list[str] = []
    for place, reply in enumerate(replies):
        rows = yield PUT.of(reply, channel=channel, created_us=now_us + place)
        new += [key for (key,) in rows]
    return tuple(new)
