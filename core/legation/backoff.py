"""The back-off: how long to wait before something that failed is tried again."""

from __future__ import annotations

from typing import Final

from .effects import Program, RandomBytes, Sleep
from .values import frozen

__all__ = ["Backoff"]

_DOUBLINGS: Final = 64  # more than any pause needs to be the longest


@frozen
class Backoff:
    """Pauses that double from `first_seconds` up to `longest_seconds`.

    Of each at least half, and of the other half a random share (jitter), so that what failed
    together does not come back together.
    """

    first_seconds: float
    longest_seconds: float

    def seconds(self, attempt: int, fraction: float) -> float:
        """Return the pause after `attempt` (from 1); `fraction` is random, 0 to 1."""
        doublings = min(max(attempt - 1, 0), _DOUBLINGS)
        whole = min(self.first_seconds * 2.0**doublings, self.longest_seconds)
        return whole * (1 + fraction) / 2

    def draw(self, attempt: int) -> Program[float]:
        """Return the pause after `attempt`, in seconds."""
        drawn = yield from RandomBytes(2)
        return self.seconds(attempt, int.from_bytes(drawn, "big") / 0xFFFF)

    def wait(self, attempt: int) -> Program[None]:
        """Wait as long as `attempt` asks for."""
        yield from Sleep((yield from self.draw(attempt)))
