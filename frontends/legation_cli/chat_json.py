"""JSON of a server that may be any: what is not of the type that is meant counts as empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

__all__ = ["as_object", "as_objects", "as_text"]


def as_object(value: object) -> Mapping[str, Any]:
    """Return `value` if it is an object, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def as_objects(value: object) -> list[Mapping[str, Any]]:
    """Return the objects among the items of `value`, if it is an array."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [as_object(item) for item in items if as_object(item) is item]


def as_text(value: object) -> str:
    """Return `value` if it is a text, else an empty one."""
    return value if isinstance(value, str) else ""
