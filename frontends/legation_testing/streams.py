"""The streams of a simulation: bodies that come bit by bit, and iterators."""

from __future__ import annotations

import inspect
import time
from bisect import bisect_right
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from typing import Any, cast

from attrs import define, field, frozen

from legation.effects import CallFunction, FetchReply, Raised, Returned, TimedOut, Unreachable

from .apart import Loop, Pieces, StepResult
from .awaits import AwaitWatch

__all__ = ["Arriving", "Chunks", "call_function"]


def _tuple(values: Any) -> tuple[Any, ...]:
    return tuple(values)


@frozen
class Chunks:
    """An HTTP response that comes bit by bit.

    Attributes:
        headers: Of the head; names are lower case.
        status: Of the head, as `headers`, whose names are lower case.
        chunks: Its body.
        delays: Seconds before each chunk, and before what follows the last; 0 where none is given,
            infinite where it never comes.
        end: What follows the last chunk: the end of the body, or a connection that breaks.
    """

    status: int
    headers: Mapping[str, str]
    chunks: tuple[bytes, ...] = field(converter=_tuple)
    delays: tuple[float, ...] = field(default=(), converter=_tuple)
    end: Unreachable | None = None

    def times(self) -> tuple[float, ...]:
        """Return when each chunk comes, and what follows: seconds after the head."""
        at, times = 0.0, list[float]()
        for index in range(len(self.chunks) + 1):
            at += self.delays[index] if index < len(self.delays) else 0.0
            times.append(at)
        return tuple(times)

    def whole(self) -> FetchReply | Unreachable:
        """Return the response as who waits for all of it gets it."""
        return self.end or FetchReply(self.status, self.headers, b"".join(self.chunks))


@define(eq=False)
class Arriving:
    """A body on its way: it comes when it comes, whoever asks for it."""

    _chunks: Chunks
    _opened_us: int
    _at: int = field(default=0, init=False)

    def next(self, now_us: int, timeout_seconds: float, rest_seconds: float = 0.0) -> StepResult:
        """Return what comes next, or the time-out, and the seconds until then.

        What comes within `rest_seconds` is one; where the body ends in them, that ends the rest.
        """
        rest = min(rest_seconds, timeout_seconds)
        times, first = self._chunks.times(), self._at
        passed = (now_us - self._opened_us) / 1_000_000
        if rest > 0 and times[first] <= passed + rest and first < len(self._chunks.chunks):
            self._at = bisect_right(times, passed + rest, first, len(self._chunks.chunks))
            seconds = min(rest, max(0.0, times[-1] - passed))
            return StepResult(b"".join(self._chunks.chunks[first : self._at]), seconds)
        due = self._opened_us / 1_000_000 + self._chunks.times()[self._at]
        seconds = max(0.0, due - now_us / 1_000_000)
        if seconds > 0 and not seconds < timeout_seconds:
            return StepResult(Unreachable("timeout"), max(0.0, timeout_seconds))
        if self._at == len(self._chunks.chunks):
            return StepResult(self._chunks.end or b"", seconds)
        self._at += 1
        return StepResult(self._chunks.chunks[self._at - 1], seconds)

    def close(self) -> None:
        """Nothing is held."""


def call_function(effect: CallFunction, watch: AwaitWatch | None = None) -> StepResult:
    """Call the function: here if it is a plain one, or on a loop.

    A plain one takes no virtual time, unless it takes longer, by the clock on the wall, than it
    may: then its outcome is lost as in a host, after all of its time.  The outcome is that of the
    effect, with `Pieces` for `Yielding`.  Where `watch` halts it, there is none: its loop stands
    still until it is closed.
    """
    if effect.timeout_seconds <= 0:
        return StepResult(TimedOut(), 0.0)
    begun = time.monotonic()
    try:
        result = effect.function(**effect.arguments)
    except (Exception, SystemExit) as error:  # noqa: BLE001  a value for the program
        result = Raised.by(error)
    if time.monotonic() - begun > effect.timeout_seconds:
        if inspect.iscoroutine(result):
            result.close()  # or Python warns that it was never awaited
        return StepResult(TimedOut(), effect.timeout_seconds)
    if isinstance(result, Raised):
        return StepResult(result, 0.0)
    if inspect.isawaitable(result):
        return _await(result, effect.timeout_seconds, watch)
    if isinstance(result, AsyncIterable):
        return StepResult(Pieces(aiter(cast("AsyncIterator[Any]", result)), Loop()), 0.0)
    return StepResult(Returned(result), 0.0)


def _await(result: Any, timeout_seconds: float, watch: AwaitWatch | None) -> StepResult:
    """Await `result`; an iterator that it gives goes on, on the same loop."""
    loop = Loop(watch)

    async def step() -> Any:
        given = await result
        if isinstance(given, AsyncIterable):
            return Pieces(aiter(cast("AsyncIterator[Any]", given)), loop)
        return Returned(given)

    kept = False
    try:
        took = loop.ask(step, timeout_seconds)
        kept = isinstance(took.outcome, Pieces) or loop.halted
    finally:
        if not kept:
            loop.close()
    return took
