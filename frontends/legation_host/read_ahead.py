"""A body that is read ahead of whoever wants it.

A model sends a token at a time, and a program that stores what it heard takes longer over each than
the model does.  Were the next chunk read only when it is asked for, every token would cost a
transaction.  So a task reads on meanwhile, and what has come is handed over as one.
"""

from __future__ import annotations

import math
from typing import Final

import anyio
from attrs import field

from legation.effects import Unreachable
from legation.values import define

from .fetch import ResponseBody

__all__ = ["ReadAhead"]

AHEAD_BYTES: Final = 256 << 10
"""Beyond this the peer waits: the kernel's buffers fill, and it can send no more."""


@define(eq=False)
class ReadAhead:
    """Reads `body` while its `pump` runs."""

    _body: ResponseBody
    _come: list[bytes] = field(factory=list[bytes], init=False)
    _size: int = field(default=0, init=False)
    _last: bytes | Unreachable | Exception | None = field(default=None, init=False)
    _news: anyio.Event = field(factory=anyio.Event, init=False)
    _room: anyio.Event = field(factory=anyio.Event, init=False)
    _done: anyio.Event = field(factory=anyio.Event, init=False)
    _scope: anyio.CancelScope = field(factory=anyio.CancelScope, init=False)

    async def pump(self) -> None:
        """Read the body to its end, or until it is closed; then let go of it."""
        try:
            with self._scope:
                await self._read()
        finally:
            with anyio.CancelScope(shield=True):
                await self._body.aclose()
            self._last = self._last if self._last is not None else b""
            self._news.set()
            self._done.set()

    async def _read(self) -> None:
        while True:
            try:
                chunk = await self._body.next(math.inf)
            except Exception as error:  # noqa: BLE001 (raised in the program that asks)
                self._last = error
                return
            if not chunk or isinstance(chunk, Unreachable):
                self._last = chunk
                return
            self._come.append(chunk)
            self._size += len(chunk)
            self._news.set()
            while self._size >= AHEAD_BYTES:
                self._room = anyio.Event()
                await self._room.wait()

    async def next(self, timeout_seconds: float) -> bytes | Unreachable:
        """Return what has come, or what comes first; empty at the end."""
        if not self._come and self._last is None:
            self._news = anyio.Event()
            with anyio.move_on_after(timeout_seconds):
                await self._news.wait()
        if self._come:
            data = b"".join(self._come)
            self._come.clear()
            self._size = 0
            self._room.set()
            return data
        if isinstance(self._last, Exception):
            raise self._last
        return Unreachable("timeout") if self._last is None else self._last

    async def aclose(self) -> None:
        """Stop reading, and wait until the connection is closed or free again."""
        self._scope.cancel()
        await self._done.wait()
