"""Ids of runs and sessions that nobody named."""

from __future__ import annotations

from ..effects import Program, RandomBytes

__all__ = ["new_id", "uuid_text"]


def new_id() -> Program[str]:
    """Return a random UUID (RFC 9562 section 5.4), as text."""
    return uuid_text((yield from RandomBytes(16)))


def uuid_text(sixteen: bytes) -> str:
    """Return `sixteen` bytes as the text of a UUID of version 4."""
    raw = bytearray(sixteen)
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    digits = raw.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
