"""base64url and JSON, read strictly."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legation.access.jose import Malformed, decode_base64url, decode_header, decode_object, is_clean

ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@given(st.binary())
def test_base64url_comes_back(data: bytes) -> None:
    assert decode_base64url(urlsafe_b64encode(data).rstrip(b"=")) == data


@pytest.mark.parametrize("length", [1, 2, 3])
def test_every_short_text_is_the_one_spelling_of_its_value_or_refused(length: int) -> None:
    values: dict[bytes, bytes] = {}
    for last in ALPHABET:
        text = b"Az"[: length - 1] + bytes([last])
        try:
            value = decode_base64url(text)
        except Malformed:
            continue
        assert urlsafe_b64encode(value).rstrip(b"=") == text
        assert values.setdefault(value, text) == text
    assert len(values) == {1: 0, 2: 4, 3: 16}[length]


@pytest.mark.parametrize(
    "text",
    [b"QQ==", b"QUI=", b"QU+B", b"QU/B", b"QU B", b"QUB\n", b"QUI!", b"Q\x00==", b"\xc3\xa4"],
)
def test_padding_and_other_alphabets_are_refused(text: bytes) -> None:
    with pytest.raises(Malformed):
        decode_base64url(text)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"  ",
        b"[]",
        b'"text"',
        b"1",
        b"null",
        b"{",
        b"{}}",
        b"{} {}",
        b"{'a':1}",
        b'{"a":1,}',
        b'{"a":01}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":-1e999}',
        b'{"a":' + b"1" * 61 + b"}",
        b'{"a":' + b"1" * 5000 + b"}",
        b'{"a":1,"a":2}',
        b'{"a":1,"\\u0061":2}',
        b'{"a":{"b":1,"b":1}}',
        b'{"a":"\n"}',
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        "{}".encode("utf-16-le"),
        "{}".encode("utf-32-be"),
        b"\x0b{}",
        b"{}\x00",
        b'{"a":' + b"[" * 16 + b"]" * 16 + b"}",
        b'{"a":' + b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a":["' + b"[" * 100,
        b'{"a":' + b"[" * 17 + b'"\\' * 3000,
        b'{"a":' + b"[" * 17 + b'"\\\n' * 3000,
    ],
)
def test_what_is_not_one_plain_object_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode_object(data)


PLAIN: list[tuple[bytes, Any]] = [
    (b"{}", {}),
    (b' \t\r\n{"a" : 1 }\n', {"a": 1}),
    (b'{"a":' + b"1" * 60 + b"}", {"a": int("1" * 60)}),
    (b'{"a":-1.5e2}', {"a": -150.0}),
    (b'{"a":' + b"[" * 15 + b"]" * 15 + b"}", None),
    (b'{"a":[' + b"{}," * 99 + b"{}]}", {"a": [{}] * 100}),
    (b'{"a":"' + b"[" * 99 + b'\\"{"}', {"a": "[" * 99 + '"{'}),
    (b'{"\xc3\xa4":"\\ud800"}', {"ä": "\ud800"}),
]


@pytest.mark.parametrize(("data", "value"), PLAIN)
def test_plain_objects_are_read(data: bytes, value: object) -> None:
    decoded = decode_object(data)

    assert value is None or decoded == value


def test_a_header_with_many_brackets_is_refused_wherever_they_stand() -> None:
    assert decode_header(b'{"kid":"' + b"[" * 15 + b'"}') == {"kid": "[" * 15}
    for data in (b'{"kid":"' + b"[" * 16 + b'"}', b'{"a":[' + b"{}," * 16 + b"{}]}"):
        assert decode_object(data)
        with pytest.raises(Malformed, match="nested too deeply"):
            decode_header(data)


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def members(value: Any) -> list[Any]:
    return [*value.values()] if isinstance(value, dict) else [*value]


def depth(value: Any) -> int:
    if not isinstance(value, list | dict):
        return 0
    return 1 + max(map(depth, members(value)), default=0)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=3), st.booleans())
@settings(max_examples=40)
def test_what_json_writes_is_read_as_it_was(value: dict[str, Any], ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    if depth(value) > 16 or any(len(str(n)) > 60 for n in numbers(value)):
        with pytest.raises(Malformed):
            decode_object(data)
    else:
        assert decode_object(data) == value


def numbers(value: Any) -> list[int]:
    if isinstance(value, list | dict):
        return [number for item in members(value) for number in numbers(item)]
    return [abs(value)] if isinstance(value, int) else []


@given(st.binary() | st.text(alphabet='{}[]":,\\1aeE+-.u').map(str.encode))
def test_any_bytes_are_an_object_or_malformed(data: bytes) -> None:
    with suppress(Malformed):
        assert isinstance(decode_object(data), dict)


@given(st.text(alphabet=st.characters(codec=None)))
def test_clean_text_is_what_can_be_encoded(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        assert not is_clean(text)
    else:
        assert is_clean(text)


def test_half_a_surrogate_pair_is_not_clean() -> None:
    assert not is_clean("a\ud800")
    assert not is_clean("\udfff")
    assert is_clean("\ud7ff\ue000\U0001f600")
