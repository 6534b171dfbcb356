from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from legation.models.conversation import ToolCall
from legation.refusals import Fault
from legation.runs.answers import Reply, answered, read_replies
from legation.runs.shapes import tool_execution
from legation.runs.turn_state import CallState, MemberState, Standing, TurnState

ARGUMENTS: dict[str, Any] = {"path": "/x", "depth": 1, "deep": {"list": [1, True, None]}}


def waits(what: Standing, call_id: str = "1", **arguments: Any) -> CallState:
    shown = arguments or ARGUMENTS
    call = ToolCall(call_id, "delete", json.dumps(shown))
    return CallState(call=call, created_us=0, arguments=shown, standing=what, needs=what)


CONFIRM, EXTERNAL = waits(Standing.CONFIRM), waits(Standing.EXTERNAL, "2")
DONE = evolve(waits(Standing.DUE, "0"), needs=None).done("ok")
PAUSED = TurnState(calls=(DONE, CONFIRM, EXTERNAL))


def replies(*items: Any) -> tuple[Reply, ...]:
    read = read_replies(list(items))
    assert not isinstance(read, str), read
    return read


def shown(call: CallState, **answer: Any) -> dict[str, Any]:
    return {**tool_execution(call), **answer}


def faults(state: TurnState, *items: Any) -> list[str]:
    found = answered(state, replies(*items))
    assert isinstance(found, tuple)
    return [fault.path for fault in found]


def settled(state: TurnState, *items: Any) -> TurnState:
    found = answered(state, replies(*items))
    assert isinstance(found, TurnState), found
    return found


def test_what_is_confirmed_is_due_and_what_was_done_outside_is_done() -> None:
    state = settled(
        PAUSED,
        shown(DONE),
        shown(CONFIRM, confirmed=True, confirmation_note="go"),
        shown(EXTERNAL, result="out"),
    )

    assert state.calls[0] == DONE
    assert (state.calls[1].standing, state.calls[1].confirmed) == (Standing.DUE, True)
    assert state.calls[1].arguments == ARGUMENTS
    assert (state.calls[2].standing, state.calls[2].result) == (Standing.DONE, "out")
    told = [tool_execution(call) for call in state.calls]
    assert told[1]["requires_confirmation"] is False
    assert told[2]["external_execution_required"] is False


@pytest.mark.parametrize(
    ("note", "result"),
    [
        (None, "Function call was rejected by the user"),
        ("not that one", "Function call was rejected by the user: not that one"),
    ],
)
def test_what_is_rejected_is_told_to_the_model(note: str | None, result: str) -> None:
    state = settled(
        TurnState(calls=(CONFIRM,)), shown(CONFIRM, confirmed=False, confirmation_note=note)
    )

    call = state.calls[0]
    assert (call.standing, call.result, call.failed) == (Standing.DONE, result, True)
    assert (call.confirmed, call.note) == (False, note)


def test_no_answer_at_all_rejects_what_was_to_be_confirmed() -> None:
    state = settled(TurnState(calls=(CONFIRM,)))

    assert state.calls[0].confirmed is False
    assert faults(PAUSED) == ["body.tools"]


@pytest.mark.parametrize(
    ("item", "path"),
    [
        (shown(CONFIRM), "confirmed"),
        (shown(CONFIRM, confirmed=True, tool_name="other"), "tool_name"),
        (shown(CONFIRM, confirmed=True, tool_args={**ARGUMENTS, "path": "/"}), "tool_args"),
        (shown(CONFIRM, confirmed=True, tool_args={**ARGUMENTS, "depth": True}), "tool_args"),
        (shown(CONFIRM, confirmed=True, tool_args={}), "tool_args"),
        (
            shown(CONFIRM, confirmed=True, tool_args={**ARGUMENTS, "deep": {"list": [1]}}),
            "tool_args",
        ),
        (shown(CONFIRM, confirmed=True, result="forged"), "result"),
        (shown(CONFIRM, confirmed=True, tool_call_id="9"), "tool_call_id"),
    ],
)
def test_an_answer_that_is_not_to_what_was_shown_is_refused(item: Any, path: str) -> None:
    assert f"body.tools[0].{path}" in faults(TurnState(calls=(CONFIRM,)), item)


