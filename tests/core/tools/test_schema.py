from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import jsonschema_rs
import pytest

from legation.tools import tool
from legation.tools.schema import schema_of
from legation.tools.shapes import shape_of


class Unit(Enum):
    CELSIUS = "C"
    FAHRENHEIT = "F"


SCHEMAS: list[tuple[Any, dict[str, Any]]] = [
    (str, {"type": "string"}),
    (None, {"type": "null"}),
    (Any, {}),
    (date, {"type": "string", "format": "date"}),
    (datetime, {"type": "string", "format": "date-time"}),
    (time, {"type": "string", "format": "time-local"}),
    (timedelta, {"type": "string", "format": "duration"}),
    (UUID, {"type": "string", "format": "uuid"}),
    (bytes, {"type": "string", "format": "byte", "contentEncoding": "base64"}),
    (Decimal, {"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]}),
    (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
    (
        list[Annotated[str, "a name"]],
        {"type": "array", "items": {"type": "string", "description": "a name"}},
    ),
    (list, {"type": "array", "items": {}}),
    (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
    (bool | None, {"anyOf": [{"type": "null"}, {"type": "boolean"}]}),
    (Unit, {"type": "string", "enum": ["C", "F"]}),
    (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
    (Literal[None], {"type": "null", "enum": [None]}),  # noqa: PYI061 - another shape
    (Literal["a", 1], {"enum": ["a", 1]}),
    (Literal[True, 1], {"enum": [True, 1]}),
    (
        tuple[int, int],
        {
            "type": "array",
            "prefixItems": [{"type": "integer"}, {"type": "integer"}],
            "items": {"type": "integer"},
            "minItems": 2,
            "maxItems": 2,
        },
    ),
    (
        tuple[int, str],
        {
            "type": "array",
            "prefixItems": [{"type": "integer"}, {"type": "string"}],
            "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "minItems": 2,
            "maxItems": 2,
        },
    ),
]


@pytest.mark.parametrize(("hint", "schema"), SCHEMAS, ids=[str(hint) for hint, _ in SCHEMAS])
def test_a_shape_has_its_schema(hint: Any, schema: dict[str, Any]) -> None:
    assert schema_of(shape_of(hint)) == schema


def parameters(function: Callable[..., Any]) -> Any:
    return tool(function).spec.parameters


def test_parameters_are_told_with_their_meaning_and_what_they_are_without() -> None:
    def weather(
        city: Annotated[str, "In English."],
        days: int = 3,
        unit: Unit = Unit.CELSIUS,
        near: str | None = None,
        when: list[int] | None = None,
        hours: tuple[int, ...] = (1,),
        least: float = 0.5,
        most: float = float("inf"),
    ) -> None:
        """Look it up.

        Args:
            days: How many.
        """

    schema = parameters(weather)

    assert schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "In English."},
            "days": {"type": "integer", "description": "How many.", "default": 3},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
            "near": {"anyOf": [{"type": "null"}, {"type": "string"}]},
            "when": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "integer"}}]},
            "hours": {"type": "array", "items": {"type": "integer"}},
            "least": {"type": "number", "default": 0.5},
            "most": {"type": "number"},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    json.dumps(schema)
    jsonschema_rs.validator_for(schema)


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    def now() -> None: ...

    assert parameters(now) == {"type": "object", "properties": {}, "additionalProperties": False}
