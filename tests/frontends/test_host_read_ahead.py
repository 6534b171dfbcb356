"""Bodies that are read ahead of whoever wants them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import pytest
from attrs import define, field

from legation.effects import Unreachable
from legation_host.read_ahead import AHEAD_BYTES, ReadAhead

from .host_units import BACKENDS, run

Part: TypeAlias = bytes | Unreachable | float | Exception


@define(eq=False)
class Given:
    """A body that says what it was given; a number is a pause, an exception is raised."""

    parts: list[Part]
    read: int = field(default=0, init=False)
    closed: int = field(default=0, init=False)
    held: Any = None

    async def next(self) -> bytes | Unreachable:
        await anyio.lowlevel.checkpoint()
        while self.parts:
            part = self.parts.pop(0)
            self.read += 1
            if isinstance(part, Exception):
                raise part
            if not isinstance(part, (int, float)):
                return part
            await anyio.sleep(part)
        return b""

    async def aclose(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.closed += 1


@define(eq=False)
class Held(Given):
    """A body on a connection that can be held: a read brings several parts, or none ever."""

    reads: list[list[bytes]] = field(factory=list[list[bytes]], kw_only=True)
    empty: bool = field(default=True, kw_only=True)
    hold: Callable[[], Awaitable[None]] | None = field(default=None, init=False)
    turns: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.held = self

    async def next(self) -> bytes | Unreachable:
        while not self.parts and self.reads:
            assert self.hold is not None
            await self.hold()
            self.turns += 1
            read = self.reads.pop(0)
            await anyio.lowlevel.checkpoint()
            if not read:
                await anyio.sleep(60)
            self.parts.extend(read)
        self.read += len(self.parts) > 0
        part = self.parts.pop(0) if self.parts else b""
        assert isinstance(part, (bytes, Unreachable))
        return part


def reading(
    backend: str, given: Given, use: Callable[[ReadAhead], Coroutine[Any, Any, None]]
) -> None:
    """Run `use` on what reads `given`; afterwards `given` is closed, once."""

    async def main() -> None:
        body: Any = given
        stream = ReadAhead(body)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.pump)
            await use(stream)
            await stream.aclose()
            assert given.closed == 1
            await stream.aclose()
        assert given.closed == 1

    run(backend, main)


@BACKENDS
def test_what_has_come_is_handed_over_as_one(backend: str) -> None:
    async def use(stream: ReadAhead) -> None:
        assert await stream.next(5) == b"one"
        await anyio.sleep(0.1)
        assert await stream.next(5) == b"twothree"
        assert await stream.next(5) == b"four"
        assert [await stream.next(5) for _ in range(3)] == [b""] * 3

    reading(backend, Given([b"one", 0.05, b"two", b"three", 0.2, b"four"]), use)


@BACKENDS
@pytest.mark.parametrize("last", [Unreachable("protocol"), ZeroDivisionError("ours")], ids=str)
def test_a_failure_comes_behind_what_was_read_before_it(
    backend: str, last: Unreachable | Exception
) -> None:
    async def use(stream: ReadAhead) -> None:
        await anyio.sleep(0.05)
        assert await stream.next(5) == b"one"
        if isinstance(last, Exception):
            with pytest.raises(ZeroDivisionError):
                await stream.next(5)
        else:
            assert await stream.next(5) == last

    reading(backend, Given([b"one", last]), use)


@BACKENDS
def test_silence_is_a_time_out_and_no_end(backend: str) -> None:
    async def use(stream: ReadAhead) -> None:
        assert await stream.next(0.02) == Unreachable("timeout")
        assert await stream.next(5) == b"late"

    reading(backend, Given([0.1, b"late"]), use)


@BACKENDS
def test_it_does_not_read_without_bounds(backend: str) -> None:
    part, count = b"x" * (AHEAD_BYTES // 4), 12
    given = Given([part] * count)

    async def use(stream: ReadAhead) -> None:
        received = 0
        while received < count:
            await anyio.sleep(0.02)
            assert given.read - received <= 5
            data = await stream.next(5)
            assert isinstance(data, bytes)
            received += len(data) // len(part)
        assert await stream.next(5) == b""

    reading(backend, given, use)


@BACKENDS
@pytest.mark.parametrize("parts", [[60.0], [b"x" * AHEAD_BYTES, b"y"]], ids=["silent", "full"])
def test_closing_ends_it_wherever_it_waits(backend: str, parts: list[Any]) -> None:
    async def use(stream: ReadAhead) -> None:
        await anyio.sleep(0.02)

    reading(backend, Given(parts), use)


@BACKENDS
def test_who_waits_is_told_that_it_was_closed(backend: str) -> None:
    async def use(stream: ReadAhead) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.aclose)
            assert await stream.next(5) == b""

    reading(backend, Given([60.0]), use)


@BACKENDS
def test_what_comes_in_a_rest_is_one_and_nothing_is_lost(backend: str) -> None:
    async def use(stream: ReadAhead) -> None:
        assert await stream.next(5) == b"one"
        assert await stream.next(5, 0.2) == b"twothree"
        assert await stream.next(5, 0.01) == b"four"
        assert await stream.next(5, 60) == b""

    reading(backend, Given([b"one", 0.02, b"two", 0.02, b"three", 0.4, b"four"]), use)


@BACKENDS
def test_a_rest_leaves_time_to_read(backend: str) -> None:
    async def use(stream: ReadAhead) -> None:
        assert await stream.next(0.04, 60) == b"one"
        assert await stream.next(0.02, 60) == Unreachable("timeout")

    reading(backend, Held([], reads=[[b"one"], []]), use)


@BACKENDS
def test_a_connection_is_read_when_it_is_wanted_and_not_before(backend: str) -> None:
    given = Held([b"with the head"], reads=[[b"one", b"two"], [b"three"]])

    async def use(stream: ReadAhead) -> None:
        await anyio.sleep(0.02)
        assert given.turns == 0
        assert await stream.next(5) == b"with the headonetwo"
        await anyio.sleep(0.02)
        assert given.turns == 1
        assert [await stream.next(5, 0.01) for _ in range(3)] == [b"three", b"", b""]
        assert given.hold is None

    reading(backend, given, use)


@BACKENDS
def test_all_records_of_an_encrypted_connection_are_one_answer(backend: str) -> None:
    given = Held([], reads=[[b"one"], [b"two"], [b"three"], []], empty=False)

    async def use(stream: ReadAhead) -> None:
        assert await stream.next(5, 0.01) == b"onetwothree"

    reading(backend, given, use)


@BACKENDS
def test_records_without_an_end_are_answered_all_the_same(backend: str) -> None:
    given = Held([], reads=[[b"."] for _ in range(100_000)], empty=False)

    async def use(stream: ReadAhead) -> None:
        data = await stream.next(5)
        assert isinstance(data, bytes)
        assert 0 < len(data) < 1_000

    reading(backend, given, use)


@BACKENDS
def test_closing_ends_it_where_it_is_held(backend: str) -> None:
    async def use(stream: ReadAhead) -> None:
        assert await stream.next(5) == b"one"

    reading(backend, Held([], reads=[[b"one"], [b"two"]]), use)
