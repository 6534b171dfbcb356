"""A run that somebody names by its id alone: in which database it is, and how it is cancelled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from attrs import evolve

from ..access.decide import name_of
from ..effects import Now, Program, Sleep, Transact
from ..http.messages import Unfinished
from ..http.sse import EventId
from ..store.failures import StoreFailure
from ..store.run_reads import FetchRun
from ..store.run_rows import RunRow
from ..store.run_states import RunState
from ..values import frozen
from .cancellation import cancel
from .executor import ExecutorContext
from .followers import Followed, tail, tail_of_member
from .output import iso_time, run_output
from .retry import FEW, Change, with_retry

__all__ = [
    "FoundRun",
    "cancel_run",
    "describe_found",
    "find_run",
    "find_top",
    "follow",
    "wait_for_end",
]

_LOOK_SECONDS: Final = 0.2


@frozen
class FoundRun:
    """A run, and the id of the database that it is in."""

    database: str
    row: RunRow

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return RunState(self.row.status).final


def find_run(databases: Iterable[str], run_id: str) -> Program[tuple[FoundRun, ...]]:
    """Return the runs of this id: one, or none, or one in each of several databases.

    Raises:
        StoreFailure: None was found, and a database did not answer that may have one.
    """
    found: list[FoundRun] = []
    trouble: StoreFailure | None = None
    for database in databases:
        try:
            fetch = FetchRun(run_id, None, any_owner=True)
            row = yield from with_retry(database, fetch, FEW)
        except StoreFailure as failure:
            trouble = failure
            continue
        if row is not None:
            found.append(FoundRun(database, row))
    if trouble is not None and not found:
        raise trouble
    return tuple(found)


def find_top(database: str, owner: str, run_id: str) -> Program[str]:
    """Return the run that `run_id` is part of, in whose journal all events stand; or itself."""
    parent: str | None = run_id
    while parent is not None:
        run_id = parent
        row = yield from Transact(database, FetchRun(run_id, owner))
        parent = None if row is None else row.parent_run_id
    return run_id


def cancel_run(context: ExecutorContext, found: FoundRun, change: Change) -> Program[str | None]:
    """Cancel a run; return the status that it had, None where it is gone."""
    row = found.row
    name = _name(context, row)
    return (yield from cancel(context.cluster.member(found.database), row, name, change))


def wait_for_end(found: FoundRun, seconds: float) -> Program[FoundRun | None]:
    """Return the run once it has ended, or as it is after `seconds`; None where it is gone."""
    fetch, waited_us = FetchRun(found.row.run_id, found.row.owner), round(seconds * 1_000_000)
    end_us = (yield from Now()) + waited_us
    while True:
        row = yield from with_retry(found.database, fetch, FEW)
        if row is None:
            return None
        looked = FoundRun(found.database, row)
        if looked.is_over or (yield from Now()) >= end_us:
            return looked
        yield from Sleep(_LOOK_SECONDS)


def follow(context: ExecutorContext, found: FoundRun, after: int = 0) -> Program[Unfinished | None]:
    """Emit the events of a run behind `after`, as they are stored, until it is over or waits.

    The stream of a run that nobody executes or ends is not whole.
    """
    row = found.row
    path = f"/{row.kind}s/{row.component_id}/runs/{row.run_id}/events"
    followed = Followed(
        context,
        found.database,
        row.claim,
        _name(context, row),
        row.run_id,
        path,
        parent_run_id=row.parent_run_id,
    )
    if row.parent_run_id is None:
        return (yield from tail(followed, after))
    top_id = yield from find_top(found.database, row.owner, row.parent_run_id)
    return (yield from tail_of_member(evolve(followed, top_id=top_id), after))


def _name(context: ExecutorContext, row: RunRow) -> str:
    hosted = context.registry.components(row.kind).get(row.component_id)
    return row.component_id if hosted is None else hosted.name


def describe_found(found: FoundRun) -> dict[str, Any]:
    """Return all that is known of a run, for who looks after it."""
    row = found.row
    running = row.status == RunState.RUNNING
    return {
        "run_id": row.run_id,
        "parent_run_id": row.parent_run_id,
        "db_id": found.database,
        "component": {"kind": row.kind, "id": row.component_id},
        "user_id": name_of(row.owner),
        "session_id": row.session_id,
        "status": row.status,
        "created_at": iso_time(row.created_us),
        "started_at": None if row.started_us is None else iso_time(row.started_us),
        "ended_at": None if row.ended_us is None else iso_time(row.ended_us),
        "node": row.lease_by if running else None,
        "attempt": row.attempt,
        "cancel_asked_at": None if row.cancel_us is None else iso_time(row.cancel_us),
        "error_type": row.reason if row.status == RunState.ERROR else None,
        "last_event_id": str(EventId(row.run_id, row.events)) if row.events else None,
        "run": run_output(row),
    }
