"""Units of work for keeping runs: wishes to cancel, and what nobody works on."""

from __future__ import annotations

from typing import ClassVar, Final

from ..values import frozen
from .leases import FOREVER, end_of_lease, fill_clock, has_lapsed
from .run_rows import (
    ACTIVE_RUN,
    COLUMNS,
    EXECUTED,
    EXECUTED_RUN,
    LOCK_SESSION,
    RECORDED_MARK,
    UNTOUCHED,
    ClaimedRun,
    RunLease,
    RunRow,
    literal,
    to_claimed_run,
)
from .run_states import RunMove, state_after
from .runs import CLAIM, FENCE
from .session_state import RETURNED_STATE, STATE
from .turns import FOR_ANYBODY, LOCK_SHARE, NEXT_WAITING, STILL_NEXT, search_waiting
from .units import Dialect, ReadUnit, Rows, Sql, Statements, Undo, Unit, Work, text_array

__all__ = [
    "CancelsAsked",
    "ClaimWaiting",
    "ExpireRuns",
    "FindNeglected",
    "LeasedRuns",
    "Missed",
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
RELEASE: Final = fill_clock(
    f"""update runs set status = {_RELEASED}, started_us = null, lease_by = null, lease_us = null,
        tries = tries - :untried,
        reason = case when events = 0 then null when {UNTOUCHED} then 'released'
            else '{RECORDED_MARK}' end
    where {FENCE} and cancel_us is null
        and ({UNTOUCHED} or (recorded = attempt and not {_BEFORE_STEPS}))
    returning run_id"""
)
# What waits has no lease: `>= 0` lets the index leave it out.
ANY_EXPIRED: Final = fill_clock(
    f"""select {COLUMNS} from runs where {ACTIVE_RUN} and {EXECUTED_RUN} and lease_us >= 0
    and {has_lapsed("runs")}
    order by lease_us limit :size"""
)


ANY_EXPIRY: Final = fill_clock(
    f"select min({end_of_lease('runs')}) from runs where {ACTIVE_RUN} and {EXECUTED_RUN}"
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

    Of what waits, only what was asked of one of `hosted` counts, and may be executed by now.
    """

    hosted: tuple[str, ...]
    size: int = 64

    def statements(self, dialect: Dialect) -> Work[Neglected]:
        """Yield two reads."""
        expired, waiting = yield ANY_EXPIRED.of(self), search_waiting(dialect, self.hosted)
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
        if (yield search_waiting(dialect, self.hosted)):
            return 0
        rows = yield ANY_EXPIRY()
        next_us: int | None = rows[0][0]
        return next_us


# Whoever claims beside this node has the lock of another of these sessions.
LOCK_FREE: Final = Sql(
    "select :owners, :sessions",
    f"""with free as materialized (
        select owner, session_id from sessions join
            unnest(cast(:owners as text[]), cast(:sessions as text[]))
            with ordinality as next (owner, session_id, place) using (owner, session_id)
        order by next.place for update of sessions skip locked limit 1)
    update sessions set version = version + 1 from free
    where sessions.owner = free.owner and sessions.session_id = free.session_id
    returning {RETURNED_STATE}, sessions.owner, sessions.session_id""",
)


@frozen
class Missed:
    """The run whose turn it was is not to be had any more: somebody else was quicker."""


@frozen
class ClaimWaiting(Unit[ClaimedRun | Missed | None]):
    """Claim the run whose turn it is, or None.

    The unit that ends a run goes on with the next of its session, where nobody else waits; this is
    for all others.  `hosted` is what the node hosts, `full` are the subjects of which it executes
    as many runs as it has room for.
    """

    closing: ClassVar[frozenset[Sql]] = frozenset((CLAIM,))

    node: str
    now_us: int
    hosted: tuple[str, ...]
    full: tuple[str, ...] = ()

    def statements(
        self, dialect: Dialect
    ) -> Work[ClaimedRun | Missed | None | Undo[Missed | None]]:
        """Yield the search, the locks, a second look under them, and the claim.

        On SQLite nobody else writes meanwhile.  On PostgreSQL many nodes may claim at once: none
        waits for the session of another, and none claims where all that is next is being claimed.
        """
        found = yield search_waiting(dialect, self.hosted, self.full, NEXT_WAITING)
        if not found:
            return None
        states: Rows
        if dialect is Dialect.SQLITE:
            owner, session_id, run_no, _ = found[0]
            states = yield LOCK_SESSION(owner=owner, session_id=session_id)
        else:
            owners, sessions = zip(*(row[:2] for row in found), strict=True)
            locked = yield LOCK_FREE(owners=[*owners], sessions=[*sessions])
            if not locked:
                return None
            state, owner, session_id = locked[0]
            states = ((state,),)
            mine = next(row for row in found if row[:2] == (owner, session_id))
            run_no, share = mine[2:]
            again = {"owner": owner, "session_id": session_id, "run_no": run_no, "share": share}
            look = STILL_NEXT(**again, most=FOR_ANYBODY.at_once)
            _, still = yield LOCK_SHARE(share=share), look
            if not still:
                return Undo(Missed())
        session = {"owner": owner, "session_id": session_id}
        if states and states[0][0] is None:
            states = yield STATE(**session)
        claimed = yield CLAIM.of(self, **session, run_no=run_no)
        return to_claimed_run(claimed, states)
