"""Ids of runs and sessions that nobody named: UUIDs (RFC 9562), as text."""

from __future__ import annotations

import hashlib
from typing import Final

from ..effects import Program, RandomBytes

__all__ = ["copy_run_id", "member_run_id", "new_id", "uuid_text"]

_DRAW: Final = RandomBytes(16)
_MASK: Final = (1 << 48) - 1
"""The milliseconds that an id has room for, up to the year 10889."""


def new_id(now_us: int) -> Program[str]:
    """Return a new id, of version 7: the time in milliseconds, and 74 random bits.

    Ids in the order of time put rows that are made together side by side in every index, where
    those of version 4 would each touch a page of its own: a commit then writes half as many.
    """
    drawn: bytes = yield _DRAW
    milliseconds = now_us // 1_000 & _MASK
    return uuid_text(milliseconds.to_bytes(6, "big") + drawn[6:], version=7)


def member_run_id(run_id: str, place: str, created_us: int) -> str:
    """Return the id of the run of a team's member: that of its place in the run at the top.

    It is of version 7 with the time at which that run was asked for.  Whoever goes on with the run
    after a crash finds the member's by it.
    """
    return _derive_id(f"{run_id}:{place}", created_us)


def copy_run_id(session_id: str, run_id: str, created_us: int) -> str:
    """Return the id of the copy of a run in the session of this id, made at `created_us`."""
    return _derive_id(f"{session_id}:copy:{run_id}", created_us)


def _derive_id(text: str, at_us: int) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    milliseconds = at_us // 1_000 & _MASK
    return uuid_text(milliseconds.to_bytes(6, "big") + digest[:10], version=7)


def uuid_text(sixteen: bytes, version: int = 4) -> str:
    """Return `sixteen` bytes as the text of a UUID of this version."""
    raw = bytearray(sixteen)
    raw[6] = raw[6] & 0x0F | version << 4
    raw[8] = raw[8] & 0x3F | 0x80
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
