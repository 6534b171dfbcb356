"""Units of work on runs and their events.

A run is a row numbered within its session.  Whoever executes it holds the lease on the row, as long
as its node lives (`leases`).  `attempt` is the fencing token: every statement of the executor names
node and attempt, and when no row answers, the lease is lost and nothing is written.  One run of a
session is active at a time: the unit that ends a run claims the next one in the same transaction.

The session's row is the lock: each unit that starts, ends, cancels or claims a run writes it first,
so that those of one session come one after the other, and take their locks in one order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from attrs import evolve, field

from ..values import frozen
from .forks import RunFork
from .leases import FOREVER, fill_clock, has_lapsed
from .member_runs import end_members, read_failure
from .once import WORTH, shorten_output
from .outbox import Letter, put_letters
from .run_rows import (
    ACTIVE_RUN,
    ASKED_OF,
    CLAIMED,
    CLAIMED_MARK,
    EXECUTED,
    EXECUTED_RUN,
    LOCK_SESSION,
    NEW_VERSION,
    NEXT_VERSION,
    OF_A_CLIENT,
    SESSION,
    SESSION_BY_ID,
    SINCE_CLAIM,
    UNTOUCHED,
    WAITING_RUN,
    ClaimedRun,
    RunLease,
    RunOrder,
    StoredEvent,
    insert_events,
    literal,
    order_columns,
    shorten_events,
    to_claimed_run,
)
from .run_states import RunMove, RunState, state_after
from .session_state import (
    EMPTY,
    NO_CHANGE,
    RETURNED_STATE,
    SET_STATE,
    STATE,
    StateChange,
    apply,
    is_too_long,
    keep_state,
    select_state,
)
from .steps import NO_RECORDS, Records, write_records
from .turns import (
    FOR_ANYBODY,
    SHARE,
    SIGHTS,
    SIGHTS_OF_ANY,
    TURN,
    WAITS,
    RunShare,
    ask_look,
    look_at,
    look_closely,
)
from .units import NO_ROWS, Dialect, Rows, Sql, Statements, Undo, Unit, Work
from .usage import ADD_BYTES, ADDITIONS, add_usage, count_octets, keeper_of

__all__ = [
    "CLAIM",
    "NEXT",
    "AppendEvents",
    "Ended",
    "FinishRun",
    "StartRun",
    "Started",
    "merge_objects",
]

# --- Starting ----------------------------------------------------------------------------------

_NEW: Final = RunState.PENDING

# A session made without a component takes the one of its first run.
_OPEN: Final = f"""insert into sessions
        (owner, session_id, kind, component_id, name, runs, version, created_us, updated_us)
    values (:owner, :session_id, :kind, :component_id, :name, 1, {NEW_VERSION}, :now_us, :now_us)
    on conflict (owner, session_id) do update set
        runs = sessions.runs + 1, version = {NEXT_VERSION}, updated_us = excluded.updated_us,
        name = coalesce(sessions.name, excluded.name),
        kind = case when sessions.component_id = '' then excluded.kind else sessions.kind end,
        component_id = case when sessions.component_id = '' then excluded.component_id
            else sessions.component_id end
    returning runs, {RETURNED_STATE}"""
# On SQLite it returns what a look finds as well; on PostgreSQL, where the session's row has to be
# locked before anybody looks, the look is a statement of its own.
OPEN_SESSION: Final = Sql(f"{_OPEN}, {SIGHTS}", _OPEN)
OPEN_SESSION_OF_ANY: Final = Sql(f"{_OPEN}, {SIGHTS_OF_ANY}", _OPEN)
INSERT_RUN: Final = Sql(
    f"""insert into runs (owner, session_id, run_no, run_id, parent_run_id, kind, component_id,
        version, status, input, created_us, started_us, lease_by, lease_us, attempt, tries,
        recorded, subject, events)
    values (:owner, :session_id, :run_no, :run_id, :parent_run_id, :kind, :component_id,
        :version, {literal(EXECUTED)}, :input, :now_us, :now_us, :node, {FOREVER}, 1, 1,
        1, :subject, :events)"""
)
INSERT_WAITING: Final = Sql(
    f"""insert into runs (owner, session_id, run_no, run_id, parent_run_id, kind, component_id,
        version, status, input, created_us, subject, turn, at_once)
    values (:owner, :session_id, :run_no, :run_id, :parent_run_id, :kind, :component_id,
        :version, {literal(_NEW)}, :input, :now_us, :subject, {TURN}, :at_once)"""
)


def merge_objects(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `under` with the members of `over`: objects are merged, all else is replaced."""
    result = dict(under)
    for name, value in over.items():
        below = result.get(name)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        # `both` narrows nothing for a type checker.
        result[name] = merge_objects(below, value) if both else value  # type: ignore[arg-type]
    return result


