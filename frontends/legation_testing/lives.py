"""The lives of a platform or a simulation that is killed at planned points and started again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from .client import Client
from .faults import Crashed
from .misuse import Misuse
from .points import Point
from .simulation import Simulation

__all__ = ["Lives"]

S = TypeVar("S", Simulation, Client)
R = TypeVar("R")


class Lives(Generic[S]):
    """A subject that dies at one point after another, each counted from the start before it.

    Attributes:
        subject: What lives now.
        crashes: How it died so far.
    """

    def __init__(self, taker: str, subject: S, points: Iterable[int | Point]) -> None:
        """Plan the first point; `taker` is the function that a misuse is reported for."""
        self.subject: S = subject
        self.crashes: list[Crashed] = []
        self._taker = taker
        self._points = iter(points)
        if (first := next(self._points, None)) is not None:
            subject.crash_at(first)

    def live(self, act: Callable[[S], R]) -> R | None:
        """Return what `act` returns; None where the subject died, and lives again."""
        try:
            return act(self.subject)
        except Crashed as crash:
            died: Crashed | None = crash
        while died is not None:
            self.crashes.append(died)
            died = self._revive(died)
        return None

    def _revive(self, died: Crashed) -> Crashed | None:
        """Start the subject again; return the next crash, where that comes meanwhile."""
        try:
            self.revive(died, next(self._points, None))
        except Crashed as crash:
            return crash
        return None

    def revive(self, died: Crashed, then: int | Point | None) -> None:
        """Start the subject again, with its next point planned.

        Raises:
            Crashed: It died at that point already.
            Misuse: The platform that was killed comes again.
        """
        subject = self.subject
        if not isinstance(subject, Client):
            subject.restart(then)
            return
        killed = subject.platform
        subject.restart(then)
        if subject.platform is killed:
            raise Misuse(
                f"{self._taker}: the function that makes the platform returned the killed one"
                " again, with all that it remembers; make a new one in it"
            )
