"""Messages that nobody asked for: an operator, or a program, writes to a person of a channel first.

They go the way of every reply: whether one is sent is seen in the list of replies.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from ...channels.deliveries import IncomingMessage
from ...channels.replies import Reply, first_key, outbox_rows
from ...effects import Now, Nudge, Program
from ...hosted.registry import HostedChannel
from ...http.bodies.reader import Reader
from ...http.messages import Response, json_response
from ...http.refusals import Conflict, Fault, Invalid, NotFound
from ...messaging.conversations import find_conversation
from ...store.first_messages import OPTED_OUT, PutFirstMessage, Window
from ...values import frozen
from ..call import Call
from ..chosen_ids import PRINTED
from ..fields import declare, text
from . import channels

__all__ = ["MessageRequest", "find_channel", "send"]

_LONGEST_ID: Final = 256
_LONGEST_TEXT: Final = 20_000
_ID: Final = {"type": "string", "minLength": 1, "maxLength": _LONGEST_ID, "pattern": PRINTED}


def _read_id(read: Reader, name: str, *, required: bool = False) -> str | None:
    given = read.line(name, max_length=_LONGEST_ID, required=required)
    if given == "":
        read.fault(name, "must not be empty")
    return given


def _read_recipient(read: Reader, name: str) -> str | None:
    return _read_id(read, name, required=True)


@frozen
class MessageRequest:
    """A message to a person, or to a conversation of several."""

    recipient: str = declare(
        _ID, _read_recipient, "As `sender` of a message or `recipient` of a reply", required=True
    )
    text: str = text("In Markdown", max_length=_LONGEST_TEXT, required=True)
    thread: str | None = declare(
        _ID, _read_id, "The thread or topic, as the provider names it", nullable=True
    )


def find_channel(call: Call, given: object) -> HostedChannel | channels.NoChannel:
    """Return the channel that the path names: one with people."""
    found = channels.find_channel(call, given)
    if isinstance(found, HostedChannel) and not found.codec.receives:
        return NotFound("Channel not found")
    return found


_OUT: Final = "This person opted out of messages, and has to write /start first"
_CLOSED: Final = (
    "This person has not written in the last {} hours: until they do, the provider takes no message"
)
OptedOut: TypeAlias = Annotated[Conflict, _OUT]
Closed: TypeAlias = Annotated[Conflict, _CLOSED.format(24)]
_EMPTY: Final = Fault("body.text", "has nothing that can be seen")


def send(
    call: Call, channel: HostedChannel, body: MessageRequest
) -> Program[Response | OptedOut | Closed | Invalid]:
    """Put a message to a person among the replies that are going to be sent.

    It is refused where the person opted out, and where the provider would refuse it because the
    person has not written for too long.
    """
    codec, recipient, thread = channel.codec, body.recipient, body.thread or ""
    if fault := codec.address_fault(recipient, thread):
        return Invalid((Fault(f"body.{fault[0]}", fault[1]),))
    name = yield from call.new_id("message")
    now_us = yield from Now()
    replies = tuple(
        Reply(first_key(name, number), recipient, part.text, thread, "", now_us, part.spans)
        for number, part in enumerate(codec.compose(body.text), start=1)
    )
    if not replies:
        return Invalid((_EMPTY,))
    # Whose sessions say when a person wrote last is not known here where a function knows it.
    known = channel.options.find_subject is None
    seconds = codec.window_seconds(recipient) if known else None
    window = None if seconds is None else _window(channel, recipient, now_us - seconds * 1_000_000)
    unit = PutFirstMessage(channel.id, recipient, outbox_rows(replies), now_us, window)
    refused = yield from call.change(channel.component.database, unit)
    if refused:
        hours = (seconds or 0) // 3600
        return Conflict(_OUT if refused == OPTED_OUT else _CLOSED.format(hours))
    database = channel.component.database
    other = call.context.cluster.member(database).next_other()
    yield from Nudge(f"outbox:{database}", database, other)
    ids = [reply.key for reply in replies]
    return json_response(call.success, {"ids": ids, "state": "ready"})


def _window(channel: HostedChannel, person: str, since_us: int) -> Window:
    direct = find_conversation(channel, IncomingMessage("", person))
    return Window(direct.owner, direct.base, since_us)
