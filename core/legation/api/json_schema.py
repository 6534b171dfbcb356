"""Writing JSON Schema (draft 2020-12) as data, in few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

__all__ = [
    "ANYTHING",
    "BOOLEAN",
    "INTEGER",
    "NUMBER",
    "OBJECT",
    "TEXT",
    "TIME",
    "UNIX_TIME",
    "Schema",
    "by_name",
    "either",
    "integer",
    "list_of",
    "nullable",
    "object_of",
    "one_of_words",
    "ref",
    "text",
]

Schema: TypeAlias = Mapping[str, Any]

ANYTHING: Final[Schema] = {}
TEXT: Final[Schema] = {"type": "string"}
BOOLEAN: Final[Schema] = {"type": "boolean"}
INTEGER: Final[Schema] = {"type": "integer"}
NUMBER: Final[Schema] = {"type": "number"}
OBJECT: Final[Schema] = {"type": "object", "additionalProperties": True}
TIME: Final[Schema] = {"type": "string", "format": "date-time"}
UNIX_TIME: Final[Schema] = {"type": "integer", "description": "Seconds since the epoch, UTC"}


def ref(name: str) -> Schema:
    """Refer to the shape that is called `name` in `schemas.SCHEMAS`."""
    return {"$ref": f"#/components/schemas/{name}"}


def text(**limits: Any) -> Schema:
    """Return a string within `limits`, in the words of JSON Schema."""
    return {"type": "string", **limits}


def integer(**limits: Any) -> Schema:
    """Return an integer within `limits`, in the words of JSON Schema."""
    return {"type": "integer", **limits}


def one_of_words(*words: str, **more: Any) -> Schema:
    """Return a string that is one of `words`."""
    return {"type": "string", "enum": list(words), **more}


def list_of(items: Schema, **limits: Any) -> Schema:
    """Return an array of `items`."""
    return {"type": "array", "items": items, **limits}


def nullable(schema: Schema) -> Schema:
    """Return `schema`, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def either(*schemas: Schema) -> Schema:
    """Return any of `schemas`."""
    return {"anyOf": list(schemas)}


def by_name(values: Schema) -> Schema:
    """Return an object whose members all are `values`."""
    return {"type": "object", "additionalProperties": values}


def object_of(
    required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None, **more: Any
) -> Schema:
    """Return an object that has every member of `required` and may have those of `optional`."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        **more,
    }
