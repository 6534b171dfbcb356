"""The rules of `AwaitOutcome`: the result of a job, for the one program that waits for it."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from legation.effects import (
    AwaitNudge,
    AwaitOutcome,
    Concurrently,
    Interrupted,
    Interruptible,
    Job,
    Now,
    Nudge,
    Outcome,
    Program,
    Sleep,
    Spawn,
)

from ..bench import SHORT, Bench, Case, ask, ask_at_once, expect

__all__ = ["CASES"]


class _OwnError(Exception):
    """An error that a job of a case raises."""


@frozen
class _Giving(Job):
    """A job that waits for a nudge, or for nothing, and gives `result`; without one it fails."""

    result: str
    go: str = ""

    def program(self) -> Program[str]:
        if self.go:
            yield from AwaitNudge(self.go, 60.0)
        else:
            yield from Now()
        if not self.result:
            raise _OwnError("of a job")
        return self.result


def _nudge_soon(topic: str) -> Program[None]:
    yield from Sleep(SHORT)
    yield from Nudge(topic)


def _result(bench: Bench) -> Program[None]:
    outcome, go = Outcome[str](), bench.name("go")
    yield from Spawn(_Giving("done", go), outcome)
    expect("a job that has not ended is over", outcome.over, False)
    waiting = ask_at_once(AwaitOutcome(outcome))
    found: tuple[object, ...] = yield from Concurrently((waiting, _nudge_soon(go)))
    expect("the result of a job", found[0], "done")


def _ended(bench: Bench) -> Program[None]:
    outcome = Outcome[str]()
    yield from Spawn(_Giving("done"), outcome)
    yield from Sleep(SHORT)
    for time in ("once", "twice"):
        found = yield from ask_at_once(AwaitOutcome(outcome))
        expect(f"the result of a job that has ended, asked for {time}", found, "done")


def _failing(bench: Bench) -> Program[None]:
    for go in ("", bench.name("go")):
        outcome = Outcome[str]()
        yield from Spawn(_Giving("", go), outcome)
        waiting = ask_at_once(AwaitOutcome(outcome))
        found: tuple[object, ...] = yield from Concurrently((waiting, _nudge_soon(go or "nobody")))
        expect("the result of a job that failed", found[0], None)


def _left(bench: Bench) -> Program[None]:
    outcome, go = Outcome[str](), bench.name("go")
    yield from Spawn(_Giving("done", go), outcome)
    for _ in range(2):
        waiting = Interruptible(ask(AwaitOutcome(outcome)), bench.name("topic"), SHORT)
        found = yield from ask_at_once(waiting)
        expect("who waits no longer for a job", found, Interrupted("timeout"))
    expect("a job whose waiters have left is over", outcome.over, False)
    yield from Nudge(go)
    result = yield from ask_at_once(AwaitOutcome(outcome))
    expect("the result of a job for which others waited before", result, "done")


def _each_its_own(bench: Bench) -> Program[None]:
    topics = [bench.name("go") for _ in range(3)]
    outcomes = [Outcome[str]() for _ in topics]
    for number, topic in enumerate(topics):
        yield from Spawn(_Giving(str(number), topic), outcomes[number])
    waiting = tuple(ask_at_once(AwaitOutcome(outcome)) for outcome in outcomes)
    nudging = tuple(_nudge_soon(topic) for topic in reversed(topics))
    found: tuple[object, ...] = yield from Concurrently((*waiting, *nudging))
    expect("the results of three jobs", found[:3], ("0", "1", "2"))


def _many(bench: Bench) -> Program[None]:
    outcomes = [Outcome[str]() for _ in range(300)]
    for number, outcome in enumerate(outcomes):
        yield from Spawn(_Giving(str(number)), outcome)
    waiting = tuple(ask_at_once(AwaitOutcome(outcome)) for outcome in outcomes)
    found: tuple[object, ...] = yield from Concurrently(waiting)
    expect("the results of 300 jobs", found, tuple(str(number) for number in range(300)))


CASES: Final = (
    Case("AwaitOutcome.result", AwaitOutcome, "The result of a job is told to who waits", _result),
    Case(
        "AwaitOutcome.ended",
        AwaitOutcome,
        "The result of a job that has ended is told at once, as often as it is asked for",
        _ended,
    ),
    Case("AwaitOutcome.failing", AwaitOutcome, "The end of a job that fails is told", _failing),
    Case(
        "AwaitOutcome.left",
        AwaitOutcome,
        "A job goes on when who waits for it leaves, and is told to who comes later",
        _left,
    ),
    Case("AwaitOutcome.own", AwaitOutcome, "Each job has an outcome of its own", _each_its_own),
    Case("AwaitOutcome.many", AwaitOutcome, "Any number of jobs may be waited for", _many),
)
