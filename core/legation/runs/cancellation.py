"""Cancelling a run: at once while it waits, else by word to whoever executes it."""

from __future__ import annotations

from typing import Final

from ..effects import Now, Nudge, Program, Publish
from ..http.messages import compact_json
from ..store.run_rows import RunRow, StoredEvent
from ..store.run_steering import CancelRun
from .event_writer import Speaker, shown
from .output import Told, cancelled
from .retry import FEW, PASSING, Change, patiently, plainly

__all__ = ["REASON", "cancel", "cancel_topic", "keeping_topic"]

REASON: Final = "Run {} was cancelled"


def cancel_topic(database: str, run_id: str) -> str:
    """Return the topic under which whoever executes a run on this node is interrupted."""
    return f"cancel:{database}:{run_id}"


def keeping_topic(database: str) -> str:
    """Return the topic under which those who keep the runs of a database are told to look."""
    return f"runs:{database}"


def cancel(database: str, row: RunRow, name: str, change: Change = plainly) -> Program[str | None]:
    """Cancel the run of `row`; return the status it had, None when it is gone.

    A run that is executed ends a moment later: the wish is stored, so that also another node's
    executor finds it, and this node's is told.
    """
    now_us = yield from Now()
    reason = REASON.format(row.run_id)
    event = Speaker(row.claim, name).event(
        "RunCancelled", now_us, {"reason": reason, "content": reason}
    )
    unit = CancelRun(
        owner=row.owner,
        session_id=row.session_id,
        run_id=row.run_id,
        now_us=now_us,
        output=compact_json(cancelled(Told(row.claim, name, None), "")),
        event=event,
        members=row.kind == "team",
    )
    found = yield from patiently(database, unit, FEW, PASSING, change)
    if found == "RUNNING":
        yield from Nudge(cancel_topic(database, row.run_id))
        yield from Nudge(keeping_topic(database), database)
    elif found in ("PENDING", "PAUSED"):
        told = (StoredEvent(row.events + 1, *event),)
        yield from Publish(row.run_id, shown(told, final=True), database)
    return found
