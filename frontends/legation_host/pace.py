"""The pace of runs: how long a step of one keeps the event loop.

Between two effects a program has the thread of the event loop to itself.  A step that took more
than a second of CPU is named when it comes back, and its run ends.  One that does not come back
can be named by another process alone (`legation_server.watcher`): a pattern, for one, holds the
lock of the interpreter.  For that process each step is noted in memory that both share.

The CPU time of the thread is asked of the kernel, which costs as much as all else here, and so a
hundred times a second at most.  Between two times at which it was asked, the thread has used no
more of it than time has passed: what is left of its difference is that of the step at least.
The steps of requests are not measured.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from inspect import isgenerator
from typing import Any, Final, Protocol

from attrs import field

from legation.effects import Program
from legation.values import define

from .logs import Write, quiet

__all__ = ["NOWHERE", "SLOW_SECONDS", "Blocked", "Noted", "Pace", "place"]

SLOW_SECONDS: Final = 1.0
"""CPU of one step, on the thread of the event loop, beyond which its run ends."""

_ASK_SECONDS: Final = 0.01
"""Between two questions for the CPU time: by so much may a step be longer than it seems."""

_FRAMES: Final = 6


class Blocked(Exception):
    """The failure of a step that took too long; its program is to be closed."""


class Noted(Protocol):
    """The memory of steps that another process reads."""

    def begin(self, label: bytes) -> None:
        """Note that a step of what `label` says begins."""
        ...

    def end(self) -> None:
        """Note that it came back."""
        ...


class _Nowhere:
    def begin(self, label: bytes) -> None:
        pass

    def end(self) -> None:
        pass


NOWHERE: Final[Noted] = _Nowhere()
"""For a process that nobody watches."""


@define(eq=False)
class Pace:
    """Measures the steps of programs that have a label."""

    write: Write = quiet
    noted: Noted = NOWHERE
    slow_seconds: float = SLOW_SECONDS
    _asked: float = field(default=-math.inf, init=False)
    _used: float = field(default=0.0, init=False)

    def measure(self, label: str, program: Program[Any]) -> Callable[[Any], Any]:
        """Return the `send` of `program`, under measurement.

        It raises `Blocked` after a step that took too long, whatever came of it.
        """
        send, begin, end, name = program.send, self.noted.begin, self.noted.end, label.encode()
        wall, cpu, slow = time.monotonic, time.thread_time, self.slow_seconds

        def step(value: Any) -> Any:
            begin(name)
            begun = wall()
            if begun - self._asked > _ASK_SECONDS:
                self._asked, self._used = begun, cpu()
            try:
                return send(value)
            finally:
                passed = wall() - begun
                end()
                if passed > slow and (used := cpu() - self._used - (begun - self._asked)) > slow:
                    self._name(label, program, used)
                    raise Blocked

        return step

    def _name(self, label: str, program: Program[Any], seconds: float) -> None:
        fields = {"seconds": round(seconds, 1), "place": place(program)}
        self.write("error", "run_blocked", json.loads(label) | fields)


def place(program: object) -> str:
    """Return where `program` waits now, from the outside in: what took so long is just before.

    What runs another program without `yield from` calls it `program`, too.
    """
    names: list[str] = []
    inner: Any = program
    while isgenerator(inner) and (frame := inner.gi_frame) is not None:
        file, name = frame.f_code.co_filename.rpartition("/")[2], frame.f_code.co_qualname
        names.append(f"{file}:{frame.f_lineno} {name}")
        inner = inner.gi_yieldfrom or frame.f_locals.get("program")
    return " > ".join(names[-_FRAMES:]) or "its end"
