"""The trials of a storm: the test once in calm, and once for each plan of what befalls it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

from attrs import define, field, frozen

from ..misuse import Misuse
from ..points import Point
from .calls import Within
from .ground import Ground
from .model_faults import MODEL_FAULTS, ModelFault
from .plans import CALM, Plan, draw_pair, draw_plan
from .report import StormEnds, ToolStormReport, ToolTally, WithinTally
from .world import StormWorld

__all__ = ["Trial", "Trials"]

MOST_POINTS: Final = 20_000
_TRIES: Final = 10  # for a pair, whose second point may lie behind the end


@frozen
class Trial:
    """One trial, and its outcome.

    Attributes:
        plan: What befell it.
        struck: The number of crashes, stalls and faults of models that came to be.
        end: How it ended, and the reason where it failed.
        calls: How often each tool was called.
        doubts: How often a person is asked about each.
        within: Where a process died in a tool.
        place: Of the last crash.
        seconds: How long it took in virtual time.
        again: How often a model was asked the same again.
    """

    plan: Plan
    struck: int
    end: tuple[str, str]
    calls: dict[str, int]
    doubts: dict[str, int]
    within: tuple[Within, ...]
    place: str
    seconds: float
    again: int


@define(eq=False)
class Trials:
    """The trials of one storm.

    Attributes:
        ground: What each begins with.
        test: Called with a world of its own for each.
        hint: Returns the sentence that says how to repeat a plan, or that of a seed.
        again: The `again` of each tool, by its name.
        made: The trials that count, by the kind of their plans.
    """

    ground: Ground
    test: Callable[[StormWorld], object]
    hint: Callable[[Plan, int | None], str]
    again: dict[str, str] = field(factory=dict[str, str])
    made: dict[str, list[Trial]] = field(factory=dict[str, list[Trial]])
    points: tuple[Point, ...] = ()
    _calm: Trial = field(init=False)
    _length: int = field(default=0, init=False)
    _answers: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        """Run the test in calm.

        Raises:
            Misuse: It runs nothing, or has too many points.
        """
        worlds: list[StormWorld] = []
        self._calm = self._try(CALM, look=worlds.append)
        (world,) = worlds
        if not world.runs:
            raise Misuse("storm: the test ran no agent; call world.run(…) in it")
        self.points = world.find_points()
        self._length, self._answers = world.length, world.witness.asked
        self.again = dict(world.again)
        if len(self.points) > MOST_POINTS:
            raise Misuse(
                f"storm: the test has {len(self.points)} points, more than {MOST_POINTS}: make it"
                " less"
            )

    def repeat(self, plan: Plan) -> None:
        """Run one plan; it counts, whatever comes of it."""
        self.made.setdefault("points", []).append(self._try(plan))

    def pass_each(self, every: int) -> None:
        """Crash once at each point, or at each of so many."""
        self._pass("points", (Plan((point,)) for point in self.points[::every]))

    def pass_pairs(self, pairs: int) -> None:
        """Crash at so many pairs of points, drawn, the second in what lives then."""
        for number in range(pairs):
            for try_ in range(_TRIES):
                if self._keep("pairs", draw_pair(number, self.points, try_), least=2):
                    break

    def pass_faults(self, faults: Iterable[ModelFault]) -> None:
        """Let the model do each thing wrong with each of its answers to which it applies."""
        answers = range(1, self._answers + 1)
        plans = (Plan(faults=((at, fault.name),)) for fault in faults for at in answers)
        self._pass("faults", plans)

    def pass_seeds(self, seeds: Iterable[int], faults: Sequence[ModelFault]) -> None:
        """Let each seed draw what befalls the test, faults of models from `faults` among it.

        Without `faults` they are those that ask for no call which the model did not ask for.
        """
        drawn_from = faults or [one for one in MODEL_FAULTS.values() if not one.wants_more]
        for seed in seeds:
            plan = draw_plan(seed, self._length, self._answers, drawn_from)
            self.made.setdefault("seeds", []).append(self._try(plan, seed))

    def _pass(self, kind: str, plans: Iterable[Plan]) -> None:
        for plan in plans:
            self._keep(kind, plan, least=1)

    def _keep(self, kind: str, plan: Plan, *, least: int) -> bool:
        """Run a plan; count it where at least so much of it came to be."""
        trial = self._try(plan)
        if trial.struck < least:
            return False
        self.made.setdefault(kind, []).append(trial)
        return True

    def _try(
        self, plan: Plan, seed: int | None = None, look: Callable[[StormWorld], Any] | None = None
    ) -> Trial:
        world = StormWorld(self.ground, plan)
        try:
            self.test(world)
            world.check()
            if look is not None:
                look(world)
            return _sum_up(world, plan)
        except BaseException as error:
            error.add_note("; ".join(world.crashed) or "nothing was killed")
            error.add_note(self.hint(plan, seed))
            raise
        finally:
            world.close()

    def report(self) -> ToolStormReport:
        """Return what came of all."""
        trials = list(chain.from_iterable(self.made.values()))
        slowest = max(
            self.made.get("points", trials), key=lambda trial: trial.seconds, default=self._calm
        )
        return ToolStormReport(
            name=self.ground.name,
            points=len(self.made.get("points", ())),
            pairs=len(self.made.get("pairs", ())),
            faults=len(self.made.get("faults", ())),
            seeds=len(self.made.get("seeds", ())),
            ends=StormEnds.of(trial.end for trial in trials),
            tools=tuple(self._tally(trials)),
            slowest=slowest.place or str(slowest.plan) or "none",
            seconds=slowest.seconds,
            again=sum(trial.again > self._calm.again for trial in trials),
        )

    def _tally(self, trials: Sequence[Trial]) -> Iterator[ToolTally]:
        for name, again in sorted(self.again.items()):
            times = Counter(trial.calls.get(name, 0) for trial in trials)
            doubts = sum(trial.doubts.get(name, 0) > 0 for trial in trials)
            within = tuple(self._tally_within(name, self.made.get("points", ())))
            yield ToolTally(name, again, dict(sorted(times.items())), doubts, within)

    def _tally_within(self, name: str, trials: Iterable[Trial]) -> Iterator[WithinTally]:
        found: dict[str, Counter[str]] = {}
        for trial in trials:
            for within in trial.within:
                if within.tool == name:
                    found.setdefault(within.where, Counter())[self._judge(name, trial)] += 1
        for where, outcomes in found.items():
            yield WithinTally(where, dict(sorted(outcomes.items())))

    def _judge(self, name: str, trial: Trial) -> str:
        """Return what came of the call of a tool in which the process died."""
        if trial.doubts.get(name):
            return "in doubt"
        if trial.calls[name] > self._calm.calls.get(name, 0):
            return "called again"
        return "run failed" if trial.end[0] == "failed" else "not called again"


def _sum_up(world: StormWorld, plan: Plan) -> Trial:
    names = tuple(world.again)
    return Trial(
        plan=plan,
        struck=len(world.crashed) + world.witness.applied,
        end=_end_of(world),
        calls={name: world.carried_out(name) for name in names},
        doubts={name: world.in_doubt(name) for name in names},
        within=tuple(world.within),
        place=world.place,
        seconds=world.client.clock.elapsed,
        again=world.witness.again,
    )


def _end_of(world: StormWorld) -> tuple[str, str]:
    failed = [run for run in world.runs if run.status in ("ERROR", "CANCELLED")]
    if failed:
        return "failed", failed[0].error_type or failed[0].status.lower()
    if any(run.status == "PAUSED" for run in world.runs):
        return "asked", ""
    return "not begun" if world.not_begun else "completed", ""
