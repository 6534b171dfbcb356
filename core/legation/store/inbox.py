"""Units of work on the inbox: messages that are stored before they are acknowledged.

The inbox is a leased queue whose lane is the sender of a message: nobody's messages wait for
those of another.  Completion puts the replies in the outbox in its own transaction: an answer
exists exactly when its message is done.  A message that is done keeps no content: what it said
stands in the run that answered it, and goes with that.
"""

from __future__ import annotations

from typing import Final

from attrs import field

from ..values import frozen
from .leased_queue import STANDS, ClaimedItem, CompleteItem, FailItem, Lease, LeasedQueue
from .leases import FOREVER, due_at, end_of_lease, fill_clock, is_due, is_held
from .outbox import NewReply, put_replies
from .units import Dialect, ReadUnit, Sql, Statements, Unit, text_array

__all__ = [
    "INBOX",
    "AttachRun",
    "ClaimedMessage",
    "CompleteMessage",
    "FailMessage",
    "GatherMessages",
    "KeepMessage",
    "ListWaiting",
    "MessageRow",
    "NewMessage",
    "PostponeMessage",
    "PutMessages",
    "WaitingMessage",
]


@frozen
class NewMessage:
    """A message to store; `payload` is the codec's JSON of it."""

    message_id: str
    sender: str = field(repr=False)
    payload: str = field(repr=False)


@frozen
class ClaimedMessage(ClaimedItem):
    """A message to work on; `run_id` names the run that an earlier attempt began, if any."""

    sender: str = field(repr=False)
    payload: str = field(repr=False)
    received_us: int
    position: int
    run_id: str | None


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


# The heads of the lanes are found by jumping from one to the next in the index of what is ready:
# what a claim costs grows with the number of senders who wait, not with that of their messages.
_LANE: Final = "order by channel, sender, received_us, position, message_id limit 1"
_CLAIM: Final = f"""with recursive {{heads}}, picked as materialized (
        select head.channel, head.message_id from heads
        join inbox as head on {{same}}
        where {STANDS} and head.state = 'ready' and {is_due("head")} and {{served}}
        and not exists (
            select 1 from inbox as busy where busy.state = 'ready' and busy.channel = head.channel
            and busy.sender = head.sender and {is_held("busy")}
        )
        order by head.ready_us, head.received_us, head.position, head.message_id
        limit :limit{{skip}}
    )
    update inbox set lease_by = :node, lease_us = {FOREVER}, attempts = attempts + 1
    from picked where inbox.channel = picked.channel and inbox.message_id = picked.message_id
    returning inbox.channel, inbox.message_id, attempts, sender,
    payload, received_us, position, run_id"""
_DUE: Final = f"""with recursive {{heads}}
    select min({{later}}({due_at("head")}, coalesce((
        select max({end_of_lease("busy")}) from inbox as busy where busy.state = 'ready'
        and busy.channel = head.channel and busy.sender = head.sender), 0)))
    from heads join inbox as head on {{same}} where head.state = 'ready' and {{served}}"""
