"""Readers for the JSON of a provider, which is not trusted.

A member of the wrong type makes an answer nonsense (`Trouble` with the reason broken); one that is
absent or null has its empty value, because "compatible" endpoints leave out a lot.
"""

from __future__ import annotations

import json
from collections.abc import Container, Sized
from typing import Any, Final, TypeGuard

from attrs import field

from ..http.bodies.json_text import parse_json
from ..http.messages import compact_json
from ..json_encoding import decode
from ..values import define
from .conversation import ToolCall, storable
from .trouble import Trouble

__all__ = [
    "MOST_CALLS",
    "Draft",
    "arguments_of",
    "count",
    "finish_calls",
    "is_array",
    "is_table",
    "items",
    "json_value",
    "new_draft",
    "require_table",
    "table",
    "text",
    "verbatim",
]

MOST_CALLS: Final = 256
"""Of one answer; whoever wants more tools called at once talks nonsense."""

# More is no count of tokens; the sum of these over any session fits the integers of a database.
_MOST_TOKENS: Final = 1 << 31


def json_value(document: str | bytes) -> Any:
    """Return the value of a JSON text; None where it is none, as for `null`."""
    try:
        return decode(document) if isinstance(document, str) else json.loads(document)
    except (ValueError, RecursionError):
        return None


def is_table(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether `value` is an object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Return whether `value` is an array."""
    return isinstance(value, list)


def table(value: Any) -> dict[str, Any]:
    """Return the object that `value` is."""
    if value is None:
        return {}
    if not is_table(value):
        raise Trouble("broken")
    return value


def require_table(value: Any) -> dict[str, Any]:
    """Return the object that `value` is; nothing is no answer."""
    if value is None:
        raise Trouble("broken")
    return table(value)


def items(value: Any) -> list[Any]:
    """Return the array that `value` is."""
    if value is None:
        return []
    if not is_array(value):
        raise Trouble("broken")
    return value


def text(value: Any) -> str:
    """Return the string that `value` is, without what has no UTF-8 or no place in a database."""
    return storable(verbatim(value))


def verbatim(value: Any) -> str:
    """Return the string that `value` is, as it is."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Trouble("broken")
    return value


def count(value: Any) -> int:
    """Return `value` as a number of tokens; 0 where it is none: nothing depends on it."""
    return value if type(value) is int and 0 <= value < _MOST_TOKENS else 0


@define
class Draft:
    """A tool call of which parts have come."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(factory=list[str])

    def argue(self, value: Any) -> None:
        """Add to the arguments: text as it comes, or the object itself, as some send it."""
        said = _encode(value) if is_table(value) else value
        if said is None and value is not None:
            raise Trouble("broken")
        self.arguments.append(text(said))


def new_draft(among: Sized) -> Draft:
    """Return a call that begins, behind those `among` which it is."""
    if len(among) >= MOST_CALLS:
        raise Trouble("broken")
    return Draft()


def _encode(value: Any) -> str | None:
    """Return `value` as JSON; a number beyond the range of a double has none."""
    try:
        return compact_json(value)
    except (ValueError, RecursionError):
        return None


def arguments_of(call: ToolCall) -> dict[str, Any] | None:
    """Return the arguments of a call; None where they are no object of JSON.

    As strictly as those of a call that is made: Python would read NaN, and could not write it.
    """
    given = parse_json(call.arguments.encode("utf-8", "surrogatepass"))
    return given if is_table(given) else None


def finish_calls(drafts: list[Draft], taken: Container[str]) -> tuple[ToolCall, ...]:
    """Return the calls that `drafts` have become.

    One without an id, or with an id of a call before it, gets one that is not `taken`: results are
    matched to calls by it.
    """
    calls: list[ToolCall] = []
    used: set[str] = set()
    for number, draft in enumerate(drafts, start=1):
        if not draft.name:
            raise Trouble("broken")
        name, suffix = draft.id, number
        while not name or name in used or name in taken:
            name, suffix = f"call_{suffix}", suffix + 1
        used.add(name)
        calls.append(ToolCall(name, draft.name, "".join(draft.arguments) or "{}"))
    return tuple(calls)
