"""Units of work on the inbox: messages that are stored before they are acknowledged.

The protocol.  A message is `ready` until it is `done` or `dead`.  No state is called leased:
leased means that `lease_us` lies ahead, and then `lease_by` names the node at work.

* *Claim is rescue.*  One statement takes what is ready and what a dead node left behind alike.
* *Fencing.*  Every claim counts `attempts` up, and every later statement asks for the same node
  and the same number.  Whoever lost the lease changes nothing and learns it from the result.
* *One lane per sender.*  Only the oldest ready message of a sender may be claimed, and none while
  another one of that sender is leased; so a message that waits for its next attempt holds up
  its sender's later ones, and nobody else's.
* Completion puts the replies in the outbox in its own transaction: an answer exists exactly when
  its message is done.

On PostgreSQL claims take turns (a transaction-scoped advisory lock): otherwise two statements
that began at once, one of which cannot see a message stored in between, could lease two
messages of one sender.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from attrs import field

from ..values import frozen
from .outbox import NewReply, put_replies, text_array
from .units import Dialect, Sql, Statements, Unit

__all__ = [
    "AttachRun",
    "ClaimMessages",
    "ClaimedMessage",
    "ClaimedMessages",
    "CompleteMessage",
    "CountMessages",
    "ExtendLeases",
    "FailMessage",
    "ForgetMessages",
    "Lease",
    "ListMessages",
    "MessageDepth",
    "MessageKey",
    "MessagePlace",
    "MessageRow",
    "NewMessage",
    "PutMessages",
    "ReleaseMessages",
]


@frozen
class NewMessage:
    """A message to store; `payload` is the codec's JSON of it."""

    message_id: str
    sender: str = field(repr=False)
    payload: str = field(repr=False)


@frozen
class MessageKey:
    """The primary key of the inbox."""

    channel: str
    message_id: str


@frozen
class Lease:
    """The right to work on one message: `attempts` is the fencing token."""

    key: MessageKey
    node: str
    attempts: int


@frozen
class ClaimedMessage:
    """A message to work on; `run_id` names the run that an earlier attempt began, if any."""

    lease: Lease
    sender: str = field(repr=False)
    payload: str = field(repr=False)
    received_us: int
    position: int
    run_id: str | None


@frozen
class ClaimedMessages:
    """What a claim brought: work, and the messages it gave up for lost."""

    messages: tuple[ClaimedMessage, ...] = ()
    buried: tuple[MessageKey, ...] = ()


@frozen
class MessageRow:
    """A message as an operator sees it: without its text."""

    channel: str
    message_id: str
    sender: str = field(repr=False)
    state: str
    received_us: int
    position: int
    ready_us: int
    attempts: int
    error: str | None
    run_id: str | None
    done_us: int | None


@frozen
class MessagePlace:
    """Where a page of messages ended."""

    received_us: int
    position: int
    message_id: str


@frozen
class MessageDepth:
    """How much of one channel waits; `oldest_us` is when the oldest waiting message came."""

    channel: str
    ready: int
    leased: int
    dead: int
    oldest_us: int | None


# --- to receive --------------------------------------------------------------------------------

PUT: Final = Sql(
    """insert into inbox
    (channel, message_id, sender, payload, state, received_us, position, ready_us, attempts)
    values (:channel, :message_id, :sender, :payload, 'ready', :now_us, :position, :now_us, 0)
    on conflict do nothing returning message_id"""
)


@frozen
class PutMessages(Unit[tuple[str, ...]]):
    """Store every message of one delivery; the ids of those that were new."""

    channel: str
    messages: tuple[NewMessage, ...]
    now_us: int

    def statements(self, dialect: Dialect) -> Statements[tuple[str, ...]]:
        """Insert each in its place; an id that is there already is a duplicate."""
        new: list[str] = []
        for position, message in enumerate(self.messages):
            rows = yield PUT(
                channel=self.channel,
                message_id=message.message_id,
                sender=message.sender,
                payload=message.payload,
                now_us=self.now_us,
                position=position,
            )
            new += [message_id for (message_id,) in rows]
        return tuple(new)


# --- to work -----------------------------------------------------------------------------------

LOCK: Final = Sql("select 1", "select pg_advisory_xact_lock(5075194603161137441)")
BURY: Final = Sql(
    """update inbox set state = 'dead', lease_by = null, lease_us = null,
    done_us = :now_us, error = 'every attempt ended without an answer'
    where state = 'ready' and lease_us <= :now_us and attempts >= :max_attempts
    returning channel, message_id"""
)
# The heads of the lanes are found by jumping from one to the next in the index of what is ready:
# what a claim costs grows with the number of senders who wait, not with that of their messages.
_LANE: Final = "order by channel, sender, received_us, position, message_id limit 1"
_CLAIM: Final = """with recursive {heads}, picked as materialized (
        select head.channel, head.message_id from heads
        join inbox as head on {same}
        where head.state = 'ready' and head.ready_us <= :now_us and {served}
        and not exists (
            select 1 from inbox as busy where busy.state = 'ready' and busy.channel = head.channel
            and busy.sender = head.sender and busy.lease_us > :now_us
        )
        order by head.ready_us, head.received_us, head.position, head.message_id
        limit :limit{skip}
    )
    update inbox set lease_by = :node, lease_us = :lease_us, attempts = attempts + 1
    from picked where inbox.channel = picked.channel and inbox.message_id = picked.message_id
    returning inbox.channel, inbox.message_id, attempts, sender,
    payload, received_us, position, run_id"""
