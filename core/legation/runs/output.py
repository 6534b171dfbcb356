"""A run as clients read it, in the shapes of the interface.

`run_output` is the answer to starting a run and to fetching one; `run_row` is the same run in the
list of its session, with other names and ISO times, as clients expect there; `render_listed` is
both, an item of the runs of an agent or a team.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

from ..access.decide import name_of
from ..hosted.registry import Component
from ..http.bodies.media_types import TEXT
from ..http.messages import compact_json
from ..money import number_of
from ..store.run_rows import ClaimedRun, RunRow
from ..store.run_states import RunState
from ..values import frozen
from .payloads import (
    execution_of_member,
    find_waiting,
    messages,
    requirements,
    token_metrics,
    tool_execution,
)
from .terms import FORKED_FROM
from .turn_state import TurnState

__all__ = [
    "MEDIA",
    "Failure",
    "RunSummary",
    "iso_time",
    "metrics",
    "model_of",
    "render_cancelled",
    "render_completed",
    "render_failed",
    "render_input",
    "render_listed",
    "render_paused",
    "render_row",
    "render_running",
    "run_json",
    "run_output",
    "run_row",
]

MEDIA: Final = ("images", "videos", "audio", "files")
"""The kinds of media that a run may be given, by their name in the form."""


_WHERE_THERE: Final = ("error_type", "incident", FORKED_FROM, "citations", "response_audio")


def iso_time(at_us: int) -> str:
    """Return ISO 8601 in UTC to the second, as `2026-01-01T00:00:00Z`."""
    at = datetime.fromtimestamp(at_us // 1_000_000, UTC)
    return at.isoformat().replace("+00:00", "Z")


@frozen
class RunSummary:
    """The summary of a run: its owner, its component, and how far its turn came.

    `component` is None where it is hosted no more, `state` None where its turn is not at hand.
    `worked_us` is how long the turn has taken.  `cost` is what the run has cost by now, with those
    of its members, in nano-USD; None where its own requests alone are known of.  `asked` is the
    input of the run, where somebody has read it.
    """

    run: ClaimedRun
    name: str
    component: Component | None
    state: TurnState | None = None
    worked_us: int = 0
    parent_run_id: str | None = None
    cost: int | None = None
    asked: Mapping[str, Any] | None = None


def render_running(summary: RunSummary) -> dict[str, Any]:
    """Return the output of a run that is on its way."""
    return {
        **_head(summary),
        **model_of(summary.component),
        "created_at": summary.run.created_us // 1_000_000,
        "status": RunState.RUNNING.value,
        "metrics": {},
        **render_input(json.loads(summary.run.input)),
    }


def render_completed(summary: RunSummary, content: Any) -> dict[str, Any]:
    """Return the output of a run that has its answer."""
    return _output(summary, RunState.COMPLETED, content)


def render_paused(summary: RunSummary, sentence: str) -> dict[str, Any]:
    """Return the output of a run that waits for a person."""
    return _output(summary, RunState.PAUSED, sentence)


@frozen
class Failure:
    """The reason for a failed run: `error_type` for programs, `incident` to find it in the log."""

    error_type: str
    incident: str


def render_failed(
    summary: RunSummary, sentence: str, failure: Failure, content: str = ""
) -> dict[str, Any]:
    """Return the output of a run that ended in `ERROR`; `sentence` is for the caller.

    It stands beside `content`, which the run had by then, or in its place where there is none.
    """
    output = _output(summary, RunState.ERROR, content or sentence)
    said = {"error_message": sentence} if content else {}
    return {**output, **said, "error_type": failure.error_type, "incident": failure.incident}


def render_cancelled(summary: RunSummary, content: str) -> dict[str, Any]:
    """Return the output of a run that was cancelled, with as much of the answer as there was."""
    return _output(summary, RunState.CANCELLED, content)


def _output(summary: RunSummary, state: RunState, content: Any) -> dict[str, Any]:
    # The state of the session is kept apart, and put in its place, behind all else (`fill_state`).
    asked = json.loads(summary.run.input) if summary.asked is None else summary.asked
    output = _head(summary)
    output["content"] = content
    output["content_type"] = _content_type(summary, asked, content)
    if summary.state is not None and (seen := summary.state.reasoning):
        output["reasoning_content"] = seen
    output |= model_of(summary.component)
    output["created_at"] = summary.run.created_us // 1_000_000
    output["status"] = str(state)
    output |= _turn(summary, state, asked["message"])
    output |= render_input(asked)
    if summary.parent_run_id is None:
        output["session_state"] = {}
    return output


def _content_type(summary: RunSummary, asked: Mapping[str, Any], content: Any) -> str:
    """Return what `content` is: text, or an object under the title of its schema, if it has one."""
    if isinstance(content, str):
        return "str"
    configured = None if summary.component is None else summary.component.output_schema
    schema = asked.get("output_schema") or configured or {}
    title = schema.get("title")
    plain = "use_json_schema" in asked or not isinstance(title, str)
    return "dict" if plain else title or "dict"


def _turn(summary: RunSummary, state: RunState, asked: str) -> dict[str, Any]:
    """Return the members of the turn; of one that was broken off, no conversation."""
    turn = summary.state
    if turn is None:
        return {"metrics": {}}
    tools = [tool_execution(call) for call in turn.calls]
    responses = [call.response for call in turn.calls if call.response is not None]
    shown: dict[str, Any] = {"member_responses": responses} if summary.run.kind == "team" else {}
    if state in (RunState.ERROR, RunState.CANCELLED):
        shown["metrics"] = metrics(summary) if turn.rounds or turn.usage.total_tokens else {}
        return {**shown, "tools": tools} if tools else shown
    shown["metrics"] = metrics(summary)
    shown["messages"] = messages(summary.run.run_id, turn, asked)
    shown["tools"] = tools
    if state is RunState.PAUSED:
        of_members = [
            execution_of_member(call, member)
            for call, member in find_waiting(turn)
            if member is not None
        ]
        shown["tools"] = [*tools, *of_members]
        shown["requirements"] = requirements(summary.run.run_id, turn)
    return shown


def metrics(summary: RunSummary) -> dict[str, Any]:
    """Return tokens, seconds and cost of a run: in US dollars, where a price is known."""
    state, component = summary.state, summary.component
    usage = (state or TurnState()).usage
    own: dict[str, Any] = token_metrics(usage)
    if usage.cost_nano is not None:
        own["cost"] = number_of(usage.cost_nano)
    used = own if summary.cost is None else {**own, "cost": number_of(summary.cost)}
    seconds: dict[str, Any] = {"duration": summary.worked_us / 1_000_000}
    if state is not None and state.first_seconds is not None:
        seconds = {"time_to_first_token": state.first_seconds, **seconds}
    if component is None or component.run is not None:
        return {**used, **seconds}
    model = {**own, "id": component.model.id, "provider": component.model.provider}
    return {**used, **seconds, "details": {"model": [model]}}


def _head(summary: RunSummary) -> dict[str, Any]:
    run = summary.run
    head: dict[str, Any] = {
        "run_id": run.run_id,
        f"{run.kind}_id": run.component_id,
        f"{run.kind}_name": summary.name,
        "session_id": run.session_id,
    }
    if summary.parent_run_id is not None:
        head["parent_run_id"] = summary.parent_run_id
    head["user_id"] = name_of(run.owner)
    return head


def model_of(component: Component | None) -> dict[str, Any]:
    """Return which model answers; nothing for a function, and for what is hosted no more."""
    if component is None or component.run is not None:
        return {}
    return {"model": component.model.id, "model_provider": component.model.provider}


def render_input(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the run was asked; of a file its name, type and size, never what is in it."""
    shown: dict[str, Any] = {
        name: asked[name] for name in ("metadata", FORKED_FROM) if name in asked
    }
    content = {"input_content": asked["message"]}
    for kind in MEDIA:
        if items := asked.get(kind):
            content[kind] = [_without_content(item) for item in items]
    shown["input"] = content
    return shown