@frozen
class Started:
    """A new run; `claim` is None where it waits: for another run of its session, or for its turn.

    `rejected`: nothing was stored, since the session is busy and the run was not to wait.
    `over` is the limit for which nothing was stored: `waiting`, `tokens`, `stored_bytes` or
    `state_bytes`.  `queued`: it waits for a place, not for its session.  `changed`: nothing was
    stored, since what it is a fork of is not as it was, or is gone.  `first` is the event that was
    stored with a run that is claimed.
    """

    run_no: int
    claim: ClaimedRun | None
    rejected: bool = False
    over: str = ""
    queued: bool = False
    changed: bool = False
    first: StoredEvent | None = None


@frozen
class StartRun(RunOrder, Unit[Started]):
    """Store a run and its session; claim it for `node`, or let it wait.

    It waits while the session is busy, and where its share leaves no place; see `turns`.  No later
    run of a subject overtakes one that waits for a place and that `hosted` has.

    The session's row serializes those who start at once, which gives runs a dense number.
    `state` is merged into the session's.  `waits` False: a busy session rejects the run.
    `version` is that of the agent or team; None where any of them will do.  `subject` is whose
    share it is counted against, None for the owner's.  `fork` is what it has of another run.
    `first` is the event with which the run begins: it is stored where the run is claimed, so that
    it can be shown at once.  None: whoever executes the run stores it with what follows.  The claim
    has no events in either case, since nothing goes on.
    """

    name: str
    node: str
    now_us: int
    parent_run_id: str | None = None
    state: str = "{}"
    waits: bool = True
    version: str | None = None
    hosted: tuple[str, ...] = ()
    share: RunShare = FOR_ANYBODY
    fork: RunFork | None = None
    first: StoredEvent | None = None

    def statements(self, dialect: Dialect) -> Work[Started | Undo[Started]]:
        """Return what yields the session, a look at what is active and waits, and the new row."""
        if self.fork is None:
            return self._start(dialect, len(self.input))
        return self._start_fork(dialect, self.fork)

    def _start_fork(self, dialect: Dialect, fork: RunFork) -> Work[Started | Undo[Started]]:
        if not (yield from fork.open_session()):
            return Undo(Started(0, None, changed=True))
        started = yield from self._start(dialect, len(self.input) + fork.size)
        if isinstance(started, Undo):
            return started
        if not (yield from fork.stands(self.owner)):
            return Undo(Started(0, None, changed=True))
        yield from fork.copy_steps(dialect, self, self.share.subject, self.now_us)
        return started

    def _start(self, dialect: Dialect, size: int) -> Work[Started | Undo[Started]]:
        share = self.share
        place = look_at(share, dialect, self.owner, self.session_id, self.hosted, self.now_us)
        opening = OPEN_SESSION if share.subject is None else OPEN_SESSION_OF_ANY
        seen: Sequence[Any] = ()
        rows = NO_ROWS
        if dialect is Dialect.SQLITE:
            ((run_no, state, *seen),) = yield opening.of(self, **place)
        else:
            ((run_no, state),), rows = yield opening.of(self, **place), ask_look(share, place)
        if state is None:
            ((state,),) = yield STATE.of(self)
        if dialect is Dialect.SQLITE:
            found = share.find(seen)
        else:
            found = yield from look_closely(share, dialect, ask_look(share, place), rows)
        if found.busy and not self.waits:
            return Undo(Started(0, None, rejected=True))
        if over := share.find_over(found, size):
            return Undo(Started(0, None, over=over))
        if self.state != "{}":
            before = len(state)
            state = json.dumps(merge_objects(json.loads(state), json.loads(self.state)))
            if len(state) > before and is_too_long(state, share.state_bytes):
                return Undo(Started(0, None, over="state_bytes"))
            yield SET_STATE.of(self, state=state)
        if found.waits:
            yield INSERT_WAITING.of(self, run_no=run_no, **share.wait(self.owner))
            return Started(run_no, None, queued=not found.busy)
        first = () if self.first is None else (self.first,)
        yield INSERT_RUN.of(self, run_no=run_no, subject=share.subject, events=len(first))
        if first:
            yield insert_events(dialect, self.run_id, self.now_us, first)
        columns = (*order_columns(self), self.now_us, 1, run_no, 0, 1, share.subject, state)
        columns = (*columns, found.used, found.used_nano)
        claimed: tuple[Any, ...] = columns
        return Started(run_no, ClaimedRun(*claimed), first=self.first)


