"""The framing of a request's body (RFC 9112 sections 6 and 7), decoded without a socket.

Two servers that disagree about the end of a message can be made to see different requests in
the same bytes.  So a chunked body is read by the letter of the grammar: line endings are CRLF,
sizes are plain hexadecimal, extensions are well formed and few, trailers are checked and dropped.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from legation.http.refusals import BadRequest, Refusal, TooLarge

__all__ = ["ChunkedBody", "Framing", "LengthBody"]

EXTENSION_LINE: Final = 256
"""Bytes of one chunk line; real ones are under 20."""

EXTENSIONS: Final = 8 << 10
"""Bytes of extensions and trailers in one body.  They carry nothing that is used."""

_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED: Final = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*"'
_CHUNK_LINE: Final = re.compile(
    rb"(?P<size>[0-9A-Fa-f]{1,16})"
    rb"(?:[ \t]*;[ \t]*" + _TOKEN + rb"(?:[ \t]*=[ \t]*(?:" + _TOKEN + rb"|" + _QUOTED + rb"))?)*"
)
_TRAILER: Final = re.compile(_TOKEN + rb":[\t -~\x80-\xff]*")

MALFORMED: Final = BadRequest("The chunked body is malformed")


class Framing(Protocol):
    """The end of a body, found while its bytes arrive."""

    @property
    def done(self) -> bool:
        """Whether the body has ended."""
        ...

    def receive(self, data: bytes) -> tuple[bytes, bytes] | Refusal:
        """Take `data`; return what belongs to the body and what follows its end.

        After a refusal the framing is lost, and the connection with it.
        """
        ...


class LengthBody:
    """A body of `length` bytes (RFC 9112 section 6.2)."""

    __slots__ = ("_left", "done")

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0

    def receive(self, data: bytes) -> tuple[bytes, bytes]:
        """Take `data`; return what belongs to the body and what follows its end."""
        mine = data[: self._left]
        self._left -= len(mine)
        self.done = self._left == 0
        return mine, data[len(mine) :]


class ChunkedBody:
    """A chunked body of at most `limit` bytes (RFC 9112 section 7.1).

    A chunk that would go beyond the limit is refused as `TooLarge` when its size is read,
    before any of it.
    """

    __slots__ = ("_expected", "_extensions", "_left", "_limit", "_line", "_size", "done")

    # What the next line must be.  The data of a chunk is the one part that is not a line.
    _SIZE, _END_OF_CHUNK, _TRAILER = range(3)

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._expected = self._SIZE
        self._left = 0  # of the data of the current chunk
        self._size = 0  # of all chunks announced
        self._extensions = 0
        self._line = b""  # the beginning of a line whose end has not come
        self.done = False

    def receive(self, data: bytes) -> tuple[bytes, bytes] | Refusal:
        """Take `data`; return what belongs to the body and what follows its end."""
        pieces: list[bytes] = []
        if self._line:
            data, self._line = self._line + data, b""
        at = 0
        while at < len(data) and not self.done:
            if self._left:
                piece = data[at : at + self._left]
                pieces.append(piece)
                self._left -= len(piece)
                at += len(piece)
                continue
            end = data.find(b"\n", at, at + EXTENSION_LINE) + 1
            if not end:
                if len(data) - at >= EXTENSION_LINE:
                    return MALFORMED
                self._line = data[at:]
                break
            refusal = self._take_line(data[at:end])
            if refusal is not None:
                return refusal
            at = end
        return b"".join(pieces), data[at:] if self.done else b""

    def _take_line(self, line: bytes) -> Refusal | None:
        if not line.endswith(b"\r\n"):
            return MALFORMED
        if self._expected == self._SIZE:
            return self._take_size(line[:-2])
        if self._expected == self._TRAILER:
            return self._take_trailer(line[:-2])
        self._expected = self._SIZE
        return None if line == b"\r\n" else MALFORMED

    def _take_size(self, line: bytes) -> Refusal | None:
        match = _CHUNK_LINE.fullmatch(line)
        if match is None:
            return MALFORMED
        size = int(match["size"], 16)
        self._size += size
        self._extensions += len(line) - len(match["size"])
        if self._size > self._limit:
            return TooLarge(limit=self._limit)
        self._left = size
        self._expected = self._END_OF_CHUNK if size else self._TRAILER
        return MALFORMED if self._extensions > EXTENSIONS else None

    def _take_trailer(self, line: bytes) -> Refusal | None:
        self.done = not line
        self._extensions += len(line)
        if line and (_TRAILER.fullmatch(line) is None or self._extensions > EXTENSIONS):
            return MALFORMED
        return None