def test_an_answer_may_leave_out_what_it_cannot_change_and_write_numbers_its_own_way() -> None:
    bare = {"tool_call_id": "1", "confirmed": True}
    other = shown(CONFIRM, confirmed=True, tool_args={**ARGUMENTS, "depth": 1.0})

    for item in (bare, other):
        assert settled(TurnState(calls=(CONFIRM,)), item).calls[0].arguments == ARGUMENTS


def test_a_part_of_the_answers_is_none() -> None:
    assert faults(PAUSED, shown(CONFIRM, confirmed=True)) == ["body.tools"]
    assert faults(PAUSED, shown(CONFIRM, confirmed=True), shown(EXTERNAL)) == [
        "body.tools[1].result"
    ]


def test_an_answer_given_twice_is_refused() -> None:
    both = shown(CONFIRM, confirmed=True)

    assert faults(TurnState(calls=(CONFIRM,)), both, both) == ["body.tools[1].tool_call_id"]


def test_a_result_from_outside_may_be_any_json() -> None:
    state = settled(TurnState(calls=(EXTERNAL,)), shown(EXTERNAL, result={"n": [1]}))

    assert state.calls[0].result == '{"n":[1]}'


def member(call: CallState, run_id: str) -> CallState:
    state = MemberState(
        run_id=run_id,
        kind="agent",
        component_id="m",
        name="M",
        created_us=0,
        state=TurnState(calls=(call,)),
    )
    outer = ToolCall(run_id, "delegate_task_to_member", "{}")
    return CallState(call=outer, created_us=0, standing=Standing.MEMBER, member=state)


def test_members_of_a_team_may_ask_under_the_same_id() -> None:
    one, other = waits(Standing.CONFIRM, "1", path="/a"), waits(Standing.CONFIRM, "1", path="/b")
    team = TurnState(calls=(DONE, member(one, "m1"), member(other, "m2")))
    state = settled(team, shown(other, confirmed=True), shown(one, confirmed=False))

    found = [call.member.state.calls[0] for call in state.calls if call.member is not None]
    assert [call.confirmed for call in found] == [False, True]
    assert [call.standing for call in state.calls[1:]] == [Standing.DUE, Standing.DUE]


def test_a_call_of_a_member_that_is_over_may_be_shown_again() -> None:
    asking = member(CONFIRM, "m1")
    assert asking.member is not None
    inner = evolve(asking.member, state=TurnState(calls=(DONE, CONFIRM)))
    team = TurnState(calls=(evolve(asking, member=inner),))

    state = settled(team, shown(DONE), shown(CONFIRM, confirmed=True))
    assert state.calls[0].standing is Standing.DUE


@pytest.mark.parametrize(
    ("items", "what"),
    [
        ([1], "item 0 is no object"),
        ([dict[str, Any]()], "item 0 has no tool_call_id"),
        ([{"tool_call_id": 1}], "tool_call_id of item 0 is not a string"),
        ([{"tool_call_id": "1", "tool_args": list[Any]()}], "tool_args of item 0 is not an object"),
        ([{"tool_call_id": "1", "confirmed": "yes"}], "confirmed of item 0 is not true or false"),
    ],
)
def test_what_has_no_structure_is_told_so(items: list[Any], what: str) -> None:
    assert read_replies(items) == what


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=10,
)
ITEM = st.fixed_dictionaries(
    {},
    optional={
        "tool_call_id": st.sampled_from(["0", "1", "2", "3", ""]) | JSON,
        "tool_name": st.just("delete") | JSON,
        "tool_args": st.just(ARGUMENTS) | JSON,
        "confirmed": st.booleans() | JSON,
        "confirmation_note": JSON,
        "result": JSON,
    },
)


@given(st.lists(ITEM | JSON, max_size=4))
def test_whatever_is_sent_a_call_is_executed_as_it_was_shown_or_not_at_all(
    items: list[Any],
) -> None:
    read = read_replies(items)
    if isinstance(read, str):
        return
    state = answered(PAUSED, read)
    if isinstance(state, tuple):
        assert all(isinstance(fault, Fault) for fault in state)
        return
    assert not state.waits
    for before, after in zip(PAUSED.calls, state.calls, strict=True):
        assert (after.call, after.arguments) == (before.call, before.arguments)
