"""Streams, functions of the user's and programs side by side, on a simulation."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import pytest
import trio

from legation.effects import (
    CallFunction,
    CloseStream,
    Concurrently,
    Effect,
    Emit,
    Fetch,
    FetchReply,
    Interrupted,
    Interruptible,
    Log,
    NextChunk,
    NextPiece,
    Now,
    Nudge,
    OpenStream,
    Piece,
    Program,
    Raised,
    ReadBody,
    Returned,
    Sleep,
    Streaming,
    TimedOut,
    Unreachable,
    Yielding,
)
from legation.store.failures import Busy
from legation_testing import (
    Chunks,
    Crashed,
    Delayed,
    Misuse,
    Simulation,
    crash_everywhere,
    fail_everywhere,
)

URL = "https://x"
OPEN = OpenStream("POST", URL, timeout_seconds=5.0)
NEXT = NextChunk(1, 5.0)
BROKEN = Unreachable("protocol")
TWO = Chunks(200, {"a": "b"}, [b"one", b"two"])


def answers(*effects: Effect) -> Program[list[Any]]:
    """Ask one thing after another and return the answers."""
    got: list[Any] = []
    for effect in effects:
        got.append((yield effect))
    return got


def simulated(given: Any, *effects: Effect) -> tuple[list[Any], float]:
    """Return what comes back, where the network gives `given`, and how long it took."""
    with Simulation(fetch=lambda _: given) as simulation:
        return simulation.run(answers(*effects)), simulation.clock.elapsed


# --- bodies


def test_a_body_comes_bit_by_bit() -> None:
    got, elapsed = simulated(TWO, OPEN, NEXT, NEXT, NEXT, NEXT, CloseStream(1))

    assert got == [Streaming(1, 200, {"a": "b"}), b"one", b"two", b"", b"", None]
    assert elapsed == 0.0


def test_a_chunk_comes_when_it_comes_whoever_asks() -> None:
    given = Chunks(200, {}, [b"one", b"two"], [1.0, 2.0, 0.5])
    got, elapsed = simulated(given, OPEN, NEXT, Sleep(1.5), NEXT, NEXT)

    assert got[1:] == [b"one", None, b"two", b""]
    assert elapsed == 3.5


def test_what_comes_within_a_rest_is_one() -> None:
    rest, late = NextChunk(1, 5.0, 1.0), NextChunk(1, 0.5, 1.0)
    given = Chunks(200, {}, [b"a", b"b", b"c", b"d"], [0.0, 0.5, 1.0, 3.0, 0.25])
    got, elapsed = simulated(given, OPEN, NEXT, rest, rest, late)

    assert (got[1:], elapsed) == ([b"a", b"b", b"c", Unreachable("timeout")], 2.5)
    given = Chunks(200, {}, [b"a", b"b", b"c"], [0.0, 0.25, 0.25, 0.25])
    assert simulated(given, OPEN, NEXT, rest, rest)[0][1:] == [b"a", b"bc", b""]
    assert simulated(given, OPEN, NEXT, rest)[1] == 0.75


@pytest.mark.parametrize(
    ("given", "expected", "elapsed"),
    [
        (Chunks(200, {}, [b"one"], [0.0, math.inf]), [b"one", Unreachable("timeout"), b""], 5.0),
        (Chunks(200, {}, [b"one"], [], BROKEN), [b"one", BROKEN, b""], 0.0),
        (Delayed(2.0, Chunks(200, {}, [b"one"], [1.0])), [b"one", b"", b""], 3.0),
        (FetchReply(200, {}, b"whole"), [b"whole", b"", b""], 0.0),
        (FetchReply(200, {}, b""), [b"", b"", b""], 0.0),
    ],
    ids=["stalls", "breaks", "late head", "a reply", "an empty reply"],
)
def test_a_body_ends_as_the_test_says(given: Any, expected: list[Any], elapsed: float) -> None:
    got, took = simulated(given, OPEN, NEXT, NEXT, NEXT)

    assert isinstance(got[0], Streaming)
    assert (got[1:], took) == (expected, elapsed)


@pytest.mark.parametrize(
    ("given", "reason", "elapsed"),
    [
        (Unreachable("tls"), "tls", 0.0),
        (Delayed(1.0, Unreachable("tls")), "tls", 1.0),
        (Delayed(9.0, TWO), "timeout", 5.0),
    ],
)
def test_a_stream_that_does_not_open_is_a_value(given: Any, reason: str, elapsed: float) -> None:
    assert simulated(given, OPEN) == ([Unreachable(reason)], elapsed)


@pytest.mark.parametrize(
    ("given", "answer", "elapsed"),
    [
        (TWO, FetchReply(200, {"a": "b"}, b"onetwo"), 0.0),
        (Chunks(200, {}, [b"a"], [1.0, 1.0]), FetchReply(200, {}, b"a"), 2.0),
        (Chunks(200, {}, [b"a"], [1.0], BROKEN), BROKEN, 1.0),
        (Chunks(200, {}, [b"a"], [math.inf]), Unreachable("timeout"), 5.0),
    ],
)
def test_chunks_that_are_fetched_come_as_one(given: Any, answer: Any, elapsed: float) -> None:
    assert simulated(given, Fetch("GET", URL, timeout_seconds=5.0)) == ([answer], elapsed)


@pytest.mark.parametrize("effect", [NextChunk(2, 1.0), NextPiece(1, 1.0), NextPiece(0, 1.0)])
def test_a_stream_that_is_none_of_the_program_s_is_a_fault(effect: Effect) -> None:
    with pytest.raises(Misuse, match=r"names stream|takes a"):
        simulated(TWO, OPEN, effect)


def test_a_chunk_can_fail_or_be_lost_on_purpose() -> None:
    with Simulation(fetch=lambda _: TWO) as simulation:
        simulation.fail_at(NextChunk, BROKEN, after=True)
        assert simulation.run(answers(OPEN, NEXT, NEXT))[1:] == [BROKEN, b"two"]


# --- functions


def call(function: Callable[..., Any], seconds: float = 5.0, /, **arguments: Any) -> CallFunction:
    return CallFunction(function, arguments, seconds)


async def do_nothing() -> None:
    pass


@pytest.mark.parametrize("ends", ["returns", "raises", "gives a coroutine"])
def test_a_plain_function_over_its_time_has_no_outcome_as_in_a_host(ends: str) -> None:
    def slow() -> Any:
        time.sleep(0.02)
        if ends == "raises":
            raise ValueError
        return do_nothing() if ends == "gives a coroutine" else "late"

    assert simulated(TWO, call(slow, 0.01)) == ([TimedOut()], 0.01)
    assert simulated(TWO, call(do_nothing, 5.0)) == ([Returned(None)], 0.0)


def test_without_any_time_no_function_is_called() -> None:
    called: list[int] = []

    assert simulated(TWO, call(called.append, 0.0, object=1)) == ([TimedOut()], 0.0)
    assert called == []


def double(x: int) -> int:
    return 2 * x


async def double_later(x: int, seconds: float = 2.0) -> int:
    await trio.sleep(seconds)
    return 2 * x


def coroutine_of(x: int) -> Coroutine[Any, Any, int]:
    return double_later(x, 0.0)


class Items:
    """Counts what it opened and what it closed."""

    def __init__(self, *, pause: float = 1.0, fails: Exception | None = None) -> None:
        self.open = 0
        self.closed = 0
        self._pause = pause
        self._fails = fails

    async def __call__(self, n: int) -> AsyncGenerator[int]:
        self.open += 1
        try:
            with trio.move_on_after(math.inf):
                for item in range(n):
                    yield item
                    await trio.sleep(self._pause)
                if self._fails is not None:
                    raise self._fails
        finally:
            self.closed += 1


PIECE = NextPiece(1, 5.0)


@pytest.mark.parametrize(
    ("effect", "answer", "elapsed"),
    [
        (call(double, x=4), Returned(8), 0.0),
        (call(double_later, x=4), Returned(8), 2.0),
        (call(coroutine_of, x=4), Returned(8), 0.0),
        (call(double_later, 1.0, x=4), TimedOut(), 1.0),
    ],
    ids=["plain", "coroutine", "gives a coroutine", "too long"],
)
def test_a_function_is_called_in_virtual_time(effect: Effect, answer: Any, elapsed: float) -> None:
    assert simulated(TWO, effect) == ([answer], elapsed)


@pytest.mark.parametrize("function", [double, double_later])
def test_an_exception_of_a_function_is_a_value(function: Callable[..., Any]) -> None:
    ((answer,), _) = simulated(TWO, call(function))

    assert isinstance(answer.error, TypeError)


def leave() -> None:
    raise SystemExit(3)


async def leave_later() -> None:
    raise SystemExit(3)


@pytest.mark.parametrize("function", [leave, leave_later])
def test_a_function_that_leaves_the_process_has_failed(function: Callable[..., Any]) -> None:
    ((answer,), _) = simulated(TWO, call(function))

    assert isinstance(answer.error.__cause__, SystemExit)


async def interrupted() -> None:
    raise KeyboardInterrupt


def test_an_interrupt_passes() -> None:
    with pytest.raises(KeyboardInterrupt):
        simulated(TWO, call(interrupted))


def test_the_items_of_an_iterator_come_one_by_one_in_virtual_time() -> None:
    items = Items()
    got, elapsed = simulated(TWO, call(items, n=2), PIECE, PIECE, PIECE, PIECE, CloseStream(1))

    assert got == [Yielding(1), Piece(0), Piece(1), None, None, None]
    assert (elapsed, items.closed) == (2.0, 1)


async def gives(items: Items, n: int) -> AsyncGenerator[int]:
    await trio.sleep(1.0)
    return items(n)


def test_a_coroutine_function_may_give_an_iterator() -> None:
    items = Items()

    got, elapsed = simulated(TWO, call(gives, items=items, n=1), PIECE, PIECE)
    assert got == [Yielding(1), Piece(0), None]
    assert (elapsed, items.closed) == (2.0, 1)


def test_an_iterator_that_fails_or_takes_too_long_is_closed() -> None:
    error = ValueError("no")
    failing, slow = Items(fails=error), Items(pause=9.0)

    assert simulated(TWO, call(failing, n=0), PIECE, PIECE)[0][1:] == [Raised(error), None]
    assert simulated(TWO, call(slow, n=9), PIECE, PIECE) == ([Yielding(1), Piece(0), TimedOut()], 5)
    assert failing.closed == slow.closed == 1


@pytest.mark.parametrize("way", ["left", "failed", "cancelled", "crashed"])
def test_however_a_program_ends_its_iterator_is_closed_and_its_thread_ends(way: str) -> None:
    items = Items()
    threads = set(threading.enumerate())

    def program() -> Program[None]:
        yield from answers(call(items, n=9), PIECE)
        if way == "failed":
            raise Busy("planted")
        if way != "left":
            yield from Sleep(60)

    with Simulation() as simulation:
        task = simulation.start(program())
        simulation.settle()
        if way == "cancelled":
            simulation.cancel(task)
        if way == "crashed":
            simulation.crash()
        assert task.done
        assert items.closed == 1
        assert set(threading.enumerate()) <= threads
        assert len(simulation.take_failures()) == (way == "failed")


async def test_functions_run_where_a_loop_is_running_already() -> None:
    assert simulated(TWO, call(double_later, x=4)) == ([Returned(8)], 2.0)


# --- programs side by side


def resting(seconds: float, left: list[float]) -> Program[float]:
    try:
        yield from Sleep(seconds)
    except GeneratorExit:
        left.append(seconds)
        raise
    return seconds


def failing(seconds: float) -> Program[None]:
    yield from Sleep(seconds)
    raise Busy("locked")


def test_programs_take_as_long_as_the_longest_and_their_results_are_in_their_order() -> None:
    pauses = (3.0, 1.0, 2.0)
    inner = Concurrently(tuple(resting(seconds, []) for seconds in pauses))

    assert simulated(TWO, inner, Concurrently(())) == ([pauses, ()], 3.0)


def test_the_first_failure_closes_the_others_and_is_thrown_in() -> None:
    left: list[float] = []

    def outer() -> Program[str]:
        try:
            yield from Concurrently((resting(9.0, left), failing(1.0), failing(2.0)))
        except Busy as failure:
            yield from Sleep(60.0)
            return str(failure)
        return ""

    with Simulation() as simulation:
        assert simulation.run(outer()) == "locked"
        assert simulation.find_running() == ()

    assert left == [9.0]


def test_whoever_closes_the_outer_program_closes_those_within() -> None:
    left: list[float] = []
    with Simulation() as simulation:
        nested = answers(Concurrently((resting(8.0, left), resting(9.0, left))))
        task = simulation.start(answers(Concurrently((nested, resting(7.0, left)))))
        simulation.settle()
        simulation.cancel(task)

        assert sorted(left) == [7.0, 8.0, 9.0]
        assert simulation.find_running() == ()


def test_a_nudge_interrupts_all_or_one_of_them_alone() -> None:
    left: list[float] = []

    def stopping() -> Program[None]:
        yield from Sleep(1.0)
        yield from Nudge("stop")

    def both() -> Concurrently[float]:
        return Concurrently((resting(8.0, left), resting(9.0, left)))

    with Simulation() as simulation:
        simulation.start(stopping())
        around = Interruptible(answers(both()), "stop", 60.0)
        assert simulation.run(answers(around)) == [Interrupted("nudge")]
        simulation.start(stopping())
        one = answers(Interruptible(resting(7.0, left), "stop", 60.0))
        within = Concurrently((one, resting(2.0, left)))
        assert simulation.run(answers(within)) == [([Interrupted("nudge")], 2.0)]

    assert sorted(left) == [7.0, 8.0, 9.0]


@pytest.mark.parametrize("effect", [Emit(b"x"), ReadBody(1)], ids=repr)
def test_programs_side_by_side_have_no_request(effect: Effect) -> None:
    with pytest.raises(Misuse, match=r"answers\[0\] .*answers no request"):
        simulated(TWO, Concurrently((answers(effect),)))


def interleaving(order: int | None) -> str:
    """Return in which order two programs of three steps each had their turns."""

    def program(name: str) -> Program[None]:
        for _ in range(3):
            yield from CloseStream(1)
            yield from Log("info", name)

    with Simulation(order=order) as simulation:
        simulation.run(answers(Concurrently((program("a"), program("b")))))
    return "".join(line.event for line in simulation.logs)


def test_an_order_is_one_interleaving_and_many_orders_are_all() -> None:
    assert interleaving(None) == "ababab"
    assert [interleaving(7) for _ in range(3)] == [interleaving(7)] * 3
    assert len({interleaving(order) for order in range(300)}) == 20  # 6! / (3! * 3!)


def act(simulation: Simulation) -> None:
    within = Concurrently((answers(Now(), OPEN, NEXT), answers(Now(), call(double_later, x=1))))
    simulation.run(answers(within, Sleep(1.0)))


def test_crashes_and_failures_strike_within_them_as_well() -> None:
    def make() -> Simulation:
        return Simulation(fetch=lambda _: TWO)

    tried = crash_everywhere(make, act, lambda _: None)
    assert dict(tried.by_effect) == {
        "Concurrently": 1,
        "Now": 2,
        "OpenStream": 1,
        "NextChunk": 1,
        "CallFunction": 1,
        "Sleep": 1,
    }
    failed = fail_everywhere(make, act, lambda _: None, which=NextChunk, outcome=BROKEN)
    assert failed.points == 1
    with make() as simulation, pytest.raises(Crashed):
        simulation.crash_at(2)
        act(simulation)
