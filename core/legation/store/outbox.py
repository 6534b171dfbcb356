"""Units of work on the outbox: replies that are stored before they are sent.

A reply is sent at least once, under an idempotency key that never changes.  The outbox is a leased
queue whose lane is the recipient of a reply, so that each hears his in their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from attrs import field

from ..values import frozen
from .channel_states import PROBE_US
from .leased_queue import STANDS, ClaimedItem, LeasedQueue
from .leases import FOREVER, due_at, end_of_lease, fill_clock, has_lapsed, is_due, is_held
from .units import Dialect, Statement, Statements, Unit

__all__ = [
    "EARLIER",
    "MOST_SPARED",
    "OUTBOX",
    "ClaimedReply",
    "Letter",
    "NewReply",
    "PutReply",
    "ReplyRow",
    "bury_rest",
    "put_letters",
    "put_replies",
]


@frozen
class NewReply:
    """A reply to store; `payload` is what the channel's codec needs to send it.

    `message_id` is that of the message which it answers, if it answers one.
    """

    idempotency_key: str
    recipient: str = field(repr=False)
    payload: str = field(repr=False)
    message_id: str | None = None


@frozen
class ClaimedReply(ClaimedItem):
    """A reply to send.

    Attributes:
        spared: How many of its attempts do not count, for they were refused with its channel.
        held_us: Since when its channel is held; it is sent to see whether that is over.
        released_us: When its channel was held last.
    """

    recipient: str = field(repr=False)
    payload: str = field(repr=False)
    created_us: int
    spared: int = 0
    held_us: int | None = None
    released_us: int | None = None


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
# Of a channel that is held, one reply is picked now and then, while no other of it is under work:
# the oldest, and after a few times another, for it may be the only one that is refused.
_LANES: Final = """with lanes as (
        select channel, idempotency_key, recipient, ready_us, created_us, attempts, spared,
        row_number() over (lane order by created_us, idempotency_key) as place,
        max({busy}) over lane as busy
        from outbox where state = 'ready' window lane as (partition by channel, recipient)
    )"""
MOST_SPARED: Final = 5
"""How often the refusal of one reply may hold its channel, while others are taken."""

_HELD: Final = f"case when {is_held('outbox')} then 1 else 0 end"
_STATES: Final = """left join channel_states as states
        on states.channel = lanes.channel and states.held_us is not null"""
_CLAIM: Final = f"""{_LANES.format(busy=_HELD)}, heads as (
        select lanes.channel, idempotency_key, ready_us, created_us, held_us, probe_us,
        row_number() over (
            partition by lanes.channel order by spared / {MOST_SPARED}, created_us,
            idempotency_key) as turn
        from lanes {_STATES}
        where {STANDS} and place = 1 and busy = 0 and {is_due("lanes")} and {{served}}
    ), picked as materialized (
        select channel, idempotency_key from heads
        where held_us is null or (
            turn = 1 and not probe_us between $CLOCK + 1 and $CLOCK + {PROBE_US}
            and not exists (
                select 1 from outbox as sending where sending.state = 'ready'
                and sending.channel = heads.channel and {is_held("sending")}))
        order by ready_us, created_us, idempotency_key limit :limit
    )
    update outbox set lease_by = :node, lease_us = {FOREVER}, attempts = attempts + 1
    from picked where outbox.channel = picked.channel
    and outbox.idempotency_key = picked.idempotency_key and state = 'ready'
    and {is_due("outbox")} and (lease_us is null or {has_lapsed("outbox")})
    returning outbox.channel, outbox.idempotency_key, attempts, recipient, payload,
    created_us, spared,
    (select held_us from channel_states as states where states.channel = outbox.channel),
    (select released_us from channel_states as states where states.channel = outbox.channel)"""
_DUE: Final = f"""{_LANES.format(busy=end_of_lease("outbox"))}
    select min({{later}}({due_at("lanes")}, coalesce(busy, 0), coalesce(probe_us, 0)))
    from lanes {_STATES} where place = 1 and {{served}}"""
_SQLITE: Final = {
    "served": """(:channels is null
            or lanes.channel in (select value from json_each(:channels)))"""
}
_POSTGRESQL: Final = {
    "served": """(cast(:channels as text[]) is null
            or lanes.channel = any (cast(:channels as text[])))"""
}
CLAIM: Final = fill_clock(_CLAIM.format(**_SQLITE), _CLAIM.format(**_POSTGRESQL))
DUE: Final = fill_clock(
    _DUE.format(**_SQLITE, later="max"), _DUE.format(**_POSTGRESQL, later="greatest")
)
EARLIER: Final = "an earlier part was not delivered"
"""The error of a part that is given up because one before it was."""

BURY_REST: Final = fill_clock(
    f"""update outbox set state = 'dead', error = '{EARLIER}', lease_by = null, lease_us = null
    where channel = :channel and state = 'ready' and (lease_us is null or {has_lapsed("outbox")})
    and substr(idempotency_key, 1, length(:answer)) = :answer
    and substr(idempotency_key, length(idempotency_key) - length(:ending) + 1) = :ending
    and (message_id, true) = (
        select message_id, outbox.created_us > part.created_us from outbox as part
        where part.channel = :channel and part.idempotency_key = :key)
    returning idempotency_key"""
)


def bury_rest(channel: str, key: str) -> Statement:
    """Return the statement that gives up the parts of an answer that follow the part `key`."""
    name, _, ending = key.partition("-")
    answer = name.partition(".")[0]
    return BURY_REST(channel=channel, key=key, answer=f"{answer}.", ending=f"-{ending}")


OUTBOX: Final = LeasedQueue(
    "outbox",
    order=("created_us", "idempotency_key"),
    end="sent",
    claim=CLAIM,
    due=DUE,
    claimed=ClaimedReply,
    row=ReplyRow,
    lock=5075194603161137442,
    counted="attempts - spared",
    follow=bury_rest,
)
PUT: Final = fill_clock(
    """insert into outbox
    (channel, idempotency_key, recipient, payload, state, created_us, ready_us, attempts,
        message_id)
    values (:channel, :idempotency_key, :recipient, :payload, 'ready', :created_us, $CLOCK, 0,
        :message_id)
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


def put_letters(letters: Iterable[Letter], now_us: int) -> Statements[None]:
    """Store `letters`, in their order; part of a larger unit."""
    for place, letter in enumerate(letters):
        yield from put_replies(letter.channel, (letter.reply,), now_us + place)


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
