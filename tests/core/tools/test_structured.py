from __future__ import annotations

import json
import time
from typing import Any

import jsonschema_rs
import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from legation.tools.answer_class import as_answer_class
from legation.tools.structured import MAX_OUTPUT, check_output, check_schema

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 5},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    },
    "required": ["name"],
    "additionalProperties": False,
}


def test_answer_that_fits_an_option_fits() -> None:
    texts, numbers = {"type": "string"}, {"type": "integer"}
    schema = {
        "type": "object",
        "properties": {"a": {"anyOf": [texts, numbers]}, "b": {"oneOf": [texts, numbers]}},
    }

    assert check_output(schema, '{"a": 1, "b": "x"}') == {"a": 1, "b": "x"}


@frozen
class Even:
    number: int

    def __attrs_post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("must be even")


def test_answer_of_a_class_is_read_by_its_shape_and_stays_json() -> None:
    answer = as_answer_class(Even)

    assert check_output(answer.schema, '{"number": 2}', answer.shape) == {"number": 2}
    assert check_output(answer.schema, '{"number": 1}', answer.shape) == (
        "The answer does not fit the schema: the answer is refused: must be even."
    )
    assert check_output(answer.schema, '{"number": "2"}', answer.shape) == (
        "The answer does not fit the schema: number must be an integer."
    )


def test_an_answer_that_fits_is_its_object() -> None:
    assert check_output(ORDER, '{"name": "Ada", "tags": ["a"]}') == {"name": "Ada", "tags": ["a"]}
    assert check_output({"type": "object"}, " {} ") == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('```json\n{"name": "Ada"}\n```', {"name": "Ada"}),
        ('```\n{"name": "Ada"}```\n', {"name": "Ada"}),
        ('```{"name": "Ada"}```', None),
        ('Here: {"name": "Ada"}', None),
        ("```", None),
    ],
)
def test_a_fence_is_taken_off_and_nothing_else(text: str, found: Any) -> None:
    read = check_output(ORDER, text)

    assert read == found or (found is None and isinstance(read, str))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "Hello",
            "The answer must be JSON and nothing else; this is not JSON at line 1, column 1.",
        ),
        ('{"a": 1, "a": 2}', "The answer must be JSON and nothing else; this is an object with"),
        ('"\ud800"', "The answer must be JSON and nothing else; this is not UTF-8"),
        ("[]", "The answer must be a JSON object."),
        ("{}", "The answer does not fit the schema: name is missing."),
        (
            '{"name": "A", "count": "2", "tags": ["c"], "more": 1}',
            (
                "The answer does not fit the schema: name must have at least 2 characters; count "
                'must be of type integer; tags[0] must be one of "a", "b"; more is not allowed.'
            ),
        ),
        (" " * MAX_OUTPUT + "{}", "The answer is too long: at most 1048576 characters are read."),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(text: str, sentence: str) -> None:
    read = check_output(ORDER, text)

    assert isinstance(read, str)
    assert read.startswith(sentence)


def test_a_few_problems_are_told_and_the_others_counted() -> None:
    read = check_output(ORDER, json.dumps({"name": "Ada"} | {f"x{i}": 1 for i in range(100)}))

    assert isinstance(read, str)
    assert read.endswith("x7 is not allowed; and 92 more.")


SAID: list[tuple[dict[str, Any], Any, str]] = [
    ({"type": ["string", "null"]}, 1, "x must be of type string or null"),
    ({"const": [1]}, 1, "x must be …"),
    ({"const": "a"}, 1, 'x must be "a"'),
    ({"enum": list(range(99))}, 99, "x must be one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, …"),
    ({"minimum": 2}, 1, "x must be at least 2"),
    ({"maximum": 2}, 3, "x must be at most 2"),
    ({"exclusiveMinimum": 2}, 2, "x must be more than 2"),
    ({"exclusiveMaximum": 2}, 2, "x must be less than 2"),
    ({"multipleOf": 2}, 3, "x must be a multiple of 2"),
    ({"minItems": 1}, [], "x must have at least 1 items"),
    ({"maxProperties": 0}, {"a": 1}, "x must have at most 0 members"),
    ({"uniqueItems": True}, [1, True, 1.0], "x must not have an item twice"),
    ({"oneOf": [{}, {}]}, 1, "x fits 2 of the schemas of which it must fit one"),
    ({"not": {}}, 1, "x is what it must not be"),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, "x fits none of the schemas it may fit"),
    (
        {"anyOf": [{"type": "null"}, {"properties": {"a": {"type": "null"}}}]},
        {"a": 1},
        "x.a must be of type null",
    ),
    ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "x.ab has a name that is not allowed"),
    ({"if": {}, "then": False}, 1, "x is not allowed"),
    ({"if": False, "else": {"$ref": "#/$defs/none"}}, 1, "x is not allowed"),
    ({"allOf": [{"type": "null"}]}, 1, "x must be of type null"),
    ({"prefixItems": [{}, False]}, [1, 2], "x[1] is not allowed"),
]


@pytest.mark.parametrize(("schema", "value", "sentence"), SAID, ids=range(len(SAID)))
def test_a_problem_says_what_would_fit(schema: dict[str, Any], value: Any, sentence: str) -> None:
    whole = {"type": "object", "properties": {"x": schema}, "$defs": {"none": False}}

    assert check_schema(whole) is None
    read = check_output(whole, json.dumps({"x": value}))
    assert read == f"The answer does not fit the schema: {sentence}."


