"""The plan of one trial: what befalls it, as a value, and as a text that repeats it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final, Self

from attrs import frozen

from ..misuse import Misuse
from ..points import Point
from .model_faults import MODEL_FAULTS, ModelFault

__all__ = ["CALM", "Plan", "draw_pair", "draw_plan"]

_MOST_POINTS: Final = 2  # of one seed: a run that dies three times without a step is given up
_STALLS: Final = (5, 45, 100)  # seconds; a lease is 30
_WITHIN: Final = ("", "", "", ".1", ".end")


@frozen
class Plan:
    """The plan of one trial.

    Its text is a list of words: `84.1 12` are two points, the second counted from the restart
    behind the first; `unknown_tool@2` is a fault of the model's second answer; `order:7` is the
    seed of an interleaving.

    Attributes:
        points: Where processes die, or stall: each counted from the start before.
        faults: What the model does wrong, by the number of its answer in the test.
        order: The seed of the interleaving; first in, first out if None.
    """

    points: tuple[Point, ...] = ()
    faults: tuple[tuple[int, str], ...] = ()
    order: int | None = None

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the plan that `text` stands for.

        Raises:
            Misuse: It stands for none.
        """
        points: list[Point] = []
        faults: list[tuple[int, str]] = []
        order: int | None = None
        for word in text.split():
            name, at, number = word.partition("@")
            if word.startswith("order:") and word[6:].isdigit():
                order = int(word[6:])
            elif at and name in MODEL_FAULTS and number.isdigit():
                faults.append((int(number), name))
            elif at:
                raise Misuse(f"storm: {word!r} is no fault of a model, as unknown_tool@2 is")
            else:
                points.append(Point.read(word))
        return cls(tuple(points), tuple(faults), order)

    def find_fault(self, answer: int) -> ModelFault | None:
        """Return what the model does wrong with its `answer`-th answer."""
        for number, name in self.faults:
            fault = MODEL_FAULTS[name]
            if number == answer or (fault.lasts and number < answer):
                return fault
        return None

    def __str__(self) -> str:
        faults = (f"{name}@{number}" for number, name in self.faults)
        order = () if self.order is None else (f"order:{self.order}",)
        return " ".join((*map(str, self.points), *faults, *order))


CALM: Final = Plan()


def draw_pair(number: int, points: Sequence[Point], try_: int) -> Plan:
    """Return the plan of a pair of crashes: the first of `points`, the second as far at most."""
    drawn = Random(f"pair {number}.{try_}")
    second = drawn.randint(1, drawn.randint(1, points[-1].effect))  # most lie soon after a restart
    return Plan((drawn.choice(points), Point(second, ended=drawn.random() < 1 / 4)))


def draw_plan(seed: int, length: int, answers: int, faults: Iterable[ModelFault]) -> Plan:
    """Return the plan of a seed: crashes, stalls, an interleaving, and what models do wrong.

    Args:
        seed: The seed.
        length: The number of effects of the test in calm.
        answers: The number of answers of models in it.
        faults: Those that are drawn from.
    """
    drawn = Random(f"storm {seed}")
    words: list[str] = []
    for _ in range(drawn.randint(0, _MOST_POINTS)):
        stall = f"~{drawn.choice(_STALLS)}" if drawn.random() < 1 / 3 else drawn.choice(_WITHIN)
        words.append(f"{drawn.randint(1, length)}{stall}")
    names = [fault.name for fault in faults]
    if names and answers and (not words or drawn.random() < 1 / 2):
        words.append(f"{drawn.choice(names)}@{drawn.randint(1, answers)}")
    return Plan.read(" ".join((*words, f"order:{seed}")))
