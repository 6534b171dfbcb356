"""A test once per effect: with a crash there, or with a failure there.

What happens between two effects is pure, so the crash points tried here are all there are.

    crash_everywhere(lambda: Client(make_platform), act, check)

The subject is made anew for each run, and runs the same way each time up to the fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from attrs import frozen

from .client import Client
from .faults import Crashed
from .matching import Expected, show
from .simulation import Simulation

__all__ = ["Trials", "crash_everywhere", "fail_everywhere"]


S = TypeVar("S", Simulation, Client)  # the subject of the trials


@frozen
class Trials:
    """The number of trials of a scenario, in all and by the type of the effect."""

    points: int
    by_effect: Mapping[str, int]


def crash_everywhere(
    make: Callable[[], S], act: Callable[[S], object], check: Callable[[S], object]
) -> Trials:
    """Run the scenario once for each of its effects, with a crash there and a restart after.

    Args:
        make: Returns a fresh subject, the same every time.  Its start belongs to the scenario,
            unless it is open already.
        act: What is going on when the crash comes.  It is not resumed.
        check: Runs after the restart, and once where nothing crashed; it raises what is wrong.

    Raises:
        What `act` or `check` raises, with a note of the crash.
    """
    by_effect: Counter[str] = Counter()
    number = 0
    while True:
        number += 1
        subject = make()
        subject.crash_at(number)
        crash = _try_crash(subject, act, check)
        if crash is None:
            return Trials(number - 1, by_effect)
        by_effect[type(crash.at.effect).__name__] += 1


def fail_everywhere(
    make: Callable[[], S],
    act: Callable[[S], object],
    check: Callable[[S], object],
    *,
    which: Expected,
    outcome: Any,
    after: bool = False,
) -> Trials:
    """Run the scenario once for each of its effects that are `which`, ending it in `outcome`.

    `outcome` and `after` are those of `Simulation.fail_at`; `check` runs after `act` without a
    restart, and nothing fails in it.
    """
    by_effect: Counter[str] = Counter()
    number = 0
    while True:
        number += 1
        subject = make()
        fault = subject.fail_at(which, outcome, after=after, skip=number - 1)
        try:
            subject.open()
            act(subject)
            fault.disarm()
            check(subject)
            subject.check()
        except BaseException as error:
            error.add_note(f"failed on purpose: {show(fault.struck)}, number {number} of its kind")
            raise
        finally:
            subject.close()
        if fault.struck is None:
            return Trials(number - 1, by_effect)
        by_effect[type(fault.struck).__name__] += 1


def _try_crash(
    subject: S, act: Callable[[S], object], check: Callable[[S], object]
) -> Crashed | None:
    """Run the scenario once; return the crash, None when the scenario was over before it."""
    crash: Crashed | None = None
    try:
        try:
            subject.open()
            act(subject)
        except Crashed as planned:
            crash = planned
            subject.restart()
        else:
            subject.forget_crash()
        check(subject)
        subject.check()
    except BaseException as error:
        error.add_note(str(crash or "nothing was killed"))
        raise
    finally:
        subject.close()
    return crash
