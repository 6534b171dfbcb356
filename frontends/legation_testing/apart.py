"""A trio loop for coroutines of the user's; its clock is virtual as well.

The loop lives in a thread of its own, because a test may itself run on one.  It works only while
somebody asks it for a step, and who asks waits for the outcome.
"""

from __future__ import annotations

import math
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeAlias

import trio
import trio.testing
from attrs import define, field, frozen

from legation.effects import Piece, Raised, TimedOut

from .awaits import AwaitWatch, Halted

__all__ = ["Loop", "Pieces", "StepResult"]

Step: TypeAlias = Callable[[], Awaitable[Any]]
Asked: TypeAlias = tuple[Step, float]  # and the seconds that it may take


@frozen
class StepResult:
    """The outcome of a step, and the virtual seconds that it took."""

    outcome: Any
    seconds: float


@define(eq=False)
class Loop:
    """A trio loop that stands still unless it is asked.  To be closed.

    Attributes:
        watch: Counts the awaits of the author's code on it; it may halt the loop for good.
    """

    watch: AwaitWatch | None = None
    _requests: SimpleQueue[Asked | None] = field(factory=SimpleQueue[Any], init=False)
    _outcomes: SimpleQueue[StepResult | BaseException] = field(factory=SimpleQueue[Any], init=False)
    _thread: threading.Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="functions", daemon=True)
        self._thread.start()

    def ask(self, step: Step, timeout_seconds: float) -> StepResult:
        """Return the outcome of `step`: its result, `Raised`, or `TimedOut`.

        Raises:
            BaseException: What the step raised that is no `Exception`.
        """
        self._requests.put((step, timeout_seconds))
        outcome = self._outcomes.get()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def close(self) -> None:
        """End the loop, with whatever is still going on there."""
        self._requests.put(None)
        self._thread.join()

    @property
    def halted(self) -> bool:
        """Whether a step stands still for good, so that nothing behind it is ever done."""
        return self.watch is not None and self.watch.halted

    def _run(self) -> None:
        if self.watch is not None:
            self.watch.begin(self._halt, self.close)
        try:
            trio.run(self._serve, clock=trio.testing.MockClock(autojump_threshold=0))
        except BaseException:
            if not self.halted:
                raise

    def _halt(self) -> None:
        """Let who asked go on without an outcome; stand still until the loop is closed."""
        self._outcomes.put(StepResult(TimedOut(), 0.0))
        self._requests.get()
        self._requests.put(None)  # should the author's code go on nevertheless
        raise Halted

    async def _serve(self) -> None:
        # The loop is blocked while it waits: no task of the user's goes on, and no time passes.
        while (asked := self._requests.get()) is not None:
            with trio.CancelScope() as scope:
                await self._take(asked, scope)
                return
            self._outcomes.put(StepResult(TimedOut(), asked[1]))

    async def _take(self, asked: Asked | None, scope: trio.CancelScope) -> None:
        """Take one step after another, until one lasts too long.

        An iterator may hold a scope of its own open from one step to the next, so the only one of
        ours is around them all.
        """
        while asked is not None:
            step, seconds = asked
            started = trio.current_time()
            scope.deadline = started + seconds
            outcome = await _outcome(step)
            scope.deadline = math.inf
            if isinstance(outcome, BaseException):
                self._outcomes.put(outcome)
            else:
                self._outcomes.put(StepResult(outcome, trio.current_time() - started))
            asked = self._requests.get()


async def _outcome(step: Step) -> Any:
    """Return what the step returned, `Raised`, or an exception to be raised to who asked."""
    try:
        return await step()
    except (Exception, SystemExit) as error:  # noqa: BLE001  a value for the program
        return Raised.by(error)
    except trio.Cancelled:
        raise
    except BaseException as error:  # noqa: BLE001  raised to who asked
        return error


@define(eq=False)
class Pieces:
    """The items of an async iterator on a loop that is its own."""

    _iterator: AsyncIterator[Any]
    _loop: Loop

    def next(self, timeout_seconds: float) -> StepResult:
        """Return the next item; the outcome is None at the end."""
        return self._loop.ask(self._next, timeout_seconds)

    async def _next(self) -> Piece | None:
        try:
            return Piece(await anext(self._iterator))
        except StopAsyncIteration:
            return None

    def close(self) -> None:
        """Close the iterator, and the loop."""
        self._loop.ask(self._aclose, 60.0)
        self._loop.close()

    async def _aclose(self) -> None:
        close: Callable[[], Awaitable[None]] | None = getattr(self._iterator, "aclose", None)
        if close is not None:
            with suppress(Exception):
                await close()
