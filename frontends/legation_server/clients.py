"""The watch on the clients of streams: who of them goes away is seen while nothing is sent.

A stream that watched its client by itself would need a task, begun and cancelled for each.  Here
one task waits for all of them: their sockets are in a selector, which is readable when one is.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable

from trio.lowlevel import wait_readable

__all__ = ["ClientWatch"]


class ClientWatch:
    """The watch on the clients of one server's streams; `run` is its task."""

    __slots__ = ("_selector",)

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def enter(self, fd: int, hear: Callable[[], object]) -> None:
        """Call `hear` whenever there is something to be read at `fd`, until that leaves."""
        self._selector.register(fd, selectors.EVENT_READ, hear)

    def leave(self, fd: int) -> None:
        """Watch `fd` no longer, which is not closed yet."""
        self._selector.unregister(fd)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await wait_readable(self._selector)
            self._look()

    def _look(self) -> None:
        """Let everybody be heard of whom something can be read."""
        for key, _ in self._selector.select(0):
            key.data()

    def close(self) -> None:
        """End the watch, when no client is left."""
        self._selector.close()
