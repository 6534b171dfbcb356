"""Units of work on runs and their events.

A run is a row numbered within its session.  Whoever executes it holds the lease on the row;
`attempt` is the fencing token: every statement of the executor names node and attempt, and when no
row answers, the lease is lost and nothing is written.  One run of a session is active at a time:
the unit that ends a run claims the next one in the same transaction.

The session's row is the lock: each unit that starts, ends, cancels or claims a run writes it first,
so that those of one session come one after the other, and take their locks in one order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from attrs import frozen

from .units import Dialect, Rows, Sql, Statement, Statements, Undo, Unit

__all__ = [
    "AppendEvents",
    "CancelRun",
    "CancelsAsked",
    "ClaimWaiting",
    "ClaimedRun",
    "Ended",
    "EventsPage",
    "ExtendLeases",
    "FetchEvents",
    "FetchRun",
    "FindNeglected",
    "FinishRun",
    "Lease",
    "ListRuns",
    "Neglected",
    "ReleaseRun",
    "RunRow",
    "StartRun",
    "Started",
    "StoredEvent",
    "Usage",
    "merged",
]


@frozen
class Lease:
    """The right to execute a run: who holds it, which try this is, until when (microseconds)."""

    node: str
    attempt: int
    until_us: int


@frozen
class ClaimedRun:
    """A run that this node is to execute; its lease was written by the unit that claimed it.

    `state` is the JSON of the session's state as it stood then.
    """

    owner: str
    session_id: str
    run_id: str
    kind: str
    component_id: str
    input: str
    created_us: int
    attempt: int
    state: str = "{}"


@frozen
class RunRow:
    """One run as stored; `input` and `output` are JSON, times in microseconds since the epoch."""

    owner: str
    session_id: str
    run_no: int
    run_id: str
    parent_run_id: str | None
    kind: str
    component_id: str
    status: str
    input: str
    output: str | None
    reason: str | None
    created_us: int
    started_us: int | None
    ended_us: int | None
    events: int
    lease_by: str | None
    lease_us: int | None
    attempt: int
    cancel_us: int | None = None

    @property
    def lease(self) -> Lease:
        """The lease as it stands on the row."""
        return Lease(self.lease_by or "", self.attempt, self.lease_us or 0)

    @property
    def claim(self) -> ClaimedRun:
        """The run as whoever holds the lease was given it."""
        return ClaimedRun(
            self.owner,
            self.session_id,
            self.run_id,
            self.kind,
            self.component_id,
            self.input,
            self.created_us,
            self.attempt,
        )


_COLUMNS: Final = (
    "owner, session_id, run_no, run_id, parent_run_id, kind, component_id, status, input, output,"
    " reason, created_us, started_us, ended_us, events, lease_by, lease_us, attempt, cancel_us"
)


_CLAIMED: Final = "owner, session_id, run_id, kind, component_id, input, created_us, attempt"


@frozen
class StoredEvent:
    """An event as it is appended: the name and the JSON of its data."""

    seq: int
    name: str
    data: str


# SQLite takes a partial index only where its condition is written out, word for word.
_ACTIVE: Final = "status in ('PENDING', 'RUNNING')"


# --- Starting ----------------------------------------------------------------------------------

# A session made without a component takes the one of its first run.
OPEN_SESSION: Final = Sql(
    """insert into sessions
        (owner, session_id, kind, component_id, name, runs, version, created_us, updated_us)
    values (:owner, :session_id, :kind, :component_id, :name, 1, 1, :now, :now)
    on conflict (owner, session_id) do update set
        runs = sessions.runs + 1, version = sessions.version + 1, updated_us = excluded.updated_us,
        name = coalesce(sessions.name, excluded.name),
        kind = case when sessions.component_id = '' then excluded.kind else sessions.kind end,
        component_id = case when sessions.component_id = '' then excluded.component_id
            else sessions.component_id end
    returning runs, state"""
)
SET_STATE: Final = Sql(
    """update sessions set state = :state where owner = :owner and session_id = :session_id"""
)
STATE: Final = Sql("select state from sessions where owner = :owner and session_id = :session_id")
ACTIVE: Final = Sql(
    f"""select run_id from runs where owner = :owner and session_id = :session_id
    and {_ACTIVE} limit 1"""
)
INSERT_RUN: Final = Sql(
    """insert into runs (owner, session_id, run_no, run_id, parent_run_id, kind, component_id,
        status, input, created_us, started_us, lease_by, lease_us, attempt)
    values (:owner, :session_id, :run_no, :run_id, :parent_run_id, :kind, :component_id,
        :status, :input, :now, :started_us, :node, :until_us, :attempt)"""
)


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `under` with the members of `over`: objects are merged, all else is replaced."""
    result = dict(under)
    for name, value in over.items():
        below = result.get(name)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        result[name] = merged(below, value) if both else value  # type: ignore[arg-type]
    return result


