"""Starting a run: stored first, then executed here, or by whoever ends the session's active one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from attrs import field

from ..effects import Program, Spawn, Transact
from ..hosted.registry import Component
from ..http.messages import compact_json
from ..store.failures import Busy, CommitLost, Conflict
from ..store.run_reads import FetchRun
from ..store.run_rows import ClaimedRun, RunRow
from ..store.run_states import RunState
from ..store.runs import Started, StartRun
from ..values import frozen
from .executor import ExecuteRun, ExecutorContext
from .membership import enter
from .retry import BACKOFF, FEW, Change, transact

__all__ = ["NewRun", "start"]

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NAME_LENGTH: Final = 500


@frozen
class NewRun:
    """A run that is asked for: whose, in which session, with which message.

    `pieces`: what its model says is stored piece by piece, for whoever follows the run, now or
    later.  `state` is merged into the session's; `details` are members of the input beside the
    message.
    `waits` False: while another run of the session is active, this one is not taken.
    """

    owner: str
    session_id: str
    run_id: str
    message: str
    pieces: bool
    state: Mapping[str, Any] = field(factory=dict[str, Any])
    details: Mapping[str, Any] = field(factory=dict[str, Any])
    waits: bool = True


def start(
    context: ExecutorContext, component: Component, new: NewRun, change: Change = transact
) -> Program[Started]:
    """Store a run and see that it is executed; it goes on whatever becomes of this program.

    The first message names the session; control characters have no place in a name.  A run that
    is there already, under the same id of the same owner, is left as it is.
    """
    node, now_us = yield from enter(context.cluster, component.database)
    started = yield from _store(
        component.database,
        StartRun(
            owner=new.owner,
            session_id=new.session_id,
            run_id=new.run_id,
            kind=component.kind,
            component_id=component.id,
            version=component.version,
            input=compact_json({"message": new.message, "stream": new.pieces, **new.details}),
            name=_CONTROL.sub(" ", new.message[:_NAME_LENGTH]),
            node=node,
            now_us=now_us,
            state=compact_json(new.state),
            waits=new.waits,
        ),
        change,
    )
    if started.claim is not None:
        yield from Spawn(ExecuteRun(context, component.database, started.claim))
    return started


def _store(database: str, unit: StartRun, change: Change) -> Program[Started]:
    """Store the run, once.

    A run that is found after a lost commit was claimed by that commit, and nobody has begun it.
    One that was there before is somebody else's to execute.
    """
    for attempt in range(1, FEW + 1):
        lost = False
        try:
            started: Started = yield from change(database, unit)
            return started
        except CommitLost:
            lost = True
        except (Busy, Conflict):
            pass
        row = yield from Transact(database, FetchRun(unit.run_id, unit.owner))
        if row is not None:
            return Started(row.run_no, _own(row, unit.node) if lost else None)
        yield from BACKOFF.wait(attempt)
    started = yield from change(database, unit)
    return started


def _own(row: RunRow, node: str) -> ClaimedRun | None:
    claimed = row.status == RunState.RUNNING and row.lease_by == node
    return row.claim if claimed else None
