"""Schemas as Anthropic takes them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.models.anthropic_schema import narrow
from legation.models.provider_json import is_array, is_table


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (True, True),
        ({}, {}),
        ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
        ({"type": "array", "minItems": 1}, {"type": "array", "minItems": 1}),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema"}, {}),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            {"type": "object", "additionalProperties": False},
        ),
        (
            {"type": "integer", "minimum": 1, "description": "How many."},
            {"type": "integer", "description": 'How many. {"minimum":1}'},
        ),
        (
            {"type": "array", "minItems": 2, "items": {"type": "string", "format": "phone"}},
            {
                "type": "array",
                "items": {"type": "string", "description": '{"format":"phone"}'},
                "description": '{"minItems":2}',
            },
        ),
        (
            {"type": ["string", "null"], "title": "Name"},
            {"anyOf": [{"type": "string", "title": "Name"}, {"type": "null", "title": "Name"}]},
        ),
        (
            {"oneOf": [{"type": "object"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"const": 1}}},
            {
                "anyOf": [{"type": "object", "additionalProperties": False}, {"$ref": "#/$defs/a"}],
                "$defs": {"a": {"const": 1}},
            },
        ),
        (
            {"type": "object", "properties": {"type": {"enum": [1]}}, "required": ["type"]},
            {
                "type": "object",
                "properties": {"type": {"enum": [1]}},
                "required": ["type"],
                "additionalProperties": False,
            },
        ),
        ({"properties": 1, "anyOf": 1}, {"description": '{"properties":1,"anyOf":1}'}),
    ],
)
def test_what_is_not_taken_goes_into_the_description(schema: Any, expected: Any) -> None:
    assert narrow(schema) == expected


SCHEMAS = st.recursive(
    st.booleans() | st.none() | st.integers() | st.sampled_from(["object", "string", "date"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                """type properties items anyOf oneOf $defs format minItems minLength
                description""".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(SCHEMAS)
def test_any_schema_is_narrowed_once_and_for_all(schema: Any) -> None:
    once = narrow(schema)

    assert closed(once)


def closed(schema: Any) -> bool:
    """Return whether no object in `schema`, where there is one to find, is open."""
    if not is_table(schema):
        return True
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        return False
    tables = [schema.get(key) for key in ("properties", "$defs")]
    parts = [part for table in tables if is_table(table) for part in table.values()]
    variants = schema.get("anyOf")
    parts += variants if is_array(variants) else []
    return all(closed(part) for part in [*parts, schema.get("items")])
