"""The rules of `Concurrently`: programs that are driven side by side."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from legation.effects import (
    AwaitNudge,
    Concurrently,
    Emit,
    Now,
    Nudge,
    Program,
    Sleep,
    Transact,
)
from legation.store.failures import Conflict

from ..bench import (
    FIRST,
    LONG,
    SHORT,
    Bench,
    Broken,
    Case,
    Trace,
    ask,
    ask_at_once,
    expect,
    require,
)
from ..tables import Put

__all__ = ["CASES"]


def _give_after(seconds: float, value: Any) -> Program[Any]:
    yield from Sleep(seconds)
    return value


def _order(bench: Bench) -> Program[None]:
    pauses = (SHORT, 0.0, SHORT / 2, None)
    programs = tuple(
        ask(Now()) if seconds is None else _give_after(seconds, seconds) for seconds in pauses
    )
    answers: Any = yield from ask_at_once(Concurrently(programs))
    *found, now = answers
    expect("the results, in the order of the programs", found, list(pauses[:3]))
    require(now > 0, f"the last of four programs returned {now!r}")


def _ask_for_none(bench: Bench) -> Program[None]:
    expect("the results of no programs", (yield from ask_at_once(Concurrently(()))), ())


def _side_by_side(bench: Bench) -> Program[None]:
    topics = [bench.name("topic") for _ in range(5)]

    def pass_on(mine: str, following: str) -> Program[str]:
        yield from ask_at_once(AwaitNudge(mine, LONG))
        yield from Nudge(following)
        return mine

    def begin() -> Program[str]:
        yield from Sleep(SHORT)
        yield from Nudge(topics[0])
        yield from ask_at_once(AwaitNudge(topics[4], LONG))
        return topics[4]

    chain = tuple(pass_on(mine, after) for mine, after in pairwise(topics))
    found = yield from Concurrently((*reversed(chain), begin()))
    expect("programs that wait for each other", found, (*reversed(topics[:4]), topics[4]))


def _many(bench: Bench) -> Program[None]:
    programs = tuple(_give_after(0.001 * (n % 3), n) for n in range(1_000))
    expect("1,000 results", (yield from Concurrently(programs)), tuple(range(1_000)))


def _nest_programs(bench: Bench) -> Program[None]:
    def pair(depth: int) -> Program[int]:
        if not depth:
            yield from Sleep(0.0)
            return 1
        both: tuple[int, ...] = yield from Concurrently((pair(depth - 1), pair(depth - 1)))
        return sum(both)

    expect("the sum of 64 programs, in pairs", (yield from pair(6)), 64)


class _OwnError(Exception):
    """An error that a program of a case raises."""


def _fail(error: Exception) -> Program[None]:
    yield from Sleep(SHORT)
    raise error


def _failure(bench: Bench) -> Program[None]:
    name = bench.name("twice")
    yield from Transact(FIRST, Put(name))
    for failing, kind in (
        (ask(Transact(FIRST, Put(name))), Conflict),
        (_fail(Conflict("own")), Conflict),
        (_fail(_OwnError()), _OwnError),
    ):
        traces = [Trace() for _ in range(3)]
        others = [trace.watch(ask(Sleep(LONG))) for trace in traces]
        try:
            yield from ask_at_once(Concurrently((others[0], failing, *others[1:])))
        except Broken:
            raise
        except Exception as error:  # noqa: BLE001  looked at below
            expect("thrown into the asking program", type(error).__name__, kind.__name__)
        else:
            raise Broken(f"one of the programs raised {kind.__name__}, and none was thrown in")
        closed = [trace.is_closed() for trace in traces]
        expect("the others were closed before that", closed, [True] * 3)
        require((yield from Now()) > 0, "the asking program could not go on")


def _at_once(bench: Bench) -> Program[None]:
    def fail_at_once() -> Program[None]:
        yield from ()
        raise _OwnError

    trace = Trace()
    programs = (fail_at_once(), trace.watch(ask(Sleep(LONG))))
    try:
        yield from ask_at_once(Concurrently(programs))
    except _OwnError:
        require(trace.is_closed(), "a program that had hardly begun was not closed")
    else:
        raise Broken("one of the programs raised _OwnError, and none was thrown in")


def _no_request(bench: Bench) -> None:
    def emit() -> Program[None]:
        yield from Emit(b"a")

    parts: list[bytes] = []
    try:
        bench.run(ask(Concurrently((emit(),))), emit=parts.append)
    except Broken:
        raise
    except Exception:  # noqa: BLE001  any will do
        expect("what was sent", parts, [])
    else:
        raise Broken("one of several programs emitted, and `run` raised nothing")


CASES: Final = (
    Case(
        "Concurrently.order",
        Concurrently,
        "The results are in the order of the programs, whichever ends first",
        _order,
    ),
    Case("Concurrently.nothing", Concurrently, "No programs have no results", _ask_for_none),
    Case(
        "Concurrently.side_by_side",
        Concurrently,
        "The programs run side by side: they may wait for each other",
        _side_by_side,
    ),
    Case("Concurrently.many", Concurrently, "Any number of programs run", _many),
    Case(
        "Concurrently.nested",
        Concurrently,
        "Programs side by side may have some within",
        _nest_programs,
    ),
    Case(
        "Concurrently.failure",
        Concurrently,
        "What one of them raises closes the others, and is thrown into the asking program",
        _failure,
    ),
    Case(
        "Concurrently.failure_at_once",
        Concurrently,
        "One that raises before it asks for anything closes the others, too",
        _at_once,
    ),
    Case(
        "Concurrently.no_request", Concurrently, "None of them can emit: it is a fault", _no_request
    ),
)
