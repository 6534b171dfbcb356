from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field as data_field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, cast

import annotated_types as at
import jsonschema_rs
import msgspec
import pydantic
import pytest
from attrs import frozen
from typing_extensions import Doc

from legation.platform import Platform
from legation.tools.constraints import (
    Unfit,
    check_default,
    join_bounds,
    read_notes,
)
from legation.tools.schema import schema_of
from legation.tools.shape_reader import Problems, read
from legation.tools.shapes import shape_of

Meta = msgspec.Meta
Field: Any = pydantic.Field


@frozen
class Group:
    """Notes of another package in one, as annotated-types has them for others to take apart."""

    __is_annotated_types_grouped_metadata__ = True

    def __iter__(self) -> Iterator[Any]:
        yield at.Ge(1)
        yield at.Le(3)


def problems_of(hint: Any, value: Any) -> list[str]:
    problems: Problems = []
    read(shape_of(hint), value, "x", problems)
    return [f"{where} {what}" for where, what in problems]


# A hint; the schema; values that fit; values that do not, with the sentence.
Row = tuple[Any, dict[str, Any], list[Any], dict[Any, str]]

LOW: dict[Any, str] = {0: "x must be at least 1", -5: "x must be at least 1"}
ONE: dict[str, Any] = {"type": "integer", "minimum": 1}
PAIR: dict[str, Any] = {"type": "string", "minLength": 2, "maxLength": 3}
SIZES: dict[Any, str] = {
    "a": "x must have at least 2 characters",
    "abcd": "x must have at most 3 characters",
}

