"""The places and bytes that a request holds, and gives back when it is over, whatever ends it."""

from __future__ import annotations

from attrs import field

from ..values import define
from .slots import Slots

__all__ = ["Held"]


@define(eq=False)
class Held:
    """The places in slots that one request holds.

    Attributes:
        taken: From which slots, by which subject, how much.
    """

    taken: list[tuple[Slots, str, int]] = field(factory=list[tuple[Slots, str, int]], init=False)

    def keep(self, amount: int) -> None:
        """Give back what each of the slots gave beyond `amount`."""
        taken, self.taken = self.taken, []
        for slots, subject, holds in taken:
            if holds > amount:
                slots.release(subject, holds - amount)
            if least := min(holds, amount):
                self.taken.append((slots, subject, least))

    def release(self) -> None:
        """Release all that is held; there is nothing left for a second time."""
        while self.taken:
            slots, subject, amount = self.taken.pop()
            slots.release(subject, amount)
