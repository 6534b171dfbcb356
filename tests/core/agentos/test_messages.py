"""Foreign messages become such that a provider takes them: each call has its result."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legation.agentos.messages import ConversationReader, read_tools, text_of_content
from legation.agentos.report import Reason
from legation.runs.payloads import recall


def read(*stored: Any) -> tuple[list[dict[str, Any]], list[Reason]]:
    reader = ConversationReader("r", 7_000_000)
    return reader.read(list(stored)), reader.left_out


def say(role: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": role, "id": role, **more}


def call(call_id: str, arguments: Any = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}


def result(call_id: str) -> dict[str, Any]:
    return say("tool", tool_call_id=call_id)


def test_messages_have_the_shape_of_ours() -> None:
    asked = {"role": "user", "content": "Hello", "created_at": 5, "metrics": {"input_tokens": 1}}
    called = say("model", tool_calls=[call("c", {"a": 1})], reasoning_content="Hm", content=None)
    done = say("tool", tool_call_id="c", tool_name="f", tool_args={"a": 1}, tool_call_error=True)
    shown, left_out = read(asked, called, done)
    always = {"from_history": False, "stop_after_tool_call": False}

    assert left_out == []
    assert shown == [
        {"id": "r.1", "content": "Hello", **always, "role": "user", "created_at": 5},
        {
            "id": "model",
            "content": "",
            **always,
            "role": "assistant",
            "created_at": 7,
            "reasoning_content": "Hm",
            "tool_calls": [call("c", '{"a":1}')],
        },
        {
            "id": "tool",
            "content": "tool",
            **always,
            "role": "tool",
            "created_at": 7,
            "tool_call_id": "c",
            "tool_name": "f",
            "tool_args": {"a": 1},
            "tool_call_error": True,
        },
    ]
    assert [recall(one).role for one in shown] == ["user", "assistant", "tool"]


def test_what_is_not_of_the_conversation_is_left_out() -> None:
    shown, left_out = read(
        say("system"), say("developer"), say("user", from_history=True), say("poet"), 3, say("user")
    )

    assert [one["role"] for one in shown] == ["user"]
    assert left_out == [
        Reason.SYSTEM_MESSAGE,
        Reason.SYSTEM_MESSAGE,
        Reason.HISTORY_MESSAGE,
        Reason.MESSAGE,
        Reason.MESSAGE,
    ]


@pytest.mark.parametrize(
    ("stored", "kept", "lost"),
    [
        ([say("assistant", tool_calls=[call("a")])], ["assistant"], 1),
        ([result("a")], [], 1),
        ([say("assistant", tool_calls=[call("a")]), result("a")], ["assistant a", "tool"], 0),
        ([say("assistant", tool_calls=[call("a")]), result("b")], ["assistant"], 2),
        ([say("assistant", tool_calls=[call("a")]), say("user"), result("a")],
         ["assistant", "user"], 2),
        ([say("assistant", tool_calls=[call("a"), call("b")]), result("b"), result("b")],
         ["assistant b", "tool"], 2),
        ([say("assistant", tool_calls=[call("a"), call("a")]), result("a")],
         ["assistant a", "tool"], 1),
        ([say("assistant", tool_calls=[{"id": "a"}, 3, {"function": {"name": "f"}}])],
         ["assistant"], 3),
    ],
)  # fmt: skip
def test_calls_and_results_come_in_pairs(stored: list[Any], kept: list[str], lost: int) -> None:
    shown, left_out = read(*stored)

    named = [
        " ".join((one["role"], *(call["id"] for call in one.get("tool_calls", ()))))
        for one in shown
    ]
    assert (named, left_out) == (kept, [Reason.CALL] * lost)


def _draw(role: str, calls: list[str], answers: str) -> dict[str, Any]:
    return {"role": role, "tool_calls": [call(one) for one in calls], "tool_call_id": answers}


MESSAGES: Final = st.lists(
    st.builds(
        _draw,
        st.sampled_from(["user", "assistant", "tool", "system"]),
        st.lists(st.sampled_from("abc"), max_size=3),
        st.sampled_from("abcd"),
    ),
    max_size=8,
)


@settings(max_examples=40)
@given(stored=MESSAGES)
def test_a_provider_takes_what_comes_out(stored: list[Any]) -> None:
    shown, left_out = read(*stored)
    wanted = list[str]()
    for one in shown:
        if one["role"] == "tool":
            wanted.remove(one["tool_call_id"])
            continue
        assert wanted == []
        wanted = [call["id"] for call in one.get("tool_calls", ())]

    assert wanted == []
    calls = sum(len(one["tool_calls"]) for one in stored if one["role"] == "assistant")
    results = sum(one["role"] == "tool" for one in stored)
    kept = sum(one["role"] == "tool" for one in shown)
    assert left_out.count(Reason.CALL) == calls + results - 2 * kept


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("a", "a"),
        ([{"type": "text", "text": "a"}, {"content": "b"}, {"image": 1}], "a\nb"),
        ([{"image": 1}], '[{"image":1}]'),
        (["a", "b"], '["a","b"]'),
        ([], "[]"),
        ({"a": 1}, '{"a":1}'),
        (7, "7"),
    ],
)
def test_the_text_of_a_content(content: Any, text: str) -> None:
    assert text_of_content(content) == text


def test_calls_have_every_member() -> None:
    stored = {"tool_name": "f", "result": {"a": 1}, "tool_call_error": "yes", "metrics": {"d": 1}}
    (shown,) = read_tools([stored, {"result": "x"}, 3])

    assert shown == {
        "tool_call_id": None,
        "tool_name": "f",
        "tool_args": {},
        "tool_call_error": None,
        "result": '{"a":1}',
        "metrics": {"d": 1},
        "child_run_id": None,
        "stop_after_tool_call": False,
        "created_at": None,
        "requires_confirmation": None,
        "confirmed": None,
        "confirmation_note": None,
        "requires_user_input": None,
        "user_input_schema": None,
        "user_feedback_schema": None,
        "answered": None,
        "external_execution_required": None,
        "external_execution_silent": None,
        "approval_type": None,
        "approval_id": None,
    }
    assert read_tools(None) == []
