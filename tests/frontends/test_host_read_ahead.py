"""Bodies that are read ahead of whoever wants them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
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

    async def next(self, timeout_seconds: float) -> bytes | Unreachable:
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
