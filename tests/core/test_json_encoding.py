from __future__ import annotations

import json
from collections import OrderedDict
from enum import Enum, IntEnum, StrEnum
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from legation.http.messages import compact_json
from legation.json_encoding import decode, make_encode, quote, scan_string
from legation.store.audit_entries import encode_json

STRICT: Final = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, check_circular=False, allow_nan=False
)
ASCII: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False)
SORTED: Final = json.JSONEncoder(check_circular=False, sort_keys=True, skipkeys=True)
WITH_DEFAULT: Final = json.JSONEncoder(check_circular=False, default=repr)
ENCODERS: Final = (STRICT, ASCII, SORTED, WITH_DEFAULT)


class Color(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Kind(Enum):
    ANY = "any"


class Text(str):
    __slots__ = ()


class Number(float):
    __slots__ = ()


TEXTS: Final = st.text() | st.text(st.characters(categories=("Cs", "Cc", "Zl", "Zp", "So")))
NUMBERS: Final = st.integers() | st.integers(min_value=10**18, max_value=10**40) | st.floats()
SCALARS: Final = (
    st.none()
    | st.booleans()
    | NUMBERS
    | TEXTS
    | st.sampled_from((Color.RED, Level.HIGH, Kind.ANY, Text("a"), Number(1e16), b"bytes", {1}, 1j))
)
KEYS: Final = st.none() | st.booleans() | NUMBERS | TEXTS | st.sampled_from((Color.RED, (1, 2)))
VALUES: Final = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(KEYS, inner)
        | st.dictionaries(st.text(), inner).map(OrderedDict)
    ),
    max_leaves=12,
)


def outcome(encode: Any, value: Any) -> Any:
    try:
        return encode(value)
    except (TypeError, ValueError) as error:
        return type(error), str(error)


@given(VALUES, st.sampled_from(ENCODERS))
@example('\ud800 \u2028 \u2029 \x00 \x7f \u0085 \U0001f600 " \\ / \b\f\n\r\t', STRICT)
@example([1e16, 1e-5, 1e-4, 5e-324, -0.0, 1e22, 123456789012345680.0, 0.1 + 0.2], STRICT)
@example({"a": float("nan")}, STRICT)
@example({"a": float("inf")}, ASCII)
@example({1: 1, "1": 2, None: 3, False: 4, 1.5: 5}, STRICT)
def test_the_text_is_that_of_the_standard_library(value: Any, encoder: json.JSONEncoder) -> None:
    assert outcome(make_encode(encoder), value) == outcome(encoder.encode, value)


@given(VALUES)
def test_the_encoders_of_the_tree_are_those(value: Any) -> None:
    assert outcome(compact_json, value) == outcome(STRICT.encode, value)
    assert outcome(encode_json, value) == outcome(ASCII.encode, value)


@given(
    VALUES.map(lambda value: outcome(ASCII.encode, value)).filter(lambda made: type(made) is str)
)
def test_a_text_means_what_it_does_to_the_standard_library(text: str) -> None:
    assert repr(decode(text)) == repr(json.loads(text))


@pytest.mark.parametrize("text", ["", " ", " {}", "[1] ", "{}x", "[1,", "nul", "\ufeff1", "\n1\t"])
def test_a_text_with_something_around_it_is_read_by_the_standard_library(text: str) -> None:
    assert outcome(decode, text) == outcome(json.loads, text)


@given(TEXTS)
def test_a_text_is_quoted_as_an_encoder_does(text: str) -> None:
    assert outcome(quote, text) == outcome(STRICT.encode, text)


def test_what_is_nested_too_deep_is_the_same_error() -> None:
    deep: list[Any] = []
    for _ in range(200_000):
        deep = [deep]

    for encode in (STRICT.encode, compact_json):
        with pytest.raises(RecursionError):
            encode(deep)


def refuse(*_: object) -> None:
    raise TypeError("made in another way")


@pytest.mark.parametrize("make", [None, refuse])
def test_a_python_without_such_an_encoder_has_its_own(make: Any) -> None:
    encode = make_encode(STRICT, make)

    assert encode({"a": [1, None]}) == '{"a":[1,null]}'
    assert encode == STRICT.encode


def test_an_encoder_that_looks_for_cycles_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be shared"):
        make_encode(json.JSONEncoder())


@given(st.text(), st.sampled_from([json.dumps, quote]))
def test_a_string_in_a_text_is_read_to_its_end(text: str, write: Any) -> None:
    string = write(text)

    assert scan_string(f"[{string},1]", 2) == (text, 1 + len(string))
    with pytest.raises(ValueError, match=r"Unterminated|Invalid"):
        scan_string(string[:-1], 1)
