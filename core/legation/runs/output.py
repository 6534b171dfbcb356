"""A run as clients read it, in the shapes of the interface.

`run_output` is the answer to starting a run and to fetching one; `run_row` is the same run in the
list of its session, with other names and ISO times, as clients expect there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ..models.conversation import Reply
from ..registry import Component
from ..store.runs import ClaimedRun, RunRow

__all__ = [
    "MEDIA",
    "cancelled",
    "completed",
    "failed",
    "iso_time",
    "metrics",
    "run_output",
    "run_row",
]

MEDIA: Final = ("images", "videos", "audio", "files")
"""The kinds of media that a run may be given, by their name in the form."""


def iso_time(at_us: int) -> str:
    """Return ISO 8601 in UTC to the second, as `2026-01-01T00:00:00Z`."""
    at = datetime.fromtimestamp(at_us // 1_000_000, UTC)
    return at.isoformat().replace("+00:00", "Z")


def completed(
    component: Component, run: ClaimedRun, reply: Reply, started_us: int, now_us: int
) -> dict[str, Any]:
    """Return the output of a run whose model answered."""
    asked = json.loads(run.input)
    told = {"content": reply.content, "content_type": "str", **_model(component)}
    said = _message(run, 1, "user", asked["message"], started_us)
    answered = _message(run, 2, "assistant", reply.content, now_us)
    return {
        **_head(run, component.name),
        **told,
        **_standing(run, "COMPLETED"),
        "metrics": metrics(component, reply, started_us, now_us),
        "messages": [said, answered],
        "tools": [],
        **_asked(asked),
    }


def failed(
    run: ClaimedRun, name: str, component: Component | None, sentence: str
) -> dict[str, Any]:
    """Return the output of a run that ended in `ERROR`; `sentence` is for the caller."""
    return _broken_off(run, name, component, sentence, "ERROR")


def cancelled(
    run: ClaimedRun, name: str, component: Component | None, content: str
) -> dict[str, Any]:
    """Return the output of a run that was cancelled, with as much of the answer as there was."""
    return _broken_off(run, name, component, content, "CANCELLED")


def _broken_off(
    run: ClaimedRun, name: str, component: Component | None, content: str, status: str
) -> dict[str, Any]:
    return {
        **_head(run, name),
        "content": content,
        "content_type": "str",
        **(_model(component) if component is not None else {}),
        **_standing(run, status),
        "metrics": {},
        **_asked(json.loads(run.input)),
    }


def metrics(component: Component, reply: Reply, started_us: int, now_us: int) -> dict[str, Any]:
    """Return tokens and seconds of a run."""
    tokens = {
        "input_tokens": reply.usage.input_tokens,
        "output_tokens": reply.usage.output_tokens,
        "total_tokens": reply.usage.input_tokens + reply.usage.output_tokens,
    }
    seconds = (now_us - started_us) / 1_000_000
    model = {**tokens, "id": component.model.id, "provider": component.model.provider}
    return {**tokens, "duration": seconds, "details": {"model": [model]}}


def _head(run: ClaimedRun, name: str) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        f"{run.kind}_id": run.component_id,
        f"{run.kind}_name": name,
        "session_id": run.session_id,
        "user_id": run.owner,
    }


def _model(component: Component) -> dict[str, Any]:
    return {"model": component.model.id, "model_provider": component.model.provider}


def _standing(run: ClaimedRun, status: str) -> dict[str, Any]:
    return {
        "session_state": json.loads(run.state),
        "created_at": run.created_us // 1_000_000,
        "status": status,
    }


def _message(run: ClaimedRun, number: int, role: str, content: str, at_us: int) -> dict[str, Any]:
    return {
        "id": f"{run.run_id}.{number}",
        "content": content,
        "from_history": False,
        "stop_after_tool_call": False,
        "role": role,
        "created_at": at_us // 1_000_000,
    }


def _asked(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the run was asked; of a file its name, type and size, never its content."""
    media = {kind: [_without_content(item) for item in asked.get(kind, ())] for kind in MEDIA}
    shown = {kind: items for kind, items in media.items() if items}
    metadata = {"metadata": asked["metadata"]} if "metadata" in asked else {}
    return {**metadata, "input": {"input_content": asked["message"], **shown}}


def _without_content(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != "content"}


def run_output(row: RunRow) -> dict[str, Any]:
    """Return a stored run; one that is not over yet shows its input and where it stands."""
    if row.output is not None:
        output: dict[str, Any] = json.loads(row.output)
        return output
    return {
        "run_id": row.run_id,
        f"{row.kind}_id": row.component_id,
        "session_id": row.session_id,
        "user_id": row.owner,
        "created_at": row.created_us // 1_000_000,
        "status": row.status,
        "metrics": {},
        "events": [],
        **_asked(json.loads(row.input)),
    }


def run_row(row: RunRow) -> dict[str, Any]:
    """Return a run as an item of its session's list."""
    output = run_output(row)
    content, asked = output.get("content"), output["input"]
    media = {f"{kind.rstrip('s')}s": asked.get(kind, []) for kind in MEDIA}
    return {
        "run_id": row.run_id,
        "parent_run_id": row.parent_run_id or "",
        f"{row.kind}_id": row.component_id,
        "user_id": row.owner,
        "status": row.status,
        "run_input": asked["input_content"],
        "content": content,
        "run_response_format": "text" if isinstance(content, str | None) else "json",
        "reasoning_content": "",
        "reasoning_steps": [],
        "metrics": output["metrics"],
        "messages": output.get("messages", []),
        "tools": output.get("tools", []),
        "created_at": iso_time(row.created_us),
        "references": [],
        "reasoning_messages": [],
        "session_state": output.get("session_state", {}),
        "images": [],
        "videos": [],
        "audio": [],
        "files": [],
        "input_media": media,
    }
