"""The definition of a tool, made from a function: its name, its schema and its use."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args, get_type_hints, overload

from attrs import field

from ..models.conversation import ToolSpec
from ..values import frozen
from .docstrings import explain
from .schema import schema_of
from .shapes import Member, ObjectShape, Unfit, member_name, peel, shape_of

__all__ = ["KEY_PARAMETER", "Again", "Tool", "ToolError", "ToolFault", "as_tool", "tool"]

Again: TypeAlias = Literal["never", "safe", "key"]
"""Whether a call that a crash interrupted may be made a second time."""

KEY_PARAMETER: Final = "idempotency_key"
"""The parameter that the platform gives a key in; a model neither sees nor fills it."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)  # what every provider takes


class ToolError(Exception):
    """Raised by a tool to tell the model what went wrong; the text is all that it hears."""


class ToolFault(ValueError):
    """A function cannot be a tool; the text says which, and why."""


@frozen
class Tool:
    """A function that a model may call, with its description for the model.

    Attributes:
        name: What the model calls it.
        function: What is called; it has no positional-only and no variadic parameter.
        spec: The description for the model.
        accepts: The shape of the arguments.
        requires_confirmation: A run pauses before the call, until a person agrees.
        external_execution: The function is never called: a run pauses until the client has
            supplied the result.
        timeout_seconds: How long a call may take; None is as long as the agent allows.
        again: Whether a call that a crash interrupted may be made again: `never`, `safe`, or with
            the same `key`, which the function takes as `idempotency_key`.
    """

    name: str
    function: Callable[..., Any]
    spec: ToolSpec
    accepts: ObjectShape = field(repr=False)
    requires_confirmation: bool = False
    external_execution: bool = False
    timeout_seconds: float | None = None
    again: Again = "never"


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    requires_confirmation: bool = False,
    external_execution: bool = False,
    timeout_seconds: float | None = None,
    again: Again = "never",
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    requires_confirmation: bool = False,
    external_execution: bool = False,
    timeout_seconds: float | None = None,
    again: Again = "never",
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Return a `Tool` made of the decorated function, which it keeps as `function`.

    Args:
        name: What the model calls it; the name of the function if left out.
        description: What it is for; what the docstring says before its sections if left out.
        requires_confirmation: Whether a person is asked before each call.
        external_execution: Whether the client executes it, and supplies the result.
        timeout_seconds: How long a call may take; as long as the agent allows if left out.
        again: Whether a call that a crash interrupted may be made again.  `never`: it has effects
            that count twice.  `safe`: it reads, or sets what it set before.  `key`: the function
            takes an `idempotency_key`, which is the same both times.

    Raises:
        ToolFault: A parameter is not annotated, or by something that JSON does not have; or the
            settings do not go together.
    """

    def decorate(function: Callable[..., Any]) -> Tool:
        called, spec, accepts, keyed = _inspect(function, name, description)
        if requires_confirmation and external_execution:
            raise ToolFault(f"tool {called!r}: what the client executes, the client confirms")
        if timeout_seconds is not None and not 0 < timeout_seconds < math.inf:
            raise ToolFault(f"tool {called!r}: timeout_seconds must be more than 0")
        if sentence := _again_fault(again, keyed=keyed, external=external_execution):
            raise ToolFault(f"tool {called!r}: {sentence}")
        return Tool(
            called,
            function,
            spec,
            accepts,
            requires_confirmation,
            external_execution,
            timeout_seconds,
            again,
        )

    return decorate if function is None else decorate(function)


def as_tool(item: Tool | Callable[..., Any]) -> Tool:
    """Return `item` as a tool.

    Raises:
        ToolFault: It is a function that cannot be one.
    """
    return item if isinstance(item, Tool) else tool(item)


def _again_fault(again: Any, *, keyed: bool, external: bool) -> str | None:
    """Return what is wrong with `again`; `keyed`: the function takes a key."""
    if again not in get_args(Again):
        return f"again={again!r} is none of: {', '.join(get_args(Again))}"
    if external and again != "never":
        return f"again={again!r} is not allowed together with external_execution"
    if external and keyed:
        return f"the client executes it, and {KEY_PARAMETER!r} is given to functions: rename it"
    if keyed and again != "key":
        return f'parameter {KEY_PARAMETER!r} is given by the platform: write @tool(again="key")'
    if again == "key" and not keyed:
        return f'again="key" needs a parameter `{KEY_PARAMETER}: str`: add it to the function'
    return None


def _inspect(
    function: Callable[..., Any], name: str | None, description: str | None
) -> tuple[str, ToolSpec, ObjectShape, bool]:
    """Return the tool's name, description for a model, shape of arguments; and if it is keyed."""
    called = name or str(getattr(function, "__name__", type(function).__name__))
    if not _NAME.fullmatch(called):
        raise ToolFault(f"tool {called!r}: its name must be {_NAME.pattern}")
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise ToolFault(f"tool {called!r}: it is no function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolFault(f"tool {called!r}: it is a generator; a tool returns its result")
    said = explain(function.__doc__)
    members = _members(called, function, said.parameters)
    accepts = ObjectShape(tuple(m for m in members if m.name != KEY_PARAMETER), dict)
    text = said.description if description is None else description
    spec = ToolSpec(called, text, schema_of(accepts))
    return called, spec, accepts, len(accepts.members) < len(members)


def _members(
    called: str, function: Callable[..., Any], texts: Mapping[str, str]
) -> tuple[Member, ...]:
    try:
        signature = inspect.signature(function)
        hints = get_type_hints(function, include_extras=True)
    except Exception as error:  # noqa: BLE001 - an annotation is any expression
        raise ToolFault(f"tool {called!r}: its annotations have no meaning: {error}") from None
    members: list[Member] = []
    faults: list[str] = []
    for parameter in signature.parameters.values():
        try:
            members.append(_member(parameter, hints, texts))
        except Unfit as unfit:
            faults.append(f"parameter {parameter.name!r} {unfit}")
    if faults:
        raise ToolFault(f"tool {called!r}: {'; '.join(faults)}")
    return tuple(members)


def _member(
    parameter: inspect.Parameter, hints: Mapping[str, Any], texts: Mapping[str, str]
) -> Member:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise Unfit("takes any number of arguments, which no schema can tell")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise Unfit("is positional-only; tools are called by keyword")
    if parameter.name not in hints:
        raise Unfit("is not annotated")
    hint, text, _ = peel(hints[parameter.name])
    if parameter.name == KEY_PARAMETER and hint is not str:
        raise Unfit("is given by the platform as a text: annotate it with `str`")
    required = parameter.default is parameter.empty
    return Member(
        member_name(parameter.name),
        shape_of(hint),
        required,
        text or texts.get(parameter.name, ""),
        None if required else parameter.default,
    )
