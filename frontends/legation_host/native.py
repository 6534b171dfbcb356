"""Events, scopes and tasks of the event loop that runs, made without asking which one that is.

anyio finds that out for each event and scope, by nine calls of functions, and makes an event and a
scope for each task; a run makes several.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from importlib import import_module
from types import TracebackType
from typing import Any, Final, Protocol, Self

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from legation.values import frozen

__all__ = ["EITHER", "Event", "Native", "Scope", "Start", "find_native"]


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


class Start(Protocol):
    """Starts tasks, as `TaskGroup.start_soon` does."""

    def __call__(
        self, function: Callable[..., Coroutine[Any, Any, None]], /, *args: Any, name: object = None
    ) -> object:
        """Start a task that awaits `function(*args)`."""
        ...


@frozen
class Native:
    """The makers of events, scopes and tasks, and the clock that deadlines are times of.

    Attributes:
        find_start: Returns the starter of tasks of a group, the last that this task entered.
    """

    make_event: Callable[[], Event]
    make_scope: Callable[..., Scope]
    now: Callable[[], float]
    find_start: Callable[[TaskGroup], Start]

    def limit(self, seconds: float) -> Scope:
        """Return a scope that is cancelled after so long."""
        return self.make_scope(deadline=self.now() + seconds)


def _start_by(tasks: TaskGroup) -> Start:
    return tasks.start_soon


EITHER: Final = Native(anyio.Event, anyio.CancelScope, anyio.current_time, _start_by)
"""Those of either event loop: anyio looks for the one that runs, each time."""


def find_native() -> Native:
    """Return those of the event loop that runs."""
    token: Any = anyio.lowlevel.current_token().native_token
    if hasattr(token, "run_sync_soon"):
        trio: Any = import_module("trio")  # which runs, so that it is there

        def start_by(_: TaskGroup) -> Start:
            start: Start = trio.lowlevel.current_task().child_nurseries[-1].start_soon
            return start

        now = trio.lowlevel.current_clock().current_time
        return Native(trio.Event, trio.CancelScope, now, start_by)
    make_event: Any = type(anyio.Event())
    make_scope: Any = type(anyio.CancelScope())
    return Native(make_event, make_scope, anyio.current_time, _start_by)
