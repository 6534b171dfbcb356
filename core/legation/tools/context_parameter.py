"""The parameter that is given the `Run`: found in a signature, and read by its annotation.

The classes of `Run[Deps, State]` are read as strictly as the arguments of tools are, by the same
shapes.  They are views: members that a class does not have are for other functions.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from ..http.bodies.json_text import JsonObject
from ..http.messages import compact_json
from ..values import frozen
from .run_context import Run
from .shape_reader import Problems, read
from .shapes import Mapped, ModelShape, ObjectShape, Plain, Shape, Unfit, shape_of

__all__ = [
    "SECOND",
    "ContextParameter",
    "Misfit",
    "find_context",
    "read_context",
    "read_given",
    "read_signature",
]

_OBJECT: Final = Mapped(Plain("any"))
_NOTHING: Final = Plain("null")
_ABSENT: Final = object()

_AMONG_OTHERS: Final = "is a `Run` among others: annotate it with `Run` alone"
_NO_MEANING: Final = "has an annotation that has no meaning where the function is defined"
SECOND: Final = "is a second `Run`: one is enough"
"""The sentence about a parameter, behind its name."""


@frozen
class ContextParameter:
    """The parameter of a function that is given the `Run`: its name, and the shapes in it."""

    name: str
    dependencies: Shape = _OBJECT
    state: Shape = _OBJECT


def read_context(name: str, hint: Any) -> ContextParameter | None:
    """Return the parameter if its `hint` is `Run`, else None.

    Raises:
        Unfit: It is a `Run` of what cannot be read.
    """
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if not _is_run(hint):
        if get_origin(hint) in (Union, UnionType) and any(map(_is_run, get_args(hint))):
            raise Unfit(_AMONG_OTHERS)
        if isinstance(hint, str) and "Run" in hint:
            raise Unfit(_NO_MEANING)
        return None
    dependencies, state, *_ = (*get_args(hint), _ABSENT, _ABSENT)
    return ContextParameter(name, _shape("dependencies", dependencies), _shape("state", state))


def _is_run(hint: Any) -> bool:
    return hint is Run or get_origin(hint) is Run


def _shape(what: str, hint: Any) -> Shape:
    if hint is _ABSENT:
        return _OBJECT
    try:
        shape = shape_of(hint)
    except Unfit as unfit:
        raise Unfit(f"is a `Run` whose {what} {unfit}") from None
    if isinstance(shape, Mapped | ObjectShape | ModelShape) or shape in (Plain("any"), _NOTHING):
        return shape
    raise Unfit(f"is a `Run` whose {what} has no members")


def read_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature with its annotations evaluated, where that can be done.

    Raises:
        TypeError: It is no function.
        ValueError: It is one that nothing is known of.
    """
    plain = inspect.signature(function)
    try:
        return inspect.signature(function, eval_str=True)
    except Exception:  # noqa: BLE001 - an annotation is any expression
        return plain


def find_context(parameters: Iterable[inspect.Parameter]) -> ContextParameter | None:
    """Return the parameter that is given the `Run`; None if there is none.

    Raises:
        Unfit: One is annotated wrongly, or there are two; the text is the whole sentence.
    """
    found: list[ContextParameter] = []
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        try:
            context = read_context(parameter.name, parameter.annotation)
        except Unfit as unfit:
            raise Unfit(f"parameter {parameter.name!r} {unfit}") from None
        if context is not None:
            found.append(context)
    if len(found) > 1:
        raise Unfit(f"parameter {found[1].name!r} {SECOND}")
    return found[0] if found else None


# --- Reading what is given -----------------------------------------------------------------------


@frozen
class Misfit:
    """The dependencies or the state do not fit the class that the author wants them as.

    `reason` is for the log: it names each place, and quotes nothing that stands there.
    """

    reason: str


def read_given(shape: Shape, what: str, given: Mapping[str, Any]) -> Any:
    """Return a copy of what was given, as `shape` has it, or a `Misfit`.

    Args:
        shape: One of a `ContextParameter`.
        what: The name of it in `Run`.
        given: JSON; members that a class does not have are left out.
    """
    if shape == _NOTHING:
        return None
    if isinstance(shape, ObjectShape):
        given = {m.name: given[m.name] for m in shape.members if m.name in given}
    copy: JsonObject = json.loads(compact_json(given))
    problems: Problems = []
    value = read(shape, copy, what, problems)
    if not problems:
        return value
    return Misfit("; ".join(f"{where} {text.partition(':')[0]}" for where, text in problems))
