"""Events and scopes of the event loop that runs, made without asking which one that is.

anyio finds that out for each of them, by nine calls of functions; a run makes several.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import TracebackType
from typing import Any, Protocol, Self

import anyio
import anyio.lowlevel

from legation.values import frozen

__all__ = ["Event", "Native", "Scope", "find_native"]


class Event(Protocol):
    """An event, as `anyio.Event` is one."""

    def set(self) -> object:
        """Wake who waits."""
        ...

    def is_set(self) -> bool:
        """Tell whether it was set."""
        ...

    async def wait(self) -> None:
        """Wait until it is set."""
        ...


class Scope(Protocol):
    """A scope that can be cancelled, as `anyio.CancelScope` is one."""

    def cancel(self) -> None:
        """End what is awaited within."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> bool | None: ...


@frozen
class Native:
    """The makers of events and scopes, and the clock that deadlines are times of."""

    make_event: Callable[[], Event]
    make_scope: Callable[..., Scope]
    now: Callable[[], float]

    def limit(self, seconds: float) -> Scope:
        """Return a scope that is cancelled after so long."""
        return self.make_scope(deadline=self.now() + seconds)


def find_native() -> Native:
    """Return those of the event loop that runs."""
    token: Any = anyio.lowlevel.current_token().native_token
    if hasattr(token, "run_sync_soon"):
        trio: Any = import_module("trio")  # which runs, so that it is there
        made: Any = trio.Event, trio.CancelScope, trio.current_time
    else:
        made = type(anyio.Event()), type(anyio.CancelScope()), anyio.current_time
    return Native(*made)
