"""Starting a run: stored first, then executed here, or by whoever ends the session's active one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve, field

from ..effects import Nudge, Outcome, Program, Spawn, Transact
from ..hosted.registry import Component
from ..http.messages import compact_json
from ..shares.limits import find_cost_limit
from ..shares.table import Account
from ..store.failures import Busy, CommitLost, Conflict
from ..store.forks import RunFork
from ..store.run_reads import FetchRun
from ..store.run_rows import ClaimedRun, RunRow, StoredEvent
from ..store.run_states import RunState
from ..store.runs import Started, StartRun
from ..store.session_state import EMPTY
from ..store.turns import RunShare
from ..values import frozen
from .events import EventOrigin, RunStarted
from .executor import ExecuteRun, ExecutorContext
from .membership import enter
from .output import model_of
from .retry import BACKOFF, FEW, Change, transact
from .terms import list_terms
from .topics import runs_topic

__all__ = ["NewRun", "start"]

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NAME_LENGTH: Final = 500
_ANY_NUMBER: Final = 1 << 62


@frozen
class NewRun:
    """A run that is asked for: whose, in which session, with which message.

    `pieces`: what its model says is stored piece by piece, for whoever follows the run, now or
    later.  `state` is merged into the session's; `details` are members of the input beside the
    message.
    `waits` False: while another run of the session is active, this one is not taken.
    `account`: what it is counted in; else that of its owner, of which any number may wait.
    `fork`: what it has of another run.
    `streamed`: somebody waits for its first event, which is stored with it where it begins at once.
    """

    owner: str
    session_id: str
    run_id: str
    message: str
    pieces: bool
    state: Mapping[str, Any] = field(factory=dict[str, Any])
    details: Mapping[str, Any] = field(factory=dict[str, Any])
    waits: bool = True
    account: Account | None = None
    fork: RunFork | None = None
    streamed: bool = False


def start(
    context: ExecutorContext,
    component: Component,
    new: NewRun,
    change: Change = transact,
    outcome: Outcome[str] | None = None,
) -> Program[Started]:
    """Store a run and see that it is executed; it goes on whatever becomes of this program.

    It has a place of the node from here on, or waits for its turn.  The first message names the
    session; control characters have no place in a name.  A run that is there already, under the
    same id of the same owner, is left as it is.

    Its output is told to `outcome`; None where it is not executed here, or not to its end.
    """
    node, now_us = yield from enter(context.cluster, component.database)
    slots, owner = context.shares.runs, new.owner
    account = new.account or context.shares.table.account(owner)
    subject, limits, details = account.subject, account.limits, new.details
    if terms := list_terms(limits, scoped=context.shares.table.scopes != ()):
        details = {**details, **terms}
    room = slots.try_to_take(subject, limits.weight)
    given, name = not room, new.message[:_NAME_LENGTH]
    try:
        unit = StartRun(
            owner=owner,
            session_id=new.session_id,
            run_id=new.run_id,
            kind=component.kind,
            component_id=component.id,
            version=component.version,
            input=compact_json({"message": new.message, "stream": new.pieces, **details}),
            name=name if name.isprintable() else _CONTROL.sub(" ", name),
            node=node,
            now_us=now_us,
            state=compact_json(new.state) if new.state else EMPTY,
            waits=new.waits,
            hosted=context.hosted,
            share=RunShare(
                None if subject == owner else subject,
                limits.runs,
                _ANY_NUMBER if new.account is None else limits.waiting,
                limits.weight,
                room,
                limits.tokens_per_day,
                limits.stored_bytes,
                limits.state_bytes,
                find_cost_limit(limits) if limits.cost_per_day else None,
            ),
            fork=new.fork,
            first=_encode_first(component, new, now_us) if new.streamed else None,
        )
        started = yield from _store(component.database, unit, change)
        if (claim := started.claim) is not None:
            place = subject if room else None
            job = ExecuteRun(context, component.database, node, claim, place, started.first)
            yield Spawn(job, outcome)
            given = True  # from now on the program there has the place
        elif outcome is not None:
            outcome.tell(None)
    finally:
        if not given:
            slots.release(subject)
    if started.queued:
        yield from Nudge(runs_topic(component.database))
    return started


def _encode_first(component: Component, new: NewRun, now_us: int) -> StoredEvent:
    """Return the event with which a run begins, as it is stored with the run."""
    of = (new.owner, new.session_id, new.run_id, component.kind, component.id)
    origin = EventOrigin(ClaimedRun(*of, "{}", now_us, 1), component.name)
    return origin.encode(RunStarted(**model_of(component)), 1, now_us)


def _store(database: str, unit: StartRun, change: Change) -> Program[Started]:
    """Store the run, once.

    A run that is found after a lost commit was claimed by that commit, and nobody has begun it.
    One that was there before is somebody else's to execute.
    """
    for attempt in range(1, FEW + 1):
        lost = changed = False
        try:
            started: Started = yield from change(database, unit)
            if not started.changed:
                return started
            changed = True
        except CommitLost:
            lost = True
        except (Busy, Conflict):
            pass
        row = yield from Transact(database, FetchRun(unit.run_id, unit.owner))
        if row is not None:
            claim = _own(row, unit) if lost else None
            return Started(row.run_no, claim, first=None if claim is None else unit.first)
        if changed:
            return Started(0, None, changed=True)
        yield from BACKOFF.wait(attempt)
    started = yield from change(database, unit)
    return started


def _own(row: RunRow, unit: StartRun) -> ClaimedRun | None:
    """Return the claim of a run that `unit` has stored; its first event makes it go on nowhere."""
    claimed = row.status == RunState.RUNNING and row.lease_by == unit.node
    begun = 0 if unit.first is None else 1
    return evolve(row.claim, events=0) if claimed and row.events == begun else None
