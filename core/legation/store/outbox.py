"""Units of work on the outbox: replies that are stored before they are sent.

A reply is sent at least once, in the order of its recipient, under an idempotency key that never
changes.  How leases work here is told in `inbox`; the lane of a reply is its recipient.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar, Final

from attrs import field

from ..values import frozen
from .units import Dialect, Sql, Statements, Unit

__all__ = [
    "ClaimReplies",
    "ClaimedReplies",
    "ClaimedReply",
    "CountReplies",
    "ExtendReplyLeases",
    "FailReply",
    "ForgetReplies",
    "ListReplies",
    "MarkSent",
    "NewReply",
    "ReleaseReplies",
    "ReplyDepth",
    "ReplyKey",
    "ReplyLease",
    "ReplyPlace",
    "ReplyRow",
    "put_replies",
    "text_array",
]


@frozen
class NewReply:
    """A reply to store; `payload` is what the channel's codec needs to send it."""

    idempotency_key: str
    recipient: str = field(repr=False)
    payload: str = field(repr=False)


@frozen
class ReplyKey:
    """The primary key of the outbox."""

    channel: str
    idempotency_key: str


@frozen
class ReplyLease:
    """The right to send one reply: `attempts` is the fencing token."""

    key: ReplyKey
    node: str
    attempts: int


@frozen
class ClaimedReply:
    """A reply to send, and the lease under which to."""

    lease: ReplyLease
    recipient: str = field(repr=False)
    payload: str = field(repr=False)
    created_us: int


@frozen
class ClaimedReplies:
    """What a claim brought: work, and the replies it gave up for lost."""

    replies: tuple[ClaimedReply, ...] = ()
    buried: tuple[ReplyKey, ...] = ()


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


@frozen
class ReplyPlace:
    """Where a page of replies ended."""

    created_us: int
    idempotency_key: str


@frozen
class ReplyDepth:
    """How much of one channel waits; `oldest_us` is when the oldest waiting reply was written."""

    channel: str
    ready: int
    leased: int
    dead: int
    oldest_us: int | None


# --- to write ----------------------------------------------------------------------------------

PUT: Final = Sql(
    """insert into outbox
    (channel, idempotency_key, recipient, payload, state, created_us, ready_us, attempts)
    values (:channel, :idempotency_key, :recipient, :payload, 'ready', :created_us, :now_us, 0)
    on conflict do nothing returning idempotency_key"""
)


def put_replies(
    channel: str, replies: Iterable[NewReply], now_us: int
) -> Statements[tuple[str, ...]]:
    """Store `replies` and return the keys that were new; part of a larger unit.

    Each is a microsecond younger than the one before it: the parts of an answer stay in order.
    """
    new: list[str] = []
    for place, reply in enumerate(replies):
        rows = yield PUT(
            channel=channel,
            idempotency_key=reply.idempotency_key,
            recipient=reply.recipient,
            payload=reply.payload,
            created_us=now_us + place,
            now_us=now_us,
        )
        new += [key for (key,) in rows]
    return tuple(new)


# --- to send -----------------------------------------------------------------------------------

LOCK: Final = Sql("select 1", "select pg_advisory_xact_lock(5075194603161137442)")
BURY: Final = Sql(
    """update outbox set state = 'dead', lease_by = null, lease_us = null,
    error = 'every attempt ended without an answer'
    where state = 'ready' and lease_us <= :now_us and attempts >= :max_attempts
    returning channel, idempotency_key"""
)
# `place` is the row's place in its lane, `busy` the end of the latest lease there.  Nothing is
# joined before a few are picked: without statistics PostgreSQL would do it by loops within loops.
# What the row itself says is asked once more where it is changed, for PostgreSQL may have waited.
_CLAIM: Final = """with lanes as (
        select channel, idempotency_key, ready_us, created_us,
        row_number() over (lane order by created_us, idempotency_key) as place,
        max(lease_us) over lane as busy
        from outbox where state = 'ready' window lane as (partition by channel, recipient)
    ), picked as materialized (
        select channel, idempotency_key from lanes
        where place = 1 and coalesce(busy, 0) <= :now_us and ready_us <= :now_us and {served}
        order by ready_us, created_us, idempotency_key limit :limit
    )
    update outbox set lease_by = :node, lease_us = :lease_us, attempts = attempts + 1
    from picked where outbox.channel = picked.channel
    and outbox.idempotency_key = picked.idempotency_key and state = 'ready'
    and ready_us <= :now_us and coalesce(lease_us, 0) <= :now_us
    returning outbox.channel, outbox.idempotency_key, attempts, recipient, payload,
    created_us"""
