from __future__ import annotations

from attrs import evolve

from legation.models.conversation import Message, ToolCall
from legation.runs.payloads import (
    call_sentence,
    find_waiting,
    messages,
    recall,
    requirements,
    tool_execution,
)
from legation.runs.turn_state import CallState, MemberState, ModelTurn, Standing, TurnState

CALL = ToolCall("1", "look", '{"path":"/x","deep":{"a":[1]}}')
DUE = CallState(call=CALL, created_us=5_000_000, arguments={"path": "/x", "deep": {"a": [1]}})
DONE = evolve(DUE.with_result("full"), started_us=6_000_000, ended_us=6_500_000)
CONFIRM = evolve(DUE, standing=Standing.CONFIRM, needs=Standing.CONFIRM)

# All keys of the reference's class, in its order.
KEYS = [
    *("tool_call_id", "tool_name", "tool_args", "tool_call_error", "result", "metrics"),
    *("child_run_id", "stop_after_tool_call", "created_at", "requires_confirmation", "confirmed"),
    *("confirmation_note", "requires_user_input", "user_input_schema", "user_feedback_schema"),
    *("answered", "external_execution_required", "external_execution_silent", "approval_type"),
    "approval_id",
]


def test_a_call_has_every_member_of_the_reference_at_every_time() -> None:
    for call in (DUE, DONE, CONFIRM):
        assert list(tool_execution(call)) == KEYS


def test_a_call_says_what_it_needs_and_needed() -> None:
    external = evolve(DUE, standing=Standing.EXTERNAL, needs=Standing.EXTERNAL)
    calls = [tool_execution(call) for call in (DUE, CONFIRM, evolve(CONFIRM, confirmed=True))]

    assert [one["requires_confirmation"] for one in calls] == [None, True, True]
    assert tool_execution(CONFIRM.with_result("x"))["requires_confirmation"] is False
    assert tool_execution(external)["external_execution_required"] is True
    assert tool_execution(external.with_result("x"))["external_execution_required"] is False


def test_call_in_doubt_says_so_and_nothing_that_was_said_of_it_before() -> None:
    before = evolve(CONFIRM, confirmed=True, note="go", started_us=6_000_000)
    doubtful = evolve(before, in_doubt=True)
    expected = {"confirmed": None, "confirmation_note": None, "in_doubt": True}

    assert tool_execution(doubtful) == {**tool_execution(before), **expected}
    assert tool_execution(evolve(doubtful, needs=None))["requires_confirmation"] is True
    assert list(tool_execution(doubtful)) == [*KEYS, "in_doubt"]
    for over in (evolve(doubtful, standing=Standing.DUE), doubtful.with_result("x"), before):
        assert "in_doubt" not in tool_execution(over)


def test_a_call_that_is_over_says_how_long_it_took_and_whether_it_failed() -> None:
    call = tool_execution(DONE)

    assert call["metrics"] == {"start_time": 6.0, "end_time": 6.5, "duration": 0.5}
    assert (call["tool_call_error"], call["result"]) == (False, "full")
    assert tool_execution(DUE.with_result("no", failed=True))["tool_call_error"] is True
    assert tool_execution(DUE)["tool_call_error"] is None


def test_the_sentence_about_a_call_is_short() -> None:
    long = evolve(DONE, arguments={"path": "x" * 201})

    assert call_sentence(DONE) == 'look(path=/x, deep={"a": [1]}) completed in 0.5000s. '
    assert call_sentence(long) == "look(path=...) completed in 0.5000s. "


def test_what_a_member_of_a_team_waits_for_is_told_with_its_name() -> None:
    member = MemberState(
        run_id="m",
        kind="agent",
        component_id="b",
        name="B",
        created_us=0,
        state=TurnState(calls=(DONE, CONFIRM)),
    )
    outer = CallState(
        call=ToolCall("0", "delegate", "{}"),
        created_us=0,
        standing=Standing.MEMBER,
        member=member,
    )
    state = TurnState(calls=(outer, CONFIRM))

    assert [call for call, _ in find_waiting(state)] == [CONFIRM, CONFIRM]
    inner, own = requirements("r", state)
    assert (inner["id"], inner["member_run_id"], inner["member_agent_name"]) == ("m.1", "m", "B")
    assert own == {
        "id": "r.1",
        "created_at": "1970-01-01T00:00:05+00:00",
        "tool_execution": tool_execution(CONFIRM),
    }


def test_messages_are_shown_as_they_were_asked_and_remembered_as_they_were_said() -> None:
    said = (
        ModelTurn(Message("user", "look\n\n<file/>"), 1_000_000),
        ModelTurn(Message("assistant", "", (CALL,)), 2_000_000),
        ModelTurn(Message("tool", "full", call_id="1"), 3_000_000),
    )
    state = TurnState(before=(Message("system", "s"),), said=said, calls=(DONE,))
    shown = messages("r", state, "look")

    assert [one["role"] for one in shown] == ["user", "assistant", "tool"]
    assert [one["id"] for one in shown] == ["r.1", "r.2", "r.3"]
    assert shown[0]["content"] == "look"
    assert shown[2]["tool_name"] == "look"
    assert shown[2]["tool_args"] == DONE.arguments
    assert [recall(one) for one in shown[1:]] == [one.message for one in said[1:]]
