"""The constraints in a type hint: bounds of numbers, lengths, and texts for the model.

`Annotated[int, Ge(1)]` of annotated-types, `Field(ge=1)` of pydantic and `Meta(ge=1)` of msgspec
say the same.  They are recognized by the package that their class comes from, and none of these
packages is imported.  Each demand of a note is either a bound, which the schema says and the reader
checks, or a text for the schema, or refused: none is dropped.  Refused are those that JSON Schema
has no word for (a function, a time zone), and `pattern`, because how long a regular expression
takes is up to whoever wrote it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias, cast

__all__ = [
    "LENGTHS",
    "Bounds",
    "Unfit",
    "check_default",
    "join_bounds",
    "read_notes",
]

Bounds: TypeAlias = tuple[tuple[str, float], ...]
"""Keywords of JSON Schema with their values; lengths by the names of `LENGTHS`."""

LENGTHS: Final = ("min_length", "max_length")
"""The names of bounds that are another keyword for texts, arrays and objects each."""

_NUMERIC: Final[Mapping[str, str]] = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_TEXTS: Final = ("description", "documentation")  # the latter is that of `Doc`
_SHOWN: Final = ("title", "examples")
# Demands that hold for each value anyway: the reader is strict, and JSON has no infinity.
_GRANTED: Final = (("strict", True), ("allow_inf_nan", False))
_HOMES: Final = ("annotated_types", "annotated_doc", "msgspec", "pydantic", "typing_extensions")
_OF_META: Final = (
    *_NUMERIC,
    *LENGTHS,
    *("description", "title", "examples", "pattern", "tz", "extra_json_schema", "extra"),
)
_NOTE_SHOWN: Final = 100  # characters


class Unfit(ValueError):
    """A hint that has no shape; the text completes the sentence "the parameter …"."""


def read_notes(notes: Iterable[Any]) -> tuple[str, tuple[tuple[str, Any], ...], Bounds]:
    """Return the text that notes of an `Annotated` say, the first of several, and their bounds.

    Between them stands what the schema shows and nobody checks: a title, and examples.

    Raises:
        Unfit: One of them has a meaning that is not supported here.
    """
    text, shown, bounds = "", dict[str, Any](), Bounds()
    for note in notes:
        for name, value in _demands(note):
            if name in _TEXTS and isinstance(value, str):
                text = text or value
            elif name in _SHOWN:
                shown[name] = _read_json(name, value)
            elif name in LENGTHS:
                bounds = join_bounds(bounds, ((name, _read_length(name, value)),))
            elif name in _NUMERIC:
                bounds = join_bounds(bounds, ((_NUMERIC[name], _read_number(name, value)),))
            elif (name, value) not in _GRANTED:
                raise _unfit_note(f"{name}={value!r}")
    return text, tuple(shown.items()), bounds


_STRICTER: Final[Mapping[str, Callable[[float, float], float]]] = {
    "minimum": max,
    "exclusiveMinimum": max,
    "maximum": min,
    "exclusiveMaximum": min,
    "min_length": max,
    "max_length": min,
    "minLength": max,
    "maxLength": min,
    "minItems": max,
    "maxItems": min,
    "minProperties": max,
    "maxProperties": min,
}


def join_bounds(bounds: Bounds, more: Bounds) -> Bounds:
    """Return the bounds that a value meets when it meets both.

    Raises:
        Unfit: There are two steps to be a multiple of.
    """
    joined = dict(bounds)
    for name, value in more:
        if name not in joined or joined[name] == value:
            joined[name] = value
        elif name in _STRICTER:
            joined[name] = _STRICTER[name](joined[name], value)
        else:
            raise Unfit(f"has two of {name} in its annotation: write one")
    return tuple(joined.items())


def check_default(default: Any) -> None:
    """Refuse a default that is no value, but a description of the parameter.

    Raises:
        Unfit: It is one.
    """
    if _home(default) in _HOMES and type(default).__name__ in ("FieldInfo", "Meta"):
        raise Unfit(
            f"has {type(default).__name__} as its default: write Annotated[int, …] = 3, with the"
            " constraint in it and the default behind it"
        )


def _home(note: Any) -> str:
    """Return the package that the class of `note` comes from; of a class, its own."""
    cls = cast(Any, note if isinstance(note, type) else type(note))
    return str(cls.__module__).partition(".")[0]


def _demands(note: Any) -> Iterator[tuple[str, Any]]:
    """Yield each demand of `note` by its name."""
    if isinstance(note, str):
        yield "description", note
    elif getattr(note, "__is_annotated_types_grouped_metadata__", False):
        for inner in note:
            yield from _demands(inner)
    elif _home(note) not in _HOMES or isinstance(note, type):
        raise _unfit_note(_name(note))
    elif type(note).__name__ == "FieldInfo":
        yield from _of_field(note)
    elif dataclasses.is_dataclass(cast(object, note)):
        for field in dataclasses.fields(note):
            yield field.name, getattr(note, field.name)
    else:
        for name in _OF_META if _home(note) == "msgspec" else _attributes(note):
            if (value := getattr(note, name)) is not None:
                yield name, value


def _attributes(note: Any) -> Iterable[str]:
    return cast(Mapping[str, Any], vars(note))


def _name(note: Any) -> str:
    """Return a constant as it is written, and of anything else the name of its class."""
    if isinstance(note, int | float | bytes):
        return repr(note)[:_NOTE_SHOWN]
    return str(cast(Any, note if isinstance(note, type) else type(note)).__qualname__)


def _of_field(note: Any) -> Iterator[tuple[str, Any]]:
    """Yield the demands of a `Field` of pydantic: those that differ from an empty one's."""
    cls = cast(Any, type(note))
    empty = cls()
    for name in cls.__slots__:
        if name.startswith("_") or name in ("annotation", "metadata"):
            continue
        if (value := getattr(note, name)) != getattr(empty, name):
            yield name, value
    for inner in note.metadata:
        yield from _demands(inner)


def _unfit_note(what: str) -> Unfit:
    return Unfit(
        f"has {what} in its annotation, which is not supported here: check it in the function, or"
        " in a class"
    )


def _read_number(name: str, value: Any) -> float:
    """Return a bound as a number that JSON has; a decimal only if nothing of it is lost."""
    kind = cast(Any, type(value))
    number: float | None = None
    if kind is int or (kind is float and math.isfinite(value)):
        number = value
    elif kind.__name__ == "Decimal" and value.is_finite():
        written = int(value) if value == int(value) else float(value)
        number = written if kind(repr(written)) == value else None
    if number is None:
        raise _unfit_note(f"{name}={value!r:.{_NOTE_SHOWN}}")
    if name == "multiple_of" and number <= 0:
        raise Unfit(f"has {name}={value!r} in its annotation: it must be more than 0")
    return number


def _read_length(name: str, value: Any) -> int:
    if type(value) is not int or value < 0:
        raise Unfit(f"has {name}={value!r} in its annotation: a length is a number of at least 0")
    return value


def _read_json(name: str, value: Any) -> Any:
    """Return a title, or the examples that JSON has as they are."""
    is_title = name == "title" and isinstance(value, str)
    if is_title or (name == "examples" and isinstance(value, list) and _is_json(value)):
        return cast(Any, value)
    raise _unfit_note(f"{name}={value!r:.{_NOTE_SHOWN}}")


def _is_json(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_json, cast(Iterable[Any], value)))
    if isinstance(value, dict):
        members = cast(Mapping[Any, Any], value).items()
        return all(type(key) is str and _is_json(inner) for key, inner in members)
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (str, int, bool)
