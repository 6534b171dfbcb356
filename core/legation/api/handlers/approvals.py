"""Approvals: the runs that wait for a person, and those that were answered.

An approval is a pause of a run.  Its id names the run and how many events it had at the pause, so
that a second pause of the run is another approval, and no answer to the first is taken for it.

Scopes on approvals show what is asked in the runs of every user: the calls that wait, and no
message and no output.  Without them one sees and answers one's own, as `continue` does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

from attrs import evolve

from ...access.decide import Allow, Principal, decide, find_ids, name_of, owner_of
from ...access.needs import FOLLOW_RUNS, READ_APPROVALS, RUN, WRITE_APPROVALS
from ...effects import Program, Transact
from ...http.bodies.reader import Reader
from ...http.messages import Response, empty_response, json_response
from ...http.refusals import Conflict, Fault, Forbidden, Invalid, NotFound, TooManyRequests
from ...runs.approvals import Reply, agree, apply_replies, reject_waiting
from ...runs.continuation import go_on, turn_at_pause
from ...runs.payloads import find_waiting
from ...runs.turn_state import Standing, TurnState
from ...shares.exceeded import Exceeded
from ...store.failures import StoreFailure
from ...store.listed_runs import WINDOW, FindListed, ListedRun, ListRuns
from ...store.pauses import FetchPauses, ForgetResolution, Pause, PauseKey
from ...store.run_reads import FetchRun
from ...store.run_states import RunState
from ...values import frozen
from ..call import Call
from ..fields import choice, declare, integer, json_object, no_op, text
from ..visible_runs import own_components
from .collections import PAGE

__all__ = [
    "ApprovalResolve",
    "ApprovalsQuery",
    "CountApprovalsQuery",
    "count_approvals",
    "delete_approval",
    "get_approval",
    "get_approval_status",
    "list_approvals",
    "resolve_approval",
]

_LONGEST: Final = 1024
_PENDING: Final = "pending"
_SOURCES: Final = ("agent", "team", "workflow")
_TYPES: Final = ("required", "audit")
_PAUSES: Final = ("confirmation", "external_execution", "user_input")
_STATUSES: Final = ("pending", "approved", "rejected", "expired", "cancelled")
_ID: Final = re.compile(r"(.{1,200})\.(0|[1-9][0-9]{0,17})")
_BATCH: Final = 1_000
_WHOLE: Final = 1 << 30  # bytes: of one approval all is shown
_NO_APPROVAL: Final = "Approval not found"
_NOT_OURS: Final = "run waits for what this platform cannot give it"
_BUSY: Final = "Another run of the session is not over yet"
_RESOLVED: Final = "Approval is already '{}' and cannot be resolved"
_KEPT: Final = "Approval is 'pending' and cannot be deleted"

NoApproval: TypeAlias = Annotated[NotFound, _NO_APPROVAL]
MayNotAnswer: TypeAlias = Annotated[Forbidden, "approvals:write"]
StillPending: TypeAlias = Annotated[Conflict, _KEPT]
Resolved: TypeAlias = Annotated[Conflict, _RESOLVED.format("approved")]


# --- The rights ---------------------------------------------------------------------------------


def _is_own(principal: Principal, run: ListedRun) -> bool:
    return principal.owner is not None and run.owner == principal.owner


def _enters(principal: Principal, run: ListedRun) -> bool:
    return principal.enters(run.session_id)


def _sees(principal: Principal, run: ListedRun) -> bool:
    if not _enters(principal, run):
        return False
    if isinstance(decide(READ_APPROVALS, principal, run.component_id), Allow):
        return True
    follows = decide(FOLLOW_RUNS[run.kind], principal, run.component_id)
    return _is_own(principal, run) and isinstance(follows, Allow)


def _answers(principal: Principal, run: ListedRun) -> bool:
    if isinstance(decide(WRITE_APPROVALS, principal, run.component_id), Allow):
        return True
    runs = decide(RUN[run.kind], principal, run.component_id)
    return _is_own(principal, run) and isinstance(runs, Allow)


def _visible(principal: Principal, asked: ListRuns, user_id: str | None) -> Iterator[ListRuns]:
    """Yield the lists that hold together what a caller sees; they may have runs in common."""
    asked = evolve(asked, session_id=principal.session_id)
    every = asked
    if user_id is not None:
        every = evolve(asked, owner=owner_of(user_id), alias=user_id)
    if isinstance(decide(READ_APPROVALS, principal), Allow):
        yield every
        return
    if ids := sorted(find_ids(READ_APPROVALS, principal)):
        yield evolve(every, allowed=tuple(f"{kind}:{one}" for one in ids for kind in FOLLOW_RUNS))
    allowed = own_components(principal)
    if principal.owner is not None and allowed != ():
        yield evolve(asked, owner=principal.owner, alias=principal.owner, allowed=allowed)


# --- Lists --------------------------------------------------------------------------------------


@frozen
class ApprovalsQuery:
    """A page of the approvals."""

    status: str | None = choice(_STATUSES, "In this state", nullable=True)
    source_type: str | None = choice(_SOURCES, "Of agents, or of teams", nullable=True)
    approval_type: str | None = choice(_TYPES, "Each is `required`", nullable=True)
    pause_type: str | None = choice(_PAUSES, "With such a call", nullable=True)
    agent_id: str | None = text("Of this agent", max_length=_LONGEST, or_none=True, nullable=True)
    team_id: str | None = text("Of this team", max_length=_LONGEST, or_none=True, nullable=True)
    workflow_id: str | None = text(
        "There are none", max_length=_LONGEST, or_none=True, nullable=True
    )
    user_id: str | None = text(
        "Of runs of this user; counts for those alone who see those of others",
        max_length=_LONGEST,
        or_none=True,
        nullable=True,
    )
    schedule_id: str | None = text(
        "There are none", max_length=_LONGEST, or_none=True, nullable=True
    )
    run_id: str | None = text("Of this run", max_length=_LONGEST, or_none=True, nullable=True)
    page: int = PAGE
    limit: int = integer(
        "Number of items to return per page", default=100, minimum=1, maximum=1000, nullable=True
    )

    @property
    def statuses(self) -> tuple[str, ...]:
        """The states that are asked for, of those that there can be in a list."""
        absent = (self.workflow_id, self.schedule_id)
        if any(absent) or self.approval_type == "audit" or self.pause_type == "user_input":
            return ()
        listed = ("pending", "approved", "rejected")
        return tuple(one for one in listed if self.status in (None, one))

    def matches(self, run: ListedRun) -> bool:
        """Return whether a run that is listed is one that is asked for."""
        return (
            self.source_type in (None, run.kind)
            and self.agent_id in (None, run.component_id if run.kind == "agent" else "")
            and self.team_id in (None, run.component_id if run.kind == "team" else "")
            and self.run_id in (None, run.run_id)
            and _state(run) in self.statuses
        )


@frozen
class CountApprovalsQuery:
    """The choice of the approvals to count."""

    user_id: str | None = text(
        "Of runs of this user; counts for those alone who see those of others",
        max_length=_LONGEST,
        or_none=True,
        nullable=True,
    )


def _state(run: ListedRun) -> str:
    """Return the state of the approval with which a run stands in a list."""
    paused = run.status == RunState.PAUSED
    return _PENDING if paused else run.resolution or "approved"


def _key(run: ListedRun) -> PauseKey:
    """Return the pause with which a run stands in a list."""
    paused = run.status == RunState.PAUSED
    return run.run_id, run.events if paused else run.resolved_events or 0


_Found: TypeAlias = tuple[str, ListedRun]


def _gather(
    call: Call, statuses: Sequence[str], user_id: str | None
) -> Program[tuple[list[_Found], list[str]]]:
    """Return the runs that wait, and those that were answered, with databases that are absent.

    All that wait, up to as many as a window has; of the others those in the newest window.
    """
    asked: list[ListRuns] = []
    if _PENDING in statuses:
        asked.append(ListRuns(statuses=(RunState.PAUSED.value,), size=_BATCH))
    if set(statuses) - {_PENDING}:
        others = tuple(state.value for state in RunState if state is not RunState.PAUSED)
        asked.append(ListRuns(statuses=others, size=_BATCH, resolved=True))
    lists = [one for every in asked for one in _visible(call.principal, every, user_id)]
    found: dict[tuple[str, str], ListedRun] = {}
    absent: list[str] = []
    databases = tuple(call.registry.databases) if lists else ()
    for name in databases:
        try:
            for one in lists:
                for run in (yield from _read(name, one)):
                    found[name, run.run_id] = run
        except StoreFailure:
            absent.append(name)
            if len(absent) == len(databases):
                raise
    runs = [(name, run) for (name, _), run in found.items()]
    runs.sort(key=_order, reverse=True)
    return runs, absent


def _order(found: _Found) -> tuple[int, str, str]:
    """Return the place of an approval in a list: when it was asked, or answered."""
    name, run = found
    at_us = run.ended_us if run.status == RunState.PAUSED else run.resolved_us
    return at_us or 0, name, run.run_id


def _read(database: str, asked: ListRuns) -> Program[list[ListedRun]]:
    runs: list[ListedRun] = []
    while True:
        page = yield from Transact(database, asked)
        runs += page.runs
        if page.end is None or asked.resolved or len(runs) >= WINDOW:
            return runs
        asked = evolve(asked, place=page.end)


def list_approvals(call: Call, query: ApprovalsQuery) -> Program[Response]:
    """Return the runs that wait for a person, and those that were answered, the latest first.

    With the scope `approvals:read` those of every user, with `approvals:<id>:read` those of that
    agent or team, else one's own.  Of those that were answered, the ones among the newest 10,000
    runs of each database are listed, each with its last answer.
    """
    found, absent = yield from _gather(call, query.statuses, query.user_id)
    found = [(name, run) for name, run in found if query.matches(run)]
    if query.pause_type is not None:
        found = yield from _of_type(found, query.pause_type)
    start = ((query.page or 1) - 1) * query.limit
    data: list[dict[str, Any]] = []
    shown = found[start : start + query.limit]
    pauses = yield from _fetch_pauses(shown, None)
    for name, run in shown:
        pause = pauses.get((name, *_key(run)))
        if pause is not None:
            data.append(_describe(call, name, run, _key(run)[1], pause, _state(run)))
    meta: dict[str, Any] = {
        "page": query.page,
        "limit": query.limit,
        "total_pages": -(-len(found) // query.limit),
        "total_count": len(found),
        "search_time_ms": 0.0,
    }
    if absent:
        meta["absent"] = absent
    return json_response(200, {"data": data, "meta": meta})


def _fetch_pauses(
    found: Sequence[_Found], most: int | None
) -> Program[dict[tuple[str, str, int], Pause]]:
    """Return the pauses of runs in a list, by database and key; `most` as of `FetchPauses`."""
    pauses: dict[tuple[str, str, int], Pause] = {}
    for name in dict.fromkeys(name for name, _ in found):
        keys = [_key(run) for database, run in found if database == name]
        for start in range(0, len(keys), _PAUSES_AT_ONCE):
            few = tuple(keys[start : start + _PAUSES_AT_ONCE])
            unit = FetchPauses(few) if most is None else FetchPauses(few, most)
            read = yield from Transact(name, unit)
            pauses |= {(name, *key): pause for key, pause in read.items()}
    return pauses


_PAUSES_AT_ONCE: Final = 100


def _of_type(found: list[_Found], pause_type: str) -> Program[list[_Found]]:
    """Return those of `found` that wait, or waited, for such an answer."""
    pauses = yield from _fetch_pauses(found, 0)
    external = pause_type == "external_execution"
    return [
        (name, run)
        for name, run in found
        for pause in [pauses.get((name, *_key(run)))]
        if pause is not None and (pause.external if external else pause.confirms)
    ]


def count_approvals(call: Call, query: CountApprovalsQuery) -> Program[Response]:
    """Return how many runs wait for a person, of those that one sees as approvals."""
    found, _ = yield from _gather(call, (_PENDING,), query.user_id)
    return json_response(200, {"count": len(found)})


# --- One approval -------------------------------------------------------------------------------


@frozen
class _Approval:
    """A pause of a run that the caller may see, with its database and its state."""

    database: str
    run: ListedRun
    events: int
    pause: Pause
    state: str

    @property
    def current(self) -> bool:
        """Whether the run's row still says how it was answered."""
        return self.run.resolved_events == self.events


