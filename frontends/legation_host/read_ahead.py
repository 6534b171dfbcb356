"""A body that is read ahead of whoever wants it.

A model sends a token at a time, and a program that stores what it heard takes longer over each than
the model does.  Were the next chunk read only when it is asked for, every token would cost a
transaction.  So a task reads on meanwhile, and what has come is handed over as one.

Being woken costs more than reading.  While a program rests, the task stops behind the chunk that it
was waiting for: what follows gathers in the kernel, and is read in a few steps at the rest's end.
"""

from __future__ import annotations

from typing import Final

import anyio
import anyio.lowlevel
from attrs import define, field

from legation.effects import Unreachable

from .fetch import ResponseBody

__all__ = ["ReadAhead"]

AHEAD_BYTES: Final = 256 << 10
"""Beyond this the peer waits: the kernel's buffers fill, and it can send no more."""

# So many turns of the event loop are between the reading of what the kernel has and its being
# here, and some more: on trio 2, on asyncio 4.
_TURNS: Final = 6


@define(eq=False)
class ReadAhead:
    """Reads `body` while its `pump` runs."""

    _body: ResponseBody
    _come: list[bytes] = field(factory=list[bytes], init=False)
    _size: int = field(default=0, init=False)
    _last: bytes | Unreachable | Exception | None = field(default=None, init=False)
    _resting: bool = field(default=False, init=False)
    _halted: bool = field(default=False, init=False)
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
                chunk = await self._body.next()
            except Exception as error:  # noqa: BLE001 (raised in the program that asks)
                self._last = error
                return
            if not chunk or isinstance(chunk, Unreachable):
                self._last = chunk
                return
            self._come.append(chunk)
            self._size += len(chunk)
            self._news.set()
            while self._resting or self._size >= AHEAD_BYTES:
                self._room, self._halted = anyio.Event(), True
                await self._room.wait()
                self._halted = False

    async def next(self, timeout_seconds: float, rest_seconds: float = 0.0) -> bytes | Unreachable:
        """Return what has come, or what comes first; empty at the end.

        With `rest_seconds`, wait so long at first, unless the end has come or there is no room.
        """
        rest_seconds = min(rest_seconds, timeout_seconds)
        if rest_seconds > 0 and self._is_reading():
            await self._rest(rest_seconds)
            timeout_seconds -= rest_seconds
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

    def _is_reading(self) -> bool:
        """Return whether more may come, and there is room for it."""
        return self._last is None and self._size < AHEAD_BYTES

    async def _rest(self, seconds: float) -> None:
        """Let the peer go on for so long; then read what the kernel has of it."""
        self._resting = True
        try:
            with anyio.move_on_after(seconds):
                await self._done.wait()
        finally:
            self._resting = False
            halted = self._halted
            self._room.set()
        left = _TURNS if halted else 0
        while left and self._is_reading():
            known = self._size
            await anyio.lowlevel.checkpoint()
            left = left - 1 if self._size == known else _TURNS

    async def aclose(self) -> None:
        """Stop reading, and wait until the connection is closed or free again."""
        self._scope.cancel()
        await self._done.wait()
