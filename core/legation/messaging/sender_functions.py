"""Asking a function of the application whose subject a sender is, and which agent answers.

What it says is stored with the message before anything depends on it: it holds for the message,
whatever the function would say the next time.  A function that fails makes the message wait for
its next attempt; in the end the sender reads an apology.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from ..channels.deliveries import IncomingMessage
from ..effects import CallFunction, CloseStream, Log, Program, Raised, Returned, Yielding
from ..hosted.channel_options import is_subject
from ..hosted.registry import HostedChannel
from ..hosted.sender_functions import SenderFunction
from ..kinds import Sender
from ..runs.instructions import detach

__all__ = ["CALL_SECONDS", "SenderFunctionFailed", "choose_agent", "find_subject"]

CALL_SECONDS: Final = 10.0

_LATE: Final = f"it took longer than {CALL_SECONDS:g} seconds"
_NO_TEXT: Final = "it returned a value of the type {}, and no text"
_NO_SUBJECT: Final = "it returned what is no subject of tokens"
_NO_AGENT: Final = "it returned the id of no agent of the channel; there are: {}"


class SenderFunctionFailed(Exception):
    """The function gave no answer that can be used; the text says why."""


def find_subject(
    channel: HostedChannel, function: SenderFunction, message: IncomingMessage
) -> Program[str]:
    """Return the subject that the sender of `message` is, "" for none.

    Raises:
        SenderFunctionFailed: The function gave no subject.
        Exception: What the function raised.
    """
    found = yield from _call(channel, function, {"sender": _describe(channel, message)})
    if found and not is_subject(found):
        yield from _fail(channel, function, _NO_SUBJECT)
    return found


def choose_agent(
    channel: HostedChannel,
    function: SenderFunction,
    message: IncomingMessage,
    text: str,
    agent: str,
) -> Program[str]:
    """Return the id of whoever is to answer `text`; "" where that is `agent`, as before.

    Raises:
        SenderFunctionFailed: The function named nobody of the channel.
        Exception: What the function raised.
    """
    known = {channel.component.id, *(other.id for other in channel.others.values())}
    given = {"sender": _describe(channel, message), "text": text, "agent": agent}
    found = yield from _call(channel, function, given)
    if found and found not in known:
        yield from _fail(channel, function, _name(known))
    return "" if found == agent else found


def _name(known: Collection[str]) -> str:
    return _NO_AGENT.format(", ".join(sorted(known)))


def _describe(channel: HostedChannel, message: IncomingMessage) -> Sender:
    return Sender(
        channel=channel.id,
        id=message.sender,
        name=message.name,
        conversation=message.conversation or message.sender,
        thread=message.thread,
        in_group=message.in_group,
    )


def _call(channel: HostedChannel, function: SenderFunction, given: dict[str, Any]) -> Program[str]:
    arguments = {name: given[name] for name in function.takes}
    match (yield from CallFunction(function.function, arguments, CALL_SECONDS)):
        case Returned(str(value)):
            return value
        case Returned(None):
            return ""
        case Returned(value):
            return (yield from _fail(channel, function, _NO_TEXT.format(type(value).__name__)))
        case Raised(error):
            raise detach(error)
        case Yielding(stream):
            yield from CloseStream(stream)
            return (yield from _fail(channel, function, _NO_TEXT.format("AsyncIterator")))
        case _:
            return (yield from _fail(channel, function, _LATE))


def _fail(channel: HostedChannel, function: SenderFunction, why: str) -> Program[str]:
    fields = (("channel", channel.id), ("option", function.option), ("error", why))
    yield from Log("error", "channel_function_failed", fields)
    raise SenderFunctionFailed(why)
