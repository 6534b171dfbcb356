from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as data_field
from datetime import UTC, datetime
from typing import Any, TypedDict

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from legation import Run
from legation.store.session_state import NO_CHANGE, StateChange, apply
from legation.tools import read_given
from legation.tools.context_parameter import read_context
from legation.tools.state_values import Unstorable, combine_changes, compare_state, encode_state


@define
class Cart:
    """A cart; `_since` is given as `since`."""

    items: list[str] = field(factory=list[str])
    _since: datetime | None = field(default=None, alias="since")
    seen: int = field(default=0, init=False)


@dataclass
class Note:
    """A note."""

    text: str = ""
    tags: list[str] = data_field(default_factory=list[str])


class Step(TypedDict, total=False):
    """Where a conversation stands."""

    step: int


class Whole:
    """A value of an author's that says no object."""

    def __str__(self) -> str:
        return "whole"


def shape_of_state(hint: Any) -> Any:
    found = read_context("run", Run[None, hint])
    assert found is not None
    return found.state


UNTYPED = shape_of_state(dict[str, Any])


def changed(hint: Any, stored: dict[str, Any], change: Any) -> StateChange:
    """Return what `change` does to a state, as a tool that takes it as `hint` would."""
    shape = shape_of_state(hint)
    state = read_given(shape, "state", stored)
    before = encode_state(shape, state)
    return compare_state(shape, before, change(state) or state)


@pytest.mark.parametrize("hint", [dict[str, Any], Any, Mapping[str, Any]])
def test_keys_are_compared_by_their_json(hint: Any) -> None:
    def change(state: Any) -> None:
        state["cart"].append("milk")
        state["new"] = {"a": [1, None, True, 1.5, "ä"]}
        state["same"] = {"x": 1}
        state["pair"] = (1, 2)
        del state["old"]

    stored = {"cart": ["tea"], "same": {"x": 1}, "old": 1, "other": "left alone"}

    assert changed(hint, stored, change) == StateChange(
        (
            ("cart", '["tea","milk"]'),
            ("new", '{"a":[1,null,true,1.5,"ä"]}'),
            ("pair", "[1,2]"),
        ),
        ("old",),
    )
    assert changed(hint, stored, lambda _: None) == NO_CHANGE
    assert changed(hint, stored, lambda _: {"other": 1}).deleted == ("cart", "same", "old")


def test_fields_of_a_class_are_keys_and_what_it_does_not_have_is_left_alone() -> None:
    def change(cart: Cart) -> None:
        cart.items.append("milk")
        cart.seen = 3

    assert changed(Cart, {"items": ["tea"], "x": 1}, change) == StateChange(
        (("items", '["tea","milk"]'),)
    )
    assert changed(Cart, {}, lambda _: None) == NO_CHANGE
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert changed(Cart, {}, lambda _: Cart(since=moment)) == StateChange(
        (("since", '"2026-01-01T00:00:00+00:00"'),)
    )
    assert changed(Note, {"text": "a"}, lambda _: Note("a", ["b"])).keys == ("tags",)
    assert changed(Step, {"step": 1, "x": 2}, dict[str, int].clear).deleted == ("step",)
    assert changed(None, {"x": 1}, lambda _: None) == NO_CHANGE


NESTED = json.loads("[" * 70 + "]" * 70)
CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        b"bytes",
        {1, 2},
        float("nan"),
        float("inf"),
        NESTED,
        CIRCLE,
        "\0",
        "\ud800",
        {"a": [{1: 2}]},
    ],
    ids=["object", "bytes", "set", "nan", "inf", "nested", "circle", "nul", "half", "number"],
)
def test_what_json_does_not_have_is_refused_and_named(value: Any) -> None:
    with pytest.raises(Unstorable) as caught:
        changed(dict[str, Any], {}, lambda _: {"fine": 1, "cart": value})

    assert "cart" in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("hint", "state", "sentence"),
    [
        (dict[str, Any], ["tea"], "state must be an object"),
        (dict[str, Any], {1: 2}, "state has a key that is no text"),
        (dict[str, Any], {"\ud800": 1}, "half of a surrogate pair"),
        (dict[str, int], {"n": "one"}, "state.n must be an integer"),
        (Cart, Cart(items=[object()]), "state.… has a value that JSON does not have"),  # type: ignore[list-item]
        (Cart, Cart(items=[7]), "state.items[0] must be a string"),  # type: ignore[list-item]
        (Cart, Whole(), "state must be an object"),
        (Cart, None, "state must be an object"),
    ],
)
def test_state_that_could_not_be_read_again_is_refused(
    hint: Any, state: Any, sentence: str
) -> None:
    with pytest.raises(Unstorable) as caught:
        compare_state(shape_of_state(hint), {"before": "1"}, state)

    assert sentence in str(caught.value)


def test_the_last_of_several_changes_counts() -> None:
    first = StateChange((("a", "1"), ("b", "1")), ("c", "d"))
    second = StateChange((("c", "2"), ("a", "2")), ("b",))

    assert combine_changes(first, second) == StateChange((("a", "2"), ("c", "2")), ("b", "d"))
    assert combine_changes() == NO_CHANGE


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab\0ä\ud800", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=6,
)
STATES = st.dictionaries(st.text("abc", max_size=2), JSON, max_size=4)


@given(before=STATES, after=STATES)
def test_change_leads_from_one_state_to_the_other(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    try:
        change = compare_state(UNTYPED, encode_state(UNTYPED, before), after)
    except Unstorable:
        assert any(mark in repr(after) for mark in ("\\x00", "\\ud800"))
    else:
        stored = apply(json.dumps(before), change)
        assert json.loads(stored) == after
