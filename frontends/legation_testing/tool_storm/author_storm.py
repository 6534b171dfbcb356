"""The storm of an author's own test: crashes at every point, and a report by tool.

    @storm(platform, crashes="each", seeds=50)
    def test_shop(world: StormWorld) -> None:
        world.run("shop", "a pen", session_id="s")
        assert world.carried_out("order") <= 1

The test runs once in calm; once for each effect that it asks for, and for each await within the
author's coroutines, with a crash there; and once for each seed.  After a crash the process starts
again on what was stored.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import wraps
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeAlias, TypedDict, Unpack

from attrs import frozen

from legation import Platform, Principal

from ..misuse import Misuse
from ..performing import Fetcher, refuse_connections
from .ground import Ground, make_maker
from .model_faults import choose_faults
from .plans import Plan
from .report import ToolStormReport
from .trials import Trials
from .world import StormWorld

__all__ = ["CHOSEN", "Chosen", "StormOptions", "storm", "try_storm"]

P = ParamSpec("P")

Crashes: TypeAlias = Literal["each", "none"]

_MOST: Final = 100_000


class StormOptions(TypedDict, total=False):
    """The options of a storm.

    Attributes:
        crashes: Once at each point, unless `none`.
        every: Of the points one in so many, as a long test may in a run of all tests.
        pairs: So many pairs of crashes, drawn.
        seeds: So many seeds; or their numbers.  Each draws crashes, stalls, an interleaving, and
            what models do wrong.
        models: What models do wrong, by the names of `MODEL_FAULTS`, or `all`: each with each
            answer, and in the seeds.  Without it, seeds draw from what asks for no further call.
        repeat: One plan alone, as a failure names it.
        caller: Who sends the requests, where an outer application has authenticated them.
        fetch: Answers what the platform fetches.
    """

    crashes: Crashes
    every: int
    pairs: int
    seeds: int | Iterable[int]
    models: str | Iterable[str]
    repeat: str
    caller: Principal | None
    fetch: Fetcher


@frozen
class Chosen:
    """The choice of a runner of tests among the trials of a storm, beside its options.

    Attributes:
        seeds: These seeds alone; None leaves it to the options.
        repeat: This plan alone; None leaves it to the options.
        command: The command that repeats the test.
    """

    seeds: tuple[int, ...] | None = None
    repeat: str | None = None
    command: str | None = None


CHOSEN: Final[ContextVar[Chosen | None]] = ContextVar("chosen", default=None)
"""What the runner of the test chose; `pytest_storm` sets it."""


def storm(
    platform: Platform | Callable[[], Platform], **options: Unpack[StormOptions]
) -> Callable[[Callable[Concatenate[StormWorld, P], object]], Callable[P, None]]:
    """Return a decorator that lets a test stand a storm; the arguments are those of `try_storm`.

    The test takes the world first; other arguments are fixtures.  The report is printed, and is the
    attribute `storm_report` of the function.
    """

    def decorate(
        test: Callable[Concatenate[StormWorld, P], object],
    ) -> Callable[P, None]:
        @wraps(test)
        def stand(*args: P.args, **kwargs: P.kwargs) -> None:
            report = try_storm(platform, lambda world: test(world, *args, **kwargs), **options)
            vars(stand)["storm_report"] = report
            print(report)  # noqa: T201  a runner shows it with a failure, or where it is asked to

        signature = inspect.signature(test)
        _, *others = signature.parameters.values()
        # Else pytest would look for a fixture `world`.
        vars(stand)["__signature__"] = signature.replace(parameters=others)
        return stand

    return decorate


def try_storm(
    platform: Platform | Callable[[], Platform],
    test: Callable[[StormWorld], object],
    **options: Unpack[StormOptions],
) -> ToolStormReport:
    """Let `test` stand a storm, and report on it by tool.

    Args:
        platform: What is tested, or what makes it; the memory of a killed one must be gone.
        test: Called with a fresh world for each trial.
        options: See `StormOptions`.

    Raises:
        Misuse: Nothing can be tried so, or the test has too many points.
        What `test` raises, with a note of the crashes and of how to repeat them.
    """
    make, chosen = make_maker(platform), CHOSEN.get() or Chosen()
    every, pairs, crashes = options.get("every", 1), options.get("pairs", 0), options.get("crashes")
    if crashes not in (None, "each", "none"):
        raise Misuse(f"storm: crashes={crashes!r} is neither 'each' nor 'none'")
    _check_number("pairs", pairs, 0)
    _check_number("every", every, 1)
    seeds, faults = _list_seeds(options.get("seeds", 0)), choose_faults(options.get("models", ()))
    repeat = chosen.repeat or options.get("repeat")
    ground = Ground.prepare(make, options.get("fetch", refuse_connections), options.get("caller"))
    try:
        trials = Trials(ground, test, _make_hint(chosen.command))
        if repeat:
            trials.repeat(Plan.read(repeat))
        elif chosen.seeds is not None:
            trials.pass_seeds(chosen.seeds, faults)
        else:
            if crashes != "none":
                trials.pass_each(every)
            trials.pass_pairs(pairs)
            trials.pass_faults(faults)
            trials.pass_seeds(seeds, faults)
        return trials.report()
    finally:
        ground.close()


def _make_hint(command: str | None) -> Callable[[Plan, int | None], str]:
    def hint(plan: Plan, seed: int | None) -> str:
        if not str(plan):
            return "storm: this is the test in calm, without a crash"
        if command is None:
            return f'storm: repeat it with @storm(…, repeat="{plan}")'
        if seed is not None:
            return f"storm: repeat it with {command} --storm-seed {seed}"
        return f'storm: repeat it with {command} --storm-repeat "{plan}"'

    return hint


def _list_seeds(seeds: int | Iterable[int]) -> tuple[int, ...]:
    if isinstance(seeds, int):
        _check_number("seeds", seeds, 0)
        return tuple(range(seeds))
    listed = tuple(seeds)
    _check_number("the number of seeds", len(listed), 0)
    return listed


def _check_number(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or not least <= value <= _MOST:
        raise Misuse(f"storm: {name}={value!r} is not between {least} and {_MOST:,}")
