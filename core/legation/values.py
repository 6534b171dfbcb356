"""`frozen` and `define` like those of attrs, with classes that are made in a quarter of the time.

attrs writes the methods of each class as Python text and compiles it: for nine hundred classes that
was two fifths of the time until a server answers.  Here the text of an `__init__` is compiled once
for all classes whose fields are of the same kinds in the same order, and each class has a copy of
that code with its own names (`code.replace`).  Representation, comparison, hash and state for
pickling are functions over the fields.  attrs is asked for the fields of a class when somebody
looks at them first, so that `fields`, `evolve`, cattrs and classes of attrs that derive from one of
these work as usual.

A class that needs more, such as a converter or an order, is made by attrs, as is every class
should attrs keep its fields differently one day (`_READABLE`).  A field can be left out of the
representation and of the comparison; for a format or a key of its own use `attrs.frozen`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property, partial
from operator import attrgetter, itemgetter
from types import CellType, CodeType, FunctionType, GenericAlias, MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import attrs
from attrs import NOTHING, Factory

__all__ = ["copy_with", "define", "frozen"]

_OTHERWISE: Final = frozenset({"eq", "order", "hash", "unsafe_hash", "cache_hash"})
"""The options of a class that has a comparison of its own."""

_OPTIONS: Final = frozenset({"eq", "kw_only"})
"""The options of a class that is made here."""

_OWN: Final = frozenset(
    """__init__ __slots__ __setattr__ __delattr__ __getstate__ __setstate__ __match_args__
    __replace__ __eq__ __ne__ __hash__""".split()
)
"""What a class that is made here does not define itself."""

_HOOKS: Final = ("__attrs_pre_init__", "__attrs_init_subclass__")
_CLASS_VARIABLES: Final = ("ClassVar", "typing.ClassVar")
_FIELDS: Final = "__fields_by_name__"


@attrs.frozen
class _Frozen:
    """A class by attrs, from which is taken what is the same for each class and each field."""

    field: int


_FACTORY: Final[Any] = Factory
_A_FIELD: Final[Any] = attrs.field()
_Given: Final[Any] = _A_FIELD.__class__
"""What `field(...)` returns."""

_READABLE: Final = {"_default", "_validator", "converter", "init", "kw_only", "alias"} <= {
    *getattr(_Given, "__slots__", ())
}
"""Whether the options in it are where they are expected."""

_FROZEN: Final = {name: vars(_Frozen)[name] for name in ("__setattr__", "__delattr__")}
_REPLACE: Final = {name: vars(_Frozen)[name] for name in ("__replace__",) if name in vars(_Frozen)}


def _freeze(cls: type[Any] | None = None, **options: Any) -> Any:
    """Return `cls` as `attrs.frozen` does; without `cls`, a decorator with these `options`."""
    if cls is None:
        return partial(_freeze, **options)
    _use_plain_factories(cls)
    if (ours := _make(cls, options, is_frozen=True)) is not None:
        return ours
    own = vars(cls).keys()
    if "__repr__" not in own:
        cls.__repr__ = _represent  # type: ignore[assignment]
    if {"__eq__", "__hash__"} & own or _OTHERWISE & options.keys():
        return attrs.frozen(cls, **options)
    made: Any = attrs.frozen(cls, eq=False, **options)
    made.__eq__, made.__hash__ = _equal_at_first, _hash_at_first
    return made


def _define(cls: type[Any] | None = None, **options: Any) -> Any:
    """Return `cls` as `attrs.define` does; without `cls`, a decorator with these `options`."""
    if cls is None:
        return partial(_define, **options)
    _use_plain_factories(cls)
    made = _make(cls, options, is_frozen=False)
    return attrs.define(cls, **options) if made is None else made


def _use_plain_factories(cls: type[Any]) -> None:
    """Let a factory like `dict[str, int]`, which tells checkers more, be `dict`.

    To make a container by such an alias takes ten times as long.
    """
    for given in vars(cls).values():
        default = given._default if _READABLE and type(given) is _Given else None
        alias = getattr(default, "factory", None)
        if isinstance(alias, GenericAlias):
            plain: Any = alias.__origin__
            given._default = Factory(plain)


# --- Fields ----------------------------------------------------------------------------------


class _Field(NamedTuple):
    """A field of a class that is made here.

    `given` is what attrs makes the same field of, and `kind` its part of the text of `__init__`:
    `d` for a default and `f` for a factory that is called, `F` where it is given the object, and in
    parentheses where it is no parameter.
    """

    name: str
    alias: str
    default: Any
    kw_only: bool
    kind: str
    annotation: Any
    given: Any


def _read_fields(cls: type[Any], *, kw_only: bool) -> dict[str, _Field] | None:
    """Return the own fields of `cls` by their names; None where one needs attrs."""
    values: Mapping[str, Any] = vars(cls)
    annotations: Mapping[str, Any] = values.get("__annotations__", {})
    if any(type(value) is _Given and name not in annotations for name, value in values.items()):
        return None
    found: dict[str, _Field] = {}
    for name, annotation in annotations.items():
        if str(annotation).strip("'\"").startswith(_CLASS_VARIABLES):
            continue
        given = values.get(name, NOTHING)
        if type(given) is not _Given:
            given = attrs.field(default=given)
        field = _read_field(name, annotation, given, kw_only=kw_only)
        if field is None:
            return None
        found[name] = field
    return found


def _read_field(name: str, annotation: object, given: Any, *, kw_only: bool) -> _Field | None:
    """Return the field that attrs would make of `given`; None where it needs attrs."""
    needs = (given._validator, given.converter, given.hash, given.on_setattr, given.type)
    if any(option is not None for option in needs) or given.eq_key or given.order_key:
        return None
    default: Any = given._default
    kind = _kind_of(default)
    if given.repr not in (True, False) or not (given.init or kind):
        return None
    return _Field(
        name,
        given.alias or name.lstrip("_"),
        default.factory if kind in {"f", "F"} else default,
        kw_only if given.kw_only is None else given.kw_only,
        kind if given.init else f"({kind})",
        annotation,
        given,
    )


def _inherit(cls: type[Any], own: Mapping[str, _Field], *, is_frozen: bool) -> Any:
    """Return the fields that `cls` inherits, by name; None where a base is made by attrs."""
    found: dict[str, _Field] = {}
    for base in reversed(cls.__mro__[1:-1]):
        values = vars(base)
        if "__attrs_attrs__" not in values:
            continue
        if _FIELDS not in values or (base.__setattr__ is _FROZEN["__setattr__"]) != is_frozen:
            return None
        found |= values[_FIELDS]
    return {name: field for name, field in found.items() if name not in own}


def _kind_of(default: Any) -> str:
    if isinstance(default, _FACTORY):
        return "F" if default.takes_self else "f"
    return "" if default is NOTHING else "d"


class _Attributes:
    """The fields of a class as attrs has them, which are made when somebody looks first."""

    __slots__ = ("cls",)
    cls: Any

    def __get__(self, _: object, owner: type[Any]) -> Any:
        made = _describe(self.cls)
        self.cls.__attrs_attrs__ = made
        return made


_PATTERN: Final[Any] = attrs.fields(_Frozen)[0]
_COPIED: Final = ("repr", "eq", "order", "hash", "init", "metadata")


def _describe(cls: type[Any]) -> tuple[Any, ...]:
    """Return the fields of `cls` as attrs has them: by place and by name."""
    own = vars(cls).get("__annotations__", {})
    described: list[Any] = []
    body: dict[str, Any] = {}
    for place, field in enumerate(vars(cls)[_FIELDS].values()):
        body[field.name] = property(itemgetter(place))
        described.append(
            _PATTERN.evolve(
                **{option: getattr(field.given, option) for option in _COPIED},
                **_alias_of(field),
                name=field.name,
                default=_default_of(field),
                kw_only=field.kw_only,
                type=field.annotation,
                inherited=field.name not in own,
            )
        )
    kind: Any = type(f"{cls.__name__}Attributes", (tuple,), body)
    made: tuple[Any, ...] = kind(described)
    return made


def _alias_of(field: _Field) -> dict[str, Any]:
    by_rule = field.alias == field.name.lstrip("_")
    noted = {"alias_is_default": True} if by_rule and hasattr(_PATTERN, "alias_is_default") else {}
    return {"alias": field.alias, **noted}


def _default_of(field: _Field) -> Any:
    kind = field.kind.strip("()")
    return _FACTORY(field.default, takes_self=kind == "F") if kind in {"f", "F"} else field.default


# --- Classes ---------------------------------------------------------------------------------


def _make(cls: type[Any], options: Mapping[str, Any], *, is_frozen: bool) -> type[Any] | None:
    """Return `cls` with slots and methods, None where that is for attrs to do."""
    values = vars(cls)
    if not _READABLE or options.keys() - _OPTIONS or _OWN & values.keys():
        return None
    if issubclass(cls, BaseException) or any(hasattr(cls, name) for name in _HOOKS):
        return None
    if cls.__setattr__ not in (object.__setattr__, _FROZEN["__setattr__"]):
        return None
    if "__annotations__" not in values and hasattr(cls, "__annotate__"):
        return None  # of Python 3.14, which has annotations when they are asked for
    if any(isinstance(value, cached_property) for value in values.values()):
        return None
    own = _read_fields(cls, kw_only=options.get("kw_only", False))
    inherited = None if own is None else _inherit(cls, own, is_frozen=is_frozen)
    if own is None or inherited is None:
        return None
    fields = {**inherited, **own}
    positional = [field for field in fields.values() if field.kind[:1] != "(" and not field.kw_only]
    kinds = [bool(field.kind) for field in positional]
    if kinds != sorted(kinds):
        return None  # for attrs to refuse
    return _build(cls, own, fields, positional, options, is_frozen=is_frozen)


def _build(
    cls: type[Any],
    own: Mapping[str, _Field],
    fields: Mapping[str, _Field],
    positional: list[_Field],
    options: Mapping[str, Any],
    *,
    is_frozen: bool,
) -> type[Any]:
    values = vars(cls)
    dropped = {"__dict__", "__weakref__", *fields}
    body = {name: value for name, value in values.items() if name not in dropped}
    body |= _REPLACE
    body["__match_args__"] = tuple(field.name for field in positional)
    body["__getstate__"], body["__setstate__"] = _get_state, _set_state
    attributes = body["__attrs_attrs__"] = _Attributes()
    body[_FIELDS] = fields
    if "__repr__" not in values:
        body["__repr__"] = _represent
    if is_frozen:
        body |= _FROZEN
    if options.get("eq", True):
        body["__eq__"] = _equal_at_first
        body["__hash__"] = _hash_at_first if is_frozen else None
    has_reference = any(vars(base).get("__weakref__") is not None for base in cls.__mro__[1:-1])
    slots = {name for base in cls.__mro__ for name in getattr(base, "__slots__", ())}
    weak = () if has_reference else ("__weakref__",)
    body["__slots__"] = (*(name for name in own if name not in slots), *weak)
    body["__qualname__"] = cls.__qualname__
    metaclass: Any = type(cls)
    made: Any = metaclass(cls.__name__, cls.__bases__, body)
    made.__init__ = _make_init(made, fields, is_frozen=is_frozen)
    attributes.cls = made
    _move_cells(cls, made)
    return made  # type: ignore[no-any-return]  # it is a class


def _move_cells(cls: type[Any], made: type[Any]) -> None:
    """Let the methods that say `super()` or `__class__` mean `made`, which replaces `cls`."""
    for value in vars(made).values():
        function = value.fget if isinstance(value, property) else value
        function = getattr(function, "__func__", function)
        for cell in getattr(function, "__closure__", None) or ():
            if _content(cell) is cls:
                cell.cell_contents = made


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


# --- __init__ --------------------------------------------------------------------------------

_NOTHING: Final = CellType(NOTHING)


def _make_init(cls: type[Any], fields: Mapping[str, _Field], *, is_frozen: bool) -> FunctionType:
    """Return the `__init__` of `cls`: the code for such fields, with their names in it."""
    # Whether a parameter has a default, and which, is no part of the code.
    kinds = tuple((field.kind.removeprefix("d"), field.kw_only) for field in fields.values())
    template = _compile_init(kinds, is_frozen, hasattr(cls, "__attrs_post_init__"))
    names, aliases = {"self": "self"}, {"self": "self"}
    cells = {"NOTHING": _NOTHING}
    positional: list[Any] = []
    by_name: dict[str, Any] = {}
    annotations: dict[str, Any] = {"return": None}
    for number, field in enumerate(fields.values()):
        names[f"_{number}"], aliases[f"_{number}"] = field.name, field.alias
        if is_frozen:
            cells[f"set{number}"] = CellType(_find_slot(cls, field.name))
        if field.kind[:1] == "(":
            cells[f"default{number}"] = CellType(field.default)
            continue
        annotations[field.alias] = field.annotation
        if not field.kind:
            continue
        if field.kind != "d":
            cells[f"default{number}"] = CellType(field.default)
        default = field.default if field.kind == "d" else NOTHING
        if field.kw_only:
            by_name[field.alias] = default
        else:
            positional.append(default)
    code = template.replace(
        co_varnames=tuple(aliases.get(name, name) for name in template.co_varnames),
        co_names=tuple(names.get(name, name) for name in template.co_names),
        co_qualname=f"{cls.__qualname__}.__init__",
    )
    closure = tuple(cells[name] for name in code.co_freevars)
    made = FunctionType(code, _space(cls.__module__), "__init__", tuple(positional), closure)
    made.__kwdefaults__ = by_name or None
    made.__annotations__ = annotations
    return made


def _find_slot(cls: type[Any], name: str) -> Callable[[object, object], None]:
    """Return the function that gives a field its value: nothing else can, where it is frozen."""
    found = (vars(base).get(name) for base in cls.__mro__)
    return next(slot for slot in found if isinstance(slot, MemberDescriptorType)).__set__


@cache
def _space(module: str) -> dict[str, Any]:
    """Return the globals of every `__init__` in `module`; it uses none of them."""
    return {"__name__": module}


@cache
def _compile_init(kinds: tuple[tuple[str, bool], ...], is_frozen: bool, has_more: bool) -> CodeType:
    """Return the code of an `__init__` for fields of these kinds, by keyword alone or not.

    The fields are called by their numbers.
    """
    lines: list[str] = []
    places: dict[bool, list[str]] = {False: ["self"], True: []}
    for number, (kind, kw_only) in enumerate(kinds):
        if kind[:1] != "(":
            places[kw_only].append(f"_{number}")
        lines += _write_assignment(number, kind, is_frozen)
    if has_more:
        lines.append("self.__attrs_post_init__()")
    parameters = [*places[False], *(("*", *places[True]) if places[True] else ())]
    outer = ", ".join(f"set{number}, default{number}" for number in range(len(kinds)))
    text = f"def make(NOTHING, {outer}):\n def __init__({', '.join(parameters)}):\n"
    text += "".join(f"  {line}\n" for line in lines or ["pass"])
    outside = compile(text, "<legation.values>", "exec", dont_inherit=True, optimize=2)
    (make,) = (const for const in outside.co_consts if isinstance(const, CodeType))
    (code,) = (const for const in make.co_consts if isinstance(const, CodeType))
    return code


def _write_assignment(number: int, kind: str, is_frozen: bool) -> Iterator[str]:
    """Yield the lines that give a field its value."""
    made = f"default{number}" + {"f": "()", "F": "(self)"}.get(kind.strip("()"), "")
    given = made if kind[:1] == "(" else f"_{number}"
    if kind in ("f", "F"):
        yield f"if _{number} is NOTHING: _{number} = {made}"
    yield f"set{number}(self, {given})" if is_frozen else f"self._{number} = {given}"


# --- Methods ---------------------------------------------------------------------------------


def _represent(self: Any) -> str:
    """Return `Name(field=value, ...)`, without the fields whose `repr` is off."""
    cls: Any = self.__class__
    names = [field.name for field in attrs.fields(cls) if field.repr]
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
    return f"{cls.__qualname__.rpartition('>.')[2]}({values})"


def _get_state(self: Any) -> dict[str, Any]:
    """Return the fields, for a pickle."""
    return {field.name: getattr(self, field.name) for field in attrs.fields(self.__class__)}


def _set_state(self: Any, state: Mapping[str, Any]) -> None:
    """Take the fields of a pickle."""
    bind = object.__setattr__.__get__(self)
    for field in attrs.fields(self.__class__):
        if field.name in state:
            bind(field.name, state[field.name])


def _equal_at_first(self: object, other: object) -> bool:
    """Give the class its comparison, and compare: most classes never need one."""
    _add_equality(type(self), "__eq__", _equal_at_first)
    return self.__eq__(other)


def _hash_at_first(self: object) -> int:
    """Give the class its hash, and return it."""
    _add_equality(type(self), "__hash__", _hash_at_first)
    return self.__hash__()


def _add_equality(cls: type[Any], method: str, at_first: object) -> None:
    """Give the class that has `method` for `cls` equality with its own kind, and a hash."""
    home: Any = next((base for base in cls.__mro__ if vars(base).get(method) is at_first), None)
    if home is None:  # another thread was first
        return
    name, values = home.__qualname__, _make_getter(home)

    def equal(self: object, other: object) -> bool:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    def hash_of(self: object) -> int:
        return hash((name, values(self)))

    home.__eq__ = equal
    if home.__hash__ is not None:
        home.__hash__ = hash_of


def _make_getter(cls: type[Any]) -> Callable[[object], object]:
    """Return a function that gets the values by which two of `cls` are compared."""
    names = [field.name for field in attrs.fields(cls) if field.eq]
    return attrgetter(*names) if names else _get_nothing


def _get_nothing(_: object) -> None:
    """Return the same for all values: `cls` has no field to compare."""


def _copy_with(value: Any, **changes: Any) -> Any:
    """Return a copy of `value` with `changes`, as `attrs.evolve` does, in a fifth of its time.

    The class is one without slots, whose fields need no look when they are set: no `__init__` runs,
    and no name is checked but by a type checker.
    """
    copy = _new(value.__class__)
    copy.__dict__.update(value.__dict__ | changes)
    return copy


_new: Final = object.__new__

if TYPE_CHECKING:  # for a checker they are those of attrs
    from attrs import define, frozen
    from attrs import evolve as copy_with
else:
    copy_with, define, frozen = _copy_with, _define, _freeze
