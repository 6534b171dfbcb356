from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from functools import partial
from types import GenericAlias
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import annotated_types as at
import jsonschema_rs
import pytest
from attrs import field, frozen
from hypothesis import given
from hypothesis import strategies as st

from legation.tools.schema import schema_of
from legation.tools.shape_reader import Problems, _key, describe, read
from legation.tools.shapes import shape_of


class Colour(Enum):
    RED = "red"
    ONE = 1
    NOTHING = None


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@frozen
class Place:
    name: str
    _zip: int | None = None


@dataclass
class Trip:
    to: Place
    days: list[int]


class Options(TypedDict):
    fast: bool
    note: NotRequired[str]


@frozen
class Positive:
    number: int = field()

    def __attrs_post_init__(self) -> None:
        if self.number == 0:
            raise RuntimeError("not to be told")
        if self.number < 0:
            raise ValueError("must be more than 0")


class Point(NamedTuple):
    x: int
    name: str = ""


@frozen
class Bag:
    """A value whose hash says that it has one, and whose items have none."""

    items: list[int]


def said(hint: Any, value: Any) -> list[str]:
    problems: Problems = []
    read(shape_of(hint), value, "x", problems)
    return [f"{where} {what}" for where, what in problems]


def taken(hint: Any, value: Any) -> Any:
    problems: Problems = []
    found = read(shape_of(hint), value, "x", problems)
    assert not problems
    return found


class Case(NamedTuple):
    hint: Any
    written: Any
    meant: Any


TAKEN = [
    Case(str, "a", "a"),
    Case(int, 3, 3),
    Case(int, 3.0, 3),
    Case(float, 3, 3.0),
    Case(float, 2.5, 2.5),
    Case(bool, True, True),
    Case(None, None, None),
    Case(Any, {"a": [1]}, {"a": [1]}),
    Case(object, "a", "a"),
    Case(date, "2026-11-20", date(2026, 11, 20)),
    Case(datetime, "2026-11-20T09:30:00z", datetime(2026, 11, 20, 9, 30, tzinfo=UTC)),
    Case(datetime, "2026-11-20T10:30:00.5+01:00", datetime(2026, 11, 20, 9, 30, 0, 500_000, UTC)),
    Case(list[int], [1, 2], [1, 2]),
    Case(list, ["a", 1], ["a", 1]),
    Case(Sequence[str], ["a"], ["a"]),
    Case(tuple[int, ...], [1, 2], (1, 2)),
    Case(tuple, [1], (1,)),
    Case(tuple[int, str], [1, "a"], (1, "a")),
    Case(dict[str, int], {"a": 1}, {"a": 1}),
    Case(Mapping[str, list[int]], {"a": [1]}, {"a": [1]}),
    Case(dict, {"a": None}, {"a": None}),
    Case(Colour, "red", Colour.RED),
    Case(Colour, 1.0, Colour.ONE),
    Case(Colour, None, Colour.NOTHING),
    Case(Level, 2, Level.HIGH),
    Case(Literal["a", 1, True, None], True, True),  # noqa: PYI061 - another shape
    Case(Literal["a", Level.HIGH], 2, Level.HIGH),
    Case(int | None, None, None),
    Case(float | int, 3, 3),
    Case(str | Colour, "red", Colour.RED),
    Case(str | date, "2026-11-20", date(2026, 11, 20)),
    Case(int | Any, None, None),
    Case(list[str] | str, "a", "a"),
    Case(Place, {"name": "B"}, Place("B")),
    Case(Place, {"name": "B", "zip": 10115}, Place("B", 10115)),
    Case(Trip, {"to": {"name": "B"}, "days": [1]}, Trip(Place("B"), [1])),
    Case(Options, {"fast": True}, {"fast": True}),
    Case(dict[str, int] | Options, {"fast": True}, {"fast": True}),
    Case(Annotated[int, "how many"], 1, 1),
    Case(time, "09:30:00", time(9, 30)),
    Case(time, "09:30:00.25", time(9, 30, 0, 250_000)),
    Case(timedelta, "P2W", timedelta(weeks=2)),
    Case(timedelta, "P1DT2H3M4.5S", timedelta(1, 4.5, hours=2, minutes=3)),
    Case(timedelta, "-PT90M", timedelta(minutes=-90)),
    Case(timedelta, "P99999999D", timedelta(99_999_999)),
    Case(bytes, "aGk=", b"hi"),
    Case(bytes, "", b""),
    Case(Decimal, 19.99, Decimal("19.99")),
    Case(Decimal, "-19.990", Decimal("-19.990")),
    Case(Decimal, "0.1234567890123456789", Decimal("0.1234567890123456789")),
    Case(Decimal, 10**399, Decimal(10**399)),
    Case(Decimal, "1E+2", Decimal(100)),
    Case(
        UUID, "0F8FAD5B-d9cb-469f-a165-70867728950e", UUID("0f8fad5b-d9cb-469f-a165-70867728950e")
    ),
    Case(Decimal | str, "a", "a"),
    Case(Decimal | int, 3, 3),
    Case(set[int], [1, 2], {1, 2}),
    Case(frozenset[str], ["a"], frozenset({"a"})),
    Case(AbstractSet[date], ["2026-11-20"], frozenset({date(2026, 11, 20)})),
    Case(set[tuple[int, ...]], [[1], [1, 2]], {(1,), (1, 2)}),
    Case(set[bool | int], [2, True], {True, 2}),
    Case(set[Place], [{"name": "B"}, {"name": "B", "zip": 1}], {Place("B"), Place("B", 1)}),
    Case(Point, {"x": 1}, Point(1)),
    Case(Point, {"x": 1, "name": "B"}, Point(1, "B")),
]


