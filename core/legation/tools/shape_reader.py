"""The reader of JSON values by their shape: every problem at once, each with its place."""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Hashable, Mapping
from datetime import date, datetime, time, timedelta
from typing import Any, Final, TypeAlias, assert_never

from ..http.bodies.json_text import JsonValue
from ..http.messages import compact_json
from .bounds import unmet_bounds
from .model_class import read_model
from .shapes import (
    Choice,
    Either,
    Fixed,
    Listed,
    Mapped,
    Member,
    ModelShape,
    Noted,
    ObjectShape,
    Plain,
    Shape,
)

__all__ = ["Problems", "describe", "read"]

Problems: TypeAlias = list[tuple[str, str]]  # where, and what is wrong there

_NAME_SHOWN: Final = 80  # characters
_CHOICES_SHOWN: Final = 40

# RFC 3339 section 5.6; a leap second is no moment that Python has.
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_MOMENT: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
# Compiled when they are first asked about, and then kept: most platforms have none of these.
_TIME: Final = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
# RFC 3339 appendix A, and ISO 8601-2 for the sign and the fraction.  A year and a month have no
# length of their own, so they are no part of a `timedelta`.
_DURATION: Final = (
    r"(?P<sign>-?)P(?:(?P<weeks>[0-9]{1,6})W|(?=[0-9T])(?:(?P<days>[0-9]{1,8})D)?"
    r"(?:T(?=[0-9])(?:(?P<hours>[0-9]{1,9})H)?(?:(?P<minutes>[0-9]{1,9})M)?"
    r"(?:(?P<seconds>[0-9]{1,9}(?:\.[0-9]{1,9})?)S)?)?)"
)
# A number as JSON writes it, with so many digits that arithmetic with it stays cheap.
_DECIMAL: Final = r"-?(?:0|[1-9][0-9]{0,99})(?:\.[0-9]{1,100})?(?:[eE][+-]?[0-9]{1,3})?"
_UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


class _Mismatch(ValueError):
    """A value that is not of the kind; never leaves this module."""


def read(shape: Shape, value: JsonValue, where: str, problems: Problems) -> Any:
    """Return what `value` is as `shape`; None, with `problems` added, where it does not fit."""
    match shape:
        case Plain():
            return _plain(shape, value, where, problems)
        case Choice(options):
            return _scalar(shape, lambda value: _choice(options, value), value, where, problems)
        case Listed() | Fixed():
            return _array(shape, value, where, problems)
        case Mapped() | ObjectShape():
            return _object(shape, value, where, problems)
        case ModelShape(cls):
            found, wrong = read_model(cls, value)
            problems += [(_join(where, place), what) for place, what in wrong]
            return found
        case Either():
            return _either(shape, value, where, problems)
        case Noted(inner, _):
            return read(inner, value, where, problems)
        case _:
            assert_never(shape)


# --- Without parts ------------------------------------------------------------------------------


def _scalar(
    shape: Shape, taken: Callable[[Any], Any], value: JsonValue, where: str, problems: Problems
) -> Any:
    try:
        return taken(value)
    except ValueError:
        problems.append((where, f"must be {describe(shape)}"))
        return None


def _plain(shape: Plain, value: JsonValue, where: str, problems: Problems) -> Any:
    before = len(problems)
    if shape.kind in _MADE:
        found = _scalar(shape, lambda value: _MADE[shape.kind](value, shape.make), value, where,
                        problems)  # fmt: skip
    else:
        found = _scalar(shape, _PLAIN[shape.kind], value, where, problems)
    if shape.bounds and len(problems) == before:
        problems += [(where, what) for what in unmet_bounds(dict(shape.bounds), found)]
    return found


def _exactly(kind: type[Any]) -> Callable[[Any], Any]:
    def take(value: Any) -> Any:
        if type(value) is not kind:
            raise _Mismatch
        return value

    return take