def _find(
    call: Call, sees: Callable[[Principal, ListedRun], bool] = _sees
) -> Program[_Approval | NotFound]:
    """Return the approval that the path names, if it is one that the caller `sees`."""
    named = _ID.fullmatch(call.params["approval_id"])
    if named is None:
        return NotFound(_NO_APPROVAL)
    run_id, events = named[1], int(named[2])
    trouble: StoreFailure | None = None
    for name in call.registry.databases:
        try:
            for run in (yield from Transact(name, FindListed((run_id,)))):
                if not sees(call.principal, run):
                    return NotFound(_NO_APPROVAL)
                call.audit.owner = run.owner
                approval = yield from _find_pause(name, run, events)
                return NotFound(_NO_APPROVAL) if approval is None else approval
        except StoreFailure as failure:
            trouble = failure
    if trouble is not None:  # it may be there
        raise trouble
    return NotFound(_NO_APPROVAL)


def _find_pause(database: str, run: ListedRun, events: int) -> Program[_Approval | None]:
    key = (run.run_id, events)
    pauses = yield from Transact(database, FetchPauses((key,), _WHOLE))
    pause = pauses.get(key)
    state = None if pause is None else _state_of(run, events, pause)
    if pause is None or state is None:
        return None
    return _Approval(database, run, events, pause, state)


