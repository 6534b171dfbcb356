from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation import Agent, Platform
from legation.models.conversation import ToolCall
from legation.replay.comparing import (
    MAX_DIFF,
    Divergence,
    Replayed,
    agree,
    compare_admission,
    compare_definition,
    compare_outcome,
    make_diff,
)
from legation.runs.turn_state import CallState


def test_divergence_says_its_place_and_what_differs() -> None:
    one = Divergence("1.1", "book returns something else", "-a\n+b")
    end = Divergence("end", "The answer differs", behind=True)

    assert str(one) == "Place 1.1: book returns something else\n-a\n+b"
    assert str(end) == "The end (behind the divergence): The answer differs"


def test_replay_is_the_same_without_a_divergence() -> None:
    one, other = Divergence("1", "The tool look is gone"), Divergence("2", "More", behind=True)
    differs = Replayed((one, other))

    assert Replayed().same
    assert Replayed().first == ""
    assert str(Replayed()) == "The same as recorded"
    assert not differs.same
    assert differs.first == "Place 1: The tool look is gone"
    assert str(differs) == f"{differs.first}\n\nPlace 2 (behind the divergence): More"


@pytest.mark.parametrize(
    ("recorded", "now", "agrees"),
    [
        ("Book.", "Book.", True),
        ("Book.", "Sell.", False),
        ("Book for redacted-1------.", "Book for ann.", True),
        ("Book for redacted-1------.", "Sell to ann.", False),
        ("Book for redacted-1------.", "Book for ann!", False),
        ("From xxx1 to xxx2.", "From Oslo to Rome.", True),
        ("From xxx1 to xxx2.", "From Oslo.", False),
        ("From xxx1 by xxx3 to xxx2.", "From Oslo by sea to Rome.", True),
        ("From xxx1 by xxx3 to xxx2.", "From Oslo to Rome by sea.", False),
        ("aaxxx1aa", "aaa", False),
    ],
)
def test_placeholder_agrees_with_any_text(recorded: str, now: str, agrees: bool) -> None:
    assert agree(recorded, now) is agrees


@given(st.lists(st.sampled_from(["a", "ab", "b", ""]), min_size=1, max_size=4), st.text("ab"))
def test_what_was_replaced_by_placeholders_agrees(parts: list[str], value: str) -> None:
    assert agree("xxx1".join(parts), value.join(parts))


def test_diff_is_of_lines_and_of_members() -> None:
    assert make_diff("a\nb", "a\nc").endswith(" a\n-b\n+c")
    assert make_diff(None, "a").endswith("+a")
    assert make_diff('{"room":7}', '{"room":8}').endswith('-  "room": 7\n+  "room": 8\n }')
    assert make_diff('{"room":7', "{}").endswith('-{"room":7\n+{}')
    assert make_diff(7, 8).endswith("-7\n+8")


def test_long_diff_is_cut() -> None:
    diff = make_diff("\n".join(["a" * 40] * 900), "\n".join(["b" * 40] * 900))

    assert len(diff) < MAX_DIFF + 40
    assert diff.endswith("[cut: the diff is longer]")


def test_diff_far_behind_the_beginning_is_shown() -> None:
    before = [str(number) for number in range(9_000)]
    after = [*before[:-1], "the last"]

    diff = make_diff("\n".join(before), "\n".join(after))

    assert diff.endswith(" 8996\n 8997\n 8998\n-8999\n+the last")


def _call(standing: str | None, *, failed: bool = False) -> CallState:
    call = CallState(call=ToolCall("c1", "book", "{}"), created_us=0)
    return call if standing is None else call.with_result(standing, failed=failed)


def test_call_that_is_refused_in_other_words_says_so() -> None:
    before, now = _call("No room", failed=True), _call("No such room", failed=True)

    (one,) = compare_admission("1.1", before, now, "book")

    assert str(one).startswith("Place 1.1: book is refused in other words\n--- recorded")
    assert list(compare_admission("1.1", before, before, "book")) == []


def test_long_reason_is_cut() -> None:
    (one,) = compare_admission("1.1", _call(None), _call("x" * 999, failed=True), "book")

    assert one.sentence == f"book was carried out at once, and now is refused: {'x' * 300}…"


@pytest.mark.parametrize(
    ("recorded", "now", "sentence"),
    [
        (("a", False), ("b", False), "book returns something else"),
        (("a", True), ("b", True), "book fails otherwise"),
        (("a", False), ("a", True), "book returned a result, and now fails"),
        (("a", True), ("b", False), "book failed, and now returns a result"),
    ],
)
def test_outcome_says_how_it_differs(
    recorded: tuple[str, bool], now: tuple[str, bool], sentence: str
) -> None:
    (one,) = compare_outcome("1.1", "book", recorded, now, redacted=False)

    assert one.sentence == sentence


def test_outcome_is_the_same_as_json_and_behind_a_placeholder() -> None:
    before, now = ('{"a":1,"b":2}', False), ('{"b":2,"a":1}', False)
    hidden = ("redacted-1------", False)

    assert list(compare_outcome("1.1", "book", before, now, redacted=False)) == []
    assert list(compare_outcome("1.1", "book", hidden, now, redacted=True)) == []
    assert len(list(compare_outcome("1.1", "book", hidden, now, redacted=False))) == 1


def test_document_of_another_release_is_not_compared() -> None:
    agent = Platform(agents=[Agent(id="a")]).registry.agents["a"]
    document = json.loads(agent.definition.document)
    changed = {**document, "model": {"id": "gpt", "provider": "X"}}

    assert list(compare_definition("1", document, agent, ())) == []
    assert len(list(compare_definition("1", changed, agent, ()))) == 1
    assert list(compare_definition("1", {**changed, "tools": None}, agent, ())) == []
    assert list(compare_definition("1", {**document, "tools": [7]}, agent, ())) == []
