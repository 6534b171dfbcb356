"""Content negotiation by `Accept` (RFC 9110 section 12.5.1)."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["prefers_html"]

_QUALITY: Final = re.compile(rb"(?:0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")


def prefers_html(accept: tuple[bytes, ...]) -> bool:
    """Return whether a client likes HTML better than JSON: a browser that opens a page does.

    Args:
        accept: The values of `Accept`.  Without one, and with `*/*` alone, both are as good.
    """
    ranges = _read_ranges(b",".join(accept))
    return _quality(ranges, b"text", b"html") > _quality(ranges, b"application", b"json")


def _quality(ranges: dict[bytes, float], kind: bytes, subtype: bytes) -> float:
    """Return how good a media type is: the most specific range counts; without one it is not."""
    for name in (b"%s/%s" % (kind, subtype), b"%s/*" % kind, b"*/*"):
        if name in ranges:
            return ranges[name]
    return 0.0


def _read_ranges(text: bytes) -> dict[bytes, float]:
    """Return the quality of each media range; one whose quality is malformed is left out."""
    found: dict[bytes, float] = {}
    for part in text.split(b","):
        name, *parameters = (item.strip().lower() for item in part.split(b";"))
        weights = [item[2:] for item in parameters if item.startswith(b"q=")]
        if all(_QUALITY.fullmatch(weight) for weight in weights):
            found[name] = float(weights[0]) if weights else 1.0
    return found
