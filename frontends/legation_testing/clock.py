"""A clock that moves only when a test or a wait moves it."""

from __future__ import annotations

import math
from typing import Final

from attrs import define, field

__all__ = ["NEW_YEAR_2026", "Clock", "microseconds"]

NEW_YEAR_2026: Final = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z in microseconds since the epoch: the default start of clocks."""


def microseconds(seconds: float) -> float:
    """Return `seconds` as whole microseconds, rounded up; infinity stays, less than 0 is 0."""
    return max(0, math.ceil(seconds * 1_000_000)) if math.isfinite(seconds) else seconds


@define
class Clock:
    """Virtual time.  Waits are measured on `elapsed_us`, which never goes back.

    The wall clock, which programs read with `Now`, can also be set: as an operator or NTP does.

    Attributes:
        start_us: The wall clock at the start, in microseconds since the epoch, UTC.
        elapsed_us: Microseconds of virtual time since the start.
    """

    start_us: int = NEW_YEAR_2026
    elapsed_us: int = field(default=0, init=False)

    @property
    def now_us(self) -> int:
        """The wall clock: microseconds since the epoch, UTC."""
        return self.start_us + self.elapsed_us

    @property
    def now_s(self) -> int:
        """The wall clock in whole seconds, as `iat` and `exp` of a token count them."""
        return self.now_us // 1_000_000

    @property
    def elapsed(self) -> float:
        """Seconds of virtual time since the start."""
        return self.elapsed_us / 1_000_000

    def set_forward(self, seconds: float) -> None:
        """Set the wall clock `seconds` forward, or back; no wait ends by it."""
        self.start_us += round(seconds * 1_000_000)

    def pass_to(self, elapsed_us: float) -> None:
        """Let time pass until `elapsed_us` after the start; never backwards."""
        self.elapsed_us = max(self.elapsed_us, int(elapsed_us))