@frozen
class Started:
    """A new run; `claim` is None while another run of the session is active.

    `rejected`: nothing was stored, since the session is busy and the run was not to wait.
    """

    run_no: int
    claim: ClaimedRun | None
    rejected: bool = False


@frozen
class StartRun(Unit[Started]):
    """Store a run and its session; claim it for `node` unless the session is busy.

    The session's row serializes those who start at once, which gives runs a dense number.
    `state` is merged into the session's.  `waits` False: a busy session rejects the run.
    """

    owner: str
    session_id: str
    run_id: str
    kind: str
    component_id: str
    input: str
    name: str
    node: str
    now_us: int
    until_us: int
    parent_run_id: str | None = None
    state: str = "{}"
    waits: bool = True

    def statements(self, dialect: Dialect) -> Statements[Started | Undo[Started]]:
        """Yield the session, the look for an active run, and the new row."""
        session = {"owner": self.owner, "session_id": self.session_id}
        component = {"kind": self.kind, "component_id": self.component_id}
        rows = yield OPEN_SESSION(**session, **component, name=self.name, now=self.now_us)
        run_no, state = rows[0]
        busy = bool((yield ACTIVE(**session)))
        if busy and not self.waits:
            return Undo(Started(0, None, rejected=True))
        if self.state != "{}":
            state = json.dumps(merged(json.loads(state), json.loads(self.state)))
            yield SET_STATE(**session, state=state)
        yield INSERT_RUN(
            **session,
            **component,
            run_no=run_no,
            run_id=self.run_id,
            parent_run_id=self.parent_run_id,
            input=self.input,
            now=self.now_us,
            status="PENDING" if busy else "RUNNING",
            started_us=None if busy else self.now_us,
            node=None if busy else self.node,
            until_us=None if busy else self.until_us,
            attempt=0 if busy else 1,
        )
        return Started(run_no, None if busy else self._claim(state))

    def _claim(self, state: str) -> ClaimedRun:
        return ClaimedRun(
            self.owner,
            self.session_id,
            self.run_id,
            self.kind,
            self.component_id,
            self.input,
            self.now_us,
            1,
            state,
        )


# --- Executing ---------------------------------------------------------------------------------

ADVANCE: Final = Sql(
    """update runs set events = :last, lease_us = :until_us
    where owner = :owner and run_id = :run_id and status = 'RUNNING'
        and lease_by = :node and attempt = :attempt
    returning cancel_us"""
)
# Who holds the lease alone writes events, and writes one again only when it does not know whether
# it is there: a commit without an answer, an interrupted wait.  Then it says the same.
INSERT_EVENTS: Final = Sql(
    """insert into events (run_id, seq, at_us, name, data)
    select :run_id, json_extract(value, '$[0]'), :now,
        json_extract(value, '$[1]'), json_extract(value, '$[2]')
    from json_each(:events) where true
    on conflict (run_id, seq) do nothing""",
    """insert into events (run_id, seq, at_us, name, data)
    select :run_id, seq, :now, name, data
    from unnest(cast(:seqs as bigint[]), cast(:names as text[]), cast(:datas as text[]))
        as e (seq, name, data)
    on conflict (run_id, seq) do nothing""",
)


