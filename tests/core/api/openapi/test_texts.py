"""The words of the document, against those of the interface and of AgentOS 2.5.6 as golden text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import pytest

from legation.api.openapi.examples import EXAMPLES

from ....callers import Issuer, demo
from ....contract import Contract, contract_of

GOLDEN: Final = Path(__file__).parents[3] / "golden"
NAME: Final = re.compile(r'"#/components/schemas/(\w+)"')


@pytest.fixture(scope="module")
def contract() -> Contract:
    return contract_of(demo(Issuer()))


def operations(contract: Contract) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in contract.document["paths"].items():
        for method, told in methods.items():
            yield method.upper(), path, told


def response(contract: Contract, told: dict[str, Any]) -> dict[str, Any]:
    name = told.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = contract.document["components"]["responses"][name] if name else told
    return found


def kind(schema: dict[str, Any]) -> str:
    """Return what a schema is, in few words."""
    if "anyOf" in schema:
        return " or ".join(kind(one) for one in schema["anyOf"])
    return str(schema.get("type") or schema.get("$ref", "anything").rpartition("/")[2])


def shapes(content: dict[str, Any]) -> str:
    schema = json.dumps(content.get("application/json", {}).get("schema", {}))
    return ", ".join(NAME.findall(schema)) or "-"


def outline(contract: Contract, method: str, path: str, told: dict[str, Any]) -> Iterator[str]:
    """Yield the lines that say what an operation is called and answers."""
    tags = ", ".join(told["tags"])
    yield f"{method} {path} | {told['operationId']} | {tags} | {told['summary']}"
    for status, one in sorted(told["responses"].items()):
        found = response(contract, one)
        yield f"  {status} {found['description']} | {shapes(found.get('content', {}))}"


def test_what_is_shared_with_agentos_has_its_names_and_summaries(contract: Contract) -> None:
    golden = (GOLDEN / "openapi-agentos.txt").read_text("utf-8")
    named = set(re.findall(r"^\w+ \S+ \| (\w+) \|", golden, re.MULTILINE))

    lines = [
        line
        for method, path, told in operations(contract)
        if told["operationId"] in named
        for line in outline(contract, method, path, told)
    ]

    assert len(named) > 35
    assert "\n".join([*lines, ""]) == golden


def in_full(contract: Contract, method: str, path: str, told: dict[str, Any]) -> Iterator[str]:
    """Yield every line that the interface has of an operation."""
    yield from (f"{method} {path}", f"  summary {told['summary']}")
    yield f"  description {told['description']}"
    for parameter in told["parameters"]:
        need = "required" if parameter["required"] else "optional"
        text = f"{parameter['in']} {parameter['name']} {kind(parameter['schema'])} {need}"
        yield f"  {text}"
    yield f"  body {', '.join(told.get('requestBody', {}).get('content', ())) or 'none'}"
    for status, one in sorted(told["responses"].items()):
        found = response(contract, one)
        content = found["content"]["application/json"]
        yield f"  {status} {found['description']} | {shapes(found['content'])}"
        if "example" in content:
            yield f"      {json.dumps(content['example'])}"


def test_the_operations_of_the_interface_are_as_it_says(contract: Contract) -> None:
    paths = contract.document["paths"]

    lines = [
        line
        for path in ("/databases/{db_id}/migrate", "/chat/webhook")
        for line in in_full(contract, "POST", path, paths[path]["post"])
    ]
    schema = contract.document["components"]["schemas"]["NotFoundResponse"]
    for name, field in schema["properties"].items():
        need = "required" if name in schema["required"] else "optional"
        lines.append(f"error {name} {kind(field)} {need}: {field['description']}")

    golden = (GOLDEN / "openapi-interface.txt").read_text("utf-8")
    assert "\n".join([*lines, ""]) == golden


def asked(contract: Contract, method: str, path: str, told: dict[str, Any]) -> Iterator[str]:
    """Yield the lines that say what an operation takes, and what it refuses."""
    yield f"{method} {path}"
    for parameter in told["parameters"]:
        need = "required" if parameter["required"] else "optional"
        schema = json.dumps(parameter["schema"], sort_keys=True)
        about = parameter.get("description", "-")
        example = f" | {parameter['example']}" if "example" in parameter else ""
        yield f"  {parameter['in']} {parameter['name']} {need} {schema} | {about}{example}"
    if body := told.get("requestBody"):
        need = "required" if body["required"] else "optional"
        for media, content in body["content"].items():
            yield f"  body {media} {need} {json.dumps(content['schema'], sort_keys=True)}"
            if "example" in content:
                yield f"    {json.dumps(content['example'])}"
    answers = sorted(told["responses"].items())
    yield f"  as others {' '.join(status for status, one in answers if '$ref' in one) or 'none'}"
    for status, one in answers:
        example = one.get("content", {}).get("application/json", {}).get("example", {})
        if "detail" in example:
            yield f"  {status} {example['detail']}"


def test_what_operations_take_and_refuse_is_as_it_was_reviewed(contract: Contract) -> None:
    """Whoever changes it changes the golden file, so that a review sees what clients will."""
    lines = [line for one in operations(contract) for line in asked(contract, *one)]
    named = {name for line in lines if " body " in line for name in NAME.findall(line)}
    for name in sorted(named):
        schema = contract.document["components"]["schemas"][name]
        lines.append(name)
        for key in sorted(schema.keys() - {"properties"}):
            lines.append(f"  {key} {json.dumps(schema[key], sort_keys=True)}")
        for member, field in schema["properties"].items():
            lines.append(f"  .{member} {json.dumps(field, sort_keys=True)}")

    golden = (GOLDEN / "openapi-requests.txt").read_text("utf-8")
    assert "\n".join([*lines, ""]) == golden


def test_every_example_of_an_answer_has_the_shape_of_the_answer(contract: Contract) -> None:
    seen: set[str] = set()
    components = {"components": contract.document["components"]}
    for _, _, told in operations(contract):
        for status, one in told["responses"].items():
            content = response(contract, one).get("content", {}).get("application/json", {})
            if "example" not in content:
                continue
            whole = {**content["schema"], **components}
            validator = jsonschema_rs.Draft202012Validator(whole, validate_formats=True)
            faults = [error.message for error in validator.iter_errors(content["example"])]
            assert not faults, (told["operationId"], status)
            seen.add(told["operationId"])

    assert seen >= EXAMPLES.keys()
