"""Runs of agents and teams: start, and then join, tail or leave; list, get, follow, cancel."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final, TypeAlias

from attrs import evolve

from ...access.claims import overlay
from ...effects import AwaitOutcome, Outcome, Program, Transact
from ...hosted.registry import Component
from ...http.messages import (
    Answer,
    Response,
    Streamed,
    event_stream,
    json_bytes_response,
    json_response,
)
from ...http.refusals import (
    BadRequest,
    Conflict,
    Fault,
    Invalid,
    NotFound,
    Refusal,
    StateTooLarge,
    StorageFull,
    TooManyRequests,
    Unavailable,
)
from ...http.sse import BadEventId, parse_last_event_id
from ...runs.approvals import answer_calls, apply_replies, read_replies
from ...runs.cancellation import cancel
from ...runs.continuation import go_on, turn_at_pause
from ...runs.followers import Followed, RunLeft, RunStalled, join, resume, tail, tail_of_member
from ...runs.found_runs import find_top
from ...runs.output import render_listed, run_json
from ...runs.retry import Change, with_retry
from ...runs.start import NewRun, start
from ...runs.terms import HISTORY_RUNS, SCOPES
from ...runs.turn_state import TurnState
from ...shares.exceeded import Exceeded
from ...store.failures import StoreFailure
from ...store.run_pages import ReadRuns
from ...store.run_reads import FetchRun
from ...store.run_rows import ClaimedRun, RunRow
from ...store.run_states import RunState
from ...store.runs import Started
from ...store.sessions import FetchSession, SessionRow
from ...values import frozen
from ..call import Call
from ..fields import PAGES, choice, header, integer, no_op, text
from ..listing import Cursor, cursor
from ..run_lists import answer_runs
from ..visible_runs import sees_every_run
from .components import find_component
from .limits import over_limit
from .media import Media, UnsupportedFile, admit
from .owners import SeveralUsers, find_session
from .run_arguments import (
    CancelForm,
    CancelQuery,
    ContinueForm,
    ForkForm,
    ResumeForm,
    StartForm,
)

__all__ = [
    "HANDED_ON",
    "GetRunQuery",
    "ListRunsQuery",
    "NoRun",
    "OwnRun",
    "RunEventsQuery",
    "answer_at_once",
    "cancel_run",
    "change_of_start",
    "continue_run",
    "find_own_run",
    "get_run",
    "join_run",
    "list_runs",
    "refuse_start",
    "resume_run",
    "run_events",
    "start_run",
    "with_claims",
]

_NO_RUN: Final = "Run not found"
NoRun: TypeAlias = Annotated[NotFound, _NO_RUN]
_BUSY: Final = "Another run of the session is not over yet"
_CHANGED: Final = "The run is gone, or goes on meanwhile: look at it, and fork it again"
_DELETED: Final = "The run was deleted with its session before it was over"
_STALLED: Final = (
    "The run does not go on: the database stores nothing of it at present. It is kept; ask for run"
    " {} later"
)
_STALLED_RETRY_SECONDS: Final = 30
_LEFT: Final = "This server ends, and the run goes on elsewhere: ask for run {} there"


def start_run(
    call: Call, hosted: Component, form: StartForm
) -> Program[
    Answer
    | UnsupportedFile
    | Conflict
    | Unavailable
    | StateTooLarge
    | StorageFull
    | TooManyRequests
]:
    """Start a run of an agent or a team, and answer the way that was asked for."""
    media = form.media()
    if isinstance(media, Media) and media.by_kind:
        media = yield from admit(hosted, media)
    if isinstance(media, BadRequest):
        return media
    if not form.background and (
        refusal := call.hold_place((hosted.kind, hosted.id), stream=form.stream, follows=True)
    ):
        return refusal
    run_id = yield from call.new_id("run")
    named = call.principal.session_id or form.session_id
    session_id = named or (yield from call.new_id("session"))
    owner = call.principal.owner
    if call.principal.sees_all:
        owner = yield from _find_owner(call, hosted.database, form, session_id, run_id)
    elif owner is None:  # owns nothing: the run is stored under a name nobody bears
        owner = f"~nobody:{run_id}"
    call.audit.owner = owner
    account = call.account(owner, (hosted.kind, hosted.id))
    new = NewRun(
        owner=owner,
        session_id=session_id,
        run_id=run_id,
        message=form.message,
        pieces=form.stream or form.background,
        state=_state(call, form.session_state or {}),
        details=with_claims(call, hosted, {**_details(form), **media.by_kind}),
        waits=call.registry.config.on_busy == "queue",
        account=account,
        streamed=form.stream and not form.background,
    )
    change = change_of_start(call, form, call.describe_resource(hosted.id, run_id))
    outcome: Outcome[str] | None = None if form.stream or form.background else Outcome()
    started = yield from start(call.context, hosted, new, change, outcome)
    answer = refuse_start(call, new, started) or answer_at_once(call, hosted, new, form, started)
    return answer or (yield from join_run(call, hosted.database, owner, run_id, outcome=outcome))


def change_of_start(call: Call, form: StartForm | ForkForm, resource: str) -> Change:
    """Return how a start is stored; `resource` is what the audit trail names as changed."""
    return partial(call.change, status=202 if form.background else 200, resource=resource)


def refuse_start(
    call: Call, new: NewRun, started: Started
) -> Conflict | StateTooLarge | StorageFull | TooManyRequests | None:
    """Return why a run was not stored; None where it was."""
    if started.rejected:
        return Conflict(_BUSY)
    if started.changed:
        return Conflict(_CHANGED)
    if started.over:
        limits = (new.account or call.account(new.owner)).limits
        return over_limit(started.over, limits, call.now_us)
    return None


def answer_at_once(
    call: Call,
    hosted: Component,
    new: NewRun,
    form: StartForm | ForkForm,
    started: Started | None = None,
) -> Answer | None:
    """Return the answer for a run that is stored; None where `form` asks to wait for its end.

    `started`: how it was stored, unless that was before.
    """
    owner, session_id, run_id = new.owner, new.session_id, new.run_id
    if form.background:
        payload = {"run_id": run_id, "session_id": session_id, "status": RunState.PENDING.value}
        return json_response(202, payload)
    if form.stream:
        claim, first = (started.claim, started.first) if started else (None, None)
        run = claim or ClaimedRun(owner, session_id, run_id, hosted.kind, hosted.id, "{}", 0, 0)
        followed, here = _follow_run(call, hosted, run), claim is not None
        return event_stream(tail(followed, 0, in_step=here, first=first))
    return None


HANDED_ON: Final = ("dependencies", "metadata", "output_schema")


def _details(form: StartForm) -> dict[str, Any]:
    """Return what is handed on to the turn, as far as it was sent."""
    details: dict[str, Any] = {
        name: value for name in HANDED_ON if (value := getattr(form, name)) is not None
    }
    if not form.add_history_to_context:
        details[HISTORY_RUNS] = 0
    elif form.num_history_runs is not None:
        details[HISTORY_RUNS] = form.num_history_runs
    return {**details, "use_json_schema": True} if form.use_json_schema else details


def _state(call: Call, sent: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state that is sent, with what the token says instead of it."""
    principal = call.principal
    names = call.registry.config.authorization_config.session_state_claims
    if principal.trusted or not (names or principal.session_state):
        return sent
    return overlay(sent, names, principal.session_state)


