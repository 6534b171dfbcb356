"""What a provider sends, taken apart."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.models.conversation import ToolCall
from legation.models.provider_json import (
    Draft,
    arguments_of,
    count,
    finish_calls,
    is_table,
    items,
    json_value,
    require_table,
    table,
    text,
    verbatim,
)
from legation.models.trouble import SENTENCES, Trouble

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(st.text() | st.binary())
def test_any_document_has_a_value_or_none(document: str | bytes) -> None:
    value = json_value(document)

    assert value is None or is_table(value) or isinstance(value, (list, str, int, float))


@given(ANYTHING)
def test_any_value_is_what_it_is_taken_for_or_trouble(value: Any) -> None:
    kinds = (
        (table, dict),
        (items, list),
        (text, str),
        (verbatim, str),
        (require_table, dict),
    )
    for read, kind in kinds:
        if isinstance(value, kind) or (value is None and read is not require_table):
            assert isinstance(read(value), kind)
        else:
            with pytest.raises(Trouble, match=SENTENCES["broken"]):
                read(value)
    assert count(value) >= 0


def test_nothing_is_the_empty_value_where_it_may_be() -> None:
    assert (table(None), items(None), text(None), verbatim(None)) == ({}, [], "", "")
    assert count(None) == 0
    with pytest.raises(Trouble):
        require_table(None)


def test_a_string_is_storable_or_as_it_is() -> None:
    assert (text("a\0\ud800"), verbatim("a\0\ud800")) == ("a\ufffd\ufffd", "a\0\ud800")


drafts = st.builds(
    Draft,
    st.sampled_from(["", "a", "call_1", "call_2", "call_3"]),
    st.just("f"),
    st.lists(st.sampled_from(["", "{", "}"]), max_size=3),
)


@given(st.lists(drafts, max_size=5), st.sets(st.sampled_from(["a", "call_1", "call_2"])))
def test_ids_are_there_and_none_is_twice(made: list[Draft], taken: set[str]) -> None:
    calls = finish_calls(made, taken)

    ids = [call.id for call in calls]
    assert len(set(ids)) == len(ids) == len(made)
    assert not taken & set(ids)
    assert all(ids)
    assert calls == finish_calls(made, taken)


def test_an_id_that_is_free_is_kept() -> None:
    made = [Draft("a", "f", ["{}"]), Draft("", "g")]

    assert finish_calls(made, ()) == (ToolCall("a", "f", "{}"), ToolCall("call_2", "g", "{}"))


def test_arguments_come_as_text_or_as_the_object_itself() -> None:
    draft = Draft("a", "f")
    for value in ('{"x"', ":1}", {"y": "ü"}, None):
        draft.argue(value)

    assert "".join(draft.arguments) == '{"x":1}{"y":"ü"}'


@pytest.mark.parametrize("value", [{"n": float("nan")}, json.loads('{"n": 1e999}')])
def test_numbers_that_have_no_json_are_nonsense(value: Any) -> None:
    with pytest.raises(Trouble, match=SENTENCES["broken"]):
        Draft("a", "f").argue(value)


@pytest.mark.parametrize("reason", SENTENCES)
def test_trouble_says_nothing_of_the_provider(reason: str) -> None:
    trouble = Trouble(reason, passing=True, status=500, wait_seconds=3)

    assert str(trouble) == trouble.sentence == SENTENCES[reason]
    assert (trouble.passing, trouble.status, trouble.wait_seconds) == (True, 500, 3)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ('{"x":1}', {"x": 1}),
        ("", None),
        ("[1]", None),
        ('{"x":NaN}', None),
        ('{"x":1e999}', None),
        ('{"x":"\ud800"}', None),
        ('{"x":' * 1000 + "1" + "}" * 1000, None),
    ],
)
def test_arguments_are_told_again_where_they_can_be_written_again(text: str, given: Any) -> None:
    assert arguments_of(ToolCall("a", "f", text)) == given
