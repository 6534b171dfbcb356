"""Sessions as their owner sees them."""

from __future__ import annotations

from typing import Any, Final

from attrs import frozen

from ..bodies import Reader
from ..effects import Program, Transact
from ..messages import Answer, json_response
from ..refusals import Invalid, NotFound, Refusal
from ..runs.output import iso_time, run_output, run_row
from ..store.runs import FetchRun, ListRuns, RunRow
from ..store.sessions import FetchSession, ListSessions, SessionRow
from .call import Call

__all__ = ["get_session", "get_session_run", "get_session_runs", "list_sessions"]

_KINDS: Final = ("agent", "team")
_ORDERS: Final = ("asc", "desc")
_SORTS: Final = {"created_at": "created_us", "updated_at": "updated_us"}
_PAGE: Final = 20
_MOST: Final = 1000
_DEEPEST: Final = 1_000_000


@frozen
class _Where:
    """Which database, which kind, whose: what every route of sessions can be told."""

    database: str
    kind: str
    user_id: str | None


def _where(call: Call, read: Reader) -> _Where:
    database = read.text("db_id") or call.registry.default_database
    if database not in call.registry.databases:
        read.fault("db_id", "names no database")
    read.ignore("table")
    kind = read.choice("type", _KINDS, default="agent")
    return _Where(database, kind, read.text("user_id") or None)


def list_sessions(call: Call) -> Program[Answer | Refusal]:
    """Return a page of sessions, without their runs."""
    read = call.reader()
    if isinstance(read, Invalid):
        return read
    where = _where(call, read)
    whose = call.whose(where.user_id)
    asked = ListSessions(
        owner=whose.owner,
        any_owner=whose.any_owner,
        kind=where.kind,
        component_id=read.text("component_id") or None,
        name=read.text("session_name") or None,
        page=read.integer("page", default=1, minimum=1, maximum=_DEEPEST),
        size=read.integer("limit", default=_PAGE, minimum=1, maximum=_MOST),
        sort_by=_SORTS[read.choice("sort_by", tuple(_SORTS), default="created_at")],
        order=read.choice("sort_order", _ORDERS, default="desc"),
    )
    if faults := read.faults():
        return Invalid(faults)
    page = yield from Transact(where.database, asked)
    meta = {
        "page": asked.page,
        "limit": asked.size,
        "total_pages": -(-page.total // asked.size),
        "total_count": page.total,
    }
    return json_response(200, {"data": [_item(row) for row in page.rows], "meta": meta})


def get_session(call: Call) -> Program[Answer | Refusal]:
    """Return one session with its conversation."""
    found = yield from _found(call)
    if isinstance(found, Refusal):
        return found
    rows = yield from Transact(found.database, ListRuns(found.row.owner, found.row.session_id))
    return json_response(200, _detail(found.row, rows))


def get_session_runs(call: Call) -> Program[Answer | Refusal]:
    """Return the runs of a session in their order."""
    found = yield from _found(call)
    if isinstance(found, Refusal):
        return found
    rows = yield from Transact(found.database, ListRuns(found.row.owner, found.row.session_id))
    return json_response(200, [run_row(row) for row in rows])


def get_session_run(call: Call) -> Program[Answer | Refusal]:
    """Return one run of a session."""
    found = yield from _found(call)
    if isinstance(found, Refusal):
        return found
    fetch = FetchRun(call.params["run_id"], found.row.owner)
    row = yield from Transact(found.database, fetch)
    if row is None or row.session_id != found.row.session_id:
        return NotFound(f"Run with ID {call.params['run_id']} not found")
    return json_response(200, run_row(row))


@frozen
class _Found:
    """A session, and the database that holds it."""

    database: str
    row: SessionRow


def _found(call: Call) -> Program[_Found | Refusal]:
    """Return the session that the path names, if it is one the caller may see."""
    read = call.reader()
    if isinstance(read, Invalid):
        return read
    where = _where(call, read)
    if faults := read.faults():
        return Invalid(faults)
    whose = call.whose(where.user_id)
    session_id = call.params["session_id"]
    row = yield from Transact(
        where.database, FetchSession(session_id, whose.owner, whose.any_owner)
    )
    if row is None or (row.kind != where.kind and "type=" in call.query):
        return NotFound(f"Session with id '{session_id}' not found")
    return _Found(where.database, row)


def _item(row: SessionRow) -> dict[str, Any]:
    return {
        "session_id": row.session_id,
        "session_name": row.name or "",
        "session_state": row.state,
        "created_at": iso_time(row.created_us),
        "updated_at": iso_time(row.updated_us),
    }


def _detail(row: SessionRow, runs: tuple[RunRow, ...]) -> dict[str, Any]:
    """Return a session in the shape of its kind."""
    outputs = [run_output(run) for run in runs]
    history = [message for output in outputs for message in output.get("messages", ())]
    tokens = sum(output["metrics"].get("total_tokens", 0) for output in outputs)
    return {
        "user_id": row.owner,
        **({"agent_session_id": row.session_id} if row.kind == "agent" else {}),
        **_item(row),
        f"{row.kind}_id": row.component_id,
        f"{row.kind}_data": {f"{row.kind}_id": row.component_id},
        "session_summary": row.summary,
        "metadata": row.metadata,
        "metrics": {"total_tokens": tokens},
        "total_tokens": tokens,
        "chat_history": history,
    }
