"""The JSON values that a type hint admits, as a shape.

A `Shape` has two users: `schema` describes it to a model, `shape_reader` reads the model's values.
Both work on the same shape, so that the description and the reader cannot differ.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Mapping,
    MutableMapping,
    MutableSequence,
    Sequence,
)
from datetime import date, datetime
from enum import Enum
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NewType,
    NotRequired,
    Required,
    TypeAlias,
    TypeGuard,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs
from attrs import NOTHING

from ..values import frozen
from .docstrings import explain

__all__ = [
    "Choice",
    "Either",
    "Fixed",
    "Listed",
    "Mapped",
    "Member",
    "ObjectShape",
    "Plain",
    "Shape",
    "Unfit",
    "member_name",
    "peel",
    "shape_of",
]

_MEMBER: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)  # what every provider takes
_HINT_SHOWN: Final = 100  # characters


class Unfit(ValueError):
    """A hint that has no shape; the text completes the sentence "the parameter …"."""


@frozen
class Plain:
    """A value without parts: text, an integer, a number, true or false, null, a date, a moment.

    `kind` is the JSON type or, of what is written as text, the format (JSON Schema section 7.3).
    `any` is a JSON value of whatever kind.
    """

    kind: Literal["string", "integer", "number", "boolean", "null", "date", "date-time", "any"]


@frozen
class Choice:
    """One of some constants: how each is written, and what it is here."""

    options: tuple[tuple[str | float | None, Any], ...]


@frozen
class Listed:
    """An array of like items; `make` is given the list of them."""

    item: Shape
    make: Callable[[list[Any]], Any]


@frozen
class Fixed:
    """An array with an item for each of `items`."""

    items: tuple[Shape, ...]


@frozen
class Mapped:
    """An object with members of any name and like values."""

    value: Shape


@frozen
class Member:
    """A member of a record; `default` is None where there is none to show."""

    name: str
    shape: Shape
    required: bool = True
    description: str = ""
    default: Any = None


@frozen
class ObjectShape:
    """An object with these members and no other; `make` is given them as keywords."""

    members: tuple[Member, ...]
    make: Callable[..., Any]
    description: str = ""


@frozen
class Either:
    """A union of shapes: a value fits at least one of `options`, and the first that fits counts."""

    options: tuple[Shape, ...]


Shape: TypeAlias = Plain | Choice | Listed | Fixed | Mapped | ObjectShape | Either

_PLAIN: Final[tuple[tuple[Any, Plain], ...]] = (
    (Any, Plain("any")),
    (object, Plain("any")),
    (str, Plain("string")),
    (int, Plain("integer")),
    (float, Plain("number")),
    (bool, Plain("boolean")),
    (None, Plain("null")),
    (NoneType, Plain("null")),
    (date, Plain("date")),
    (datetime, Plain("date-time")),
)
_LISTS: Final = (list, Sequence, MutableSequence, Collection, Iterable)
_MAPPINGS: Final = (dict, Mapping, MutableMapping)

# Of two options that both admit a value, the narrower is tried first, whatever order they are
# written in: `float | int` makes 3 an integer, `str | Colour` makes "red" a colour.
_KINDS: Final = ("null", "boolean", "integer", "number", "date", "date-time", "string")
_CONTAINERS: Final = (ObjectShape, Fixed, Listed, Mapped)


def _breadth(shape: Shape) -> int:
    if isinstance(shape, Choice):
        return 0
    if not isinstance(shape, Plain):
        return 20 + _CONTAINERS.index(type(shape))
    return 10 + _KINDS.index(shape.kind) if shape.kind != "any" else 30


def member_name(name: str) -> str:
    """Return `name`, which every provider takes.

    Raises:
        Unfit: It is not.
    """
    if not _MEMBER.fullmatch(name):
        raise Unfit(f"has a name that no provider takes: it is not {_MEMBER.pattern}")
    return name


def peel(hint: Any) -> tuple[Any, str, bool | None]:
    """Return what `hint` is about, its text (`Annotated`), and whether it says `Required`."""
    text, required = "", None
    while True:
        origin = get_origin(hint)
        if origin is Annotated:
            inner, *notes = get_args(hint)
            text = text or next((note for note in notes if isinstance(note, str)), "")
            hint = inner
        elif origin is Required or origin is NotRequired:
            required = origin is Required
            (hint,) = get_args(hint)
        elif isinstance(hint, NewType):
            hint = hint.__supertype__
        else:
            return hint, text, required


def shape_of(hint: Any, inside: tuple[Any, ...] = ()) -> Shape:
    """Return the shape of the values that `hint`, evaluated, admits.

    `inside` are the classes and aliases whose definition this is a part of.

    Raises:
        Unfit: JSON has no such values, or the hint says too little about them.
    """
    hint, _, _ = peel(hint)
    for known, plain in _PLAIN:
        if hint is known:
            return plain
    if any(hint is outer for outer in inside):
        raise Unfit(f"contains {_name_of(hint)}, which contains itself")
    if type(hint).__name__ == "TypeAliasType":  # `type X = …`, from Python 3.12 on
        return shape_of(_resolve_alias(hint), (*inside, hint))
    origin = get_origin(hint)
    if origin is Literal:
        return _literal(get_args(hint))
    if origin is Union or origin is UnionType:
        return _either([shape_of(option, inside) for option in get_args(hint)])
    if isinstance(hint, type) and issubclass(hint, Enum):
        return Choice(tuple((_constant(member.value), member) for member in hint))
    return _container(origin or hint, get_args(hint), hint, inside)


def _container(kind: Any, arguments: tuple[Any, ...], hint: Any, inside: tuple[Any, ...]) -> Shape:
    if kind in _LISTS:
        (item,) = arguments or (Any,)
        return Listed(shape_of(item, inside), list)
    if kind is tuple:
        return _tuple(arguments, hint, inside)
    if kind in _MAPPINGS:
        key, value = arguments or (str, Any)
        if shape_of(key, inside) != Plain("string"):
            raise Unfit(f"contains {_name_of(hint)}; the keys of an object are strings")
        return Mapped(shape_of(value, inside))
    if _is_class(hint) and (found := _record(hint, (*inside, hint))):
        return found
    raise Unfit(f"contains {_name_of(hint)}, which has no form in JSON")


def _tuple(arguments: tuple[Any, ...], hint: Any, inside: tuple[Any, ...]) -> Shape:
    if hint is tuple:
        return Listed(Plain("any"), tuple)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return Listed(shape_of(arguments[0], inside), tuple)
    if not arguments:
        raise Unfit("contains tuple[()], which has one value only")
    return Fixed(tuple(shape_of(item, inside) for item in arguments))


def _name_of(hint: Any) -> str:
    name = hint.__name__ if isinstance(hint, type) and not get_args(hint) else repr(hint)
    return name.removeprefix("typing.")[:_HINT_SHOWN]


def _resolve_alias(alias: Any) -> Any:
    try:
        return alias.__value__
    except NameError as error:
        raise Unfit(
            f"contains {_name_of(alias)}, whose definition has no meaning: {error}"
        ) from None


def _constant(value: Any) -> str | float | None:
    """Return a constant that JSON has."""
    number = type(value) is int or (type(value) is float and math.isfinite(value))
    if number or value is None or type(value) in (str, bool):
        return value  # type: ignore[no-any-return]  # looked at one by one
    raise Unfit(f"has the choice {value!r:.{_HINT_SHOWN}}, which has no form in JSON")


def _literal(values: tuple[Any, ...]) -> Choice:
    written = (value.value if isinstance(value, Enum) else value for value in values)
    return Choice(tuple((_constant(w), v) for w, v in zip(written, values, strict=True)))


def _either(options: list[Shape]) -> Either:
    flat = [
        o for shape in options for o in (shape.options if isinstance(shape, Either) else [shape])
    ]
    return Either(tuple(sorted(flat, key=_breadth)))


# --- Classes ------------------------------------------------------------------------------------


def _is_class(hint: Any) -> TypeGuard[type[Any]]:
    return isinstance(hint, type)


def _record(cls: type[Any], inside: tuple[Any, ...]) -> ObjectShape | None:
    """Return the shape of a class with members, or None when it is of no kind known here."""
    if attrs.has(cls):
        made = tuple(
            (a.alias or a.name, a.name, a.default is NOTHING) for a in attrs.fields(cls) if a.init
        )
        return _with_members(cls, made, cls, inside)
    if dataclasses.is_dataclass(cls):
        made = tuple(
            (f.name, f.name, f.default is f.default_factory is dataclasses.MISSING)
            for f in dataclasses.fields(cls)
            if f.init
        )
        return _with_members(cls, made, cls, inside)
    return _from_typed_dict(cls, inside)


def _from_typed_dict(cls: type[Any], inside: tuple[Any, ...]) -> ObjectShape | None:
    """Return the shape of a `TypedDict`, also of typing_extensions."""
    required: frozenset[str] | None = getattr(cls, "__required_keys__", None)
    if required is None:
        return None
    made = tuple((name, name, name in required) for name in _hints(cls))
    return _with_members(cls, made, dict, inside)


def _with_members(
    cls: type[Any],
    made: tuple[tuple[str, str, bool], ...],
    make: Callable[..., Any],
    inside: tuple[Any, ...],
) -> ObjectShape:
    """Make the record of `cls`: the keyword, the attribute and whether it is required, of each."""
    hints = _hints(cls)
    texts = explain(cls.__doc__).parameters
    members: list[Member] = []
    for keyword, attribute, needed in made:
        try:
            hint, text, required = peel(hints[attribute])
            shape = shape_of(hint, inside)
            is_required = needed if required is None else required
            name = member_name(keyword)
        except KeyError:
            raise Unfit(f"contains {cls.__name__}, whose {attribute} is not annotated") from None
        except Unfit as unfit:
            raise Unfit(f"contains {cls.__name__}, whose {attribute} {unfit}") from None
        members.append(Member(name, shape, is_required, text or texts.get(attribute, "")))
    return ObjectShape(tuple(members), make)


def _hints(cls: type[Any]) -> dict[str, Any]:
    try:
        hints = get_type_hints(cls, include_extras=True)
    except Exception as error:  # noqa: BLE001 - an annotation is any expression
        raise Unfit(
            f"contains {cls.__name__}, whose annotations have no meaning: {error}"
        ) from None
    for name, hint in hints.items():
        if isinstance(hint, dataclasses.InitVar):
            raise Unfit(f"contains {cls.__name__}, whose {name} is made with and not kept")
    return hints
