"""The bytes of a response, made in one place.

h11 could write them too, at three times the price.  What it would have checked holds by
construction: the headers of a response are validated when it is made, and everything that frames
a message (Content-Length, Transfer-Encoding, Connection) is written here and nowhere else.
"""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from legation.http.messages import Headers, Response, Streamed

__all__ = [
    "CONTINUE",
    "HSTS",
    "LAST_CHUNK",
    "DateClock",
    "chunk",
    "response_bytes",
    "stream_head",
]

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"


class _StatusLines(dict[int, bytes]):
    """The first line of an answer, and the name of the field behind it, by status."""

    def __missing__(self, status: int) -> bytes:
        return b"HTTP/1.1 %d \r\ndate: " % status


_STATUS_LINES: Final = _StatusLines(
    {
        status.value: b"HTTP/1.1 %d %b\r\ndate: " % (status.value, status.phrase.encode("ascii"))
        for status in HTTPStatus
        if status >= 200
    }
)
_CLOSE: Final = b"connection: close\r\n"
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"

_join: Final = b": ".join

# What is not taken over from the headers of a response, because it is written here.
_BUT_LENGTH: Final = frozenset({b"transfer-encoding", b"connection", b"date"})
_ALL_FRAMING: Final = _BUT_LENGTH | {b"content-length"}


HSTS: Final = b"strict-transport-security: max-age=31536000"
"""For a year this name is asked by TLS alone (RFC 6797; ASVS 5.0, 3.4.1); others below it too are
not ours to bind."""


class DateClock:
    """The value of `Date`, rendered once a second, and the field that follows in every answer."""

    __slots__ = ("_behind", "_second", "date")

    def __init__(self, behind: bytes = b"") -> None:
        self._second = -1
        self._behind = b"\r\n" + behind if behind else b""
        self.date = b""

    def tick(self, now: float) -> None:
        """Render anew when `now` (seconds since the epoch) is in another second."""
        if int(now) != self._second:
            self._second = int(now)
            self.date = formatdate(self._second, usegmt=True).encode("ascii") + self._behind


def response_bytes(response: Response, method: str, date: bytes, *, close: bool) -> bytes:
    """Render a whole response to `method`.

    Its length is that of the body at hand, except where there is none by definition: the answer
    to HEAD and 304 keep the length they were given, 204 has none (RFC 9110 section 8.6).
    """
    body, without, framing = response.body, _ALL_FRAMING, b""
    if method == "HEAD" or response.status == 304:
        body, without = b"", _BUT_LENGTH
    elif response.status == 204:
        body = b""
    else:
        framing = b"content-length: %d\r\n" % len(body)
    return b"%b%b\r\n%b%b%b\r\n%b" % (
        _STATUS_LINES[response.status],
        date,
        _lines(response.headers, without),
        framing,
        _CLOSE if close else b"",
        body,
    )


def stream_head(answer: Streamed, date: bytes, *, chunked: bool, close: bool) -> bytes:
    """Render the head of a response whose length is not known."""
    return b"%b%b\r\n%b%b%b\r\n" % (
        _STATUS_LINES[answer.status],
        date,
        _lines(answer.headers, _ALL_FRAMING),
        _CHUNKED if chunked else b"",
        _CLOSE if close else b"",
    )


def chunk(data: bytes, end: bytes = b"") -> bytes:
    """Frame `data`, which is not empty: an empty chunk would end the body.

    `end`: what stands behind it, as `LAST_CHUNK` does.
    """
    return b"%x\r\n%b\r\n%b" % (len(data), data, end)


def _lines(headers: Headers, without: frozenset[bytes]) -> bytes:
    # A join takes two thirds of the time of a format.
    lines = [_join(field) for field in headers if field[0] not in without]
    return b"\r\n".join(lines) + b"\r\n" if lines else b""
