"""A test once per effect: with a crash there, or with a failure there.

What happens between two effects is pure, so the crash points tried here are all there are.

    crash_everywhere(lambda: Client(make_platform), act, check)

The subject is made anew for each run, and runs the same way each time up to the fault.  What could
pass without showing anything is refused: a subject or a platform that comes again, with the memory
of the run before, and a failure that never strikes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final, TypeVar

from attrs import frozen

from .client import Client
from .faults import Crashed
from .lives import Lives
from .matching import Expected, describe, show
from .misuse import Misuse
from .simulation import Simulation

__all__ = ["Trials", "crash_everywhere", "fail_everywhere"]


S = TypeVar("S", Simulation, Client)  # the subject of the trials


@frozen
class Trials:
    """The number of trials of a scenario, in all and by the type of the effect.

    Attributes:
        points: The number of effects at which the scenario was tried.
        by_effect: The same number for each type of effect, by its name.
    """

    points: int
    by_effect: Mapping[str, int]


def crash_everywhere(
    make: Callable[[], S],
    act: Callable[[S], object],
    check: Callable[[S], object],
    *,
    may_be_none: bool = False,
    every: int = 1,
) -> Trials:
    """Run the scenario once for each of its effects, with a crash there and a restart after.

    Args:
        make: Returns a fresh subject, alike every time.  Its start belongs to the scenario,
            unless it is open already.  A `Client` needs the function that makes its platform:
            with a platform object, the memory of the process would outlive the crash.
        act: What is going on when the crash comes.  It is not resumed.
        check: Runs after the restart, and once where nothing crashed; it raises what is wrong.
        may_be_none: The scenario may ask for no effect at all.
        every: Try the first effect and each one so many further on, as a long scenario may in a
            run of all tests; 1 tries every one.

    Raises:
        Misuse: What `make` returns cannot be tried, or was there in the run before; or the
            scenario asks for no effect, so that nothing crashed.  With `may_be_none` that is no
            mistake.
        What `act` or `check` raises, with a note of the crash.
    """
    by_effect: Counter[str] = Counter()
    subjects = _make_subjects("crash_everywhere", make, every)
    while True:
        number, subject = next(subjects)
        _check_memory(subject)
        crash = _try_crash(subject, act, check, number)
        if crash is None:
            if number == 1 and not may_be_none:
                raise Misuse(_idle_sentence("crash_everywhere", "asks for any effect"))
            return Trials(by_effect.total(), by_effect)
        by_effect[type(crash.at.effect).__name__] += 1


def fail_everywhere(
    make: Callable[[], S],
    act: Callable[[S], object],
    check: Callable[[S], object],
    *,
    which: Expected,
    outcome: Any,
    after: bool = False,
    may_be_none: bool = False,
) -> Trials:
    """Run the scenario once for each of its effects that are `which`, ending it in `outcome`.

    `outcome` and `after` are those of `Simulation.fail_at`; `check` runs after `act` without a
    restart, and nothing fails in it.

    Raises:
        Misuse: As `crash_everywhere`; or no effect of the scenario is `which`, so that nothing
            failed.  With `may_be_none` that is no mistake.
    """
    by_effect: Counter[str] = Counter()
    subjects = _make_subjects("fail_everywhere", make)
    while True:
        number, subject = next(subjects)
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
            if number == 1 and not may_be_none:
                raise Misuse(_idle_sentence("fail_everywhere", f"asks for {describe(which)}"))
            return Trials(number - 1, by_effect)
        by_effect[type(fault.struck).__name__] += 1


def _make_subjects(taker: str, make: Callable[[], S], every: int = 1) -> Iterator[tuple[int, S]]:
    """Yield fresh subjects with the numbers of their effects; refuse what cannot be tried."""
    _check_maker(taker, make)
    before: S | None = None
    for number in count(1, every):
        subject = make()
        _check_subject(taker, subject, before)
        before = subject
        yield number, subject


def _try_crash(
    subject: S, act: Callable[[S], object], check: Callable[[S], object], number: int
) -> Crashed | None:
    """Run the scenario once; return the crash, None when the scenario was over before it."""
    lives = Lives("crash_everywhere", subject, (number,))

    def begin(subject: S) -> None:
        subject.open()
        act(subject)
        subject.forget_crash()

    try:
        lives.live(begin)
        check(subject)
        subject.check()
    except BaseException as error:
        error.add_note(str(lives.crashes[0]) if lives.crashes else "nothing was killed")
        raise
    finally:
        subject.close()
    return lives.crashes[0] if lives.crashes else None


_KEEPS_MEMORY: Final = (
    "crash_everywhere: the Client was given a platform object, whose memory would outlive the"
    " crash; give it the function that makes one: Client(lambda: Platform(…))"
)


def _idle_sentence(taker: str, asks: str) -> str:
    return (
        f"{taker}: nothing was tried, for nothing in the scenario {asks}; change the scenario, or"
        " say may_be_none=True"
    )


def _check_maker(taker: str, make: object) -> None:
    if not callable(make):
        raise Misuse(f"{taker} takes a function that makes the subject; {show(make)} is none")


def _check_subject(taker: str, subject: object, before: object) -> None:
    """Refuse what is no subject, and what was there in the trial before."""
    if not isinstance(subject, Client | Simulation):
        raise Misuse(
            f"{taker}: make() returned {show(subject)}; it has to return a Client or a Simulation,"
            " as `lambda: Client(make_platform)` does"
        )
    for part, here, there in _pair_parts(subject, before):
        if here is there:
            raise Misuse(
                f"{taker}: make() returned {part} of the run before again, with all that it"
                " remembers; make everything anew in it"
            )


def _check_memory(subject: object) -> None:
    """Refuse a client whose platform would be the same after the crash."""
    if isinstance(subject, Client) and not subject.remakes:
        raise Misuse(_KEEPS_MEMORY)


def _pair_parts(subject: object, before: object) -> Iterator[tuple[str, object, object]]:
    """Yield what two subjects must not share, each with its name."""
    yield f"the {type(subject).__name__}", subject, before
    if isinstance(subject, Client) and isinstance(before, Client):
        yield "the simulation", subject.simulation, before.simulation
        yield "the platform", subject.platform, before.platform
