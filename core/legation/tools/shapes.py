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
    MutableSet,
    Sequence,
)
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
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
    assert_never,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs
from attrs import NOTHING, evolve, field

from ..values import frozen
from .constraints import (
    LENGTHS,
    Bounds,
    Unfit,
    check_default,
    join_bounds,
    read_notes,
)
from .docstrings import explain
from .model_class import describe_model, is_model

__all__ = [
    "Choice",
    "Either",
    "Fixed",
    "Listed",
    "Mapped",
    "Member",
    "ModelShape",
    "Noted",
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


Kind: TypeAlias = Literal[
    "string",
    "integer",
    "number",
    "boolean",
    "null",
    "date",
    "date-time",
    "time-local",
    "duration",
    "byte",
    "decimal",
    "uuid",
    "any",
]


@frozen
class Plain:
    """A value without parts: text, an integer, a number, true or false, null, a date, a moment.

    `kind` is the JSON type or, of what is written as text, the format (JSON Schema section 7.3, and
    the registry of formats of OpenAPI).  A decimal is a number, or its text.  `any` is a JSON value
    of whatever kind.  `make` is given the text of a decimal or of a UUID.
    """

    kind: Kind
    bounds: Bounds = ()
    make: Callable[[str], Any] = str


@frozen
class Choice:
    """One of some constants: how each is written, and what it is here."""

    options: tuple[tuple[str | float | None, Any], ...]


@frozen
class Listed:
    """An array of like items, each of them once if `unique`; `make` is given the list of them."""

    item: Shape
    make: Callable[[list[Any]], Any]
    bounds: Bounds = ()
    unique: bool = False


@frozen
class Fixed:
    """An array with an item for each of `items`."""

    items: tuple[Shape, ...]


@frozen
class Mapped:
    """An object with members of any name and like values."""

    value: Shape
    bounds: Bounds = ()


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
class ModelShape:
    """An object of a class that describes and reads itself."""

    cls: type[Any]
    schema: Mapping[str, Any] = field(eq=False, repr=False)


@frozen
class Either:
    """A union of shapes: a value fits at least one of `options`, and the first that fits counts."""

    options: tuple[Shape, ...]


@frozen
class Noted:
    """A shape with members of its schema that assert nothing, such as a description."""

    shape: Shape
    notes: tuple[tuple[str, Any], ...]


Shape: TypeAlias = (
    Plain | Choice | Listed | Fixed | Mapped | ObjectShape | ModelShape | Either | Noted
)

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
    (time, Plain("time-local")),
    (timedelta, Plain("duration")),
    (bytes, Plain("byte")),
)
# By the module and the name: their modules take time to import, which a platform without them has.
_MADE: Final[Mapping[tuple[str, str], Kind]] = {
    ("decimal", "Decimal"): "decimal",
    ("uuid", "UUID"): "uuid",
}
_LISTS: Final = (list, Sequence, MutableSequence, Collection, Iterable)
_SETS: Final[Mapping[Any, Callable[[list[Any]], Any]]] = {
    set: set,
    MutableSet: set,
    frozenset: frozenset,
    AbstractSet: frozenset,
}
_MAPPINGS: Final = (dict, Mapping, MutableMapping)

# Of two options that both admit a value, the narrower is tried first, whatever order they are
# written in: `float | int` makes 3 an integer, `str | Colour` makes "red" a colour.
_KINDS: Final[tuple[Kind, ...]] = (
    *("null", "boolean", "integer", "number", "decimal"),
    *("date", "date-time", "time-local", "duration", "uuid", "byte", "string"),
)
_CONTAINERS: Final = (ObjectShape, ModelShape, Fixed, Listed, Mapped)


def _breadth(shape: Shape) -> int:
    if isinstance(shape, Choice):
        return 0
    if isinstance(shape, Noted):
        return _breadth(shape.shape)
    if isinstance(shape, Either):  # one with a note of its own
        return max(map(_breadth, shape.options))
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
    """Return what `hint` is about, its text (`Annotated`), and whether it says `Required`.

    What it is about is still annotated with the notes that are no text.

    Raises:
        Unfit: One of its notes has a meaning that is not supported.
    """
    bare, notes, required = _strip(hint)
    meant = [note for note in notes if not isinstance(note, str)]
    about = Annotated[(bare, *meant)] if meant else bare
    return about, read_notes(notes)[0], required


def _strip(hint: Any) -> tuple[Any, tuple[Any, ...], bool | None]:
    """Return what `hint` is about, all that is noted of it, and whether it says `Required`."""
    found: tuple[Any, ...] = ()
    required = None
    while True:
        origin = get_origin(hint)
        if origin is Annotated:
            hint, *notes = get_args(hint)
            found = (*found, *notes)
        elif origin is Required or origin is NotRequired:
            required = origin is Required
            (hint,) = get_args(hint)
        elif isinstance(hint, NewType):
            hint = hint.__supertype__
        else:
            return hint, found, required


def shape_of(hint: Any, inside: tuple[Any, ...] = ()) -> Shape:
    """Return the shape of the values that `hint`, evaluated, admits.

    `inside` are the classes and aliases whose definition this is a part of.

    Raises:
        Unfit: JSON has no such values, or the hint says too little about them.
    """
    hint, stripped, _ = _strip(hint)
    shape = _shape_of_bare(hint, inside)
    return _with_notes(shape, stripped) if stripped else shape