def _insert_events(
    dialect: Dialect, run_id: str, now_us: int, events: Sequence[StoredEvent]
) -> Statement:
    """Return one statement for all of `events`."""
    rows: dict[str, Any]
    if dialect is Dialect.SQLITE:
        rows = {"events": json.dumps([[e.seq, e.name, e.data] for e in events])}
    else:
        rows = {
            "seqs": [e.seq for e in events],
            "names": [e.name for e in events],
            "datas": [e.data for e in events],
        }
    return INSERT_EVENTS(run_id=run_id, now=now_us, **rows)


@frozen
class AppendEvents(Unit[bool | None]):
    """Append events under the lease and extend it.

    The result is None when the lease is lost, else whether somebody asked to cancel the run.
    """

    owner: str
    run_id: str
    lease: Lease
    now_us: int
    events: tuple[StoredEvent, ...]

    def statements(self, dialect: Dialect) -> Statements[bool | None | Undo[bool | None]]:
        """Yield the fenced advance, then the events."""
        rows = yield ADVANCE(
            owner=self.owner,
            run_id=self.run_id,
            node=self.lease.node,
            attempt=self.lease.attempt,
            until_us=self.lease.until_us,
            last=self.events[-1].seq,
        )
        if not rows:
            return None
        yield _insert_events(dialect, self.run_id, self.now_us, self.events)
        return rows[0][0] is not None


# `expired_us` is given by those who end the run of another: it must not have been heard of since.
_FENCE: Final = """owner = :owner and run_id = :run_id and status = 'RUNNING'
        and lease_by = :node and attempt = :attempt
        and (cast(:expired_us as bigint) is null or lease_us < :expired_us)"""
FINISH: Final = Sql(
    f"""update runs set status = :status, output = :output, reason = :reason, usage = :usage,
        ended_us = :now, events = :last, lease_by = null, lease_us = null
    where {_FENCE}
    returning session_id"""
)
TOUCH_SESSION: Final = Sql(
    """update sessions set updated_us = :now, version = version + 1
    where owner = :owner and session_id = :session_id returning state"""
)
CLAIM_NEXT: Final = Sql(
    f"""update runs set status = 'RUNNING', started_us = :now, lease_by = :node,
        lease_us = :until_us, attempt = attempt + 1
    where owner = :owner and session_id = :session_id and status = 'PENDING' and run_no = (
        select min(run_no) from runs
        where owner = :owner and session_id = :session_id and {_ACTIVE} and status = 'PENDING')
    returning {_CLAIMED}"""
)
ENDED_SO: Final = Sql(
    """select 1 from runs where owner = :owner and run_id = :run_id
    and status = :status and attempt = :attempt and ended_us = :now"""
)
CLAIMED_SO: Final = Sql(
    f"""select {_CLAIMED} from runs where owner = :owner and session_id = :session_id
    and {_ACTIVE} and status = 'RUNNING' and lease_by = :node and started_us = :now
    and events = 0"""
)


@frozen
class Ended:
    """What ending a run did: whether the lease still held, and the session's next run."""

    kept: bool
    following: ClaimedRun | None = None


@frozen
class FinishRun(Unit[Ended]):
    """End a run with its last events and claim the next one of its session, until `until_us`.

    `lease` is that of the executor.  Whoever ends the run of a dead node names the dead one's, and
    in `expired_us` the time by which it must have passed.  Done twice, as after a commit without
    an answer, it finds its own end and its own claim.
    """

    owner: str
    session_id: str
    run_id: str
    lease: Lease
    node: str
    now_us: int
    until_us: int
    status: str
    output: str | None
    reason: str | None
    usage: str | None
    events: tuple[StoredEvent, ...]
    expired_us: int | None = None

    def statements(self, dialect: Dialect) -> Statements[Ended | Undo[Ended]]:
        """Yield the session's lock, the fenced end, the events, and the claim of the next run."""
        session = {"owner": self.owner, "session_id": self.session_id}
        run = {"owner": self.owner, "run_id": self.run_id}
        touched = yield TOUCH_SESSION(**session, now=self.now_us)
        rows = yield FINISH(
            **run,
            node=self.lease.node,
            attempt=self.lease.attempt,
            expired_us=self.expired_us,
            status=self.status,
            output=self.output,
            reason=self.reason,
            usage=self.usage,
            now=self.now_us,
            last=self.events[-1].seq,
        )
        if not rows:
            return Undo((yield from self._before()))
        yield _insert_events(dialect, self.run_id, self.now_us, self.events)
        claimed = yield CLAIM_NEXT(
            **session, node=self.node, now=self.now_us, until_us=self.until_us
        )
        return Ended(kept=True, following=_claimed(claimed, touched))

    def _before(self) -> Statements[Ended]:
        """Return what this very unit did when it was run before, if it was."""
        ended = yield ENDED_SO(
            owner=self.owner,
            run_id=self.run_id,
            status=self.status,
            attempt=self.lease.attempt,
            now=self.now_us,
        )
        if not ended:
            return Ended(kept=False)
        session = {"owner": self.owner, "session_id": self.session_id}
        claimed = yield CLAIMED_SO(**session, node=self.node, now=self.now_us)
        state = yield STATE(**session)
        return Ended(kept=True, following=_claimed(claimed, state))