CLAIM: Final = Sql(
    _CLAIM.format(
        heads=f"""heads (place) as (
        select (select rowid from inbox where state = 'ready' {_LANE})
        union all
        select coalesce(
            (select rowid from inbox where state = 'ready'
                and channel = before.channel and sender > before.sender {_LANE}),
            (select rowid from inbox where state = 'ready' and channel > before.channel {_LANE})
        ) from heads join inbox as before on before.rowid = place
    )""",
        same="head.rowid = place",
        served="""(:channels is null
            or head.channel in (select value from json_each(:channels)))""",
        skip="",
    ),
    _CLAIM.format(
        heads=f"""heads as (
        (select channel, sender, message_id from inbox where state = 'ready' {_LANE})
        union all
        select n.channel, n.sender, n.message_id from heads cross join lateral (
            select channel, sender, message_id from inbox where state = 'ready'
            and (channel, sender) > (heads.channel, heads.sender) {_LANE}
        ) as n
    )""",
        same="head.channel = heads.channel and head.message_id = heads.message_id",
        served="""(cast(:channels as text[]) is null
            or head.channel = any (cast(:channels as text[])))""",
        skip=" for update of head skip locked",
    ),
)


@frozen
class ClaimMessages(Unit[ClaimedMessages]):
    """Lease up to `limit` messages until `lease_us`: the oldest of each sender.

    A message whose `max_attempts` leases all ran out kills whoever touches it: it is buried.
    With `channels`, those of others are left alone: another node knows them.
    """

    node: str
    now_us: int
    lease_us: int
    limit: int
    max_attempts: int
    channels: tuple[str, ...] | None = None

    def statements(self, dialect: Dialect) -> Statements[ClaimedMessages]:
        """Bury what was tried too often without an end, then claim."""
        if dialect is Dialect.POSTGRESQL:
            yield LOCK()
        dead = yield BURY(now_us=self.now_us, max_attempts=self.max_attempts)
        rows = yield CLAIM(
            node=self.node,
            now_us=self.now_us,
            lease_us=self.lease_us,
            limit=self.limit,
            channels=text_array(dialect, self.channels),
        )
        claimed = [
            ClaimedMessage(Lease(MessageKey(channel, message_id), self.node, attempts), *rest)
            for channel, message_id, attempts, *rest in rows
        ]
        claimed.sort(key=lambda m: (m.received_us, m.position, m.lease.key.message_id))
        return ClaimedMessages(tuple(claimed), tuple(MessageKey(*row) for row in dead))


_HELD: Final = """where channel = :channel and message_id = :message_id
    and state = 'ready' and lease_by = :node and attempts = :attempts"""
ATTACH: Final = Sql(f"update inbox set run_id = :run_id {_HELD} returning message_id")
COMPLETE: Final = Sql(
    f"""update inbox set state = 'done', done_us = :now_us, run_id = coalesce(:run_id, run_id),
    error = null, lease_by = null, lease_us = null {_HELD}
    returning message_id"""
)
FAIL: Final = Sql(
    f"""update inbox set state = 'ready', ready_us = :retry_us, error = :error,
    lease_by = null, lease_us = null {_HELD}
    returning message_id"""
)
GIVE_UP: Final = Sql(
    f"""update inbox set state = 'dead', done_us = :now_us, error = :error,
    lease_by = null, lease_us = null {_HELD}
    returning message_id"""
)
# A lease that ran out is not revived, even where nobody took the row: its lane may be in use.
EXTEND: Final = Sql(
    f"""update inbox set lease_us = :lease_us {_HELD} and lease_us > :now_us
    returning message_id"""
)


def _lease_fields(lease: Lease) -> dict[str, Any]:
    return {
        "channel": lease.key.channel,
        "message_id": lease.key.message_id,
        "node": lease.node,
        "attempts": lease.attempts,
    }


@frozen
class AttachRun(Unit[bool]):
    """Note which run answers the message, so that no later attempt begins a second one.

    False when the lease was lost: then the run must not begin.
    """

    lease: Lease
    run_id: str

    def statements(self, dialect: Dialect) -> Statements[bool]:
        """Update under the lease."""
        rows = yield ATTACH(run_id=self.run_id, **_lease_fields(self.lease))
        return bool(rows)


@frozen
class CompleteMessage(Unit[bool]):
    """The message is done and `replies` are its answer; False when the lease was lost."""

    lease: Lease
    now_us: int
    replies: tuple[NewReply, ...] = ()
    run_id: str | None = None

    def statements(self, dialect: Dialect) -> Statements[bool]:
        """Complete under the lease, and only then put the replies."""
        rows = yield COMPLETE(now_us=self.now_us, run_id=self.run_id, **_lease_fields(self.lease))
        if rows:
            yield from put_replies(self.lease.key.channel, self.replies, self.now_us)
        return bool(rows)


