"""The units of the release before, 2.5.6, as far as nodes of it meet the rows of this one.

The statements are those that it was shipped with, word for word: they stay as they are, whatever
becomes of the units here.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import frozen

from legation.store.run_rows import ClaimedRun, RunLease, StoredEvent, insert_events
from legation.store.run_steering import Continued
from legation.store.runs import Ended
from legation.store.units import Dialect, Rows, Sql, Statements, Undo, Unit

__all__ = [
    "Append256",
    "Claim256",
    "Continue256",
    "FindExpired256",
    "Finish256",
    "Release256",
    "Start256",
]


def _statement(text: str) -> Sql:
    return Sql(text, registered=False)


CLAIMED: Final = """owner, session_id, run_id, kind, component_id, input, created_us, attempt,
        run_no, events"""
FENCE: Final = """owner = :owner and run_id = :run_id and status = 'RUNNING'
        and lease_by = :node and attempt = :attempt
        and (cast(:expired_us as bigint) is null or lease_us < :expired_us)"""

LOCK_SESSION: Final = _statement(
    """update sessions set version = version + 1
    where owner = :owner and session_id = :session_id returning state"""
)
OPEN_SESSION: Final = _statement(
    """insert into sessions
        (owner, session_id, kind, component_id, name, runs, version, created_us, updated_us)
    values (:owner, :session_id, :kind, :component_id, :name, 1, 1, :now_us, :now_us)
    on conflict (owner, session_id) do update set
        runs = sessions.runs + 1, version = sessions.version + 1, updated_us = excluded.updated_us,
        name = coalesce(sessions.name, excluded.name),
        kind = case when sessions.component_id = '' then excluded.kind else sessions.kind end,
        component_id = case when sessions.component_id = '' then excluded.component_id
            else sessions.component_id end
    returning runs, state"""
)
ACTIVE: Final = _statement(
    """select run_id from runs where owner = :owner and session_id = :session_id
    and status in ('PENDING', 'RUNNING') and parent_run_id is null limit 1"""
)
INSERT_RUN: Final = _statement(
    """insert into runs (owner, session_id, run_no, run_id, parent_run_id, kind, component_id,
        status, input, created_us, started_us, lease_by, lease_us, attempt)
    values (:owner, :session_id, :run_no, :run_id, :parent_run_id, :kind, :component_id,
        :status, :input, :now_us, :started_us, :node, :until_us, :attempt)"""
)
ADVANCE: Final = _statement(
    """update runs set events = :last, lease_us = :until_us, reason = null
    where owner = :owner and run_id = :run_id and status = 'RUNNING'
        and lease_by = :node and attempt = :attempt
    returning cancel_us"""
)
FINISH: Final = _statement(
    f"""update runs set status = :status, output = :output, reason = :reason,
        usage = coalesce(cast(:usage as text), usage),
        input = coalesce(cast(:input as text), input),
        ended_us = :now_us, events = :last, lease_by = null, lease_us = null
    where {FENCE} and (:status <> 'PAUSED' or cancel_us is null)
        and (:status <> 'CANCELLED' or cancel_us is not null)
    returning session_id"""
)
WISH: Final = _statement(f"select cancel_us from runs where {FENCE}")
TOUCH_SESSION: Final = _statement(
    """update sessions set updated_us = :now_us, version = version + 1
    where owner = :owner and session_id = :session_id returning state"""
)
CLAIM_NEXT: Final = _statement(
    f"""update runs set status = 'RUNNING', started_us = :now_us, lease_by = :node,
        lease_us = :until_us, attempt = attempt + 1
    where owner = :owner and session_id = :session_id and status = 'PENDING' and run_no = (
        select min(run_no) from runs
        where owner = :owner and session_id = :session_id
            and status in ('PENDING', 'RUNNING') and status = 'PENDING')
    returning {CLAIMED}"""
)
ENDED_SO: Final = _statement(
    """select 1 from runs where owner = :owner and run_id = :run_id
    and status = :status and attempt = :attempt and ended_us = :now_us"""
)
CLAIMED_SO: Final = _statement(
    f"""select {CLAIMED} from runs where owner = :owner and session_id = :session_id
    and status in ('PENDING', 'RUNNING') and status = 'RUNNING' and lease_by = :node
    and started_us = :now_us
    and (events = 0 or reason is not null) and coalesce(reason, '') not like 'claimed:%'"""
)
STATE: Final = _statement(
    "select state from sessions where owner = :owner and session_id = :session_id"
)
HOW_IT_STANDS: Final = _statement(
    f"""select status, attempt, reason, lease_by, {CLAIMED} from runs
    where owner = :owner and run_id = :run_id"""
)
CONTINUE: Final = _statement(
    f"""update runs set status = :status, input = :input, output = null, reason = :mark,
        ended_us = null, started_us = :started_us, lease_by = :node, lease_us = :until_us,
        attempt = attempt + :claims
    where owner = :owner and run_id = :run_id and status = 'PAUSED' and attempt = :attempt
    returning {CLAIMED}"""
)
RELEASE: Final = _statement(
    f"""update runs set status = 'PENDING', started_us = null, lease_by = null, lease_us = null,
        reason = case when events = 0 then null else 'released' end
    where {FENCE} and (events = 0 or reason is not null) and cancel_us is null
    returning run_id"""
)
ANY_EXPIRED: Final = _statement(
    """select run_id, lease_by, attempt, events, reason, cancel_us from runs
    where status in ('PENDING', 'RUNNING') and status = 'RUNNING' and lease_us < :now_us
    order by lease_us limit :size"""
)
ANY_WAITING: Final = _statement(
    """select owner, session_id from runs r
    where status in ('PENDING', 'RUNNING') and status = 'PENDING'
    and not exists (select 1 from runs a where a.owner = r.owner and a.session_id = r.session_id
        and a.status in ('PENDING', 'RUNNING') and a.status = 'RUNNING' and a.parent_run_id is null)
    order by created_us limit 1"""
)
RUNNING: Final = _statement(
    """select 1 from runs where owner = :owner and session_id = :session_id
    and status in ('PENDING', 'RUNNING') and status = 'RUNNING' and parent_run_id is null limit 1"""
)


def _to_claim(rows: Rows, states: Rows) -> ClaimedRun | None:
    return _claim(rows[0], states[0][0]) if rows else None


def _claim(row: tuple[Any, ...], state: str) -> ClaimedRun:
    names = [name.strip() for name in CLAIMED.split(",")]
    return ClaimedRun(**dict(zip(names, row, strict=True)), state=state)


@frozen
class Start256(Unit[ClaimedRun | None]):
    """`StartRun` of 2.5.6; the claim alone."""

    owner: str
    session_id: str
    run_id: str
    kind: str
    component_id: str
    input: str
    node: str
    now_us: int
    until_us: int

    def statements(self, dialect: Dialect) -> Statements[ClaimedRun | None]:
        """Yield the session, the look for an active run, and the new row."""
        ((run_no, state),) = yield OPEN_SESSION.of(self, name="")
        busy = bool((yield ACTIVE.of(self)))
        yield INSERT_RUN.of(
            self,
            run_no=run_no,
            parent_run_id=None,
            status="PENDING" if busy else "RUNNING",
            started_us=None if busy else self.now_us,
            node=None if busy else self.node,
            until_us=None if busy else self.until_us,
            attempt=0 if busy else 1,
        )
        columns = (self.owner, self.session_id, self.run_id, self.kind, self.component_id)
        row = (*columns, self.input, self.now_us, 1, run_no, 0)
        return None if busy else _claim(row, state)


@frozen
class Append256(Unit[bool | None]):
    """`AppendEvents` of 2.5.6."""

    owner: str
    run_id: str
    lease: RunLease
    now_us: int
    until_us: int
    events: tuple[StoredEvent, ...]

    def statements(self, dialect: Dialect) -> Statements[bool | None]:
        """Yield the fenced advance, then the events."""
        lease, last = self.lease, self.events[-1].seq
        rows = yield ADVANCE.of(self, node=lease.node, attempt=lease.attempt, last=last)
        if not rows:
            return None
        yield insert_events(dialect, self.run_id, self.now_us, self.events)
        return rows[0][0] is not None


@frozen
class Finish256(Unit[Ended]):
    """`FinishRun` of 2.5.6, of a run without members."""

    owner: str
    session_id: str
    run_id: str
    lease: RunLease
    node: str
    now_us: int
    until_us: int
    status: str
    events: tuple[StoredEvent, ...]
    expired_us: int | None = None
    input: str | None = None
    output: str = "{}"
    reason: str | None = None
    usage: str | None = None

    def statements(self, dialect: Dialect) -> Statements[Ended | Undo[Ended]]:
        """Yield the session's lock, the fenced end, the events, and the claim of the next run."""
        lease, last = self.lease, self.events[-1].seq
        touched = yield TOUCH_SESSION.of(self)
        if not (yield FINISH.of(self, node=lease.node, attempt=lease.attempt, last=last)):
            return Undo((yield from self._before()))
        yield insert_events(dialect, self.run_id, self.now_us, self.events)
        claimed = yield CLAIM_NEXT.of(self)
        return Ended(kept=True, following=_to_claim(claimed, touched))

    def _before(self) -> Statements[Ended]:
        if (yield ENDED_SO.of(self, attempt=self.lease.attempt)):
            claimed = yield CLAIMED_SO.of(self)
            state = yield STATE.of(self)
            return Ended(kept=True, following=_to_claim(claimed, state))
        if self.status not in ("PAUSED", "CANCELLED"):
            return Ended(kept=False)
        wish = yield WISH.of(self, node=self.lease.node, attempt=self.lease.attempt)
        return Ended(
            kept=False,
            cancel_asked=bool(wish) and self.status == "PAUSED",
            cancel_unasked=bool(wish) and self.status == "CANCELLED",
        )


