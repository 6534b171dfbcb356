from __future__ import annotations

import asyncio
import functools
import gc
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from legation.effects import (
    CallFunction,
    CloseStream,
    Effect,
    NextPiece,
    Piece,
    Program,
    Raised,
    Returned,
    Sleep,
    TimedOut,
    Yielding,
)
from legation.incidents import hint_at
from legation_host import Host, open_host

from .host_units import BACKENDS, run

LONG = 20.0


def answers(*effects: Effect) -> Program[list[Any]]:
    """Yield `effects` and return what came back."""
    got: list[Any] = []
    for effect in effects:
        got.append((yield effect))
    return got


def called(backend: str, *effects: Effect, threads: int = 4) -> list[Any]:
    async def main() -> list[Any]:
        async with open_host(function_threads=threads) as host:
            return await host.run(answers(*effects))

    return run(backend, main)


def call(function: Callable[..., Any], seconds: float = LONG, /, **arguments: Any) -> CallFunction:
    return CallFunction(function, arguments, seconds)


async def sleep_by_asyncio() -> None:
    await asyncio.sleep(0.01)


async def yield_by_asyncio() -> None:
    await asyncio.sleep(0)


async def limit_by_asyncio() -> None:
    async with asyncio.timeout(1):
        await anyio.lowlevel.checkpoint()


async def wait_by_asyncio() -> None:
    await asyncio.wait_for(sleep_by_asyncio(), 1)


async def group_by_asyncio() -> None:
    async with asyncio.TaskGroup():
        pass


async def thread_by_asyncio() -> None:
    await asyncio.to_thread(int)


BY_ASYNCIO = (
    *(sleep_by_asyncio, yield_by_asyncio, limit_by_asyncio),
    *(wait_by_asyncio, group_by_asyncio, thread_by_asyncio),
)


@pytest.mark.parametrize("function", BY_ASYNCIO)
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_asyncio_on_trio_fails_with_a_hint_and_works_on_its_own_loop(
    function: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    (failed,) = called("trio", call(function))
    (done,) = called("asyncio", call(function))

    assert "use anyio in place of asyncio" in dict(hint_at(failed.error))["hint"]
    assert done == Returned(None)
    gc.collect()


def count() -> int:
    """Return how many threads are calling functions."""
    return sum(thread.name == "legation function" for thread in threading.enumerate())


def settled(expected: int) -> bool:
    """Tell whether there are so many threads soon."""
    deadline = time.monotonic() + 5
    while count() != expected and time.monotonic() < deadline:
        time.sleep(0.005)
    return count() == expected


def double(x: int) -> int:
    return 2 * x


async def double_later(x: int) -> int:
    await anyio.sleep(0.001)
    return 2 * x


class Doubling:
    async def __call__(self, x: int) -> int:
        return 2 * x


def coroutine_of(x: int) -> Coroutine[Any, Any, int]:
    return double_later(x)


def runs_a_loop(x: int) -> int:
    return anyio.run(double_later, x, backend="asyncio")


@BACKENDS
@pytest.mark.parametrize(
    "function",
    [
        double,
        double_later,
        Doubling(),
        coroutine_of,
        runs_a_loop,
        functools.partial(double_later),
    ],
    ids=["plain", "coroutine", "object", "gives a coroutine", "own loop", "partial"],
)
def test_a_function_of_any_kind_is_called_with_keywords(
    backend: str, function: Callable[..., Any]
) -> None:
    assert called(backend, call(function, x=4)) == [Returned(8)]


@BACKENDS
def test_a_coroutine_function_runs_on_the_loop_and_any_other_in_a_thread(backend: str) -> None:
    async def on_the_loop() -> threading.Thread:
        return threading.current_thread()

    here, there = called(backend, call(on_the_loop), call(threading.current_thread))

    assert here == Returned(threading.main_thread())
    assert there.value is not threading.main_thread()
    assert there.value.daemon
    assert settled(0)


def fail() -> None:
    raise ValueError("no")


async def fail_later() -> None:
    await anyio.lowlevel.checkpoint()
    raise ValueError("no")


def stop() -> None:
    raise StopIteration


@BACKENDS
@pytest.mark.parametrize(
    ("function", "kind"),
    [(fail, ValueError), (fail_later, ValueError), (double, TypeError), (double_later, TypeError)],
)
def test_an_exception_is_a_value(
    backend: str, function: Callable[..., Any], kind: type[Exception]
) -> None:
    (answer,) = called(backend, call(function))

    assert isinstance(answer, Raised)
    assert type(answer.error) is kind


@BACKENDS
def test_the_end_of_an_iteration_is_an_error_as_in_any_coroutine(backend: str) -> None:
    (answer,) = called(backend, call(stop))

    assert isinstance(answer.error, RuntimeError)
    assert isinstance(answer.error.__cause__, StopIteration)


def leave() -> None:
    raise SystemExit(3)


async def leave_later() -> None:
    raise SystemExit(3)


def give_up() -> None:
    raise asyncio.CancelledError


async def await_what_was_cancelled() -> None:
    task = asyncio.ensure_future(asyncio.sleep(LONG))
    task.cancel()
    await task


class Odd(BaseException):
    """What nobody expects."""


async def be_odd() -> None:
    raise Odd


async def be_odd_together() -> None:
    raise BaseExceptionGroup("odd", [Odd(), ValueError()])


@BACKENDS
@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (leave, SystemExit),
        (leave_later, SystemExit),
        (give_up, asyncio.CancelledError),
        (be_odd, Odd),
        (be_odd_together, BaseExceptionGroup),
    ],
)
def test_a_function_that_leaves_the_process_has_failed_and_no_more(
    backend: str, function: Callable[..., Any], kind: type[BaseException]
) -> None:
    (answer,) = called(backend, call(function))

    assert isinstance(answer, Raised)
    assert isinstance(answer.error, RuntimeError)
    assert isinstance(answer.error.__cause__, kind)
    assert answer.error.__traceback__ is not None


