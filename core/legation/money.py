"""Money: amounts of US dollars, as integers of nano-USD: a thousand millionth of a dollar each.

No amount is ever a binary fraction.  One is read from a decimal, and shown as one.
"""

from __future__ import annotations

import re
from typing import Final, cast

__all__ = ["MOST_NANO", "NANO", "SENTENCE", "nano_of", "number_of", "parse_usd", "render_usd"]

NANO: Final = 1_000_000_000
"""How many nano-USD a dollar has."""

MOST_NANO: Final = 10**15 - 1
"""No amount is more: the largest integer of a structured field (RFC 9651 section 3.3.1)."""

SENTENCE: Final = (
    'must be US dollars in quotes, as "2.50": up to 6 digits, and up to 9 behind the point'
)
"""The fault of an amount that `parse_usd` cannot read."""

_AMOUNT: Final = re.compile(r"([0-9]{1,6})(?:\.([0-9]{1,9}))?", re.ASCII)


def parse_usd(text: object) -> int | None:
    """Return the nano-USD of a decimal; None where it is none, less than 0 or too long."""
    found = _AMOUNT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    return int(found[1]) * NANO + int((found[2] or "").ljust(9, "0"))


def render_usd(nano: int) -> str:
    """Return an amount as a decimal, with two digits behind the point or more: `2.50`."""
    dollars, rest = divmod(nano, NANO)
    return f"{dollars}.{f'{rest:09}'.rstrip('0').ljust(2, '0')}"


def nano_of(amount: object) -> int | None:
    """Return the amount that `number_of` has made this number of; None where it is none."""
    if (
        type(amount) not in (int, float)
        or not 0 <= (found := cast(float, amount)) * NANO <= MOST_NANO
    ):
        return None
    return round(found * NANO)


def number_of(nano: int) -> float:
    """Return an amount as a number of JSON, in dollars: the shortest one that means it.

    It has 15 digits at most, so that nothing of it is lost, up to `MOST_NANO`.
    """
    return nano / NANO
