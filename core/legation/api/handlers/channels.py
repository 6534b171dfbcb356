"""Channels as those see them who look after them: what waits, what is dead, and trying again.

The text of a message is never shown; whoever may read it asks for the session.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, Final, TypeAlias

from ...access.decide import Allow, AllowOnly, Decision, Deny
from ...channels.deliveries import sender_of
from ...effects import Concurrently, Interrupted, Interruptible, Now, Nudge, Program, Transact
from ...hosted.registry import HostedChannel, Registry
from ...http.bodies.reader import Reader
from ...http.messages import Response, json_response
from ...http.refusals import Conflict, NotFound
from ...messaging.conversations import find_owner
from ...runs.output import iso_time
from ...store.channel_states import HeldChannel, ListHeld
from ...store.failures import StoreFailure
from ...store.inbox import INBOX, MessageRow
from ...store.leased_queue import CountItems, ListItems, QueueDepth
from ...store.letters import FetchMessageRecord, RetryDeadMessage
from ...store.outbox import OUTBOX, ReplyRow
from ...values import frozen
from ..call import Call
from ..fields import NoQuery, choice, declare, integer
from ..json_schema import text
from ..listing import link_next

__all__ = [
    "SURVEY_SECONDS",
    "MessagesQuery",
    "RepliesQuery",
    "describe_message",
    "describe_reply",
    "find_channel",
    "get_message",
    "list_channels",
    "list_messages",
    "list_replies",
    "retry_message",
    "status",
    "survey",
]

_EVERY: Final = Allow()

SURVEY_SECONDS: Final = 1.0
"""For a database to count what waits: `/ready` answers within two."""

Summary: TypeAlias = dict[str, Any]


# --- all channels ------------------------------------------------------------------------------


def survey(
    registry: Registry, decision: Decision = _EVERY, ailing: AbstractSet[str] = frozenset()
) -> Program[tuple[Summary, ...]]:
    """Return the channels that `decision` opens, with what waits in each.

    That is null where the database is `ailing`, or does not answer within a second.
    """
    shown = [hosted for hosted in registry.channels.values() if _open(hosted.id, decision)]
    now_us = yield from Now()
    asked = sorted({hosted.component.database for hosted in shown} - ailing)
    counts = Concurrently(tuple(_count_in_time(database) for database in asked))
    found = dict(zip(asked, (yield from counts), strict=True))
    return tuple(_channel(hosted, found.get(hosted.component.database), now_us) for hosted in shown)


def _open(channel: str, decision: Decision) -> bool:
    if isinstance(decision, AllowOnly):
        return channel in decision.ids
    return not isinstance(decision, Deny)


@frozen
class _Counted:
    """The counts of one database, by the ids of its channels."""

    messages: dict[str, QueueDepth]
    replies: dict[str, QueueDepth]
    held: dict[str, HeldChannel]


def _count_in_time(database: str) -> Program[_Counted | None]:
    asked = Interruptible(_count(database), f"survey:{database}", SURVEY_SECONDS)
    counted = yield from asked
    return None if isinstance(counted, Interrupted) else counted


def _count(database: str) -> Program[_Counted | None]:
    try:
        messages = yield from Transact(database, CountItems(INBOX))
        replies = yield from Transact(database, CountItems(OUTBOX))
        held = yield from Transact(database, ListHeld())
    except StoreFailure:
        return None
    return _Counted(
        {m.channel: m for m in messages},
        {r.channel: r for r in replies},
        {h.channel: h for h in held},
    )


def _channel(hosted: HostedChannel, counted: _Counted | None, now_us: int) -> Summary:
    component = hosted.component
    summary: Summary = {
        "id": hosted.id,
        "kind": hosted.codec.kind,
        **({f"{component.kind}_id": component.id} if hosted.codec.receives else {}),
        "db_id": component.database,
        "messages": None,
        "replies": None,
    }
    if counted is not None:
        summary["messages"] = _depth(counted.messages.get(hosted.id), now_us)
        summary["replies"] = _depth(counted.replies.get(hosted.id), now_us)
        if (held := counted.held.get(hosted.id)) is not None:
            summary["held"] = {"since": iso_time(held.since_us), "reason": held.reason}
    return summary


def _depth(depth: QueueDepth | None, now_us: int) -> Summary:
    """Return how much waits, how much of it is in work, how old the oldest is, what is dead."""
    if depth is None:
        return {"ready": 0, "in_work": 0, "oldest_seconds": None, "dead": 0}
    oldest = None if depth.oldest_us is None else max(now_us - depth.oldest_us, 0) // 1_000_000
    return {
        "ready": depth.ready,
        "in_work": depth.leased,
        "oldest_seconds": oldest,
        "dead": depth.dead,
    }


def list_channels(call: Call, query: NoQuery) -> Program[Response]:
    """Return the channels that the caller may read, with what waits in each."""
    return json_response(200, (yield from survey(call.registry, call.decision)))


def status(_call: Call, _channel: HostedChannel) -> Response:
    """Return that the channel is there."""
    return json_response(200, {"status": "available"})


# --- the messages of one -----------------------------------------------------------------------


def _cursor(at_us: int, position: int, name: str) -> str:
    return urlsafe_b64encode(f"{at_us}.{position}.{name}".encode()).decode()


def _place(cursor: str) -> tuple[int, int, str] | None:
    """Return what `_cursor` wrote down, or None."""
    try:
        at_us, position, name = urlsafe_b64decode(cursor.encode()).decode().split(".", 2)
        place = int(at_us), int(position), name
    except ValueError:
        return None
    return place if 0 <= place[0] < 1 << 63 and 0 <= place[1] < 1 << 63 else None


def _read_place(read: Reader, name: str) -> tuple[int, int, str] | None:
    cursor = read.text(name, max_length=_CURSOR_LENGTH)
    place = None if cursor is None else _place(cursor)
    if cursor is not None and place is None:
        read.fault(name, "is no cursor of a page")
    return place


_CURSOR_LENGTH: Final = 1024
_SIZE: Final = integer("How many on a page", default=20, minimum=1, maximum=200)
_AFTER: Final = declare(
    text(maxLength=_CURSOR_LENGTH), _read_place, "Where the page before ended: its `meta.next`"
)


@frozen
class MessagesQuery:
    """A page of messages; `after` is where the one before it ended."""

    state: str = choice(("ready", "done", "dead"), default="dead")
    limit: int = _SIZE
    after: tuple[int, int, str] | None = _AFTER


@frozen
class RepliesQuery:
    """A page of replies; `after` is where the one before it ended."""

    state: str = choice(("ready", "sent", "dead"), default="dead")
    limit: int = _SIZE
    after: tuple[int, int, str] | None = _AFTER


def list_messages(call: Call, channel: HostedChannel, query: MessagesQuery) -> Program[Response]:
    """Return a page of the messages in one state, newest first."""
    listed = ListItems(INBOX, channel.id, query.state, query.limit + 1, query.after)
    rows = yield from Transact(channel.component.database, listed)
    page = rows[: query.limit]
    following = None
    if len(rows) > query.limit:
        last = page[-1]
        following = _cursor(last.received_us, last.position, last.message_id)
    return _page(call, [describe_message(channel, row) for row in page], query, following)


def list_replies(call: Call, channel: HostedChannel, query: RepliesQuery) -> Program[Response]:
    """Return a page of the replies in one state, newest first."""
    after = None if query.after is None else (query.after[0], query.after[2])
    listed = ListItems(OUTBOX, channel.id, query.state, query.limit + 1, after)
    rows = yield from Transact(channel.component.database, listed)
    page = rows[: query.limit]
    following = None
    if len(rows) > query.limit:
        following = _cursor(page[-1].created_us, 0, page[-1].idempotency_key)
    return _page(call, [describe_reply(row) for row in page], query, following)


_NO_MESSAGE: Final = "Message with ID {} not found"
NoMessage: TypeAlias = Annotated[NotFound, _NO_MESSAGE.format("no-such")]


def get_message(call: Call, channel: HostedChannel) -> Program[Response | NoMessage]:
    """Return one message with its replies."""
    message_id = call.params["message_id"]
    fetch = FetchMessageRecord(channel.id, message_id)
    letter = yield from Transact(channel.component.database, fetch)
    if letter is None:
        return NotFound(_NO_MESSAGE.format(message_id))
    summary = describe_message(channel, letter.message)
    summary["replies"] = [describe_reply(row) for row in letter.replies]
    return json_response(200, summary)


_NOT_DEAD: Final = "Neither the message nor a reply to it is among the dead letters"
NotDead: TypeAlias = Annotated[Conflict, _NOT_DEAD]


def retry_message(call: Call, channel: HostedChannel) -> Program[Response | NoMessage | NotDead]:
    """Take a message, or the replies to it, out of the dead letters for one attempt more."""
    message_id, database = call.params["message_id"], channel.component.database
    retry = RetryDeadMessage(channel.id, message_id)
    retried = yield from call.change(database, retry)
    if retried is None:
        return NotFound(_NO_MESSAGE.format(message_id))
    if not retried.message and not retried.replies:
        return Conflict(_NOT_DEAD)
    other = call.context.cluster.member(database).next_other()
    for topic in ("inbox", "outbox"):
        yield from Nudge(f"{topic}:{database}", database, other)
    summary = {"id": message_id, "message_retried": retried.message}
    return json_response(200, {**summary, "replies_retried": retried.replies})


# --- what a request names ----------------------------------------------------------------------


_NO_CHANNEL: Final = "Channel not found"
NoChannel: TypeAlias = Annotated[NotFound, _NO_CHANNEL]


def find_channel(call: Call, _: object) -> HostedChannel | NoChannel:
    """Return the channel that the path names."""
    return call.registry.channels.get(call.params["channel"]) or NotFound(_NO_CHANNEL)


# --- what is shown -----------------------------------------------------------------------------


def _page(
    call: Call, data: list[Summary], asked: MessagesQuery | RepliesQuery, following: str | None
) -> Response:
    meta = {"state": asked.state, "limit": asked.limit, "next": following}
    more = () if following is None else link_next(call.query, "after", following)
    return json_response(200, {"data": data, "meta": meta}, more)


def _item(row: MessageRow | ReplyRow, head: Summary, begun: Summary) -> Summary:
    """Return what messages and replies have alike; `begun` says when it came to be."""
    return {
        **head,
        "state": row.state,
        **begun,
        "next_attempt_at": iso_time(row.ready_us) if row.state == "ready" else None,
        "attempts": row.attempts,
        "error": row.error,
    }


def describe_message(channel: HostedChannel | None, row: MessageRow) -> Summary:
    """Return a message; where its session may be of several owners, the run knows whose it is.

    Of a channel that is not hosted any more nobody knows whose.
    """
    sender = sender_of(row.sender)
    head = {"id": row.message_id, "sender": sender}
    return {
        **_item(row, head, {"received_at": iso_time(row.received_us)}),
        # A word that decides has noted the approval that it is for: the run and its pause.
        "run_id": row.run_id and row.run_id.partition(".")[0],
        "session_owner": None if channel is None else find_owner(channel, sender),
        "done_at": None if row.done_us is None else iso_time(row.done_us),
    }


def describe_reply(row: ReplyRow) -> Summary:
    """Return a reply."""
    head = {"id": row.idempotency_key, "recipient": row.recipient}
    sent_at = None if row.sent_us is None else iso_time(row.sent_us)
    return {**_item(row, head, {"created_at": iso_time(row.created_us)}), "sent_at": sent_at}