HONOURED: list[Row] = [
    (Annotated[int, at.Ge(1)], ONE, [1, 2.0], LOW),
    (Annotated[int, Field(ge=1)], ONE, [1], LOW),
    (Annotated[int, Meta(ge=1)], ONE, [1], LOW),
    (
        Annotated[int, at.Gt(0)],
        {"type": "integer", "exclusiveMinimum": 0},
        [1],
        {0: "x must be more than 0"},
    ),
    (
        pydantic.PositiveInt,
        {"type": "integer", "exclusiveMinimum": 0},
        [1],
        {0: "x must be more than 0"},
    ),
    (
        Annotated[float, at.Lt(2.5)],
        {"type": "number", "exclusiveMaximum": 2.5},
        [2.4, -1],
        {2.5: "x must be less than 2.5"},
    ),
    (
        Annotated[float, at.Le(2)],
        {"type": "number", "maximum": 2},
        [2, 2.0],
        {2.1: "x must be at most 2"},
    ),
    (
        Annotated[int, at.Interval(ge=1, lt=9)],
        {"type": "integer", "minimum": 1, "exclusiveMaximum": 9},
        [1, 8],
        {0: "x must be at least 1", 9: "x must be less than 9"},
    ),
    (
        Annotated[int, Group()],
        {"type": "integer", "minimum": 1, "maximum": 3},
        [1, 3],
        {4: "x must be at most 3"},
    ),
    (
        Annotated[int, at.MultipleOf(5)],
        {"type": "integer", "multipleOf": 5},
        [0, 10],
        {7: "x must be a multiple of 5"},
    ),
    (
        Annotated[float, Field(multiple_of=0.5)],
        {"type": "number", "multipleOf": 0.5},
        [1.5],
        {1.3: "x must be a multiple of 0.5"},
    ),
    (Annotated[str, at.Len(2, 3)], PAIR, ["ab", "abc"], SIZES),
    (Annotated[str, Field(min_length=2, max_length=3)], PAIR, ["ab"], SIZES),
    (Annotated[str, Meta(min_length=2, max_length=3)], PAIR, ["ab"], SIZES),
    (Annotated[str, pydantic.StringConstraints(min_length=2, max_length=3)], PAIR, ["ab"], SIZES),
    (Annotated[str, at.MinLen(2), at.MaxLen(3)], PAIR, ["\U0001f600b"], SIZES),
    (
        Annotated[list[int], at.MinLen(2)],
        {"type": "array", "items": {"type": "integer"}, "minItems": 2},
        [[1, 1]],
        {(): "x must have at least 2 items"},
    ),
    (
        Annotated[tuple[int, ...], at.MaxLen(1)],
        {"type": "array", "items": {"type": "integer"}, "maxItems": 1},
        [[], [1]],
        {(1, 2): "x must have at most 1 items"},
    ),
    (
        Annotated[set[int], at.MinLen(2)],
        {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "minItems": 2},
        [[1, 2]],
        {(1,): "x must have at least 2 items", (1, 1.0): "x must not have an item twice"},
    ),
    (
        Annotated[dict[str, int], at.MinLen(1)],
        {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1},
        [{"a": 1}],
        {},
    ),
    (
        Annotated[int | None, at.Ge(1)],
        {"anyOf": [{"type": "null"}, ONE]},
        [None, 1],
        {0: "x must be at least 1", "a": "x must be null or an integer"},
    ),
    (
        list[Annotated[int, at.Ge(1)]],
        {"type": "array", "items": ONE},
        [[1]],
        {(1, 0): "x[1] must be at least 1"},
    ),
    (Annotated[int, at.Ge(1), at.Ge(0), Field(ge=-3)], ONE, [1], LOW),
    (
        Annotated[int, Field(gt=0, lt=9), at.Gt(3), at.Lt(5), at.MultipleOf(2), at.MultipleOf(2)],
        {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5, "multipleOf": 2},
        [4],
        {2: "x must be more than 3"},
    ),
    (
        Annotated[str, at.MinLen(1), at.MinLen(2), at.MaxLen(3), at.MaxLen(9)],
        PAIR,
        ["ab"],
        SIZES,
    ),
    (
        Annotated[Annotated[list[int], at.MinLen(1)] | None, at.MinLen(2)],
        {
            "anyOf": [
                {"type": "null"},
                {"type": "array", "items": {"type": "integer"}, "minItems": 2},
            ]
        },
        [None, [1, 2]],
        {(1,): "x must have at least 2 items"},
    ),
    (
        Annotated[Decimal, at.Ge(Decimal("0.5")), at.MultipleOf(Decimal("0.01"))],
        {
            "anyOf": [
                {"type": "number", "minimum": 0.5, "multipleOf": 0.01},
                {
                    "type": "string",
                    "format": "decimal",
                    "description": "The number as text, within the same bounds.",
                },
            ]
        },
        [0.5, 19.99, "19.99", "1e2", 7],
        {
            0.49: "x must be at least 0.5",
            "0.49": "x must be at least 0.5",
            "0.505": "x must be a multiple of 0.01",
        },
    ),
    (
        Annotated[int, at.Le(Decimal(3))],
        {"type": "integer", "maximum": 3},
        [3],
        {4: "x must be at most 3"},
    ),
    # What holds anyway: the reader is strict, and JSON has no infinity.
    (Annotated[int, pydantic.Strict()], {"type": "integer"}, [1], {"1": "x must be an integer"}),
    (Annotated[float, Field(strict=True, allow_inf_nan=False)], {"type": "number"}, [1.5], {}),
    # Texts.
    (Annotated[int, "how many"], {"type": "integer", "description": "how many"}, [1], {}),
    (
        Annotated[int, at.DocInfo("how many")],
        {"type": "integer", "description": "how many"},
        [1],
        {},
    ),
    (Annotated[int, Doc("how many")], {"type": "integer", "description": "how many"}, [1], {}),
    (
        Annotated[
            int, Field(description="how many", title="Count", examples=[1, [2.5, {"a": None}]])
        ],
        {
            "type": "integer",
            "description": "how many",
            "title": "Count",
            "examples": [1, [2.5, {"a": None}]],
        },
        [1],
        {},
    ),
    (Annotated[int, Meta(title="Count", ge=1)], {**ONE, "title": "Count"}, [1], LOW),
    (
        Annotated[Annotated[int, "how many"] | None, at.Ge(1)],
        {"anyOf": [{"type": "null"}, {**ONE, "description": "how many"}]},
        [None, 1],
        LOW,
    ),
    (
        Annotated[Annotated[int, "inner"], "outer"],
        {"type": "integer", "description": "inner"},
        [1],
        {},
    ),
]


