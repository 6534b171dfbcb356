"""The result of a tool, as text for the model."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, MappingView, Sequence
from collections.abc import Set as AbstractSet
from datetime import date
from enum import Enum
from typing import Any, Final, cast

import attrs

__all__ = ["MAX_RESULT", "render", "to_json"]

MAX_RESULT: Final = 1 << 16
"""How much of a result a model is shown, in characters."""

_BYTES: Final = (bytes, bytearray, memoryview)
_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")


def render(value: Any, limit: int = MAX_RESULT) -> str | None:
    """Return `value` as text: a string as it is, anything else as compact JSON.

    What a parameter may be, a result may be: classes of attrs and dataclasses, enumerations, dates.
    So may what only a result is: models of pydantic, sets in the order of their texts, and whatever
    says itself how it is written, as a decimal or a UUID does; for a tool that has done its work
    must not look like one that failed.  A text over `limit` characters ends in a note.  None where
    JSON has no such value.
    """
    if isinstance(value, Enum):
        value = value.value
    try:
        text = value if isinstance(value, str) else to_json(value)
    except Exception:  # noqa: BLE001 (of what a value is made, its author's code says)
        return None
    text = _UNSTORABLE.sub("\ufffd", text[: limit + 1])
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut: only the first {limit} characters are shown]"


def _plain(value: Any) -> Any:
    """Return what `value` is made of, for the encoder."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, date):  # and its subclass `datetime`
        return value.isoformat()
    kind = cast(Any, type(value))
    if issubclass(kind, Mapping):
        return dict(value)
    if attrs.has(kind):
        return {a.alias or a.name: getattr(value, a.name) for a in attrs.fields(kind)}
    if hasattr(kind, "__dataclass_fields__"):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(kind)}
    if hasattr(kind, "model_dump"):
        return value.model_dump(mode="json")
    if issubclass(kind, AbstractSet):
        return sorted(value, key=repr)
    if not issubclass(kind, _BYTES):
        if issubclass(kind, (Sequence, MappingView)):
            return list(value)
        if kind.__str__ is not object.__str__:
            return str(value)
    raise TypeError(f"JSON has no {kind.__name__}")


to_json: Final = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain
).encode
