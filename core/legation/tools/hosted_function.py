"""A function of the user's that is hosted as an agent."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from ..values import frozen
from .definition import ToolFault

__all__ = ["OFFERED", "Hosted", "host_function"]

OFFERED: Final = (
    "message",
    "session_id",
    "user_id",
    "run_id",
    "session_state",
    "history",
    "dependencies",
    "metadata",
)
"""What a hosted function may be called with, as keywords; it is given those that it names."""


@frozen
class Hosted:
    """A function, coroutine function or async generator, and which of `OFFERED` it takes."""

    function: Callable[..., Any]
    takes: tuple[str, ...]


def host_function(function: Callable[..., Any]) -> Hosted:
    """Return `function` as what answers for an agent.

    Raises:
        ToolFault: It cannot be called, or has a parameter that there is no argument for.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise ToolFault("is no function") from None
    if inspect.isgeneratorfunction(function):
        raise ToolFault("is a generator; only an async one is heard piece by piece")
    takes: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            return Hosted(function, OFFERED)
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            if parameter.name in OFFERED:
                takes.append(parameter.name)
            elif parameter.default is parameter.empty:
                raise ToolFault(f"parameter {parameter.name!r} is none of: {', '.join(OFFERED)}")
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            raise ToolFault(f"parameter {parameter.name!r} is positional-only")
    return Hosted(function, tuple(takes))
