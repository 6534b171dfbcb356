"""The retries of messages and replies: when the next one is due, and the end of all retries.

Twenty attempts or a day, whichever comes first, then the dead letters.  Attempts are also the
fencing token of a lease and never go back, so what an operator revives gets one attempt more.
"""

from __future__ import annotations

from typing import Final

from ..backoff import Backoff
from ..effects import Program

__all__ = ["MAX_AGE_US", "MAX_ATTEMPTS", "draw_wait_us"]

MAX_ATTEMPTS: Final = 20
MAX_AGE_US: Final = 24 * 3600 * 1_000_000

_BACKOFF: Final = Backoff(0.5, 300.0)


def draw_wait_us(
    attempts: int, since_us: int, now_us: int, asked_seconds: int | None = None
) -> Program[int | None]:
    """Return how long to wait before the next attempt, None when it is time to give up.

    Args:
        attempts: Made so far, the one that just failed included.
        since_us: When the message came, or the reply was written.
        asked_seconds: What the other side asked us to wait at least (`Retry-After`).
    """
    pause = max((yield from _BACKOFF.draw(attempts)), asked_seconds or 0)
    wait_us = int(pause * 1_000_000)
    if attempts >= MAX_ATTEMPTS or now_us + wait_us - since_us > MAX_AGE_US:
        return None
    return wait_us