def _state_of(run: ListedRun, events: int, pause: Pause) -> str | None:
    """Return what came of a pause; None where that was deleted."""
    if run.status == RunState.PAUSED and run.events == events:
        return _PENDING
    answered = run.resolved_events
    if answered is not None and answered >= events and run.resolved_us is None:
        return None
    if answered == events:
        return run.resolution
    if pause.next_name in ("RunCancelled", "TeamRunCancelled"):
        return "cancelled"
    agreed = [call.get("confirmed") is not False for call in _calls(pause.next_data)]
    return "approved" if any(agreed) or not agreed else "rejected"


def _calls(data: str | None) -> Sequence[Mapping[str, Any]]:
    """Return the calls of tools in the data of an event."""
    calls: Sequence[Mapping[str, Any]] = json.loads(data or "{}").get("tools") or ()
    return calls


def get_approval(call: Call) -> Program[Response | NoApproval]:
    """Return one approval: what is asked, and what came of it."""
    found = yield from _find(call)
    return found if isinstance(found, NotFound) else json_response(200, _show(call, found))


def get_approval_status(call: Call) -> Program[Response | NoApproval]:
    """Return the state of one approval alone."""
    found = yield from _find(call)
    if isinstance(found, NotFound):
        return found
    shown = _show(call, found)
    names = ("status", "run_id", "resolved_at", "resolved_by")
    return json_response(200, {"approval_id": shown["id"], **{name: shown[name] for name in names}})