@pytest.mark.parametrize("case", TAKEN, ids=[f"{i}-{c.hint}" for i, c in enumerate(TAKEN)])
def test_a_value_becomes_what_the_hint_says(case: Case) -> None:
    found = taken(case.hint, case.written)

    assert found == case.meant
    assert type(found) is type(case.meant)


REFUSED: list[tuple[Any, Any, list[str]]] = [
    (str, 1, ["x must be a string"]),
    (int, True, ["x must be an integer"]),
    (int, 1.5, ["x must be an integer"]),
    (int, "1", ["x must be an integer"]),
    (float, "1", ["x must be a number"]),
    (float, False, ["x must be a number"]),
    (float, 10**399, ["x must be a number"]),
    (bool, 1, ["x must be true or false"]),
    (None, 0, ["x must be null"]),
    (date, "20261120", ["x must be a date as 2026-11-20"]),
    (date, "2026-02-30", ["x must be a date as 2026-11-20"]),
    (date, 1, ["x must be a date as 2026-11-20"]),
    (
        datetime,
        "2026-11-20T09:30:00",
        ["x must be a date and time with its offset, as 2026-11-20T09:30:00Z"],
    ),
    (datetime, 1, ["x must be a date and time with its offset, as 2026-11-20T09:30:00Z"]),
    (list[int], "a", ["x must be an array"]),
    (list[int], [1, "a", None], ["x[1] must be an integer", "x[2] must be an integer"]),
    (tuple[int, str], [1], ["x must be an array of 2"]),
    (tuple[int, str], ["a", 1], ["x[0] must be an integer", "x[1] must be a string"]),
    (dict[str, int], [], ["x must be an object"]),
    (dict[str, int], {"a": "b"}, ["x.a must be an integer"]),
    (Literal["a", 1], True, ['x must be one of "a", 1']),
    (Literal[0, "b"], False, ['x must be one of 0, "b"']),
    (Level, 3, ["x must be one of 1, 2"]),
    (int | str | None, [], ["x must be null or an integer or a string"]),
    (Place | None, {"zip": "a"}, ["x.name is missing", "x.zip must be null or an integer"]),
    (Place | Options, {}, ["x must be an object"]),
    (Place, {"name": "B", "colour": 1}, ["x.colour is an unknown field"]),
    (Positive | None, {"number": -1}, ["x is refused: must be more than 0"]),
    (time, "09:30", ["x must be a time of day, as 09:30:00"]),
    (time, "24:00:01", ["x must be a time of day, as 09:30:00"]),
    (timedelta, "P1Y", ["x must be a duration without years and months, as P1DT2H30M"]),
    (timedelta, "PT", ["x must be a duration without years and months, as P1DT2H30M"]),
    (timedelta, 90, ["x must be a duration without years and months, as P1DT2H30M"]),
    (bytes, "a", ["x must be text in base64"]),
    (bytes, "aGk=\n", ["x must be text in base64"]),
    (bytes, "é", ["x must be text in base64"]),
    (bytes, 1, ["x must be text in base64"]),
    (Decimal, "NaN", ['x must be a decimal number, as 12.50 or "12.50"']),
    (Decimal, "1e9999", ['x must be a decimal number, as 12.50 or "12.50"']),
    (Decimal, "1_0", ['x must be a decimal number, as 12.50 or "12.50"']),
    (Decimal, True, ['x must be a decimal number, as 12.50 or "12.50"']),
    (
        UUID,
        "0f8fad5bd9cb469fa16570867728950e",
        ["x must be a UUID, as 0f8fad5b-d9cb-469f-a165-70867728950e"],
    ),
    (UUID, 1, ["x must be a UUID, as 0f8fad5b-d9cb-469f-a165-70867728950e"]),
    (set[int], [1, 1.0], ["x must not have an item twice"]),
    (set[int], [1, "a"], ["x[1] must be an integer"]),
    (set[Place], [{"name": "B"}, {"name": "B"}], ["x must not have an item twice"]),
    (set[tuple[int, ...]], [[1], [1]], ["x must not have an item twice"]),
    (set[Bag], [{"items": [1]}], ["x is refused: its items have no hash (TypeError)"]),
    (set[int], 1, ["x must be an array"]),
    (Point, [1, "B"], ["x must be an object"]),
    (Point, {"name": "B"}, ["x.x is missing"]),
    (Annotated[list[Annotated[int, "a count"]], "some"], ["a"], ["x[0] must be an integer"]),
    (int | Annotated[None, "nothing"], "a", ["x must be null or an integer"]),
    (Positive, {"number": -1}, ["x is refused: must be more than 0"]),
    (Positive, {"number": 0}, ["x is refused"]),
]


