"""The one life of what is opened: opened once, asked where it lives, closed once.

    stage      open     ask        close      end
    NEW        OPEN     -          -          -
    OPEN       -        OPEN       CLOSING    OVER
    CLOSING    -        CLOSING    -          OVER
    OVER       -        -          -          -

Where the table has no stage, the act is a misuse, and a sentence says what to do instead.  So is
every act in another event loop: what waits here for something of another loop waits for ever.

A platform has one such life at a time.  When it is over, the platform may be opened again.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from enum import Enum
from functools import wraps
from types import TracebackType
from typing import Final, Generic, ParamSpec, TypeVar
from weakref import WeakSet

import trio
from attrs import field

from legation.values import define

from .errors import LifeMisuse

__all__ = ["MOVES", "Act", "Life", "Opening", "Stage", "hold", "one_life"]

P = ParamSpec("P")
T = TypeVar("T")


class Stage(Enum):
    """The stages of a life."""

    NEW = "not open yet"
    OPEN = "open"
    CLOSING = "being closed"
    OVER = "over"


class Act(Enum):
    """An act on something that lives."""

    OPEN = "opened"
    ASK = "asked"
    CLOSE = "closed"
    END = "ended"


MOVES: Final[Mapping[Stage, Mapping[Act, Stage]]] = {
    Stage.NEW: {Act.OPEN: Stage.OPEN},
    Stage.OPEN: {Act.ASK: Stage.OPEN, Act.CLOSE: Stage.CLOSING, Act.END: Stage.OVER},
    Stage.CLOSING: {Act.ASK: Stage.CLOSING, Act.END: Stage.OVER},
    Stage.OVER: {},
}

_ADVICE: Final[Mapping[Act, str]] = {
    Act.OPEN: "call what made it again, for another life",
    Act.ASK: "ask it within `async with`, between its start and its end",
    Act.CLOSE: "leave it once, where it was entered: `async with` does both",
    Act.END: "it ends once",
}


@define(eq=False)
class Life:
    """One life.

    Attributes:
        what: What lives, in the words of a sentence.
        lives: Whether it may be asked.
        find_loop: Returns what stands for the running event loop; raises `RuntimeError` in none.
        loop: Where it was opened.
        find_mark: As `find_loop`, in one call; a later loop may have the mark of one that ended.
        mark: Of the loop where it was opened.
    """

    what: str
    stage: Stage = field(default=Stage.NEW, init=False)
    lives: bool = field(default=False, init=False)
    find_loop: Callable[[], object] = field(init=False)
    loop: object = field(init=False)
    find_mark: Callable[[], object] = field(init=False)
    mark: object = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._look_around()

    def _look_around(self) -> None:
        """Find the loop that runs, and its mark: a thread runs one loop of trio at a time."""
        self.find_loop, self.loop = _find_loop()
        self.find_mark, self.mark = self.find_loop, self.loop
        if self.find_loop is trio.lowlevel.current_trio_token:
            self.find_mark, self.mark = threading.get_ident, threading.get_ident()

    def move(self, act: Act) -> None:
        """Do `act`.

        Raises:
            LifeMisuse: At once, where there is no such move, or in another event loop.
        """
        after = MOVES[self.stage].get(act)
        if after is None:
            stage = f"{self.what} is {self.stage.value} and cannot be {act.value}"
            raise LifeMisuse(f"{stage}: {_ADVICE[act]}")
        if act in (Act.ASK, Act.CLOSE) and not self._is_here():
            where = (
                f"{self.what} was opened in another event loop and cannot be {act.value} in this"
            )
            raise LifeMisuse(f"{where}: go to that loop, or open another platform in this one")
        if act is Act.OPEN:
            self._look_around()
        self.stage = after
        self.lives = after in (Stage.OPEN, Stage.CLOSING)

    def _is_here(self) -> bool:
        try:
            return self.find_loop() is self.loop
        except RuntimeError:  # no loop of this kind runs in this thread
            return False


def _find_loop() -> tuple[Callable[[], object], object]:
    """Return what finds the running event loop, of trio or asyncio, and what it finds."""
    try:
        return trio.lowlevel.current_trio_token, trio.lowlevel.current_trio_token()
    except RuntimeError:
        pass
    asyncio = sys.modules.get("asyncio")  # a server on trio does not load it
    if asyncio is None:
        return object, None
    try:
        return asyncio.get_running_loop, asyncio.get_running_loop()
    except RuntimeError:
        return object, None  # in no loop: nothing is the same


class Opening(AbstractAsyncContextManager[T], Generic[T]):
    """A context manager that can be entered once, and left once, where it was entered."""

    def __init__(self, what: str, manager: AbstractAsyncContextManager[T]) -> None:
        """Guard `manager`, which opens `what`."""
        self._life = Life(what)
        self._manager = manager

    async def __aenter__(self) -> T:
        self._life.move(Act.OPEN)
        try:
            return await self._manager.__aenter__()
        except BaseException:
            self._life.move(Act.END)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._life.move(Act.CLOSE)
        try:
            return await self._manager.__aexit__(kind, error, traceback)
        finally:
            self._life.move(Act.END)


def one_life(
    what: str,
) -> Callable[[Callable[P, AsyncGenerator[T, None]]], Callable[P, Opening[T]]]:
    """Make a context manager of an asynchronous generator, for one life of `what`."""

    def decorate(function: Callable[P, AsyncGenerator[T, None]]) -> Callable[P, Opening[T]]:
        manager = asynccontextmanager(function)

        @wraps(function)
        def make(*args: P.args, **kwargs: P.kwargs) -> Opening[T]:
            return Opening(what, manager(*args, **kwargs))

        return make

    return decorate


_HELD: Final[WeakSet[object]] = WeakSet()
_HOLDING: Final = threading.Lock()


@contextmanager
def hold(platform: object) -> Generator[None]:
    """Hold `platform`, which one host of this process may have at a time.

    Raises:
        LifeMisuse: Another host has it.
    """
    with _HOLDING:
        if platform in _HELD:
            raise LifeMisuse(
                "the platform is open already: ask the host that has it, close that first, or make"
                " another Platform"
            )
        _HELD.add(platform)
    try:
        yield
    finally:
        _HELD.discard(platform)