def _claimed(rows: Rows, states: Rows) -> ClaimedRun | None:
    return ClaimedRun(*rows[0], *states[0]) if rows else None


# --- Cancelling --------------------------------------------------------------------------------

LOCK_SESSION: Final = Sql(
    """update sessions set version = version + 1
    where owner = :owner and session_id = :session_id returning state"""
)
STANDING: Final = Sql(
    "select status, events, output from runs where owner = :owner and run_id = :run_id"
)
ASK_TO_CANCEL: Final = Sql(
    """update runs set cancel_us = coalesce(cancel_us, :now)
    where owner = :owner and run_id = :run_id and status = 'RUNNING'"""
)
CANCEL: Final = Sql(
    """update runs set status = 'CANCELLED', output = :output, reason = 'cancelled',
        ended_us = :now, events = :last
    where owner = :owner and run_id = :run_id and status in ('PENDING', 'PAUSED')"""
)


@frozen
class CancelRun(Unit[str | None]):
    """Cancel a run that waits, or ask whoever executes it to; the status that was found, or None.

    `event` is the name and data of the event that tells, `output` the run's output where it had
    none; a run that is over stays as it is.
    """

    owner: str
    session_id: str
    run_id: str
    now_us: int
    output: str
    event: tuple[str, str]

    def statements(self, dialect: Dialect) -> Statements[str | None | Undo[str | None]]:
        """Yield the session's lock, a look, and what the status asks for."""
        run = {"owner": self.owner, "run_id": self.run_id}
        yield LOCK_SESSION(owner=self.owner, session_id=self.session_id)
        found = yield STANDING(**run)
        if not found:
            return Undo(None)
        status: str = found[0][0]
        if status == "RUNNING":
            yield ASK_TO_CANCEL(**run, now=self.now_us)
        elif status in ("PENDING", "PAUSED"):
            last, stored = found[0][1] + 1, json.loads(found[0][2] or self.output)
            output = json.dumps({**stored, "status": "CANCELLED"}, ensure_ascii=False)
            yield CANCEL(**run, now=self.now_us, output=output, last=last)
            event = StoredEvent(last, *self.event)
            yield _insert_events(dialect, self.run_id, self.now_us, (event,))
        return status


CANCELS: Final = Sql(
    """select run_id from runs where status = 'RUNNING' and cancel_us is not null
    and run_id in (select value from json_each(:runs))""",
    """select run_id from runs where status = 'RUNNING' and cancel_us is not null
    and run_id = any (:runs)""",
)


@frozen
class CancelsAsked(Unit[tuple[str, ...]]):
    """Which of `runs` somebody asked to cancel."""

    writes: ClassVar[bool] = False

    runs: tuple[str, ...]

    def statements(self, dialect: Dialect) -> Statements[tuple[str, ...] | Undo[Any]]:
        """Yield one read."""
        rows = yield CANCELS(runs=_array(dialect, self.runs))
        return tuple(row[0] for row in rows)


def _array(dialect: Dialect, texts: Sequence[str]) -> str | list[str]:
    """Return `texts` as one parameter."""
    return json.dumps(texts) if dialect is Dialect.SQLITE else list(texts)


# --- Recovering --------------------------------------------------------------------------------