async def items_of_what_was_cancelled() -> AsyncIterator[int]:
    yield 1
    await await_what_was_cancelled()


def test_a_cancellation_of_the_function_s_own_is_its_failure_and_ends_no_host() -> None:
    async def main() -> list[Any]:
        async with open_host() as host:
            failed = await host.run(answers(call(await_what_was_cancelled)))
            more = (NextPiece(1, LONG), NextPiece(1, LONG))
            pieces = await host.run(answers(call(items_of_what_was_cancelled), *more))
            await anyio.sleep(0.01)
            return [*failed, *pieces, *await host.run(answers(call(double_later, x=2)))]

    failed, _, first, broken, after = run("asyncio", main)

    assert (first, after) == (Piece(1), Returned(4))
    for one in (failed, broken):
        assert isinstance(one.error.__cause__, asyncio.CancelledError)


def test_a_cancellation_from_outside_passes_through_a_function() -> None:
    ended: list[str] = []

    async def patient() -> None:
        try:
            await asyncio.sleep(LONG)
        finally:
            ended.append("cancelled")

    async def main() -> None:
        async with open_host() as host:
            task = asyncio.ensure_future(host.run(answers(call(patient))))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run("asyncio", main)

    assert ended == ["cancelled"]


async def interrupted() -> None:
    raise KeyboardInterrupt


@BACKENDS
def test_an_interrupt_on_the_event_loop_passes(backend: str) -> None:
    async def main() -> None:
        async with open_host() as host:
            with pytest.raises(KeyboardInterrupt):
                await host.run(answers(call(interrupted)))

    run(backend, main)


# --- time


@BACKENDS
def test_a_coroutine_function_that_takes_too_long_is_cancelled(backend: str) -> None:
    ended: list[str] = []

    async def slow() -> None:
        try:
            await anyio.sleep(60)
        finally:
            ended.append("cancelled")

    assert called(backend, call(slow, 0.02)) == [TimedOut()]
    assert ended == ["cancelled"]


@BACKENDS
def test_a_function_s_own_time_out_is_an_exception(backend: str) -> None:
    async def impatient() -> None:
        with anyio.fail_after(0.01):
            await anyio.sleep(60)

    (answer,) = called(backend, call(impatient))

    assert isinstance(answer.error, TimeoutError)


@BACKENDS
def test_a_hung_thread_keeps_its_place_until_its_function_ends(backend: str) -> None:
    release = threading.Event()

    async def main() -> None:
        async with open_host(function_threads=2) as host:
            hung = [call(release.wait, 0.05, timeout=10)] * 2
            assert await host.run(answers(*hung)) == [TimedOut()] * 2
            assert count() == 2

            before = anyio.current_time()
            assert await host.run(answers(call(double, 0.1, x=1))) == [TimedOut()]
            assert anyio.current_time() - before < 1

            release.set()
            assert await host.run(answers(call(double, x=1))) == [Returned(2)]

    run(backend, main)

    assert settled(0)


@BACKENDS
def test_a_hung_thread_does_not_keep_the_host_open(backend: str) -> None:
    release = threading.Event()
    before = time.monotonic()

    assert called(backend, call(release.wait, 0.02, timeout=10)) == [TimedOut()]
    assert time.monotonic() - before < 5

    release.set()
    assert settled(0)


@BACKENDS
def test_no_more_threads_than_allowed_are_used_at_one_time(backend: str) -> None:
    seen: list[int] = []
    running: list[None] = []

    def look() -> None:
        running.append(None)
        seen.append(len(running))
        time.sleep(0.005)
        running.pop()

    async def main() -> None:
        async with open_host(function_threads=3) as host, anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(host.run, answers(call(look)))

    run(backend, main)

    assert len(seen) == 20
    assert max(seen) == 3
    assert settled(0)


@BACKENDS
def test_a_coroutine_that_comes_when_nobody_waits_is_closed(backend: str) -> None:
    def late() -> Coroutine[Any, Any, int]:
        time.sleep(0.1)
        return double_later(1)

    async def main() -> None:
        async with open_host() as host:
            assert await host.run(answers(call(late, 0.02))) == [TimedOut()]
            await anyio.sleep(0.2)

    run(backend, main)
    gc.collect()  # would warn of a coroutine that was never awaited


