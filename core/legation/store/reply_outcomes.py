"""Units of work on what became of a reply that was sent: each under the lease of the reply.

An answer in parts is one to its reader.  Where a part is given up, those that follow it are given
up with it, in one transaction; whoever revives one revives all.
"""

from __future__ import annotations

from typing import Final

from ..values import frozen
from .channel_states import hold, probe_later, release, stay
from .chats import move_chat
from .leases import fill_clock
from .outbox import MOST_SPARED, OUTBOX, ClaimedReply, bury_rest
from .units import Dialect, Sql, Statements, Undo, Unit

__all__ = [
    "CIRCLE",
    "BuryReply",
    "CompleteReply",
    "DelayReply",
    "Failure",
    "HoldChannel",
    "MarkUndelivered",
    "Marked",
    "MoveReply",
    "Noted",
]


@frozen
class Noted:
    """The outcome of a reply, as it was stored.

    Attributes:
        kept: Whether the lease was; else nothing was stored.
        dead: Whether the reply is among the dead letters.
        held: Whether its channel is held from now on.
        released: Whether its channel is held no more.
        parts: How many parts were given up with it.
    """

    kept: bool = True
    dead: bool = False
    held: bool = False
    released: bool = False
    parts: int = 0


_LOST: Final = Noted(kept=False)

# A report of this attempt that came before its answer: it could not be delivered.
COMPLETE: Final = fill_clock(
    f"""update outbox set sent_us = $CLOCK, lease_by = null, lease_us = null,
    state = case when provider_id = :provider_id then 'dead' else 'sent' end,
    error = case when provider_id = :provider_id then error else null end,
    provider_id = :provider_id
    {OUTBOX.held} returning idempotency_key, state"""
)


@frozen
class CompleteReply(Unit[Noted]):
    """The reply was taken, under the id `provider_id` at the provider, if that says so.

    Where its channel was held, it is released.
    """

    claimed: ClaimedReply
    provider_id: str | None = None

    def statements(self, dialect: Dialect) -> Statements[Noted]:
        """Complete under the lease; of a reply of a held channel, look after that too."""
        rows = yield COMPLETE.of(self, **self.claimed.lease.parameters())
        if not rows:
            return _LOST
        ((_, state),) = rows
        return (yield from _settle(self.claimed, dead=state == "dead"))


@frozen
class BuryReply(Unit[Noted]):
    """The reply is given up, and with it the parts of the answer that follow.

    The provider judged it by itself: where its channel was held, it is released.
    """

    claimed: ClaimedReply
    error: str

    def statements(self, dialect: Dialect) -> Statements[Noted]:
        """Give up under the lease, then the rest."""
        rows = yield OUTBOX.give_up.of(self, **self.claimed.lease.parameters())
        return (yield from _settle(self.claimed, dead=True)) if rows else _LOST


def _settle(claimed: ClaimedReply, *, dead: bool) -> Statements[Noted]:
    """Release the channel of a reply that was judged; bury what follows a dead one."""
    key, parts, released = claimed.lease.key, 0, False
    if dead:
        parts = len((yield bury_rest(key.channel, key.item_id)))
    if claimed.held_us is not None:
        released = yield from release(key.channel)
    return Noted(dead=dead, released=released, parts=parts)


SPARE: Final = fill_clock(
    f"""update outbox set error = :error, spared = spared + 1, lease_by = null, lease_us = null,
    ready_us = case when :wait_us = 0 then ready_us else $CLOCK + :wait_us end
    {OUTBOX.held} returning idempotency_key"""
)


@frozen
class DelayReply(Unit[Noted]):
    """Try a reply of a held channel again after `wait_us`, and none of it before long."""

    claimed: ClaimedReply
    error: str
    wait_us: int

    def statements(self, dialect: Dialect) -> Statements[Noted]:
        """Spare the reply under its lease; keep the channel waiting."""
        lease = self.claimed.lease
        if not (yield SPARE.of(self, **lease.parameters())):
            return _LOST
        yield from probe_later(lease.key.channel)
        return Noted()