# --- Executing ---------------------------------------------------------------------------------

# What is written goes on where the row stands, or is written a second time.  A row that stands
# anywhere else is not the one that the lease was given on: an older database has been restored.
_GOES_ON: Final = "events between :before and :last"
_LEASED: Final = f"""owner = :owner and run_id = :run_id and {EXECUTED_RUN}
        and lease_by = :node and attempt = :attempt"""
# PostgreSQL would find the run in the small index of those that are active, and read each of the
# owner's there, with those that have ended since it was tidied; or in another that begins with the
# owner.  Expressions are in none of them, so that the run is found by its id.
_BY_ID: Final = f"run_id = :run_id and owner || '' = :owner and {EXECUTED_RUN}"
_LEASED_BY_ID: Final = f"""{_BY_ID.replace("status =", "status || '' =")}
        and lease_by = :node and attempt = :attempt"""
_ADVANCE: Final = f"""update runs set events = :last, reason = null,
        tries = case when cast(:progress as bigint) = 1 then 1 else tries end
    where {{fence}} and {_GOES_ON}
    returning cancel_us"""
ADVANCE: Final = Sql(_ADVANCE.format(fence=_LEASED), _ADVANCE.format(fence=_LEASED_BY_ID))


@frozen
class AppendEvents(Unit[bool | None]):
    """Append events and steps under the lease.

    The result is None when the lease is lost, else whether somebody asked to cancel the run.  It is
    lost as well where the events do not go on where the stored ones end: `last` is the number of
    the newest one, which is stored already where there are steps alone.  `message`: as a
    `FinishRun` has it.
    """

    owner: str
    run_id: str
    lease: RunLease
    now_us: int
    events: tuple[StoredEvent, ...]
    last: int
    records: Records = NO_RECORDS
    message: str | None = None

    def statements(self, dialect: Dialect) -> Work[bool | None | Undo[bool | None]]:
        """Yield the fenced advance, then the events and the steps."""
        lease, records = self.lease, self.records
        states, rows = NO_ROWS, NO_ROWS
        advance = ADVANCE.of(
            self,
            node=lease.node,
            attempt=lease.attempt,
            before=self.last - len(self.events),
            progress=int(records.progress),
        )
        if records.state is not None:  # the session's row is locked before that of the run
            states, rows = yield LOCK_SESSION.of(records.state), advance
        elif records.moves:
            _, rows = yield LOCK_SESSION.of(records.moves[0]), advance
        else:
            rows = yield advance
        if not rows:
            return Undo(None)
        if events := self.events:
            events = shorten_events(events, self.message) if self.message else events
            yield insert_events(dialect, self.run_id, self.now_us, events)
        attempt, state = lease.attempt, states[0][0] if states else EMPTY
        if state is None:
            ((state,),) = yield STATE.of(records.state)
        yield from write_records(dialect, self.run_id, attempt, self.now_us, records, state)
        return rows[0][0] is not None


# `lapsed` is for those who end the run of another, whose node must be gone.  That node may only
# have been silent: what it stored since the run was looked at is not to be written over.
FENCE: Final = f"""{_LEASED}
        and (cast(:lapsed as bigint) = 0 or {has_lapsed("runs")})"""
_PAUSED: Final = state_after(RunMove.PAUSE)
_CANCELLED: Final = state_after(RunMove.CANCEL)
_FINISH: Final = f"""update runs set status = :status, output = :output, reason = :reason,
        usage = coalesce(cast(:usage as text), usage),
        model = :model, incident = :incident,
        input = coalesce(cast(:input as text), input),
        ended_us = :now_us, events = :last, lease_by = null, lease_us = null, state = null
    where {{fence}} and {_GOES_ON} and (:status <> {literal(_PAUSED)} or cancel_us is null)
        and (:status <> {literal(_CANCELLED)} or cancel_us is not null)
    returning {SHARE}"""
# Two texts: PostgreSQL plans one that may look for a node anew each time, since it hopes that it
# need not.
FINISH: Final = Sql(_FINISH.format(fence=_LEASED), _FINISH.format(fence=_LEASED_BY_ID))
FINISH_LAPSED: Final = fill_clock(
    _FINISH.format(fence=f"{_LEASED} and {has_lapsed('runs')} and events = :before")
)
WISH: Final = fill_clock(f"select cancel_us from runs where {FENCE} and {_GOES_ON}")
_TOUCH: Final = f"""update sessions
    set updated_us = :now_us, version = version + 1, bytes = bytes + :bytes
    where {{session}} returning {RETURNED_STATE}"""
