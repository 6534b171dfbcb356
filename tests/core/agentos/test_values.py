"""Values of a foreign database: whatever stands there, what comes out can be stored, or is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legation.agentos.values import (
    LAST_SECOND,
    clean,
    count_of,
    decode_column,
    id_of,
    list_of,
    microseconds_of,
    object_of,
    text_of,
)
from legation.http.bodies.json_text import BadJson, parse_json
from legation.http.messages import compact_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=20,
)


@settings(max_examples=25)
@given(value=VALUES, times=st.integers(0, 2))
def test_what_python_writes_comes_out_storable_or_with_a_reason(value: Any, times: int) -> None:
    text = json.dumps(value)
    for _ in range(times):
        text = json.dumps(text)
    read = decode_column(text)
    cleaned = read if isinstance(read, BadJson) else clean(read)

    if isinstance(cleaned, BadJson):
        assert cleaned.reason
    else:
        assert not isinstance(parse_json(compact_json(cleaned).encode(), 70), BadJson)


@settings(max_examples=25)
@given(text=st.text())
def test_any_text_is_a_value_or_is_refused(text: str) -> None:
    read = decode_column(text)

    assert isinstance(read, BadJson) or clean(read) is not Ellipsis


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (None, None),
        ("null", None),
        ('"null"', None),
        ('{"a": NaN, "b": -Infinity, "c": 1e999}', {"a": None, "b": None, "c": None}),
        (f"[{'9' * 401}, {'9' * 400}, 1.5]", [None, int("9" * 400), 1.5]),
        (json.dumps(json.dumps({"a": 1})), {"a": 1}),
        ('{"a": 1, "a": 2}', {"a": 2}),
        (json.dumps(json.dumps(json.dumps("1"))), "1"),
    ],
)
def test_documents(text: str | None, value: Any) -> None:
    assert decode_column(text) == value


@pytest.mark.parametrize("text", ["", "{", "nonsense", '"nonsense"', "[" * 100_000])
def test_what_is_no_json_has_a_reason(text: str) -> None:
    assert isinstance(decode_column(text), BadJson)


def test_texts_are_made_storable_and_depth_is_bounded() -> None:
    deep: Any = []
    for _ in range(64):
        deep = [deep]

    assert clean({"a\0": ["\ud800x"]}) == {"a\ufffd": ["\ufffdx"]}
    assert isinstance(clean(deep), BadJson)
    assert clean(deep[0]) == deep[0]
    assert isinstance(clean({"a": {}}, 1), BadJson)


@pytest.mark.parametrize(
    "value", [None, 1, "a" * 256, "", ".", "..", "a;b", "a\\b", "\ud800", "a\n"]
)
def test_what_no_path_can_name_is_no_id(value: object) -> None:
    assert id_of(value) is None


@pytest.mark.parametrize("value", ["a", "a/b", "a" * 255, "ключ", "a b", "%2e"])
def test_ids_are_kept(value: str) -> None:
    assert id_of(value) == value


def test_other_types_count_as_absent() -> None:
    assert (text_of(1), text_of("a")) == ("", "a")
    assert (object_of([]), object_of({"a": 1})) == ({}, {"a": 1})
    assert (list_of("ab"), list_of([1])) == ([], [1])


@pytest.mark.parametrize(
    ("value", "count"),
    [(3, 3), (-1, 0), (True, 0), (1.5, 0), ("3", 0), ([1, [2], "x"], 3), (1 << 80, (1 << 53) - 1)],
)
def test_counts(value: object, count: int) -> None:
    assert count_of(value) == count


@pytest.mark.parametrize(
    ("seconds", "us"),
    [
        (1, 1_000_000),
        (1.5, 1_500_000),
        (True, 7),
        ("1", 7),
        (0, 7),
        (LAST_SECOND + 1, 7),
        (None, 7),
    ],
)
def test_times(seconds: object, us: int) -> None:
    assert microseconds_of(seconds, 7) == us