@pytest.mark.parametrize(("hint", "value", "problems"), REFUSED)
def test_what_does_not_fit_is_told_with_its_place(
    hint: Any, value: Any, problems: list[str]
) -> None:
    assert said(hint, value) == problems


def test_long_names_and_many_choices_are_cut() -> None:
    [problem] = said(Place, {"name": "B", "n" * 500: 1})
    many = Enum("many", [(f"M{i}", i) for i in range(100)])  # type: ignore[misc]  # made here

    assert len(problem) < 120
    assert describe(shape_of(many)).endswith("39, …")


# --- The schema and the reader agree -------------------------------------------------------------

PLAIN = [str, int, float, bool, None, date, datetime, Any, Colour, Level, Place, Trip, Options]
TEXTS = [time, timedelta, bytes, Decimal, UUID, Point]
BOUND: list[Any] = [
    Annotated[int, at.Interval(ge=-1, lt=3)],
    Annotated[int, at.MultipleOf(2)],
    Annotated[float, at.Gt(0.5)],
    Annotated[str, at.Len(1, 2)],
    Annotated[list[int], at.Len(1, 2)],
    Annotated[dict[str, int], at.MinLen(1)],
    Annotated[set[int], at.MaxLen(2)],
]
NOTED: Any = Annotated
HASHABLE: list[Any] = [str, int, bool | None, date, Colour, Place, tuple[int, ...], UUID, bytes]


def _is_base64(text: str) -> bool:
    try:
        a2b_base64(text, strict_mode=True)
    except ValueError:
        return False
    return True


def _fits(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text, re.ASCII) is not None


