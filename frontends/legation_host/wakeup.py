"""The wake-up of an event loop by another thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import anyio.lowlevel

__all__ = ["Wake", "waker"]

Wake: TypeAlias = Callable[[Callable[[], object]], object]


def waker() -> Wake:
    """Return what runs a function soon on the thread of this event loop, from any thread.

    It does not wait for that, since an event loop that ends may never come to it; it raises
    `RuntimeError` when the loop has ended.
    """
    loop: Any = anyio.lowlevel.current_token().native_token
    wake: Wake = loop.run_sync_soon if hasattr(loop, "run_sync_soon") else loop.call_soon_threadsafe
    return wake
