"""Misuse: what is not a program, not an effect or not a platform, named by a sentence."""

from __future__ import annotations

import inspect
from collections.abc import Generator
from typing import Any, Final, get_args, get_origin

from legation.effects import Asks, Effect
from legation_host.errors import Misuse as HostMisuse
from legation_host.errors import not_an_effect

from .matching import show

__all__ = ["Misuse", "check_effect", "check_platform", "check_program", "check_program_maker"]

_EFFECTS: Final = frozenset(get_origin(member) or member for member in get_args(Effect))


class Misuse(HostMisuse, AssertionError):
    """A use of the kit, or of an effect, that could show nothing; the sentence says what to do."""


def check_program(value: object, taker: str) -> None:
    """Refuse what is no program; `taker` is the function that was given it.

    Raises:
        Misuse: It is a function, a coroutine, an effect, or anything else.
    """
    kind: type[object] = type(value)
    if issubclass(kind, Generator):
        return
    if issubclass(kind, Asks):
        name = kind.__name__
        advice = f"{name} is an effect, and a program yields it: iter({name}(…)) asks for it alone"
    elif inspect.iscoroutine(value):
        advice = "a coroutine is none: write it with `def` and `yield from`, without `async`"
    elif callable(value):
        name = _name_of(value)
        advice = f"{name} is what makes one: call it, {taker}({name}(…), …)"
    else:
        advice = f"{show(value)} is none: a program is what a function with `yield` returns"
    raise Misuse(f"{taker} takes a program; {advice}")


def check_program_maker(value: object, taker: str) -> None:
    """Refuse what cannot be called for a fresh program.

    Raises:
        Misuse: It is a program already, or cannot be called.
    """
    if not callable(value):
        what = "a program" if isinstance(value, Generator) else show(value)
        advice = "give it the function itself, or `lambda: program(…)`"
        raise Misuse(f"{taker} takes a function that makes a program; {what} is none: {advice}")


def check_effect(value: object, program: str = "the program") -> None:
    """Refuse what no host can perform.

    Raises:
        Misuse: It is no member of `legation.effects.Effect`.
    """
    if type(value) not in _EFFECTS:
        raise Misuse(f"{not_an_effect(program, type(value))}: {show(value)}")


def check_platform(value: Any, taker: str) -> None:
    """Refuse what cannot answer requests.

    Raises:
        Misuse: It has no `answer`.
    """
    if not callable(getattr(value, "answer", None)):
        raise Misuse(
            f"{taker} takes a Platform, or a function that makes one; {show(value)} has no answer()"
        )


def _name_of(value: Any) -> str:
    name: str = getattr(value, "__name__", type(value).__name__)
    return name
