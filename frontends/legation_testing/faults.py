"""Faults that a test plans: an effect that fails, and a process that dies."""

from __future__ import annotations

from typing import Any

from attrs import define, frozen

from legation.effects import Effect

from .matching import Expected, matches, show
from .points import Point

__all__ = ["Crashed", "Performed", "PlannedFault"]


@frozen
class Performed:
    """An effect that a program asked for.  `program` is its label, `node` the name of its node.

    Attributes:
        program: The label of the program.
        node: The name of its node.
        effect: The effect.
    """

    program: str
    node: str
    effect: Effect


class Crashed(BaseException):
    """The node was killed, or stalls, as planned, when `at.program` asked for `at.effect`.

    Not an `Exception`, so that a test which expects failures does not take it for one.

    Attributes:
        number: The number of the effect, of all of the simulation.
        at: The effect, and who asked for it.
        point: The point that was planned.
        awaited: What the function that it calls had awaited by then.
    """

    def __init__(
        self, number: int, at: Performed, point: Point, awaited: tuple[str, ...] = ()
    ) -> None:
        how = "stalled" if point.stall_seconds else "killed"
        where = "within effect" if point.awaits else "behind effect" if point.ended else "at effect"
        super().__init__(f"{how} {where} {number}: {show(at.effect)} of {at.program}")
        self.number = number
        self.at = at
        self.point = point
        self.awaited = awaited


@define
class PlannedFault:
    """A planned failure: `times` effects that match `which`, after `skip` others, end in `outcome`.

    An `outcome` that is an exception is thrown, another is the answer.  With `after`, the effect
    is performed first and only its answer is lost.

    Attributes:
        which: The effects that it matches: a type, a value or a predicate.
        outcome: An exception to throw, or an answer.
        after: Whether the effect is performed first.
        skip: The number of matching effects that succeed before.
        times: The number of effects that fail; None for all.
        hits: The number of effects that have failed.
        struck: The last one that failed.
    """

    which: Expected
    outcome: Any
    after: bool = False
    skip: int = 0
    times: int | None = 1
    hits: int = 0
    struck: Effect | None = None  # the last

    def disarm(self) -> None:
        """Let every effect succeed from now on."""
        self.times = self.hits

    def strikes(self, effect: Effect) -> bool:
        """Count `effect` if it matches; tell whether it has to fail."""
        if not matches(self.which, effect):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None and self.hits >= self.times:
            return False
        self.hits += 1
        self.struck = effect
        return True
