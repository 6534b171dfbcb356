"""The values of a foreign database: read leniently, and bounded.

AgentOS stores JSON as Python writes it: a document may be a string with a document in it, and NaN
stands where a number should.  What comes out can be stored in both databases and written again.
A value of another type than was expected counts as absent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, cast

from ..http.bodies.json_text import MAX_DEPTH, MAX_DIGITS, BadJson
from ..http.routing import is_segment
from ..models.conversation import storable
from ..tools.accepted import is_array, is_object

__all__ = [
    "LAST_SECOND",
    "LONGEST_ID",
    "clean",
    "count_of",
    "decode_column",
    "id_of",
    "list_of",
    "microseconds_of",
    "object_of",
    "text_of",
]

LONGEST_ID: Final = 255
"""How long an id may be, in characters, so that the session can go on here."""

LAST_SECOND: Final = 253_402_300_799
"""The last second of the year 9999, since the epoch; no time behind it can be shown."""

_MOST_COUNT: Final = (1 << 53) - 1
_NESTED: Final = 3
_TOO_DEEP: Final = BadJson(f"nested deeper than {MAX_DEPTH} levels")


class _Deep(Exception):
    """Leaves the walk through a value; never leaves this module."""


def _integer(text: str) -> int | None:
    return int(text) if len(text) <= MAX_DIGITS else None


def _real(text: str) -> float | None:
    value = float(text)
    return None if math.isinf(value) else value


def _constant(_: str) -> None:
    """Return nothing for NaN and the infinities, which are no JSON."""


_decode: Final = json.JSONDecoder(
    parse_int=_integer, parse_float=_real, parse_constant=_constant
).decode


def decode_column(text: str | None) -> Any | BadJson:
    """Return the value of a column with JSON, which may stand in a string, and that in another.

    An absent column is None.  The value is as it was read: `clean` makes it storable.
    """
    value: Any = text
    for _ in range(_NESTED):
        if not isinstance(value, str):
            return value
        try:
            value = _decode(value)
        except json.JSONDecodeError as error:
            return BadJson(f"not JSON at line {error.lineno}, column {error.colno}")
        except RecursionError:
            return _TOO_DEEP
    return value


def clean(value: Any, depth: int = MAX_DEPTH) -> Any | BadJson:
    """Return `value` with texts that can be stored; it is nested `depth` levels at most."""
    try:
        return _clean(value, depth)
    except _Deep:
        return _TOO_DEEP


def _clean(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return storable(value)
    if is_array(value) and depth:
        return [_clean(item, depth - 1) for item in value]
    if is_object(value) and depth:
        return {storable(name): _clean(item, depth - 1) for name, item in value.items()}
    if isinstance(value, list | dict):
        raise _Deep
    return value


def text_of(value: object) -> str:
    """Return `value` if it is text, else an empty one."""
    return value if isinstance(value, str) else ""


def object_of(value: object) -> Mapping[str, Any]:
    """Return `value` if it is an object, else an empty one."""
    return value if is_object(value) else {}


def list_of(value: object) -> list[Any]:
    """Return `value` if it is a list, else an empty one."""
    return [*value] if is_array(value) else []


def id_of(value: object) -> str | None:
    """Return `value` if it is an id that a path can name, and that is not too long."""
    if not isinstance(value, str) or len(value) > LONGEST_ID or not is_segment(value):
        return None
    return value if storable(value) == value else None


def count_of(value: object) -> int:
    """Return a count of tokens; older releases keep one for each answer of the model, in a list."""
    if is_array(value):
        return min(sum(count_of(item) for item in value), _MOST_COUNT)
    if type(value) is not int or value < 0:
        return 0
    return min(value, _MOST_COUNT)


def microseconds_of(seconds: object, otherwise: int = 0) -> int:
    """Return a time in seconds since the epoch as microseconds; `otherwise` where it is none."""
    if type(seconds) not in (int, float):
        return otherwise
    found = cast(float, seconds)
    return round(found * 1_000_000) if 0 < found <= LAST_SECOND else otherwise