@pytest.mark.parametrize("row", HONOURED, ids=[f"{i}-{r[0]}"[:90] for i, r in enumerate(HONOURED)])
def test_constraint_is_in_the_schema_and_is_checked(row: Row) -> None:
    hint, schema, fitting, unfitting = row

    assert schema_of(shape_of(hint)) == schema
    validator = jsonschema_rs.validator_for(schema)
    for value in fitting:
        assert problems_of(hint, value) == []
        assert validator.is_valid(value)
    for given, sentence in unfitting.items():
        sent: Any = list(cast(Any, given)) if isinstance(given, tuple) else given
        assert problems_of(hint, sent) == [sentence]
        # The text of a decimal has no bounds in JSON Schema.
        assert not validator.is_valid(sent) or (isinstance(sent, str) and "decimal" in str(schema))


INSTEAD = "in its annotation, which is not supported here: check it in the function, or in a class"
UNLIKE = "has a bound in its annotation ({}) that its type does not take"

REFUSED: list[tuple[Any, str]] = [
    (Annotated[str, Field(pattern="a+")], f"has pattern='a+' {INSTEAD}"),
    (Annotated[str, Meta(pattern="a+")], f"has pattern='a+' {INSTEAD}"),
    (
        Annotated[str, pydantic.StringConstraints(strip_whitespace=True)],
        f"has strip_whitespace=True {INSTEAD}",
    ),
    (Annotated[Decimal, Field(max_digits=3)], f"has max_digits=3 {INSTEAD}"),
    (Annotated[Decimal, Field(decimal_places=2)], f"has decimal_places=2 {INSTEAD}"),
    (Annotated[int, Field(strict=False)], f"has strict=False {INSTEAD}"),
    (Annotated[int, Field(alias="n")], f"has alias='n' {INSTEAD}"),
    (Annotated[int, Field(default=3)], f"has default=3 {INSTEAD}"),
    (
        Annotated[int, Field(json_schema_extra={"a": 1})],
        f"has json_schema_extra={{'a': 1}} {INSTEAD}",
    ),
    (Annotated[int, Field(examples=[{1: 2}])], f"has examples=[{{1: 2}}] {INSTEAD}"),
    (Annotated[int, Field(examples=[float("inf")])], f"has examples=[inf] {INSTEAD}"),
    (
        Annotated[int, Meta(extra_json_schema={"a": 1})],
        f"has extra_json_schema={{'a': 1}} {INSTEAD}",
    ),
    (Annotated[datetime, Meta(tz=True)], f"has tz=True {INSTEAD}"),
    (Annotated[datetime, at.Timezone(None)], "which is not supported here"),
    (Annotated[int, at.Predicate(bool)], f"has func=<class 'bool'> {INSTEAD}"),
    (at.IsFinite[float], "which is not supported here"),
    (Annotated[int, pydantic.AfterValidator(bool)], f"has func=<class 'bool'> {INSTEAD}"),
    (Annotated[int, at.Unit("m")], f"has unit='m' {INSTEAD}"),
    (Annotated[int, 5], f"has 5 {INSTEAD}"),
    (list[Annotated[int, Platform]], f"has Platform {INSTEAD}"),
    (Annotated[int, at.Ge], f"has Ge {INSTEAD}"),
    (Annotated[int, slice(1, 3)], f"has slice {INSTEAD}"),
    (Annotated[int, at.Ge("a")], f"has ge='a' {INSTEAD}"),
    (Annotated[float, at.Ge(True)], f"has ge=True {INSTEAD}"),
    (Annotated[float, at.Le(float("inf"))], f"has le=inf {INSTEAD}"),
    (Annotated[Decimal, at.Ge(Decimal("NaN"))], f"has ge=Decimal('NaN') {INSTEAD}"),
    (
        Annotated[Decimal, at.Ge(Decimal("0.1234567890123456789"))],
        "has ge=Decimal('0.1234567890123456789')",
    ),
    (Annotated[date, at.Ge(date(2026, 1, 1))], f"has ge=datetime.date(2026, 1, 1) {INSTEAD}"),
    (
        Annotated[int, at.MultipleOf(0)],
        "has multiple_of=0 in its annotation: it must be more than 0",
    ),
    (
        Annotated[int, at.MultipleOf(2), at.MultipleOf(3)],
        "has two of multipleOf in its annotation: write one",
    ),
    (
        Annotated[str, at.MinLen(-1)],
        "has min_length=-1 in its annotation: a length is a number of at least 0",
    ),
    (Annotated[str, at.MaxLen(1.5)], "has max_length=1.5 in its annotation: a length"),  # type: ignore[arg-type]
    (Annotated[str, at.Ge(1)], UNLIKE.format("minimum")),
    (Annotated[date, at.MinLen(1)], UNLIKE.format("min_length")),
    (Annotated[bytes, at.MaxLen(1)], UNLIKE.format("max_length")),
    (Annotated[bool, at.Ge(0)], UNLIKE.format("minimum")),
    (Annotated[int, at.MinLen(1)], UNLIKE.format("min_length")),
    (Annotated[Any, at.Ge(1)], UNLIKE.format("minimum")),
    (Annotated[tuple[int, int], at.MinLen(1)], UNLIKE.format("min_length")),
    (Annotated[Literal[1, 2], at.Ge(1)], UNLIKE.format("minimum")),
    (Annotated[int | str, at.Ge(1)], UNLIKE.format("minimum")),
    (Annotated[None, at.Ge(1)], UNLIKE.format("minimum")),
    (Annotated[datetime, at.Ge(datetime(2026, 1, 1, tzinfo=UTC))], "which is not supported here"),
    (dict[Annotated[str, at.MinLen(1)], int], "has a bound on the keys of an object"),
]