CLAIM: Final = Sql(
    _CLAIM.format(
        served="(:channels is null or channel in (select value from json_each(:channels)))",
    ),
    _CLAIM.format(
        served="""(cast(:channels as text[]) is null
            or channel = any (cast(:channels as text[])))""",
    ),
)


def text_array(dialect: Dialect, texts: tuple[str, ...] | None) -> str | list[str] | None:
    """Return `texts` as the parameter that stands for a list: JSON on SQLite."""
    if texts is None:
        return None
    return json.dumps(texts) if dialect is Dialect.SQLITE else list(texts)


@frozen
class ClaimReplies(Unit[ClaimedReplies]):
    """Lease up to `limit` replies until `lease_us`: the oldest of each recipient.

    With `channels`, those of others are left alone: another node knows them.
    """

    node: str
    now_us: int
    lease_us: int
    limit: int
    max_attempts: int
    channels: tuple[str, ...] | None = None

    def statements(self, dialect: Dialect) -> Statements[ClaimedReplies]:
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
            ClaimedReply(ReplyLease(ReplyKey(channel, key), self.node, attempts), *rest)
            for channel, key, attempts, *rest in rows
        ]
        claimed.sort(key=lambda reply: (reply.created_us, reply.lease.key.idempotency_key))
        return ClaimedReplies(tuple(claimed), tuple(ReplyKey(*row) for row in dead))


_HELD: Final = """where channel = :channel and idempotency_key = :idempotency_key
    and state = 'ready' and lease_by = :node and attempts = :attempts"""
SENT: Final = Sql(
    f"""update outbox set state = 'sent', sent_us = :now_us, error = null,
    lease_by = null, lease_us = null {_HELD}
    returning idempotency_key"""
)
FAIL: Final = Sql(
    f"""update outbox set state = :state, ready_us = :ready_us, error = :error,
    lease_by = null, lease_us = null {_HELD}
    returning idempotency_key"""
)
# A lease that ran out is not revived, even where nobody took the row: its lane may be in use.
EXTEND: Final = Sql(
    f"""update outbox set lease_us = :lease_us {_HELD} and lease_us > :now_us
    returning idempotency_key"""
)


def _lease_fields(lease: ReplyLease) -> dict[str, Any]:
    return {
        "channel": lease.key.channel,
        "idempotency_key": lease.key.idempotency_key,
        "node": lease.node,
        "attempts": lease.attempts,
    }


@frozen
class MarkSent(Unit[bool]):
    """The provider has the reply; False when the lease was lost."""

    lease: ReplyLease
    now_us: int

    def statements(self, dialect: Dialect) -> Statements[bool]:
        """Update under the lease."""
        rows = yield SENT(now_us=self.now_us, **_lease_fields(self.lease))
        return bool(rows)


@frozen
class FailReply(Unit[bool]):
    """Try again at `retry_us`, or never when None; False when the lease was lost."""

    lease: ReplyLease
    error: str
    retry_us: int | None
    now_us: int

    def statements(self, dialect: Dialect) -> Statements[bool]:
        """Update under the lease."""
        rows = yield FAIL(
            state="dead" if self.retry_us is None else "ready",
            ready_us=self.now_us if self.retry_us is None else self.retry_us,
            error=self.error,
            **_lease_fields(self.lease),
        )
        return bool(rows)


