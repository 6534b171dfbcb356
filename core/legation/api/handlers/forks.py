"""Forks and checkpoints: a run that begins at a place of another, and what there was by then."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from attrs import evolve

from ...effects import Now, Outcome, Program, Transact
from ...hosted.registry import Component
from ...http.messages import Answer, Response, compact_json, json_response
from ...http.refusals import (
    BadRequest,
    Conflict,
    Fault,
    Invalid,
    Refusal,
    StateTooLarge,
    StorageFull,
    TooManyRequests,
    Unavailable,
)
from ...http.sse import EventId, parse_last_event_id
from ...runs.checkpoints import list_checkpoints, take_snapshot
from ...runs.forking import (
    BEGINNING,
    Place,
    Trail,
    WrongPlace,
    describe_origin,
    is_at_rest,
    parse_place,
    read_trail,
)
from ...runs.ids import copy_run_id
from ...runs.output import MEDIA
from ...runs.retry import FEW, PASSING, with_retry
from ...runs.start import NewRun, start
from ...runs.step_outcomes import UnknownOutcome
from ...runs.terms import FORK_START, FORKED_FROM, HISTORY_RUNS
from ...store.forks import CopiedRuns, FindCopied, ForkSession, RunFork, SessionCopy
from ...store.run_reads import FetchEvents, FetchRun
from ...store.run_rows import RunRow
from ...store.session_state import EMPTY, encode_value
from ...store.sessions import NoRoom, SessionRow
from ...store.steps import FetchSteps
from ...values import frozen
from ..call import Call
from ..fields import text
from .limits import storage_full
from .owners import SeveralUsers, find_session
from .run_arguments import ForkForm
from .runs import (
    HANDED_ON,
    GetRunQuery,
    NoRun,
    answer_at_once,
    change_of_start,
    find_own_run,
    join_run,
    refuse_start,
    with_claims,
)
from .sessions import (
    NoSession,
    SessionQuery,
    absent_session,
    answer_detail,
    find_visible_session,
)

__all__ = [
    "ForkSessionRequest",
    "fork_run",
    "fork_session",
    "get_checkpoint",
    "list_run_checkpoints",
]

_MOST_RUNS: Final = 1_000
_MOST_BYTES: Final = 64 << 20
_PAGE: Final = 256
_UNDER_WAY: Final = "The run is under way: fork it when it is over, or waits for a person"
_OF_A_MEMBER: Final = "The run is that of a member: fork the run that it is part of"
_LATER: Final = "A later version of this platform has stored the steps of the run"
_TOO_LONG: Final = (
    f"The session has more than {_MOST_RUNS:,} runs to be copied, or more than 64 MiB of them"
)
_OF_ANOTHER: Final = "is an event of another run"
_NO_EVENT: Final = "the run has no event {}"
_PRUNED: Final = "the events of the run are not kept any more"
_FUNCTION: Final = "is not allowed: the agent is a function, and a fork of its run begins anew"
_WITH_PLACE: Final = "is not allowed together with `at`: a message is asked from the beginning"
_WITH_CALL: Final = "is allowed with the place of a call in `at` alone, such as 2.1"


# --- Forks of runs -----------------------------------------------------------------------------


def fork_run(
    call: Call, form: ForkForm
) -> Program[
    Answer
    | NoRun
    | Conflict
    | Invalid
    | Unavailable
    | StateTooLarge
    | StorageFull
    | TooManyRequests
]:
    """Start a run that begins at a place of another, and answer the way that was asked for.

    The run that is forked is read, and stays as it is.
    """
    own = yield from find_own_run(call)
    if isinstance(own, Refusal):
        return own
    row = own.row
    hosted = call.registry.components(row.kind)[row.component_id]
    if not form.background and (
        refusal := call.hold_place(own.hosted_as, stream=form.stream, follows=True)
    ):
        return refusal
    run_id = yield from call.new_id("run")
    if call.seed is not None:  # sent again, it means the fork that was made at first
        made = yield from Transact(hosted.database, FetchRun(run_id, row.owner))
        if made is not None:
            before = answer_at_once(call, hosted, _as_new(made), form)
            return before or (yield from join_run(call, hosted.database, row.owner, run_id))
    trail = yield from _read_at_rest(hosted, row)
    if isinstance(trail, Refusal):
        return trail
    at = yield from _find_place(hosted, trail, form)
    if isinstance(at, Refusal):
        return at
    new = yield from _plan(call, hosted, trail, at, form, run_id)
    if isinstance(new, Refusal):
        return new
    resource = call.describe_resource(hosted.id, row.run_id, run_id)
    change = change_of_start(call, form, resource)
    outcome: Outcome[str] | None = None if form.stream or form.background else Outcome()
    started = yield from start(call.context, hosted, new, change, outcome)
    answer = refuse_start(call, new, started) or answer_at_once(call, hosted, new, form, started)
    owner, database = row.owner, hosted.database
    return answer or (yield from join_run(call, database, owner, run_id, outcome=outcome))


def _as_new(row: RunRow) -> NewRun:
    return NewRun(row.owner, row.session_id, row.run_id, "", pieces=False)


def _read_at_rest(hosted: Component, row: RunRow) -> Program[Trail | Conflict | Unavailable]:
    """Return the trail of a run that may be forked."""
    if row.parent_run_id is not None:
        return Conflict(_OF_A_MEMBER)
    if not is_at_rest(row):
        return Conflict(_UNDER_WAY)
    return (yield from _read(hosted.database, row))


def _read(database: str, row: RunRow) -> Program[Trail | Unavailable]:
    steps = yield from Transact(database, FetchSteps(row.owner, row.run_id))
    try:
        return read_trail(row, steps)
    except UnknownOutcome:
        return Unavailable(_LATER)


def _find_place(hosted: Component, trail: Trail, form: ForkForm) -> Program[Place | Invalid]:
    """Return the place at which the run is to be forked, if it can be, as the form says."""
    at: Place | WrongPlace = BEGINNING
    if form.at is not None:
        event_id = parse_last_event_id(form.at.encode("utf-8", "replace"))
        if isinstance(event_id, EventId):
            at = yield from _find_event(hosted.database, trail, event_id)
        else:
            at = parse_place(form.at)
    if isinstance(at, Place) and at != BEGINNING:
        wrong = WrongPlace(_FUNCTION) if hosted.run is not None else trail.check(at)
        at = wrong or at
    faults: list[Fault] = []
    if isinstance(at, WrongPlace):
        faults.append(Fault("body.at", at.sentence))
    if form.message is not None and at != BEGINNING:
        faults.append(Fault("body.message", _WITH_PLACE))
    if form.outcome is not None and not (isinstance(at, Place) and at.call):
        faults.append(Fault("body.outcome", _WITH_CALL))
    return at if isinstance(at, Place) and not faults else Invalid(tuple(faults))


def _find_event(database: str, trail: Trail, event_id: EventId) -> Program[Place | WrongPlace]:
    """Return the place at which an event happened: its own, or that of the last one before it."""
    row, last = trail.row, event_id.seq
    if event_id.run_id != row.run_id:
        return WrongPlace(_OF_ANOTHER)
    if not 0 < last <= row.events:
        return WrongPlace(_NO_EVENT.format(last))
    while last > 0:
        first = max(0, last - _PAGE)
        page = yield from Transact(
            database, FetchEvents(row.owner, row.run_id, first, last - first)
        )
        if not page.events:
            return WrongPlace(_PRUNED)
        for event in reversed(page.events):
            place = trail.find_place(event.name, event.data)
            if place is not None:
                return place
        last = first
    return BEGINNING


def _plan(
    call: Call, hosted: Component, trail: Trail, at: Place, form: ForkForm, run_id: str
) -> Program[NewRun | Invalid | Conflict]:
    """Return the run that a fork is, with what it has of the run that it is a fork of."""
    row, asked = trail.row, trail.asked
    named = call.principal.session_id or form.session_id
    session_id = named or (yield from call.new_id("session"))
    fork = RunFork(row.run_id, row.attempt)
    details = {
        name: asked[name]
        for name in (*HANDED_ON, "use_json_schema", HISTORY_RUNS, *MEDIA)
        if name in asked
    }
    details[FORKED_FROM] = describe_origin(row.run_id, at)
    if at != BEGINNING:
        planned = trail.fork(at, form.outcome, told_history=not named)
        if isinstance(planned, WrongPlace):
            return Invalid((Fault(f"body.{planned.field}", planned.sentence),))
        fork = planned
        if named and (start := trail.start()) is not None:
            details[FORK_START] = start
    if not named:
        copied = yield from _find_copied(hosted.database, row.owner, row.session_id, row.run_no - 1)
        if isinstance(copied, Conflict):
            return copied
        state = trail.find_state(at, copied.state, whole=hosted.run is None)
        copy = _copy_session(row.owner, row.session_id, session_id, copied, state, call.now_us)
        fork = evolve(fork, copy=evolve(copy, runs=row.run_no - 1))
    return NewRun(
        owner=row.owner,
        session_id=session_id,
        run_id=run_id,
        message=form.message or asked["message"],
        pieces=form.stream or form.background,
        details=with_claims(call, hosted, details),
        waits=call.registry.config.on_busy == "queue",
        account=call.account(row.owner, (hosted.kind, hosted.id)),
        fork=fork,
    )


def _find_copied(
    database: str, owner: str, session_id: str, last: int
) -> Program[CopiedRuns | Conflict]:
    """Return the runs that a fork of a session has, up to the number `last`."""
    unit = FindCopied(owner, session_id, last, _MOST_RUNS + 1)
    copied = yield from Transact(database, unit)
    if len(copied.runs) > _MOST_RUNS or copied.bytes > _MOST_BYTES:
        return Conflict(_TOO_LONG)
    return copied


def _copy_session(
    owner: str, session_id: str, copy_id: str, copied: CopiedRuns, state: str, now_us: int
) -> SessionCopy:
    return SessionCopy(
        owner=owner,
        session_id=session_id,
        copy_id=copy_id,
        names=(compact_json(session_id), compact_json(copy_id)),
        state=state,
        pairs=tuple((one, copy_run_id(copy_id, one, now_us)) for one in copied.runs),
        runs=copied.last,
        bytes=copied.bytes,
        now_us=now_us,
    )


# --- Forks of sessions -------------------------------------------------------------------------


@frozen
class ForkSessionRequest:
    """The last run that a fork of a session has; without one it has all that are over."""

    about: ClassVar = "One of `run_id` and `before`, or neither"

    run_id: str | None = text("Up to this run, and with it", max_length=255, or_none=True)
    before: str | None = text("Up to this run, without it", max_length=255, or_none=True)


_TOGETHER: Final = "is not allowed together with `run_id`"
_NO_SUCH_RUN: Final = "is no run of the session"
_NOT_OVER: Final = "The run is not over: name it as `before`, or wait for its end"
_ONE_SESSION: Final = "The token is for one session alone, and a fork is another one"


def fork_session(
    call: Call, database: str, query: SessionQuery, body: ForkSessionRequest
) -> Program[Answer | NoSession | SeveralUsers | Invalid | Conflict | StorageFull]:
    """Make a session with copies of the runs of another, which stays as it is."""
    if body.run_id and body.before:
        return Invalid((Fault("body.before", _TOGETHER),))
    session = yield from find_visible_session(call, database, query)
    if isinstance(session, Refusal):
        return session
    if call.principal.session_id is not None:
        return Conflict(_ONE_SESSION)
    copy_id = yield from call.new_id("session")
    last = yield from _find_last(database, session, body)
    if isinstance(last, Refusal):
        return last
    copied = yield from _find_copied(database, session.owner, session.session_id, last)
    if isinstance(copied, Conflict):
        return copied
    whole = not (body.run_id or body.before)
    state = encode_value(session.state) if whole else copied.state or EMPTY
    now_us = yield from Now()
    copy = _copy_session(session.owner, session.session_id, copy_id, copied, state, now_us)
    account = call.account(session.owner)
    unit = ForkSession(copy, account.subject, account.limits.stored_bytes)
    change = partial(call.change, resource=call.describe_resource(session.session_id, copy_id))
    made: SessionRow | NoRoom | None = yield from with_retry(database, unit, FEW, PASSING, change)
    if isinstance(made, NoRoom):
        return storage_full(account.limits)
    # None: it was made before, by the same request, or the session is gone.
    row = made or (yield from find_session(call, database, copy_id, query.user_id))
    if not isinstance(row, SessionRow):
        return absent_session(call)
    origin = {"forked_from_session_id": session.session_id}
    return (yield from answer_detail(call, database, row, origin))


def _find_last(
    database: str, session: SessionRow, body: ForkSessionRequest
) -> Program[int | Invalid | Conflict]:
    """Return the number of the last run that is copied."""
    named, name = (body.run_id, "run_id") if body.run_id else (body.before, "before")
    if named is None:
        return session.runs
    row = yield from Transact(database, FetchRun(named, session.owner))
    if row is None or row.session_id != session.session_id or row.parent_run_id is not None:
        return Invalid((Fault(f"body.{name}", _NO_SUCH_RUN),))
    if name == "before":
        return row.run_no - 1
    return (
        row.run_no if row.ended_us is not None and row.status != "PAUSED" else Conflict(_NOT_OVER)
    )


# --- Looking back ------------------------------------------------------------------------------

_NO_INDEX: Final = "message_index must be between 0 and {}"
_NO_NUMBER: Final = "message_index must be a number"
WrongIndex: TypeAlias = Annotated[BadRequest, _NO_INDEX.format(2)]


def list_run_checkpoints(call: Call, query: GetRunQuery) -> Program[Response | NoRun | Unavailable]:
    """Return where one can look back at a run, and fork it."""
    looked = yield from _look_back(call, query)
    if isinstance(looked, Refusal):
        return looked
    trail, entries = looked
    ids = {"run_id": trail.row.run_id, "session_id": trail.row.session_id}
    return json_response(200, {**ids, "checkpoints": entries})


def get_checkpoint(
    call: Call, query: GetRunQuery
) -> Program[Response | NoRun | WrongIndex | Unavailable]:
    """Return a run as it was after so many of its messages."""
    looked = yield from _look_back(call, query)
    if isinstance(looked, Refusal):
        return looked
    trail, entries = looked
    named = call.params["message_index"]
    if not (named.isascii() and named.isdigit() and len(named) <= 9):
        return BadRequest(_NO_NUMBER)
    snapshot = take_snapshot(trail, int(named), entries)
    if snapshot is None:
        return BadRequest(_NO_INDEX.format(entries[-1]["message_index"]))
    return json_response(200, snapshot)


def _look_back(
    call: Call, query: GetRunQuery
) -> Program[tuple[Trail, list[dict[str, Any]]] | NoRun | Unavailable]:
    """Return the trail of one of the caller's runs, and its checkpoints."""
    own = yield from find_own_run(call, query.session_id, removed=True, reads=True)
    if isinstance(own, Refusal):
        return own
    trail = yield from _read(own.hosted.database, own.row)
    if isinstance(trail, Refusal):
        return trail
    function = isinstance(own.hosted, Component) and own.hosted.run is not None
    forkable = own.row.parent_run_id is None and not function
    return trail, list_checkpoints(trail, forkable=forkable)