@pytest.mark.parametrize(
    ("hint", "sentence"), REFUSED, ids=[f"{i}-{r[0]}"[:90] for i, r in enumerate(REFUSED)]
)
def test_constraint_that_cannot_be_honoured_is_refused(hint: Any, sentence: str) -> None:
    with pytest.raises(Unfit) as refused:
        shape_of(hint)

    assert sentence in str(refused.value)


def test_each_note_of_annotated_types_is_honoured_or_refused() -> None:
    """A later version of the package brings no constraint that nobody has looked at."""
    tried = {type(note).__name__ for hint, *_ in (*HONOURED, *REFUSED) for note in _notes(hint)}
    known = {"BaseMetadata", "GroupedMetadata"}  # their bases
    public = {found.__name__ for name in at.__all__ if isinstance(found := getattr(at, name), type)}

    assert public <= tried | known, public - tried - known


def _notes(hint: Any) -> tuple[Any, ...]:
    found = getattr(hint, "__metadata__", ())
    inner = [part for note in found if isinstance(note, at.GroupedMetadata) for part in note]
    return (
        *found,
        *inner,
        *(note for part in getattr(hint, "__args__", ()) for note in _notes(part)),
    )


def test_notes_of_nothing_are_none() -> None:
    assert read_notes(()) == ("", (), ())
    assert read_notes(("a", "b")) == ("a", (), ())


def test_bounds_are_joined_to_the_stricter() -> None:
    joined = join_bounds(
        (("minItems", 1), ("maxProperties", 3)), (("minItems", 2), ("maxProperties", 2))
    )

    assert joined == (("minItems", 2), ("maxProperties", 2))


@dataclass
class Written:
    n: int = Field(ge=1)


@frozen
class Made:
    n: int = Field(3, ge=1)


@dataclass
class Plain:
    n: int = data_field(default=3)


@pytest.mark.parametrize("cls", [Written, Made])
def test_default_that_is_a_description_is_refused(cls: type[Any]) -> None:
    with pytest.raises(
        Unfit, match=rf"contains {cls.__name__}, whose n has FieldInfo as its default"
    ):
        shape_of(cls)


def test_default_that_is_a_value_is_none_of_our_business() -> None:
    check_default(3)
    check_default(Decimal(3))
    assert schema_of(shape_of(Plain))["properties"] == {"n": {"type": "integer"}}
