"""The units of the last release without steps, 2.6.0, as far as nodes of it meet later rows.

The statements are those that it was shipped with, word for word: they stay as they are, whatever
becomes of the units here.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import frozen

from legation.store.run_rows import ClaimedRun, RunLease, StoredEvent, insert_events
from legation.store.run_steering import Continued
from legation.store.runs import Ended
from legation.store.units import Dialect, Rows, Sql, Statements, Undo, Unit, text_array

__all__ = [
    "CLOCK_OF_POSTGRESQL",
    "CLOCK_OF_SQLITE",
    "VERSION",
    "Append260",
    "Claim260",
    "Continue260",
    "Delete260",
    "Enter260",
    "Expired260",
    "FindExpired260",
    "Finish260",
    "Release260",
    "Start260",
]

VERSION: Final = "2.6.0"
FOREVER: Final = 9223372036854775807

CLOCK_OF_SQLITE: Final = "cast((julianday('now') - 2440587.5) * 86400000000 as integer)"
CLOCK_OF_POSTGRESQL: Final = (
    "(select cast(extract(epoch from clock_timestamp()) * 1000000 as bigint))"
)


def _statement(text: str, postgresql: str | None = None) -> Sql:
    return Sql(
        text.replace("$CLOCK", CLOCK_OF_SQLITE),
        (text if postgresql is None else postgresql).replace("$CLOCK", CLOCK_OF_POSTGRESQL),
        registered=False,
    )


CLAIMED: Final = """owner, session_id, run_id, kind, component_id, input, created_us, attempt,
        run_no, events"""
ASKED_OF: Final = "kind || ':' || component_id || coalesce('@' || version, '')"
LAPSED: Final = """(runs.lease_us <= $CLOCK or (runs.lease_us = 9223372036854775807
        and not exists (select 1 from nodes where nodes.node_id = runs.lease_by)))"""
FENCE: Final = f"""owner = :owner and run_id = :run_id and status = 'RUNNING'
        and lease_by = :node and attempt = :attempt
        and (cast(:lapsed as bigint) = 0 or {LAPSED})"""
GOES_ON: Final = "events between :before and :last"

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
        version, status, input, created_us, started_us, lease_by, lease_us, attempt)
    values (:owner, :session_id, :run_no, :run_id, :parent_run_id, :kind, :component_id,
        :version, :status, :input, :now_us, :started_us, :node, :lease_us, :attempt)"""
)
ADVANCE: Final = _statement(
    f"""update runs set events = :last, reason = null
    where owner = :owner and run_id = :run_id and status = 'RUNNING'
        and lease_by = :node and attempt = :attempt and {GOES_ON}
    returning cancel_us"""
)
FINISH: Final = _statement(
    f"""update runs set status = :status, output = :output, reason = :reason,
        usage = coalesce(cast(:usage as text), usage),
        input = coalesce(cast(:input as text), input),
        ended_us = :now_us, events = :last, lease_by = null, lease_us = null
    where {FENCE} and {GOES_ON} and (:status <> 'PAUSED' or cancel_us is null)
        and (:status <> 'CANCELLED' or cancel_us is not null)
        and (cast(:lapsed as bigint) = 0 or events = :before)
    returning session_id"""
)
WISH: Final = _statement(f"select cancel_us from runs where {FENCE} and {GOES_ON}")
TOUCH_SESSION: Final = _statement(
    """update sessions set updated_us = :now_us, version = version + 1
    where owner = :owner and session_id = :session_id returning state"""
)
NEXT: Final = _statement(
    f"""select run_no, {ASKED_OF} from runs where owner = :owner and session_id = :session_id
    and status in ('PENDING', 'RUNNING') and status = 'PENDING' order by run_no limit 1"""
)
CLAIM: Final = _statement(
    f"""update runs set status = 'RUNNING', started_us = :now_us, lease_by = :node,
        lease_us = 9223372036854775807, attempt = attempt + 1
    where owner = :owner and session_id = :session_id and run_no = :run_no and status = 'PENDING'
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
    and (events = 0 or reason is not null) and coalesce(reason, '') <> 'claimed'"""
)
STATE: Final = _statement(
    "select state from sessions where owner = :owner and session_id = :session_id"
)
HOW_IT_STANDS: Final = _statement(
    f"""select status, attempt, token, reason, lease_by, {ASKED_OF}, {CLAIMED} from runs
    where owner = :owner and run_id = :run_id"""
)
CONTINUE: Final = _statement(
    f"""update runs set status = :status, input = :input, output = null, reason = :mark,
        token = :token, ended_us = null, started_us = :started_us, lease_by = :node,
        lease_us = :lease_us, attempt = attempt + :claims
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
    f"""select owner, session_id, run_no, run_id, parent_run_id, kind, component_id, status, input,
        output, reason, created_us, started_us, ended_us, events, lease_by, lease_us, attempt,
        cancel_us
    from runs where status in ('PENDING', 'RUNNING') and status = 'RUNNING' and lease_us >= 0
    and {LAPSED}
    order by lease_us limit :size"""
)
WAITS: Final = f"""status = 'PENDING' and {ASKED_OF} {{among}}
    and not exists (select 1 from runs a where a.owner = r.owner and a.session_id = r.session_id
        and a.status in ('PENDING', 'RUNNING') and a.status = 'RUNNING'
        and a.parent_run_id is null)
    order by created_us limit 1"""
ANY_WAITING: Final = _statement(
    f"""with recursive heads (place) as (
        select (select rowid from runs where status in ('PENDING', 'RUNNING')
            order by owner, session_id limit 1)
        union all
        select coalesce(
            (select rowid from runs where status in ('PENDING', 'RUNNING')
                and owner = head.owner
                and session_id > head.session_id order by session_id limit 1),
            (select rowid from runs where status in ('PENDING', 'RUNNING') and owner > head.owner
                order by owner, session_id limit 1)
        ) from heads join runs as head on head.rowid = place
    )
    select owner, session_id from runs r where rowid in (
        select (select rowid from runs
            where owner = head.owner and session_id = head.session_id
            and status in ('PENDING', 'RUNNING') and parent_run_id is null order by run_no limit 1)
        from heads join runs as head on head.rowid = place
    ) and {WAITS.format(among="in (select value from json_each(:hosted))")}""",
    f"""with recursive heads as (
        (select owner, session_id from runs where status in ('PENDING', 'RUNNING')
            order by owner, session_id limit 1)
        union all
        select n.owner, n.session_id from heads cross join lateral (
            select owner, session_id from runs where status in ('PENDING', 'RUNNING')
            and (owner, session_id) > (heads.owner, heads.session_id)
            order by owner, session_id limit 1
        ) as n
    )
    select r.owner, r.session_id from heads cross join lateral (
        select owner, session_id, status, kind, component_id, version, created_us from runs
        where owner = heads.owner and session_id = heads.session_id
        and status in ('PENDING', 'RUNNING') and parent_run_id is null order by run_no limit 1
    ) as r where {WAITS.format(among="= any (:hosted)")}""",
)
RUNNING: Final = _statement(
    """select 1 from runs where owner = :owner and session_id = :session_id
    and status in ('PENDING', 'RUNNING') and status = 'RUNNING' and parent_run_id is null limit 1"""
)
ENTER: Final = _statement(
    """insert into nodes (node_id, started_us, beat_us, until_us, place, session_lock, hosts,
        code_version, schema_version)
    select :node, 0, up_us, up_us + 3600000000, '', 0, '[]', '0.1.0', '2.6.0' from cluster
    where one = 1
    on conflict (node_id) do update set beat_us = excluded.beat_us, until_us = excluded.until_us,
        place = excluded.place, session_lock = excluded.session_lock, hosts = excluded.hosts"""
)
DELETE_EVENTS: Final = _statement(
    """delete from events where run_id in (
        select run_id from runs where owner = :owner and session_id = :session_id)"""
)
DELETE_RUNS: Final = _statement(
    "delete from runs where owner = :owner and session_id = :session_id"
)
DELETE: Final = _statement("delete from sessions where owner = :owner and session_id = :session_id")


def _to_claim(rows: Rows, states: Rows) -> ClaimedRun | None:
    return _claim(rows[0], states[0][0]) if rows else None


def _claim(row: tuple[Any, ...], state: str) -> ClaimedRun:
    names = [name.strip() for name in CLAIMED.split(",")]
    return ClaimedRun(**dict(zip(names, row, strict=True)), state=state)


@frozen
class Enter260(Unit[None]):
    """A beat of a node of 2.6.0, as far as it tells the others that it is there."""

    node: str

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield its row, with a lease of an hour."""
        yield ENTER.of(self)


@frozen
class Start260(Unit[ClaimedRun | None]):
    """`StartRun` of 2.6.0; the claim alone."""

    owner: str
    session_id: str
    run_id: str
    kind: str
    component_id: str
    input: str
    node: str
    now_us: int

    def statements(self, dialect: Dialect) -> Statements[ClaimedRun | None]:
        """Yield the session, the look for an active run, and the new row."""
        ((run_no, state),) = yield OPEN_SESSION.of(self, name="")
        busy = bool((yield ACTIVE.of(self)))
        yield INSERT_RUN.of(
            self,
            run_no=run_no,
            parent_run_id=None,
            version=None,
            status="PENDING" if busy else "RUNNING",
            started_us=None if busy else self.now_us,
            node=None if busy else self.node,
            lease_us=None if busy else FOREVER,
            attempt=0 if busy else 1,
        )
        columns = (self.owner, self.session_id, self.run_id, self.kind, self.component_id)
        row = (*columns, self.input, self.now_us, 1, run_no, 0)
        return None if busy else _claim(row, state)


@frozen
class Append260(Unit[bool | None]):
    """`AppendEvents` of 2.6.0."""

    owner: str
    run_id: str
    lease: RunLease
    now_us: int
    events: tuple[StoredEvent, ...]

    def statements(self, dialect: Dialect) -> Statements[bool | None]:
        """Yield the fenced advance, then the events."""
        lease, before, last = self.lease, self.events[0].seq - 1, self.events[-1].seq
        rows = yield ADVANCE.of(
            self, node=lease.node, attempt=lease.attempt, before=before, last=last
        )
        if not rows:
            return None
        yield insert_events(dialect, self.run_id, self.now_us, self.events)
        return rows[0][0] is not None


@frozen
class _Session260:
    """The claim of the next run of a session, as units of 2.6.0 take it."""

    owner: str
    session_id: str
    node: str
    now_us: int
    hosted: tuple[str, ...]

    def take(self, waiting: Rows) -> Statements[tuple[Rows, bool]]:
        """Yield the claim, if the node hosts what waits; return whether others have to."""
        ((run_no, asked_of),) = waiting
        if asked_of not in self.hosted:
            return (), True
        return (yield CLAIM.of(self, run_no=run_no)), False


@frozen
class Finish260(Unit[Ended]):
    """`FinishRun` of 2.6.0, of a run without members."""

    owner: str
    session_id: str
    run_id: str
    lease: RunLease
    node: str
    now_us: int
    status: str
    events: tuple[StoredEvent, ...]
    hosted: tuple[str, ...]
    lapsed: bool = False
    input: str | None = None
    output: str = "{}"
    reason: str | None = None
    usage: str | None = None

    def statements(self, dialect: Dialect) -> Statements[Ended | Undo[Ended]]:
        """Yield the session's lock, the fenced end, the events, and the claim of the next run."""
        touched = yield TOUCH_SESSION.of(self)
        if not (yield FINISH.of(self, **self._fence())):
            return Undo((yield from self._before()))
        yield insert_events(dialect, self.run_id, self.now_us, self.events)
        waiting = yield NEXT.of(self)
        if not waiting:
            return Ended(kept=True)
        claim = _Session260(self.owner, self.session_id, self.node, self.now_us, self.hosted)
        claimed, elsewhere = yield from claim.take(waiting)
        return Ended(kept=True, following=_to_claim(claimed, touched), elsewhere=elsewhere)

    def _fence(self) -> dict[str, Any]:
        lease, events = self.lease, self.events
        fence = {"node": lease.node, "attempt": lease.attempt, "lapsed": int(self.lapsed)}
        return {**fence, "before": events[0].seq - 1, "last": events[-1].seq}

    def _before(self) -> Statements[Ended]:
        if (yield ENDED_SO.of(self, attempt=self.lease.attempt)):
            claimed = yield CLAIMED_SO.of(self)
            state = yield STATE.of(self)
            return Ended(kept=True, following=_to_claim(claimed, state))
        if self.status not in ("PAUSED", "CANCELLED"):
            return Ended(kept=False)
        wish = yield WISH.of(self, **self._fence())
        return Ended(
            kept=False,
            cancel_asked=bool(wish) and self.status == "PAUSED",
            cancel_unasked=bool(wish) and self.status == "CANCELLED",
        )


@frozen
class Continue260(Unit[Continued]):
    """`ContinueRun` of 2.6.0."""

    owner: str
    session_id: str
    run_id: str
    attempt: int
    input: str
    token: str
    node: str
    now_us: int
    hosted: tuple[str, ...]

    def statements(self, dialect: Dialect) -> Statements[Continued | Undo[Continued]]:
        """Yield the session's lock, two looks, and the claim."""
        states = yield LOCK_SESSION.of(self)
        found = yield HOW_IT_STANDS.of(self)
        status, attempt, token, reason, holder, asked_of, *columns = found[0]
        if token == self.token:
            given = (status, reason, holder) == ("RUNNING", "claimed", self.node)
            claim = _claim(tuple(columns), states[0][0]) if given else None
            return Undo(Continued("PAUSED", kept=True, claim=claim))
        if status != "PAUSED" or attempt != self.attempt:
            return Undo(Continued(status))
        elsewhere = asked_of not in self.hosted
        queued = bool((yield ACTIVE.of(self))) or elsewhere
        claimed = yield CONTINUE.of(
            self,
            mark="waiting" if queued else "claimed",
            status="PENDING" if queued else "RUNNING",
            started_us=None if queued else self.now_us,
            node=None if queued else self.node,
            lease_us=None if queued else FOREVER,
            claims=0 if queued else 1,
        )
        claim = None if queued else _to_claim(claimed, states)
        return Continued(status, kept=True, claim=claim, elsewhere=elsewhere)


@frozen
class Expired260:
    """A run whose lease has lapsed, as far as its reaper asks."""

    run_id: str
    lease: RunLease
    events: int
    reason: str | None
    cancel_us: int | None

    @property
    def untouched(self) -> bool:
        """Whether nothing has happened since it was claimed, or continued."""
        return self.events == 0 or self.reason is not None

    @property
    def is_recorded(self) -> bool:
        """No: it knows no steps."""
        return False


@frozen
class FindExpired260(Unit[tuple[Expired260, ...]]):
    """The runs of `FindNeglected` of 2.6.0 whose lease has lapsed.

    Its reaper releases those that are untouched, and ends the others.
    """

    def statements(self, dialect: Dialect) -> Statements[tuple[Expired260, ...]]:
        """Yield one read."""
        rows = yield ANY_EXPIRED(size=64)
        return tuple(
            Expired260(row[3], RunLease(row[15], row[17]), row[14], row[10], row[18])
            for row in rows
        )


@frozen
class Release260(Unit[bool]):
    """`ReleaseRun` of 2.6.0."""

    owner: str
    run_id: str
    lease: RunLease
    lapsed: bool = False

    def statements(self, dialect: Dialect) -> Statements[bool]:
        """Yield one fenced update."""
        lease = self.lease
        rows = yield RELEASE.of(
            self, node=lease.node, attempt=lease.attempt, lapsed=int(self.lapsed)
        )
        return bool(rows)


@frozen
class Claim260(Unit[ClaimedRun | None]):
    """`ClaimWaiting` of 2.6.0."""

    node: str
    now_us: int
    hosted: tuple[str, ...]

    def statements(self, dialect: Dialect) -> Statements[ClaimedRun | None | Undo[None]]:
        """Yield the search, the session's lock, a second look under it, and the claim."""
        found = yield ANY_WAITING(hosted=text_array(dialect, self.hosted))
        if not found:
            return None
        session = {"owner": found[0][0], "session_id": found[0][1]}
        states = yield LOCK_SESSION(**session)
        if (yield RUNNING(**session)):
            return Undo(None)
        claim = _Session260(**session, node=self.node, now_us=self.now_us, hosted=self.hosted)
        claimed, _ = yield from claim.take((yield NEXT(**session)))
        return _to_claim(claimed, states)


@frozen
class Delete260(Unit[None]):
    """`DeleteSessions` of 2.6.0, of one session."""

    owner: str
    session_id: str

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield the deletions."""
        for statement in (DELETE_EVENTS, DELETE_RUNS, DELETE):
            yield statement.of(self)
