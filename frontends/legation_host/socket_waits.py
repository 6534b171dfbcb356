"""Waiting for a socket on the event loop, in the place of psycopg's own, which blocks a thread."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Generator
from importlib import import_module
from typing import Any, Final, TypeVar

import anyio
import anyio.lowlevel

from legation.values import frozen

__all__ = ["SocketWaits", "find_socket_waits"]

R = TypeVar("R")

READ: Final = 1
WRITE: Final = 2
"""What psycopg's generators wait for, and are told that it came: either, or the sum of both."""


@frozen
class SocketWaits:
    """The waits of the event loop that runs.

    Attributes:
        until_readable: Waits until a socket can be read; whoever is cancelled waits for that too.
        leave_if_cancelled: Raises where the task is cancelled.
    """

    until_readable: Callable[[socket.socket], Awaitable[None]]
    leave_if_cancelled: Callable[[], Awaitable[None]]

    async def follow(self, work: Generator[int, Any, R], wire: socket.socket) -> R:
        """Return what `work` returns; whoever is cancelled meanwhile waits for that as well."""
        try:
            wanted = next(work)
            while True:
                if wanted == READ:
                    await self.until_readable(wire)
                else:
                    wanted = await _wait_for_either(wanted, wire)
                wanted = work.send(wanted)
        except StopIteration as stop:
            result: R = stop.value
            return result
        finally:
            work.close()


async def _wait_for_either(wanted: int, wire: socket.socket) -> int:
    """Wait for any of what is `wanted`; return what of that has come."""
    came = 0

    async def wait(until: Callable[[socket.socket], Awaitable[None]], event: int) -> None:
        nonlocal came
        await until(wire)
        came |= event
        tasks.cancel_scope.cancel()

    with anyio.CancelScope(shield=True):
        async with anyio.create_task_group() as tasks:
            for until, event in ((anyio.wait_readable, READ), (anyio.wait_writable, WRITE)):
                if wanted & event:
                    tasks.start_soon(wait, until, event)
    return came


def find_socket_waits() -> SocketWaits:
    """Return those of the event loop that runs."""
    token: Any = anyio.lowlevel.current_token().native_token
    if hasattr(token, "run_sync_soon"):
        return _find_waits_of_trio()

    async def until_readable(wire: socket.socket) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.wait_readable(wire)

    return SocketWaits(until_readable, anyio.lowlevel.checkpoint_if_cancelled)


def _find_waits_of_trio() -> SocketWaits:
    trio: Any = import_module("trio")  # which runs, so that it is there
    wait_readable = trio.lowlevel.wait_readable

    async def until_readable(wire: socket.socket) -> None:
        try:
            await wait_readable(wire)
        except trio.Cancelled:  # which trio raises again, wherever the task waits next
            with trio.CancelScope(shield=True):
                await wait_readable(wire)

    return SocketWaits(until_readable, trio.lowlevel.checkpoint_if_cancelled)