def _integer(value: Any) -> int:
    # JSON has one kind of number: 3.0 is an integer (JSON Schema 2020-12 section 4.2.2).
    if type(value) is int or (type(value) is float and value.is_integer()):
        return int(value)
    raise _Mismatch


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise _Mismatch
    try:
        return float(value)
    except OverflowError:
        raise _Mismatch from None


def _date(value: Any) -> date:
    if type(value) is not str or not _DATE.fullmatch(value):
        raise _Mismatch
    return date.fromisoformat(value)


def _moment(value: Any) -> datetime:
    if type(value) is not str or not _MOMENT.fullmatch(value):
        raise _Mismatch
    return datetime.fromisoformat(value.upper())


def _time(value: Any) -> time:
    if type(value) is not str or not re.fullmatch(_TIME, value, re.ASCII):
        raise _Mismatch
    return time.fromisoformat(value)


def _duration(value: Any) -> timedelta:
    found = re.fullmatch(_DURATION, value, re.ASCII) if type(value) is str else None
    if found is None:
        raise _Mismatch
    sign, *parts = found.groups()
    weeks, days, hours, minutes = (int(part or 0) for part in parts[:4])
    length = timedelta(
        weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=float(parts[4] or 0)
    )
    return -length if sign else length


def _byte(value: Any) -> bytes:
    if type(value) is not str:
        raise _Mismatch
    return binascii.a2b_base64(value, strict_mode=True)


def _decimal(value: Any, make: Callable[[str], Any]) -> Any:
    if type(value) in (int, float):
        return make(repr(value))
    if type(value) is not str or not re.fullmatch(_DECIMAL, value, re.ASCII):
        raise _Mismatch
    return make(value)


def _uuid(value: Any, make: Callable[[str], Any]) -> Any:
    if type(value) is not str or not re.fullmatch(_UUID, value, re.ASCII):
        raise _Mismatch
    return make(value)


_MADE: Final[Mapping[str, Callable[[Any, Callable[[str], Any]], Any]]] = {
    "decimal": _decimal,
    "uuid": _uuid,
}
_PLAIN: Final[Mapping[str, Callable[[Any], Any]]] = {
    "any": lambda value: value,
    "string": _exactly(str),
    "integer": _integer,
    "number": _number,
    "boolean": _exactly(bool),
    "null": _exactly(type(None)),
    "date": _date,
    "date-time": _moment,
    "time-local": _time,
    "duration": _duration,
    "byte": _byte,
}


def _choice(options: tuple[tuple[str | float | None, Any], ...], value: Any) -> Any:
    for written, meant in options:
        # To Python True is 1; to JSON it is not.
        if (type(written) is bool) is (type(value) is bool) and written == value:
            return meant
    raise _Mismatch


# --- With parts ---------------------------------------------------------------------------------


def _array(shape: Listed | Fixed, value: JsonValue, where: str, problems: Problems) -> Any:
    if not isinstance(value, list) or (isinstance(shape, Fixed) and len(value) != len(shape.items)):
        problems.append((where, f"must be {describe(shape)}"))
        return None
    before = len(problems)
    shapes = shape.items if isinstance(shape, Fixed) else [shape.item] * len(value)
    items = [
        read(item, part, f"{where}[{index}]", problems)
        for index, (item, part) in enumerate(zip(shapes, value, strict=True))
    ]
    if isinstance(shape, Fixed):
        return tuple(items)
    problems += [(where, what) for what in unmet_bounds(dict(shape.bounds), value)]
    if not shape.unique:
        return shape.make(items)
    if len(set(map(_key, value))) < len(value):
        problems.append((where, "must not have an item twice"))
    return _make_set(shape, items, where, problems) if len(problems) == before else None


def _key(value: JsonValue) -> Hashable:
    """Return what is equal for equal values of JSON (section 4.2.2): true is not 1, 1 is 1.0."""
    match value:
        case list():
            return tuple(map(_key, value))
        case dict():
            return frozenset((name, _key(part)) for name, part in value.items())
        case bool():
            return (bool, value)
        case _:
            return value


