"""The cancellation of a run: at once while it waits, else by a nudge to its executor."""

from __future__ import annotations

import json

from ..effects import Now, Nudge, Program, Publish
from ..http.messages import compact_json
from ..store.once import message_of
from ..store.outbox import Letter
from ..store.run_rows import RunRow
from ..store.run_states import RunState
from ..store.run_steering import CANCELLED_AT_ONCE, CancelRun
from .channel_replies import read_reply_to, tell_cancelled
from .endings import CANCELLED
from .events import EventOrigin, RunCancelled, mark_final
from .membership import Membership
from .output import RunSummary, render_cancelled
from .retry import FEW, PASSING, Change, transact, with_retry
from .topics import cancel_topic, runs_topic

__all__ = ["cancel"]


def cancel(
    member: Membership, row: RunRow, name: str, change: Change = transact
) -> Program[str | None]:
    """Cancel the run of `row`, of the database of `member`; return the status it had.

    It is None when the run is gone.

    A run that is executed ends a moment later: the request is stored, so that an executor on
    another node finds it, and one on this node is woken.
    """
    database, now_us = member.database, (yield from Now())
    reason = CANCELLED.format(row.run_id)
    cancelled = RunCancelled(reason, reason)
    event = EventOrigin(row.claim, name).encode(cancelled, row.events + 1, now_us)
    unit = CancelRun(
        owner=row.owner,
        session_id=row.session_id,
        run_id=row.run_id,
        now_us=now_us,
        output=compact_json(render_cancelled(RunSummary(row.claim, name, None), "")),
        event=(event.name, event.data),
        members=row.kind == "team",
        message=message_of(row.input) if member.once else None,
        letters=_write_letters(row, now_us),
    )
    found = yield from with_retry(database, unit, FEW, PASSING, change)
    if found == RunState.RUNNING:
        yield from Nudge(cancel_topic(database, row.run_id))
        yield from Nudge(runs_topic(database), database, row.lease_by)
    elif found in CANCELLED_AT_ONCE:
        yield from Publish(row.run_id, mark_final((event,)), database)
        if unit.letters:
            yield from Nudge(f"outbox:{database}", database, member.next_other())
    return found


def _write_letters(row: RunRow, now_us: int) -> tuple[Letter, ...]:
    """Return what whoever asked for the run in a channel is told, if no message waits for it."""
    asked = json.loads(row.input)
    to = read_reply_to(asked)
    if to is None or not (to.continued or row.status == RunState.PAUSED):
        return ()
    return tell_cancelled(asked, row.events + 1, now_us)
