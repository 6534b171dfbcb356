"""The webhooks of channels: what is stored is acknowledged, and nothing else.

The provider's signature is checked over the bytes as they came, before anything is made of them.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from ...channels.deliveries import Challenge, Delivery, Ignored, NotUnderstood, inbox_rows
from ...channels.signatures import SignatureRefused
from ...effects import Log, Nudge, Program, ReadBody, Transact
from ...hosted.registry import HostedChannel
from ...http.bodies.forms import parse_query
from ...http.messages import Headers, Response, json_response, text_response
from ...http.refusals import (
    BadRequest,
    BadSignature,
    Fault,
    Invalid,
    NotFound,
    TooLarge,
    TooManyRequests,
)
from ...store.inbox import PutMessages
from ..call import Call

__all__ = ["LIMIT", "find_channel", "receive", "verify"]

LIMIT: Final = 4 << 20
"""The longest delivery, in bytes."""

# A sign that the provider has changed, or that the wrong number is configured.
_STRANGE: Final = frozenset({"malformed", "another number"})
_PLAIN: Final[Headers] = ((b"x-content-type-options", b"nosniff"),)


_NO_JSON: Final = "The body has to be JSON; it is {}"
NotJson: TypeAlias = Annotated[BadRequest, _NO_JSON.format("not JSON at line 1, column 2")]
TooLong: TypeAlias = Annotated[TooLarge, LIMIT]


def receive(
    call: Call, channel: HostedChannel
) -> Program[Response | NotJson | BadSignature | TooLong | TooManyRequests]:
    """Store every message of a delivery; answer once they are stored."""
    if refusal := call.begin_body():
        return refusal
    body = yield from ReadBody(LIMIT)
    if body is None:
        return TooLarge(LIMIT)
    if (held := call.audit.arrival.reading) is not None:
        held.keep(len(body))
    verified = channel.codec.verify(call.request.headers, body, call.now_us)
    if isinstance(verified, SignatureRefused):
        if call.surface.telemetry.refusals.may_log(call.now_us):
            fields = (("channel", channel.id), ("reason", verified.reason))
            yield from Log("warning", "delivery_refused", fields)
        return BadSignature()
    parsed = channel.codec.parse(verified)
    match parsed:
        case NotUnderstood():
            return BadRequest(_NO_JSON.format(parsed.reason))
        case Challenge():
            return text_response(200, parsed.text, headers=_PLAIN)
        case Ignored():
            if parsed.malformed:
                yield from _log_ignored(channel, "malformed")
            return json_response(200, {"status": "ignored", "reason": parsed.reason})
        case _:
            messages = inbox_rows(parsed)
            yield from _log_undelivered(channel, parsed)
    if not messages:
        return _status("ignored")
    database = channel.component.database
    put = PutMessages(channel.id, messages, call.now_us)
    if not (yield from Transact(database, put)):
        return _status("duplicate")
    yield from Nudge(f"inbox:{database}", database)
    return _status("processing")


_NOT_OURS: Final = "Invalid verify token or mode"
NotOurs: TypeAlias = Annotated[BadSignature, _NOT_OURS]
NoFields: TypeAlias = Annotated[Invalid, (Fault("query", "There are more than 256 fields"),)]


def verify(call: Call, channel: HostedChannel) -> Response | NoFields | NotOurs:
    """Answer the provider's question whether this address is ours."""
    query = parse_query(call.query)
    if isinstance(query, Fault):
        return Invalid((query,))
    pairs = [(name, value) for name, values in query.items() for value in values]
    answer = channel.codec.handshake(pairs)
    if isinstance(answer, SignatureRefused):
        return BadSignature(_NOT_OURS)
    return text_response(200, answer.text, headers=_PLAIN)


def _log_undelivered(channel: HostedChannel, delivery: Delivery) -> Program[None]:
    """Tell of replies that were taken and not delivered, and of what should have been a message."""
    for failed in delivery.undelivered:
        fields = (("channel", channel.id), ("reason", failed.reason))
        yield from Log("warning", "reply_undelivered", fields)
    for name in delivery.ignored:
        if name in _STRANGE:
            yield from _log_ignored(channel, name)


def _log_ignored(channel: HostedChannel, reason: str) -> Program[None]:
    fields = (("channel", channel.id), ("reason", reason))
    yield from Log("warning", "delivery_ignored", fields)


def find_channel(call: Call, _: object) -> HostedChannel | NotFound:
    """Return the channel that the path names, to whoever does not know of channels otherwise."""
    channel = call.registry.channels.get(call.params["channel"])
    return channel if channel is not None and channel.codec.receives else NotFound()


def _status(status: str) -> Response:
    return json_response(200, {"status": status})
