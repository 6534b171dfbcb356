"""Units of work for keeping runs: wishes to cancel, and what nobody works on."""

from __future__ import annotations

from typing import Final

from ..values import frozen
from .leases import FOREVER, clocked, end_of_lease, lapsed
from .run_rows import (
    ACTIVE_RUN,
    ASKED_OF,
    COLUMNS,
    EXECUTED,
    EXECUTED_RUN,
    LOCK_SESSION,
    OF_A_CLIENT,
    RECORDED_MARK,
    UNTOUCHED,
    WAITING_RUN,
    ClaimedRun,
    RunLease,
    RunRow,
    literal,
    to_claimed_run,
)
from .run_states import RunMove, state_after
from .runs import FENCE, NEXT, SessionClaim
from .units import Dialect, ReadUnit, Sql, Statements, Undo, Unit, text_array

__all__ = [
    "CancelsAsked",
    "ClaimWaiting",
    "ExpireRuns",
    "FindNeglected",
    "LeasedRuns",
    "Neglected",
    "NextNeglected",
    "ReleaseRun",
]

CANCELS: Final = Sql(
    f"""select held.value as run_id from json_each(:runs) as held where not exists (
    select 1 from runs
    where runs.run_id = held.value and (status <> {literal(EXECUTED)} or cancel_us is null))""",
    f"""select held.run_id from unnest(cast(:runs as text[])) as held (run_id) where not exists (
    select 1 from runs
    where runs.run_id = held.run_id and (status <> {literal(EXECUTED)} or cancel_us is null))""",
)


@frozen
class CancelsAsked(ReadUnit[tuple[str, ...]]):
    """The runs, of `runs`, that somebody asked to cancel or deleted with their session."""

    runs: tuple[str, ...]

    def statements(self, dialect: Dialect) -> Statements[tuple[str, ...]]:
        """Yield one read."""
        rows = yield CANCELS(runs=text_array(dialect, self.runs))
        return tuple(row[0] for row in rows)


LEASED_RUNS: Final = Sql(
    f"""select run_id, attempt from runs
    where {ACTIVE_RUN} and {EXECUTED_RUN} and lease_us = {FOREVER} and lease_by = :node"""
)
EXPIRE: Final = Sql(
    f"""update runs set lease_us = 0 where run_id = :run_id and {EXECUTED_RUN}
    and lease_by = :node and attempt = :attempt"""
)
_RELEASED: Final = literal(state_after(RunMove.RELEASE))
# A node of a release that knows no steps would begin the run again.
_BEFORE_STEPS: Final = """exists (select 1 from nodes where schema_version in ('2.5.6', '2.6.0'))"""
RELEASE: Final = clocked(
    f"""update runs set status = {_RELEASED}, started_us = null, lease_by = null, lease_us = null,
        tries = tries - :untried,
        reason = case when events = 0 then null when {UNTOUCHED} then 'released'
            else '{RECORDED_MARK}' end
    where {FENCE} and cancel_us is null
        and ({UNTOUCHED} or (recorded = attempt and not {_BEFORE_STEPS}))
    returning run_id"""
)
# What waits has no lease: `>= 0` lets the index leave it out.
ANY_EXPIRED: Final = clocked(
    f"""select {COLUMNS} from runs where {ACTIVE_RUN} and {EXECUTED_RUN} and lease_us >= 0
    and {lapsed("runs")}
    order by lease_us limit :size"""
)


# The sessions are found by jumping from one to the next in the index of active runs: what a search
# costs grows with the number of sessions, not with that of their runs.  The first run of a session
# that a client asked for counts alone: one behind it is for nobody, whatever it was asked of.
_FIRST: Final = f"{ACTIVE_RUN} and {OF_A_CLIENT} order by run_no limit 1"
_NEXT_TO_GO_ON: Final = f"""{WAITING_RUN} and {ASKED_OF} {{among}}
    and not exists (select 1 from runs a where a.owner = r.owner and a.session_id = r.session_id
        and a.{ACTIVE_RUN} and a.{EXECUTED_RUN} and a.{OF_A_CLIENT})
    order by created_us limit 1"""