@frozen
class FailMessage(Unit[bool]):
    """Try again at `retry_us`, or never when None; False when the lease was lost.

    `replies` are for a message given up: an apology, so that nobody waits for ever.
    """

    lease: Lease
    error: str
    retry_us: int | None
    now_us: int
    replies: tuple[NewReply, ...] = ()

    def statements(self, dialect: Dialect) -> Statements[bool]:
        """Fail under the lease, and only then put the replies."""
        held = _lease_fields(self.lease)
        if self.retry_us is None:
            rows = yield GIVE_UP(now_us=self.now_us, error=self.error, **held)
        else:
            rows = yield FAIL(retry_us=self.retry_us, error=self.error, **held)
        if rows:
            yield from put_replies(self.lease.key.channel, self.replies, self.now_us)
        return bool(rows)


@frozen
class ExtendLeases(Unit[tuple[Lease, ...]]):
    """Keep `leases` until `lease_us`; those that are still held.  The others are to be dropped."""

    leases: tuple[Lease, ...]
    now_us: int
    lease_us: int

    def statements(self, dialect: Dialect) -> Statements[tuple[Lease, ...]]:
        """Extend one by one: what nobody works on any more is not named, and runs out."""
        kept: list[Lease] = []
        for lease in self.leases:
            rows = yield EXTEND(now_us=self.now_us, lease_us=self.lease_us, **_lease_fields(lease))
            kept += [lease] * len(rows)
        return tuple(kept)


RELEASE: Final = Sql(
    f"update inbox set lease_by = null, lease_us = null {_HELD} returning message_id"
)


@frozen
class ReleaseMessages(Unit[int]):
    """Give `leases` back before their time, so that another node claims at once; how many."""

    leases: tuple[Lease, ...]

    def statements(self, dialect: Dialect) -> Statements[int]:
        """Update one by one; `attempts` stays, for a fencing token never goes back."""
        released = 0
        for lease in self.leases:
            released += len((yield RELEASE(**_lease_fields(lease))))
        return released


# --- to look after -----------------------------------------------------------------------------

_COLUMNS: Final = (
    "channel, message_id, sender, state, received_us, position, ready_us, attempts, error,"
    " run_id, done_us"
)
_PAGE: Final = f"""select {_COLUMNS} from inbox where channel = :channel and state = :state
    {{after}} order by received_us desc, position desc, message_id desc limit :limit"""
LIST: Final = Sql(_PAGE.format(after=""))
LIST_AFTER: Final = Sql(
    _PAGE.format(
        after="and (received_us, position, message_id) < (:received_us, :position, :message_id)"
    )
)
COUNT: Final = Sql(
    """select channel, count(*) filter (where state = 'ready'),
    count(*) filter (where state = 'ready' and lease_us > :now_us),
    count(*) filter (where state = 'dead'), min(received_us) filter (where state = 'ready')
    from inbox where state in ('ready', 'dead') group by channel order by channel"""
)
FORGET: Final = Sql(
    """delete from inbox where (channel, message_id) in (
        select channel, message_id from inbox
        where state = 'done' and done_us < :before_us limit :limit
    ) returning message_id"""
)


@frozen
class ListMessages(Unit[tuple[MessageRow, ...]]):
    """The messages of `channel` in `state`, newest first, behind `after`."""

    writes: ClassVar[bool] = False

    channel: str
    state: str
    limit: int
    after: MessagePlace | None = None

    def statements(self, dialect: Dialect) -> Statements[tuple[MessageRow, ...]]:
        """Read one page."""
        page: dict[str, Any] = {"channel": self.channel, "state": self.state, "limit": self.limit}
        if self.after is None:
            rows = yield LIST(**page)
        else:
            rows = yield LIST_AFTER(
                received_us=self.after.received_us,
                position=self.after.position,
                message_id=self.after.message_id,
                **page,
            )
        return tuple(MessageRow(*row) for row in rows)


@frozen
class CountMessages(Unit[tuple[MessageDepth, ...]]):
    """How much waits in each channel that has anything waiting or dead."""

    writes: ClassVar[bool] = False

    now_us: int

    def statements(self, dialect: Dialect) -> Statements[tuple[MessageDepth, ...]]:
        """Count what is not done with."""
        rows = yield COUNT(now_us=self.now_us)
        return tuple(MessageDepth(*row) for row in rows)


@frozen
class ForgetMessages(Unit[int]):
    """Delete up to `limit` messages that were done before `before_us`; how many.

    Providers deliver again for a week; whoever forgets an id sooner answers twice.
    """

    before_us: int
    limit: int

    def statements(self, dialect: Dialect) -> Statements[int]:
        """Delete one batch."""
        rows = yield FORGET(before_us=self.before_us, limit=self.limit)
        return len(rows)
