"""Values in what a provider sends, read leniently: what is not of the kind asked for is empty."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ..http.bodies.json_text import JsonObject, JsonValue

__all__ = ["LONGEST_NAME", "at", "identifier", "moment_us", "objects", "text_at"]

LONGEST_NAME: Final = 256
"""Characters of an identifier."""

_LATEST_US: Final = 1 << 53


def at(value: JsonValue, *path: str) -> JsonValue:
    """Return what lies in `value` at the end of `path`, or None wherever that leads nowhere."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def objects(value: JsonValue) -> Iterator[JsonObject]:
    """Yield the members of a list, an empty object in place of anything else."""
    if isinstance(value, list):
        for item in value:
            yield item if isinstance(item, dict) else {}


def text_at(value: JsonValue, *path: str) -> str:
    """Return the string at `path`, or ""."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def identifier(value: JsonValue) -> str:
    """Return `value`, a short string of visible characters or an integer, as text, or ""."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
        return ""
    return value if value.isprintable() and not value.isspace() else ""


def moment_us(seconds: JsonValue) -> int | None:
    """Return the moment that `seconds` since the epoch, a number or digits, means; or None."""
    if isinstance(seconds, str) and re.fullmatch(r"[0-9]{1,11}(\.[0-9]{1,9})?", seconds, re.ASCII):
        seconds = float(seconds)
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        return None
    return int(seconds * 1_000_000) if 0 <= seconds < _LATEST_US / 1_000_000 else None