# SQLite says at once whether any run waits, as nothing else writes meanwhile; on PostgreSQL that is
# known under the lock of the session alone, so that the next run is always asked for.
TOUCH_SESSION: Final = Sql(
    f"{_TOUCH.format(session=SESSION)}, exists (select 1 from runs where {WAITS})",
    _TOUCH.format(session=SESSION_BY_ID),
)
NEXT: Final = Sql(
    f"""select run_no, asked_of, share from (
        select run_no, {ASKED_OF} as asked_of, {SHARE} as share from runs
        where owner = :owner and session_id = :session_id
        and {ACTIVE_RUN} and {WAITING_RUN} order by run_no limit 1) as own
    union all
    select null, null, null where exists (select 1 from runs
        where {WAITING_RUN} and {OF_A_CLIENT} and (owner <> :owner or session_id <> :session_id))"""
)
CLAIM: Final = Sql(
    f"""update runs set status = {literal(EXECUTED)}, started_us = :now_us, lease_by = :node,
        lease_us = {FOREVER}, attempt = attempt + 1, tries = tries + 1,
        recorded = case when recorded = attempt or {UNTOUCHED} then attempt + 1 else recorded end
    where owner = :owner and session_id = :session_id and run_no = :run_no and {WAITING_RUN}
    returning {CLAIMED}"""
)
ENDED_SO: Final = Sql(
    f"""select {select_state()} from runs where owner = :owner and run_id = :run_id
    and status = :status and attempt = :attempt and ended_us = :now_us"""
)
CLAIMED_SO: Final = Sql(
    f"""select {CLAIMED} from runs where owner = :owner and session_id = :session_id
    and {ACTIVE_RUN} and {EXECUTED_RUN} and lease_by = :node and started_us = :now_us
    and {SINCE_CLAIM} and coalesce(reason, '') <> '{CLAIMED_MARK}'"""
)


@frozen
class Ended:
    """The outcome of ending a run: whether the lease still held, and the session's next run.

    `elsewhere`: the next run waits for a node that hosts what it was asked of.
    `contended`: others wait, so that the next run is that whose turn it is.
    `cancel_asked`: it holds, and the run did not pause, because somebody wants it to end.
    `cancel_unasked`: it holds, and the run was not cancelled, because nobody asked for that.
    `state`: that of the session as the run leaves it, as JSON; None where it is empty.
    `used`: the newest day of its subject, with the tokens and the cost of that, the run's among
    them; None where they were counted before.
    """

    kept: bool
    following: ClaimedRun | None = None
    elsewhere: bool = False
    contended: bool = False
    cancel_asked: bool = False
    cancel_unasked: bool = False
    state: str | None = None
    used: tuple[int, int, int] | None = field(default=None, eq=False)


