"""The judgement of this machine's clock by those of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..findings import Finding, find

__all__ = ["TOLERANCE_US", "judge_clock"]

TOLERANCE_US: Final = 5_000_000
"""As in the alarm of `docs/howto/observing.md`; tokens get 10 s of leeway."""


def judge_clock(where: str, now_us: int, other_us: int, spread_us: int) -> Iterator[Finding]:
    """Yield that the clock of this machine differs, where it surely does.

    Args:
        where: Whose clock the other one is.
        now_us: The clock of this machine, in microseconds since the epoch.
        other_us: The other clock at that moment.
        spread_us: How far either may be off by the way it was read.
    """
    ahead_us = now_us - other_us
    if abs(ahead_us) > TOLERANCE_US + spread_us:
        seconds = abs(ahead_us) / 1_000_000
        side = "ahead of" if ahead_us > 0 else "behind"
        message = (
            f"says another time: the clock of this machine is {seconds:.0f} s {side} its clock"
        )
        yield find("clock_differs", where, message)