def with_claims(call: Call, hosted: Component, details: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the details of a run with what the token says for it, which nobody can overwrite.

    A caller can send nothing under the names of claims, nor under those of what is said for it.
    The scopes are among the details where a guard reads them.
    """
    principal = call.principal
    if principal.trusted:
        return details
    config, given = call.registry.config.authorization_config, dict(details)
    dependencies, state = principal.dependencies, principal.session_state
    if config.dependencies_claims or dependencies:
        names = (*config.dependencies_claims, *dependencies)
        given["dependencies"] = overlay(given.get("dependencies", {}), names, dependencies)
    if config.session_state_claims or state:
        names = tuple(dict.fromkeys((*config.session_state_claims, *state)))
        given["state_claims"] = {"names": names, "said": state}
    if state or dependencies:
        given["claims"] = {**state, **dependencies}
    if hosted.reads_scopes:
        given[SCOPES] = sorted(principal.scopes)
    return given


def _find_owner(
    call: Call, database: str, form: StartForm, session_id: str, run_id: str
) -> Program[str]:
    """Return whose the run of one who sees all is: his own, or his whom the request names.

    Where authorization is off, a session that has one owner alone goes on as his.
    """
    principal, whose = call.principal, call.whose(form.user_id)
    others = whose.others and principal.trusted
    named = principal.session_id or form.session_id
    if not named or not (others or whose.owners[1:]):
        return whose.owners[0]
    if call.seed is not None:  # sent again, it means the owner that it meant at first
        row = yield from Transact(database, FetchRun(run_id, None, any_owner=True))
        if row is not None:
            return row.owner
    session = yield from Transact(database, FetchSession(session_id, whose.owners, others))
    return session.owner if isinstance(session, SessionRow) else whose.owners[0]


@frozen
class ListRunsQuery:
    """A page of the runs of a session."""

    session_id: str = text("Session ID to list runs for", required=True)
    status: str | None = choice(
        tuple(state.value for state in RunState),
        "Filter by run status (PENDING, RUNNING, COMPLETED, ERROR)."
        " The others are PAUSED and CANCELLED.",
        nullable=True,
    )
    user_id: str | None = text(
        "User ID. Counts for administrators alone; needed where several users have the id.",
        or_none=True,
        nullable=True,
    )
    page: int = integer("Page number for pagination", default=1, **PAGES)
    limit: int = integer("Runs on a page", default=1000, minimum=1, maximum=1000)
    cursor: Cursor | None = cursor(int)


def list_runs(
    call: Call, hosted: Component, query: ListRunsQuery
) -> Program[Answer | SeveralUsers]:
    """Return the caller's runs of a session."""
    session_id = call.principal.session_id or query.session_id
    session = yield from find_session(call, hosted.database, session_id, query.user_id)
    if session is None:
        return json_response(200, [])
    if isinstance(session, Refusal):
        return session
    listed = ReadRuns(
        session.owner,
        session_id,
        render_listed,
        status=query.status,
        kind=hosted.kind,
        component_id=hosted.id,
        members=True,
    )
    return (yield from answer_runs(call, hosted.database, listed, query))


@frozen
class GetRunQuery:
    """The choice of the run to read."""

    session_id: str | None = text("Session ID for the run")
    user_id: None = no_op()


def get_run(call: Call, query: GetRunQuery) -> Program[Response | NoRun]:
    """Return one of the caller's runs; with the scope `runs:read`, one of any user."""
    own = yield from find_own_run(call, query.session_id, removed=True, reads=True)
    return own if isinstance(own, Refusal) else json_bytes_response(200, run_json(own.row))


@frozen
class RunEventsQuery:
    """The last event of a run that the client has received."""

    after: int = integer("Events behind this one", default=0, minimum=0)
    last_event_id: None = header(
        "Last-Event-ID",
        {
            "type": "string",
            "pattern": r"^([A-Za-z0-9._~-]{1,128}:(0|[1-9][0-9]{0,17}))?$",
            "examples": ["6f1c:1"],
        },
        "The `id` of the last event received; counts before `after`",
    )
    user_id: None = no_op()


def run_events(
    call: Call, query: RunEventsQuery
) -> Program[Streamed | Invalid | NoRun | TooManyRequests]:
    """Replay a run's events from where a client stopped, and go on."""
    stopped = parse_last_event_id(call.request.header(b"last-event-id"))
    if isinstance(stopped, BadEventId):
        return Invalid((Fault("header.last-event-id", stopped.reason),))
    own = yield from find_own_run(call, reads=True)
    if isinstance(own, Refusal):
        return own
    row = own.row
    if stopped is not None and stopped.run_id != row.run_id:
        return Invalid((Fault("header.last-event-id", "is of another run"),))
    if refusal := call.hold_place(own.hosted_as, stream=True, follows=True):
        return refusal
    seq, database = stopped.seq if stopped else query.after, own.hosted.database
    followed = _follow_own(call, own)
    if row.parent_run_id is None:
        return event_stream(tail(followed, seq))
    top_id = yield from find_top(database, row.owner, row.parent_run_id)
    return event_stream(tail_of_member(evolve(followed, top_id=top_id), seq))


def resume_run(call: Call, form: ResumeForm) -> Program[Streamed | NoRun | TooManyRequests]:
    """Go on streaming a run, the way later clients ask for it."""
    own = yield from find_own_run(call, form.session_id)
    if isinstance(own, Refusal):
        return own
    if refusal := call.hold_place(own.hosted_as, stream=True, follows=True):
        return refusal
    followed = _follow_own(call, own)
    return event_stream(resume(followed, form.last_event_index + 1))


def cancel_run(
    call: Call, query: CancelQuery, form: CancelForm
) -> Program[Response | NoRun | Conflict]:
    """Cancel one of the caller's runs.

    A run that is over stays as it is: the caller wanted it to go no further, and it does not.
    """
    own = yield from find_own_run(call, query.session_id, form.session_id, removed=True)
    if isinstance(own, Refusal):
        return own
    if own.row.parent_run_id is not None and not RunState(own.row.status).final:
        return Conflict(_GOES_WITH)
    change = partial(call.change, resource=call.describe_resource(own.hosted.id, own.row.run_id))
    member = call.context.cluster.member(own.hosted.database)
    found = yield from cancel(member, own.row, own.hosted.name, change)
    return NotFound(_NO_RUN) if found is None else json_response(200, {})


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


NotPaused: TypeAlias = Annotated[Conflict, _NOT_PAUSED[RunState.COMPLETED]]


def continue_run(
    call: Call, form: ContinueForm
) -> Program[Answer | BadRequest | NoRun | NotPaused | Invalid | TooManyRequests | Unavailable]:
    """Go on with a run that waits for a person."""
    name = "requirements" if form.requirements else "tools"
    replies = read_replies(answer_calls(form.requirements) or form.tools)
    if isinstance(replies, str):
        return BadRequest(f"Invalid structure or content for {name}: {replies}")
    own = yield from find_own_run(call, form.session_id)
    if isinstance(own, Refusal):
        return own
    before = _load_paused_turn(own.row)
    if isinstance(before, Refusal):
        return before
    state = apply_replies(before, replies, own.row.run_id)
    if not isinstance(state, TurnState):
        return Invalid(state)
    if refusal := call.hold_place(own.hosted_as, stream=form.stream, follows=True):
        return refusal
    return (yield from _go_on(call, own, before, state, stream=form.stream))


def _load_paused_turn(row: RunRow) -> TurnState | Conflict:
    """Return the turn of a run that waits for answers, or why there are none to be given."""
    if row.status != RunState.PAUSED:
        return Conflict(_NOT_PAUSED[RunState(row.status)])
    if row.parent_run_id is not None:
        return Conflict(_OF_A_MEMBER)
    turn = turn_at_pause(row)
    return Conflict(_NOT_OURS) if turn is None else turn


def _go_on(
    call: Call, own: OwnRun, before: TurnState, state: TurnState, *, stream: bool
) -> Program[Answer | NoRun | Conflict | TooManyRequests | Unavailable]:
    """Store the answers, see that the run is executed, and answer the way that was asked for."""
    row, database = own.row, own.hosted.database
    change = partial(call.change, resource=call.describe_resource(own.hosted.id, row.run_id))
    outcome: Outcome[str] | None = None if stream else Outcome()
    continued = yield from go_on(
        call.context,
        database,
        row,
        before,
        state,
        change,
        stream=stream,
        by=call.principal.subject,
        outcome=outcome,
    )
    if continued.found is None:
        return NotFound(_NO_RUN)
    if continued.over:
        limits = call.context.shares.table.limits_of(row.subject or row.owner)
        return TooManyRequests(Exceeded("waiting", limits.waiting))
    if continued.busy:
        return Conflict(_BUSY)
    if not continued.kept:
        return Conflict(_NOT_PAUSED[RunState(continued.found)])
    if stream:
        followed, here = _follow_own(call, own), continued.claim is not None
        return event_stream(tail(followed, row.events, in_step=here))
    return (yield from join_run(call, database, row.owner, row.run_id, row.events, outcome))


def _find_holder(row: RunRow) -> str | None:
    """Return the node that executes the run, if any does."""
    return row.lease_by if row.status == RunState.RUNNING else None


def _follow_own(call: Call, own: OwnRun) -> Followed:
    """Return a run that is stored, and is to be streamed."""
    row = own.row
    return _follow_run(call, own.hosted, row.claim, _find_holder(row), row.parent_run_id)


def _follow_run(
    call: Call,
    hosted: Component | _Removed,
    run: ClaimedRun,
    holder: str | None = None,
    parent_run_id: str | None = None,
) -> Followed:
    """Return a run that is to be streamed, and which `holder` executes."""
    path = f"/{hosted.kind}s/{hosted.id}/runs/{run.run_id}/events"
    token = None if call.surface.authenticator is None else call.watch_token()
    return Followed(
        call.context,
        hosted.database,
        run,
        hosted.name,
        run.run_id,
        path,
        token,
        holder,
        parent_run_id,
    )


def join_run(
    call: Call,
    database: str,
    owner: str,
    run_id: str,
    after: int = 0,
    outcome: Outcome[str] | None = None,
) -> Program[Response | Conflict | Unavailable]:
    """Return a run when it is over, or waits for a person.

    One that was begun here tells its `outcome`, and the database is not asked.  Where it is not
    brought to its end here, it is followed as that of another node.
    """
    if outcome is not None and (output := (yield from AwaitOutcome(outcome))) is not None:
        return json_bytes_response(200, output.encode())
    try:
        yield from join(database, owner, run_id, after, context=call.context)
    except RunLeft:
        return Unavailable(_LEFT.format(run_id))
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
class OwnRun:
    """A run that the caller may see, and what it is a run of."""

    hosted: Component | _Removed
    row: RunRow

    @property
    def hosted_as(self) -> tuple[str, str]:
        """The kind and id of what it is a run of."""
        return self.hosted.kind, self.hosted.id


def find_own_run(
    call: Call, *session_ids: str | None, removed: bool = False, reads: bool = False
) -> Program[OwnRun | NotFound]:
    """Return the run that the path names, if it is one the caller may see, of these sessions.

    The session of the token counts before those that the request says; None is any.  `removed`:
    also one of an agent or a team that is not hosted any more.  `reads`: it is for reading alone,
    for which a scope opens the runs of every owner.
    """
    every = call.principal.sees_all or (reads and sees_every_run(call.principal))
    kind = "agent" if "agent_id" in call.params else "team"
    hosted = find_component(kind, call)
    if isinstance(hosted, Component):
        own = yield from _run_of(call, hosted, every=every)
        absent = NotFound(_NO_RUN)
    else:
        own = (yield from _run_of_removed(call, kind, every=every)) if removed else None
        absent = hosted
    named = call.principal.session_id
    wanted = {named} if named else {*session_ids, None}
    if own is None or not wanted <= {None, own.row.session_id}:
        return absent
    call.audit.owner = own.row.owner
    return own


def _run_of(call: Call, hosted: Component | _Removed, *, every: bool) -> Program[OwnRun | None]:
    fetch = FetchRun(call.params["run_id"], call.principal.owner, any_owner=every)
    row = yield from Transact(hosted.database, fetch)
    return None if row is None or not _of(row, hosted) else OwnRun(hosted, row)


def _run_of_removed(call: Call, kind: str, *, every: bool) -> Program[OwnRun | None]:
    """Look for the run in every database; one that does not answer may be the one."""
    trouble: StoreFailure | None = None
    for database in call.registry.databases:
        removed = _Removed(kind, call.params[f"{kind}_id"], database)
        try:
            own = yield from _run_of(call, removed, every=every)
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
