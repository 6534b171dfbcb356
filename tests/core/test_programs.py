from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from legation.effects import Effect, Now, Program, RandomBytes, Sleep
from legation.programs import Handlers, Streams, give, intercept
from legation_testing import YieldedWhileUnwinding, close_at_every_effect, play


def program() -> Program[tuple[int, bytes]]:
    now_us = yield from Now()
    return now_us, (yield from RandomBytes(2))


def zeros(effect: RandomBytes) -> Program[bytes]:
    return give(bytes(effect.size))


def drawn_late(effect: RandomBytes) -> Program[bytes]:
    yield from Sleep(1.0)
    return (yield from effect)


def test_an_effect_without_a_handler_is_the_drivers() -> None:
    assert play(intercept(program(), {}), [(Now(), 7), (RandomBytes(2), b"ab")]) == (7, b"ab")


def test_a_handler_answers_in_place_of_the_driver() -> None:
    assert play(intercept(program(), {RandomBytes: zeros}), [(Now(), 7)]) == (7, b"\0\0")


def test_what_is_not_in_the_table_may_have_a_handler_as_well() -> None:
    wrapped = intercept(program(), {RandomBytes: zeros}, lambda _: give(8))

    assert play(wrapped, []) == (8, b"\0\0")


def test_a_handler_is_a_program_too() -> None:
    script = [(Now(), 7), (Sleep(1.0), None), (RandomBytes(2), b"ab")]

    assert play(intercept(program(), {RandomBytes: drawn_late}), script) == (7, b"ab")


def asking(effect: Effect) -> Program[str]:
    try:
        yield from effect
    except (LookupError, KeyboardInterrupt) as error:
        return f"{type(error).__name__} {error}"
    return "answered"


def fail(effect: RandomBytes) -> Program[bytes]:
    yield from Sleep(1.0)
    raise LookupError("none left")


@pytest.mark.parametrize("error", [LookupError("x"), KeyboardInterrupt("x")], ids=repr)
def test_what_the_driver_raises_is_thrown_into_the_program(error: BaseException) -> None:
    wrapped = intercept(asking(Now()), {RandomBytes: zeros})

    assert play(wrapped, [(Now(), error)]) == f"{type(error).__name__} x"


def test_what_a_handler_raises_is_thrown_into_the_program() -> None:
    wrapped = intercept(asking(RandomBytes(2)), {RandomBytes: fail})

    assert play(wrapped, [(Sleep(1.0), None)]) == "LookupError none left"


def test_what_the_program_raises_goes_to_the_driver() -> None:
    with pytest.raises(LookupError, match="none left"):
        play(intercept(fail(RandomBytes(2)), {RandomBytes: zeros}), [(Sleep(1.0), None)])


def test_a_program_may_be_closed_at_each_effect_of_its_own_and_of_a_handler() -> None:
    script = [(Now(), 7), (Sleep(1.0), None), (RandomBytes(2), b"ab")]

    assert (
        close_at_every_effect(lambda: intercept(program(), {RandomBytes: drawn_late}), script) == 3
    )


def test_a_handler_unwinds_before_the_program() -> None:
    closed: list[str] = []

    def note(inner: Program[Any], name: str) -> Program[Any]:
        try:
            return (yield from inner)
        finally:
            closed.append(name)

    handlers: Handlers = {RandomBytes: lambda effect: note(drawn_late(effect), "handler")}
    running = intercept(note(asking(RandomBytes(2)), "program"), handlers)
    assert next(running) == Sleep(1.0)
    running.close()

    assert closed == ["handler", "program"]


def test_a_program_that_yields_while_it_unwinds_is_seen_through_it() -> None:
    def careless() -> Generator[Any, Any, None]:
        try:
            yield from Now()
        finally:
            yield from Sleep(1.0)

    with pytest.raises(YieldedWhileUnwinding):
        close_at_every_effect(
            lambda: intercept(careless(), {RandomBytes: zeros}), [(Now(), 7), (Sleep(1.0), None)]
        )


def test_what_is_given_asks_for_nothing() -> None:
    assert play(give("x"), []) == "x"


def test_a_stream_is_found_by_its_number_until_it_is_taken() -> None:
    streams: Streams[str | bytes] = Streams()
    one, two = streams.keep("one"), streams.keep(b"two")

    assert (one, two, len(streams)) == (1, 2, 2)
    assert (streams.find(1, str), streams.find(2, bytes)) == ("one", b"two")
    assert streams.take(1, 1) == ["one"]
    assert streams.find(1, str) is None
    assert streams.take() == [b"two"]
    assert (streams.take(), len(streams), streams.keep("three")) == ([], 0, 3)


@pytest.mark.parametrize(
    ("number", "error", "says"),
    [
        (0, KeyError, "a program names stream 0, and has opened 1"),
        (2, KeyError, "a program names stream 2, and has opened 1"),
        (1, TypeError, "a program takes a str for a bytes"),
    ],
)
def test_a_stream_that_is_not_there_is_a_bug(
    number: int, error: type[Exception], says: str
) -> None:
    streams: Streams[str] = Streams()
    streams.keep("one")

    with pytest.raises(error, match=says):
        streams.find(number, bytes)