# What the formats are here that JSON Schema does not know, or knows otherwise: a duration has no
# years and no months.
FORMATS: dict[str, Callable[[str], bool]] = {
    "byte": _is_base64,
    "decimal": _fits(r"-?(0|[1-9]\d{0,99})(\.\d{1,100})?([eE][+-]?\d{1,3})?"),
    "duration": _fits(r"-?P(\d+W|(?=[\dT])(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?)"),
    "time-local": _fits(r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?"),
}


def is_valid(schema: Any, value: Any) -> bool:
    return jsonschema_rs.is_valid(schema, value, validate_formats=True, formats=FORMATS)


HINTS = st.recursive(
    st.sampled_from([*PLAIN, *TEXTS, *BOUND, Literal["a", 1, None], Literal[True, "b"]])  # noqa: PYI061
    | st.sampled_from(HASHABLE).map(lambda hint: GenericAlias(set, (hint,))),
    lambda inner: st.one_of(
        inner.map(lambda hint: GenericAlias(list, (hint,))),
        inner.map(lambda hint: GenericAlias(tuple, (hint, ...))),
        inner.map(lambda hint: GenericAlias(dict, (str, hint))),
        inner.map(lambda hint: NOTED[hint, "a note"]),
        inner.map(lambda hint: hint | None if hint is not None else hint),
        st.tuples(inner, inner).map(lambda two: GenericAlias(tuple, two)),
    ),
    max_leaves=4,
)
CONSTANTS = st.one_of(
    st.sampled_from(["a", "b", "red", "2026-11-20", "2026-11-20T09:30:00Z", "2026-13-01", ""]),
    st.sampled_from(["aGk=", "1.50", "-0", "1E+2", "PT1H", "P1D", "P1Y", "09:30:00", "25:00:00"]),
    st.uuids().map(str),
    st.sampled_from([None, True, False, 0, 1, 1.0, 2, 2.5, -1, 1e300]),
    st.dates().map(date.isoformat),
    st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat),
    st.text(max_size=3),
)
NAMES = st.sampled_from(["x", "name", "zip", "to", "days", "fast", "note", "z"])
VALUES = st.recursive(
    CONSTANTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


def fitting(schema: Any) -> st.SearchStrategy[Any]:
    """Values that satisfy a schema, made of nothing but the schema."""
    if "anyOf" in schema:
        return st.one_of([fitting(option) for option in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"), schema:
        case "array", {"prefixItems": items}:
            return st.tuples(*map(fitting, items)).map(list)
        case "array", _:
            most = schema.get("maxItems", 3)
            once = _key if schema.get("uniqueItems", False) else None
            least = schema.get("minItems", 0)
            items = fitting(schema["items"])
            return st.lists(items, min_size=least, max_size=most, unique_by=once)
        case "object", {"properties": properties}:
            known = {name: fitting(inner) for name, inner in properties.items()}
            needed = schema.get("required", [])
            optional = {name: inner for name, inner in known.items() if name not in needed}
            return st.fixed_dictionaries({n: known[n] for n in needed}, optional=optional)
        case "object", _:
            least = schema.get("minProperties", 0)
            inner = fitting(schema["additionalProperties"])
            return st.dictionaries(NAMES, inner, min_size=least, max_size=3)
        case "string", {"format": "date"}:
            return st.dates().map(date.isoformat)
        case "string", {"format": "date-time"}:
            return st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat)
        case "string", {"format": name}:
            return WRITTEN[name]
        case "string", _:
            return st.text(min_size=schema.get("minLength", 0), max_size=schema.get("maxLength", 5))
        case None, _:
            return VALUES
        case kind, _:
            found = {
                "integer": st.integers() | st.integers(-9, 9).map(float),
                "number": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
                "boolean": st.booleans(),
                "null": st.none(),
            }[kind]
            return found.filter(partial(is_valid, schema))


WRITTEN: dict[str, st.SearchStrategy[str]] = {
    "time-local": st.times().map(time.isoformat),
    "duration": st.builds("P{}DT{}H{}.{}S".format, *[st.integers(0, 9_999)] * 4),
    "byte": st.binary(max_size=9).map(lambda data: b2a_base64(data, newline=False).decode()),
    "decimal": st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    "uuid": st.uuids().map(str),
}


@given(HINTS, st.data())
def test_what_satisfies_the_schema_is_accepted(hint: Any, data: st.DataObject) -> None:
    schema = schema_of(shape_of(hint))
    value = data.draw(fitting(schema))

    assert is_valid(schema, value)
    assert said(hint, value) == []


@given(HINTS, VALUES)
def test_the_reader_accepts_what_the_schema_does_and_nothing_else(hint: Any, value: Any) -> None:
    valid = is_valid(schema_of(shape_of(hint)), value)

    assert (said(hint, value) == []) is valid
