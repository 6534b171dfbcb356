"""Requests as Swagger UI makes them of an operation, where nobody types anything.

A parameter has its example, else the default of its schema, of whose alternatives the first counts;
one with neither is left out.  The body is the example of the first media type.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from attrs import frozen

__all__ = ["SwaggerRequest", "list_requests"]


@frozen
class SwaggerRequest:
    """One request; `body` is JSON, None where none is sent."""

    operation: str
    tag: str
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes | None


def list_requests(document: Mapping[str, Any]) -> Iterator[SwaggerRequest]:
    """Yield the request of each operation, in the order of the document."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield _request(document, method.upper(), path, operation)


def _request(
    document: Mapping[str, Any], method: str, path: str, operation: Mapping[str, Any]
) -> SwaggerRequest:
    filled = [
        (one["in"], one["name"], value)
        for one in operation["parameters"]
        if (value := _initial(document, one)) is not None
    ]
    query = [(name, value) for where, name, value in filled if where == "query"]
    headers = [(name, value) for where, name, value in filled if where == "header"]
    for where, name, value in filled:
        if where == "path":
            path = path.replace(f"{{{name}}}", quote(value, safe=""))
    body = None
    if "requestBody" in operation:
        media_type, content = next(iter(operation["requestBody"]["content"].items()))
        body = json.dumps(content["example"]).encode()
        headers.append(("content-type", media_type))
    answers = (one.get("content", {}) for one in operation["responses"].values())
    headers.append(("accept", next(iter(next(answers)), "*/*")))
    target = path + (f"?{urlencode(query)}" if query else "")
    name, tag = operation["operationId"], operation["tags"][0]
    return SwaggerRequest(name, tag, method, target, tuple(headers), body)


def _initial(document: Mapping[str, Any], parameter: Mapping[str, Any]) -> str | None:
    schema = _resolve(document, parameter["schema"])
    value = parameter.get("example", schema.get("example", schema.get("default")))
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


def _resolve(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "anyOf" in schema:
        first, *_ = schema["anyOf"]
        return {**_resolve(document, first), **schema}
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return {**document["components"]["schemas"][name], **schema}
    return schema