@frozen
class Continue256(Unit[Continued]):
    """`ContinueRun` of 2.5.6: its token stands behind the mark."""

    owner: str
    session_id: str
    run_id: str
    attempt: int
    input: str
    token: str
    node: str
    now_us: int
    until_us: int

    def statements(self, dialect: Dialect) -> Statements[Continued | Undo[Continued]]:
        """Yield the session's lock, two looks, and the claim."""
        states = yield LOCK_SESSION.of(self)
        found = yield HOW_IT_STANDS.of(self)
        status, attempt, reason, holder, *columns = found[0]
        if reason == self._mark(busy=True):
            return Undo(Continued("PAUSED", kept=True))
        if reason == self._mark(busy=False) and (status, holder) == ("RUNNING", self.node):
            claim = _claim(tuple(columns), states[0][0])
            return Undo(Continued("PAUSED", kept=True, claim=claim))
        if status != "PAUSED" or attempt != self.attempt:
            return Undo(Continued(status))
        busy = bool((yield ACTIVE.of(self)))
        claimed = yield CONTINUE.of(
            self,
            mark=self._mark(busy=busy),
            status="PENDING" if busy else "RUNNING",
            started_us=None if busy else self.now_us,
            node=None if busy else self.node,
            until_us=None if busy else self.until_us,
            claims=0 if busy else 1,
        )
        return Continued(status, kept=True, claim=None if busy else _to_claim(claimed, states))

    def _mark(self, *, busy: bool) -> str:
        return f"{'waiting' if busy else 'claimed'}:{self.token}"


