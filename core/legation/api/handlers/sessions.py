"""Sessions as their owner sees them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, TypeVar

from attrs import evolve

from ...access.decide import Allow, decide, name_of
from ...access.needs import FOLLOW_RUNS
from ...effects import Now, Nudge, Program, Transact
from ...hosted.registry import Component
from ...http.bodies import JsonObject, Reader
from ...http.messages import Answer, empty_response, json_response
from ...http.refusals import BadRequest, Conflict, Invalid, NotFound, Refusal
from ...models.conversation import Usage as Cost
from ...runs.cancellation import cancel_topic, runs_topic
from ...runs.output import iso_time, run_output, run_row
from ...runs.payloads import spent
from ...runs.retry import FEW, PASSING, with_retry
from ...store.run_reads import FetchRun, ListRuns, Usage
from ...store.run_rows import RunRow
from ...store.sessions import (
    CreateSession,
    Deleted,
    DeleteSessions,
    ListSessions,
    SessionChange,
    SessionRow,
    UpdateSession,
)
from ...store.units import Unit
from ...values import frozen
from ..call import Call, chosen_session, resource_of
from .owners import find_owners, find_session

__all__ = [
    "create_session",
    "delete_session",
    "delete_sessions",
    "get_session",
    "get_session_run",
    "get_session_runs",
    "list_sessions",
    "rename_session",
    "update_session",
]

R = TypeVar("R")

_KINDS: Final = ("agent", "team", "workflow")
# What a model was told beside is no part of the conversation, nor is what tools returned.
_CHATTING: Final = ("user", "assistant")
_ORDERS: Final = ("asc", "desc")
_SORTS: Final = {"created_at": "created_us", "updated_at": "updated_us"}
_ID_LENGTH: Final = 255
_LONGEST_ID: Final = 1024
_NAME_LENGTH: Final = 500
_PAGE: Final = 20
_MOST: Final = 1000
_DEEPEST: Final = 1_000_000
_LATEST_S: Final = 1 << 40
_NO_COMPONENT: Final[Mapping[str, str | None]] = {}


@frozen
class _Where:
    """Which database, which kind, whose: what every route of sessions can be told."""

    database: str
    kind: str
    user_id: str | None
    kind_sent: bool


_NEEDED: Final = "The db_id query parameter is required when using multiple databases"


def _where(
    call: Call, read: Reader, components: Mapping[str, str | None] = _NO_COMPONENT
) -> _Where | NotFound | BadRequest:
    """Take the fields that say where; the other faults are left with `read`.

    Where no database is named, it is that of the component that the request names, by its kind.
    """
    named = read.text("db_id") or None
    read.ignore("table")
    sent = read.has("type")
    kind = read.choice("type", _KINDS, default="agent")
    user_id = read.text("user_id") or None
    database = named or _database_of(call, kind, components.get(kind))
    if database is None:
        return BadRequest(_NEEDED)
    if database not in call.registry.databases:
        return NotFound(f"No database found with id '{database[:_ID_LENGTH]}'")
    return _Where(database, kind, user_id, sent)


def _database_of(call: Call, kind: str, component_id: str | None) -> str | None:
    """Return the only database, else that of a component that the caller may know of."""
    registry = call.registry
    if len(registry.databases) == 1:
        return registry.default_database
    known = registry.components(kind).get(component_id or "")
    return known.database if known is not None and _may_know(call, known) else None


# --- Reading -----------------------------------------------------------------------------------


def list_sessions(call: Call) -> Program[Answer | Refusal]:
    """Return a page of sessions, without their runs."""
    read = call.reader()
    if isinstance(read, Invalid):
        return read
    component_id = read.text("component_id") or None
    where = _where(call, read, dict.fromkeys(_KINDS, component_id))
    if isinstance(where, Refusal):
        return where
    owner, *former = call.whose(where.user_id).owners or (None,)
    everybody = call.principal.sees_all and where.user_id is None
    asked = ListSessions(
        owner=None if everybody else owner,
        any_owner=everybody,
        kind=where.kind,
        only=call.principal.session_id,
        component_id=component_id,
        name=read.text("session_name") or None,
        page=read.integer("page", default=1, minimum=1, maximum=_DEEPEST),
        size=read.integer("limit", default=_PAGE, minimum=1, maximum=_MOST),
        sort_by=_SORTS[read.choice("sort_by", tuple(_SORTS), default="created_at")],
        order=read.choice("sort_order", _ORDERS, default="desc"),
    )
    if faults := read.faults():
        return Invalid(faults)
    page = yield from Transact(where.database, asked)
    if former and not page.total:
        page = yield from Transact(where.database, evolve(asked, owner=former[0]))
    meta = {
        "page": asked.page,
        "limit": asked.size,
        "total_pages": -(-page.total // asked.size),
        "total_count": page.total,
        "search_time_ms": 0.0,
    }
    shown = _item_with_owner if call.principal.sees_all else _item
    return json_response(200, {"data": [shown(row) for row in page.rows], "meta": meta})


def get_session(call: Call) -> Program[Answer | Refusal]:
    """Return one session with its conversation."""
    read = call.reader()
    if isinstance(read, Invalid):
        return read
    found = yield from _find_session(call, read)
    if isinstance(found, Refusal):
        return found
    return (yield from _answer_detail(call, found.database, found.row))


def get_session_runs(call: Call) -> Program[Answer | Refusal]:
    """Return the runs of a session in their order, between two times if they are given."""
    read = call.reader()
    if isinstance(read, Invalid):
        return read
    after = read.integer("created_after", minimum=0, maximum=_LATEST_S)
    before = read.integer("created_before", minimum=0, maximum=_LATEST_S)
    page = read.integer("page", default=1, minimum=1, maximum=_DEEPEST)
    limit = read.integer("limit", default=_MOST, minimum=1, maximum=_MOST)
    found = yield from _find_session(call, read)
    if isinstance(found, Refusal):
        return found
    listed = ListRuns(
        found.row.owner,
        found.row.session_id,
        created_from_us=None if after is None else after * 1_000_000,
        created_to_us=None if before is None else before * 1_000_000 + 999_999,
        page=page,
        size=limit,
    )
    rows = yield from Transact(found.database, listed)
    return json_response(200, [run_row(row) for row in rows])


def get_session_run(call: Call) -> Program[Answer | Refusal]:
    """Return one run of a session."""
    read = call.reader()
    if isinstance(read, Invalid):
        return read
    found = yield from _find_session(call, read)
    if isinstance(found, Refusal):
        return found
    run_id, session_id = call.params["run_id"], found.row.session_id
    row = yield from Transact(found.database, FetchRun(run_id, found.row.owner))
    if row is None or row.session_id != session_id:
        return NotFound(f"Run with ID {run_id} not found in session {session_id}")
    return json_response(200, run_row(row))


@frozen
class _Found:
    """A session, and the database that holds it."""

    database: str
    row: SessionRow


def _find_session(call: Call, read: Reader) -> Program[_Found | Refusal]:
    """Return the session that the path names, if it is one the caller may see."""
    where = _where(call, read)
    if isinstance(where, Refusal):
        return where
    if faults := read.faults():
        return Invalid(faults)
    session_id = call.params["session_id"]
    if not call.principal.enters(session_id):
        return _absent(call)
    row = yield from find_session(call, where.database, session_id, where.user_id)
    if isinstance(row, Refusal):
        return row
    if row is None or (where.kind_sent and row.kind != where.kind):
        return _absent(call)
    return _Found(where.database, row)


def _absent(call: Call) -> NotFound:
    return NotFound(f"Session with id '{call.params['session_id']}' not found")


# --- Changing ----------------------------------------------------------------------------------


def create_session(call: Call) -> Program[Answer | Refusal]:
    """Create a session without runs; one that exists is left as it is."""
    query = call.reader()
    if isinstance(query, Invalid):
        return query
    body = yield from call.json_object()
    if isinstance(body, Refusal):
        return body
    read = _reader(body)
    components = {kind: _id(read, f"{kind}_id") for kind in _KINDS}
    where = _where(call, query, components)
    if isinstance(where, Refusal):
        return where
    session_id = chosen_session(read)
    user_id = _id(read, "user_id")
    change = _change(read)
    if faults := (*query.faults(), *read.faults()):
        return Invalid(faults)
    if where.kind == "workflow":
        return BadRequest("This platform hosts no workflows")
    session_id = call.principal.session_id or session_id or (yield from call.new_id("session"))
    owners = call.whose(user_id or where.user_id).owners
    owner = call.audit.owner = owners[0] if owners else f"~nobody:{session_id}"
    now_us = yield from Now()
    unit = CreateSession(
        owner=owner,
        session_id=session_id,
        kind=where.kind,
        component_id=components[where.kind] or "",
        now_us=now_us,
        name=change.name,
        state=change.state or {},
        metadata=change.metadata,
    )
    audited = partial(call.change, status=201, resource=call.describe_resource(session_id))
    row = yield from _store(where.database, unit, audited)
    if row is None:
        return Conflict(f"Session with id '{session_id}' already exists")
    return json_response(201, _detail(call, row, (), Cost()))


def rename_session(call: Call) -> Program[Answer | Refusal]:
    """Give a session another name."""
    return (yield from _update(call, "session_name"))


def update_session(call: Call) -> Program[Answer | Refusal]:
    """Replace the name, the state, the metadata or the summary of a session."""
    return (yield from _update(call))


def _update(call: Call, *required: str) -> Program[Answer | Refusal]:
    query = call.reader()
    if isinstance(query, Invalid):
        return query
    body = yield from call.json_object()
    if isinstance(body, Refusal):
        return body
    read = _reader(body)
    for name in required:
        if body.get(name) is None:
            read.fault(name, "is required")
    change = _change(read) if not required else SessionChange(name=_name(read))
    if faults := read.faults():
        return Invalid(faults)
    found = yield from _find_session(call, query)
    if isinstance(found, Refusal):
        return found
    now_us = yield from Now()
    unit = UpdateSession(found.row.owner, found.row.session_id, change, now_us)
    row = yield from _store(found.database, unit, partial(call.change, status=200))
    if row is None:
        return _absent(call)
    return (yield from _answer_detail(call, found.database, row))


def _reader(body: JsonObject) -> Reader:
    return Reader("body", {name: (value,) for name, value in body.items()})


def _change(read: Reader) -> SessionChange:
    return SessionChange(
        name=_name(read),
        state=read.json_object("session_state"),
        metadata=read.json_object("metadata"),
        summary=read.json_object("summary"),
    )


def _name(read: Reader) -> str | None:
    return read.line("session_name", max_length=_NAME_LENGTH)


def _id(read: Reader, name: str) -> str | None:
    return read.line(name, max_length=_ID_LENGTH) or None


def delete_session(call: Call) -> Program[Answer | Refusal]:
    """Delete a session with its runs; one of them that is executed is broken off.

    One that is not there for the caller is gone already: a client that repeats a deletion whose
    answer it lost is not told that it failed.
    """
    read = call.reader()
    if isinstance(read, Invalid):
        return read
    where = _where(call, read)
    if isinstance(where, Refusal):
        return where
    if faults := read.faults():
        return Invalid(faults)
    session_id = call.params["session_id"]
    if _possible(call, session_id):
        kind = where.kind if where.kind_sent else None
        deleted = yield from _delete(call, where, ((session_id, kind),))
        if isinstance(deleted, Refusal):
            return deleted
    return empty_response(204)


def delete_sessions(call: Call) -> Program[Answer | Refusal]:
    """Delete many sessions at once; one that is absent, or of another kind, is passed over."""
    query = call.reader()
    if isinstance(query, Invalid):
        return query
    body = yield from call.json_object()
    if isinstance(body, Refusal):
        return body
    where = _where(call, query)
    if isinstance(where, Refusal):
        return where
    read = _reader(body)
    ids, kinds = read.texts("session_ids"), read.texts("session_types")
    for name, values in (("session_ids", ids), ("session_types", kinds)):
        if not 0 < len(values) <= _MOST:
            read.fault(name, f"must have between 1 and {_MOST} members")
    for index, kind in enumerate(kinds):
        if kind not in _KINDS:
            read.fault(f"session_types[{index}]", f"must be one of {', '.join(_KINDS)}")
    if faults := (*query.faults(), *read.faults()):
        return Invalid(faults)
    if len(ids) != len(kinds):
        return BadRequest("Session IDs and session types must have the same length")
    named = zip(ids, kinds, strict=True)
    meant = tuple(pair for pair in named if _possible(call, pair[0]))
    deleted = yield from _delete(call, where, meant)
    return deleted if isinstance(deleted, Refusal) else empty_response(204)


def _possible(call: Call, session_id: str) -> bool:
    """Return whether there can be such a session for the caller.

    No id is longer, those of channels included; one that is would only swell the audit trail.
    """
    return len(session_id) <= _LONGEST_ID and call.principal.enters(session_id)


def _delete(
    call: Call, where: _Where, meant: tuple[tuple[str, str | None], ...]
) -> Program[Deleted | Refusal]:
    """Delete the sessions of these ids and kinds, each of one owner; tell their executors."""
    database, audit = where.database, call.audit
    ids = tuple(dict.fromkeys(session_id for session_id, _ in meant))
    owners = yield from find_owners(call, database, ids, where.user_id)
    if isinstance(owners, Refusal):
        return owners
    named = {(owners[one], one, kind): None for one, kind in meant if one in owners}
    if not named:
        return Deleted(0, ())
    own = call.principal.own if call.whose(where.user_id).others else None
    unit = DeleteSessions(tuple(named), own, (yield from Now()))
    resource = "/".join(audit.of(resource_of((one,)), owners.get(one)) for one in ids)
    change = partial(call.change, status=204, resource=resource)
    deleted = yield from _store(database, unit, change)
    for run_id in deleted.runs:
        yield from Nudge(cancel_topic(database, run_id))
    if deleted.runs:
        yield from Nudge(runs_topic(database), database)
    return deleted


def _store(database: str, unit: Unit[R], change: Any) -> Program[R]:
    result: R = yield from with_retry(database, unit, FEW, PASSING, change)
    return result


# --- Showing -----------------------------------------------------------------------------------


def _item_with_owner(row: SessionRow) -> dict[str, Any]:
    return {**_item(row), "user_id": name_of(row.owner)}


def _item(row: SessionRow) -> dict[str, Any]:
    return {
        "session_id": row.session_id,
        "session_name": row.name or "",
        "session_state": row.state,
        "created_at": iso_time(row.created_us),
        "updated_at": iso_time(row.updated_us),
    }


def _answer_detail(call: Call, database: str, row: SessionRow) -> Program[Answer]:
    newest = ListRuns(row.owner, row.session_id, newest=True)
    runs = yield from Transact(database, newest)
    usage = yield from Transact(database, Usage(row.owner, row.session_id))
    return json_response(200, _detail(call, row, runs, Cost(**usage)))


def _detail(call: Call, row: SessionRow, runs: tuple[RunRow, ...], cost: Cost) -> dict[str, Any]:
    """Return a session in the shape of its kind, absent members left out."""
    messages = (message for run in runs for message in run_output(run).get("messages", ()))
    told: dict[str, Any] = {
        "user_id": name_of(row.owner),
        "agent_session_id": row.session_id if row.kind == "agent" else None,
        **_item(row),
        f"{row.kind}_id": row.component_id or None,
        "total_tokens": cost.total_tokens,
        f"{row.kind}_data": _component(call, row),
        "session_summary": row.summary,
        "metrics": spent(cost) if cost.total_tokens else {},
        "metadata": row.metadata,
        "chat_history": [message for message in messages if message["role"] in _CHATTING],
    }
    return {name: value for name, value in told.items() if value is not None}


def _component(call: Call, row: SessionRow) -> dict[str, Any] | None:
    """Return the agent or team of a session, as far as the platform and the caller know it."""
    if not row.component_id:
        return None
    known = call.registry.components(row.kind).get(row.component_id)
    if known is None or not _may_know(call, known):
        return {f"{row.kind}_id": row.component_id}
    name, model_id, provider = known.answering
    model = {"name": name, "provider": provider, "id": model_id}
    return {"name": known.name, f"{row.kind}_id": known.id, "model": model}


def _may_know(call: Call, component: Component) -> bool:
    need = FOLLOW_RUNS[component.kind]
    return isinstance(decide(need, call.principal, component.id), Allow)
