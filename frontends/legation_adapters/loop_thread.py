"""The event loop of asyncio that the frameworks run on, in a thread of its own.

There is one in a process, started with the first run.  It ends with the process, before which
whoever hosts a run cancels that.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from typing import Final

from attrs import define, field

__all__ = ["LOOP_THREAD", "LoopThread"]

_END_SECONDS: Final = 2.0


@define(eq=False)
class LoopThread:
    """A loop in a thread; a process that was forked from one with a loop starts its own."""

    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    _process: int = field(default=0, init=False)

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop, which runs."""
        with self._lock:
            if self._loop is None or self._process != os.getpid():
                self._process, self._loop = os.getpid(), asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run, args=(self._loop,), name="legation adapters", daemon=True
                )
                self._thread.start()
            return self._loop

    def stop(self) -> None:
        """End the loop, where there is one; the next run starts another."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None and self._process == os.getpid():
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join(_END_SECONDS)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


LOOP_THREAD: Final = LoopThread()
"""That of this process."""

atexit.register(LOOP_THREAD.stop)
