from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.tools.accepted import MAX_SCHEMA, TYPES, check_schema, resolve


def of_object(**more: Any) -> dict[str, Any]:
    return {"type": "object", **{key.replace("_", "$"): value for key, value in more.items()}}


def of_x(**schema: Any) -> dict[str, Any]:
    return of_object(properties={"x": schema})


PYDANTIC: dict[str, Any] = {
    "$defs": {
        "Item": {
            "properties": {
                "name": {"title": "Name", "type": "string", "maxLength": 80},
                "parts": {"items": {"$ref": "#/$defs/Item"}, "type": "array", "default": []},
            },
            "required": ["name"],
            "title": "Item",
            "type": "object",
        }
    },
    "properties": {"item": {"anyOf": [{"$ref": "#/$defs/Item"}, {"type": "null"}]}},
    "required": ["item"],
    "title": "Order",
    "type": "object",
}

ACCEPTED: list[dict[str, Any]] = [
    {"type": "object"},
    PYDANTIC,
    of_object(additionalProperties=False, required=[], title="T", examples=[{}]),
    of_x(type=["string", "null"], minLength=0, maxLength=9, format="email", default=None),
    of_x(type="array", prefixItems=[True], items=False, minItems=1, maxItems=1, uniqueItems=True),
    of_x(minimum=1, maximum=2.5, exclusiveMinimum=0, exclusiveMaximum=3, multipleOf=0.5),
    of_x(oneOf=[{"const": 1}, {"enum": [None, {}]}], allOf=[True], **{"not": {}}),
    of_object(**{"if": {"minProperties": 1}, "then": {"maxProperties": 2}, "else": False}),
    of_object(
        propertyNames={"maxLength": 3}, _schema="https://json-schema.org/draft/2020-12/schema"
    ),
    of_object(definitions={"a/b~c": {}}, properties={"a": {"$ref": "#/definitions/a~1b~0c"}}),
    of_object(properties={"not": {"$ref": "#"}, "x": {"not": {}}}),
    of_object(properties={"child": {"$ref": "#"}}),
    of_object(items={"$ref": "#"}, _defs={"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": False}),
]


@pytest.mark.parametrize("schema", ACCEPTED, ids=range(len(ACCEPTED)))
def test_a_schema_that_can_be_checked_is_accepted(schema: dict[str, Any]) -> None:
    assert check_schema(schema) is None
    jsonschema_rs.validator_for(schema)


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return {"type": "object", **schema}


CIRCLE: dict[str, Any] = {"type": "object"}
CIRCLE["items"] = CIRCLE

WRONG_VALUES: list[tuple[str, Any]] = [
    ("type", "text"),
    ("type", []),
    ("type", 1),
    ("enum", []),
    ("enum", "a"),
    ("items", [{}]),
    ("items", None),
    ("anyOf", []),
    ("anyOf", {}),
    ("allOf", [1]),
    ("properties", []),
    ("properties", {"a": 1}),
    ("required", "a"),
    ("required", [1]),
    ("required", ["a", "a"]),
    ("type", ["null", "null"]),
    ("minLength", -1),
    ("minLength", True),
    ("maxItems", 1.5),
    ("minimum", "1"),
    ("maximum", True),
    ("multipleOf", 0),
    ("uniqueItems", 1),
    ("$ref", 1),
    ("title", True),
    ("examples", {}),
    ("readOnly", 1),
]

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, 'must be of "type": "object"'),
    ({"type": "string"}, 'must be of "type": "object"'),
    ({"type": ["object"]}, 'must be of "type": "object"'),
    (of_object(title="x" * MAX_SCHEMA), "must be shorter than 65536 characters"),
    (of_object(const=float("nan")), "must be JSON"),
    (of_object(const=b""), "must be JSON"),
    (CIRCLE, "must be JSON"),
    (nested(33), "must be nested at most 32 levels deep"),
    (of_object(pattern="(a+)+$"), "unsupported keyword 'pattern'"),
    (of_x(pattern="a"), "unsupported keyword 'pattern' of 'x'"),
    (of_object(patternProperties={}), "unsupported keyword 'patternProperties'"),
    (of_object(_id="https://evil.test"), "unsupported keyword '$id'"),
    (of_object(_dynamicRef="#"), "unsupported keyword '$dynamicRef'"),
    ({"type": "object", 1: 2}, "unsupported keyword '1'"),  # type: ignore[dict-item]
    (of_object(_schema="https://evil.test"), "invalid value of the keyword '$schema'"),
    (of_object(_schema=["x"]), "invalid value of the keyword '$schema'"),
    *(
        (of_object(_ref=reference), f"unsupported $ref {reference!r}: it must lead into the schema")
        for reference in (
            "https://evil.test/schema.json",
            "file:///etc/passwd",
            "other.json",
            "#/$defs/absent",
            "#/properties/x",
            "#/$defs",
            "#/$defs/a/b",
            "#anchor",
            "#/$defs/%61",
            "",
        )
    ),
    (of_object(_defs={"a": {"$ref": "#/$defs/a"}}), "cannot use $ref '#/$defs/a': it leads back"),
    (
        of_object(
            _defs={
                "a": {"allOf": [{"$ref": "#/$defs/b"}]},
                "b": {"if": {"$ref": "#/$defs/c"}},
                "c": {"not": {"oneOf": [True, {"$ref": "#/$defs/a"}]}},
            }
        ),
        "cannot use $ref '#/$defs/a': it leads back",
    ),
    (of_object(_ref="#"), "cannot use $ref '#': it leads back to itself"),
    (of_object(_defs={str(i): True for i in range(300)}), "must have at most 256 definitions"),
    *(
        (of_x(**{key: value}), f"invalid value of the keyword {key!r} of 'x'")
        for key, value in WRONG_VALUES
    ),
]


@pytest.mark.parametrize(("schema", "sentence"), REFUSED, ids=range(len(REFUSED)))
def test_a_schema_that_cannot_be_checked_is_refused(schema: dict[str, Any], sentence: str) -> None:
    said = check_schema(schema)

    assert said is not None
    assert said.startswith(sentence)


def test_a_reference_leads_to_a_definition() -> None:
    root = {"$defs": {"a": {"type": "null"}, "b": False, "c": 1}}

    assert resolve(root, "#") is root
    assert resolve(root, "#/$defs/a") == {"type": "null"}
    assert resolve(root, "#/$defs/b") is False
    assert resolve(root, "#/$defs/c") is None
    assert resolve(root, "#/definitions/a") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("null", None),
        ("boolean", False),
        ("integer", 3.0),
        ("number", 0.5),
        ("string", ""),
        ("array", []),
        ("object", {}),
    ],
)
def test_a_value_is_of_its_types_alone(name: str, value: Any) -> None:
    also = {"integer": {"number"}}.get(name, set())

    assert {kind for kind, holds in TYPES.items() if holds(value)} == {name} | also


KEYS = st.sampled_from(
    "type properties items anyOf $ref $defs required enum const not minimum title pattern".split()
)
SCHEMAS = st.recursive(
    st.sampled_from(["object", "string", "#", "#/$defs/type", True, None, 1, -1, 0.5, "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, SCHEMAS, max_size=5))
def test_any_mapping_is_accepted_or_refused_and_what_is_accepted_is_a_schema(
    schema: dict[str, Any],
) -> None:
    said = check_schema({**schema, "type": "object"})

    assert said is None or said.split()[0] in ("must", "cannot", "unsupported", "invalid")
    if said is None:
        jsonschema_rs.validator_for(json.dumps({**schema, "type": "object"}))
