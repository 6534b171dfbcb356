from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.models.conversation import Image, Message, Thought, ToolCall, Usage
from legation.runs.turn_state import (
    CallState,
    MemberState,
    ModelTurn,
    Standing,
    TurnState,
    UnknownFormat,
    dump,
    load,
    unlike,
)

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
TIMES = st.integers(0, 1 << 53)
ARGUMENTS = st.dictionaries(
    TEXT, st.none() | st.booleans() | st.integers() | TEXT | st.lists(TEXT, max_size=2), max_size=3
)
MESSAGES = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    TEXT,
    st.lists(st.builds(ToolCall, TEXT, TEXT, TEXT), max_size=2).map(tuple),
    st.none() | TEXT,
    st.lists(st.builds(Image, TEXT, TEXT, st.none() | TEXT), max_size=1).map(tuple),
    st.lists(st.builds(Thought, TEXT, TEXT, TIMES, TIMES), max_size=1).map(tuple),
)


def calls(states: st.SearchStrategy[TurnState]) -> st.SearchStrategy[CallState]:
    member = st.builds(
        MemberState,
        run_id=TEXT,
        kind=st.just("agent"),
        component_id=TEXT,
        name=TEXT,
        created_us=TIMES,
        state=states,
    )
    return st.builds(
        CallState,
        call=st.builds(ToolCall, TEXT, TEXT, TEXT),
        created_us=TIMES,
        arguments=ARGUMENTS,
        standing=st.sampled_from(Standing),
        needs=st.none() | st.sampled_from([Standing.CONFIRM, Standing.EXTERNAL]),
        result=st.none() | TEXT,
        failed=st.booleans(),
        confirmed=st.none() | st.booleans(),
        started_us=st.none() | TIMES,
        member=st.none() | member,
    )


def states(inner: st.SearchStrategy[TurnState]) -> st.SearchStrategy[TurnState]:
    return st.builds(
        TurnState,
        before=st.lists(MESSAGES, max_size=2).map(tuple),
        said=st.lists(st.builds(ModelTurn, MESSAGES, TIMES), max_size=2).map(tuple),
        calls=st.lists(calls(inner), max_size=2).map(tuple),
        rounds=st.integers(0, 9),
        usage=st.builds(Usage, *[st.integers(0, 99)] * 5),
        first_seconds=st.none() | st.floats(0, 9),
        corrected=st.booleans(),
    )


STATES = states(states(st.just(TurnState())))


@given(STATES)
def test_a_state_goes_through_json_unchanged(state: TurnState) -> None:
    assert load(json.loads(json.dumps(dump(state)))) == state


def test_nothing_is_guessed_of_a_state_in_another_format() -> None:
    with pytest.raises(UnknownFormat):
        load({**dump(TurnState()), "format": 2})


def test_a_state_from_before_thoughts_and_caches_were_told_is_gone_on_with() -> None:
    message = Message("assistant", "a", (ToolCall("1", "f", "{}"),))
    state = TurnState(said=(ModelTurn(message, 1),), usage=Usage(1, 2))
    dumped = dump(state)
    del dumped["said"][0]["message"]["thoughts"]
    for name in ("reasoning_tokens", "cache_read_tokens", "cache_write_tokens"):
        del dumped["usage"][name]

    assert load(json.loads(json.dumps(dumped))) == state


def made(standing: Standing = Standing.DUE, **more: Any) -> CallState:
    return CallState(call=ToolCall("1", "f", "{}"), created_us=0, standing=standing, **more)


@pytest.mark.parametrize("standing", Standing)
def test_a_call_is_due_or_waits_or_is_done(standing: Standing) -> None:
    state = TurnState(calls=(made(standing),))

    assert [bool(state.due), state.waits, standing is Standing.DONE].count(True) == 1


def test_results_are_told_once_and_in_their_order() -> None:
    done = [made().with_result("a"), made().with_result("b", failed=True)]
    state = TurnState(calls=tuple(done)).with_results(5)

    assert [said.message.content for said in state.said] == ["a", "b"]
    assert state.with_results(6) is state


def test_what_was_said_and_what_it_cost_add_up() -> None:
    state = TurnState(before=(Message("system", "s"),)).with_message(Message("user", "u"), 1)
    state = state.with_reply(Message("assistant", "a"), Usage(1, 2, 1, 1, 0), 2, 0.5)
    state = state.with_reply(Message("assistant", "b"), Usage(3, 4, 0, 2, 3), 3, 9.0)

    assert [message.content for message in state.messages] == ["s", "u", "a", "b"]
    assert (state.rounds, state.usage, state.first_seconds) == (2, Usage(4, 6, 1, 3, 3), 0.5)


def test_the_call_that_is_the_answer_is_found() -> None:
    last = made().with_result("x", last=True)

    assert TurnState(calls=(made().with_result("y"), last)).last == last
    assert TurnState(calls=(made(),)).with_call(0, last).last == last
    assert TurnState().last is None


@pytest.mark.parametrize(
    ("call_id", "taken", "unique"),
    [("a", [], "a"), ("a", ["a"], "a-2"), ("a", ["a", "a-2"], "a-3"), ("", [], "call")],
)
def test_an_id_that_is_taken_becomes_another(call_id: str, taken: list[str], unique: str) -> None:
    assert unlike(call_id, taken) == unique
