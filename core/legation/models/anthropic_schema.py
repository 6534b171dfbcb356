"""The part of JSON Schema that Anthropic's models can be held to.

Their structured output takes a subset (guide "Structured outputs") and refuses a request with
anything more: objects are closed, numbers and lengths have no bounds.  What is left out stands in
the description, where the model may still heed it; whoever asked checks the answer in full.
"""

from __future__ import annotations

from typing import Any, Final

from ..http.messages import compact_json
from .provider_json import is_array, is_table

__all__ = ["narrow"]

_KEPT: Final = frozenset({"$ref", "const", "enum", "required", "title", "type"})
_TABLES: Final = frozenset({"$defs", "definitions", "properties"})
# They know no `oneOf`; `anyOf` allows what it allows, and more.
_LISTS: Final = {"allOf": "allOf", "anyOf": "anyOf", "oneOf": "anyOf"}
_SILENT: Final = frozenset({"$id", "$schema", "additionalProperties"})
_FORMATS: Final = frozenset(
    "date-time time date duration email hostname uri ipv4 ipv6 uuid".split()
)


def narrow(schema: Any) -> Any:
    """Return `schema` without the keywords that are not taken; it allows all that `schema` allows.

    An object with members that have no name in the schema is the exception: there is no such thing.
    """
    if not is_table(schema):
        return schema  # true or false
    kinds = schema.get("type")
    if is_array(kinds):
        rest = {key: value for key, value in schema.items() if key != "type"}
        return {"anyOf": [narrow({"type": kind, **rest}) for kind in kinds]}
    kept: dict[str, Any] = {}
    left: dict[str, Any] = {}
    for key, value in schema.items():
        _sort(key, value, kept, left)
    if kept.get("type") == "object":
        kept["additionalProperties"] = False
    if left:
        words = [kept["description"]] if "description" in kept else []
        kept["description"] = " ".join([*words, compact_json(left)])
    return kept


def _is_kept_text(key: str, value: str) -> bool:
    return key == "description" or (key == "format" and value in _FORMATS)


def _sort(key: str, value: Any, kept: dict[str, Any], left: dict[str, Any]) -> None:
    """Put one member of a schema where it belongs."""
    if key in _KEPT or (isinstance(value, str) and _is_kept_text(key, value)):
        kept[key] = value
    elif key in _TABLES and is_table(value):
        kept[key] = {name: narrow(part) for name, part in value.items()}
    elif key in _LISTS and is_array(value):
        kept[_LISTS[key]] = [narrow(part) for part in value]
    elif key == "items":
        kept[key] = narrow(value)
    elif key == "minItems" and value in (0, 1):
        kept[key] = value
    elif key not in _SILENT:
        left[key] = value
