"""The report of a storm: what became of its trials, by the author's tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from attrs import field, frozen

__all__ = ["StormEnds", "ToolStormReport", "ToolTally", "WithinTally"]

_NONE: Final = "none"
_OFTEN: Final = {1: "once", 2: "twice"}


@frozen
class WithinTally:
    """The outcomes of the trials in which a process died at one place of a tool.

    Attributes:
        where: The place, as `after its 1st await (charge)`.
        outcomes: The number of trials by what came of the call.
    """

    where: str
    outcomes: Mapping[str, int]

    def __str__(self) -> str:
        if len(self.outcomes) == 1:
            return f"killed {self.where}: {next(iter(self.outcomes))}"
        parts = (f"{outcome} at {times}" for outcome, times in self.outcomes.items())
        return f"killed {self.where}: {', '.join(parts)}"


@frozen
class ToolTally:
    """The numbers of calls of a tool in the trials of a storm.

    Attributes:
        name: Of the tool, or of the agent that is a function.
        again: What it says of a second call: `never`, `safe` or `key`.
        times: The number of trials by the number of calls in them.
        in_doubt: The number of trials in which a person was asked about its outcome.
        within: What came of it where a process died in it.
    """

    name: str
    again: str
    times: Mapping[int, int]
    in_doubt: int
    within: tuple[WithinTally, ...] = ()

    @property
    def most(self) -> int:
        """The most calls in one trial."""
        return max(self.times, default=0)

    @property
    def label(self) -> str:
        """Its name, with what it says of a second call."""
        return f"{self.name} ({self.again})"

    def summarize(self) -> str:
        """Return how often it was called, in words: of one that may be called again, how often."""
        if not self.most:
            return "not called"
        if self.again != "never":
            return f"up to {_OFTEN.get(self.most, f'{self.most} times')}"
        times = dict(self.times)
        parts = [f"once at {times.pop(1, _NONE)}", f"not at all at {times.pop(0, _NONE)}"]
        parts.append(f"twice at {times.pop(2, _NONE)}")
        if more := sum(times.values()):
            parts.append(f"up to {self.most} times at {more}")
        return ", ".join(parts)

    def __str__(self) -> str:
        return f"{self.label}  {self.summarize()}"


@frozen
class StormEnds:
    """The ends of the trials of a storm.

    Attributes:
        completed: The number of those in which every run completed.
        asked: In which a run waits for a person.
        failed: In which a run ended without an answer, by the reason.
        not_begun: In which the process died before a run was stored.
    """

    completed: int = 0
    asked: int = 0
    failed: Mapping[str, int] = field(factory=dict[str, int])
    not_begun: int = 0

    @classmethod
    def of(cls, ends: Iterable[tuple[str, str]]) -> StormEnds:
        """Return the sum of these ends, each with a reason."""
        counted = Counter(ends)
        failed = {reason: n for (end, reason), n in sorted(counted.items()) if end == "failed"}
        sums = Counter(end for end, _ in counted.elements())
        return cls(sums["completed"], sums["asked"], failed, sums["not begun"])


@frozen
class ToolStormReport:
    """The report of a storm: the ends of its trials, and its tools by name.

    Attributes:
        name: Of the platform.
        points: The number of points at which a single crash was tried.
        pairs: The number of pairs of crashes.
        faults: The number of single faults of models.
        seeds: The number of seeds.
        ends: How the trials ended.
        tools: By name.
        slowest: The place of the crash, or what the model did wrong, of the trial that took
            longest.
        seconds: The virtual seconds of that trial.
        again: The number of trials in which a model was asked the same once more.
    """

    name: str
    points: int
    pairs: int
    faults: int
    seeds: int
    ends: StormEnds
    tools: tuple[ToolTally, ...]
    slowest: str
    seconds: float
    again: int

    def __str__(self) -> str:
        lines = [f"{self.name}: {self._count_trials()}: all ended; {self._count_ends()}"]
        width = max((len(tool.label) for tool in self.tools), default=0)
        for tool in self.tools:
            lines.append(f"  {tool.label:{width}}  {tool.summarize()}")
            lines += [f"    {within}" for within in tool.within]
        again = f"model asked once more at {self.again or _NONE}"
        lines.append(f"slowest point: {self.slowest}, {self.seconds:.1f} s · {again}")
        return "\n".join(lines)

    def _count_trials(self) -> str:
        counts = (
            (self.points, "points"),
            (self.pairs, "pairs"),
            (self.faults, "faults of models"),
            (self.seeds, "seeds"),
        )
        return ", ".join(f"{number} {what}" for number, what in counts if number) or "no trial"

    def _count_ends(self) -> str:
        ends, doubtful = self.ends, [tool.name for tool in self.tools if tool.in_doubt]
        parts = [f"{ends.completed} completed"]
        if ends.asked:
            doubts = f" ({', '.join(doubtful)} in doubt)" if doubtful else ""
            parts.append(f"{ends.asked} asked a person{doubts}")
        if ends.failed:
            reasons = ", ".join(f"{reason} {number}" for reason, number in ends.failed.items())
            parts.append(f"{sum(ends.failed.values())} failed ({reasons})")
        if ends.not_begun:
            parts.append(f"{ends.not_begun} not begun")
        return ", ".join(parts)
