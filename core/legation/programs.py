"""Combinators of programs: what stands between a program and whoever drives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from .effects import Asks, Program

__all__ = ["Handlers", "give", "intercept"]

R = TypeVar("R")

Handlers: TypeAlias = Mapping[type[Asks[Any]], Callable[[Any], Program[Any]]]
"""By the kind of an effect, the program that performs it: what it returns is the answer."""


def intercept(program: Program[R], handlers: Handlers) -> Program[R]:
    """Run `program`; an effect that has a handler is performed by it, any other by the driver.

    Whatever the driver or a handler raises is thrown into `program`, and so is the end of this
    program where it is closed.  An effect without a handler costs one look into a table.
    """
    answer: Any = None
    trouble: BaseException | None = None
    while True:
        try:
            effect = program.send(answer) if trouble is None else program.throw(trouble)
        except StopIteration as done:
            result: R = done.value
            return result
        answer, trouble = None, None
        handle = handlers.get(type(effect))
        try:
            answer = (yield effect) if handle is None else (yield from handle(effect))
        except BaseException as error:  # noqa: BLE001 (thrown into whom it is for)
            trouble = error


def give(value: R) -> Program[R]:
    """Return `value`, and ask for nothing."""
    yield from ()
    return value
