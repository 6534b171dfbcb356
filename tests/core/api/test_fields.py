from __future__ import annotations

from typing import Any, ClassVar

import pytest

from legation.api.fields import (
    MOST,
    NoQuery,
    boolean,
    choice,
    declare,
    describe_body,
    fields_of,
    integer,
    json_object,
    line,
    no_op,
    read_json,
    read_query,
    several_texts,
    shape_name,
    text,
)
from legation.http.bodies.json_text import JsonValue
from legation.http.refusals import Fault
from legation.values import frozen


@frozen
class Everything:
    """A field of each type."""

    colour: str = choice(("red", "blue"), "Of it", default="red")
    shade: str | None = choice(("dark", "light"))
    size: int = integer("How much", default=20, minimum=1, maximum=100)
    number: int | None = integer(minimum=0)
    all: bool = boolean("Each", default=False)
    name: str | None = text(max_length=4)
    owner: str | None = text(or_none=True)
    title: str | None = line({"type": "string", "maxLength": 3})
    state: dict[str, Any] | None = json_object()
    table: None = no_op()
    kind: str | None = choice(("a", "b"), name="type", nullable=True)


@frozen
class Named:
    """What has to be sent."""

    name: str = text(required=True, max_length=4)
    colour: str | None = choice(("red",), "Of it")


def test_of_an_empty_query_everything_has_its_default() -> None:
    assert read_query(Everything, "") == (Everything(), ())
    assert Everything().size == 20


@pytest.mark.parametrize("sent", ["colour=green", "size=x", "size=0", "size=1&size=2", "all=2"])
def test_what_is_wrong_has_its_default_too(sent: str) -> None:
    query, faults = read_query(Everything, sent)

    assert query == Everything()
    assert len(faults) == 1


def test_null_is_as_good_as_absent() -> None:
    nothing: dict[str, JsonValue] = dict.fromkeys(("colour", "size", "all", "name"))

    assert read_json(Everything, nothing) == (Everything(), ())


def test_every_field_is_read() -> None:
    query = (
        "colour=blue&shade=dark&size=3&number=4&all=yes&name=abcd&owner=o&title=t"
        "&state=%7B%7D&table=x&type=b"
    )
    expected = Everything("blue", "dark", 3, 4, True, "abcd", "o", "t", {}, None, "b")

    assert read_query(Everything, query) == (expected, ())


def test_an_empty_text_may_be_none() -> None:
    query, faults = read_query(Everything, "name=&owner=&title=")

    assert (query.name, query.owner, query.title) == ("", None, "")
    assert not faults


def test_every_fault_is_told_in_the_order_of_the_fields_and_then_what_is_unknown() -> None:
    _, faults = read_query(Everything, "x=1&type=c&title=%0A&name=abcde&all=2&size=0&colour=green")

    assert faults == (
        Fault("query.colour", "must be one of red, blue"),
        Fault("query.size", "must be at least 1"),
        Fault("query.all", "must be true or false"),
        Fault("query.name", "must have at most 4 characters"),
        Fault("query.title", "must not have control characters"),
        Fault("query.type", "must be one of a, b"),
        Fault("query.x", "unknown field"),
    )


def test_a_query_that_does_not_parse_is_one_fault() -> None:
    assert read_query(Named, "name=%") == (
        Named(""),
        (Fault("query", "A % is not followed by two hexadecimal digits"),),
    )


def test_without_fields_every_name_is_unknown() -> None:
    assert read_query(NoQuery, "x=1") == (NoQuery(), (Fault("query.x", "unknown field"),))


def test_a_body_has_paths_of_its_own() -> None:
    assert read_json(Named, {"name": "n", "colour": None}) == (Named("n"), ())
    assert read_json(Named, {})[1] == (Fault("body.name", "is required"),)


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("colour", {"type": "string", "enum": ["red", "blue"], "default": "red"}),
        ("size", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}),
        ("number", {"type": "integer", "minimum": 0, "maximum": MOST}),
        ("all", {"type": "boolean", "default": False}),
        ("name", {"type": "string", "maxLength": 4}),
        ("title", {"type": "string", "maxLength": 3}),
        ("state", {"type": "object", "additionalProperties": True}),
        ("type", {"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}]}),
    ],
)
def test_a_field_is_described_by_what_is_read(name: str, schema: dict[str, Any]) -> None:
    (field,) = [field for field in fields_of(Everything) if field.name == name]

    assert field.schema == schema


def test_a_default_stands_beside_null() -> None:
    @frozen
    class Paged:
        page: int = integer(default=1, minimum=1, maximum=9, nullable=True)

    (field,) = fields_of(Paged)
    whole = {"type": "integer", "minimum": 1, "maximum": 9}
    assert field.schema == {"anyOf": [whole, {"type": "null"}], "default": 1}


def test_a_body_is_described_with_null_for_what_may_be_left_out() -> None:
    colour = {"type": "string", "enum": ["red"], "description": "Of it"}

    assert describe_body(Named) == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 4},
            "colour": {"anyOf": [colour, {"type": "null"}]},
        },
        "required": ["name"],
        "additionalProperties": False,
    }


def test_a_line_that_is_required_may_be_empty_but_not_absent() -> None:
    @frozen
    class Titled:
        title: str = line({"type": "string", "maxLength": 3}, required=True)

    assert read_json(Titled, {"title": ""}) == (Titled(""), ())
    assert read_json(Titled, {"title": 1})[1] == (Fault("body.title", "must be a string"),)
    absent: list[dict[str, JsonValue]] = [{}, {"title": None}]
    for body in absent:
        assert read_json(Titled, body)[1] == (Fault("body.title", "is required"),)
    assert describe_body(Titled)["required"] == ["title"]


def test_a_body_has_the_name_of_its_class_and_its_description_unless_it_says_otherwise() -> None:
    @frozen
    class Other:
        shape: ClassVar = "Body_other"
        about: ClassVar = "What it is"

    assert (shape_name(Named), shape_name(Other)) == ("Named", "Body_other")
    assert describe_body(Other)["description"] == "What it is"


def test_any_reading_can_be_declared() -> None:
    @frozen
    class Odd:
        number: int = declare({"type": "integer"}, lambda read, name: read.integer(name), default=1)

    assert read_query(Odd, "number=3") == (Odd(3), ())


@frozen
class Paths:
    """A field that is sent several times."""

    path: tuple[str, ...] = several_texts("Where", most=2, max_length=3, fault="leads nowhere")


def test_a_field_that_may_be_repeated_is_an_array_in_the_document() -> None:
    assert read_query(Paths, "path=a&path=b") == (Paths(("a", "b")), ())
    assert read_query(Paths, "") == (Paths(()), ())
    (fault,) = read_query(Paths, "path=a&path=b&path=c")[1]
    assert fault == Fault("query.path", "must be sent at most 2 times")
    (field,) = fields_of(Paths)
    items = {"type": "string", "minLength": 1, "maxLength": 3}
    assert field.schema == {"type": "array", "items": items, "maxItems": 2}
    assert field.fault == "leads nowhere"
