"""A reader of databases, beside whoever serves them: it creates no file and changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from secrets import token_bytes
from typing import Any, TypeVar

from legation.effects import (
    Concurrently,
    Emit,
    Interruptible,
    Log,
    NextEvents,
    Now,
    Nudge,
    Program,
    RandomBytes,
    Sleep,
    Transact,
)
from legation.store.failures import StoreFailure
from legation.values import define
from legation_host.databases import RunUnit, open_reader
from legation_host.logs import Write, quiet

from .terminal import Advance

__all__ = ["read_beside"]

R = TypeVar("R")


def _count_nothing() -> None:
    """Count no unit."""


def _drop(_: bytes) -> None:
    """Write nothing."""


def read_beside(
    urls: Mapping[str, str],
    program: Program[R],
    log: Write = quiet,
    advance: Advance = _count_nothing,
    emit: Callable[[bytes], object] = _drop,
    opened: Mapping[str, RunUnit] | None = None,
) -> R:
    """Run a program that reads alone, one effect after the other, and return its result.

    Args:
        urls: The URLs of the databases, by their ids.
        program: Asks for units that read, and for the time; waits and tries again, and may emit.
            Of events of runs it is told nothing, so that it asks for them.
        log: Takes what a server of databases said when it failed.
        advance: Called for each unit that was read.
        emit: Takes what the program emits.
        opened: What runs the units of databases that are open already, by their ids.

    Raises:
        HostError: A database cannot be opened, or its file does not exist.
        StoreFailure: A unit failed, and `program` did not catch that.
    """
    with ExitStack() as stack:
        return _Reader(urls, log, stack, advance, emit, dict(opened or {})).run(program)


@define(eq=False)
class _Reader:
    """The databases that are open so far, and the driver of programs that read them."""

    urls: Mapping[str, str]
    log: Write
    stack: ExitStack
    advance: Advance
    emit: Callable[[bytes], object]
    _open: dict[str, RunUnit]

    def run(self, program: Program[R]) -> R:
        """Drive `program` to its end; a failure is thrown into it."""
        with closing(program):
            try:
                effect = next(program)
                while True:
                    try:
                        answer = self._perform(effect)
                    except StoreFailure as failure:
                        effect = program.throw(failure)
                    else:
                        effect = program.send(answer)
            except StopIteration as stop:
                found: R = stop.value
                return found

    def _perform(self, effect: object) -> Any:
        asked: Any = effect
        match effect:
            case Transact():
                answer = self._reader(asked.database)(asked.unit)
                self.advance()
                return answer
            case Now():
                return time.time_ns() // 1_000
            case Emit():
                self.emit(asked.data)
                return None
            case RandomBytes():
                return token_bytes(asked.size)
            case Sleep():
                return time.sleep(asked.seconds)
            case NextEvents():  # nobody tells of any here: the program asks the database
                return time.sleep(asked.timeout_seconds)
            case Nudge() | Log():  # nobody waits here, and a failure is said at the end
                return None
            case Concurrently():
                return tuple(self.run(program) for program in asked.programs)
            case Interruptible():
                return self.run(asked.program)
            case _:
                raise NotImplementedError(type(effect))

    def _reader(self, name: str) -> RunUnit:
        if name not in self._open:
            opened = open_reader(name, self.urls[name], write=self.log)
            self._open[name] = self.stack.enter_context(opened)
        return self._open[name]
