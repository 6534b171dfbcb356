"""The two encodings of JOSE, read strictly: base64url and JSON objects.

What is signed is text, what is decided on are values; a text that two readers could read
differently is refused here, before either of them matters (RFC 8725 sections 2.4 and 3.7).
"""

from __future__ import annotations

import json
import re
from binascii import a2b_base64
from math import isfinite
from typing import Any, Final, NoReturn, cast

__all__ = ["Malformed", "decode_base64url", "decode_header", "decode_object", "is_clean"]

MAX_DEPTH: Final = 16
MAX_DIGITS: Final = 60

# From the alphabet of base64url to that of base64, whose own + and / become no letters at all.
_TO_BASE64: Final = bytes.maketrans(b"-_+/=", b"+/!!!")

# The last character of an incomplete group carries 4 or 2 bits that stand for nothing.  They are
# zero, or one value would have several texts (RFC 4648 section 3.5).
_TAILS: Final = {2: frozenset(b"AQgw"), 3: frozenset(b"AEIMQUYcgkosw048")}
_PADDING: Final = (b"", b"===", b"==", b"=")

_WHITESPACE: Final = " \t\n\r"
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
# One without an end is taken too, or each quotation mark in it would be a new beginning.
_STRINGS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?')
_TO_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


class Malformed(ValueError):
    """The text is not what it claims to be.  The message quotes nothing of it."""


def decode_base64url(text: bytes) -> bytes:
    """Decode `text`: without padding, in the one canonical spelling (RFC 7515 section 2).

    Raises:
        Malformed: Another alphabet, padding, an impossible length, or stray bits at the end.
    """
    spare = len(text) & 3
    if spare > 1 and text[-1] not in _TAILS[spare]:
        raise Malformed("not canonical base64url")
    try:
        return a2b_base64(text.translate(_TO_BASE64) + _PADDING[spare], strict_mode=True)
    except ValueError:
        raise Malformed("not base64url") from None


def is_clean(text: str) -> bool:
    """Tell whether `text` can be encoded: no half of a surrogate pair (RFC 8259 section 8.2)."""
    return text.isascii() or not _SURROGATES.search(text)


def decode_header(data: bytes) -> dict[str, Any]:
    """Decode `data`, the header of a token, as `decode_object` does.

    Whoever sent it has proven nothing yet, so no bracket is looked at twice: more than 16 of them,
    also in texts, are refused.  No parameter that is accepted has any.

    Raises:
        Malformed: As `decode_object`.
    """
    if _brackets(data) > MAX_DEPTH:
        raise Malformed("nested too deeply")
    return decode_object(data)


def decode_object(data: bytes) -> dict[str, Any]:
    """Decode `data` as one JSON object in UTF-8 (RFC 8259), as I-JSON wants it (RFC 7493).

    Names are unique in every object, numbers finite; nesting is at most 16 deep and an integer
    at most 60 digits long, so the cost is linear in the length.

    Raises:
        Malformed: Anything else, a byte order mark or a value after the object included.
    """
    if _brackets(data) > MAX_DEPTH:
        _check_depth(data)
    try:
        text = data.decode().strip(_WHITESPACE)
        value, end = _decode(text)
    except Malformed:
        raise
    except ValueError as error:
        raise Malformed("not JSON in UTF-8") from error
    if end != len(text):
        raise Malformed("something after the JSON value")
    if type(value) is not dict:
        raise Malformed("not a JSON object")
    return cast(dict[str, Any], value)


def _brackets(data: bytes) -> int:
    return data.count(b"[") + data.count(b"{")


def _check_depth(data: bytes) -> None:
    """Refuse deep nesting before the decoder, which recurses, sees it.

    What has brackets left after 16 rounds of taking out the innermost pairs is deeper, or is not
    balanced and no JSON either.
    """
    brackets = _STRINGS.sub(b"", data).translate(_TO_SQUARE, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise Malformed("nested too deeply")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise Malformed("a member name is repeated")
    return members


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise Malformed("a number is too long")
    return int(digits)


def _real(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise Malformed("a number is too large")
    return number


def _constant(_: str) -> NoReturn:
    raise Malformed("NaN or Infinity")


_decode: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_real, parse_constant=_constant
).raw_decode
