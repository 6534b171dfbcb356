"""Functions of the user, called on the event loop or in a thread, each with a time-out.

A thread is our own and not of a pool: it counts until its function has ended, also when nobody
waits for it any more, and it must not keep the process from ending.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, cast

import anyio
import anyio.lowlevel
from attrs import field

from legation.effects import CallFunction, Piece, Raised, Returned, TimedOut
from legation.values import define

from .native import Start
from .wakeup import Wake, waker

__all__ = ["FUNCTION_THREADS", "Functions", "Pieces"]

FUNCTION_THREADS: Final = 32

CLOSE_SECONDS: Final = 2.0
"""The time in which an iterator has to clean up; after that nobody waits for it."""


@define(eq=False)
class Functions:
    """Calls functions; `threads` of them at most are in a thread at one time."""

    _start: Start = field(alias="start")
    _threads: int = field(default=FUNCTION_THREADS, alias="threads")
    _places: anyio.Semaphore = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._places = anyio.Semaphore(self._threads, max_value=self._threads)

    async def call(self, effect: CallFunction) -> Returned | Raised | TimedOut | Pieces:
        """Return the outcome; an iterator that the function returned waits for its first `next`.

        The wait for a place among the threads counts against the time-out.
        """
        with anyio.move_on_after(effect.timeout_seconds):
            await anyio.lowlevel.checkpoint()
            try:
                result = await self._result(effect.function, effect.arguments)
                if not isinstance(result, AsyncIterable):
                    return Returned(result)
                pieces = Pieces(aiter(cast("AsyncIterator[Any]", result)))
            except BaseException as error:
                if _passes(error):
                    raise
                return Raised.by(error)
            self._start(pieces.serve, name="pieces")
            return pieces
        return TimedOut()

    async def _result(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Call `function` where it belongs, and await what is to be awaited."""
        if _on_the_loop(function):
            result = function(**arguments)
        else:
            result = await self._in_thread(function, arguments)
        return await result if inspect.isawaitable(result) else result

    async def _in_thread(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        await self._places.acquire()
        call = _ThreadCall(function, arguments, self._places.release)
        try:
            threading.Thread(target=call.run, name="legation function", daemon=True).start()
        except BaseException:
            self._places.release()
            raise
        return await call.result()


@define(eq=False)
class _ThreadCall:
    """One call in one thread; `leave` is called on the event loop when the function has ended."""

    _function: Callable[..., Any]
    _arguments: Mapping[str, Any]
    _leave: Callable[[], None]
    _wake: Wake = field(factory=waker, init=False)
    _ended: anyio.Event = field(factory=anyio.Event, init=False)
    _abandoned: bool = field(default=False, init=False)
    _result: Any = field(default=None, init=False)
    _error: Exception | None = field(default=None, init=False)

    def run(self) -> None:
        """Call the function: the thread's whole life."""
        try:
            self._result = self._function(**self._arguments)
        except BaseException as error:  # noqa: BLE001 (raised to who waits)
            self._error = Raised.by(error).error
        # The event loop may be over before a function is that nobody waits for.
        with suppress(RuntimeError):
            self._wake(self._end)

    def _end(self) -> None:
        self._leave()
        self._ended.set()
        if self._abandoned and inspect.iscoroutine(self._result):
            self._result.close()  # or Python warns that it was never awaited

    async def result(self) -> Any:
        """Return what the function returned, or raise what it raised."""
        try:
            await self._ended.wait()
        except BaseException:
            self._abandoned = True
            raise
        if self._error is not None:
            raise self._error
        return self._result


def _passes(error: BaseException) -> bool:
    """Tell whether `error` is more than the failure of a function on the event loop.

    That is an interrupt, and a cancellation that is meant for us.  A function that awaits a task
    which was cancelled raises one as well, and must not end the host with it.
    """
    if isinstance(error, BaseExceptionGroup):
        return any(map(_passes, cast("BaseExceptionGroup[BaseException]", error).exceptions))
    if isinstance(error, anyio.get_cancelled_exc_class()):
        return _is_cancelled()
    return isinstance(error, KeyboardInterrupt | GeneratorExit)


def _is_cancelled() -> bool:
    """Tell whether somebody cancels this task; trio raises nothing of the kind otherwise."""
    if not anyio.get_cancelled_exc_class().__module__.startswith("asyncio"):
        return True
    task = import_module("asyncio").current_task()  # a server on trio need not load it
    return bool(task is None or task.cancelling())


def _on_the_loop(function: Callable[..., Any]) -> bool:
    """Tell whether calling `function` only makes what is then awaited or iterated."""
    asked = (function, getattr(function, "__call__", None))  # noqa: B004 (an object's own)
    return any(inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f) for f in asked)


