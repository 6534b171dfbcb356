"""The rules of `Interruptible`: a program within another, which can be closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from legation.effects import (
    AwaitNudge,
    CallFunction,
    Concurrently,
    Fetch,
    Interrupted,
    Interruptible,
    NextChunk,
    NextEvents,
    NextPiece,
    Now,
    Nudge,
    OpenStream,
    Program,
    Sleep,
    Spawn,
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
from ..tables import Get, Put
from .functions import sleep_for, sleep_in_thread, yield_slowly
from .jobs import Doing
from .network import await_no_connection
from .streams import open_stream

__all__ = ["CASES"]

Inner: TypeAlias = Callable[[Bench], Program[Any]]


def _give(value: Any) -> Program[Any]:
    yield from Sleep(0.0)
    return value


def _result(bench: Bench) -> Program[None]:
    for value in ("result", None, 0, Interrupted("nudge")):
        found = yield from ask_at_once(Interruptible(_give(value), bench.name("topic"), LONG))
        expect("the result of an inner program", found, value)


def _deep(bench: Bench) -> Program[None]:
    def nest(depth: int) -> Program[int]:
        if depth:
            inner: Any = yield from Interruptible(nest(depth - 1), bench.name("topic"), LONG)
            return int(inner) + 1
        return 0

    expect("the result of 30 programs within each other", (yield from nest(30)), 30)


def _thrown(bench: Bench) -> Program[None]:
    name = bench.name("twice")
    yield from Transact(FIRST, Put(name))
    for program, kind in (
        (ask(Transact(FIRST, Put(name))), Conflict),
        (_fail(), _OwnError),
    ):
        try:
            yield from Interruptible(program, bench.name("topic"), LONG)
        except Exception as error:  # noqa: BLE001  looked at below
            expect("thrown into the asking program", type(error).__name__, kind.__name__)
        else:
            raise Broken(f"an inner program raised {kind.__name__}, and none was thrown in")
        require((yield from Now()) > 0, "the asking program could not go on")


class _OwnError(Exception):
    """An error that a program of a case raises."""


def _fail() -> Program[None]:
    yield from Sleep(0.0)
    raise _OwnError


# What closes the inner program


def _cut(
    inner: Program[Any], topic: str, seconds: float, by: str, *, beside: Program[None] | None = None
) -> Program[None]:
    """Hold `inner` to being closed by a nudge, or by the time, and no later."""
    trace = Trace()
    asked = Interruptible(trace.watch(inner), topic, seconds)
    if beside is None:
        answer = yield from ask_at_once(asked)
    else:
        answer, _ = yield from Concurrently((ask_at_once(asked), beside))
    expect("the answer for a program that was to be closed", answer, Interrupted(by))
    require(trace.is_over(), "the inner program was left open")
    require(trace.is_closed(), f"the inner program was not closed, but ended by {trace.error!r}")


def _nudge_later(topic: str) -> Program[None]:
    yield from Sleep(SHORT)
    yield from Nudge(topic)


def _by_time(inner: Inner) -> Inner:
    def check(bench: Bench) -> Program[None]:
        yield from _cut(inner(bench), bench.name("topic"), SHORT, "timeout")

    return check


def _by_nudge(inner: Inner) -> Inner:
    def check(bench: Bench) -> Program[None]:
        topic = bench.name("topic")
        yield from _cut(inner(bench), topic, LONG, "nudge", beside=_nudge_later(topic))

    return check


def _by_a_job(bench: Bench) -> Program[None]:
    topic = bench.name("topic")
    yield from Spawn(Doing(lambda: _nudge_later(topic)))
    yield from _cut(_sleep(bench), topic, LONG, "nudge")


def _before(bench: Bench) -> Program[None]:
    topic = bench.name("topic")
    yield from Nudge(topic)
    yield from Sleep(0.0)
    for _ in range(2):
        yield from _cut(_sleep(bench), topic, LONG, "nudge")


def _by_another_topic(bench: Bench) -> Program[None]:
    other = bench.name("topic")
    asked = Interruptible(ask(Sleep(SHORT * 2)), bench.name("topic"), LONG)
    answer, _ = yield from Concurrently((ask_at_once(asked), _nudge_later(other)))
    expect("the answer, when another topic was nudged", answer, None)


def _goes_no_further(bench: Bench) -> Program[None]:
    name = bench.name("late")

    def store_late() -> Program[None]:
        yield from Sleep(SHORT * 2)
        yield from Transact(FIRST, Put(name))

    yield from _cut(store_late(), bench.name("topic"), SHORT, "timeout")
    yield from Sleep(SHORT * 3)
    expect("what a closed program stored", (yield from Transact(FIRST, Get(name))), None)


def _within_each_other(bench: Bench) -> Program[None]:
    outer, inner = bench.name("topic"), bench.name("topic")

    def stop_inner() -> Program[str]:
        found = yield from Interruptible(_sleep(bench), inner, LONG)
        return f"inner {found}"

    asked = Interruptible(stop_inner(), outer, LONG)
    answer, _ = yield from Concurrently((ask_at_once(asked), _nudge_later(inner)))
    expect("when the inner one was nudged", answer, f"inner {Interrupted('nudge')}")
    yield from _cut(stop_inner(), outer, LONG, "nudge", beside=_nudge_later(outer))


def _catches_own_end(bench: Bench) -> Program[None]:
    seen: list[str] = []

    def notice() -> Program[None]:
        try:
            yield from Sleep(LONG)
        except Exception as error:  # noqa: BLE001  it is the rule that none comes
            seen.append(repr(error))
        finally:
            seen.append("closed")

    yield from _cut(notice(), bench.name("topic"), SHORT, "timeout")
    expect("what the inner program saw", seen, ["closed"])


# Where it waits


def _sleep(_: Bench) -> Program[Any]:
    yield from Sleep(LONG)


def _await_nudge(bench: Bench) -> Program[Any]:
    yield from AwaitNudge(bench.name("topic"), LONG)


def _next_events(bench: Bench) -> Program[Any]:
    yield from NextEvents(bench.name("run"), 0, LONG)


def _fetch(bench: Bench) -> Program[Any]:
    yield from Fetch("GET", f"{bench.peer.url}/silent/cut", timeout_seconds=LONG)


def _open_stream(bench: Bench) -> Program[Any]:
    yield from OpenStream("GET", f"{bench.peer.url}/silent/cut", timeout_seconds=LONG)


def _next_chunk(bench: Bench) -> Program[Any]:
    head = yield from open_stream(bench, "/stalled/cut")
    yield from NextChunk(head.stream, LONG)  # what had come
    yield from NextChunk(head.stream, LONG)


def _call_function(_: Bench) -> Program[Any]:
    yield from CallFunction(sleep_for, {"seconds": LONG}, LONG)


def _call_in_thread(_: Bench) -> Program[Any]:
    yield from CallFunction(sleep_in_thread, {"seconds": SHORT * 10}, LONG)
    yield from Sleep(LONG)


def _next_piece(_: Bench) -> Program[Any]:
    yield from CallFunction(yield_slowly, {"first": "a", "seconds": LONG}, LONG)
    yield from NextPiece(1, LONG)  # the one that is there
    yield from NextPiece(1, LONG)


def _concurrently(bench: Bench) -> Program[Any]:
    traces = Trace(), Trace()
    try:
        yield from Concurrently(tuple(trace.watch(_sleep(bench)) for trace in traces))
    finally:
        closed = [trace.is_closed() for trace in traces]
        expect("programs side by side were closed with the one that asked", closed, [True] * 2)


def _interruptible(bench: Bench) -> Program[Any]:
    trace = Trace()
    try:
        yield from Interruptible(trace.watch(_sleep(bench)), bench.name("topic"), LONG)
    finally:
        require(trace.is_closed(), "a program was closed before the one within it")


_WAITS: Final[tuple[tuple[str, Inner], ...]] = (
    ("Sleep", _sleep),
    ("AwaitNudge", _await_nudge),
    ("NextEvents", _next_events),
    ("Fetch", _fetch),
    ("OpenStream", _open_stream),
    ("NextChunk", _next_chunk),
    ("CallFunction", _call_function),
    ("NextPiece", _next_piece),
    ("Concurrently", _concurrently),
    ("Interruptible", _interruptible),
)


def _closes_streams(bench: Bench) -> Program[None]:
    for path, inner in (("/silent/cut", _open_stream), ("/stalled/cut", _next_chunk)):
        yield from _cut(inner(bench), bench.name("topic"), SHORT, "timeout")
        yield from await_no_connection(bench, path)


CASES: Final = (
    Case(
        "Interruptible.result",
        Interruptible,
        "The result of the inner program is the answer",
        _result,
    ),
    Case("Interruptible.deep", Interruptible, "Programs may lie deep within each other", _deep),
    Case(
        "Interruptible.thrown",
        Interruptible,
        "What the inner program raises is thrown into the asking one",
        _thrown,
    ),
    Case(
        "Interruptible.before",
        Interruptible,
        "A nudge since the asking program began closes the inner one at once, each time",
        _before,
    ),
    Case(
        "Interruptible.of_a_job",
        Interruptible,
        "The nudge of a job closes the inner program",
        _by_a_job,
    ),
    Case(
        "Interruptible.other_topic",
        Interruptible,
        "A nudge under another topic closes nothing",
        _by_another_topic,
    ),
    Case(
        "Interruptible.goes_no_further",
        Interruptible,
        "A program that was closed does nothing more",
        _goes_no_further,
    ),
    Case(
        "Interruptible.within_each_other",
        Interruptible,
        "A nudge closes the program that waits under its topic, and what is within",
        _within_each_other,
    ),
    Case(
        "Interruptible.closes_not_throws",
        Interruptible,
        "The inner program is closed: nothing that it could catch is thrown in",
        _catches_own_end,
    ),
    *(
        Case(
            f"Interruptible.{name}_by_time",
            Interruptible,
            f"The time closes a program that waits for `{name}`",
            _by_time(inner),
        )
        for name, inner in _WAITS
    ),
    *(
        Case(
            f"Interruptible.{name}_by_nudge",
            Interruptible,
            f"A nudge closes a program that waits for `{name}`",
            _by_nudge(inner),
        )
        for name, inner in _WAITS
    ),
    Case(
        "Interruptible.thread_by_time",
        Interruptible,
        "The time closes a program whose function is in a thread, which goes on alone",
        _by_time(_call_in_thread),
        real_time=True,
    ),
    Case(
        "Interruptible.closes_streams",
        Interruptible,
        "The streams of a program that is closed are closed with it",
        _closes_streams,
    ),
)
