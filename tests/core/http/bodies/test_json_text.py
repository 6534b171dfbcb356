"""`parse_json`: a value that can be stored and written again, or a reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.http.bodies.json_text import MAX_DEPTH, MAX_DIGITS, BadJson, JsonValue, parse_json
from legation.http.messages import compact_json

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4)
)


@given(st.binary() | st.text('[]{}",:0123456789eE+-.\\unlltrefasNI \t\ufeff').map(str.encode))
def test_any_bytes_are_a_value_or_a_reason(body: bytes) -> None:
    parsed = parse_json(body)

    if not isinstance(parsed, BadJson):
        assert parse_json(compact_json(parsed).encode()) == parsed


@given(values, st.booleans())
def test_what_a_program_writes_is_read_back(value: JsonValue, ascii_only: bool) -> None:
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON at line 1, column 1"),
        (b"{\n'a': 1}", "not JSON at line 2, column 1"),
        (b"1 2", "not JSON at line 1, column 3"),
        (b"\xef\xbb\xbf1", "not JSON at line 1, column 1"),
        (b'"\xff"', "not UTF-8 at byte 1"),
        (b'"\xed\xa0\x80"', "not UTF-8 at byte 1"),
        (b'{"a":1,"a":1}', "an object with a member twice"),
        (b'[{"a":1,"\\u0061":2}]', "an object with a member twice"),
        (b"NaN", "NaN, which is no JSON number"),
        (b"[-Infinity]", "-Infinity, which is no JSON number"),
        (b"1e999", "a number beyond the range of a double"),
        (b"-1e999", "a number beyond the range of a double"),
        (b"9" * (MAX_DIGITS + 1), f"an integer of more than {MAX_DIGITS} characters"),
        (b'"\\ud800"', "a string with U+0000 or half of a surrogate pair"),
        (b'{"\\uDFFF":1}', "a string with U+0000 or half of a surrogate pair"),
        (b'[[{"a":["\\u0000"]}]]', "a string with U+0000 or half of a surrogate pair"),
        (b"\x00", "not JSON at line 1, column 1"),
    ],
)
def test_what_is_refused_and_why(body: bytes, reason: str) -> None:
    assert parse_json(body) == BadJson(reason)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b" \t\r\n1 ", 1),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\\\\u0000"', "\\u0000"),
        (b'["\\\\ud800"]', ["\\ud800"]),
        (b"9" * MAX_DIGITS, int("9" * MAX_DIGITS)),
        (b"1e308", 1e308),
        (b"0", 0),
        (b"false", False),
        (b"null", None),
    ],
)
def test_what_looks_like_it_but_is_accepted(body: bytes, value: JsonValue) -> None:
    assert parse_json(body) == value


@pytest.mark.parametrize(("before", "after"), [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize("leaf", [b"1", b"[]", b'{"b":2}'])
def test_the_depth_is_bounded_exactly(before: bytes, leaf: bytes, after: bytes) -> None:
    wrappings = MAX_DEPTH - (leaf != b"1")

    assert not isinstance(parse_json(before * wrappings + leaf + after * wrappings), BadJson)
    assert parse_json(before * (wrappings + 1) + leaf + after * (wrappings + 1)) == BadJson(
        f"nested deeper than {MAX_DEPTH} levels"
    )


@pytest.mark.parametrize("before", [b"[", b'{"a":'])
def test_a_bomb_of_brackets_is_only_too_deep(before: bytes) -> None:
    assert parse_json(before * 200_000) == BadJson(f"nested deeper than {MAX_DEPTH} levels")


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert parse_json(b"[" + b",".join([b"[]"] * 1000) + b"]") == [[]] * 1000
