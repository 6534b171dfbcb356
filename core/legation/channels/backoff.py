"""The back-off of messages and replies: the time of the next retry, and the end of all retries.

Twenty attempts or a day, whichever comes first, then the dead letters.  Attempts are also the
fencing token of a lease and never go back, so what an operator revives gets one attempt more.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_AGE_US", "MAX_ATTEMPTS", "delay_us", "retry_us"]

MAX_ATTEMPTS: Final = 20
MAX_AGE_US: Final = 24 * 3600 * 1_000_000

_FIRST_US: Final = 500_000
_LONGEST_US: Final = 300 * 1_000_000
_DOUBLINGS: Final = (_LONGEST_US // _FIRST_US).bit_length()  # enough to reach the longest


def delay_us(attempts: int, fraction: float) -> int:
    """Return the pause after the attempt numbered `attempts` (from 1), in microseconds.

    0.5 s, doubled by every attempt up to 5 min; of it at least half, and of the other half
    `fraction` (random, 0 to 1), so that what failed together does not come back together.
    """
    whole = min(_FIRST_US << min(max(attempts - 1, 0), _DOUBLINGS), _LONGEST_US)
    return whole // 2 + int(whole / 2 * fraction)


def retry_us(
    attempts: int, since_us: int, now_us: int, fraction: float, asked_seconds: int | None = None
) -> int | None:
    """Return when to try again, or None when it is time to give up.

    Args:
        attempts: Made so far, the one that just failed included.
        since_us: When the message came, or the reply was written.
        asked_seconds: What the other side asked us to wait at least (`Retry-After`).
    """
    at_us = now_us + max(delay_us(attempts, fraction), (asked_seconds or 0) * 1_000_000)
    if attempts >= MAX_ATTEMPTS or at_us - since_us > MAX_AGE_US:
        return None
    return at_us
