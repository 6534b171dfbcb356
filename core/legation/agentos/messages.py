"""The messages and the calls of tools of a foreign run, in the shapes of ours.

What a later run of the session is told has to be one that a provider takes: each call that an
assistant wanted has its result, and each result its call.  What stands alone is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from attrs import field

from ..http.messages import compact_json
from ..runs.payloads import message
from ..values import define
from .report import Reason
from .values import list_of, microseconds_of, object_of, text_of

__all__ = ["ConversationReader", "read_tools", "text_of_content"]

_ROLES: Final[Mapping[str, str]] = {
    "user": "user",
    "assistant": "assistant",
    "model": "assistant",
    "tool": "tool",
    "system": "system",
    "developer": "system",
}
_PARTS: Final = 1_000


def text_of_content(content: object) -> str:
    """Return the text of a message or of an input; of parts, their texts; of a value its JSON."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    parts = list_of(content)
    if parts and all(isinstance(part, dict) for part in parts):
        texts = [
            text
            for part in parts[:_PARTS]
            if (text := text_of(part.get("text")) or text_of(part.get("content")))
        ]
        if texts:
            return "\n".join(texts)
    return compact_json(content)


@define
class ConversationReader:
    """Reads the messages of one run, and counts what is left out of them.

    `left_out` has the reason of each, as often as it occurred.
    """

    run_id: str
    created_us: int
    left_out: list[Reason] = field(factory=list[Reason], init=False)

    def read(self, stored: object) -> list[dict[str, Any]]:
        """Return the messages of the run, without those of others and of the operator."""
        messages = [*self._read_all(list_of(stored))]
        return self._pair(messages)

    def _read_all(self, stored: Iterable[object]) -> Iterator[dict[str, Any]]:
        for number, item in enumerate(stored, 1):
            said = object_of(item)
            role = _ROLES.get(text_of(said.get("role")))
            if role is None:
                self.left_out.append(Reason.MESSAGE)
            elif role == "system":
                self.left_out.append(Reason.SYSTEM_MESSAGE)
            elif said.get("from_history") is True:
                self.left_out.append(Reason.HISTORY_MESSAGE)
            else:
                yield self._read_one(number, role, said)

    def _read_one(self, number: int, role: str, said: Mapping[str, Any]) -> dict[str, Any]:
        message_id = text_of(said.get("id")) or f"{self.run_id}.{number}"
        at_us = microseconds_of(said.get("created_at"), self.created_us)
        shown = message(message_id, role, text_of_content(said.get("content")), at_us)
        if role == "tool":
            failed = said.get("tool_call_error")
            return {
                **shown,
                "tool_call_id": text_of(said.get("tool_call_id")),
                "tool_name": text_of(said.get("tool_name")),
                "tool_args": object_of(said.get("tool_args")),
                "tool_call_error": failed if isinstance(failed, bool) else False,
            }
        reasoning = text_of(said.get("reasoning_content"))
        calls = self._read_calls(said) if role == "assistant" else []
        return {
            **shown,
            **({"reasoning_content": reasoning} if reasoning else {}),
            **({"tool_calls": calls} if calls else {}),
        }

    def _read_calls(self, said: Mapping[str, Any]) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []
        for item in list_of(said.get("tool_calls")):
            call = object_of(item)
            function = object_of(call.get("function"))
            call_id, name = text_of(call.get("id")), text_of(function.get("name"))
            if not (call_id and name):
                self.left_out.append(Reason.CALL)
                continue
            given = function.get("arguments")
            arguments = given if isinstance(given, str) else compact_json(object_of(given))
            made = {"name": name, "arguments": arguments}
            calls.append({"id": call_id, "type": "function", "function": made})
        return calls

    def _pair(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return `messages` in which each call has one result behind it, and each result a call."""
        kept: list[dict[str, Any]] = []
        results: list[dict[str, Any]] = []
        for one in reversed(messages):
            if one["role"] == "tool":
                results.append(one)
                continue
            kept += reversed(self._match(one, results[::-1]))
            results = []
        self.left_out += [Reason.CALL] * len(results)
        return kept[::-1]

    def _match(self, said: dict[str, Any], results: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return `said`, and the `results` behind it, without what has no counterpart."""
        calls = {call["id"]: call for call in said.get("tool_calls", ())}
        answers: dict[str, dict[str, Any]] = {}
        for one in results:
            if one["tool_call_id"] in calls:
                answers.setdefault(one["tool_call_id"], one)
        made = [call for call_id, call in calls.items() if call_id in answers]
        lost = len(said.get("tool_calls", ())) + len(results) - 2 * len(made)
        self.left_out += [Reason.CALL] * lost
        rest = {name: value for name, value in said.items() if name != "tool_calls"}
        return [{**rest, "tool_calls": made} if made else rest, *answers.values()]


# --- Calls -------------------------------------------------------------------------------------

_FLAG, _TEXT, _OBJECT, _LIST, _TIME = bool, str, dict, list, int
_MEMBERS: Final[Mapping[str, type[Any]]] = {
    "tool_call_id": _TEXT,
    "tool_name": _TEXT,
    "tool_args": _OBJECT,
    "tool_call_error": _FLAG,
    "result": _TEXT,
    "metrics": _OBJECT,
    "child_run_id": _TEXT,
    "stop_after_tool_call": _FLAG,
    "created_at": _TIME,
    "requires_confirmation": _FLAG,
    "confirmed": _FLAG,
    "confirmation_note": _TEXT,
    "requires_user_input": _FLAG,
    "user_input_schema": _LIST,
    "user_feedback_schema": _LIST,
    "answered": _FLAG,
    "external_execution_required": _FLAG,
    "external_execution_silent": _FLAG,
    "approval_type": _TEXT,
    "approval_id": _TEXT,
}
_ALWAYS: Final[Mapping[str, Any]] = {"tool_args": {}, "stop_after_tool_call": False}


def read_tools(stored: object) -> list[dict[str, Any]]:
    """Return the calls of tools of a run; each has every member, and None for one of no use."""
    items = (object_of(item) for item in list_of(stored))
    return [_read_tool(item) for item in items if text_of(item.get("tool_name"))]


def _read_tool(item: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, kind in _MEMBERS.items():
        value = item.get(name)
        if name == "result" and value is not None:
            value = text_of_content(value)
        shown[name] = value if type(value) is kind else _ALWAYS.get(name)
    return shown
