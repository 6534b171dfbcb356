"""The webhooks of channels: what is stored is acknowledged, and nothing else.

The provider's signature is checked over the bytes as they came, before anything is made of them.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from ...channels.deliveries import (
    Challenge,
    Delivery,
    Ignored,
    NotUnderstood,
    Parsed,
    Undelivered,
    inbox_rows,
)
from ...channels.signatures import SignatureRefused, Verified
from ...channels.telegram_groups import NAME_UNKNOWN
from ...effects import Log, Nudge, Program, ReadBody, Transact
from ...hosted.registry import HostedChannel
from ...http.bodies.forms import parse_query
from ...http.messages import Headers, Response, empty_response, json_response, text_response
from ...http.refusals import (
    BadRequest,
    BadSignature,
    Fault,
    Invalid,
    NotFound,
    Refusal,
    TooLarge,
    TooManyRequests,
)
from ...store.chats import NoteMoves
from ...store.inbox import PutMessages
from ...store.reply_outcomes import Failure, MarkUndelivered
from ..call import DELIVERY_BODY, FORM_OF_DELIVERY, Call

__all__ = [
    "find_channel",
    "find_interactive",
    "interact",
    "receive",
    "verify",
]

# A sign that the provider has changed, or does not answer, or that the wrong one is configured.
_STRANGE: Final = frozenset({"malformed", "another number", "another workspace", NAME_UNKNOWN})
_PLAIN: Final[Headers] = ((b"x-content-type-options", b"nosniff"),)


_NO_JSON: Final = "The body has to be JSON; it is {}"
_NO_FORM: Final = "The body has to be a form whose payload is JSON; it is {}"
_SEEN: Final = empty_response(200, ((b"content-length", b"0"),))
NotJson: TypeAlias = Annotated[BadRequest, _NO_JSON.format("not JSON at line 1, column 2")]
TooLong: TypeAlias = Annotated[TooLarge, DELIVERY_BODY]


def receive(
    call: Call, channel: HostedChannel
) -> Program[Response | NotJson | BadSignature | TooLong | TooManyRequests]:
    """Store every message of a delivery; answer once they are stored."""
    verified = yield from _read(call, channel)
    if isinstance(verified, Refusal):
        return verified
    parsed = _parse(call, channel, verified)
    if isinstance(parsed, NotUnderstood):
        return BadRequest(_NO_JSON.format(parsed.reason))
    return (yield from _store(call, channel, parsed))


NoForm: TypeAlias = Annotated[BadRequest, _NO_FORM.format("no form with one payload")]
TooLongForm: TypeAlias = Annotated[TooLarge, FORM_OF_DELIVERY]


def interact(
    call: Call, channel: HostedChannel
) -> Program[Response | NoForm | BadSignature | TooLongForm | TooManyRequests]:
    """Store the presses of a form; answer once they are stored, with nothing that is shown."""
    verified = yield from _read(call, channel)
    if isinstance(verified, Refusal):
        return verified
    parsed = channel.codec.parse_form(verified)
    if isinstance(parsed, NotUnderstood):
        return BadRequest(_NO_FORM.format(parsed.reason))
    yield from _store(call, channel, parsed)
    return _SEEN


def _read(
    call: Call, channel: HostedChannel
) -> Program[Verified | BadSignature | TooLarge | TooManyRequests]:
    """Return the body, once it is known who sent it."""
    if refusal := call.begin_body():
        return refusal
    limit = call.body_limit
    body = yield from ReadBody(limit)
    if body is None:
        return TooLarge(limit)
    if (held := call.audit.arrival.reading) is not None:
        held.keep(len(body))
    verified = channel.codec.verify(call.request.headers, body, call.now_us)
    if isinstance(verified, Verified):
        return verified
    if call.surface.telemetry.refusals.may_log(call.now_us):
        fields = (("channel", channel.id), ("reason", verified.reason))
        yield from Log("warning", "delivery_refused", fields)
    return BadSignature()


def _store(
    call: Call, channel: HostedChannel, parsed: Delivery | Challenge | Ignored
) -> Program[Response]:
    """Store the messages of a delivery, and say what became of them."""
    match parsed:
        case Challenge():
            return text_response(200, parsed.text, headers=_PLAIN)
        case Ignored():
            if parsed.malformed or parsed.reason in _STRANGE:
                yield from _log_ignored(channel, "malformed" if parsed.malformed else parsed.reason)
            return json_response(200, {"status": "ignored", "reason": parsed.reason})
        case _:
            messages = inbox_rows(parsed)
            yield from _log_strange(channel, parsed)
    database = channel.component.database
    if parsed.undelivered:
        yield from _mark_undelivered(channel, parsed.undelivered)
    if parsed.moved:
        moves = tuple((moved.old, moved.new) for moved in parsed.moved)
        yield from Transact(database, NoteMoves(channel.id, moves))
    if not messages:
        return _status("ignored")
    put = PutMessages(channel.id, messages, call.now_us)
    if not (yield from Transact(database, put)):
        return _status("duplicate")
    other = call.context.cluster.member(database).next_other()
    yield from Nudge(f"inbox:{database}", database, other)
    return _status("processing")


def _parse(call: Call, channel: HostedChannel, verified: Verified) -> Parsed:
    """Return what is in a delivery, for who we are there as far as that is known."""
    identity = call.surface.known.identities.get(channel.id)
    if identity is None:
        return channel.codec.parse(verified)
    return channel.codec.parse(verified, identity)


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


def _mark_undelivered(channel: HostedChannel, reports: tuple[Undelivered, ...]) -> Program[None]:
    """Make dead letters of replies that were taken and not delivered; tell of those that are."""
    failures = tuple(
        Failure(report.key, report.provider_id, f"undelivered: {report.reason}")
        for report in reports
    )
    unit = MarkUndelivered(channel.id, failures)
    for marked in (yield from Transact(channel.component.database, unit)):
        fields = (
            ("channel", channel.id),
            ("reply", marked.failure.key),
            ("message", marked.message_id),
            ("reason", marked.failure.error.removeprefix("undelivered: ")),
        )
        yield from Log("warning", "reply_undelivered", fields)


def _log_strange(channel: HostedChannel, delivery: Delivery) -> Program[None]:
    """Tell of what should have been a message."""
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


def find_interactive(call: Call, params: object) -> HostedChannel | NotFound:
    """Return the channel that the path names, of a kind whose presses come as forms."""
    channel = find_channel(call, params)
    return channel if isinstance(channel, NotFound) or channel.codec.interacts else NotFound()


def _status(status: str) -> Response:
    return json_response(200, {"status": status})
