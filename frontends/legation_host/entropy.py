"""Unpredictable bytes from the system, fetched for many requests at once.

Every request is given an id.  The call that fetches its bytes is short, but during it the thread
of the event loop lets go of the interpreter: when the thread that writes to a database waits for
that, it is woken each time, nearly always in vain, and the two cost ten times the bytes.
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["unpredictable"]

PIECE: Final = 16
"""Bytes of an id, which is what nearly everybody asks for."""

_AT_ONCE: Final = 64
_pieces: Final[list[bytes]] = []

# A child has none of its parent's: no two processes may give out the same bytes.
os.register_at_fork(after_in_child=_pieces.clear)


def unpredictable(size: int) -> bytes:
    """Return `size` bytes for use in cryptography, none of them given out before; thread-safe."""
    if size > PIECE:
        return os.urandom(size)
    try:
        return _pieces.pop()[:size]
    except IndexError:
        data = os.urandom(PIECE * _AT_ONCE)
        _pieces.extend([data[at : at + PIECE] for at in range(PIECE, len(data), PIECE)])
        return data[:size]
