"""Shapes as JSON schemas (2020-12), in the words that providers of models understand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, assert_never

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

__all__ = ["schema_of"]

_JSON_TYPES: Final[Mapping[type[Any], str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


def schema_of(shape: Shape) -> dict[str, Any]:
    """Return the JSON schema of the values that `shape` admits."""
    match shape:
        case Plain():
            return _plain(shape)
        case Choice(options):
            return _choice([written for written, _ in options])
        case Listed(item, _, bounds, unique):
            once = {"uniqueItems": True} if unique else {}
            return {"type": "array", "items": schema_of(item), **once, **dict(bounds)}
        case Fixed(items):
            return _tuple([schema_of(item) for item in items])
        case Mapped(value, bounds):
            return {"type": "object", "additionalProperties": schema_of(value), **dict(bounds)}
        case Either(options):
            return {"anyOf": [schema_of(option) for option in options]}
        case ObjectShape():
            return _record(shape)
        case ModelShape():
            return dict(shape.schema)
        case Noted(inner, notes):
            return {**schema_of(inner), **dict(notes)}
        case _:
            assert_never(shape)


def _plain(shape: Plain) -> dict[str, Any]:
    match shape.kind:
        case "any":
            return {}
        case "decimal":
            return _decimal(dict(shape.bounds))
        case "byte":
            return {"type": "string", "format": "byte", "contentEncoding": "base64"}
        case "date" | "date-time" | "time-local" | "duration" | "uuid":
            return {"type": "string", "format": shape.kind}
        case kind:
            return {"type": kind, **dict(shape.bounds)}


def _decimal(bounds: dict[str, float]) -> dict[str, Any]:
    """Describe a decimal: a number, or its text, which has as many digits as it needs.

    JSON Schema has no bounds for texts; the reader has.
    """
    text: dict[str, Any] = {"type": "string", "format": "decimal"}
    if bounds:
        text["description"] = "The number as text, within the same bounds."
    return {"anyOf": [{"type": "number", **bounds}, text]}


def _choice(written: list[str | float | None]) -> dict[str, Any]:
    types = {_JSON_TYPES[type(value)] for value in written}
    # Some providers want a type beside every enum; where there is one, it is no other constraint.
    typed = {"type": types.pop()} if len(types) == 1 else {}
    return typed | {"enum": written}


def _tuple(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Describe a tuple to readers of 2020-12, and to those who look at `items` alone."""
    distinct = [item for index, item in enumerate(items) if item not in items[:index]]
    return {
        "type": "array",
        "prefixItems": items,
        "items": {"anyOf": distinct} if len(distinct) > 1 else distinct[0],
        "minItems": len(items),
        "maxItems": len(items),
    }


def _record(record: ObjectShape) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {member.name: _member(member) for member in record.members},
    }
    if required := [member.name for member in record.members if member.required]:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def _member(member: Member) -> dict[str, Any]:
    schema = schema_of(member.shape)
    if member.description:
        schema["description"] = member.description
    default = member.default.value if isinstance(member.default, Enum) else member.default
    if isinstance(default, str | int) or (isinstance(default, float) and math.isfinite(default)):
        schema["default"] = default
    return schema