def _shape_of_bare(hint: Any, inside: tuple[Any, ...]) -> Shape:
    for known, plain in _PLAIN:
        if hint is known:
            return plain
    if _is_class(hint) and (made := _MADE.get((hint.__module__, hint.__qualname__))):
        return Plain(made, make=hint)
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


def _with_notes(shape: Shape, notes: tuple[Any, ...]) -> Shape:
    text, shown, bounds = read_notes(notes)
    for name, value in bounds:
        shape = _with_bound(shape, name, value)
    shown = (("description", text), *shown) if text else shown
    return Noted(shape, shown) if shown else shape


# Of each kind of shape that has a size, the keywords that bound it, in the order of `LENGTHS`.
_SIZES: Final[Mapping[type[Any], tuple[str, str]]] = {
    Plain: ("minLength", "maxLength"),
    Listed: ("minItems", "maxItems"),
    Mapped: ("minProperties", "maxProperties"),
}


def _with_bound(shape: Shape, name: str, value: float) -> Shape:
    """Return `shape` with one more bound; of a union, each option but null gets it.

    Raises:
        Unfit: It means nothing for values of this kind.
    """
    match shape:
        case Noted(inner, _):
            return evolve(shape, shape=_with_bound(inner, name, value))
        case Either(options):
            null = Plain("null")
            return Either(tuple(o if o == null else _with_bound(o, name, value) for o in options))
        case Plain("integer" | "number" | "decimal") if name not in LENGTHS:
            return evolve(shape, bounds=join_bounds(shape.bounds, ((name, value),)))
        case Plain("string") | Listed() | Mapped() if name in LENGTHS:
            word = _SIZES[type(shape)][LENGTHS.index(name)]
            return evolve(shape, bounds=join_bounds(shape.bounds, ((word, value),)))
        case _:
            raise Unfit(f"has a bound in its annotation ({name}) that its type does not take")


def _container(kind: Any, arguments: tuple[Any, ...], hint: Any, inside: tuple[Any, ...]) -> Shape:
    if kind in _LISTS:
        (item,) = arguments or (Any,)
        return Listed(shape_of(item, inside), list)
    if kind is tuple:
        return _tuple(arguments, hint, inside)
    if kind in _SETS:
        return _set(kind, arguments, hint, inside)
    if kind in _MAPPINGS:
        key, value = arguments or (str, Any)
        named, notes, _ = _strip(key)
        if read_notes(notes)[2]:
            raise Unfit("has a bound on the keys of an object: check it in the function")
        if shape_of(named, inside) != Plain("string"):
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


def _set(kind: Any, arguments: tuple[Any, ...], hint: Any, inside: tuple[Any, ...]) -> Listed:
    (item,) = arguments or (Any,)
    shape = shape_of(item, inside)
    if not _is_hashable(shape):
        raise Unfit(f"contains {_name_of(hint)}; the items of a set must be hashable")
    return Listed(shape, _SETS[kind], unique=True)


def _is_hashable(shape: Shape) -> bool:
    match shape:
        case Plain(kind):
            return kind != "any"
        case Choice():
            return True
        case Noted(inner, _):
            return _is_hashable(inner)
        case Listed(item, make):
            return make in (tuple, frozenset) and _is_hashable(item)
        case Fixed(shapes) | Either(shapes):
            return all(map(_is_hashable, shapes))
        case Mapped():
            return False
        case ModelShape(made) | ObjectShape(_, made):
            return cast(Any, made).__hash__ is not None
        case _:
            assert_never(shape)


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


def _record(cls: type[Any], inside: tuple[Any, ...]) -> ObjectShape | ModelShape | None:
    """Return the shape of a class with members, or None when it is of no kind known here."""
    if is_model(cls):
        return ModelShape(cls, describe_model(cls))
    if attrs.has(cls):
        _check_defaults(cls, {a.name: a.default for a in attrs.fields(cls)})
        made = tuple(
            (a.alias or a.name, a.name, a.default is NOTHING) for a in attrs.fields(cls) if a.init
        )
        return _with_members(cls, made, cls, inside)
    if dataclasses.is_dataclass(cls):
        _check_defaults(cls, {f.name: f.default for f in dataclasses.fields(cls)})
        made = tuple(
            (f.name, f.name, f.default is f.default_factory is dataclasses.MISSING)
            for f in dataclasses.fields(cls)
            if f.init
        )
        return _with_members(cls, made, cls, inside)
    if (names := _names_of_tuple(cls)) is not None:
        return _with_members(cls, names, cls, inside)
    return _from_typed_dict(cls, inside)


def _check_defaults(cls: type[Any], defaults: Mapping[str, Any]) -> None:
    for name, default in defaults.items():
        try:
            check_default(default)
        except Unfit as unfit:
            raise Unfit(f"contains {cls.__name__}, whose {name} {unfit}") from None


def _names_of_tuple(cls: type[Any]) -> tuple[tuple[str, str, bool], ...] | None:
    """Return the members of a `NamedTuple`: it is an object, as names say more than places.

    None for another class, also for another subclass of `tuple`.
    """
    names: tuple[str, ...] | None = getattr(cls, "_fields", None)
    defaults: Mapping[str, Any] | None = getattr(cls, "_field_defaults", None)
    if not issubclass(cls, tuple) or names is None or defaults is None:
        return None
    return tuple((name, name, name not in defaults) for name in names)


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
