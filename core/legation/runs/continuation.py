"""The continuation of a paused run: once, with the answers to the calls that were shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..effects import Nudge, Outcome, Program, RandomBytes, Spawn
from ..http.messages import compact_json
from ..store.run_rows import RunRow
from ..store.run_steering import Continued, ContinueRun
from ..store.turns import RunShare
from .channel_replies import mark_continued
from .executor import ExecuteRun, ExecutorContext
from .membership import enter
from .payloads import execution_of_member, find_answered
from .retry import FEW, PASSING, Change, transact, with_retry
from .topics import runs_topic
from .turn_state import TurnState, UnknownFormat, dump, load

__all__ = ["go_on", "turn_at_pause"]


def turn_at_pause(row: RunRow) -> TurnState | None:
    """Return how far the turn of a paused run had come; None where this version cannot tell."""
    kept: Mapping[str, Any] = json.loads(row.input).get("turn", {})
    try:
        return load(kept)
    except UnknownFormat:
        return None


def go_on(  # noqa: PLR0913  the last of them are named at the call
    context: ExecutorContext,
    database: str,
    row: RunRow,
    before: TurnState,
    state: TurnState,
    change: Change = transact,
    *,
    stream: bool,
    by: str | None = None,
    outcome: Outcome[str] | None = None,
) -> Program[Continued]:
    """Store the answers, which are in `state`, and see that the run is executed.

    Of several who answer the same pause, one goes on; `row` is the run as the answers were held
    against it, `before` its turn.  It goes on whatever becomes of this program.  `stream`: what it
    says is stored piece by piece from now on, if it was not before.  `by` is the user who answers.
    Its output is told to `outcome`; None where it is not executed here, or not to its end.
    """
    kept = _keep_answers(row, before, state, stream=stream)
    token = (yield from RandomBytes(8)).hex()
    node, now_us = yield from enter(context.cluster, database)
    slots, subject = context.shares.runs, row.subject or row.owner
    limits = context.shares.table.limits_of(subject)
    room = slots.try_to_take(subject, limits.weight)
    given = not room
    try:
        unit = ContinueRun(
            owner=row.owner,
            session_id=row.session_id,
            run_id=row.run_id,
            attempt=row.attempt,
            input=kept,
            token=token,
            node=node,
            now_us=now_us,
            hosted=context.hosted,
            waits=context.registry.config.on_busy == "queue",
            share=RunShare(row.subject, limits.runs, limits.waiting, limits.weight, room),
            resolved_by=by,
            resolution=_resolution(before, state),
        )
        continued: Continued = yield from with_retry(database, unit, FEW, PASSING, change)
        if continued.claim is not None:
            place = subject if room else None
            yield from Spawn(ExecuteRun(context, database, node, continued.claim, place), outcome)
            given = True  # from now on the program there has the place
        elif outcome is not None:
            outcome.tell(None)
    finally:
        if not given:
            slots.release(subject)
    if continued.queued:
        yield from Nudge(runs_topic(database))
    if continued.elsewhere:
        other = context.cluster.member(database).next_other(context.hosted)
        yield from Nudge(runs_topic(database), database, other)
    return continued


def _keep_answers(row: RunRow, before: TurnState, state: TurnState, *, stream: bool) -> str:
    """Return the input of a run as it goes on: what was asked, its turn and how it was answered."""
    asked = json.loads(row.input)
    kept = {
        **asked,
        "stream": stream or asked["stream"],
        "turn": dump(state),
        "answered": _answers(row, before, state),
        **mark_continued(asked),
    }
    return compact_json(kept)


def _resolution(before: TurnState, state: TurnState) -> str:
    """Return how the calls were answered, in a word: `rejected` where all of them were."""
    agreed = [call.confirmed is not False for call, _ in find_answered(before, state)]
    return "approved" if any(agreed) else "rejected"


def _answers(row: RunRow, before: TurnState, state: TurnState) -> dict[str, Any]:
    """Return what people answered, and to which pause: the events and the attempt it came after."""
    tools = [execution_of_member(*one) for one in find_answered(before, state)]
    return {"events": row.events, "attempt": row.attempt, "tools": tools}
