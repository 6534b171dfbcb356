"""The parts of a run as the reference shapes them: calls of tools, requirements, messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ..models.conversation import Message, ToolCall, Usage
from ..money import number_of
from .turn_state import CallState, MemberState, Standing, TurnState

__all__ = [
    "NOT_KNOWN",
    "call_sentence",
    "execution_of_member",
    "find_answered",
    "find_waiting",
    "message",
    "messages",
    "recall",
    "requirements",
    "token_metrics",
    "tokens",
    "tool_execution",
    "usage_metrics",
]

NOT_KNOWN: Final = "The call was interrupted, and whether it was carried out is not known"
"""The result of a call in doubt, for a model."""

_PARTS: Final = ("reasoning_tokens", "cache_read_tokens", "cache_write_tokens")

_SHOWN: Final = 200
"""How long an argument may be to stand in the sentence about its call, in characters."""


def tokens(usage: Usage) -> dict[str, int]:
    """Return what went in, what came out, and both together.

    With it, which part of that was thought, and which of it the provider's cache knows.
    """
    came_in, went_out = usage.input_tokens, usage.output_tokens
    return {
        "input_tokens": came_in,
        "output_tokens": went_out,
        "total_tokens": came_in + went_out,
        "reasoning_tokens": usage.reasoning_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
    }


def token_metrics(usage: Usage) -> dict[str, int]:
    """Return tokens as metrics have them; a part that is zero is left out."""
    counts = tokens(usage)
    for part in _PARTS:
        if not counts[part]:
            del counts[part]
    return counts


def usage_metrics(usage: Usage) -> dict[str, Any]:
    """Return tokens as metrics have them, and what they cost, in US dollars, if that is known."""
    cost = {} if usage.cost_nano is None else {"cost": number_of(usage.cost_nano)}
    return {**token_metrics(usage), **cost}


def tool_execution(call: CallState) -> dict[str, Any]:
    """Return a call of a tool; every member is always there, but for two.

    `in_doubt`, and `confirmation_reason` where a guard has a person asked, stand there as needed.

    A person who is asked about a call in doubt reads nothing of what was said of it before.
    """
    confirm, external = [
        call.standing is kind if call.needs is kind else None
        for kind in (Standing.CONFIRM, Standing.EXTERNAL)
    ]
    doubtful = call.in_doubt and call.standing is Standing.CONFIRM
    why = {} if call.reason is None or doubtful else {"confirmation_reason": call.reason}
    execution = {
        "tool_call_id": call.call.id,
        "tool_name": call.call.name,
        "tool_args": dict(call.arguments),
        "tool_call_error": call.failed if call.standing is Standing.DONE else None,
        "result": call.result,
        "metrics": _metrics(call),
        "child_run_id": call.child_run_id,
        "stop_after_tool_call": call.last,
        "created_at": call.created_us // 1_000_000,
        "requires_confirmation": confirm,
        "confirmed": call.confirmed,
        "confirmation_note": call.note,
        "requires_user_input": None,
        "user_input_schema": None,
        "user_feedback_schema": None,
        "answered": None,
        "external_execution_required": external,
        "external_execution_silent": None,
        "approval_type": None,
        "approval_id": None,
        **why,
    }
    if not doubtful:
        return execution
    asked = {"requires_confirmation": True, "confirmed": None, "confirmation_note": None}
    return {**execution, **asked, "in_doubt": True}


def _metrics(call: CallState) -> dict[str, float] | None:
    """Return when a call began and ended, in seconds since the epoch, and how long it took."""
    if call.started_us is None or call.ended_us is None:
        return None
    return {
        "start_time": call.started_us / 1_000_000,
        "end_time": call.ended_us / 1_000_000,
        "duration": _seconds(call),
    }


def _seconds(call: CallState) -> float:
    return ((call.ended_us or 0) - (call.started_us or 0)) / 1_000_000


def call_sentence(call: CallState) -> str:
    """Return in words that a call is over."""
    arguments = ", ".join(f"{name}={_shorten(value)}" for name, value in call.arguments.items())
    return f"{call.call.name}({arguments}) completed in {_seconds(call):.4f}s. "


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else "..."


def requirements(run_id: str, state: TurnState) -> list[dict[str, Any]]:
    """Return what a person has to answer, also deep in a team."""
    return [_requirement(run_id, call, member) for call, member in find_waiting(state)]


def find_waiting(
    state: TurnState, member: MemberState | None = None
) -> Iterator[tuple[CallState, MemberState | None]]:
    """Yield the calls that wait for a person, each with the member of the team that wants it."""
    for call in state.calls:
        if call.member is not None:
            yield from find_waiting(call.member.state, call.member)
        elif call.waits:
            yield call, member


def find_answered(
    before: TurnState, after: TurnState, member: MemberState | None = None
) -> Iterator[tuple[CallState, MemberState | None]]:
    """Yield the calls that waited in `before`, as they stand in `after`, with their member."""
    for asked, call in zip(before.calls, after.calls, strict=True):
        if asked.member is not None and call.member is not None:
            yield from find_answered(asked.member.state, call.member.state, call.member)
        elif asked.waits:
            yield call, member


def execution_of_member(call: CallState, member: MemberState | None) -> dict[str, Any]:
    """Return a call of a tool, with the run of the member that wants it, if one does."""
    of = {} if member is None else {"member_run_id": member.run_id}
    return {**tool_execution(call), **of}


def _requirement(run_id: str, call: CallState, member: MemberState | None) -> dict[str, Any]:
    at = datetime.fromtimestamp(call.created_us / 1_000_000, UTC)
    requirement = {
        "id": f"{run_id if member is None else member.run_id}.{call.call.id}",
        "created_at": at.isoformat(),
        "tool_execution": tool_execution(call),
    }
    if member is None:
        return requirement
    return {
        **requirement,
        "member_agent_id": member.component_id,
        "member_agent_name": member.name,
        "member_run_id": member.run_id,
    }


def messages(run_id: str, state: TurnState, asked: str) -> list[dict[str, Any]]:
    """Return the messages of a turn.

    The first is shown as it was asked: what the model was given beside it, as the text of a file,
    is not shown, and neither are instructions and history.
    """
    calls = {call.call.id: call for call in state.calls}
    shown: list[dict[str, Any]] = []
    for number, said in enumerate(state.said, 1):
        one = said.message
        content = one.content
        if number == 1:
            content = asked if state.message is None else state.message
        whole: dict[str, Any] = message(f"{run_id}.{number}", one.role, content, said.at_us)
        if one.reasoning:
            whole["reasoning_content"] = one.reasoning
        if one.calls:
            whole["tool_calls"] = _calls(one.calls)
        if call := calls.get(one.call_id or ""):
            whole |= _call_members(call)
        shown.append(whole)
    return shown


def message(message_id: str, role: str, content: str, at_us: int) -> dict[str, Any]:
    """Return the members that every message has."""
    return {
        "id": message_id,
        "content": content,
        "from_history": False,
        "stop_after_tool_call": False,
        "role": role,
        "created_at": at_us // 1_000_000,
    }


def _calls(calls: tuple[ToolCall, ...]) -> list[dict[str, Any]]:
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in calls
    ]


def _call_members(call: CallState) -> dict[str, Any]:
    return {
        "tool_call_id": call.call.id,
        "tool_name": call.call.name,
        "tool_args": dict(call.arguments),
        "tool_call_error": call.failed,
    }


def recall(shown: Mapping[str, Any]) -> Message:
    """Return a message of an earlier run, as it was shown, for the model to read again."""
    calls = tuple(
        ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in shown.get("tool_calls", ())
    )
    return Message(shown["role"], shown["content"], calls, shown.get("tool_call_id"))
