"""The rules of `CallFunction` and `NextPiece`: functions of the user, and what they iterate."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any, Final

import anyio
import anyio.lowlevel

from legation.effects import (
    CallFunction,
    CloseStream,
    Concurrently,
    NextPiece,
    Now,
    Piece,
    Program,
    Raised,
    Returned,
    Sleep,
    TimedOut,
    Yielding,
)

from ..bench import (
    LONG,
    SHORT,
    Bench,
    Broken,
    Case,
    ask,
    ask_at_once,
    ask_in_vain,
    expect,
    require,
)

__all__ = ["CASES", "sleep_for", "sleep_in_thread", "yield_slowly"]


def _call(function: Callable[..., Any], **arguments: Any) -> Program[Any]:
    """Call `function`, which is not to take `LONG`."""
    return (yield from ask_at_once(CallFunction(function, arguments, LONG)))


def _divide(a: int, b: int) -> tuple[int, int]:
    """Return quotient and rest: a plain function."""
    return divmod(a, b)


async def _divide_later(a: int, b: int) -> tuple[int, int]:
    """Return quotient and rest: a coroutine function."""
    await anyio.sleep(0.001)
    return divmod(a, b)


def _divide_awaited(a: int, b: int) -> Coroutine[Any, Any, tuple[int, int]]:
    """Return quotient and rest: a plain function that gives something to await."""
    return _divide_later(a, b)


def _give(value: object) -> object:
    return value


async def sleep_for(seconds: float) -> str:
    """Take `seconds`, on the event loop."""
    await anyio.sleep(seconds)
    return "slept"


def sleep_in_thread(seconds: float) -> str:
    """Take `seconds`, of a thread."""
    time.sleep(seconds)
    return "slept"


def _returns(bench: Bench) -> Program[None]:
    functions: tuple[Callable[..., Any], ...] = (_divide, _divide_later, _divide_awaited)
    functions = (*functions, partial(_divide))
    for function in functions:
        outcome = yield from _call(function, a=17, b=5)
        expect(f"the outcome of {function}", outcome, Returned((3, 2)))
    values: tuple[object, ...] = (None, 0, "", b"", [1], {"a": 1})
    for value in values:
        outcome = yield from _call(partial(_give, value))
        expect("the outcome", outcome, Returned(value))


class _UserError(Exception):
    """An error that a function of a case raises."""


def _fail(error: BaseException) -> None:
    raise error


async def _fail_later(error: BaseException) -> None:
    await anyio.lowlevel.checkpoint()
    raise error


def _raises(bench: Bench) -> Program[None]:
    for function in (_fail, _fail_later):
        error = _UserError("the reason")
        outcome = yield from _call(function, error=error)
        require(
            isinstance(outcome, Raised) and outcome.error is error,
            f"a function raised {error!r}; the outcome is {outcome!r}",
        )
    outcome = yield from _call(_divide, wrong=1)
    require(
        isinstance(outcome, Raised) and isinstance(outcome.error, TypeError),
        f"a function was given an argument that it does not take; the outcome is {outcome!r}",
    )


def _exits(bench: Bench) -> Program[None]:
    for function in (_fail, _fail_later):
        outcome = yield from _call(function, error=SystemExit(3))
        require(
            isinstance(outcome, Raised)
            and isinstance(outcome.error, RuntimeError)
            and isinstance(outcome.error.__cause__, SystemExit),
            f"a function raised SystemExit(3); the outcome is {outcome!r}",
        )
    require((yield from Now()) > 0, "the program could not go on")


def _in_time(bench: Bench) -> Program[None]:
    effect = CallFunction(sleep_for, {"seconds": LONG}, SHORT)
    expect("a function that takes too long", (yield from ask_in_vain(effect)), TimedOut())


def _thread_in_time(bench: Bench) -> Program[None]:
    effect = CallFunction(sleep_in_thread, {"seconds": SHORT * 10}, SHORT)
    expect("a function that takes too long", (yield from ask_in_vain(effect)), TimedOut())


def _threads_side_by_side(bench: Bench) -> Program[None]:
    meeting = threading.Barrier(3)
    effect = CallFunction(meeting.wait, {"timeout": LONG / 2}, LONG)
    outcomes: Any = yield from Concurrently(tuple(ask(effect) for _ in range(3)))
    values = [getattr(outcome, "value", outcome) for outcome in outcomes]
    expect("three functions that wait for each other returned", sorted(values, key=str), [0, 1, 2])


def _thread_holds_up_nobody(bench: Bench) -> Program[None]:
    released = threading.Event()

    def release() -> Program[None]:
        yield from Sleep(SHORT)
        released.set()

    waiting = ask(CallFunction(released.wait, {"timeout": LONG / 2}, LONG))
    outcome, _ = yield from Concurrently((waiting, release()))
    expect("a function that waited for another program", outcome, Returned(True))


def _many(bench: Bench) -> Program[None]:
    outcomes: Any = yield from Concurrently(
        tuple(ask(CallFunction(_divide, {"a": n, "b": 7}, LONG)) for n in range(200))
    )
    expected = tuple(Returned(divmod(number, 7)) for number in range(200))
    expect("the outcomes of 200 functions, in order", outcomes, expected)


# Iterators


class _Log(list[str]):
    """The steps of an iterator of a case, in their order."""

    async def iterate(self, *items: Any, seconds: float = 0.0) -> AsyncIterator[Any]:
        """Yield `items`; an exception among them is raised instead."""
        self.append("began")
        try:
            for item in items:
                await anyio.sleep(seconds)
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.append("closed")


async def yield_slowly(first: str, seconds: float) -> AsyncIterator[str]:
    """Yield one item at once, and another after `seconds`."""
    yield first
    await anyio.sleep(seconds)
    yield "late"


def _open(log: _Log, *items: Any, seconds: float = 0.0) -> Program[int]:
    outcome = yield from _call(lambda: log.iterate(*items, seconds=seconds))
    if not isinstance(outcome, Yielding):
        raise Broken(f"a function gave an async iterator; the outcome is {outcome!r}")
    return outcome.stream


def _next(stream: int) -> Program[Any]:
    return (yield from ask_at_once(NextPiece(stream, LONG)))


def _pieces(bench: Bench) -> Program[None]:
    log = _Log()
    stream = yield from _open(log, "a", None, 3)
    expect("the number of the first stream of a program", stream, 1)
    for expected in (Piece("a"), Piece(None), Piece(3), None, None):
        expect("the next piece", (yield from _next(stream)), expected)
    expect("the iterator", log, _Log(["began", "closed"]))
    expect("the number of the second", (yield from _open(_Log(), "b")), 2)


def _coroutine_gives_iterator(bench: Bench) -> Program[None]:
    async def give() -> AsyncIterator[str]:
        await anyio.lowlevel.checkpoint()
        return yield_slowly("first", 0.0)

    outcome = yield from _call(give)
    expect("a coroutine that gives an async iterator", outcome, Yielding(1))
    expect("the next piece", (yield from _next(1)), Piece("first"))


def _many_pieces(bench: Bench) -> Program[None]:
    stream = yield from _open(_Log(), *range(1_000))
    for number in range(1_000):
        expect("the next piece", (yield from _next(stream)), Piece(number))
    expect("after the last piece", (yield from _next(stream)), None)


def _iterator_raises(bench: Bench) -> Program[None]:
    error, log = _UserError("the reason"), _Log()
    stream = yield from _open(log, "a", error, "b")
    expect("the next piece", (yield from _next(stream)), Piece("a"))
    outcome = yield from _next(stream)
    require(
        isinstance(outcome, Raised) and outcome.error is error,
        f"an iterator raised {error!r}; the outcome is {outcome!r}",
    )
    expect("after that the stream is at its end", (yield from _next(stream)), None)
    expect("the iterator", log, _Log(["began", "closed"]))


def _piece_in_time(bench: Bench) -> Program[None]:
    log = _Log()
    stream = yield from _open(log, "late", seconds=LONG)
    late = yield from ask_in_vain(NextPiece(stream, SHORT))
    expect("a piece that did not come in time", late, TimedOut())
    expect("after that the stream is at its end", (yield from _next(stream)), None)
    expect("the iterator", log, _Log(["began", "closed"]))


def _close(bench: Bench) -> Program[None]:
    log = _Log()
    stream = yield from _open(log, "a", "b")
    expect("the next piece", (yield from _next(stream)), Piece("a"))
    for _ in range(2):
        expect("closing was answered", (yield from ask_at_once(CloseStream(stream))), None)
    expect("a stream that was closed is at its end", (yield from _next(stream)), None)
    expect("the iterator", log, _Log(["began", "closed"]))


def _end_closes(bench: Bench) -> None:
    log = _Log()

    def leave_open() -> Program[None]:
        stream = yield from _open(log, "a", "b")
        expect("the next piece", (yield from _next(stream)), Piece("a"))

    bench.run(leave_open())
    expect("the iterator, after the end of its program", log, _Log(["began", "closed"]))


CASES: Final = (
    Case(
        "CallFunction.returns",
        CallFunction,
        "Plain functions and coroutine functions are called; what is to be awaited is",
        _returns,
    ),
    Case(
        "CallFunction.raises",
        CallFunction,
        "What a function raises is an outcome, with the very error",
        _raises,
    ),
    Case(
        "CallFunction.exits",
        CallFunction,
        "`SystemExit` is a failure as any other, as the cause of a `RuntimeError`",
        _exits,
    ),
    Case(
        "CallFunction.in_time",
        CallFunction,
        "A coroutine function that takes too long is `TimedOut`",
        _in_time,
    ),
    Case(
        "CallFunction.thread_in_time",
        CallFunction,
        "A plain function that takes too long is `TimedOut`",
        _thread_in_time,
    ),
    Case(
        "CallFunction.threads_side_by_side",
        CallFunction,
        "Plain functions run side by side",
        _threads_side_by_side,
        real_time=True,
    ),
    Case(
        "CallFunction.thread_holds_up_nobody",
        CallFunction,
        "A plain function holds up no other program",
        _thread_holds_up_nobody,
        real_time=True,
    ),
    Case("CallFunction.many", CallFunction, "Any number of functions get their turn", _many),
    Case("NextPiece.pieces", NextPiece, "Items come in order; then the end, and again", _pieces),
    Case(
        "NextPiece.of_a_coroutine",
        NextPiece,
        "A coroutine may give an async iterator, too",
        _coroutine_gives_iterator,
    ),
    Case("NextPiece.many", NextPiece, "Any number of items come, in order", _many_pieces),
    Case(
        "NextPiece.raises",
        NextPiece,
        "What an iterator raises is an outcome, and closes it",
        _iterator_raises,
    ),
    Case(
        "NextPiece.in_time",
        NextPiece,
        "An item that is late is `TimedOut`, and its iterator is closed",
        _piece_in_time,
    ),
    Case(
        "CloseStream.closes_iterator",
        CloseStream,
        "`CloseStream` closes an iterator, and does nothing a second time",
        _close,
    ),
    Case(
        "NextPiece.end_closes",
        NextPiece,
        "The end of a program closes the iterators that it left open",
        _end_closes,
    ),
)
