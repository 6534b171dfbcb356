"""JSON texts from strangers (RFC 8259), stricter than the standard library reads them.

What comes out can be stored in both databases, written out again and compared: no member twice
(two readers would disagree about which counts), no NaN and no infinity, also not by way of
`1e999`, no half of a surrogate pair (it has no UTF-8), no U+0000 (PostgreSQL has neither text
nor jsonb with it), and bounds on depth and digits.
"""

from __future__ import annotations

import json
import math
import re
from typing import Final, NoReturn, TypeAlias

from ...values import frozen

__all__ = ["MAX_DEPTH", "MAX_DIGITS", "BadJson", "JsonObject", "JsonValue", "parse_json"]

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = "dict[str, JsonValue]"

MAX_DEPTH: Final = 64
"""How deep arrays and objects may be nested."""

MAX_DIGITS: Final = 400
"""How long an integer may be, in characters: a conversion costs the square of it."""

# Only these escapes can bring in a character that the bytes could not hold.
_SUSPECT_ESCAPE: Final = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")
_TOO_DEEP: Final = "nested deeper than {} levels"


@frozen
class BadJson:
    """Not a JSON text that is accepted here; `reason` completes the sentence "it is …"."""

    reason: str


class _JsonRefused(Exception):
    """Leaves the decoder's callbacks; never leaves this module."""


def _members(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _JsonRefused("an object with a member twice")
    return members


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise _JsonRefused(f"an integer of more than {MAX_DIGITS} characters")
    return int(text)


def _real(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _JsonRefused("a number beyond the range of a double")
    return value


def _constant(text: str) -> NoReturn:
    raise _JsonRefused(f"{text}, which is no JSON number")


_decode: Final = json.JSONDecoder(
    object_pairs_hook=_members,
    parse_int=_integer,
    parse_float=_real,
    parse_constant=_constant,
).decode


def parse_json(body: bytes, depth: int = MAX_DEPTH) -> JsonValue | BadJson:
    """Parse `body`: UTF-8 without a byte order mark, one value, white space around it."""
    try:
        text = body.decode("utf-8")
        value: JsonValue = _decode(text)
    except UnicodeDecodeError as error:
        return BadJson(f"not UTF-8 at byte {error.start}")
    except json.JSONDecodeError as error:
        return BadJson(f"not JSON at line {error.lineno}, column {error.colno}")
    except RecursionError:
        return BadJson(_TOO_DEEP.format(depth))
    except _JsonRefused as refused:
        return BadJson(str(refused))
    # Most texts can have neither flaw, which is cheaper to see than a walk.
    suspect = _SUSPECT_ESCAPE.search(text) is not None
    if suspect or text.count("[") + text.count("{") > depth:
        return _flaw(value, suspect, depth) or value
    return value


def _flaw(value: JsonValue, suspect: bool, depth: int) -> BadJson | None:
    """Look through `value` level by level, so that no depth can exhaust the stack.

    Only a `suspect` text is searched for strings that cannot be stored.
    """
    level = [value]
    for _ in range(depth + 1):
        if suspect and any(isinstance(node, str) and _UNSTORABLE.search(node) for node in level):
            return BadJson("a string with U+0000 or half of a surrogate pair")
        containers = [node for node in level if isinstance(node, (dict, list))]
        if not containers:
            return None
        level = [child for node in containers for child in _children(node)]
    return BadJson(_TOO_DEEP.format(depth))


def _children(node: JsonObject | list[JsonValue]) -> list[JsonValue]:
    return [*node, *node.values()] if isinstance(node, dict) else node