@pytest.mark.parametrize(
    ("value", "step", "whole"),
    [
        (0.3, 0.1, True),
        (0.35, 0.1, False),
        (10**399, 0.1, False),
        (1e300, 5e-324, False),
        (1e9, 3, False),
    ],
)
def test_a_double_is_a_multiple_nearly(value: float, step: float, whole: bool) -> None:
    schema = {"type": "object", "properties": {"x": {"multipleOf": step}}}

    assert isinstance(check_output(schema, json.dumps({"x": value})), dict) is whole


def test_the_top_has_a_name_too() -> None:
    schema = {"type": "object", "minProperties": 1, "not": {"maxProperties": 0}}

    assert check_output(schema, "{}") == (
        "The answer does not fit the schema: the answer must have at least 1 members; "
        "the answer is what it must not be."
    )


# --- What it may cost ----------------------------------------------------------------------------

BOMB: dict[str, Any] = {
    "type": "object",
    "$defs": {
        str(i): {"anyOf": [{"$ref": f"#/$defs/{i + 1}"}, {"$ref": f"#/$defs/{i + 1}"}]}
        for i in range(40)
    }
    | {"40": {"type": "null"}},
    "properties": {"x": {"$ref": "#/$defs/0"}},
}
CHAIN: dict[str, Any] = {
    "type": "object",
    "$defs": {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(200)} | {"200": {}},
    "properties": {"x": {"$ref": "#/$defs/0"}},
}
UNIQUE: dict[str, Any] = {"type": "object", "properties": {"x": {"uniqueItems": True}}}
ENUM: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {"items": {"enum": [f"{i}" for i in range(9000)]}}},
}
# Each comparison goes through both constants to their last item.
NEARLY: dict[str, Any] = {
    "type": "object",
    "$defs": {"long": {"const": [*range(9000), "end"]}},
    "properties": {"x": {"anyOf": [{"$ref": "#/$defs/long"}] * 100}},
}
REQUIRED: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {"items": {"required": [str(i) for i in range(8000)]}}},
}
COSTLY: list[tuple[dict[str, Any], Any]] = [
    (BOMB, 1),
    (CHAIN, 1),
    (UNIQUE, [*range(100_000)]),
    (ENUM, [*range(100_000)]),
    (REQUIRED, [{}] * 100_000),
    (NEARLY, [*range(9000), "End"]),
]


@pytest.mark.parametrize(("schema", "value"), COSTLY, ids=range(len(COSTLY)))
def test_no_schema_and_no_answer_takes_long(schema: dict[str, Any], value: Any) -> None:
    assert check_schema(schema) is None
    text = json.dumps({"x": value}, separators=(",", ":"))
    before = time.process_time()

    read = check_output(schema, text)

    assert read == "The answer is too large to be checked."
    assert time.process_time() - before < 5


# --- It says what another validator says ---------------------------------------------------------

NUMBERS = st.sampled_from([-1, 0, 1, 2, 1.0, 0.5, 2.5])
COUNTS = st.integers(0, 2)
NAMES = st.sampled_from(["a", "b", "cd"])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TYPE = st.sampled_from("null boolean integer number string array object".split())


def pair(names: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, Any]]:
    return st.tuples(st.sampled_from(names.split()), values)


def keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    plain = st.one_of(
        pair("type", TYPE | st.lists(TYPE, min_size=1, max_size=3, unique=True)),
        pair("enum", st.lists(VALUES, min_size=1, max_size=3)),
        pair("const", VALUES),
        pair("minimum maximum exclusiveMinimum exclusiveMaximum", NUMBERS),
        pair("multipleOf", st.sampled_from([1, 2, 0.5])),
        pair("minLength maxLength minItems maxItems minProperties maxProperties", COUNTS),
        pair("uniqueItems", st.booleans()),
        pair("required", st.lists(NAMES, max_size=2, unique=True)),
        pair("$ref", st.sampled_from(["#/$defs/text", "#/$defs/tree"])),
    )
    leading = st.one_of(
        pair("items additionalProperties propertyNames not if then else", inner),
        pair("prefixItems anyOf allOf oneOf", st.lists(inner, min_size=1, max_size=2)),
        pair("properties", st.dictionaries(NAMES, inner, max_size=2)),
    )
    return st.lists(plain | leading, max_size=4).map(dict)


SCHEMAS = keywords(st.booleans() | keywords(st.booleans() | keywords(st.booleans())))
DEFINITIONS = {
    "text": {"type": "string"},
    "tree": {"type": ["object", "null"], "additionalProperties": {"$ref": "#/$defs/tree"}},
}


@settings(max_examples=400)
@given(SCHEMAS, st.dictionaries(NAMES, VALUES, max_size=3))
def test_it_says_what_another_validator_says(schema: dict[str, Any], value: Any) -> None:
    whole = {**schema, "type": "object", "$defs": DEFINITIONS}
    read = check_output(whole, json.dumps(value))

    assert check_schema(whole) is None
    assert isinstance(read, dict) is jsonschema_rs.is_valid(whole, value)
    assert isinstance(read, str) or read == value