def _make_set(shape: Listed, items: list[Any], where: str, problems: Problems) -> Any:
    try:
        return shape.make(items)
    except Exception as error:  # noqa: BLE001 - the hash of an author's class
        problems.append((where, f"is refused: its items have no hash ({type(error).__name__})"))
        return None


def _object(shape: Mapped | ObjectShape, value: JsonValue, where: str, problems: Problems) -> Any:
    if not isinstance(value, dict):
        problems.append((where, f"must be {describe(shape)}"))
        return None
    if isinstance(shape, ObjectShape):
        return _record(shape, value, where, problems)
    problems += [(where, what) for what in unmet_bounds(dict(shape.bounds), value)]
    return {
        name: read(shape.value, part, _below(where, name), problems) for name, part in value.items()
    }


def _record(
    record: ObjectShape, value: dict[str, JsonValue], where: str, problems: Problems
) -> Any:
    before = len(problems)
    known = {member.name for member in record.members}
    for name in value:
        if name not in known:
            problems.append((_below(where, name), "is an unknown field"))
    members = {
        member.name: _member(member, value, where, problems)
        for member in record.members
        if member.required or member.name in value
    }
    return _make(record, members, where, problems) if len(problems) == before else None


def _member(member: Member, value: dict[str, JsonValue], where: str, problems: Problems) -> Any:
    here = _below(where, member.name)
    if member.name not in value:
        problems.append((here, "is missing"))
        return None
    return read(member.shape, value[member.name], here, problems)


def _make(record: ObjectShape, members: dict[str, Any], where: str, problems: Problems) -> Any:
    """Return the record; a class may know more about its members than their hints say."""
    try:
        return record.make(**members)
    except (TypeError, ValueError) as error:
        problems.append((where, f"is refused: {str(error)[:_NAME_SHOWN]}"))
    except Exception:  # noqa: BLE001 - the author's code: its text is not for the model
        problems.append((where, "is refused"))
    return None


def _either(shape: Either, value: JsonValue, where: str, problems: Problems) -> Any:
    inner: list[Problems] = []
    for option in shape.options:
        found: Problems = []
        taken = read(option, value, where, found)
        if not found:
            return taken
        if found[0] != (where, f"must be {describe(option)}"):
            inner.append(found)
    # Where a single option is of the right kind, what is wrong inside it is what helps.
    problems += inner[0] if len(inner) == 1 else [(where, f"must be {describe(shape)}")]
    return None


def _join(where: str, place: str) -> str:
    return f"{where}{place}" if where else place.removeprefix(".")


def _below(where: str, name: str) -> str:
    return f"{where}.{name[:_NAME_SHOWN]}" if where else name[:_NAME_SHOWN]


# --- In words -----------------------------------------------------------------------------------

_WORDS: Final[Mapping[str, str]] = {
    "any": "a JSON value",
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "date": "a date as 2026-11-20",
    "date-time": "a date and time with its offset, as 2026-11-20T09:30:00Z",
    "time-local": "a time of day, as 09:30:00",
    "duration": "a duration without years and months, as P1DT2H30M",
    "byte": "text in base64",
    "decimal": 'a decimal number, as 12.50 or "12.50"',
    "uuid": "a UUID, as 0f8fad5b-d9cb-469f-a165-70867728950e",
}


def describe(shape: Shape) -> str:
    """Return what is wanted, after "must be"."""
    match shape:
        case Plain(kind):
            return _WORDS[kind]
        case Choice(options):
            shown = [compact_json(written) for written, _ in options[:_CHOICES_SHOWN]]
            return "one of " + ", ".join(shown) + (", …" if len(options) > _CHOICES_SHOWN else "")
        case Fixed(items):
            return f"an array of {len(items)}"
        case Listed():
            return "an array"
        case Mapped() | ObjectShape() | ModelShape():
            return "an object"
        case Noted(inner, _):
            return describe(inner)
        case Either(options):
            return " or ".join(dict.fromkeys(describe(option) for option in options))
        case _:
            assert_never(shape)