ANY_EXTEND: Final = Sql(
    """update runs set lease_us = :until_us where lease_by = :node and status = 'RUNNING'
    and run_id in (select value from json_each(:runs))""",
    """update runs set lease_us = :until_us where lease_by = :node and status = 'RUNNING'
    and run_id = any (:runs)""",
)
RELEASE: Final = Sql(
    f"""update runs set status = 'PENDING', started_us = null, lease_by = null, lease_us = null
    where {_FENCE} and events = 0 and cancel_us is null
    returning run_id"""
)
ANY_EXPIRED: Final = Sql(
    f"""select {_COLUMNS} from runs where {_ACTIVE} and status = 'RUNNING' and lease_us < :now
    order by lease_us limit :size"""
)
ANY_WAITING: Final = Sql(
    f"""select owner, session_id from runs r where {_ACTIVE} and status = 'PENDING'
    and not exists (select 1 from runs a where a.owner = r.owner and a.session_id = r.session_id
        and a.{_ACTIVE} and a.status = 'RUNNING') order by created_us limit 1"""
)
RUNNING: Final = Sql(
    f"""select 1 from runs where owner = :owner and session_id = :session_id
    and {_ACTIVE} and status = 'RUNNING' limit 1"""
)


@frozen
class ExtendLeases(Unit[None]):
    """Extend the leases of the runs that `node` executes: their common heartbeat."""

    node: str
    runs: tuple[str, ...]
    until_us: int

    def statements(self, dialect: Dialect) -> Statements[None | Undo[None]]:
        """Yield one update."""
        runs = _array(dialect, self.runs)
        yield ANY_EXTEND(node=self.node, until_us=self.until_us, runs=runs)
        return None


@frozen
class ReleaseRun(Unit[bool]):
    """Let the run of a dead node wait again, if nothing has happened in it; whether that was so."""

    owner: str
    run_id: str
    lease: Lease
    expired_us: int

    def statements(self, dialect: Dialect) -> Statements[bool | Undo[bool]]:
        """Yield one fenced update."""
        rows = yield RELEASE(
            owner=self.owner,
            run_id=self.run_id,
            node=self.lease.node,
            attempt=self.lease.attempt,
            expired_us=self.expired_us,
        )
        return bool(rows)


@frozen
class Neglected:
    """What nobody works on: runs whose lease has passed, and whether any waits for nothing."""

    expired: tuple[RunRow, ...]
    waiting: bool


@frozen
class FindNeglected(Unit[Neglected]):
    """At most `size` runs whose lease has passed, oldest first; and whether any waits."""

    writes: ClassVar[bool] = False

    now_us: int
    size: int = 64

    def statements(self, dialect: Dialect) -> Statements[Neglected | Undo[Any]]:
        """Yield two reads."""
        expired = yield ANY_EXPIRED(now=self.now_us, size=self.size)
        waiting = yield ANY_WAITING()
        return Neglected(tuple(RunRow(*row) for row in expired), bool(waiting))


@frozen
class ClaimWaiting(Unit[ClaimedRun | None]):
    """Claim a run that waits in a session where none is running, or None.

    The unit that ends a run does this at once; this is for what a crash left waiting.
    """

    node: str
    now_us: int
    until_us: int

    def statements(self, dialect: Dialect) -> Statements[ClaimedRun | None | Undo[Any]]:
        """Yield the search, the session's lock, a second look under it, and the claim."""
        found = yield ANY_WAITING()
        if not found:
            return None
        session = {"owner": found[0][0], "session_id": found[0][1]}
        states = yield LOCK_SESSION(**session)
        if (yield RUNNING(**session)):
            return Undo(None)
        claimed = yield CLAIM_NEXT(
            **session, node=self.node, now=self.now_us, until_us=self.until_us
        )
        return _claimed(claimed, states)


# --- Reading -----------------------------------------------------------------------------------

FETCH: Final = Sql(f"select {_COLUMNS} from runs where owner = :owner and run_id = :run_id")
ANY_FETCH: Final = Sql(f"select {_COLUMNS} from runs where run_id = :run_id")
_LISTED: Final = f"""select {_COLUMNS} from runs where owner = :owner and session_id = :session_id
    and (cast(:status as text) is null or status = :status)
    and (cast(:created_from as bigint) is null or created_us >= :created_from)
    and (cast(:created_to as bigint) is null or created_us <= :created_to)"""
