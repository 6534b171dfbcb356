"""What a model behind chat completions thinks, and is told again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.models.chat_thoughts import Thinking, tell_again
from legation.models.conversation import Thought
from legation.models.trouble import Trouble


def thinking(*parts: dict[str, Any]) -> Thinking:
    taken = Thinking()
    for part in parts:
        taken.take(part)
    return taken


def told_again(*parts: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {}
    for thought in thinking(*parts).thoughts("m"):
        assert thought.block.isascii()
        tell_again(thought, message)
    return message


def detail(kind: str, index: int | None = 0, **more: Any) -> dict[str, Any]:
    return {"reasoning_details": [{"type": f"reasoning.{kind}", "index": index, **more}]}


@pytest.mark.parametrize(
    ("parts", "seen"),
    [
        ([{"reasoning_content": "So\ud800"}, {"reasoning_content": " be it."}], "So\ufffd be it."),
        ([{"reasoning": "So "}, {"reasoning": "be it.", "reasoning_content": ""}], "So be it."),
        ([{"reasoning": "So", "reasoning_content": "So"}], "So"),
        ([{"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "So"}]}]}], "So"),
        ([{"content": [{"type": "thinking", "thinking": [1, {"text": 1}]}]}], ""),
        ([{"content": [{"thinking": "So"}, 1]}, {"reasoning": ["So"]}, {"content": "So"}], ""),
        ([{"reasoning": {"text": "So"}}, {"reasoning_content": 1}, {}], ""),
    ],
)
def test_what_can_be_seen(parts: list[dict[str, Any]], seen: str) -> None:
    assert thinking(*parts).visible_text() == seen


def test_only_what_was_asked_back_for_is_told_again() -> None:
    assert told_again({"reasoning": "Hm"}) == {}
    assert told_again({"reasoning_content": "a\ud800"}, {"reasoning_content": "b"}) == {
        "reasoning_content": "a\ud800b"
    }


def test_details_are_put_together_as_they_belong() -> None:
    parts = [
        detail("summary", summary="I "),
        detail("summary", summary="see", format=None),
        detail("text", text="So", signature=None),
        detail("text", text=" be it", signature="s="),
        detail("text", text=".", signature=None),
        detail("text", 1, text="Well"),
        detail("encrypted", 1, data="x=", id="a"),
        detail("encrypted", 1, data="y=", id="b"),
        detail("text", None, text="a"),
        detail("text", None, text="b"),
    ]

    blocks = [part["reasoning_details"][0] for part in parts]
    assert told_again(*parts) == {
        "reasoning_details": [
            {**blocks[0], "summary": "I see", "format": None},
            {**blocks[2], "text": "So be it.", "signature": "s="},
            *blocks[5:],
        ]
    }


@pytest.mark.parametrize("server", ["google", "vertex"])
def test_a_signature_stands_with_its_call(server: str) -> None:
    signed = {server: {"thought_signature": "S1g=="}}
    taken = thinking()
    taken.sign(1, {"extra_content": {**signed, "other": 1}})
    (thought,) = taken.thoughts("m")
    message: dict[str, Any] = {"tool_calls": [{"id": "a"}, {"id": "b"}]}
    tell_again(thought, message)

    assert (thought.model, thought.calls) == ("m", 1)
    assert message["tool_calls"] == [{"id": "a"}, {"id": "b", "extra_content": signed}]


@pytest.mark.parametrize("extra", [None, 1, {"google": 1}, {"google": {"thought_signature": 1}}])
def test_what_is_no_signature_is_none(extra: Any) -> None:
    taken = thinking()
    taken.sign(0, {"extra_content": extra})

    assert list(taken.thoughts("m")) == []


def test_what_could_not_be_sent_is_trouble() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]

    for value in (float("nan"), deep):
        with pytest.raises(Trouble, match="broke off"):
            list(thinking(detail("text", more=value)).thoughts("m"))


def test_what_a_provider_of_another_kind_thought_is_not_told_again() -> None:
    message: dict[str, Any] = {}
    tell_again(Thought("m", '{"type":"thinking","thinking":"a","signature":"s"}'), message)

    assert message == {}


NAMES = (
    "type index text summary data reasoning reasoning_content reasoning_details content thinking"
)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers(0, 2) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES.split()), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(st.sampled_from(NAMES.split()), JSON, max_size=4), max_size=4))
def test_any_json_can_be_told_again(parts: list[dict[str, Any]]) -> None:
    message = told_again(*parts)

    assert set(message) <= {"reasoning_content", "reasoning_details"}
    json.dumps(message, allow_nan=False)
    thinking(*parts).visible_text().encode()