def delete_approval(call: Call) -> Program[Response | NoApproval | StillPending]:
    """Forget who answered, and when; the run stays as it is."""
    found = yield from _find(call, _enters)
    if isinstance(found, NotFound):
        return found
    if found.state == _PENDING:
        return Conflict(_KEPT)
    forget = ForgetResolution(found.run.owner, found.run.run_id, found.events)
    forgotten = yield from call.change(found.database, forget)
    return empty_response(204) if forgotten else NotFound(_NO_APPROVAL)


# --- The answer ---------------------------------------------------------------------------------


_ANSWERS: Final = ("approved", "rejected")


def _read_answer(read: Reader, name: str) -> str | None:
    if read.text(name, required=True):
        return read.choice(name, choices=_ANSWERS)
    return None


@frozen
class ApprovalResolve:
    """The answer to a run that waits."""

    status: str = declare(
        {"type": "string", "enum": list(_ANSWERS)},
        _read_answer,
        "Yes to all calls that wait, or no",
        required=True,
    )
    resolved_by: None = no_op("Without effect: the token says who answers")
    resolution_data: Mapping[str, Any] | None = json_object(
        "`note`, which the model reads; `results`, by the id of a requirement or of its call: what"
        " the client says came of a call that it executes"
    )


def resolve_approval(
    call: Call, body: ApprovalResolve
) -> Program[Response | NoApproval | MayNotAnswer | Resolved | Invalid | TooManyRequests]:
    """Answer a run that waits, once: it goes on, as its owner's, and the trail says who answered.

    Of several who answer, one is first; the others are told that it is resolved.  The answer is for
    this pause alone: a run that pauses again has another approval.
    """
    found = yield from _find(call)
    if isinstance(found, NotFound):
        return found
    if not _answers(call.principal, found.run):
        return Forbidden(WRITE_APPROVALS.scope)
    if found.state != _PENDING:
        return Conflict(_RESOLVED.format(found.state))
    run = found.run
    row = yield from Transact(found.database, FetchRun(run.run_id, run.owner))
    if row is None:
        return NotFound(_NO_APPROVAL)
    if row.status != RunState.PAUSED or row.events != found.events:
        return (yield from _explain_late(call))
    before = turn_at_pause(row)
    if before is None:
        return Conflict(_NOT_OURS)
    state = _answer(before, body, run.run_id)
    if not isinstance(state, TurnState):
        return Invalid(state)
    by = call.principal.subject
    continued = yield from go_on(
        call.context, found.database, row, before, state, call.change, stream=False, by=by
    )
    if continued.over:
        limits = call.context.shares.table.limits_of(row.subject or row.owner)
        return TooManyRequests(Exceeded("waiting", limits.waiting))
    if continued.busy:
        return Conflict(_BUSY)
    if not continued.kept:
        return (yield from _explain_late(call))
    going = RunState.PENDING if continued.claim is None else RunState.RUNNING
    run = evolve(
        run,
        status=going.value,
        resolved_us=call.now_us,
        resolved_by=by,
        resolved_events=found.events,
        resolution=body.status,
    )
    return json_response(200, _show(call, evolve(found, run=run, state=body.status)))


