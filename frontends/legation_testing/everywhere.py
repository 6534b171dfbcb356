"""A test once per effect: with a crash there, or with a failure there.

What happens between two effects is pure, so the crash points tried here are all there are.

    crash_everywhere(lambda: Client(make_platform), act, check)

The subject is made anew for each run, and runs the same way each time up to the fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from attrs import frozen

from .faults import Crashed, PlannedFault
from .matching import Expected, show

__all__ = ["Subject", "Trials", "crash_everywhere", "fail_everywhere"]


class Subject(Protocol):
    """The subject of the trials: a `Simulation` or a `Client`."""

    def open(self) -> None:
        """Start."""
        ...

    def close(self) -> None:
        """Stop."""
        ...

    def check(self) -> None:
        """Raise what went wrong where nobody looked."""
        ...

    def crash_at(self, number: int) -> None:
        """Plan a crash at the `number`-th effect from now on."""
        ...

    def fail_at(
        self,
        which: Expected | int,
        outcome: Any,
        *,
        after: bool = False,
        skip: int = 0,
        times: int | None = 1,
    ) -> PlannedFault:
        """Plan a failure."""
        ...

    def forget_crash(self) -> None:
        """Plan no crash any more."""
        ...

    def restart(self) -> object:
        """Start again on what was stored."""
        ...


S = TypeVar("S", bound=Subject)


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