@frozen
class HoldChannel(Unit[Noted]):
    """No reply of the channel is taken, this one the first: it waits, and no attempt is used up.

    A reply that alone is refused so again and again, while others are taken, is given up.
    """

    claimed: ClaimedReply
    error: str

    def statements(self, dialect: Dialect) -> Statements[Noted | Undo[Noted]]:
        """Spare the reply under its lease, and hold its channel."""
        lease = self.claimed.lease
        held = yield from stay(lease.key.channel, self.error)
        if not held and self.claimed.spared >= MOST_SPARED:
            return (yield from BuryReply(self.claimed, self.error).statements(dialect))
        if not (yield SPARE.of(self, wait_us=0, **lease.parameters())):
            return Undo(_LOST)
        new = not held and (yield from hold(lease.key.channel, self.error))
        return Noted(held=new)


CIRCLE: Final = "the chat moves and does not arrive"
"""The error of a reply whose chat is nowhere to be found."""

MOVE: Final = fill_clock(
    f"""update outbox set recipient = :to, ready_us = $CLOCK, lease_by = null, lease_us = null
    {OUTBOX.held} returning idempotency_key"""
)


@frozen
class MoveReply(Unit[Noted]):
    """The chat of the reply goes on as `to`, and what waits for it goes there at once.

    Where the chat would come back to where it was, nothing moves, and the reply is given up.
    """

    claimed: ClaimedReply
    to: str

    def statements(self, dialect: Dialect) -> Statements[Noted | Undo[Noted]]:
        """Note the move, then release the reply."""
        lease = self.claimed.lease
        to = yield from move_chat(lease.key.channel, self.claimed.recipient, self.to)
        if to is None:
            return (yield from BuryReply(self.claimed, CIRCLE).statements(dialect))
        if not (yield MOVE.of(self, to=to, **lease.parameters())):
            return Undo(_LOST)
        return (yield from _settle(self.claimed, dead=False))


# --- reports that come later ---------------------------------------------------------------------


@frozen
class Failure:
    """A report that a reply could not be delivered, though it had been taken.

    Attributes:
        key: The idempotency key of the reply, as the report has it.
        provider_id: What the provider calls the attempt, or "".
        error: For the operator.
    """

    key: str
    provider_id: str
    error: str


BURY_SENT: Final = Sql(
    """update outbox set state = 'dead', error = :error,
    provider_id = coalesce(nullif(:provider_id, ''), provider_id)
    where channel = :channel and idempotency_key = :key and state = 'sent'
    and coalesce(provider_id, '') in ('', :provider_id)
    returning message_id"""
)
# The report came before the provider's answer to us, which brings the same id.
NOTE_FAILURE: Final = Sql(
    """update outbox set error = :error, provider_id = :provider_id
    where channel = :channel and idempotency_key = :key and state = 'ready'
    and lease_by is not null and :provider_id <> ''
    and coalesce(provider_id, '') <> :provider_id
    returning message_id"""
)


@frozen
class Marked:
    """A reply that was marked as not delivered, and the message that it answers, if any."""

    failure: Failure
    message_id: str | None


@frozen
class MarkUndelivered(Unit[tuple[Marked, ...]]):
    """Replies are dead letters that the provider took and could not deliver; those that are new.

    A report that comes again, one of an attempt of before, and one of somebody else change nothing.
    """

    channel: str
    failures: tuple[Failure, ...]

    def statements(
        self, dialect: Dialect
    ) -> Statements[tuple[Marked, ...] | Undo[tuple[Marked, ...]]]:
        """Mark one by one."""
        marked: list[Marked] = []
        for failure in self.failures:
            rows = yield BURY_SENT.of(failure, channel=self.channel)
            if rows:
                yield bury_rest(self.channel, failure.key)
            else:
                rows = yield NOTE_FAILURE.of(failure, channel=self.channel)
            marked += [Marked(failure, message_id) for (message_id,) in rows]
        return tuple(marked) if marked else Undo(())