@frozen
class FinishRun(Unit[Ended]):
    """End a run, or pause it, and claim the next one of its session, if that is `hosted` here.

    The next one takes over the place of the run; it is left where others wait as well.

    `lease` is that of the executor.  Whoever ends the run of a dead node names the dead one's,
    which must have `lapsed`.  Done twice, as after a commit without an answer, it finds its own end
    and its own claim.

    `input` is what the run keeps as its input, where that changes: a run that pauses keeps there
    what it needs to go on.  `members`: it may have members at work, whose runs end with it.
    `view` is what the token of the run's caller says, which is laid over the state that it shows.
    `message` is that of the input, where it is worth a mark; None: all is stored whole (`once`).
    `bytes` are those that are counted with it, beside its output and its events; `tokens` what it
    used of `subject`, or of its owner if that is None, and `cost` what it spent, in nano-USD.
    `model` is the id of the one that answered, and `incident` finds a failure in the log, for lists
    that read no outputs.  `letters` are sent when the run has come to that, and not otherwise.
    """

    closing: ClassVar[frozenset[Sql]] = ADDITIONS

    owner: str
    session_id: str
    run_id: str
    lease: RunLease
    node: str
    now_us: int
    status: str
    output: str | None
    reason: str | None
    usage: str | None
    events: tuple[StoredEvent, ...]
    hosted: tuple[str, ...]
    lapsed: bool = False
    input: str | None = None
    members: bool = False
    records: Records = NO_RECORDS
    view: StateChange = NO_CHANGE
    message: str | None = None
    bytes: int = 0
    tokens: int = 0
    cost: int = 0
    subject: str | None = None
    model: str | None = None
    incident: str | None = None
    letters: tuple[Letter, ...] = ()

    def statements(self, dialect: Dialect) -> Work[Ended | Undo[Ended]]:
        """Yield the session's lock, the fenced end, the events, and the claim of the next run."""
        output, events = self.output, self.events
        if self.message is not None and output is not None and len(output) >= WORTH:
            output, events = self._shorten(output, self.message)
        size = self.bytes + count_octets((output, *[event.data for event in events]))
        touch = TOUCH_SESSION.of(self, bytes=size)
        ending = FINISH_LAPSED if self.lapsed else FINISH
        finish = ending.of(self, output=output, **self._fence())
        if dialect is Dialect.SQLITE:
            touched, finished = yield touch, finish
            waiting = (yield NEXT.of(self)) if finished and touched[0][1] else NO_ROWS
        else:
            touched, finished, waiting = yield touch, finish, NEXT.of(self)
        if not finished:
            return Undo((yield from self._before()))
        yield insert_events(dialect, self.run_id, self.now_us, events)
        state, shown, late = touched[0][0], None, 0
        if state is None:
            ((state,),) = yield STATE.of(self)
        if self.records is not NO_RECORDS:
            state = yield from write_records(
                dialect,
                self.run_id,
                self.lease.attempt,
                self.now_us,
                self.records,
                state,
                (self.run_id,),
            )
        if state != EMPTY or self.view is not NO_CHANGE:
            left = (self.owner, self.session_id, self.run_id, apply(state, self.view))
            shown, late = yield from keep_state(*left, self.now_us)
        if self.members:
            late += yield from end_members(
                self.owner,
                self.session_id,
                self.run_id,
                (self.status, self.reason, self.now_us),
                read_failure(self.output),
                once=self.message is not None,
            )
        if self.letters:
            yield from put_letters(self.letters, self.now_us)
        ended = None
        if waiting:
            ended = yield from self._go_on(waiting, finished[0][0], state, shown)
        if late:
            yield ADD_BYTES.of(self, bytes=late)
        keeper, subject = keeper_of(self.owner, self.subject), self.subject or self.owner
        used = yield from add_usage(
            keeper, size + late, subject, self.tokens, self.now_us, self.cost
        )
        if ended is None:
            return Ended(kept=True, state=shown, used=used)
        return evolve(ended, used=used)

    def _go_on(self, waiting: Rows, share: str, state: str, shown: str | None) -> Statements[Ended]:
        """Yield the claim of what waits in the session, as `NEXT` has found it under its lock.

        `share` is the subject of the run that ended, `shown` the state that it left.
        """
        own = [row for row in waiting if row[0] is not None]
        contended = len(own) < len(waiting)
        if not own:
            return Ended(kept=True, contended=True, state=shown)
        ((run_no, asked_of, next_share),) = own
        elsewhere = asked_of not in self.hosted
        if elsewhere or contended or next_share != share:
            left = contended or next_share != share
            return Ended(kept=True, elsewhere=elsewhere, contended=left, state=shown)
        claimed = yield CLAIM.of(self, run_no=run_no)
        return Ended(kept=True, following=to_claimed_run(claimed, ((state,),)), state=shown)

    def _shorten(self, output: str, message: str) -> tuple[str, tuple[StoredEvent, ...]]:
        """Return the output and the events with marks; a run that pauses has another answer yet."""
        output, answer = shorten_output(output, message)
        answer = "" if self.status == _PAUSED else answer
        return output, shorten_events(self.events, message, answer)

    def _fence(self) -> dict[str, Any]:
        lease, events = self.lease, self.events
        return {
            "node": lease.node,
            "attempt": lease.attempt,
            "lapsed": int(self.lapsed),
            "before": events[0].seq - 1,
            "last": events[-1].seq,
        }

    def _before(self) -> Statements[Ended]:
        """Return what this very unit did when it was run before, if it was."""
        ended = yield ENDED_SO.of(self, attempt=self.lease.attempt)
        if not ended:
            return (yield from self._explain_refusal())
        claimed = yield CLAIMED_SO.of(self)
        state = yield STATE.of(self)
        return Ended(kept=True, following=to_claimed_run(claimed, state), state=ended[0][0])

    def _explain_refusal(self) -> Statements[Ended]:
        """Return why the run did not end: the lease is lost, or the wish to cancel says no."""
        if self.status not in (_PAUSED, _CANCELLED):
            return Ended(kept=False)
        wish = yield WISH.of(self, **self._fence())
        return Ended(
            kept=False,
            cancel_asked=bool(wish) and self.status == _PAUSED,
            cancel_unasked=bool(wish) and self.status == _CANCELLED,
        )
