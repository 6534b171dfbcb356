"""Programs: what stands between one and whoever drives it, and what it has open there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from .effects import Asks, Program

__all__ = ["Handlers", "Streams", "give", "intercept"]

K = TypeVar("K")
R = TypeVar("R")
S = TypeVar("S")

Handlers: TypeAlias = Mapping[type[Asks[Any]], Callable[[Any], Program[Any]]]
"""By the kind of an effect, the program that performs it: what it returns is the answer."""


def intercept(
    program: Program[R], handlers: Handlers, other: Callable[[Any], Program[Any]] | None = None
) -> Program[R]:
    """Run `program`; an effect that has a handler is performed by it, any other by the driver.

    With `other`, that is the handler of every effect that is not in the table.

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
        handle = handlers.get(type(effect), other)
        try:
            answer = (yield effect) if handle is None else (yield from handle(effect))
        except BaseException as error:  # noqa: BLE001 (thrown into whom it is for)
            trouble = error


def give(value: R) -> Program[R]:
    """Return `value`, and ask for nothing."""
    yield from ()
    return value


class Streams(Generic[S]):
    """The streams that one program opened, by the numbers that it names them with."""

    __slots__ = ("_open", "_opened")

    def __init__(self) -> None:
        """Begin with none."""
        self._opened = 0
        self._open: dict[int, S] = {}

    def __len__(self) -> int:
        return len(self._open)

    def keep(self, stream: S) -> int:
        """Return the number by which the program names `stream` from now on."""
        self._opened += 1
        self._open[self._opened] = stream
        return self._opened

    def find(self, number: int, kind: type[K]) -> K | None:
        """Return the stream of this number, None when it is closed.

        Raises:
            KeyError: There was none.
            TypeError: It is of another kind.
        """
        if not 0 < number <= self._opened:
            raise KeyError(f"a program names stream {number}, and has opened {self._opened}")
        stream = self._open.get(number)
        if stream is None or isinstance(stream, kind):
            return stream
        raise TypeError(f"a program takes a {type(stream).__name__} for a {kind.__name__}")

    def take(self, *numbers: int) -> list[S]:
        """Return those of these streams, or of all, that are open; who takes them closes them."""
        taken = numbers or tuple(self._open)
        return [self._open.pop(number) for number in taken if number in self._open]
