"""Units of the release before, 2.7.0, as far as they meet the states that runs leave.

The statements are those that it was shipped with, word for word: they stay as they are, whatever
becomes of the units here.  Of how it executes runs nothing has changed since; `release_before` has
the release without steps.
"""

from __future__ import annotations

import json
from typing import Any, Final

from attrs import frozen

from legation.migrations.schema_version import Version
from legation.store.run_rows import RunLease, StoredEvent, insert_events
from legation.store.units import Dialect, Sql, Statements, Undo, Unit

from .release_before import CLOCK_OF_POSTGRESQL, CLOCK_OF_SQLITE

__all__ = ["VERSION", "Cancel270", "Continue270", "Delete270", "Finish270", "Read270", "Start270"]

VERSION: Final = Version(2, 7, 0)
FOREVER: Final = 9223372036854775807


def _statement(text: str, postgresql: str | None = None) -> Sql:
    return Sql(text, postgresql, registered=False)


COLUMNS: Final = """owner, session_id, run_no, run_id, parent_run_id, kind, component_id, status,
    input, output, reason, created_us, started_us, ended_us, events, lease_by, lease_us, attempt,
    cancel_us, tries, recorded"""
LAPSED: Final = """(runs.lease_us <= $CLOCK or (runs.lease_us = 9223372036854775807
        and not exists (select 1 from nodes where nodes.node_id = runs.lease_by)))"""
FENCE: Final = f"""owner = :owner and run_id = :run_id and status = 'RUNNING'
        and lease_by = :node and attempt = :attempt
        and (cast(:lapsed as bigint) = 0 or {LAPSED})"""
_FINISH: Final = f"""update runs set status = :status, output = :output, reason = :reason,
        usage = coalesce(cast(:usage as text), usage),
        input = coalesce(cast(:input as text), input),
        ended_us = :now_us, events = :last, lease_by = null, lease_us = null
    where {FENCE} and events between :before and :last
        and (:status <> 'PAUSED' or cancel_us is null)
        and (:status <> 'CANCELLED' or cancel_us is not null)
        and (cast(:lapsed as bigint) = 0 or events = :before)
    returning session_id"""
FINISH: Final = _statement(
    _FINISH.replace("$CLOCK", CLOCK_OF_SQLITE), _FINISH.replace("$CLOCK", CLOCK_OF_POSTGRESQL)
)
TOUCH_SESSION: Final = _statement(
    """update sessions set updated_us = :now_us, version = version + 1
    where owner = :owner and session_id = :session_id returning state"""
)
LOCK_SESSION: Final = _statement(
    """update sessions set version = version + 1
    where owner = :owner and session_id = :session_id returning state"""
)
OPEN_SESSION: Final = _statement(
    """insert into sessions
        (owner, session_id, kind, component_id, name, runs, version, created_us, updated_us, state)
    values (:owner, :session_id, 'agent', 'desk', '', 1, 1, :now_us, :now_us, :state)"""
)
INSERT_RUN: Final = _statement(
    """insert into runs (owner, session_id, run_no, run_id, kind, component_id, status, input,
        created_us, started_us, lease_by, lease_us, attempt, tries, recorded)
    values (:owner, :session_id, 1, :run_id, 'agent', 'desk', 'RUNNING', '{}',
        :now_us, :now_us, :node, 9223372036854775807, 1, 1, 1)"""
)
CONTINUE: Final = _statement(
    """update runs set status = :status, input = :input, output = null, reason = :mark,
        token = :token, ended_us = null, started_us = :started_us, lease_by = :node,
        lease_us = :lease_us, attempt = attempt + :claims, tries = :claims,
        recorded = attempt + :claims
    where owner = :owner and run_id = :run_id and status = 'PAUSED' and attempt = :attempt
    returning attempt"""
)
CANCEL: Final = _statement(
    """update runs set status = 'CANCELLED', output = :output, reason = 'cancelled',
        ended_us = :now_us, events = :last
    where owner = :owner and run_id = :run_id and status in ('PENDING', 'PAUSED')"""
)
STANDING: Final = _statement(
    "select status, events, output from runs where owner = :owner and run_id = :run_id"
)
FETCH: Final = _statement(f"select {COLUMNS} from runs where owner = :owner and run_id = :run_id")
EVENTS: Final = _statement(
    """select e.seq, e.name, e.data from events e join runs r on r.run_id = e.run_id
    where r.owner = :owner and e.run_id = :run_id and e.seq > :after order by e.seq limit :size"""
)
DELETIONS: Final = tuple(
    map(
        _statement,
        (
            """delete from events where run_id in (
                select run_id from runs where owner = :owner and session_id = :session_id)""",
            """delete from steps where run_id in (
                select run_id from runs where owner = :owner and session_id = :session_id)""",
            "delete from runs where owner = :owner and session_id = :session_id",
            "delete from sessions where owner = :owner and session_id = :session_id",
        ),
    )
)


