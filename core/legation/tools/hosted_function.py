"""A function of the user's that is hosted: as an agent, or for the instructions of one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from ..values import frozen
from .context_parameter import ContextParameter, find_context, read_signature
from .definition import ToolFault
from .shapes import Unfit

__all__ = [
    "OFFERED",
    "Hosted",
    "HostedGuardFunction",
    "HostedInstructions",
    "host_function",
    "host_guard",
    "host_instructions",
]

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

_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_UNKNOWN: Final = f"parameter {{!r}} is no `Run`, and none of: {', '.join(OFFERED)}"


@frozen
class Hosted:
    """A function, coroutine function or async generator, and which of `OFFERED` it takes.

    `context` is its parameter that is given the `Run`.
    """

    function: Callable[..., Any]
    takes: tuple[str, ...]
    context: ContextParameter | None = None


@frozen
class HostedInstructions:
    """A function whose result is the instructions of an agent, and its parameter for the `Run`."""

    function: Callable[..., Any]
    context: ContextParameter | None = None


@frozen
class HostedGuardFunction:
    """A function that is a guard: its parameter for what is guarded, and the one for the `Run`."""

    function: Callable[..., Any]
    parameter: str
    context: ContextParameter | None = None


def host_function(function: Callable[..., Any]) -> Hosted:
    """Return `function` as what answers for an agent.

    Raises:
        ToolFault: It cannot be called, or has a parameter that there is no argument for.
    """
    parameters, context = _inspect(function)
    if inspect.isgeneratorfunction(function):
        raise ToolFault("is a generator; only an async one is heard piece by piece")
    takes: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            return Hosted(function, OFFERED, context)
        if parameter.kind in _NAMED:
            if parameter.name in OFFERED:
                takes.append(parameter.name)
            elif parameter.default is parameter.empty:
                raise ToolFault(_UNKNOWN.format(parameter.name))
    return Hosted(function, tuple(takes), context)


def host_instructions(function: Callable[..., Any]) -> HostedInstructions:
    """Return `function` as what gives the instructions of an agent.

    Its one parameter, if it has one, is given the `Run`, also where it is not annotated.

    Raises:
        ToolFault: It cannot be called, or has a parameter that there is no argument for.
    """
    parameters, context = _inspect(function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolFault("is a generator; it returns the instructions")
    for parameter in parameters:
        if parameter.kind not in _NAMED or parameter.default is not parameter.empty:
            continue
        if context is not None or parameter.annotation is not parameter.empty:
            raise ToolFault(f"parameter {parameter.name!r} is no `Run`, which is all there is")
        context = ContextParameter(parameter.name)
    return HostedInstructions(function, context)


def host_guard(function: Callable[..., Any]) -> HostedGuardFunction:
    """Return `function` as a guard: its one parameter beside the `Run` is what is guarded.

    Raises:
        ToolFault: It cannot be called, or has a parameter that there is no argument for.
    """
    parameters, context = _inspect(function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolFault("is a generator; it returns what is to become of what it is given")
    named = [one for one in parameters if one.kind in _NAMED]
    needed = [one for one in named[1:] if one.default is one.empty]
    if not named:
        raise ToolFault("has no parameter for what it is to look at")
    if needed:
        raise ToolFault(f"parameter {needed[0].name!r} is no `Run`, and one beside that is enough")
    return HostedGuardFunction(function, named[0].name, context)


def _inspect(
    function: Callable[..., Any],
) -> tuple[tuple[inspect.Parameter, ...], ContextParameter | None]:
    """Return the parameters, without the one that is given the `Run`; and that."""
    try:
        parameters = tuple(read_signature(function).parameters.values())
    except (TypeError, ValueError):
        raise ToolFault("is no function") from None
    for parameter in parameters:
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ToolFault(f"parameter {parameter.name!r} is positional-only")
    try:
        context = find_context(parameters)
    except Unfit as unfit:
        raise ToolFault(str(unfit)) from None
    name = None if context is None else context.name
    return tuple(one for one in parameters if one.name != name), context