@define(eq=False)
class Pieces:
    """The items of an async iterator, which lives in a task of its own.

    So what it holds open over a `yield`, a cancel scope or a task group, is nested in nothing of
    the driver's, and a time-out of its own never cancels the driver.  For the same reason no scope
    of ours is open when it is resumed but the one that was there before it began.
    """

    _iterator: AsyncIterator[Any]
    _scope: anyio.CancelScope = field(factory=lambda: anyio.CancelScope(shield=True), init=False)
    _asked: anyio.Event = field(factory=anyio.Event, init=False)
    _answered: anyio.Event = field(factory=anyio.Event, init=False)
    _ended: anyio.Event = field(factory=anyio.Event, init=False)
    _busy: bool = field(default=False, init=False)
    _closing: bool = field(default=False, init=False)
    _outcome: Piece | Raised | None = field(default=None, init=False)
    _error: BaseException | None = field(default=None, init=False)

    async def next(self, timeout_seconds: float) -> Piece | Raised | TimedOut | None:
        """Return the next item; after anything else the iterator is to be closed."""
        self._answered = anyio.Event()
        self._asked.set()
        with anyio.move_on_after(timeout_seconds):
            if not self._ended.is_set():
                await self._answered.wait()
        if not self._answered.is_set() and not self._ended.is_set():
            return TimedOut()
        if self._error is not None:
            raise self._error
        return self._outcome

    async def aclose(self) -> None:
        """Wait, though not for ever, until the iterator is closed; an item is not waited for."""
        self._closing = True
        self._asked.set()
        if self._busy:
            self._scope.cancel()
        else:
            self._scope.deadline = anyio.current_time() + CLOSE_SECONDS
        with anyio.move_on_after(CLOSE_SECONDS + 1, shield=True):
            await self._ended.wait()

    async def serve(self) -> None:
        """Iterate as far as is asked, and close.  Only `aclose` ends the wait for being asked."""
        try:
            with self._scope:
                try:
                    while await self._is_asked() and await self._step():
                        self._answered.set()
                finally:
                    await self._close()
        finally:
            self._ended.set()
            self._answered.set()

    async def _is_asked(self) -> bool:
        """Wait for it; False when there is nothing more to ask for."""
        try:
            # A scope that the iterator opened is for what the iterator does.
            with anyio.CancelScope(shield=True):
                await self._asked.wait()
        except anyio.get_cancelled_exc_class():
            # asyncio's own time-outs cancel the task, whatever it is doing.
            self._outcome = Raised(RuntimeError("cancelled itself between two items"))
            return False
        self._asked = anyio.Event()
        return not self._closing

    async def _step(self) -> bool:
        """Take the next item; tell whether there was one."""
        self._busy = True
        try:
            self._outcome = Piece(await anext(self._iterator))
        except StopAsyncIteration:
            self._outcome = None
        except BaseException as error:
            if not _passes(error):
                self._outcome = Raised.by(error)
            elif isinstance(error, KeyboardInterrupt | GeneratorExit):
                self._error = error  # raised to who waits
            else:
                raise
        self._busy = False
        return self._error is None and isinstance(self._outcome, Piece)

    async def _close(self) -> None:
        """Close the iterator where it has a way to; an error of its own is nobody's any more."""
        close: Callable[[], Awaitable[None]] | None = getattr(self._iterator, "aclose", None)
        if close is not None:
            with suppress(Exception):
                await close()
