"""The calls of an author's functions in a storm: how often, and where a process died in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from attrs import define, field, frozen

from legation import Platform
from legation.effects import CallFunction

from ..faults import Crashed, Performed
from ..points import Point

__all__ = ["Calls", "Within"]


@frozen
class Within:
    """A place in a function of the author's at which a process died.

    Attributes:
        tool: Its name.
        where: As `after its 1st await (charge)`.
    """

    tool: str
    where: str

    def __str__(self) -> str:
        return f"within {self.tool}, {self.where}"


@define(eq=False)
class Calls:
    """The calls that a trial made, of functions known by their identity.

    Attributes:
        again: What each function says of a second call, by its name.
        effects: The effects of the simulation.
        functions: The names of those that are agents.
        lost: The places in them of those that were not performed.
    """

    effects: Sequence[Performed]
    again: dict[str, str] = field(factory=dict[str, str])
    functions: set[str] = field(factory=set[str])
    lost: set[int] = field(factory=set[int])
    _names: dict[int, str] = field(factory=dict[int, str])
    _platforms: list[Platform] = field(factory=list[Platform])  # else an identity comes again

    def learn(self, platform: Platform) -> None:
        """Note the names of the functions of a platform: tools, and agents that are functions."""
        self._platforms.append(platform)
        for kind in ("agent", "team"):
            for component in platform.registry.components(kind).values():
                if component.run is not None:
                    self.again[component.id] = component.again
                    self.functions.add(component.id)
                    self._names[id(component.run.function)] = component.id
                for tool in component.tools:
                    self.again[tool.name] = tool.again
                    self._names[id(tool.function)] = tool.name

    def find_name(self, performed: Performed) -> str | None:
        """Return the name of the function that an effect calls, if it is one of the author's."""
        effect = performed.effect
        return self._names.get(id(effect.function)) if isinstance(effect, CallFunction) else None

    def list_made(self, since: int = 0) -> Iterator[str]:
        """Yield the names of the functions that were called, in order."""
        for index in range(since, len(self.effects)):
            name = self.find_name(self.effects[index])
            if name is not None and index not in self.lost:
                yield name

    def count(self) -> Counter[str]:
        """Return how often each was called."""
        return Counter(self.list_made())

    def find_within(self, crash: Crashed) -> Within | None:
        """Return where in a function of the author's a crash came; None where it was in none."""
        name = self.find_name(crash.at)
        if name is None or not crash.point.within:
            return None
        awaits = crash.point.awaits
        if not 0 < awaits <= len(crash.awaited):
            return Within(name, "before its result was known")
        return Within(name, f"after its {_ordinal(awaits)} await ({crash.awaited[awaits - 1]})")

    def describe(self, crash: Crashed) -> str:
        """Return where a crash came, by the functions of the author's."""
        within = self.find_within(crash)
        if within is not None:
            return str(within)
        if (name := self.find_name(crash.at)) is not None:
            return f"before {name} was called"
        last = next(reversed(tuple(self.list_made())), None)
        return "before any tool was called" if last is None else f"after {last} was called"

    def find_points(self, begun: int, awaited: dict[int, tuple[str, ...]]) -> Iterator[Point]:
        """Yield every point of what was asked for from the `begun`-th effect on."""
        for index in range(begun, len(self.effects)):
            number = index - begun + 1
            yield Point(number)
            if self.find_name(self.effects[index]) is not None:
                for awaits in range(1, len(awaited.get(index + 1, ())) + 1):
                    yield Point(number, awaits=awaits)
                yield Point(number, ended=True)


def _ordinal(number: int) -> str:
    teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
