"""The notice that a run has paused or failed: who it is, and never what was said in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..access.decide import name_of
from ..channels.replies import Reply, outbox_rows
from ..hosted.notify import NotifyRule
from ..http.messages import compact_json
from ..store.outbox import Letter
from ..store.run_rows import ClaimedRun
from ..store.run_states import RunState
from .output import iso_time

__all__ = ["write_notice"]

_WORDS: Final[Mapping[RunState, str]] = {RunState.PAUSED: "paused", RunState.ERROR: "failed"}


def write_notice(
    rule: NotifyRule,
    run: ClaimedRun,
    *,
    database: str,
    state: RunState,
    output: Mapping[str, Any],
    seq: int,
    now_us: int,
) -> Letter | None:
    """Return the notice of a run that comes to `state` with its event `seq`; None without one.

    It has the names of the tools that wait and never their arguments, and of a failure its type and
    its incident.
    """
    what = _WORDS.get(state)
    if what is None or not rule.concerns(what, f"{run.kind}:{run.component_id}"):
        return None
    data: dict[str, Any] = {
        "run_id": run.run_id,
        "session_id": run.session_id,
        "db_id": database,
        f"{run.kind}_id": run.component_id,
        "user_id": name_of(run.owner),
        "status": state.value,
    }
    if state is RunState.PAUSED:
        data["approval_id"] = f"{run.run_id}.{seq}"
        data["tools"] = [one["tool_execution"]["tool_name"] for one in output["requirements"]]
    else:
        data |= {name: output[name] for name in ("error_type", "incident") if name in output}
    content = {"type": f"run.{what}", "timestamp": iso_time(now_us), "data": data}
    key = f"notify-{run.run_id}.{seq}"
    reply = Reply(key, run.run_id, compact_json(content), created_us=now_us)
    return Letter(rule.channel, *outbox_rows((reply,)))