ANY_WAITING: Final = Sql(
    f"""with recursive heads (place) as (
        select (select rowid from runs where {ACTIVE_RUN} order by owner, session_id limit 1)
        union all
        select coalesce(
            (select rowid from runs where {ACTIVE_RUN} and owner = head.owner
                and session_id > head.session_id order by session_id limit 1),
            (select rowid from runs where {ACTIVE_RUN} and owner > head.owner
                order by owner, session_id limit 1)
        ) from heads join runs as head on head.rowid = place
    )
    select owner, session_id from runs r where rowid in (
        select (select rowid from runs
            where owner = head.owner and session_id = head.session_id and {_FIRST})
        from heads join runs as head on head.rowid = place
    ) and {_NEXT_TO_GO_ON.format(among="in (select value from json_each(:hosted))")}""",
    f"""with recursive heads as (
        (select owner, session_id from runs where {ACTIVE_RUN} order by owner, session_id limit 1)
        union all
        select n.owner, n.session_id from heads cross join lateral (
            select owner, session_id from runs where {ACTIVE_RUN}
            and (owner, session_id) > (heads.owner, heads.session_id)
            order by owner, session_id limit 1
        ) as n
    )
    select r.owner, r.session_id from heads cross join lateral (
        select owner, session_id, status, kind, component_id, version, created_us from runs
        where owner = heads.owner and session_id = heads.session_id and {_FIRST}
    ) as r where {_NEXT_TO_GO_ON.format(among="= any (:hosted)")}""",
)
ANY_EXPIRY: Final = clocked(
    f"select min({end_of_lease('runs')}) from runs where {ACTIVE_RUN} and {EXECUTED_RUN}"
)
RUNNING: Final = Sql(
    f"""select 1 from runs where owner = :owner and session_id = :session_id
    and {ACTIVE_RUN} and {EXECUTED_RUN} and {OF_A_CLIENT} limit 1"""
)


@frozen
class LeasedRuns(ReadUnit[tuple[tuple[str, int], ...]]):
    """The runs that `node` has the lease of, each with its attempt, executed or not."""

    node: str

    def statements(self, dialect: Dialect) -> Statements[tuple[tuple[str, int], ...]]:
        """Yield one read."""
        return tuple((run_id, attempt) for run_id, attempt in (yield LEASED_RUNS.of(self)))


@frozen
class ExpireRuns(Unit[None]):
    """Let leases of `node` lapse, since no program executes the runs; each has its attempt."""

    node: str
    runs: tuple[tuple[str, int], ...]

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield an update for each."""
        for run_id, attempt in self.runs:
            yield EXPIRE.of(self, run_id=run_id, attempt=attempt)


@frozen
class ReleaseRun(Unit[bool]):
    """Let a run wait again, for any node that hosts it to go on with; whether that was done.

    It is not where somebody asked to cancel the run, and where what happened in it is not among its
    steps, or a node of a release without steps could claim it.  `lease` is that of the executor;
    who names another's says that it must have `lapsed`.  `tried` False: it counts for no try.
    """

    owner: str
    run_id: str
    lease: RunLease
    lapsed: bool = False
    tried: bool = True

    def statements(self, dialect: Dialect) -> Statements[bool]:
        """Yield one fenced update."""
        rows = yield RELEASE.of(
            self,
            node=self.lease.node,
            attempt=self.lease.attempt,
            lapsed=int(self.lapsed),
            untried=int(not self.tried),
        )
        return bool(rows)


@frozen
class Neglected:
    """The neglected work: runs whose lease has lapsed, and whether any waits for nothing."""

    expired: tuple[RunRow, ...]
    waiting: bool


@frozen
class FindNeglected(ReadUnit[Neglected]):
    """At most `size` runs whose lease has lapsed; and whether any waits.

    Of what waits, only what was asked of one of `hosted` counts.
    """

    hosted: tuple[str, ...]
    size: int = 64

    def statements(self, dialect: Dialect) -> Statements[Neglected]:
        """Yield two reads."""
        expired = yield ANY_EXPIRED.of(self)
        waiting = yield ANY_WAITING(hosted=text_array(dialect, self.hosted))
        return Neglected(tuple(RunRow(*row) for row in expired), bool(waiting))


@frozen
class NextNeglected(ReadUnit[int | None]):
    """The time at which the next run may need an executor, past or to come; None where none can.

    A run that waits needs one since ever, where it was asked of one of `hosted`; one that is
    executed, when its node does not beat again.
    """

    hosted: tuple[str, ...]

    def statements(self, dialect: Dialect) -> Statements[int | None]:
        """Yield two reads."""
        if (yield ANY_WAITING(hosted=text_array(dialect, self.hosted))):
            return 0
        rows = yield ANY_EXPIRY()
        next_us: int | None = rows[0][0]
        return next_us


@frozen
class ClaimWaiting(Unit[ClaimedRun | None]):
    """Claim a run that waits in a session where none is running, or None.

    The unit that ends a run does this at once; this is for what a crash left waiting, and for what
    the node that ended the run before does not host.  `hosted` is what this one does.
    """

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
        claim = SessionClaim(
            **session,
            node=self.node,
            now_us=self.now_us,
            hosted=self.hosted,
        )
        claimed, _ = yield from claim.take((yield NEXT(**session)))
        return to_claimed_run(claimed, states)
