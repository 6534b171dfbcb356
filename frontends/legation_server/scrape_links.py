"""A link between the parent and one of its workers: a pair of sockets, and frames on them.

A frame is a letter that says what it is, the length of its content in bytes, and that.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from attrs import field

from legation.values import define

__all__ = ["LONGEST", "BadFrame", "Frame", "Frames", "Kind", "pack"]

LONGEST: Final = 16 << 20
"""Bytes of a content: some hundred thousand samples.  Whoever says more is not understood."""

_HEAD: Final = struct.Struct("!cI")


class Kind(Enum):
    """The kind of a frame."""

    ASK = b"a"  # to a worker: say what you have measured
    SNAPSHOT = b"s"  # from a worker: that
    GATHER = b"g"  # from a worker: say what all have measured
    WHOLE = b"w"  # to a worker: that


class Frame(NamedTuple):
    """One frame."""

    kind: Kind
    content: bytes = b""


class BadFrame(ValueError):
    """Bytes that are no frame: who wrote them was ended in the midst of one."""


def pack(frame: Frame) -> bytes:
    """Return the bytes of `frame`; a content that is too long is left out, and no answer then."""
    content = frame.content if len(frame.content) <= LONGEST else b""
    return _HEAD.pack(frame.kind.value, len(content)) + content


@define(eq=False)
class Frames:
    """The frames of a stream, from its bytes as they come."""

    _bytes: bytearray = field(factory=bytearray, init=False)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield each frame that `data` completes.

        Raises:
            BadFrame: From here on nothing can be understood.
        """
        self._bytes += data
        while len(self._bytes) >= _HEAD.size:
            letter, length = _HEAD.unpack_from(self._bytes)
            if length > LONGEST:
                raise BadFrame(f"a frame of {length} bytes")
            end = _HEAD.size + length
            if len(self._bytes) < end:
                return
            content = bytes(self._bytes[_HEAD.size : end])
            del self._bytes[:end]
            yield Frame(_kind(letter), content)


def _kind(letter: bytes) -> Kind:
    try:
        return Kind(letter)
    except ValueError:
        raise BadFrame(f"a frame of kind {letter!r}") from None