LIST: Final = Sql(f"{_LISTED} order by run_no limit :size offset :start")
LIST_NEWEST: Final = Sql(f"{_LISTED} order by run_no desc limit :size offset :start")
CONSUMED: Final = Sql(
    """select coalesce(sum(json_extract(usage, '$.input_tokens')), 0),
        coalesce(sum(json_extract(usage, '$.output_tokens')), 0)
    from runs where owner = :owner and session_id = :session_id and usage is not null""",
    """select cast(coalesce(sum(cast(cast(usage as json) ->> 'input_tokens' as int)), 0) as bigint),
        cast(coalesce(sum(cast(cast(usage as json) ->> 'output_tokens' as int)), 0) as bigint)
    from runs where owner = :owner and session_id = :session_id and usage is not null""",
)
EVENTS: Final = Sql(
    """select e.seq, e.name, e.data from events e join runs r on r.run_id = e.run_id
    where r.owner = :owner and e.run_id = :run_id and e.seq > :after order by e.seq limit :size"""
)
PROGRESS: Final = Sql("select status, events from runs where owner = :owner and run_id = :run_id")


@frozen
class FetchRun(Unit[RunRow | None]):
    """The run with this id, or None; `any_owner` is for callers who see all owners."""

    writes: ClassVar[bool] = False

    run_id: str
    owner: str | None
    any_owner: bool = False

    def statements(self, dialect: Dialect) -> Statements[RunRow | None | Undo[Any]]:
        """Yield one point read."""
        if self.any_owner:
            rows = yield ANY_FETCH(run_id=self.run_id)
        else:
            rows = yield FETCH(owner=self.owner, run_id=self.run_id)
        return RunRow(*rows[0]) if rows else None


@frozen
class ListRuns(Unit[tuple[RunRow, ...]]):
    """The runs of a session in the order they were asked for; `page` counts from 1.

    `newest`: the pages go back from the newest, each in order all the same.
    """

    writes: ClassVar[bool] = False

    owner: str
    session_id: str
    status: str | None = None
    created_from_us: int | None = None
    created_to_us: int | None = None
    page: int = 1
    size: int = 1000
    newest: bool = False

    def statements(self, dialect: Dialect) -> Statements[tuple[RunRow, ...] | Undo[Any]]:
        """Yield one read."""
        rows = yield (LIST_NEWEST if self.newest else LIST)(
            owner=self.owner,
            session_id=self.session_id,
            status=self.status,
            created_from=self.created_from_us,
            created_to=self.created_to_us,
            size=self.size,
            start=(self.page - 1) * self.size,
        )
        ordered = reversed(rows) if self.newest else rows
        return tuple(RunRow(*row) for row in ordered)


@frozen
class Usage(Unit[tuple[int, int]]):
    """The tokens that the runs of a session took in and gave out."""

    writes: ClassVar[bool] = False

    owner: str
    session_id: str

    def statements(self, dialect: Dialect) -> Statements[tuple[int, int] | Undo[Any]]:
        """Yield one read."""
        ((taken, given),) = yield CONSUMED(owner=self.owner, session_id=self.session_id)
        return taken, given


@frozen
class EventsPage:
    """Events of a run in order, and where the run stands; `status` None: no such run."""

    events: tuple[StoredEvent, ...]
    status: str | None
    last: int


@frozen
class FetchEvents(Unit[EventsPage]):
    """The events of a run behind `after`, at most `size`."""

    writes: ClassVar[bool] = False

    owner: str
    run_id: str
    after: int
    size: int = 256

    def statements(self, dialect: Dialect) -> Statements[EventsPage | Undo[EventsPage]]:
        """Yield where the run stands, then the events."""
        run = {"owner": self.owner, "run_id": self.run_id}
        progress = yield PROGRESS(**run)
        if not progress:
            return EventsPage((), None, 0)
        rows = yield EVENTS(**run, after=self.after, size=self.size)
        return EventsPage(tuple(StoredEvent(*row) for row in rows), *progress[0])
