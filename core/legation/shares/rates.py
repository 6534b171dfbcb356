"""Rates: when each subject may ask again, by the generic cell rate algorithm.

Of each subject one number is kept: when its next request would come if all came evenly (the
theoretical arrival time, ITU-T I.371 annex A).  One that comes earlier than that by more than the
burst allows is refused, and leaves no trace.  A number that is more than a burst ahead, since the
clock was set back a little, is brought as near as that; where it was set back by more than a
second, all numbers go, and nobody is refused for it.

The numbers are kept in two generations.  The younger one becomes the older one when it is full, or
after the longest time that a number counts for: whose number goes then has asked for nothing in
that time, or shares this process with more subjects than it remembers.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

from attrs import field

from ..values import define
from .limits import Limits

__all__ = ["MOST_SUBJECTS", "Rates"]

MOST_SUBJECTS: Final = 65_536
"""So many subjects are remembered at most."""

_LEAST_US: Final = 60_000_000
"""A generation lasts a minute at least, unless it is full."""

_SET_BACK_US: Final = 1_000_000
"""A request that comes so much earlier than the one before it: the clock was set back."""

_Key: TypeAlias = tuple[str, float, int]
"""A subject, and the rate and burst of its limits: tokens with other limits have another number."""


@define(eq=False)
class Rates:
    """The rates of the subjects of one process."""

    _most: int = MOST_SUBJECTS // 2
    _young: dict[_Key, float] = field(factory=dict[_Key, float], init=False)
    _old: dict[_Key, float] = field(factory=dict[_Key, float], init=False)
    _began_us: int = field(default=0, init=False)
    _lasts_us: float = field(default=_LEAST_US, init=False)
    _latest_us: int = field(default=0, init=False)

    def __len__(self) -> int:
        """Return how many numbers are kept."""
        return len(self._young) + len(self._old)

    def forget(self) -> None:
        """Begin anew: nobody has asked for anything."""
        self._young, self._old, self._latest_us = {}, {}, 0

    def take(self, subject: str, limits: Limits, nodes: int, now_us: int) -> float:
        """Count a request at `now_us`, or return in how many microseconds it may be made.

        `nodes` share the rate and the burst.
        """
        rate = limits.requests_per_second
        if not rate:
            return 0
        if now_us < self._latest_us - _SET_BACK_US:
            self.forget()
        self._latest_us = now_us
        interval = 1e6 * nodes / rate
        burst = interval * (limits.request_burst // nodes or 1)
        key = (subject, rate, limits.request_burst)
        due = self._young.get(key) or self._old.get(key, 0)
        ahead = due - now_us if due > now_us else 0
        if ahead > burst:  # the clock was set back a little, or other nodes live
            ahead = burst
            (self._young if key in self._young else self._old)[key] = now_us + burst
        if ahead + interval > burst + 1:  # what is less than a microsecond is rounding
            return ahead + interval - burst
        self._young[key] = now_us + ahead + interval
        self._lasts_us = max(self._lasts_us, burst)
        if len(self._young) > self._most or not 0 <= now_us - self._began_us < self._lasts_us:
            self._old, self._young, self._began_us = self._young, {}, now_us
        return 0

    def count_remaining(
        self, subject: str, limits: Limits, nodes: int, now_us: int
    ) -> tuple[int, float]:
        """Return how many requests `subject` may make now, and in how many seconds all of them."""
        interval = 1e6 * nodes / limits.requests_per_second
        burst = limits.request_burst // nodes or 1
        key = (subject, limits.requests_per_second, limits.request_burst)
        due = self._young.get(key) or self._old.get(key, 0)
        ahead = min(max(due - now_us, 0), burst * interval)
        return burst - math.ceil((ahead - 1) / interval), ahead / 1e6
