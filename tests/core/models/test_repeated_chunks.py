"""Chunks that differ in their text alone, read as JSON has it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.models.repeated_chunks import RepeatedChunk


def chunk(content: Any = "a", delta: Any = None, choice: Any = None, **more: Any) -> dict[str, Any]:
    said: dict[str, Any] = {
        "index": 0,
        "delta": {"content": content, **(delta or {})},
        "finish_reason": None,
    }
    return {"id": "c1", **more, "choices": [said | (choice or {})]}


def learned(*values: Any) -> RepeatedChunk:
    repeated = RepeatedChunk()
    for value in values:
        repeated.learn(json.dumps(value), value)
    return repeated


texts = st.text() | st.sampled_from(['"', "\\", '"content":"', '","content":"', "\ud83d", "\0"])


@given(texts, texts, st.booleans(), st.sampled_from([None, (",", ":")]))
def test_a_chunk_with_another_text_is_read(
    first: str, second: str, to_ascii: bool, separators: tuple[str, str] | None
) -> None:
    write = json.JSONEncoder(ensure_ascii=to_ascii, separators=separators).encode
    repeated = RepeatedChunk()

    repeated.learn(write(chunk(first)), chunk(first))

    assert repeated.read(write(chunk(second))) == second


KEYS = ["content", "role", "delta", "choices", "usage", "index", "finish_reason", 'a"content', "\\"]
VALUES = st.recursive(
    texts | st.none() | st.integers(0, 1),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=5,
)
CHUNKS = st.builds(
    chunk,
    VALUES,
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=2),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=2),
    usage=st.none() | VALUES,
    x=VALUES,
)


@given(CHUNKS, CHUNKS | st.just(None), st.text(max_size=3), st.data())
def test_what_is_read_is_the_chunk_that_was_learned_with_another_text(
    first: Any, second: Any, text: str, data: st.DataObject
) -> None:
    written = json.dumps(first)
    repeated = learned(first)
    other = json.dumps(second)
    if second is None:  # any string, or what is none, anywhere
        at = sorted(data.draw(st.lists(st.integers(0, len(written)), min_size=2, max_size=2)))
        other = f"{written[: at[0]]}{text}{written[at[1] :]}"

    said = repeated.read(other)

    if said is not None:
        first["choices"][0]["delta"]["content"] = said
        assert json.loads(other) == first


@pytest.mark.parametrize(
    "other",
    [
        chunk(None),
        chunk(["a"]),
        chunk(delta={"refusal": "no"}),
        chunk(delta={"reasoning_content": "hm"}),
        chunk(delta={"tool_calls": [{"index": 0}]}),
        chunk(choice={"index": 1}),
        chunk(choice={"finish_reason": "stop"}),
        chunk(choice={"delta": "a"}),
        chunk(usage={"total_tokens": 1}),
        chunk(x={"content": "a"}),
        {"choices": ["a"]},
        {"choices": []},
        {"choices": {"content": "a"}},
        [],
    ],
    ids=str,
)
def test_a_chunk_that_has_more_than_a_text_is_not_learned(other: Any) -> None:
    assert learned(other).read(json.dumps(other)) is None


def test_members_that_are_null_and_a_role_say_nothing() -> None:
    silent = chunk(delta={"role": "assistant", "refusal": None, "tool_calls": None})

    assert learned(silent).read(json.dumps(silent)) == "a"


@pytest.mark.parametrize("written", [r'"c\u006fntent": "a"', '"content"  : "a"'])
def test_a_text_that_is_not_found_is_not_learned(written: str) -> None:
    data = f'{{"choices": [{{"delta": {{{written}}}}}]}}'
    repeated = RepeatedChunk()

    repeated.learn(data, json.loads(data))

    assert repeated.read(data) is None


@pytest.mark.parametrize("text", ['a"b', "a\\", "a\nb", "a\\x"])
def test_what_is_no_string_is_not_read(text: str) -> None:
    data = json.dumps(chunk("TEXT"))

    assert learned(chunk()).read(data.replace("TEXT", text)) is None


def test_an_answer_whose_chunks_are_all_different_is_not_learned_any_longer() -> None:
    padded = [chunk(obfuscation="x" * size) for size in range(6)]
    repeated = learned(*padded[:3])
    assert repeated.read(json.dumps(padded[2])) == "a"  # it came again

    for value in padded:
        repeated.learn(json.dumps(value), value)

    assert repeated.read(json.dumps(padded[3])) == "a"
    assert repeated.read(json.dumps(padded[5])) is None
