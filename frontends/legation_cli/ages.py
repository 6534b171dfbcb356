"""Lengths of time in the words of a person."""

from __future__ import annotations

from typing import Final

__all__ = ["describe_age"]

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def describe_age(seconds: int) -> str:
    """Return a length of time in the largest unit that it fills."""
    unit, size = next(((u, s) for u, s in _UNITS if seconds >= s), ("s", 1))
    return f"{seconds // size} {unit}"
