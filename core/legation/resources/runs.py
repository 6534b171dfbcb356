"""Runs of agents and teams: start, and then join, tail or leave; list, get, follow."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from attrs import frozen

from ..bodies import Form
from ..effects import Program, Transact
from ..messages import Answer, Headers, Streamed, json_response
from ..refusals import Fault, Internal, Invalid, NotFound, Refusal
from ..registry import Component
from ..runs.follow import join, tail
from ..runs.output import run_output
from ..runs.starting import NewRun, new_id, start
from ..sse import BadEventId, parse_last_event_id
from ..store.runs import FetchRun, ListRuns, RunRow
from ..store.sessions import FetchSession
from .call import Call, Handler
from .components import component

__all__ = ["get_run", "list_runs", "run_events", "start_run"]

SSE_HEADERS: Final[Headers] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_ID_LENGTH: Final = 255
_MESSAGE_LENGTH: Final = 1 << 20


@frozen
class _Asked:
    """The form of a new run, checked."""

    message: str
    stream: bool
    background: bool
    session_id: str
    user_id: str | None


def start_run(kind: str) -> Handler:
    """Return the handler that starts a run of an agent or a team."""

    def handler(call: Call) -> Program[Answer | Refusal]:
        hosted = component(call, kind)
        if isinstance(hosted, NotFound):
            return hosted
        form = yield from call.form()
        if isinstance(form, Refusal):
            return form
        asked = _read(form)
        if isinstance(asked, Invalid):
            return asked
        return (yield from _start(call, hosted, asked))

    return handler


def _read(form: Form) -> _Asked | Invalid:
    read = form.reader()
    asked = _Asked(
        message=read.text("message", required=True, max_length=_MESSAGE_LENGTH),
        stream=read.boolean("stream", default=True),
        background=read.boolean("background", default=False),
        session_id=read.text("session_id", default="", max_length=_ID_LENGTH),
        user_id=read.text("user_id", max_length=_ID_LENGTH) or None,
    )
    for name in ("session_id", "user_id"):
        if _CONTROL.search(getattr(asked, name) or ""):
            read.fault(name, "must not have control characters")
    read.ignore("monitor", "version")
    if faults := read.faults():
        return Invalid(faults)
    return asked


def _start(call: Call, hosted: Component, asked: _Asked) -> Program[Answer | Refusal]:
    """Store the run, see that it is executed, and answer the way that was asked for."""
    run_id = yield from new_id()
    session_id = call.principal.session_id or asked.session_id or (yield from new_id())
    owner = yield from _owner(call, hosted, asked, session_id, run_id)
    streamed = asked.stream and not asked.background
    new = NewRun(owner, session_id, run_id, asked.message, streamed)
    status = 202 if asked.background else 200
    change = partial(call.change, status=status, resource=(hosted.id, run_id))
    yield from start(call.workshop, hosted, new, change)
    if asked.background:
        told = {"run_id": run_id, "session_id": session_id, "status": "PENDING"}
        return json_response(202, told)
    if asked.stream:
        return Streamed(200, SSE_HEADERS, tail(hosted.database, owner, run_id, 0))
    yield from join(hosted.database, owner, run_id)
    row = yield from Transact(hosted.database, FetchRun(run_id, owner))
    if row is None:
        return Internal("The run is gone")
    return json_response(200, run_output(row))


def _owner(
    call: Call, hosted: Component, asked: _Asked, session_id: str, run_id: str
) -> Program[str]:
    """Return whose the run is: the token's subject, or what those who see all say or continue.

    A caller without a subject owns nothing: the run is stored under a name nobody bears.
    """
    principal = call.principal
    if not principal.sees_all:
        return principal.owner or f"~nobody:{run_id}"
    if asked.user_id is not None:
        return asked.user_id
    if asked.session_id:
        fetch = FetchSession(session_id, None, any_owner=True)
        if session := (yield from Transact(hosted.database, fetch)):
            return session.owner
    return principal.owner or ""


def list_runs(kind: str) -> Handler:
    """Return the handler that lists the caller's runs of a session."""

    def handler(call: Call) -> Program[Answer | Refusal]:
        hosted = component(call, kind)
        if isinstance(hosted, NotFound):
            return hosted
        read = call.reader()
        if isinstance(read, Invalid):
            return read
        session_id = read.text("session_id", required=True)
        status = read.text("status")
        user_id = read.text("user_id")
        if faults := read.faults():
            return Invalid(faults)
        whose = call.whose(user_id)
        fetch = FetchSession(session_id, whose.owner, whose.any_owner)
        session = yield from Transact(hosted.database, fetch)
        if session is None:
            return json_response(200, [])
        listed = ListRuns(session.owner, session_id, status)
        rows = yield from Transact(hosted.database, listed)
        return json_response(200, [run_output(row) for row in rows if _of(row, hosted)])

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
        row = yield from _own_run(call, kind)
        if isinstance(row, Refusal):
            return row
        if session_id not in (None, row.session_id):
            return NotFound("Run not found")
        return json_response(200, run_output(row))

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
        row = yield from _own_run(call, kind)
        if isinstance(row, Refusal):
            return row
        if stopped is not None and stopped.run_id != row.run_id:
            return Invalid((Fault("header.last-event-id", "is of another run"),))
        seq = stopped.seq if stopped else after
        database = call.registry.components(kind)[row.component_id].database
        return Streamed(200, SSE_HEADERS, tail(database, row.owner, row.run_id, seq))

    return handler


def _own_run(call: Call, kind: str) -> Program[RunRow | NotFound]:
    """Return the run that the path names, if it is one the caller may see."""
    hosted = component(call, kind)
    if isinstance(hosted, NotFound):
        return hosted
    whose = call.whose(None)
    fetch = FetchRun(call.params["run_id"], whose.owner, whose.any_owner)
    row = yield from Transact(hosted.database, fetch)
    if row is None or not _of(row, hosted):
        return NotFound("Run not found")
    return row


def _of(row: RunRow, hosted: Component) -> bool:
    return row.kind == hosted.kind and row.component_id == hosted.id
