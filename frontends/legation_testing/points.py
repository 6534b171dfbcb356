"""The points at which a process is killed, or stalls, counted in effects and in awaits."""

from __future__ import annotations

import re
from typing import Any, Final, Self

from attrs import frozen

from .misuse import Misuse

__all__ = ["Point"]

_TEXT: Final = re.compile(r"([1-9]\d*)(?:\.(end|[1-9]\d*)|~(\d+))?")


@frozen
class Point:
    """A point of a process: before an effect, within the function that it calls, or behind it.

    As text it is `84`, `84.1` behind the first await of the function that effect 84 calls,
    `84.end` where effect 84 is performed and its answer lost, and `84~75` where the process stalls
    there for 75 seconds, and goes on.

    Attributes:
        effect: The number of the effect, from 1, counted from when the point is planned.
        awaits: So many awaits of the author's own code end first; with fewer, it is the end.
        ended: The effect is performed, and its answer is lost.
        stall_seconds: The process stalls for so long; 0 if it dies.
    """

    effect: int
    awaits: int = 0
    ended: bool = False
    stall_seconds: int = 0

    @property
    def within(self) -> bool:
        """Whether the effect is performed first, at least in part."""
        return self.ended or self.awaits > 0

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the point that `text` stands for.

        Raises:
            Misuse: It stands for none.
        """
        match: re.Match[str] | None = _TEXT.fullmatch(text)
        if match is None:
            raise Misuse(f"{text!r} is no point: write 84, 84.1, 84.end or 84~75")
        within, stall = match[2] or "", int(match[3] or 0)
        awaits = int(within) if within.isdigit() else 0
        return cls(int(match[1]), awaits, within == "end", stall)

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return a point given as itself, as the number of its effect, or as text."""
        if isinstance(value, cls):
            return value
        return cls(value) if isinstance(value, int) else cls.read(str(value))

    def __str__(self) -> str:
        if self.stall_seconds:
            return f"{self.effect}~{self.stall_seconds}"
        within = "end" if self.ended else self.awaits
        return f"{self.effect}.{within}" if within else str(self.effect)