_SQLITE: Final = {
    "heads": f"""heads (place) as (
        select (select rowid from inbox where state = 'ready' {_LANE})
        union all
        select coalesce(
            (select rowid from inbox where state = 'ready'
                and channel = before.channel and sender > before.sender {_LANE}),
            (select rowid from inbox where state = 'ready' and channel > before.channel {_LANE})
        ) from heads join inbox as before on before.rowid = place
    )""",
    "same": "head.rowid = place",
    "served": """(:channels is null
            or head.channel in (select value from json_each(:channels)))""",
}
_POSTGRESQL: Final = {
    "heads": f"""heads as (
        (select channel, sender, message_id from inbox where state = 'ready' {_LANE})
        union all
        select n.channel, n.sender, n.message_id from heads cross join lateral (
            select channel, sender, message_id from inbox where state = 'ready'
            and (channel, sender) > (heads.channel, heads.sender) {_LANE}
        ) as n
    )""",
    "same": "head.channel = heads.channel and head.message_id = heads.message_id",
    "served": """(cast(:channels as text[]) is null
            or head.channel = any (cast(:channels as text[])))""",
}
CLAIM: Final = fill_clock(
    _CLAIM.format(**_SQLITE, skip=""),
    _CLAIM.format(**_POSTGRESQL, skip=" for update of head skip locked"),
)
DUE: Final = fill_clock(
    _DUE.format(**_SQLITE, later="max"), _DUE.format(**_POSTGRESQL, later="greatest")
)
INBOX: Final = LeasedQueue(
    "inbox",
    order=("received_us", "position", "message_id"),
    end="done",
    claim=CLAIM,
    due=DUE,
    claimed=ClaimedMessage,
    row=MessageRow,
    lock=5075194603161137441,
    buried="done_us = $CLOCK, ",
    ended="payload = '', ",
)
PUT: Final = fill_clock(
    """insert into inbox
    (channel, message_id, sender, payload, state, received_us, position, ready_us, attempts)
    values (:channel, :message_id, :sender, :payload, 'ready', :now_us, :position, $CLOCK, 0)
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
            placed = {"channel": self.channel, "position": position, "now_us": self.now_us}
            rows = yield PUT.of(message, **placed)
            new += [message_id for (message_id,) in rows]
        return tuple(new)


ATTACH: Final = Sql(f"update inbox set run_id = :run_id {INBOX.held} returning message_id")


@frozen
class AttachRun(Unit[bool]):
    """Note which run answers the message, so that no later attempt begins a second one.

    False when the lease was lost: then the run must not begin.
    """

    lease: Lease
    run_id: str

    def statements(self, dialect: Dialect) -> Statements[bool]:
        """Update under the lease."""
        rows = yield ATTACH.of(self, **self.lease.parameters())
        return bool(rows)


KEEP: Final = Sql(f"update inbox set payload = :payload {INBOX.held} returning message_id")


@frozen
class KeepMessage(Unit[bool]):
    """Store what was learned of the message, so that no later attempt asks for it again.

    False when the lease was lost.
    """

    lease: Lease
    payload: str = field(repr=False)

    def statements(self, dialect: Dialect) -> Statements[bool]:
        """Update under the lease."""
        rows = yield KEEP.of(self, **self.lease.parameters())
        return bool(rows)


# --- gathered ----------------------------------------------------------------------------------

POSTPONE: Final = fill_clock(
    f"""update inbox set ready_us = $CLOCK + :wait_us, lease_by = null, lease_us = null {INBOX.held}
    returning message_id"""
)
WAITING: Final = Sql(
    """select payload, received_us from inbox
    where state = 'ready' and channel = :channel and sender = :sender
    and message_id <> :message_id and attempts = 0
    order by received_us, position, message_id limit :limit"""
)
TAKE: Final = Sql(
    f"update inbox set run_id = :run_id, payload = :payload {INBOX.held} returning message_id"
)
_END: Final = """update inbox set state = 'done', done_us = $CLOCK, run_id = :run_id, payload = ''
    where channel = :channel and state = 'ready' and attempts = 0
    and message_id {} returning message_id"""
END: Final = fill_clock(
    _END.format("in (select value from json_each(:others))"),
    _END.format("= any (cast(:others as text[]))"),
)


@frozen
class PostponeMessage(Unit[bool]):
    """Give the message back until `wait_us` from now; False when the lease was lost.

    It holds up its lane as long: what comes after it may belong to it.
    """

    lease: Lease
    wait_us: int

    def statements(self, dialect: Dialect) -> Statements[bool]:
        """Update under the lease."""
        return bool((yield POSTPONE.of(self, **self.lease.parameters())))


@frozen
class WaitingMessage:
    """A message that nobody has worked on."""

    payload: str = field(repr=False)
    received_us: int


@frozen
class ListWaiting(ReadUnit[tuple[WaitingMessage, ...]]):
    """The messages in the lane of `sender` behind the one under `lease`, the oldest first."""

    lease: Lease
    sender: str = field(repr=False)
    limit: int

    def statements(self, dialect: Dialect) -> Statements[tuple[WaitingMessage, ...]]:
        """Read as many as may be gathered."""
        rows = yield WAITING.of(self, **self.lease.parameters())
        return tuple(WaitingMessage(*row) for row in rows)


@frozen
class GatherMessages(Unit[bool]):
    """Note the run that answers the message, with all that belongs to it as its `payload`.

    `others` are done with it: what they say is in the payload.  False when the lease was lost.
    """

    lease: Lease
    run_id: str
    payload: str = field(repr=False)
    others: tuple[str, ...]

    def statements(self, dialect: Dialect) -> Statements[bool]:
        """Update under the lease, and only then the others."""
        held = yield TAKE.of(self, **self.lease.parameters())
        if held:
            others = text_array(dialect, self.others)
            yield END.of(self, channel=self.lease.key.channel, others=others)
        return bool(held)


@frozen
class CompleteMessage(CompleteItem):
    """The message is done and `replies` are its answer; False when the lease was lost."""

    now_us: int
    replies: tuple[NewReply, ...] = ()

    def statements(self, dialect: Dialect) -> Statements[bool]:
        """Complete under the lease, and only then put the replies."""
        return (yield from _answer(self, super().statements(dialect)))


@frozen
class FailMessage(FailItem):
    """Try again after `wait_us`, or never when None; False when the lease was lost.

    `replies` are for a message given up: an apology, so that nobody waits for ever.
    """

    now_us: int
    replies: tuple[NewReply, ...] = ()

    def statements(self, dialect: Dialect) -> Statements[bool]:
        """Fail under the lease, and only then put the replies."""
        return (yield from _answer(self, super().statements(dialect)))


def _answer(unit: CompleteMessage | FailMessage, change: Statements[bool]) -> Statements[bool]:
    """Make the change, and put the replies unless the lease was lost."""
    held = yield from change
    if held:
        yield from put_replies(unit.lease.key.channel, unit.replies, unit.now_us)
    return held