def _explain_late(call: Call) -> Program[NotFound | Conflict]:
    """Say that somebody else was quicker."""
    found = yield from _find(call)
    if isinstance(found, NotFound):
        return found
    return Conflict(_RESOLVED.format(found.state))


def _answer(before: TurnState, body: ApprovalResolve, run_id: str) -> TurnState | tuple[Fault, ...]:
    """Return the turn with the answer to every call that waits, or what is wrong with that."""
    data = body.resolution_data or {}
    note, results = data.get("note"), data.get("results", {})
    faults = [
        Fault(f"body.resolution_data.{name}", f"must be {what}")
        for name, value, kind, what in (
            ("note", note, str | None, "a string"),
            ("results", results, Mapping, "an object"),
        )
        if not isinstance(value, kind)
    ]
    if faults:
        return tuple(faults)
    if body.status == "rejected":
        return reject_waiting(before, note)
    replies: list[Reply] = []
    used: set[str] = set()
    for waiting, member in find_waiting(before):
        reply = agree(waiting, member, run_id, note, None)
        requirement = reply.requirement_id or ""
        names = [name for name in (requirement, reply.call_id) if name in results]
        used |= set(names)
        result = results[names[0]] if names else None
        if result is None and waiting.standing is Standing.EXTERNAL:
            faults.append(_result_missing(requirement))
        replies.append(evolve(reply, result=result))
    unknown = [str(name)[:_SHOWN] for name in results if name not in used]
    faults += [Fault("body.resolution_data.results", f"has no call {name}") for name in unknown]
    return tuple(faults) if faults else apply_replies(before, replies, run_id)


_SHOWN: Final = 80


def _result_missing(requirement: str) -> Fault:
    sentence = f"must have the result of {requirement[:_SHOWN]}, which the client executes"
    return Fault("body.resolution_data.results", sentence)


# --- An approval as it is shown -----------------------------------------------------------------


def _show(call: Call, found: _Approval) -> dict[str, Any]:
    run = found.run
    if not found.current:  # the row says how another pause was answered
        run = evolve(run, resolved_us=None, resolved_by=None)
    return _describe(call, found.database, run, found.events, found.pause, found.state)


def _describe(
    call: Call, database: str, run: ListedRun, events: int, pause: Pause, state: str
) -> dict[str, Any]:
    """Return an approval in the shape of AgentOS; of the run only what is asked."""
    hosted = call.registry.components(run.kind).get(run.component_id)
    paused: Mapping[str, Any] = {} if pause.data is None else json.loads(pause.data)
    asked: Sequence[Mapping[str, Any]] | None = paused.get("requirements")
    first: Mapping[str, Any] = asked[0]["tool_execution"] if asked else {}
    pending = state == _PENDING
    resolved_us = None if pending else run.resolved_us
    return {
        "id": f"{run.run_id}.{events}",
        "run_id": run.run_id,
        "session_id": run.session_id,
        "status": state,
        "source_type": run.kind,
        "approval_type": "required",
        "pause_type": "external_execution" if not pause.confirms else "confirmation",
        "tool_name": first.get("tool_name"),
        "tool_args": first.get("tool_args"),
        "expires_at": None,
        "agent_id": run.component_id if run.kind == "agent" else None,
        "team_id": run.component_id if run.kind == "team" else None,
        "workflow_id": None,
        "user_id": name_of(run.owner),
        "schedule_id": None,
        "schedule_run_id": None,
        "source_name": run.component_id if hosted is None else hosted.name,
        "requirements": asked,
        "context": {"db_id": database},
        "resolution_data": None if pending else _resolution(pause),
        "resolved_by": None if pending else run.resolved_by,
        "resolved_at": None if resolved_us is None else resolved_us // _SECOND,
        "created_at": pause.at_us // _SECOND,
        "updated_at": max(pause.at_us, resolved_us or 0) // _SECOND,
        "run_status": run.status,
    }


_SECOND: Final = 1_000_000
_ANSWERED: Final = ("tool_call_id", "tool_name", "confirmed", "confirmation_note")


def _resolution(pause: Pause) -> dict[str, Any] | None:
    """Return how each call was answered, without results; None where the run has not gone on."""
    calls = _calls(pause.next_data)
    if not calls:
        return None
    return {"calls": [{name: call.get(name) for name in _ANSWERED} for call in calls]}
