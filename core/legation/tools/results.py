"""The result of a tool, as text for the model."""

from __future__ import annotations

import dataclasses
import json
import re
from binascii import b2a_base64
from collections.abc import Iterable, Mapping, MappingView, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, timedelta
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

    What a parameter may be, a result may be, and is written as a parameter is read: named tuples
    as objects, bytes in base64, durations as ISO 8601 has them, sets in the order of their texts.
    So may what only a result is: whatever says itself how it is written; for a tool that has done
    its work must not look like one that failed.  A text over `limit` characters ends in a note.
    None where JSON has no such value.
    """
    if isinstance(value, Enum):
        value = value.value
    try:
        text = value if isinstance(value, str) else to_json(_by_names(value))
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
        return _by_names({a.alias or a.name: getattr(value, a.name) for a in attrs.fields(kind)})
    if hasattr(kind, "__dataclass_fields__"):
        return _by_names({f.name: getattr(value, f.name) for f in dataclasses.fields(kind)})
    if hasattr(kind, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    if issubclass(kind, AbstractSet):
        return [_by_names(item) for item in sorted(value, key=repr)]
    if issubclass(kind, timedelta):
        return _duration(value)
    if issubclass(kind, _BYTES):
        return b2a_base64(value, newline=False).decode()
    if issubclass(kind, (Sequence, MappingView)):
        return [_by_names(item) for item in value]
    if kind.__str__ is not object.__str__:
        return str(value)
    raise TypeError(f"JSON has no {kind.__name__}")


def _by_names(value: Any) -> Any:
    """Return `value` with a dictionary for each named tuple in it, which the encoder takes apart.

    Only what the encoder does not ask about is looked through: lists, tuples and dictionaries.
    """
    names: Iterable[str] | None = getattr(value, "_fields", None)
    if isinstance(value, tuple) and names is not None:
        named = cast(Any, value)
        return {name: _by_names(getattr(named, name)) for name in names}
    if isinstance(value, (list, tuple)):
        return [_by_names(item) for item in cast(Iterable[Any], value)]
    if isinstance(value, dict):
        members = cast(Mapping[Any, Any], value)
        return {name: _by_names(item) for name, item in members.items()}
    return value


def _duration(length: timedelta) -> str:
    """Return ISO 8601, in days and seconds."""
    if length < timedelta():
        return f"-{_duration(-length)}"
    fraction = f".{length.microseconds:06}".rstrip("0") if length.microseconds else ""
    return f"P{length.days}DT{length.seconds}{fraction}S"


to_json: Final = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain
).encode
