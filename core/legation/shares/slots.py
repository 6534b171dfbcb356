"""Slots: a bounded number of places, of which no subject takes more than it leaves to the others.

A subject may hold as many places as are free, times its weight.  So whoever is alone gets half of
them, two get a third each, and there is always one more for who comes new, without anybody saying
beforehand how many subjects there will be (the dynamic threshold of Choudhury and Hahne, 1998).
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import field

from ..values import define

__all__ = ["Slots"]


@define(eq=False)
class Slots:
    """The places of one kind, and who holds how many of them.

    Attributes:
        capacity: How many there are.
        total: How many are held.
    """

    capacity: int
    total: int = field(default=0, init=False)
    _held: dict[str, int] = field(factory=dict[str, int], init=False)

    def count_held(self, subject: str) -> int:
        """Return how many places `subject` holds."""
        return self._held.get(subject, 0)

    def has_room(self, subject: str, most: int, amount: int = 1, weight: float = 1.0) -> bool:
        """Return whether `subject` may take `amount` more, of which it is to hold `most`."""
        holds, free = self._held.get(subject, 0) + amount, self.capacity - self.total
        # Whoever has none gets one of those that are free, however small its weight.
        return holds <= most and (holds <= weight * free or holds == amount <= free)

    def find_full(self, weigh: Callable[[str], float]) -> tuple[str, ...]:
        """Return who holds something and may take no more; `weigh` has the weights."""
        free = self.capacity - self.total
        return tuple(s for s, holds in self._held.items() if holds + 1 > weigh(s) * free)

    def try_to_take(self, subject: str, weight: float) -> bool:
        """Give `subject` one more place, if there is room for it; return whether there was."""
        held = self._held
        holds, free = held.get(subject, 0) + 1, self.capacity - self.total
        if holds > weight * free and not holds == 1 <= free:
            return False
        held[subject] = holds
        self.total += 1
        return True

    def enter(self, subject: str, most: int, amount: int = 1, weight: float = 1.0) -> bool:
        """Take `amount` places where `has_room` says yes; return whether it does."""
        held = self._held
        holds, free = held.get(subject, 0) + amount, self.capacity - self.total
        if holds > most or (holds > weight * free and not holds == amount <= free):
            return False
        held[subject] = holds
        self.total += amount
        return True

    def take(self, subject: str, amount: int = 1) -> None:
        """Give `amount` places to `subject`, whether or not there is room."""
        self._held[subject] = self._held.get(subject, 0) + amount
        self.total += amount

    def release(self, subject: str, amount: int = 1) -> None:
        """Take `amount` places back; a subject without any is forgotten."""
        self.total -= amount
        left = self._held[subject] - amount
        if left:
            self._held[subject] = left
        else:
            del self._held[subject]
