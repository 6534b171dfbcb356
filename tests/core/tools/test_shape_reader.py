from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum, IntEnum
from types import GenericAlias
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import jsonschema_rs
import pytest
from attrs import field, frozen
from hypothesis import given
from hypothesis import strategies as st

from legation.tools.schema import schema_of
from legation.tools.shape_reader import Problems, describe, read
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
]


@pytest.mark.parametrize("case", TAKEN, ids=str)
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
NOTED: Any = Annotated
HINTS = st.recursive(
    st.sampled_from([*PLAIN, Literal["a", 1, None], Literal[True, "b"]]),  # noqa: PYI061
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
    st.sampled_from([None, True, False, 0, 1, 1.0, 2, 2.5, -1, 1e300]),
    st.dates().map(date.isoformat),
    st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat),
    st.text(max_size=3),
)
NAMES = st.sampled_from(["name", "zip", "to", "days", "fast", "note", "z"])
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
            return st.lists(fitting(schema["items"]), max_size=3)
        case "object", {"properties": properties}:
            known = {name: fitting(inner) for name, inner in properties.items()}
            needed = schema.get("required", [])
            optional = {name: inner for name, inner in known.items() if name not in needed}
            return st.fixed_dictionaries({n: known[n] for n in needed}, optional=optional)
        case "object", _:
            return st.dictionaries(NAMES, fitting(schema["additionalProperties"]), max_size=3)
        case "string", {"format": "date"}:
            return st.dates().map(date.isoformat)
        case "string", {"format": "date-time"}:
            return st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat)
        case None, _:
            return VALUES
        case kind, _:
            return {
                "string": st.text(max_size=5),
                "integer": st.integers() | st.integers(-9, 9).map(float),
                "number": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
                "boolean": st.booleans(),
                "null": st.none(),
            }[kind]


@given(HINTS, st.data())
def test_what_satisfies_the_schema_is_accepted(hint: Any, data: st.DataObject) -> None:
    schema = schema_of(shape_of(hint))
    value = data.draw(fitting(schema))

    assert jsonschema_rs.is_valid(schema, value, validate_formats=True)
    assert said(hint, value) == []


@given(HINTS, VALUES)
def test_the_reader_accepts_what_the_schema_does_and_nothing_else(hint: Any, value: Any) -> None:
    valid = jsonschema_rs.is_valid(schema_of(shape_of(hint)), value, validate_formats=True)

    assert (said(hint, value) == []) is valid