@frozen
class Expired256:
    """A run whose lease has passed, as far as its reaper asks."""

    run_id: str
    lease: RunLease
    events: int
    reason: str | None
    cancel_us: int | None

    @property
    def untouched(self) -> bool:
        """Whether nothing has happened since it was claimed, or continued."""
        return self.events == 0 or self.reason is not None


@frozen
class FindExpired256(Unit[tuple[Expired256, ...]]):
    """The runs of `FindNeglected` of 2.5.6 whose lease has passed."""

    now_us: int

    def statements(self, dialect: Dialect) -> Statements[tuple[Expired256, ...]]:
        """Yield one read."""
        rows = yield ANY_EXPIRED.of(self, size=64)
        return tuple(
            Expired256(run_id, RunLease(node, attempt), *rest)
            for run_id, node, attempt, *rest in rows
        )


@frozen
class Release256(Unit[bool]):
    """`ReleaseRun` of 2.5.6."""

    owner: str
    run_id: str
    lease: RunLease
    expired_us: int | None = None

    def statements(self, dialect: Dialect) -> Statements[bool]:
        """Yield one fenced update."""
        rows = yield RELEASE.of(self, node=self.lease.node, attempt=self.lease.attempt)
        return bool(rows)


@frozen
class Claim256(Unit[ClaimedRun | None]):
    """`ClaimWaiting` of 2.5.6: it takes whatever waits."""

    node: str
    now_us: int
    until_us: int

    def statements(self, dialect: Dialect) -> Statements[ClaimedRun | None | Undo[None]]:
        """Yield the search, the session's lock, a second look under it, and the claim."""
        found = yield ANY_WAITING()
        if not found:
            return None
        session = {"owner": found[0][0], "session_id": found[0][1]}
        states = yield LOCK_SESSION(**session)
        if (yield RUNNING(**session)):
            return Undo(None)
        return _to_claim((yield CLAIM_NEXT.of(self, **session)), states)
