"""A strict gate before h11: from bytes to the head of a request, or to a refusal.

h11 parses; the guard holds back what h11 lets through and two servers could read differently:
a bare LF as line ending, folded lines, control characters, Content-Length beside
Transfer-Encoding, a malformed Host, a foreign version, a target that is not a path, input
without bounds.  Every refusal ends its connection: after it nobody can say where the next
request begins.

**One answer for one input.**  However the bytes are cut, the same answers come out.  The head of
an ordinary request arrives whole, is checked by three passes in C, and read without h11
(`plain_head`); any other is scanned line by line.  Both agree, because the quick way is taken only
by a head that is within every limit of size, so that all it can still break are rules about bytes,
which are all 400.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import h11

from legation.http.authority import origin_form, well_formed_host
from legation.http.messages import Headers
from legation.http.refusals import (
    BadRequest,
    HeadTooLarge,
    NotImplementedHere,
    Refusal,
    TooLarge,
    UriTooLong,
    VersionNotSupported,
)

from .head import RequestHead
from .memo import Memo
from .plain_head import read_plain_head
from .settings import Settings

__all__ = ["Guard"]

EMPTY_LINES: Final = 2
"""Empty lines tolerated before a request line (RFC 9112 section 2.2 asks for one at least)."""

_VISIBLE: Final = bytes([*range(0x20, 0x7F), *range(0x80, 0x100)])
_PLAIN: Final = b"\t" + _VISIBLE
"""What may stand within a line: visible characters, space, tab and obs-text (RFC 9110 5.5)."""

_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,20})[ \t]*(?=\r\n)", re.IGNORECASE)
_LONGEST_METHOD: Final = 32  # with the space behind it
_AUTHORITY: Final = re.compile(rb"[^:/]+://([^/?]*)")
_SPECIAL: Final = frozenset({b"content-length", b"transfer-encoding", b"connection", b"expect"})

_is_host: Final = lru_cache(maxsize=256)(well_formed_host)


class Guard:
    """The requests of one connection.  `receive` bytes, then ask for `head` until None.

    Between a head and the next one, its body must be `take`n out.

    Attributes:
        buffer: The bytes received and not yet used.
        has_begun: Whether any byte of the next head has come.
    """

    __slots__ = (
        "_empty_lines",
        "_fields",
        "_limits",
        "_memo",
        "_quick",
        "_scanned",
        "buffer",
        "has_begun",
    )

    def __init__(self, limits: Settings, memo: Memo | None = None) -> None:
        self._limits = limits
        self._memo = memo
        self._quick = min(limits.header_line, limits.header_block)
        self.buffer = b""
        self.has_begun = False
        self._scanned: int = 0  # bytes of the head whose lines have passed
        self._fields: int = 0
        self._empty_lines: int = 0

    @property
    def unread(self) -> int:
        """Bytes received and not yet used."""
        return len(self.buffer)

    @property
    def method(self) -> str:
        """The method of a head that has not come to its end, or was refused; empty if unknown."""
        word, space, _ = self.buffer[:_LONGEST_METHOD].partition(b" ")
        return word.decode("latin-1") if space else ""

    def receive(self, data: bytes) -> None:
        """Add bytes that came from the connection, and are not empty."""
        self.buffer = self.buffer + data if self.buffer else data
        self.has_begun = True

    def take(self, most: int | None = None) -> bytes:
        """Return and forget all unread bytes, or `most` of them: the beginning of a body."""
        data, self.buffer = self.buffer[:most], b"" if most is None else self.buffer[most:]
        self.has_begun = self.buffer != b""
        return data

    def head(self) -> RequestHead | Refusal | None:
        """Return the next head, or the refusal of it, or None while bytes are missing."""
        buffer = self.buffer
        if not self._scanned:
            memo, size = self._memo, len(buffer)
            # What is kept is one head, so that one that is known needs no look for its end.
            known = None
            if memo is not None and size <= self._quick and buffer.endswith(b"\r\n\r\n"):
                known = memo.find(buffer)
            if known is not None:
                self.buffer, self.has_begun, self._empty_lines = b"", False, 0
                return known
            end = buffer.find(b"\r\n\r\n") + 4
            if 4 <= end <= self._quick:
                raw = buffer if end == size else buffer[:end]
                if memo is not None and end < size:
                    known = memo.find(raw)
                head = known or self._at_once(raw)
                if isinstance(head, RequestHead):
                    self.buffer = buffer[end:]
                    self.has_begun = self.buffer != b""
                    self._empty_lines = 0
                if head is not None:
                    return head
        return self._scan() if buffer else None

    def _at_once(self, raw: bytes) -> RequestHead | Refusal | None:
        """Parse a whole head within the limits of size; None if its lines are odd."""
        if not self._is_plain(raw):
            return None
        plain = read_plain_head(raw)
        head = self._parse(raw) if plain is None else self._judge(raw, *plain)
        if self._memo is not None and isinstance(head, RequestHead):
            self._memo.keep(raw, head)
        return head

    def _is_plain(self, raw: bytes) -> bool:
        """Tell whether a whole head within the limits of size is made of clean lines.

        Were there a CR or an LF outside a CRLF, a tab or another control character, more bytes
        than those of the line ends would be left when the visible ones are taken away.
        """
        lines = raw.count(b"\r\n")
        return (
            len(raw.translate(None, _VISIBLE)) == 2 * lines
            and lines <= self._limits.header_fields + 2
            and raw[0] > 0x20
            and b"\n " not in raw
        )

    def _scan(self) -> RequestHead | Refusal | None:
        """Check line by line what has come of a head; parse it when it is complete."""
        if (refusal := self._skip_empty_lines()) is not None:
            return refusal
        while True:
            buffer, start = self.buffer, self._scanned
            window = min(self._limits.header_line + 2, self._limits.header_block - start)
            end = buffer.find(b"\n", start, start + window) + 1
            if not end:
                return None if len(buffer) - start < window else self._too_large(window)
            line = buffer[start:end]
            if (refusal := self._check_line(line)) is not None:
                return refusal
            self._scanned = end
            if line == b"\r\n":
                head = self._parse(buffer[:end])
                if isinstance(head, RequestHead):
                    self.buffer = buffer[end:]
                    self.has_begun = self.buffer != b""
                    self._scanned = self._fields = self._empty_lines = 0
                return head

    def _skip_empty_lines(self) -> Refusal | None:
        if self._scanned:
            return None
        while self.buffer.startswith(b"\r\n"):
            self.buffer = self.buffer[2:]
            self._empty_lines += 1
            if self._empty_lines > EMPTY_LINES:
                return BadRequest("Too many empty lines before the request")
        # A TLS hello or noise has no line end: it is not worth waiting for.
        if self.buffer and self.buffer[0] <= 0x20 and self.buffer != b"\r":
            return BadRequest("Not an HTTP request")
        return None

    def _too_large(self, window: int) -> Refusal:
        first_line = self._scanned == 0 and window == self._limits.header_line + 2
        return UriTooLong() if first_line else HeadTooLarge()

    def _check_line(self, line: bytes) -> Refusal | None:
        if not line.endswith(b"\r\n") or len(line.translate(None, _PLAIN)) != 2:
            return BadRequest("A line of the head holds a control character")
        if line.startswith((b" ", b"\t")):
            return BadRequest("A line of the head is folded")
        self._fields += self._scanned > 0 and line != b"\r\n"
        return HeadTooLarge() if self._fields > self._limits.header_fields else None

    def _parse(self, raw: bytes) -> RequestHead | Refusal:
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(raw)
        try:
            request = connection.next_event()
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == 501:
                return NotImplementedHere("Only the transfer coding chunked is understood")
            return BadRequest(_sentence(error))
        if not isinstance(request, h11.Request):
            raise TypeError("h11 made no request of a whole head")
        headers = tuple([(name.lower(), value) for name, value in request.headers.raw_items()])
        method, target = request.method.decode("ascii"), request.target.decode("ascii")
        return self._judge(raw, method, target, headers, request.http_version)

    def _judge(
        self, raw: bytes, method: str, target: str, headers: Headers, version: bytes = b"1.1"
    ) -> RequestHead | Refusal:
        host = None
        special = version != b"1.1"
        for name, value in headers:
            if name == b"host":
                host = value
            elif name in _SPECIAL:
                special = True
        if not version.startswith(b"1"):
            return VersionNotSupported()
        if host is None and version != b"1.0":
            return BadRequest("Missing mandatory Host: header")
        if host is not None and not _is_host(host):
            return BadRequest("The Host header is malformed")
        head = RequestHead(method, target, headers)
        if not head.target.startswith("/") or "#" in head.target:
            refusal = _reduce_target(head)
            if refusal is not None:
                return refusal
        return self._frame(head, raw, version == b"1.0") if special else head

    def _frame(self, head: RequestHead, raw: bytes, old: bool) -> RequestHead | Refusal:
        """Settle length, persistence and expectation (RFC 9112 sections 6.3 and 9.3)."""
        fields = [field for field in head.headers if field[0] in _SPECIAL]
        listed = b",".join(value for _, value in _only(fields, b"connection"))
        tokens = [token.strip().lower() for token in listed.split(b",")]
        head.old = old
        head.keep_alive = not old and b"close" not in tokens
        lengths, codings = _only(fields, b"content-length"), _only(fields, b"transfer-encoding")
        if codings and (lengths or old):
            return BadRequest(
                "Transfer-Encoding is not allowed together with Content-Length, or in HTTP/1.0"
            )
        if lengths:
            refusal = self._measure(head, raw)
            if refusal is not None:
                return refusal
        elif codings:
            head.length = None
        expectations = [value.lower() for _, value in _only(fields, b"expect")]
        head.expects = not old and head.length != 0 and b"100-continue" in expectations
        return head

    def _measure(self, head: RequestHead, raw: bytes) -> Refusal | None:
        """Read the length off the raw head: h11 folds repeated equal lengths into one."""
        found = _LENGTH.findall(raw)
        if len(found) != 1 or raw.lower().count(b"\r\ncontent-length:") != 1:
            return BadRequest("Content-Length is not one number")
        head.length = int(found[0])
        return TooLarge(limit=self._limits.body) if head.length > self._limits.body else None


def _only(fields: list[tuple[bytes, bytes]], name: bytes) -> list[tuple[bytes, bytes]]:
    return [field for field in fields if field[0] == name]


def _reduce_target(head: RequestHead) -> Refusal | None:
    """Bring any other form of a target to origin-form (RFC 9112 section 3.2.1 to 3.2.4)."""
    if head.method == "CONNECT":
        return NotImplementedHere("This server is not a proxy")
    if head.target == "*" and head.method == "OPTIONS":
        return None
    target = head.target.encode("ascii")
    origin = None if "#" in head.target else origin_form(target)
    authority = _AUTHORITY.match(target)
    if origin is None or authority is None:
        return BadRequest("The request target is malformed")
    head.target = origin.decode("ascii")
    # The host of the target is the one that counts (RFC 9112 section 3.2.2).
    rest = tuple(field for field in head.headers if field[0] != b"host")
    head.headers = ((b"host", authority[1]), *rest)
    return None


def _sentence(error: h11.RemoteProtocolError) -> str:
    """Return h11's reason without the input it quotes."""
    return str(error).partition(":")[0][:80].capitalize()
