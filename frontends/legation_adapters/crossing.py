"""The crossing between a framework, on its own loop, and the run that hosts it, on another.

The framework's side sends a piece and waits until the run has taken it, which is when it is stored;
so no more is under way than the framework does side by side.  Text alone is not waited for: as much
as has gathered is one piece.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import anyio
from attrs import define, field

from legation_host.wakeup import Wake, waker

__all__ = ["CLOSE_SECONDS", "MAX_TEXT", "Crossing", "TooMuchText"]

CLOSE_SECONDS: Final = 2.0
"""How long a framework that is cancelled may take to clean up, before nobody waits for it."""

MAX_TEXT: Final = 1 << 22
"""How much text may wait for the run, in characters."""


class TooMuchText(Exception):
    """The framework says more than the run can take."""

    def __init__(self) -> None:
        super().__init__(f"more than {MAX_TEXT} characters wait to be stored")


@define(eq=False)
class Crossing:
    """One run's crossing; made on the loop of the host, whose side has no thread but its own."""

    loop: asyncio.AbstractEventLoop
    _wake: Wake = field(factory=waker, init=False)
    _sent: deque[tuple[Any, asyncio.Future[None] | None]] = field(
        factory=deque[tuple[Any, "asyncio.Future[None] | None"]], init=False
    )
    _texts: deque[str] = field(factory=deque[str], init=False)
    _heard: int = field(default=0, init=False)  # characters, counted by the framework's side ...
    _took: int = field(default=0, init=False)  # ... and by the host's
    _there: anyio.Event = field(factory=anyio.Event, init=False)
    _ended: anyio.Event = field(factory=anyio.Event, init=False)
    _over: bool = field(default=False, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _error: Exception | None = field(default=None, init=False)

    # The side of the host

    def start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Begin with `work` on the loop of the framework."""
        self.loop.call_soon_threadsafe(self._start, work)

    async def next(self) -> Any:
        """Return the next piece; None where there are no more.

        Raises:
            Exception: What the work raised.
        """
        while not self._sent and not self._over:
            await self._there.wait()
            self._there = anyio.Event()
        if self._sent:
            return self._sent[0][0]
        if self._error is not None:
            raise self._error
        return None

    def taken(self) -> None:
        """Let whoever sent the piece go on: it is stored."""
        piece, waiting = self._sent.popleft()
        if waiting is None:
            self._took += len(piece)
        else:
            self.loop.call_soon_threadsafe(_settle, waiting)

    async def close(self) -> None:
        """Cancel the work, and wait for its end, though not for ever."""
        if self._over:
            return
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._cancel)
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await self._ended.wait()

    def _arrive(self, piece: Any, waiting: asyncio.Future[None] | None) -> None:
        # The first is in the hands of the run already.
        if waiting is None and len(self._sent) > 1 and self._sent[-1][1] is None:
            piece = self._sent.pop()[0] + piece
        self._sent.append((piece, waiting))
        self._there.set()

    def _end(self, error: Exception | None) -> None:
        self._over, self._error = True, error
        self._there.set()
        self._ended.set()

    # The side of the framework

    def _start(self, work: Callable[[], Awaitable[None]]) -> None:
        self._task = self.loop.create_task(self._work(work))

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _work(self, work: Callable[[], Awaitable[None]]) -> None:
        error: Exception | None = None
        try:
            await work()
            self._flush()
        except asyncio.CancelledError:
            error = RuntimeError("the framework cancelled itself")
        except Exception as failed:  # noqa: BLE001 (raised to the run)
            error = failed
        finally:
            with suppress(RuntimeError):  # the host has gone away
                self._wake(lambda: self._end(error))

    def hear(self, text: str) -> None:
        """Send text, without waiting for it.

        Raises:
            TooMuchText: Too much of it waits already.
        """
        if not text:
            return
        if not self._texts:
            self.loop.call_soon(self._flush)
        self._heard += len(text)
        if self._heard - self._took > MAX_TEXT:
            raise TooMuchText
        self._texts.append(text)

    def _flush(self) -> None:
        """Send what has gathered of text as one piece."""
        if self._texts:
            text = "".join(self._texts)
            self._texts.clear()
            with suppress(RuntimeError):  # the host has gone away
                self._wake(lambda: self._arrive(text, None))

    async def send(self, piece: Any) -> None:
        """Send a piece, and wait until the run has taken it; what was heard before goes first."""
        self._flush()
        waiting: asyncio.Future[None] = self.loop.create_future()
        self._wake(lambda: self._arrive(piece, waiting))
        await waiting


def _settle(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
