"""Requests judged by the types that the providers publish for their own clients.

The packages' TypedDicts, as they stand, let unknown members pass and leave lists of messages
unread until somebody iterates.  Here the schemas that pydantic makes of them are tightened: nothing
unknown, every list read, no type taken for another.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, TypeAlias, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

__all__ = ["Judge", "judge_of"]

Judge: TypeAlias = Callable[[bytes], "list[str]"]
"""Returns what is wrong with a body, one sentence for each fault."""


def judge_of(params: Any) -> Judge:
    """Return the judge of JSON bodies by the type `params`."""
    schema = deepcopy(TypeAdapter[Any](params).core_schema)
    _tighten(schema)
    validator = SchemaValidator(schema)

    def judge(body: bytes) -> list[str]:
        try:
            validator.validate_json(body, strict=True)
        except ValidationError as error:
            return [
                f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
                for fault in error.errors(include_url=False, include_input=False)
            ]
        return []

    return judge


def _tighten(node: Any) -> None:
    if isinstance(node, dict):
        schema = cast("dict[str, Any]", node)
        kind = schema.get("type")
        if kind == "generator":  # an Iterable, which is read by who iterates
            schema["type"] = "list"
        if kind == "typed-dict" and schema.get("extra_behavior") != "allow":
            schema["extra_behavior"] = "forbid"
        if kind == "model":  # what comes out of a response is taken in a request too
            schema["config"] = {**schema.get("config", {}), "extra_fields_behavior": "forbid"}
        for value in schema.values():
            _tighten(value)
    elif isinstance(node, (list, tuple)):
        for value in cast("list[Any]", node):
            _tighten(value)
