"""The definition of a tool, made from a function: its name, its schema and its use."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from functools import WRAPPER_ASSIGNMENTS
from typing import (
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    TypeAlias,
    cast,
    get_args,
    get_type_hints,
    overload,
)

from attrs import field
from typing_extensions import ParamSpec, TypeVar

from ..models.conversation import ToolSpec
from ..values import frozen
from .constraints import check_default
from .context_parameter import SECOND, ContextParameter, read_context
from .docstrings import explain
from .run_context import name_fault, without_mark
from .schema import schema_of
from .shapes import Member, ObjectShape, Unfit, member_name, peel, shape_of

__all__ = ["KEY_PARAMETER", "Again", "Tool", "ToolError", "ToolFault", "as_tool", "tool"]

Again: TypeAlias = Literal["never", "safe", "key"]
"""Whether a call that a crash interrupted may be made a second time."""

KEY_PARAMETER: Final = "idempotency_key"
"""The parameter that the platform gives a key in; a model neither sees nor fills it."""

P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)  # what every provider takes
_NOT_CALLED: Final = "the client executes it, and the `Run` {!r} is given to functions: remove it"


class ToolError(Exception):
    """Raised by a tool to tell the model what went wrong; the text is all that it hears."""


class ToolFault(ValueError):
    """A function cannot be a tool; the text says which, and why."""


@frozen(slots=False)
class Tool(Generic[P, R]):
    """A function that a model may call, with its description for the model.

    It can be called as the function can, and has its name, its docstring and its signature.

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
        context: The parameter that is given the `Run`; None if there is none.
    """

    __name__: ClassVar[str]  # of each its function's
    name: str
    function: Callable[P, R]
    spec: ToolSpec
    accepts: ObjectShape = field(repr=False)
    requires_confirmation: bool = False
    external_execution: bool = False
    timeout_seconds: float | None = None
    again: Again = "never"
    context: ContextParameter | None = field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        """Look like the function to who reads it: `help`, `inspect` and documentation."""
        function: Any = self.function
        looks: dict[str, Any] = {
            key: getattr(function, key) for key in WRAPPER_ASSIGNMENTS if hasattr(function, key)
        }
        vars(self).update(looks, __wrapped__=function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        return self.function(*args, **kwargs)


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    requires_confirmation: bool = False,
    external_execution: bool = False,
    timeout_seconds: float | None = None,
    again: Again = "never",
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


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
    """Return a `Tool` made of the decorated function, which can be called as before.

    A parameter that is annotated `Run` is given by the platform, and is not for the model.

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
        called, spec, accepts, keyed, context = _inspect(function, name, description)
        if requires_confirmation and external_execution:
            raise ToolFault(f"tool {called!r}: what the client executes, the client confirms")
        if timeout_seconds is not None and not 0 < timeout_seconds < math.inf:
            raise ToolFault(f"tool {called!r}: timeout_seconds must be more than 0")
        if sentence := _again_fault(again, keyed=keyed, external=external_execution):
            raise ToolFault(f"tool {called!r}: {sentence}")
        if external_execution and context is not None:
            raise ToolFault(f"tool {called!r}: {_NOT_CALLED.format(context.name)}")
        return Tool(
            called,
            function,
            spec,
            accepts,
            requires_confirmation,
            external_execution,
            timeout_seconds,
            again,
            context,
        )

    return decorate if function is None else decorate(function)


def as_tool(item: Tool | Callable[..., Any]) -> Tool:
    """Return `item` as a tool.

    Raises:
        ToolFault: It is a function that cannot be one.
    """
    return cast(Tool, item) if isinstance(item, Tool) else tool(item)


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
) -> tuple[str, ToolSpec, ObjectShape, bool, ContextParameter | None]:
    """Return the name, the description for a model, and the parameters by who fills them."""
    called = name or str(getattr(function, "__name__", type(function).__name__))
    if not _NAME.fullmatch(called):
        raise ToolFault(f"tool {called!r}: its name must be {_NAME.pattern}")
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise ToolFault(f"tool {called!r}: it is no function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolFault(f"tool {called!r}: it is a generator; a tool returns its result")
    said = explain(function.__doc__)
    members, context = _members(called, function, said.parameters)
    accepts = ObjectShape(tuple(m for m in members if m.name != KEY_PARAMETER), dict)
    text = said.description if description is None else description
    spec = ToolSpec(called, text, schema_of(accepts))
    return called, spec, accepts, len(accepts.members) < len(members), context


def _members(
    called: str, function: Callable[..., Any], texts: Mapping[str, str]
) -> tuple[tuple[Member, ...], ContextParameter | None]:
    try:
        signature = inspect.signature(function)
        hints = get_type_hints(function, include_extras=True)
    except Exception as error:  # noqa: BLE001 - an annotation is any expression
        raise ToolFault(f"tool {called!r}: its annotations have no meaning: {error}") from None
    members: list[Member] = []
    contexts: list[ContextParameter] = []
    faults: list[str] = []
    for parameter in signature.parameters.values():
        try:
            found = _parameter(parameter, hints, texts)
        except Unfit as unfit:
            faults.append(f"parameter {parameter.name!r} {unfit}")
            continue
        if isinstance(found, Member):
            members.append(found)
        else:
            contexts.append(found)
    faults += [f"parameter {context.name!r} {SECOND}" for context in contexts[1:]]
    if faults:
        raise ToolFault(f"tool {called!r}: {'; '.join(faults)}")
    return tuple(members), contexts[0] if contexts else None


def _parameter(
    parameter: inspect.Parameter, hints: Mapping[str, Any], texts: Mapping[str, str]
) -> Member | ContextParameter:
    name = parameter.name
    if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        context = read_context(name, hints.get(name))
        if context is not None:
            return context
        if (sentence := name_fault(name, hints.get(name))) is not None:
            raise Unfit(sentence)
    return _member(parameter, hints, texts)


def _member(
    parameter: inspect.Parameter, hints: Mapping[str, Any], texts: Mapping[str, str]
) -> Member:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise Unfit("takes any number of arguments, which no schema can tell")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise Unfit("is positional-only; tools are called by keyword")
    if parameter.name not in hints:
        raise Unfit("is not annotated")
    hint, text, _ = peel(without_mark(hints[parameter.name]))
    if parameter.name == KEY_PARAMETER and hint is not str:
        raise Unfit("is given by the platform as a text: annotate it with `str`")
    required = parameter.default is parameter.empty
    check_default(parameter.default)
    return Member(
        member_name(parameter.name),
        shape_of(hint),
        required,
        text or texts.get(parameter.name, ""),
        None if required else parameter.default,
    )
