"""The requests of a conversation in the terminal, as values; `chat_terminal` performs them.

`chat_talk` yields them: `line = yield from Read("> ")` is typed.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, TypeAlias, TypeVar

from attrs import Factory

from legation.effects import Asks
from legation.values import frozen

__all__ = [
    "Action",
    "Call",
    "End",
    "Ended",
    "Event",
    "Lost",
    "Next",
    "Open",
    "Print",
    "Read",
    "Reply",
    "Say",
    "Send",
    "Stopped",
    "Talk",
    "Tell",
    "TooLong",
    "Wait",
]


@frozen
class Reply:
    """A whole response; `body` is what its JSON says, or None."""

    status: int
    body: Any = None


@frozen
class Lost:
    """No response: a sentence says why; `final` where it is of no use to try again."""

    reason: str
    final: bool = False


@frozen
class Event:
    """An event of a stream: its name, its JSON, and its id where it is stored."""

    name: str
    data: Mapping[str, Any]
    id: str = ""


@frozen
class Ended:
    """A stream that has ended, or that broke."""


@frozen
class Stopped:
    """Ctrl-C."""


@frozen
class End:
    """The end of what is typed: Ctrl-D, or that of a pipe."""


@frozen
class TooLong:
    """A line that is longer than `limit` characters; it was thrown away."""

    limit: int


@frozen
class Say(Asks[None]):
    """A piece of an answer, for standard output."""

    text: str


@frozen
class Tell(Asks[None]):
    """A line for the person, on standard error."""

    text: str


@frozen
class Print(Asks[None]):
    """An event for a script: a line of JSON on standard output."""

    data: Mapping[str, Any]


@frozen
class Read(Asks[str | End | Stopped | TooLong]):
    """The next line that is typed, without its end, behind `prompt`."""

    prompt: str


@frozen
class Call:
    """A request.

    Attributes:
        method: GET or POST.
        path: Below the address of the server.
        form: The fields of the body, or of the query of a GET.
        key: Its Idempotency-Key, so that it can be sent twice and done once.
        after: The id of the event behind which a stream is to begin.
    """

    method: str
    path: str
    form: Mapping[str, str] = Factory(dict[str, str])
    key: str = ""
    after: str = ""


@frozen
class Send(Asks[Reply | Lost | Stopped]):
    """Send a request, and wait for its response."""

    call: Call


@frozen
class Open(Asks[Reply | Lost | Stopped | None]):
    """Open the stream that a request is answered with; None when it is open.

    The stream that was open before is closed.
    """

    call: Call


@frozen
class Next(Asks[Event | Ended | Stopped]):
    """The next event of the stream that is open."""


@frozen
class Wait(Asks[Stopped | None]):
    """Wait for some seconds."""

    seconds: float


Action: TypeAlias = Say | Tell | Print | Read | Send | Open | Next | Wait

R = TypeVar("R")

Talk: TypeAlias = Generator[Action, Any, R]
"""A part of a conversation: it yields actions and returns an `R`."""