@frozen
class ExtendReplyLeases(Unit[tuple[ReplyLease, ...]]):
    """Keep `leases` until `lease_us`; those that are still held.  The others are to be dropped."""

    leases: tuple[ReplyLease, ...]
    now_us: int
    lease_us: int

    def statements(self, dialect: Dialect) -> Statements[tuple[ReplyLease, ...]]:
        """Extend one by one: what nobody works on any more is not named, and runs out."""
        kept: list[ReplyLease] = []
        for lease in self.leases:
            rows = yield EXTEND(now_us=self.now_us, lease_us=self.lease_us, **_lease_fields(lease))
            kept += [lease] * len(rows)
        return tuple(kept)


RELEASE: Final = Sql(
    f"update outbox set lease_by = null, lease_us = null {_HELD} returning idempotency_key"
)


@frozen
class ReleaseReplies(Unit[int]):
    """Give `leases` back before their time, so that another node claims at once; how many."""

    leases: tuple[ReplyLease, ...]

    def statements(self, dialect: Dialect) -> Statements[int]:
        """Update one by one; `attempts` stays, for a fencing token never goes back."""
        released = 0
        for lease in self.leases:
            released += len((yield RELEASE(**_lease_fields(lease))))
        return released


# --- to look after -----------------------------------------------------------------------------

_COLUMNS: Final = (
    "channel, idempotency_key, recipient, state, created_us, ready_us, attempts, error, sent_us"
)
_PAGE: Final = f"""select {_COLUMNS} from outbox where channel = :channel and state = :state
    {{after}} order by created_us desc, idempotency_key desc limit :limit"""
LIST: Final = Sql(_PAGE.format(after=""))
LIST_AFTER: Final = Sql(
    _PAGE.format(after="and (created_us, idempotency_key) < (:created_us, :idempotency_key)")
)
COUNT: Final = Sql(
    """select channel, count(*) filter (where state = 'ready'),
    count(*) filter (where state = 'ready' and lease_us > :now_us),
    count(*) filter (where state = 'dead'), min(created_us) filter (where state = 'ready')
    from outbox where state in ('ready', 'dead') group by channel order by channel"""
)
FORGET: Final = Sql(
    """delete from outbox where (channel, idempotency_key) in (
        select channel, idempotency_key from outbox
        where state = 'sent' and sent_us < :before_us limit :limit
    ) returning idempotency_key"""
)


@frozen
class ListReplies(Unit[tuple[ReplyRow, ...]]):
    """The replies of `channel` in `state`, newest first, behind `after`."""

    writes: ClassVar[bool] = False

    channel: str
    state: str
    limit: int
    after: ReplyPlace | None = None

    def statements(self, dialect: Dialect) -> Statements[tuple[ReplyRow, ...]]:
        """Read one page."""
        page: dict[str, Any] = {"channel": self.channel, "state": self.state, "limit": self.limit}
        if self.after is None:
            rows = yield LIST(**page)
        else:
            rows = yield LIST_AFTER(
                created_us=self.after.created_us,
                idempotency_key=self.after.idempotency_key,
                **page,
            )
        return tuple(ReplyRow(*row) for row in rows)


@frozen
class CountReplies(Unit[tuple[ReplyDepth, ...]]):
    """How much waits in each channel that has anything waiting or dead."""

    writes: ClassVar[bool] = False

    now_us: int

    def statements(self, dialect: Dialect) -> Statements[tuple[ReplyDepth, ...]]:
        """Count what is not done with."""
        rows = yield COUNT(now_us=self.now_us)
        return tuple(ReplyDepth(*row) for row in rows)


@frozen
class ForgetReplies(Unit[int]):
    """Delete up to `limit` replies that were sent before `before_us`; how many."""

    before_us: int
    limit: int

    def statements(self, dialect: Dialect) -> Statements[int]:
        """Delete one batch."""
        rows = yield FORGET(before_us=self.before_us, limit=self.limit)
        return len(rows)