# --- iterators


class Items:
    """Counts what it opened and what it closed."""

    def __init__(self, *, pause: float = 0.0, fails: BaseException | None = None) -> None:
        self.open = 0
        self.closed = 0
        self._pause = pause
        self._fails = fails

    async def __call__(self, n: int) -> AsyncGenerator[int]:
        self.open += 1
        try:
            # A scope over a `yield`, which is no business of who asks for the next item.
            with anyio.move_on_after(60):
                for item in range(n):
                    yield item
                    await anyio.sleep(self._pause)
                if self._fails is not None:
                    raise self._fails
        finally:
            self.closed += 1


NEXT = NextPiece(1, LONG)


@BACKENDS
def test_the_items_of_an_iterator_come_one_by_one_and_then_its_end(backend: str) -> None:
    items = Items()

    got = called(backend, call(items, n=2), NEXT, NEXT, NEXT, NEXT, CloseStream(1))

    assert got == [Yielding(1), Piece(0), Piece(1), None, None, None]
    assert (items.open, items.closed) == (1, 1)


@BACKENDS
def test_an_error_of_an_iterator_is_a_value_and_its_end(backend: str) -> None:
    error = ValueError("no")
    items = Items(fails=error)

    assert called(backend, call(items, n=1), NEXT, NEXT, NEXT)[1:] == [
        Piece(0),
        Raised(error),
        None,
    ]
    assert items.closed == 1


@BACKENDS
def test_an_iterator_that_takes_too_long_is_closed(backend: str) -> None:
    items = Items(pause=60)

    got = called(backend, call(items, n=2), NEXT, NextPiece(1, 0.02), NEXT)

    assert got[1:] == [Piece(0), TimedOut(), None]
    assert items.closed == 1


@BACKENDS
def test_an_iterator_that_leaves_the_process_has_failed_and_no_more(backend: str) -> None:
    items = Items(fails=SystemExit(3))

    got = called(backend, call(items, n=0), NEXT, NEXT)

    assert isinstance(got[1], Raised)
    assert isinstance(got[1].error.__cause__, SystemExit)
    assert got[2] is None
    assert items.closed == 1


@BACKENDS
def test_an_interrupt_passes_from_an_iterator_as_well(backend: str) -> None:
    items = Items(fails=KeyboardInterrupt())

    async def main() -> None:
        async with open_host() as host:
            with pytest.raises(KeyboardInterrupt):
                await host.run(answers(call(items, n=0), NEXT))

    run(backend, main)

    assert items.closed == 1


@BACKENDS
@pytest.mark.parametrize("state", ["not begun", "between items", "within an item"])
@pytest.mark.parametrize("way", ["cancelled", "closed", "left", "failed"])
def test_however_a_program_ends_its_iterator_is_closed(backend: str, state: str, way: str) -> None:
    items = Items(pause=60)
    steps: list[Effect] = [call(items, n=9)]
    if state != "not begun":
        steps.append(NEXT)

    def program() -> Program[None]:
        yield from answers(*steps)
        if state == "within an item":
            yield from NextPiece(1, 0.05 if way != "cancelled" else 60)
        if way == "cancelled":
            yield from Sleep(60)
        if way == "closed":
            yield from CloseStream(1)
            assert items.open == items.closed
        if way == "failed":
            raise ZeroDivisionError

    async def main(host: Host) -> None:
        with anyio.move_on_after(0.1):
            try:
                await host.run(program())
            except ZeroDivisionError:
                assert way == "failed"
        assert items.open == items.closed == (state != "not begun")

    async def opened() -> None:
        async with open_host() as host:
            await main(host)

    run(backend, opened)
    gc.collect()


class Plain:
    """An iterator that is no generator and cannot be closed."""

    def __aiter__(self) -> AsyncIterator[int]:
        return self

    async def __anext__(self) -> int:
        return 7


async def gives_an_iterator() -> Plain:
    return Plain()


@BACKENDS
@pytest.mark.parametrize("function", [Plain, gives_an_iterator])
def test_any_async_iterator_will_do(backend: str, function: Callable[..., Any]) -> None:
    assert called(backend, call(function), NEXT, NEXT) == [Yielding(1), Piece(7), Piece(7)]


def test_a_time_out_of_asyncio_over_a_yield_cancels_the_iterator_alone() -> None:
    closed: list[str] = []

    async def impatient() -> AsyncGenerator[int]:
        try:
            async with asyncio.timeout(0.02):
                yield 1
                yield 2
        finally:
            closed.append("yes")

    async def main() -> None:
        async with open_host() as host:

            def program() -> Program[list[Any]]:
                got = yield from answers(call(impatient), NEXT)
                yield from Sleep(0.1)
                return [*got, (yield from NEXT)]

            *_, first, last = await host.run(program())
            assert first == Piece(1)
            assert isinstance(last, Raised)

    run("asyncio", main)

    assert closed == ["yes"]
