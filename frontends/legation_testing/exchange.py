"""An exchange: a request under way, then its response."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Self

from attrs import define, field, frozen

from legation.http.messages import Answer, Headers, Streamed, Unfinished

from .event_stream import ServerSentEvent, parse_events
from .scheduling import Task
from .simulation import Simulation

__all__ = ["BadResponse", "ClientResponse", "Exchange", "Refused"]


class BadResponse(AssertionError):
    """A response that no host could send as it stands."""


class Refused(AssertionError):
    """The failure of a request that had to succeed."""

    def __init__(self, response: ClientResponse) -> None:
        super().__init__(f"{response.status}: {response.text}")
        self.response = response


@frozen
class ClientResponse:
    """A complete response; header names are lower case.

    Attributes:
        status: The status code.
        headers: Pairs of a name and a value, as bytes.
        body: The whole body.
    """

    status: int
    headers: Headers
    body: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """The body, which is UTF-8."""
        return self.body.decode()

    def header(self, name: str) -> str | None:
        """Return the first value under `name`, in any case, or None."""
        wanted = name.lower().encode("ascii")
        return next((v.decode("latin-1") for n, v in self.headers if n == wanted), None)

    def json(self) -> Any:
        """Return the body, decoded; a `ValueError` when it is not JSON."""
        return json.loads(self.body)

    def events(self) -> tuple[ServerSentEvent, ...]:
        """Return the events of the body.

        Raises:
            NotAnEventStream: It breaks the format, or ends within an event.
        """
        return parse_events(self.body)

    def expect_success(self) -> Self:
        """Return the response itself; one that is not 2xx is `Refused`."""
        if not 200 <= self.status < 300:
            raise Refused(self)
        return self


@define(eq=False)
class Exchange:
    """A request under way.  Other requests, jobs and the clock go on beside it."""

    _simulation: Simulation
    _task: Task[Answer | Unfinished]
    _method: str
    _tell: Callable[[ClientResponse], object]

    @property
    def received(self) -> bytes:
        """The streamed body so far."""
        return bytes(self._task.received)

    @property
    def done(self) -> bool:
        """Whether the response is complete, or the client has gone."""
        return self._task.done

    def events(self) -> tuple[ServerSentEvent, ...]:
        """Return the events received whole so far."""
        whole, end, _ = self.received.rpartition(b"\n\n")
        return parse_events(whole + end)

    def disconnect(self) -> None:
        """Hang up: the program that answers is closed where it stands."""
        self._simulation.cancel(self._task)

    def response(self) -> ClientResponse:
        """Go on until the response is complete.

        Raises:
            Deadlock: It waits for what cannot come.
            BadResponse: The stream was cut.
            Exception: What the platform raised.
        """
        answer = self._simulation.finish(self._task)
        if isinstance(answer, Unfinished):
            raise BadResponse("the stream was cut: its body is not whole")
        body = self.received if isinstance(answer, Streamed) else answer.body
        response = ClientResponse(answer.status, answer.headers, body)
        _check_framing(self._method, response, streamed=isinstance(answer, Streamed))
        self._tell(response)
        return response


def _check_framing(method: str, response: ClientResponse, *, streamed: bool) -> None:
    """Refuse what would desynchronize a connection (RFC 9112 section 6.3)."""
    bodiless = method == "HEAD" or response.status in (204, 304)
    if bodiless and response.body:
        raise BadResponse(f"{method} {response.status} with a body of {len(response.body)} bytes")
    length = response.header("content-length")
    if length is not None and not bodiless and length != str(len(response.body)):
        raise BadResponse(f"content-length {length}, and a body of {len(response.body)} bytes")
    if length is None and not bodiless and not streamed and response.body:
        raise BadResponse("a whole body without content-length")
