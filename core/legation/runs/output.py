"""A run as clients read it, in the shapes of the interface.

`run_output` is the answer to starting a run and to fetching one; `run_row` is the same run in the
list of its session, with other names and ISO times, as clients expect there.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from ..models.conversation import Reply
from ..registry import Component
from ..store.runs import ClaimedRun, RunRow

__all__ = ["completed", "failed", "iso_time", "metrics", "run_output", "run_row"]


def iso_time(at_us: int) -> str:
    """Return ISO 8601 in UTC to the second, as `2026-01-01T00:00:00Z`."""
    at = datetime.fromtimestamp(at_us // 1_000_000, UTC)
    return at.isoformat().replace("+00:00", "Z")


def completed(
    component: Component, run: ClaimedRun, text: str, reply: Reply, started_us: int, now_us: int
) -> dict[str, Any]:
    """Return the output of a run whose model answered."""
    said = {"role": "user", "content": text, "created_at": started_us // 1_000_000}
    answered = {"role": "assistant", "content": reply.content, "created_at": now_us // 1_000_000}
    return {
        **_head(run, component.name),
        "content": reply.content,
        "content_type": "str",
        "model": component.model.id,
        "model_provider": component.model.provider,
        **_tail(run, text, "COMPLETED"),
        "metrics": metrics(component, reply, started_us, now_us),
        "messages": [said, answered],
        "tools": [],
    }


def failed(run: ClaimedRun, name: str, text: str, sentence: str) -> dict[str, Any]:
    """Return the output of a run that ended in `ERROR`; `sentence` is for the caller."""
    told = {"content": sentence, "content_type": "str"}
    return {**_head(run, name), **told, **_tail(run, text, "ERROR"), "metrics": {}}


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


def _tail(run: ClaimedRun, text: str, status: str) -> dict[str, Any]:
    return {
        "session_state": {},
        "created_at": run.created_us // 1_000_000,
        "status": status,
        "input": {"input_content": text},
    }


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
        "input": {"input_content": json.loads(row.input)["message"]},
    }


def run_row(row: RunRow) -> dict[str, Any]:
    """Return a run as an item of its session's list."""
    output = run_output(row)
    content = output.get("content")
    return {
        "run_id": row.run_id,
        "parent_run_id": row.parent_run_id or "",
        f"{row.kind}_id": row.component_id,
        "user_id": row.owner,
        "status": row.status,
        "run_input": output["input"]["input_content"],
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
        "input_media": {"images": [], "videos": [], "audios": [], "files": []},
    }
