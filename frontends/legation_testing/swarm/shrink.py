"""Shrinking: leaving out what a failure does not need, by delta debugging.

Zeller and Hildebrandt's `ddmin` without its tests of subsets: parts are left out, first large ones,
then smaller ones, as long as the failure stays the same; bounded, as each test is a whole storm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["shrink"]

D = TypeVar("D")


def shrink(
    decisions: Sequence[D], fails: Callable[[Sequence[D]], bool], limit: int = 300
) -> tuple[D, ...]:
    """Return the least of `decisions` that was found to fail in at most `limit` tests."""
    kept, size = list(decisions), max(1, len(decisions) // 2)
    while True:
        at, shorter = 0, False
        while at < len(kept) and limit > 0:
            rest = kept[:at] + kept[at + size :]
            limit -= 1
            if fails(rest):
                kept, shorter = rest, True
            else:
                at += size
        if limit <= 0 or (size == 1 and not shorter):
            return tuple(kept)
        size = max(1, size // 2)
