"""Functions of an application that are asked about the sender of a message in a channel."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from ..tools.context_parameter import read_signature
from ..values import frozen
from .abilities import NOT_IMPORTED

__all__ = ["SenderFunction", "host_sender_function"]

_VARIABLE: Final = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


@frozen
class SenderFunction:
    """A function or a coroutine function, and which of the arguments that are offered it takes.

    `option` is the option of the channel that names it.
    """

    option: str
    function: Callable[..., Any]
    takes: tuple[str, ...]


def host_sender_function(
    option: str, given: object, offered: tuple[str, ...]
) -> SenderFunction | str:
    """Return `given` as a function that takes some of `offered`, or what is wrong with it."""
    if isinstance(given, str):
        return f"{given!r} {NOT_IMPORTED}"
    if not callable(given):
        return f"expected a function, not {type(given).__name__}"
    if inspect.isgeneratorfunction(given) or inspect.isasyncgenfunction(given):
        return "is a generator; expected a function that returns one text, or None"
    try:
        parameters = read_signature(given).parameters.values()
    except (TypeError, ValueError):
        return "expected a function whose parameters are known"
    takes: list[str] = []
    for parameter in parameters:
        if parameter.name in offered and parameter.kind is not parameter.POSITIONAL_ONLY:
            takes.append(parameter.name)
        elif parameter.default is parameter.empty and parameter.kind not in _VARIABLE:
            return f"parameter {parameter.name!r} is none of: {', '.join(offered)}"
    return SenderFunction(option, given, tuple(takes))
