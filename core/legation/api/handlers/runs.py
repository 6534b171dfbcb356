"""Runs of agents and teams: start, and then join, tail or leave; list, get, follow, cancel."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from attrs import evolve, field

from ...access.claims import overlay
from ...effects import Program, Transact
from ...hosted.registry import Component
from ...http.bodies import Form, Reader
from ...http.messages import (
    Answer,
    Headers,
    Streamed,
    Unfinished,
    json_bytes_response,
    json_response,
)
from ...http.refusals import BadRequest, Conflict, Fault, Invalid, NotFound, Refusal, Unavailable
from ...http.sse import BadEventId, parse_last_event_id
from ...runs.approvals import Reply, apply_replies, calls_answered, read_replies
from ...runs.cancellation import cancel
from ...runs.continuation import go_on, turn_at_pause
from ...runs.event_writer import EventOrigin
from ...runs.followers import Followed, RunStalled, join, resume, tail, tail_of_member
from ...runs.output import MEDIA, run_json, run_listed
from ...runs.retry import with_retry
from ...runs.start import NewRun, start
from ...runs.turn_state import TurnState
from ...store.failures import StoreFailure
from ...store.run_reads import FetchRun, ListRuns
from ...store.run_rows import ClaimedRun, RunRow
from ...store.run_states import RunState
from ...store.sessions import FetchSession, SessionRow
from ...values import frozen
from ..call import Call, Handled
from ..route import Handler
from .components import find_component
from .media import Media, add_uploads
from .owners import find_session
from .run_arguments import Action, read_arguments, read_query_arguments

__all__ = [
    "cancel_run",
    "continue_run",
    "get_run",
    "list_runs",
    "resume_run",
    "run_events",
    "start_run",
]

SSE_HEADERS: Final[Headers] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_PAGE: Final = 1000
_DEEPEST: Final = 1_000_000
_BUSY: Final = "Another run of the session is not over yet"
_DELETED: Final = "The run was deleted with its session before it was over"
_STALLED: Final = (
    "The run does not go on: the database stores nothing of it at present. It is kept; ask for run"
    " {} later"
)
_STALLED_RETRY_SECONDS: Final = 30
_STATUSES: Final = tuple(state.value for state in RunState)


@frozen
class _Asked:
    """The form of a new run, checked."""

    message: str
    stream: bool
    background: bool
    session_id: str
    user_id: str | None
    state: Mapping[str, Any] = field(factory=dict[str, Any])
    details: Mapping[str, Any] = field(factory=dict[str, Any])


def start_run(call: Call, hosted: Component) -> Program[Handled]:
    """Start a run of an agent or a team."""
    form = yield from call.form()
    if isinstance(form, Refusal):
        return form
    asked = _read(form)
    if isinstance(asked, Refusal):
        return asked
    return _start(call, hosted, asked)


def _read(form: Form) -> _Asked | Invalid | BadRequest:
    read = form.reader()
    asked = read_arguments(read, Action.START)
    files = [*asked["files"], *asked["input_files"]]
    media = add_uploads(read, {**{kind: asked[kind] for kind in MEDIA}, "files": files})
    if faults := read.faults():
        return Invalid(faults)
    if not isinstance(media, Media):
        return media
    return _Asked(
        message=asked["message"],
        stream=asked["stream"],
        background=asked["background"],
        session_id=asked["session_id"],
        user_id=asked["user_id"],
        state=asked["session_state"] or {},
        details={**_details(asked), **media.by_kind},
    )


_HANDED_ON: Final = ("dependencies", "metadata", "output_schema")


def _details(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is handed on to the turn, as far as it was sent."""
    details = {name: asked[name] for name in _HANDED_ON if asked[name] is not None}
    return {**details, "use_json_schema": True} if asked["use_json_schema"] else details


def _start(call: Call, hosted: Component, asked: _Asked) -> Program[Answer | Refusal]:
    """Store the run, see that it is executed, and answer the way that was asked for."""
    run_id = yield from call.new_id("run")
    named = call.principal.session_id or asked.session_id
    session_id = named or (yield from call.new_id("session"))
    owner = yield from _owner(call, hosted.database, asked, session_id, run_id)
    call.audit.owner = owner
    new = NewRun(
        owner=owner,
        session_id=session_id,
        run_id=run_id,
        message=asked.message,
        stream=asked.stream and not asked.background,
        state=_state(call, asked.state),
        details=_with_claims(call, asked.details),
        waits=call.registry.config.on_busy == "queue",
    )
    status = 202 if asked.background else 200
    change = partial(call.change, status=status, resource=call.describe_resource(hosted.id, run_id))
    started = yield from start(call.context, hosted, new, change)
    if started.rejected:
        return Conflict(_BUSY)
    if asked.background:
        told = {"run_id": run_id, "session_id": session_id, "status": RunState.PENDING.value}
        return json_response(202, told)
    if asked.stream:
        run = ClaimedRun(owner, session_id, run_id, hosted.kind, hosted.id, "{}", 0, 0)
        return _stream(tail(_follow_run(call, hosted, EventOrigin(run, hosted.name)), 0))
    return (yield from _join_run(hosted.database, owner, run_id))


