"""Chunks of a response joined (RFC 9112 section 7.1), for a parser that takes long over each.

A model sends each token in a chunk of its own.  Where a read brings many, the parser is given one
chunk with the content of all.  Nothing is held back, and nothing judged: what is no plain chunk,
whole in one read, reaches the parser as it came.
"""

from __future__ import annotations

import re
from typing import Final

from attrs import field

from ..values import define

__all__ = ["ChunkJoiner"]

# The end of a head, as h11 finds it.
_BLANK_LINE: Final = re.compile(rb"\n\r?\n")
_CHUNKED: Final = re.compile(rb"\ntransfer-encoding:[ \t]*chunked[ \t]*\r?\n", re.IGNORECASE)
# In front of the head of the response (RFC 9110 section 15.2); behind 101 is another protocol.
_INTERIM: Final = re.compile(rb"HTTP/1\.[01] 1(?!01)")
_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
_PART_OF_SIZE_LINE: Final = re.compile(rb"[0-9A-Fa-f]{1,8}\r?")
_END: Final = b"\r\n"
_LONGEST_HEAD: Final = 65_536


@define
class ChunkJoiner:
    """Joins the chunks of one response, however its bytes were cut.

    Attributes:
        passes: All that is to come reaches the parser as it is.
    """

    passes: bool = field(default=False, init=False)
    _head: bytes | None = field(default=b"", init=False)  # until it is whole
    _line: bytes = field(default=b"", init=False)  # the part of a size line that was read
    _left: int = field(default=0, init=False)  # bytes of the chunk that was begun, with its end

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes, from the head on; return those for the parser."""
        return data if self.passes else self._follow(data)

    def _follow(self, data: bytes) -> bytes:
        start = 0 if self._head is None else self._find_body(self._head, data)
        start = self._skip_begun(data, start)
        return data if self.passes else self._join(data, start)

    def _find_body(self, head: bytes, data: bytes) -> int:
        """Return where in `data` the body begins; its end while the head is not whole."""
        known, head, end = len(head), head + data, 0
        while found := _BLANK_LINE.search(head, end):
            begin, end = end, found.end()
            if not _INTERIM.match(head, begin):
                self._head = None
                self.passes = _CHUNKED.search(head, begin, end) is None
                return end - known
        self._head = head
        self.passes = len(head) > _LONGEST_HEAD
        return len(data)

    def _skip_begun(self, data: bytes, start: int) -> int:
        """Return where in `data` a chunk begins, behind the one that was begun before."""
        if self._line and start < len(data):
            end = data.find(b"\n", start) + 1 or len(data)
            self._line += data[start:end]
            start = end
            if size_line := _SIZE_LINE.fullmatch(self._line):
                self._line = b""
                self._begin(int(size_line[1], 16), 0)
            else:
                self.passes = _PART_OF_SIZE_LINE.fullmatch(self._line) is None
        skipped = min(self._left, len(data) - start)
        self._left -= skipped
        return start + skipped

    def _begin(self, size: int, come: int) -> None:
        """Begin a chunk of `size` bytes, of which, and of its end, so many have `come`."""
        self._left = size + len(_END) - come
        self.passes = size == 0 or self._left <= 0  # the last one, or it does not end as it should

    def _join(self, data: bytes, start: int) -> bytes:
        """Return `data`, where from `start` on the chunks that are whole are one."""
        parts: list[bytes] = []
        at = start
        while size_line := _SIZE_LINE.match(data, at):
            size, begin = int(size_line[1], 16), size_line.end()
            end = begin + size
            if not size or not data.startswith(_END, end):
                self._begin(size, len(data) - begin)
                break
            parts.append(data[begin:end])
            at = end + len(_END)
        else:
            self._line = data[at:]
            if self._line and not _PART_OF_SIZE_LINE.fullmatch(self._line):
                self.passes = True
        if len(parts) < 2:
            return data
        joined = b"".join(parts)
        return b"%b%x\r\n%b\r\n%b" % (data[:start], len(joined), joined, data[at:])
