"""The awaits of an author's coroutine: counted, and the place where a process dies within it.

Between two awaits of one tool, as between a charge and a mail, is where money is lost.  What is
awaited may never suspend, as the stand-in of a test does not, so awaits are counted where what is
awaited returns, by the profiler of the thread: debuggers and coverage use another hook.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from attrs import define, field

__all__ = ["AwaitWatch", "Halted"]

_AWAITING: Final = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_LIBRARIES: Final = ("/site-packages/", "/dist-packages/", "/lib/python3.", "<frozen ")
_SUSPENDED: Final = ("YIELD_VALUE", "RESUME")  # the last operation: of 3.11, and of later ones


class Halted(BaseException):
    """Ends a coroutine that was killed, when its world is closed."""


def _pass() -> None:
    """Do nothing."""


@define(eq=False)
class AwaitWatch:
    """Counts the awaits that end in one call of a function, and halts behind one of them.

    Attributes:
        halt_after: The number of the await behind which nothing goes on; 0 for none.
        names: What was awaited, in the order in which it ended.
        halted: Whether it came to that.
    """

    halt_after: int = 0
    names: list[str] = field(factory=list[str], init=False)
    halted: bool = field(default=False, init=False)
    _halt: Callable[[], None] = field(default=_pass, init=False)
    _release: Callable[[], None] = field(default=_pass, init=False)

    def begin(self, halt: Callable[[], None], release: Callable[[], None]) -> None:
        """Watch the thread that calls this; `halt` blocks it until `release` is called."""
        self._halt, self._release = halt, release
        sys.setprofile(self._look)

    def close(self) -> None:
        """Let go of a coroutine that was halted."""
        if self.halted:
            self._release()

    def _look(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "return":
            return
        waiting = frame.f_back
        if waiting is None or not waiting.f_code.co_flags & _AWAITING:
            return
        if not _is_authors(waiting) or _operation(waiting) != "SEND":
            return
        if _operation(frame) in _SUSPENDED:
            return
        self.names.append(frame.f_code.co_qualname.rpartition(".<locals>.")[2])
        if len(self.names) == self.halt_after:
            self.halted = True
            self._halt()


def _is_authors(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__")).partition(".")[0]
    ours = module == "legation" or module.startswith("legation_")
    return not ours and not any(part in frame.f_code.co_filename for part in _LIBRARIES)


def _operation(frame: FrameType) -> str:
    """Return the operation that `frame` is at; 3.12 points into the cache behind it."""
    code, at = frame.f_code.co_code, frame.f_lasti
    while dis.opname[code[at]] == "CACHE":
        at -= 2
    return dis.opname[code[at]]
