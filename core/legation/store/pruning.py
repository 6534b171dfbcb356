"""The pruning of old sessions, and of old runs with their events and steps, a bite at a time.

A bite looks at so many rows behind a place and deletes those that are old and done with, so that
whoever stores something meanwhile waits for a moment at most.  It goes along an index that is
there for another reason: none is kept for this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from ..values import frozen
from .periods import Kind, Periods
from .run_deletion import (
    SessionKey,
    Waiting,
    delete_events,
    delete_run,
    delete_steps,
    find_waiting,
    give_back,
    lock_sessions,
    with_sizes,
)
from .run_rows import INACTIVE_RUN, OF_A_CLIENT, status_is
from .run_states import RunState
from .sessions import DeleteSessions
from .table_pruning import ANY_SCANNED, BITE_ROWS, TABLE_BITERS, Bite, Biter, Old, Place
from .units import Dialect, Sql, Statements

__all__ = ["BITERS", "count_old"]

_MOST_SESSIONS: Final = 20
_MOST_RUNS: Final = 200
_MOST_WEIGHT: Final = 2_000
"""How much a bite deletes: runs and their events, each counts one."""

_OVER: Final = status_is(*(state for state in RunState if state.final))
_OPEN: Final = _OVER.replace(" in ", " not in ")

# --- Sessions -----------------------------------------------------------------------------------

# The index of recent sessions has all of it: no state is read, however long.
_SCAN_SESSIONS: Final = """select owner, kind, updated_us, session_id from sessions
    {} order by owner, kind, updated_us desc, session_id desc limit :size"""
ANY_SESSIONS: Final = Sql(_SCAN_SESSIONS.format(""))
OLDER_SESSIONS: Final = Sql(
    """select owner, kind, updated_us, session_id from sessions
    where owner = :owner and kind = :kind and (updated_us, session_id) < (:updated_us, :session_id)
    order by updated_us desc, session_id desc limit :size"""
)
ANY_FURTHER_SESSIONS: Final = Sql(_SCAN_SESSIONS.format("where (owner, kind) > (:owner, :kind)"))
_IN_SESSION: Final = "from runs where owner = :owner and session_id = :session_id"
STANDING: Final = Sql(
    f"""select updated_us, (select count(*) {_IN_SESSION} and {_OPEN}),
    (select 1 + count(*) + coalesce(sum(events), 0) {_IN_SESSION})
    from sessions where owner = :owner and session_id = :session_id"""
)
FIRST_RUNS: Final = Sql(f"select run_id {_IN_SESSION} order by run_no limit :most")


def _scan_sessions(place: Place) -> Statements[list[tuple[Any, ...]]]:
    """Return the sessions behind `place`: by their owner and kind, the newest first."""
    if not place:
        return list((yield ANY_SESSIONS(size=BITE_ROWS)))
    names = ("owner", "kind", "updated_us", "session_id")
    rows = list((yield OLDER_SESSIONS(**dict(zip(names, place, strict=True)), size=BITE_ROWS)))
    if len(rows) < BITE_ROWS:
        left = BITE_ROWS - len(rows)
        rows += yield ANY_FURTHER_SESSIONS(owner=place[0], kind=place[1], size=left)
    return rows


def _bite_sessions(dialect: Dialect, old: Old, place: Place) -> Statements[Bite]:
    """Delete old sessions in which nothing waits; of one that is too much, the first runs."""
    rows = yield from _scan_sessions(place)
    found = [row for row in rows if row[2] < old.before_us][:_MOST_SESSIONS]
    following: Place | None = None
    if len(found) == _MOST_SESSIONS:
        following = found[-1]
    elif len(rows) == BITE_ROWS:
        following = rows[-1]
    if not found:
        return Bite(0, following)
    waiting = yield from find_waiting()
    yield from lock_sessions((owner, session_id) for owner, _, _, session_id in found)
    whole, weight = list[tuple[str, str, None]](), 0
    for row in found:
        owner, session_id = row[0], row[3]
        size = yield from _weigh_session(owner, session_id, old, waiting)
        if whole and weight + size > _MOST_WEIGHT:
            following = place
            break
        if size > _MOST_WEIGHT:
            yield from _delete_first_runs(owner, session_id)
            return Bite(0, place)
        whole += [(owner, session_id, None)] if size else []
        weight, place = weight + size, row
    if whole:
        yield from DeleteSessions(tuple(whole), None, old.now_us).statements(dialect)
    return Bite(len(whole), following)


def _weigh_session(owner: str, session_id: str, old: Old, waiting: Waiting) -> Statements[int]:
    """Return how much a session is to delete, behind its lock; 0 where it is to stay."""
    rows = yield STANDING(owner=owner, session_id=session_id)
    if not rows or rows[0][0] >= old.before_us or rows[0][1]:
        return 0
    held = yield from waiting.holds(owner, session_id)
    return 0 if held else int(rows[0][2])


def _delete_first_runs(owner: str, session_id: str) -> Statements[None]:
    """Delete the first runs of a session; what is counted for them is given back with it."""
    left = _MOST_WEIGHT
    for (run_id,) in (yield FIRST_RUNS(owner=owner, session_id=session_id, most=_MOST_RUNS)):
        events, _ = yield from delete_events(owner, run_id, left)
        left -= events
        if left <= 0:
            return
        yield from delete_run(owner, run_id)


# --- Runs, their events, their steps ------------------------------------------------------------

_STATES: Final = tuple(state for state in RunState if state.final)
# Along the index of runs that are listed.
_SCAN_RUNS: Final = f"""select created_us, run_id, owner, session_id, run_no, kind, ended_us,
    {{has}} from runs where {OF_A_CLIENT} and {INACTIVE_RUN} and {{state}}
    and created_us < :before_us and (created_us, run_id) > (:created_us, :run_id)
    order by created_us, run_id limit :size"""
_HAS: Final = (
    "case when exists (select 1 from {0} where {0}.run_id = runs.run_id) then 1 else 0 end"
)


def _scans(has: str) -> tuple[Sql, ...]:
    """Return what reads the runs in each of the states in which they are over."""
    return tuple(Sql(_SCAN_RUNS.format(has=has, state=status_is(state))) for state in _STATES)


ANY_OLD_RUNS: Final = dict(enumerate(_scans("1")))
ANY_WITH_EVENTS: Final = dict(enumerate(_scans(_HAS.format("events"))))
ANY_WITH_STEPS: Final = dict(enumerate(_scans(_HAS.format("steps"))))
LAST_OPEN: Final = Sql(f"select max(run_no) {_IN_SESSION} and {_OPEN}")
MEMBERS: Final = Sql(
    f"select run_id, parent_run_id {_IN_SESSION} and parent_run_id is not null order by run_no"
)
DELETE_STATE: Final = with_sizes(
    f"""delete from session_states where owner = :owner and session_id = :session_id
    and digest = :digest and not exists (select 1 {_IN_SESSION} and state = :digest)
    returning {{}}""",
    "document",
)


@frozen
class _Run:
    """A run that is over."""

    place: Place
    owner: str
    session_id: str
    run_id: str
    run_no: int
    kind: str

    @property
    def session(self) -> SessionKey:
        """The key of its session."""
        return self.owner, self.session_id


@frozen
class _Cut:
    """A cut into a run: what went, its bytes, how much work it was, and whether all of it went."""

    pruned: int
    bytes: int
    weight: int
    whole: bool = True


_Cutter: TypeAlias = Callable[[_Run, int], Statements[_Cut]]


def _cut_events(run: _Run, most: int) -> Statements[_Cut]:
    count, size = yield from delete_events(run.owner, run.run_id, most)
    return _Cut(count, size, count, count < most)


def _cut_steps(run: _Run, most: int) -> Statements[_Cut]:
    count, size = yield from delete_steps(run.owner, run.run_id)
    return _Cut(count, size, count)


def _cut_run(run: _Run, most: int) -> Statements[_Cut]:
    """Delete a run with those of its members, the events first."""
    family = yield from _find_family(run)
    weight, size = len(family), 0
    for run_id in family:
        events, of_events = yield from delete_events(run.owner, run_id, most)
        weight, size = weight + events, size + of_events
        if events == most:
            return _Cut(0, size, weight, whole=False)
    states: set[str] = set()
    for run_id in family:
        gone = yield from delete_run(run.owner, run_id)
        size += gone.bytes
        states |= {gone.state} if gone.state else set()
    for digest in sorted(states):
        session = {"owner": run.owner, "session_id": run.session_id}
        size += sum(n for (n,) in (yield DELETE_STATE(**session, digest=digest)))
    return _Cut(1, size, weight)


def _find_family(run: _Run) -> Statements[list[str]]:
    """Return the run and those of its members, theirs included; a member comes behind its team."""
    family = {run.run_id: None}
    if run.kind == "team":
        for run_id, parent in (yield MEMBERS(owner=run.owner, session_id=run.session_id)):
            if parent in family:
                family[run_id] = None
    return list(family)


def _bite_runs(scans: Mapping[int, Sql], cut: _Cutter) -> Biter:
    """Return what cuts into the runs that ended long ago, and that no message waits for."""

    def bite(dialect: Dialect, old: Old, place: Place) -> Statements[Bite]:
        rows, following = yield from _scan_runs(scans, old, place)
        waiting = yield from find_waiting()
        found = [run for run in rows if run.run_id not in waiting.runs]
        locked = yield from lock_sessions({run.session for run in found})
        if cut is _cut_run:
            found = yield from _leave_told(found)
        freed, left, pruned = dict[SessionKey, int](), _MOST_WEIGHT, 0
        for run in found:
            if left <= 0:
                following = place
                break
            done = yield from cut(run, left)
            freed[run.session] = freed.get(run.session, 0) + done.bytes
            left, pruned = left - done.weight, pruned + done.pruned
            if not done.whole:
                following = place
                break
            place = run.place
        yield from give_back(freed, locked, old.now_us)
        return Bite(pruned, following)

    return bite


def _leave_told(found: list[_Run]) -> Statements[list[_Run]]:
    """Return the runs that no open run of their session may tell its model about."""
    last: dict[SessionKey, int] = {}
    for owner, session_id in dict.fromkeys(run.session for run in found):
        ((number,),) = yield LAST_OPEN(owner=owner, session_id=session_id)
        last[owner, session_id] = number or 0
    return [run for run in found if run.run_no > last[run.session]]


def _scan_runs(
    scans: Mapping[int, Sql], old: Old, place: Place
) -> Statements[tuple[list[_Run], Place | None]]:
    """Return the old runs behind `place` that have what is pruned, and where the next bite begins.

    A place is the number of a state, and the time and the id of a run in it.
    """
    state, created_us, run_id = place or (0, -1, "")
    rows = yield scans[int(state)](
        before_us=old.before_us, created_us=created_us, run_id=run_id, size=_MOST_RUNS
    )
    found = [
        _Run((state, created, run), owner, session, run, number, kind)
        for created, run, owner, session, number, kind, ended, has in rows
        if has and ended is not None and ended < old.before_us
    ]
    if len(rows) == _MOST_RUNS:
        return found, (state, rows[-1][0], rows[-1][1])
    return found, (int(state) + 1, -1, "") if int(state) + 1 < len(scans) else None


BITERS: Final[Mapping[Kind, Biter]] = {
    Kind.SESSIONS: _bite_sessions,
    Kind.RUNS: _bite_runs(ANY_OLD_RUNS, _cut_run),
    Kind.EVENTS: _bite_runs(ANY_WITH_EVENTS, _cut_events),
    Kind.STEPS: _bite_runs(ANY_WITH_STEPS, _cut_steps),
    **TABLE_BITERS,
}
"""By kind, but for the trail: what prunes a bite of it."""


# --- Counting -----------------------------------------------------------------------------------

_HELD_RUNS: Final = """(
    select i.run_id from inbox i where i.state = 'ready' and i.run_id is not null
    union select i.run_id from outbox o join inbox i
    on i.channel = o.channel and i.message_id = o.message_id
    where o.state = 'ready' and i.run_id is not null)"""
_OLD_SESSION: Final = f"""s.updated_us < :sessions_us and not exists (
    select 1 from runs u where u.owner = s.owner and u.session_id = s.session_id
    and (u.{_OPEN} or u.run_id in {_HELD_RUNS}))"""
_STAYS: Final = f"""not exists (select 1 from sessions s
    where s.owner = runs.owner and s.session_id = runs.session_id and {_OLD_SESSION})"""
_OLD_RUN: Final = f"""runs.parent_run_id is null and runs.{_OVER} and runs.ended_us < :before_us
    and runs.run_id not in {_HELD_RUNS} and {_STAYS}"""
_OF_RUNS: Final = """select count(*) from {0} join runs on runs.run_id = {0}.run_id
    where {1} and runs.ended_us >= :runs_us"""
ANY_COUNTS: Final[Mapping[Kind, Sql]] = {
    Kind.SESSIONS: Sql(f"select count(*) from sessions s where {_OLD_SESSION}"),
    Kind.RUNS: Sql(
        f"""select count(*) from runs left join (
            select owner, session_id, max(run_no) as last from runs where {_OPEN}
            group by owner, session_id) as told
        on told.owner = runs.owner and told.session_id = runs.session_id
        where {_OLD_RUN} and runs.run_no > coalesce(told.last, 0)"""
    ),
    Kind.EVENTS: Sql(_OF_RUNS.format("events", _OLD_RUN)),
    Kind.STEPS: Sql(_OF_RUNS.format("steps", _OLD_RUN)),
}


def count_old(kind: Kind, periods: Periods, now_us: int) -> Statements[int]:
    """Return how much of `kind` would go now, beside what goes with its session or its run."""
    told = {
        "before_us": periods.before_us(kind, now_us),
        "sessions_us": periods.before_us(Kind.SESSIONS, now_us),
        "runs_us": periods.before_us(Kind.RUNS, now_us),
        "now_us": now_us,
    }
    statements = (
        (ANY_COUNTS[kind],)
        if kind in ANY_COUNTS
        else tuple(sql["count"] for sql in ANY_SCANNED[kind].values())
    )
    found = 0
    for sql in statements:
        ((count,),) = yield sql(**{name: told[name] for name in sql.names})
        found += count
    return found