def _state(call: Call, sent: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state that is sent, with what the token says instead of it."""
    principal = call.principal
    names = call.registry.config.authorization_config.session_state_claims
    return sent if principal.trusted else overlay(sent, names, principal.session_state)


def _with_claims(call: Call, details: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the details of a run with what the token says for it, which nobody can overwrite."""
    principal, config = call.principal, call.registry.config.authorization_config
    given = dict(details)
    if not principal.trusted and (names := config.dependencies_claims):
        given["dependencies"] = overlay(
            given.get("dependencies", {}), names, principal.dependencies
        )
    if not principal.trusted and (names := config.session_state_claims):
        given["state_claims"] = {"names": names, "said": principal.session_state}
    return given


def _owner(call: Call, database: str, asked: _Asked, session_id: str, run_id: str) -> Program[str]:
    """Return whose the run is: the caller's, or his whom one who sees all names.

    Where authorization is off, a session that has one owner alone goes on as his.  A caller without
    a subject owns nothing: the run is stored under a name nobody bears.
    """
    principal, whose = call.principal, call.whose(asked.user_id)
    if not whose.owners:
        return f"~nobody:{run_id}"
    others = whose.others and principal.trusted
    named = principal.session_id or asked.session_id
    if not named or not (others or whose.owners[1:]):
        return whose.owners[0]
    if call.seed is not None:  # sent again, it means the owner that it meant at first
        row = yield from Transact(database, FetchRun(run_id, None, any_owner=True))
        if row is not None:
            return row.owner
    session = yield from Transact(database, FetchSession(session_id, whose.owners, others))
    return session.owner if isinstance(session, SessionRow) else whose.owners[0]


def list_runs(kind: str) -> Handler:
    """Return the handler that lists the caller's runs of a session."""

    def handler(call: Call) -> Program[Answer | Refusal]:
        hosted = find_component(kind, call)
        if isinstance(hosted, NotFound):
            return hosted
        read = call.reader()
        if isinstance(read, Invalid):
            return read
        session_id = read.text("session_id", required=True)
        status = read.choice("status", _STATUSES)
        user_id = read.text("user_id") or None
        page = read.integer("page", default=1, minimum=1, maximum=_DEEPEST)
        limit = read.integer("limit", default=_PAGE, minimum=1, maximum=_PAGE)
        if faults := read.faults():
            return Invalid(faults)
        session_id = call.principal.session_id or session_id
        session = yield from find_session(call, hosted.database, session_id, user_id)
        if session is None:
            return json_response(200, [])
        if isinstance(session, Refusal):
            return session
        listed = ListRuns(session.owner, session_id, status, page=page, size=limit, members=True)
        rows = yield from Transact(hosted.database, listed)
        return json_response(200, [run_listed(row) for row in rows if _of(row, hosted)])

    return handler


def get_run(kind: str) -> Handler:
    """Return the handler that returns one of the caller's runs."""

    def handler(call: Call) -> Program[Answer | Refusal]:
        read = call.reader()
        if isinstance(read, Invalid):
            return read
        session_id = read.text("session_id")
        read.ignore("user_id")
        if faults := read.faults():
            return Invalid(faults)
        own = yield from _own_run(call, kind, session_id, removed=True)
        if isinstance(own, Refusal):
            return own
        return json_bytes_response(200, run_json(own.row))

    return handler


def run_events(kind: str) -> Handler:
    """Return the handler that replays a run's events from where a client stopped, and goes on."""

    def handler(call: Call) -> Program[Answer | Refusal]:
        read = call.reader()
        if isinstance(read, Invalid):
            return read
        after = read.integer("after", default=0, minimum=0)
        read.ignore("user_id")
        if faults := read.faults():
            return Invalid(faults)
        stopped = parse_last_event_id(call.request.header(b"last-event-id"))
        if isinstance(stopped, BadEventId):
            return Invalid((Fault("header.last-event-id", stopped.reason),))
        own = yield from _own_run(call, kind)
        if isinstance(own, Refusal):
            return own
        row = own.row
        if stopped is not None and stopped.run_id != row.run_id:
            return Invalid((Fault("header.last-event-id", "is of another run"),))
        seq, database = stopped.seq if stopped else after, own.hosted.database
        followed = _follow_run(call, own.hosted, own.origin)
        if row.parent_run_id is None:
            return _stream(tail(followed, seq))
        top_id = yield from _at_the_top(database, row.owner, row.parent_run_id)
        return _stream(tail_of_member(evolve(followed, top_id=top_id), seq))

    return handler


def _at_the_top(database: str, owner: str, run_id: str) -> Program[str]:
    """Return the run that `run_id` is part of, in whose journal all events stand."""
    parent: str | None = run_id
    while parent is not None:
        run_id = parent
        row = yield from Transact(database, FetchRun(run_id, owner))
        parent = None if row is None else row.parent_run_id
    return run_id


def resume_run(kind: str) -> Handler:
    """Return the handler that goes on streaming a run, the way later clients ask for it."""

    def handler(call: Call) -> Program[Answer | Refusal]:
        form = yield from call.form()
        if isinstance(form, Refusal):
            return form
        read = form.reader()
        asked = read_arguments(read, Action.RESUME)
        if faults := read.faults():
            return Invalid(faults)
        own = yield from _own_run(call, kind, asked["session_id"])
        if isinstance(own, Refusal):
            return own
        followed = _follow_run(call, own.hosted, own.origin)
        return _stream(resume(followed, asked["last_event_index"] + 1))

    return handler


def cancel_run(kind: str) -> Handler:
    """Return the handler that cancels one of the caller's runs.

    A run that is over stays as it is: the caller wanted it to go no further, and it does not.
    """

    def handler(call: Call) -> Program[Answer | Refusal]:
        query = call.reader()
        if isinstance(query, Invalid):
            return query
        in_query = read_query_arguments(query, Action.CANCEL)
        form = yield from call.form(query)
        if isinstance(form, Refusal):
            return form
        read = form.reader()
        asked = read_arguments(read, Action.CANCEL)
        if faults := read.faults():
            return Invalid(faults)
        sessions = in_query["session_id"], asked["session_id"]
        own = yield from _own_run(call, kind, *sessions, removed=True)
        if isinstance(own, Refusal):
            return own
        if own.row.parent_run_id is not None and not RunState(own.row.status).final:
            return Conflict(_GOES_WITH)
        change = partial(
            call.change, resource=call.describe_resource(own.hosted.id, own.row.run_id)
        )
        found = yield from cancel(own.hosted.database, own.row, own.hosted.name, change)
        if found is None:
            return NotFound("Run not found")
        return json_response(200, {})

    return handler


_NOT_PAUSED: Final = {
    RunState.RUNNING: "run is already running",
    RunState.COMPLETED: "run is already continued",
    RunState.ERROR: "run is already errored",
    RunState.CANCELLED: "run is already cancelled",
    RunState.PENDING: "run is already pending",
    RunState.PAUSED: "run is already continued",
}
_GOES_WITH: Final = "run is that of a member: cancel the run that it is part of"
_OF_A_MEMBER: Final = "run is that of a member: continue the run that it is part of"
_NOT_OURS: Final = "run waits for what this platform cannot give it"
_TOGETHER: Final = "is not allowed together with `tools`"
_BAD_ITEMS: Final = "Invalid structure or content for {}: {}"


def continue_run(kind: str) -> Handler:
    """Return the handler that goes on with a run that waits for a person."""

    def handler(call: Call) -> Program[Answer | Refusal]:
        form = yield from call.form()
        if isinstance(form, Refusal):
            return form
        read = form.reader()
        asked = read_arguments(read, Action.CONTINUE)
        replies = _replies(read, asked)
        if isinstance(replies, Refusal):
            return replies
        own = yield from _own_run(call, kind, asked["session_id"])
        if isinstance(own, Refusal):
            return own
        state = _ready(own.row, replies)
        if isinstance(state, Refusal):
            return state
        return (yield from _go_on(call, own, state, stream=asked["stream"]))

    return handler


def _replies(read: Reader, asked: Mapping[str, Any]) -> tuple[Reply, ...] | BadRequest | Invalid:
    """Return what is answered, to calls or to requirements."""
    if asked["tools"] and asked["requirements"]:
        read.fault("requirements", _TOGETHER)
    faults = read.faults()
    for name in ("tools", "requirements"):
        if any(fault.path == f"body.{name}" and fault.message != _TOGETHER for fault in faults):
            return BadRequest(f"Invalid JSON in {name} field")
    if faults:
        return Invalid(faults)
    name = "requirements" if asked["requirements"] else "tools"
    items = calls_answered(asked["requirements"]) or asked["tools"]
    replies = read_replies(items)
    return BadRequest(_BAD_ITEMS.format(name, replies)) if isinstance(replies, str) else replies


def _ready(row: RunRow, replies: tuple[Reply, ...]) -> TurnState | Conflict | Invalid:
    """Return the turn of the run with what was answered, or why it cannot go on so."""
    if row.status != RunState.PAUSED:
        return Conflict(_NOT_PAUSED[RunState(row.status)])
    if row.parent_run_id is not None:
        return Conflict(_OF_A_MEMBER)
    turn = turn_at_pause(row)
    if turn is None:
        return Conflict(_NOT_OURS)
    state = apply_replies(turn, replies, row.run_id)
    return state if isinstance(state, TurnState) else Invalid(state)


def _go_on(call: Call, own: _Own, state: TurnState, *, stream: bool) -> Program[Answer | Refusal]:
    """Store the answers, see that the run is executed, and answer the way that was asked for."""
    row, database = own.row, own.hosted.database
    change = partial(call.change, resource=call.describe_resource(own.hosted.id, row.run_id))
    continued = yield from go_on(call.context, database, row, state, change, stream=stream)
    if continued.found is None:
        return NotFound("Run not found")
    if continued.busy:
        return Conflict(_BUSY)
    if not continued.kept:
        return Conflict(_NOT_PAUSED[RunState(continued.found)])
    if stream:
        followed = _follow_run(call, own.hosted, own.origin)
        return _stream(tail(followed, row.events))
    return (yield from _join_run(database, row.owner, row.run_id, row.events))


def _follow_run(call: Call, hosted: Component | _Removed, origin: EventOrigin) -> Followed:
    """Return a run that is to be streamed."""
    run_id = origin.run.run_id
    path = f"/{hosted.kind}s/{hosted.id}/runs/{run_id}/events"
    return Followed(call.context, hosted.database, origin, run_id, path)


def _stream(events: Program[Unfinished | None]) -> Streamed:
    return Streamed(200, SSE_HEADERS, events)


def _join_run(database: str, owner: str, run_id: str, after: int = 0) -> Program[Answer | Refusal]:
    """Return a run when it is over, or waits for a person."""
    try:
        yield from join(database, owner, run_id, after)
    except RunStalled:
        return Unavailable(_STALLED.format(run_id), retry_after=_STALLED_RETRY_SECONDS)
    row = yield from with_retry(database, FetchRun(run_id, owner))
    return Conflict(_DELETED) if row is None else json_bytes_response(200, run_json(row))


@frozen
class _Removed:
    """An agent or a team that is not hosted any more, of which there is a run."""

    kind: str
    id: str
    database: str

    @property
    def name(self) -> str:
        """Its id: its name is gone with it."""
        return self.id


@frozen
class _Own:
    """A run that the caller may see, and what it is a run of."""

    hosted: Component | _Removed
    row: RunRow

    @property
    def origin(self) -> EventOrigin:
        """Whose events those of the run are."""
        return EventOrigin(self.row.claim, self.hosted.name, self.row.parent_run_id)


def _own_run(
    call: Call, kind: str, *session_ids: str | None, removed: bool = False
) -> Program[_Own | NotFound]:
    """Return the run that the path names, if it is one the caller may see, of these sessions.

    The session of the token counts before those that the request says; None is any.  `removed`:
    also one of an agent or a team that is not hosted any more.
    """
    hosted = find_component(kind, call)
    if isinstance(hosted, Component):
        own = yield from _run_of(call, hosted)
        absent = NotFound("Run not found")
    else:
        own = (yield from _run_of_removed(call, kind)) if removed else None
        absent = hosted
    named = call.principal.session_id
    wanted = {named} if named else {*session_ids, None}
    if own is None or not wanted <= {None, own.row.session_id}:
        return absent
    call.audit.owner = own.row.owner
    return own


def _run_of(call: Call, hosted: Component | _Removed) -> Program[_Own | None]:
    principal = call.principal
    fetch = FetchRun(call.params["run_id"], principal.owner, principal.sees_all)
    row = yield from Transact(hosted.database, fetch)
    return None if row is None or not _of(row, hosted) else _Own(hosted, row)


def _run_of_removed(call: Call, kind: str) -> Program[_Own | None]:
    """Look for the run in every database; one that does not answer may be the one."""
    trouble: StoreFailure | None = None
    for database in call.registry.databases:
        removed = _Removed(kind, call.params[f"{kind}_id"], database)
        try:
            own = yield from _run_of(call, removed)
        except StoreFailure as failure:
            trouble = failure
            continue
        if own is not None:
            return own
    if trouble is not None:
        raise trouble
    return None


def _of(row: RunRow, hosted: Component | _Removed) -> bool:
    return row.kind == hosted.kind and row.component_id == hosted.id
