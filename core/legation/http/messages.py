"""The request and response values that every frontend exchanges with the core.

A frontend parses bytes into a `Request` and writes a `Response` back; whatever lies between is
decided here.  Header names are lower case (RFC 9110 section 5.1).  The headers of a response are
complete but for what belongs to the connection: `date`, `connection` and chunked framing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, TypeVar

from attrs import Factory, evolve, field

from ..effects import Program
from ..json_encoding import make_encode
from ..values import frozen

__all__ = [
    "Answer",
    "Headers",
    "Request",
    "Response",
    "Streamed",
    "Unfinished",
    "compact_json",
    "empty_response",
    "event_stream",
    "json_bytes_response",
    "json_response",
    "text_response",
    "with_body",
    "with_headers",
    "without_body",
]

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

JSON: Final = (b"content-type", b"application/json")
_EVENT_STREAM: Final[Headers] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_UNSAFE: Final = re.compile(rb"[\r\n\0]")


def _check_headers(_: object, __: object, headers: Headers) -> None:
    for name, value in headers:
        if _UNSAFE.search(value) or name != name.lower():
            raise ValueError(f"not a header: {name!r}: {value!r}")


def _first_values(request: Request) -> Mapping[bytes, bytes]:
    return dict(reversed(request.headers))


@frozen
class Request:
    """A parsed HTTP request head: no socket, no stream; the body is asked for by `ReadBody`.

    Attributes:
        method: The method, in capitals.
        target: The raw origin-form (RFC 9112 section 3.2.1) below the mount point of the host,
            ASCII, undecoded.
        headers: Pairs of a name in lower case and a value, both bytes, in their order.
        client: The address of the peer as the host trusts it, for limits and the audit alone.
        folder: The beginning of a relative link of the root, where a mount was asked for without
            the slash at its end: `./mission/`, else nothing.
    """

    method: str
    target: str
    headers: Headers = ()
    client: str = ""
    folder: str = ""
    _first: Mapping[bytes, bytes] = field(
        default=Factory(_first_values, takes_self=True), init=False, eq=False, repr=False
    )

    def header(self, name: bytes) -> bytes | None:
        """Return the first value under `name` (lower case), or None."""
        return self._first.get(name)

    def values(self, name: bytes) -> tuple[bytes, ...]:
        """Return every value under `name` (lower case), in order."""
        first = self._first.get(name)
        if first is None:
            return ()
        if len(self._first) == len(self.headers):  # no name stands twice
            return (first,)
        return tuple([value for key, value in self.headers if key == name])


@frozen
class Response:
    """A complete HTTP response.

    For HEAD, `body` is empty and `content-length` tells what GET would have sent.

    Attributes:
        status: The status code.
        headers: Pairs of a name in lower case and a value, both bytes.
        body: The whole body.
    """

    status: int
    headers: Headers = field(validator=_check_headers)
    body: bytes = b""


@frozen
class Unfinished:
    """The end of a body that is not whole, because the process ends or hands its clients over.

    A host ends such a response so that the client sees that something is missing: without the
    last chunk, by a reset, by an error; never in order.
    """


@frozen
class Streamed:
    """A response whose body a program emits (`Emit`) while the host drives it.

    Closing the program, as a host does when the client has gone, ends nothing but the stream.
    A program that returns `Unfinished` has emitted a part of the body and will emit no more.

    Attributes:
        status: The status code.
        headers: Pairs of a name in lower case and a value, both bytes.
        body: The program that emits the body.
    """

    status: int
    headers: Headers = field(validator=_check_headers)
    body: Program[Unfinished | None] = field(eq=False)


Answer: TypeAlias = Response | Streamed
"""What `Platform.answer` returns."""

A = TypeVar("A", bound=Answer)


compact_json: Final = make_encode(
    json.JSONEncoder(
        separators=(",", ":"), ensure_ascii=False, check_circular=False, allow_nan=False
    )
)
"""Encode a value on one line, without spaces; NaN and infinity are a `ValueError`."""


def _make_unchecked(kind: type[A], status: int, headers: Headers, body: object) -> A:
    """Make an answer of headers that were checked before, or are constants of ours."""
    set_status, set_headers, set_body = _SETTERS[kind]
    answer = _new(kind)
    set_status(answer, status)
    set_headers(answer, headers)
    set_body(answer, body)
    return answer


_new: Final = object.__new__
_SETTERS: Final[Mapping[type[Any], list[Any]]] = {
    kind: [vars(kind)[name].__set__ for name in ("status", "headers", "body")]
    for kind in (Response, Streamed)
}


def with_headers(answer: Answer, more: Headers) -> Answer:
    """Return `answer` with `more` behind its headers.

    Every answer passes here, so what was checked when it was made is not checked again, and it is
    made without a call: `evolve` would cost a fifth of the whole answer.
    """
    kind = type(answer)
    set_status, set_headers, set_body = _SETTERS[kind]
    made = _new(kind)
    set_status(made, answer.status)
    set_headers(made, answer.headers + more)
    set_body(made, answer.body)
    return made


def with_body(answer: Streamed, body: Program[Unfinished | None]) -> Streamed:
    """Return `answer` with another program that emits its body."""
    return _make_unchecked(Streamed, answer.status, answer.headers, body)


def event_stream(body: Program[Unfinished | None]) -> Streamed:
    """Answer with the server-sent events that `body` emits."""
    return _make_unchecked(Streamed, 200, _EVENT_STREAM, body)


def without_body(answer: Answer) -> Answer:
    """Return what HEAD gets where GET would have got `answer` (RFC 9110 section 9.3.2)."""
    if isinstance(answer, Response):
        return evolve(answer, body=b"")
    answer.body.close()
    return Response(answer.status, answer.headers)


def json_response(status: int, value: Any, headers: Headers = ()) -> Response:
    """Answer with `value` as compact UTF-8 JSON."""
    return json_bytes_response(status, compact_json(value).encode(), headers)


def json_bytes_response(status: int, body: bytes, headers: Headers = ()) -> Response:
    """Answer with `body`, which is JSON already."""
    framing = (JSON, (b"content-length", b"%d" % len(body)))
    if headers:
        return Response(status, (*framing, *headers), body)
    return _make_unchecked(Response, status, framing, body)


def text_response(
    status: int, text: str, media_type: bytes = b"text/plain; charset=utf-8", headers: Headers = ()
) -> Response:
    """Answer with `text` in UTF-8."""
    body = text.encode()
    length = (b"content-length", b"%d" % len(body))
    return Response(status, ((b"content-type", media_type), length, *headers), body)


def empty_response(status: int, headers: Headers = ()) -> Response:
    """Answer without content (RFC 9110 section 15.3.5)."""
    return Response(status, headers)
