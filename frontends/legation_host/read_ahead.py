"""A body that is read ahead of whoever wants it.

A model sends a token at a time, and a program that stores what it heard takes longer over each than
the model does.  Were a chunk read only when it is asked for, every token would cost a transaction.
So what came meanwhile is handed over as one.

Where the connection can be held, it gathers in the kernel, and nobody is woken for it: a task reads
when the program asks, until nothing more is there.  Over a proxy that task reads on all the time.
A read cannot be given up half-way without the loss of the connection; so it has its own task.
"""

from __future__ import annotations

from typing import Final

import anyio
import anyio.lowlevel
from attrs import field

from legation.effects import Unreachable
from legation.values import define

from .fetch import ResponseBody
from .native import EITHER, Event, Native, Scope

__all__ = ["ReadAhead"]

AHEAD_BYTES: Final = 256 << 10
"""Beyond this the peer waits: the kernel's buffers fill, and it can send no more."""

# A record of TLS takes a turn or several of the event loop to be read.  Where none came for so
# many, there is none; and whoever sends without an end is not read without one.
_QUIET_TURNS: Final = 8
_TURNS: Final = 256


@define(eq=False)
class ReadAhead:
    """Reads `body` while its `pump` runs; it waits by what `native` makes."""

    _body: ResponseBody
    _native: Native = EITHER
    _come: list[bytes] = field(factory=list[bytes], init=False)
    _size: int = field(default=0, init=False)
    _last: bytes | Unreachable | Exception | None = field(default=None, init=False)
    _wanted: bool = field(default=False, init=False)
    _news: Event = field(init=False)
    _room: Event = field(init=False)
    _done: Event = field(init=False)
    _scope: Scope = field(init=False)

    def __attrs_post_init__(self) -> None:
        native = self._native
        self._news, self._room, self._done = (native.make_event() for _ in range(3))
        self._scope = native.make_scope()

    async def pump(self) -> None:
        """Read the body to its end, or until it is closed; then let go of it."""
        held = self._body.held
        try:
            with self._scope:
                if held is not None:
                    held.hold = self._hold
                await self._read()
        finally:
            if held is not None:
                held.hold = None
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
            while self._size >= AHEAD_BYTES:
                await self._await_room()

    async def _hold(self) -> None:
        """Wait with the next read until it is wanted: all that was read before is here."""
        held = self._body.held
        if self._come and held is not None and held.empty:
            self._wanted = False
        while not self._wanted:
            await self._await_room()

    async def _await_room(self) -> None:
        self._room = self._native.make_event()
        await self._room.wait()

    async def next(self, timeout_seconds: float, rest_seconds: float = 0.0) -> bytes | Unreachable:
        """Return what has come, or what comes first; empty at the end.

        With `rest_seconds`, what came in these is returned, unless the end was seen before.
        """
        rest_seconds = min(rest_seconds, timeout_seconds / 2)  # the rest of the time is to read in
        if rest_seconds > 0 and self._is_reading():
            with self._native.limit(rest_seconds):
                await self._done.wait()
            timeout_seconds -= rest_seconds
        self._wanted = True
        self._room.set()
        if not self._come and self._last is None:
            self._news = self._native.make_event()
            with self._native.limit(timeout_seconds):
                await self._news.wait()
        if self._body.held is not None:
            await self._read_on()
        self._wanted = False
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

    async def _read_on(self) -> None:
        """Let the task read all that is there, which one read may not have taken."""
        quiet = turns = 0
        while self._come and self._wanted and self._is_reading() and quiet < _QUIET_TURNS:
            if turns == _TURNS:
                return
            known = self._size
            await anyio.lowlevel.checkpoint()
            turns, quiet = turns + 1, quiet + 1 if self._size == known else 0

    async def aclose(self) -> None:
        """Stop reading, and wait until the connection is closed or free again."""
        self._scope.cancel()
        await self._done.wait()