def _without_content(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in ("content", TEXT)}


def run_output(row: RunRow) -> dict[str, Any]:
    """Return a stored run; one that is not over yet shows its input and where it stands."""
    if (shown := row.shown) is not None:
        output: dict[str, Any] = json.loads(shown)
        return output
    return {
        "run_id": row.run_id,
        f"{row.kind}_id": row.component_id,
        "session_id": row.session_id,
        "user_id": name_of(row.owner),
        "created_at": row.created_us // 1_000_000,
        **({} if row.parent_run_id is None else {"parent_run_id": row.parent_run_id}),
        "status": row.status,
        "metrics": {},
        "events": [],
        **render_input(json.loads(row.input)),
    }


def run_json(row: RunRow) -> bytes:
    """Return `run_output` as JSON; an output is stored as that."""
    shown = row.output if row.state is None else row.shown
    return (shown or compact_json(run_output(row))).encode()


def run_row(row: RunRow) -> dict[str, Any]:
    """Return a run as an item of its session's list."""
    output = run_output(row)
    content, asked = output.get("content"), output["input"]
    media = {f"{kind.rstrip('s')}s": asked.get(kind, []) for kind in MEDIA}
    return {
        "run_id": row.run_id,
        "parent_run_id": row.parent_run_id or "",
        f"{row.kind}_id": row.component_id,
        "user_id": name_of(row.owner),
        "status": row.status,
        "run_input": asked["input_content"],
        "content": content,
        "run_response_format": "text" if isinstance(content, str | None) else "json",
        "reasoning_content": output.get("reasoning_content", ""),
        "reasoning_steps": output.get("reasoning_steps", []),
        "metrics": output["metrics"],
        "messages": output.get("messages", []),
        "tools": output.get("tools", []),
        "created_at": iso_time(row.created_us),
        "references": output.get("references", []),
        "reasoning_messages": output.get("reasoning_messages", []),
        "session_state": output.get("session_state", {}),
        **{name: output[name] for name in _WHERE_THERE if name in output},
        **{kind: output.get(kind, []) for kind in MEDIA},
        "input_media": media,
    }


def render_row(row: RunRow) -> bytes:
    """Return a run as an item of its session's list, as JSON."""
    return _encode(row, run_row(row))


def render_listed(row: RunRow) -> bytes:
    """Return a run as an item of the runs of its agent or team: its row, and its output beside."""
    return _encode(row, {**run_output(row), **run_row(row)})


_LONG: Final = 64 << 10
_DEPTH: Final = 3  # the run, its messages, the members of each


def _encode(row: RunRow, shown: Mapping[str, Any]) -> bytes:
    """Return `shown` as JSON; of a long run bit by bit.

    One call of the encoder keeps every other thread from the interpreter until it is done.
    """
    if len(row.input) + len(row.output or "") < _LONG:
        return compact_json(shown).encode()
    return b"".join(_pieces(shown, _DEPTH))


def _pieces(value: Any, depth: int) -> Iterator[bytes]:
    """Yield the JSON of `value` in pieces, down to `depth`."""
    if not depth or not value or not isinstance(value, dict | list):
        yield compact_json(value).encode()
        return
    named = isinstance(value, dict)
    members: Any = cast("Any", value)
    mark = b"{" if named else b"["
    for member in members:
        yield mark
        mark = b","
        if named:
            yield compact_json(member).encode() + b":"
        yield from _pieces(members[member] if named else member, depth - 1)
    yield b"}" if named else b"]"
