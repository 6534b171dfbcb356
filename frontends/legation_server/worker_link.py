"""A worker's part in a scrape: it says what it has measured, and asks its parent for the whole."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio
from attrs import field
from trio.lowlevel import wait_readable, wait_writable

from legation.observability.merging import Snapshot, decode_snapshot, encode_snapshot
from legation.values import define

from .scrape_links import Frame, Frames, Kind, pack

__all__ = ["ParentSilent", "WorkerLink"]

_READ: Final = 1 << 18

_LAST_SECONDS: Final = 2.0
"""For the parent to take the last word of a worker that ends."""


class ParentSilent(Exception):
    """The parent does not say what its workers have measured."""


@define(eq=False)
class _Wait:
    """The wait of one scrape."""

    over: trio.Event = field(factory=trio.Event, init=False)
    whole: Snapshot | None = field(default=None, init=False)


@define(eq=False)
class WorkerLink:
    """A worker's end of the link to its parent.

    Scrapes that come while another one waits are answered together, by a round that began after
    they came.  The parent asks again once it was answered, and so do we, so that there are never
    more than two frames to send.
    """

    _end: socket.socket = field(alias="end")
    _serves: bool = field(default=False, init=False)
    _waiting: list[_Wait] = field(factory=list[_Wait], init=False)
    """Those for which the parent was asked."""
    _next: list[_Wait] = field(factory=list[_Wait], init=False)
    _unsent: bytearray = field(factory=bytearray, init=False)
    _more: trio.Event = field(factory=trio.Event, init=False)

    async def serve(self, measure: Callable[[], Snapshot]) -> None:
        """Answer the parent until cancelled, or until it is gone.

        Args:
            measure: Returns what this process has measured, at once.
        """
        self._end.setblocking(False)
        self._serves = True
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                await self._read(measure)
                nursery.cancel_scope.cancel()
        finally:
            self._serves = False
            self._give_up()

    async def gather(self) -> Snapshot:
        """Return what all workers have measured.

        Raises:
            ParentSilent: The parent is gone, or has more to say than can be said.
        """
        wait = _Wait()
        self._next.append(wait)
        self._ask()
        try:
            await wait.over.wait()
        finally:
            if wait in self._next:  # whoever asked has given up
                self._next.remove(wait)
        if wait.whole is None:
            raise ParentSilent
        return wait.whole

    def end(self, last: Snapshot) -> None:
        """Tell the parent what was measured to the very end; call it when `serve` has ended."""
        self._unsent += pack(Frame(Kind.SNAPSHOT, encode_snapshot(last)))
        with suppress(OSError):  # the parent is gone, and nobody asks any more
            self._end.settimeout(_LAST_SECONDS)
            self._end.sendall(self._unsent)
        self._end.close()

    async def _write(self) -> None:
        """Send what is to be sent; of what is not, when it is cancelled, `end` sends the rest."""
        with suppress(OSError):
            while True:
                while self._unsent:
                    await wait_writable(self._end)
                    with suppress(BlockingIOError):
                        del self._unsent[: self._end.send(self._unsent)]
                self._more = trio.Event()
                await self._more.wait()

    async def _read(self, measure: Callable[[], Snapshot]) -> None:
        frames = Frames()
        with suppress(ConnectionError):
            while True:
                await wait_readable(self._end)
                data = self._end.recv(_READ)
                if not data:
                    return
                for frame in frames.feed(data):
                    if frame.kind is Kind.ASK:
                        self._put(Frame(Kind.SNAPSHOT, encode_snapshot(measure())))
                    else:
                        self._take(frame.content)

    def _put(self, frame: Frame) -> None:
        self._unsent += pack(frame)
        self._more.set()

    def _ask(self) -> None:
        """Ask for a round, unless one is awaited already."""
        if not self._serves:
            self._give_up()
        elif self._next and not self._waiting:
            self._waiting, self._next = self._next, []
            self._put(Frame(Kind.GATHER))

    def _take(self, content: bytes) -> None:
        whole = decode_snapshot(content) if content else None
        for wait in self._waiting:
            wait.whole = whole
            wait.over.set()
        self._waiting = []
        self._ask()

    def _give_up(self) -> None:
        for wait in (*self._waiting, *self._next):
            wait.over.set()
        self._waiting, self._next = [], []