@frozen
class Start270(Unit[None]):
    """Store the first run of a session, and claim it."""

    owner: str
    session_id: str
    run_id: str
    node: str
    now_us: int
    state: str

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield the session and the run."""
        yield OPEN_SESSION.of(self)
        yield INSERT_RUN.of(self)


@frozen
class Finish270(Unit[bool]):
    """`FinishRun` of 2.7.0, of a run that nothing waits behind: whether it ended."""

    owner: str
    session_id: str
    run_id: str
    lease: RunLease
    now_us: int
    status: str
    output: str
    event: StoredEvent

    def statements(self, dialect: Dialect) -> Statements[bool | Undo[bool]]:
        """Yield the session's lock, the fenced end, and the event."""
        yield TOUCH_SESSION.of(self)
        ended = yield FINISH.of(
            self,
            node=self.lease.node,
            attempt=self.lease.attempt,
            lapsed=0,
            reason=None,
            usage=None,
            input=None,
            before=self.event.seq - 1,
            last=self.event.seq,
        )
        if not ended:
            return Undo(False)
        yield insert_events(dialect, self.run_id, self.now_us, (self.event,))
        return True


@frozen
class Continue270(Unit[bool]):
    """`ContinueRun` of 2.7.0, of a run that is claimed at once: whether it was."""

    owner: str
    session_id: str
    run_id: str
    attempt: int
    node: str
    now_us: int

    def statements(self, dialect: Dialect) -> Statements[bool]:
        """Yield the session's lock, and the claim."""
        yield LOCK_SESSION.of(self)
        claimed = yield CONTINUE.of(
            self,
            status="RUNNING",
            input="{}",
            mark="claimed",
            token="t",
            started_us=self.now_us,
            lease_us=FOREVER,
            claims=1,
        )
        return bool(claimed)


@frozen
class Cancel270(Unit[None]):
    """`CancelRun` of 2.7.0, of a run that is paused."""

    owner: str
    session_id: str
    run_id: str
    now_us: int

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield the session's lock, a look, and the end; the output is written with spaces."""
        yield LOCK_SESSION.of(self)
        ((_, events, stored),) = yield STANDING.of(self)
        output = json.dumps({**json.loads(stored), "status": "CANCELLED"}, ensure_ascii=False)
        yield CANCEL.of(self, output=output, last=events + 1)
        event = StoredEvent(events + 1, "RunCancelled", "{}")
        yield insert_events(dialect, self.run_id, self.now_us, (event,))


@frozen
class Read270(Unit[tuple[Any, tuple[str, ...]]]):
    """`FetchRun` and `FetchEvents` of 2.7.0: the output as it shows it, and the events."""

    owner: str
    run_id: str

    def statements(self, dialect: Dialect) -> Statements[tuple[Any, tuple[str, ...]]]:
        """Yield two reads."""
        (row,) = yield FETCH.of(self)
        events = yield EVENTS.of(self, after=0, size=256)
        return json.loads(row[9]), tuple(data for _, _, data in events)


@frozen
class Delete270(Unit[None]):
    """`DeleteSessions` of 2.7.0, of one session."""

    owner: str
    session_id: str

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield the deletions."""
        for statement in DELETIONS:
            yield statement.of(self)
