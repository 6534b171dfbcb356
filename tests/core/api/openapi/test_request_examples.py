"""The examples of requests: each is what its operation takes, and where one is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import jsonschema_rs
import pytest

from legation import Agent, Platform
from legation.api.openapi import OPERATIONS
from legation.api.openapi import example_ids as ids
from legation.api.openapi.request_examples import BODIES, PARAMETERS

from ....callers import Issuer, demo

BY_DEFAULT: Final = {"seconds"}


def describe(platform: Platform) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(bytes(platform.documentation.document.body))
    return document


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return describe(demo(Issuer()))


def operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in document["paths"].values():
        yield from methods.values()


def parameters(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for operation in operations(document):
        for parameter in operation["parameters"]:
            yield operation["operationId"], parameter


def bodies(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for operation in operations(document):
        if "requestBody" in operation:
            yield operation["operationId"], operation["requestBody"]["content"]


def find_faults(document: dict[str, Any], schema: Any, value: Any) -> list[str]:
    whole = {**schema, "components": document["components"]}
    validator = jsonschema_rs.Draft202012Validator(whole, validate_formats=True)
    return [error.message for error in validator.iter_errors(value)]


def test_every_example_belongs_to_an_operation() -> None:
    assert OPERATIONS.keys() >= BODIES.keys() | PARAMETERS.keys()


def test_every_example_of_an_operation_is_in_the_document(document: dict[str, Any]) -> None:
    shown = {(name, one["name"], one.get("example")) for name, one in parameters(document)}

    own = {(name, key, value) for name, one in PARAMETERS.items() for key, value in one.items()}
    assert own <= shown


def test_every_parameter_that_is_required_has_an_example(document: dict[str, Any]) -> None:
    for name, parameter in parameters(document):
        assert not parameter["required"] or "example" in parameter, (name, parameter["name"])


def test_a_parameter_that_may_be_left_out_is_left_out(document: dict[str, Any]) -> None:
    """A page sends the examples: one of a filter would find nothing, or twice the same key."""
    optional = (parameter for _, parameter in parameters(document) if not parameter["required"])
    assert {one["name"] for one in optional if "example" in one} == BY_DEFAULT


def test_every_example_of_a_parameter_is_as_its_schema_says(document: dict[str, Any]) -> None:
    for name, parameter in parameters(document):
        if "example" in parameter:
            faults = find_faults(document, parameter["schema"], parameter["example"])
            assert not faults, (name, parameter["name"])


def test_every_body_is_json_first_and_has_an_example(document: dict[str, Any]) -> None:
    for name, content in bodies(document):
        assert next(iter(content)) == "application/json", name
        example = content["application/json"]["example"]
        assert not find_faults(document, content["application/json"]["schema"], example), name


def form_fields(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for _, content in bodies(document):
        for media, described in content.items():
            if media != "application/json":
                name = described["schema"]["$ref"].rpartition("/")[2]
                shape = document["components"]["schemas"][name]
                for field, schema in shape["properties"].items():
                    yield f"{name}.{field}", schema


def test_a_field_of_a_form_is_a_file_for_uploads_alone(document: dict[str, Any]) -> None:
    files = {
        name for name, schema in form_fields(document) if "contentMediaType" in json.dumps(schema)
    }

    assert files == {"Body_create_agent_run.files", "Body_create_team_run.files"}


def test_every_text_of_a_form_has_an_example(document: dict[str, Any]) -> None:
    """A page fills in, of one without an example, what it makes of the pattern."""
    for name, schema in form_fields(document):
        if schema.get("type") == "string":
            (example,) = schema["examples"]
            assert not find_faults(document, schema, example), name


def test_where_it_is_open_to_all_the_ids_are_those_of_the_platform() -> None:
    platform = Platform(agents=[Agent(id="guide"), Agent(id="other")])

    paths = [one for _, one in parameters(describe(platform)) if one["in"] == "path"]
    shown = {one["name"]: one["example"] for one in paths}

    assert shown["agent_id"] == "guide"
    assert shown["team_id"] == ids.TEAM
    assert shown["db_id"] == "main"
