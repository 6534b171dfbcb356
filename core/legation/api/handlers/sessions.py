"""Sessions as their owner sees them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, ClassVar, Final, TypeAlias, TypeVar

from attrs import evolve

from ...access.decide import Allow, decide, name_of
from ...access.needs import FOLLOW_RUNS
from ...effects import Now, Nudge, Program, Transact
from ...hosted.registry import Component
from ...http.bodies.json_text import JsonObject
from ...http.bodies.reader import Reader
from ...http.messages import (
    Answer,
    Headers,
    Response,
    compact_json,
    empty_response,
    json_response,
)
from ...http.refusals import (
    BadRequest,
    Conflict,
    NotFound,
    Refusal,
    StateTooLarge,
    StorageFull,
)
from ...models.conversation import Usage
from ...runs.output import iso_time, render_row, run_output, run_row
from ...runs.payloads import usage_metrics
from ...runs.retry import FEW, PASSING, with_retry
from ...runs.topics import cancel_topic, runs_topic
from ...shares.limits import Limits
from ...store.copies import ForgetAnswers
from ...store.erasure import DeleteRun
from ...store.failures import StoreFailure
from ...store.run_pages import ReadRuns
from ...store.run_reads import FetchRun, SumUsage
from ...store.run_rows import RunRow
from ...store.session_pages import ListSessions, SessionsPage
from ...store.session_state import is_too_long
from ...store.sessions import (
    CreateSession,
    Deleted,
    DeleteSessions,
    NoRoom,
    SessionChange,
    SessionRow,
    UpdateSession,
)
from ...store.summaries import FetchSummary, Summary
from ...store.units import Unit
from ...values import frozen
from ..call import Call, resource_of
from ..chosen_ids import CHOSEN_ID, CHOSEN_SESSION, PRINTED, read_chosen_id, read_chosen_session
from ..fields import PAGES, choice, declare, integer, json_object, line, no_op, text
from ..json_schema import TEXT, list_of, ref
from ..listing import Cursor, answer_list, cursor, encode_cursor, link_next
from ..run_lists import answer_runs
from .limits import storage_full
from .owners import SeveralUsers, find_owners, find_session

__all__ = [
    "KINDS",
    "ORDERS",
    "CreateSessionRequest",
    "DeleteSessionRequest",
    "ListSessionsQuery",
    "NoSession",
    "RenameSessionRequest",
    "SessionQuery",
    "SessionRunsQuery",
    "UpdateSessionRequest",
    "absent_session",
    "answer_detail",
    "create_session",
    "delete_session",
    "delete_session_run",
    "delete_sessions",
    "describe_session",
    "find_database",
    "find_listed",
    "find_visible_session",
    "get_session",
    "get_session_run",
    "get_session_runs",
    "list_sessions",
    "rename_session",
    "update_session",
]

R = TypeVar("R")

KINDS: Final = ("agent", "team", "workflow")
ORDERS: Final = ("asc", "desc")
# The model's other messages are no part of the conversation, nor are the results of tools.
_CHATTING: Final = ("user", "assistant")
_SORTS: Final = {"created_at": "created_us", "updated_at": "updated_us"}
_LONGEST_ID: Final = 1024
_SHOWN: Final = 255  # characters of an id that is unknown
_NAME: Final = {"type": "string", "maxLength": 500, "pattern": PRINTED}
_MOST: Final = 1000
_NO_COMPONENT: Final[Mapping[str, str | None]] = {}


# --- Where -------------------------------------------------------------------------------------


@frozen
class SessionQuery:
    """The choice of sessions by database, kind and owner, as every route of sessions takes it."""

    kind: str | None = choice(KINDS, name="type", schema={**ref("SessionType"), "default": "agent"})
    user_id: str | None = text(or_none=True, nullable=True)
    db_id: str | None = text(or_none=True, nullable=True)
    table: None = no_op(nullable=True)


_WHICH: Final = "The db_id query parameter is required when using multiple databases"
_UNKNOWN: Final = "No database found with id '{}'"
WhichDatabase: TypeAlias = Annotated[BadRequest, _WHICH]
NoDatabase: TypeAlias = Annotated[NotFound, _UNKNOWN.format("no-such")]


def find_database(
    call: Call, query: SessionQuery, components: Mapping[str, str | None] = _NO_COMPONENT
) -> str | WhichDatabase | NoDatabase:
    """Return the database that is meant.

    Where none is named, it is that of the component that the request names, by its kind.
    """
    kind = query.kind or "agent"
    database = query.db_id or _database_of(call, kind, components.get(kind))
    if database is None:
        return BadRequest(_WHICH)
    if database not in call.registry.databases:
        return NotFound(_UNKNOWN.format(database[:_SHOWN]))
    return database


def _database_of(call: Call, kind: str, component_id: str | None) -> str | None:
    """Return the only database, else that of a component that the caller may know of."""
    registry = call.registry
    if len(registry.databases) == 1:
        return registry.default_database
    known = registry.components(kind).get(component_id or "")
    return known.database if known is not None and _may_know(call, known) else None


# --- Reading -----------------------------------------------------------------------------------


@frozen
class ListSessionsQuery(SessionQuery):
    """A page of sessions."""

    component_id: str | None = text(
        "Filter sessions by component ID (agent/team/workflow ID)", or_none=True, nullable=True
    )
    session_name: str | None = text(
        "Filter sessions by name (partial match)", or_none=True, nullable=True
    )
    limit: int = integer(
        "Number of sessions to return per page", default=20, minimum=1, maximum=1000, nullable=True
    )
    page: int = integer("Page number for pagination", default=1, nullable=True, **PAGES)
    sort_by: str = choice(
        tuple(_SORTS), "Field to sort sessions by", default="created_at", nullable=True
    )
    sort_order: str = choice(
        ORDERS, "Sort order (asc or desc)", default="desc", schema=ref("SortOrder"), nullable=True
    )
    cursor: Cursor | None = cursor(int, str, str)


def find_listed(call: Call, query: ListSessionsQuery) -> str | WhichDatabase | NoDatabase:
    """Return the database whose sessions are listed."""
    return find_database(call, query, dict.fromkeys(KINDS, query.component_id))


def list_sessions(call: Call, database: str, query: ListSessionsQuery) -> Program[Answer]:
    """Return a page of sessions, without their runs."""
    owner, *former = call.whose(query.user_id).owners or (None,)
    everybody = call.principal.sees_all and query.user_id is None
    asked = ListSessions(
        owner=None if everybody else owner,
        any_owner=everybody,
        kind=query.kind or "agent",
        render=_render_item_with_owner if call.principal.sees_all else _render_item,
        only=call.principal.session_id,
        component_id=query.component_id,
        name=query.session_name,
        start=0 if query.cursor else (query.page - 1) * query.limit,
        size=query.limit,
        behind=query.cursor,
        sort_by=_SORTS[query.sort_by],
        order=query.sort_order,
    )
    page = yield from _read_list(database, asked)
    if former and not page.total:
        page = yield from _read_list(database, evolve(asked, owner=former[0]))
    meta = {
        "page": query.page,
        "limit": query.limit,
        "total_pages": -(-page.total // query.limit),
        "total_count": page.total,
        "search_time_ms": 0.0,
    }
    more: Headers = ()
    if page.more and page.last is not None:
        more = link_next(call.query, "cursor", encode_cursor(page.last))
    end = f'],"meta":{compact_json(meta)}}}'.encode()
    return answer_list(database, page, b'{"data":[', end, more)


def _read_list(database: str, asked: ListSessions[R]) -> Program[SessionsPage[R]]:
    """Return the first page of a list; keep the count of an owner's sessions where that is long."""
    page = yield from Transact(database, asked)
    if page.keep is not None:
        # The list is read; where nothing can be written now, the next one counts as many again.
        with suppress(StoreFailure):
            yield from Transact(database, page.keep)
    return page


_ABSENT: Final = "Session with id '{}' not found"
NoSession: TypeAlias = Annotated[NotFound, _ABSENT.format("no-such")]
SessionAnswer: TypeAlias = Program[Answer | NoSession | SeveralUsers]
ChangeAnswer: TypeAlias = Program[Answer | NoSession | SeveralUsers | StateTooLarge | StorageFull]


def get_session(call: Call, database: str, query: SessionQuery) -> SessionAnswer:
    """Return one session with its conversation."""
    row = yield from find_visible_session(call, database, query)
    if isinstance(row, Refusal):
        return row
    return (yield from answer_detail(call, database, row))


_INSTANT: Final[Any] = {"minimum": 0, "maximum": 1 << 40, "nullable": True}


@frozen
class SessionRunsQuery(SessionQuery):
    """A page of the runs of a session."""

    created_after: int | None = integer(
        "Filter runs created after this Unix timestamp (epoch time in seconds)", **_INSTANT
    )
    created_before: int | None = integer(
        "Filter runs created before this Unix timestamp (epoch time in seconds)", **_INSTANT
    )
    page: int = integer("Page number for pagination", default=1, **PAGES)
    limit: int = integer("Runs on a page", default=1000, minimum=1, maximum=1000)
    cursor: Cursor | None = cursor(int)


def get_session_runs(call: Call, database: str, query: SessionRunsQuery) -> SessionAnswer:
    """Return the runs of a session in their order, between two times if they are given."""
    row = yield from find_visible_session(call, database, query)
    if isinstance(row, Refusal):
        return row
    after, before = query.created_after, query.created_before
    listed = ReadRuns(
        row.owner,
        row.session_id,
        render_row,
        created_from_us=None if after is None else after * 1_000_000,
        created_to_us=None if before is None else before * 1_000_000 + 999_999,
    )
    return (yield from answer_runs(call, database, listed, query))


_NO_RUN: Final = "Run with ID {} not found in session {}"
NoRun: TypeAlias = Annotated[NotFound, _NO_RUN.format("no-such", "s1")]


def get_session_run(
    call: Call, database: str, query: SessionQuery
) -> Program[Response | NoSession | SeveralUsers | NoRun]:
    """Return one run of a session."""
    session = yield from find_visible_session(call, database, query)
    if isinstance(session, Refusal):
        return session
    run_id, session_id = call.params["run_id"], session.session_id
    row = yield from Transact(database, FetchRun(run_id, session.owner))
    if row is None or row.session_id != session_id:
        return NotFound(_NO_RUN.format(run_id, session_id))
    return json_response(200, run_row(row))


def find_visible_session(
    call: Call, database: str, query: SessionQuery
) -> Program[SessionRow | NoSession | SeveralUsers]:
    """Return the session that the path names, if it is one the caller may see."""
    session_id = call.params["session_id"]
    if not call.principal.enters(session_id):
        return absent_session(call)
    row = yield from find_session(call, database, session_id, query.user_id)
    if isinstance(row, Refusal):
        return row
    if row is None or query.kind not in (None, row.kind):
        return absent_session(call)
    return row


def absent_session(call: Call) -> NotFound:
    """Return the refusal of a session that is not there for the caller."""
    return NotFound(_ABSENT.format(call.params["session_id"]))


# --- Changing ----------------------------------------------------------------------------------


@frozen
class UpdateSessionRequest:
    """The new values of a session's fields, each in place of the old one."""

    session_name: str | None = line(_NAME)
    session_state: JsonObject | None = json_object()
    metadata: JsonObject | None = json_object()
    summary: JsonObject | None = json_object()


@frozen
class CreateSessionRequest:
    """A session that is to be."""

    session_id: str | None = declare(CHOSEN_SESSION, read_chosen_session)
    user_id: str | None = declare(CHOSEN_ID, read_chosen_id)
    agent_id: str | None = declare(CHOSEN_ID, read_chosen_id)
    team_id: str | None = declare(CHOSEN_ID, read_chosen_id)
    workflow_id: str | None = declare(CHOSEN_ID, read_chosen_id)
    session_name: str | None = line(_NAME)
    session_state: JsonObject | None = json_object()
    metadata: JsonObject | None = json_object()
    summary: JsonObject | None = json_object()


_NO_WORKFLOWS: Final = "This platform hosts no workflows"
_EXISTS: Final = "Session with id '{}' already exists"
NoWorkflows: TypeAlias = Annotated[BadRequest, _NO_WORKFLOWS]
SessionExists: TypeAlias = Annotated[Conflict, _EXISTS.format("s1")]


def create_session(
    call: Call, query: SessionQuery, body: CreateSessionRequest
) -> Program[
    Response
    | WhichDatabase
    | NoDatabase
    | NoWorkflows
    | SessionExists
    | StateTooLarge
    | StorageFull
]:
    """Create a session without runs; one that exists is left as it is."""
    components = {"agent": body.agent_id, "team": body.team_id, "workflow": body.workflow_id}
    database = find_database(call, query, components)
    if isinstance(database, Refusal):
        return database
    kind = query.kind or "agent"
    if kind == "workflow":
        return BadRequest(_NO_WORKFLOWS)
    named = call.principal.session_id or body.session_id
    session_id = named or (yield from call.new_id("session"))
    owners = call.whose(body.user_id or query.user_id).owners
    owner = call.audit.owner = owners[0] if owners else f"~nobody:{session_id}"
    account = call.account(owner)
    if (too_large := _check_state(account.limits, body.session_state)) is not None:
        return too_large
    now_us = yield from Now()
    unit = CreateSession(
        owner=owner,
        session_id=session_id,
        kind=kind,
        component_id=components[kind] or "",
        now_us=now_us,
        name=body.session_name,
        state=body.session_state or {},
        metadata=body.metadata,
        subject=account.subject,
        stored_bytes=account.limits.stored_bytes,
    )
    audited = partial(call.change, resource=call.describe_resource(session_id))
    row = yield from _store(database, unit, audited)
    if row is None:
        return Conflict(_EXISTS.format(session_id))
    if isinstance(row, NoRoom):
        return storage_full(account.limits)
    return json_response(call.success, {**describe_session(call, row, Usage()), "chat_history": []})


@frozen
class RenameSessionRequest:
    """The new name of a session."""

    shape: ClassVar = "Body_rename_session"

    session_name: str = line(_NAME, required=True)


def rename_session(
    call: Call, database: str, query: SessionQuery, body: RenameSessionRequest
) -> ChangeAnswer:
    """Give a session another name."""
    return _update(call, database, query, SessionChange(name=body.session_name))


def update_session(
    call: Call, database: str, query: SessionQuery, body: UpdateSessionRequest
) -> ChangeAnswer:
    """Replace the name, the state, the metadata or the summary of a session."""
    change = SessionChange(body.session_name, body.session_state, body.metadata, body.summary)
    return _update(call, database, query, change)


def _check_state(limits: Limits, state: Mapping[str, Any] | None) -> StateTooLarge | None:
    """Return the refusal of a state that has more bytes than one may have."""
    if state is None or not is_too_long(json.dumps(state), limits.state_bytes):
        return None
    return StateTooLarge(limits.state_bytes)


def _update(call: Call, database: str, query: SessionQuery, change: SessionChange) -> ChangeAnswer:
    found = yield from find_visible_session(call, database, query)
    if isinstance(found, Refusal):
        return found
    limits = call.account(found.owner).limits
    if (too_large := _check_state(limits, change.state)) is not None:
        return too_large
    now_us = yield from Now()
    unit = UpdateSession(found.owner, found.session_id, change, now_us, limits.stored_bytes)
    row = yield from _store(database, unit, call.change)
    if row is None:
        return absent_session(call)
    if isinstance(row, NoRoom):
        return storage_full(limits)
    return (yield from answer_detail(call, database, row))


def delete_session(
    call: Call, database: str, query: SessionQuery
) -> Program[Response | SeveralUsers]:
    """Delete a session with its runs; one of them that is executed is broken off.

    One that is not there for the caller is gone already: a client that repeats a deletion whose
    answer it lost does not get a failure.
    """
    session_id = call.params["session_id"]
    if _possible(call, session_id):
        deleted = yield from _delete(call, database, query.user_id, ((session_id, query.kind),))
        if isinstance(deleted, Refusal):
            return deleted
    return empty_response(call.success)


def delete_session_run(
    call: Call, database: str, query: SessionQuery
) -> Program[Response | SeveralUsers]:
    """Delete one run of a session with those of its members; if it is executed, it is broken off.

    As with a session, one that is not there for the caller is gone already.
    """
    session_id, run_id = call.params["session_id"], call.params["run_id"]
    if not _possible(call, session_id):
        return empty_response(call.success)
    owners = yield from find_owners(call, database, (session_id,), query.user_id)
    if isinstance(owners, Refusal):
        return owners
    owner = owners.get(session_id)
    if owner is not None:
        yield from _forget_answers(call, database, "run_id", ((owner, run_id),))
        unit = DeleteRun(owner, session_id, run_id, (yield from Now()))
        resource = call.audit.of(resource_of((session_id, run_id)), owner)
        deleted = yield from _store(database, unit, partial(call.change, resource=resource))
        yield from _break_off(database, deleted.active)
    return empty_response(call.success)


_OTHER_COUNT: Final = f"must have between 1 and {_MOST} members"


def _read_texts(read: Reader, name: str) -> tuple[str, ...]:
    texts = read.texts(name)
    if not 0 < len(texts) <= _MOST:
        read.fault(name, _OTHER_COUNT)
    return texts


def _read_kinds(read: Reader, name: str) -> tuple[str, ...]:
    kinds = _read_texts(read, name)
    for index, kind in enumerate(kinds):
        if kind not in KINDS:
            read.fault(f"{name}[{index}]", f"must be one of {', '.join(KINDS)}")
    return kinds


@frozen
class DeleteSessionRequest:
    """Sessions that are to be deleted."""

    about: ClassVar = "As many types as ids, in the same order"

    session_ids: tuple[str, ...] = declare(
        list_of(TEXT, minItems=1, maxItems=_MOST), _read_texts, required=True, fault=_OTHER_COUNT
    )
    session_types: tuple[str, ...] = declare(
        list_of(ref("SessionType"), minItems=1, maxItems=_MOST), _read_kinds, required=True
    )


_OTHER_LENGTH: Final = "Session IDs and session types must have the same length"
OtherLength: TypeAlias = Annotated[BadRequest, _OTHER_LENGTH]


def delete_sessions(
    call: Call, database: str, query: SessionQuery, body: DeleteSessionRequest
) -> Program[Response | OtherLength | SeveralUsers]:
    """Delete many sessions at once; one that is absent, or of another kind, is passed over."""
    if len(body.session_ids) != len(body.session_types):
        return BadRequest(_OTHER_LENGTH)
    named = zip(body.session_ids, body.session_types, strict=True)
    meant = tuple(pair for pair in named if _possible(call, pair[0]))
    deleted = yield from _delete(call, database, query.user_id, meant)
    return deleted if isinstance(deleted, Refusal) else empty_response(call.success)


def _possible(call: Call, session_id: str) -> bool:
    """Return whether there can be such a session for the caller.

    No id is longer, those of channels included; one that is would only swell the audit trail.
    """
    return len(session_id) <= _LONGEST_ID and call.principal.enters(session_id)


def _delete(
    call: Call, database: str, user_id: str | None, meant: tuple[tuple[str, str | None], ...]
) -> Program[Deleted | SeveralUsers]:
    """Delete the sessions of these ids and kinds, each of one owner; tell their executors."""
    audit = call.audit
    ids = tuple(dict.fromkeys(session_id for session_id, _ in meant))
    owners = yield from find_owners(call, database, ids, user_id)
    if isinstance(owners, Refusal):
        return owners
    named = {(owners[one], one, kind): None for one, kind in meant if one in owners}
    if not named:
        return Deleted(0, ())
    own = call.principal.own if call.whose(user_id).others else None
    answers = tuple(dict.fromkeys((owner, one) for owner, one, _ in named))
    yield from _forget_answers(call, database, "session_id", answers)
    unit = DeleteSessions(tuple(named), own, (yield from Now()))
    resource = "/".join(audit.of(resource_of((one,)), owners.get(one)) for one in ids)
    change = partial(call.change, resource=resource)
    deleted = yield from _store(database, unit, change)
    yield from _break_off(database, deleted.runs)
    return deleted


def _forget_answers(
    call: Call, database: str, member: str, named: tuple[tuple[str, str], ...]
) -> Program[None]:
    """Delete the kept answers that name what is about to go, if another database keeps them.

    They go first: whoever repeats a deletion that was broken off finds what is left.
    """
    keeper = call.registry.default_database
    if database != keeper:
        yield from with_retry(keeper, ForgetAnswers(member, named), FEW, PASSING)


def _break_off(database: str, runs: tuple[str, ...]) -> Program[None]:
    """Tell the executors of runs that were deleted."""
    for run_id in runs:
        yield from Nudge(cancel_topic(database, run_id))
    if runs:
        yield from Nudge(runs_topic(database), database)


def _store(database: str, unit: Unit[R], change: Any) -> Program[R]:
    result: R = yield from with_retry(database, unit, FEW, PASSING, change)
    return result


# --- Showing -----------------------------------------------------------------------------------


def _render_item(row: SessionRow) -> bytes:
    return compact_json(_item(row)).encode()


def _render_item_with_owner(row: SessionRow) -> bytes:
    return compact_json({**_item(row), "user_id": name_of(row.owner)}).encode()


def _item(row: SessionRow) -> dict[str, Any]:
    more = {f"{row.kind}_id": row.component_id} if row.component_id else {}
    if row.last_status is not None:
        more["last_status"] = row.last_status
    return {
        "session_id": row.session_id,
        "session_name": row.name or "",
        "session_state": row.state,
        "created_at": iso_time(row.created_us),
        "updated_at": iso_time(row.updated_us),
        **more,
    }


def answer_detail(
    call: Call, database: str, row: SessionRow, more: Mapping[str, Any] | None = None
) -> Program[Answer]:
    """Return a session in the shape of its kind, with what was said in its newest runs.

    `more` are members beside those that every session has.
    """
    newest = ReadRuns(row.owner, row.session_id, _render_chat, newest=True)
    page = yield from Transact(database, newest)
    usage = yield from Transact(database, SumUsage(row.owner, row.session_id))
    summary = yield from Transact(database, FetchSummary(row.owner, row.session_id, row.runs + 1))
    shown = evolve(row, summary=_join_summary(row.summary, summary))
    head = compact_json({**describe_session(call, shown, Usage(**usage)), **(more or {})})
    begin = f'{head[:-1]},"chat_history":['.encode()
    return answer_list(database, page, begin, b"]}", status=call.success)


def _join_summary(said: Mapping[str, Any] | None, made: Summary | None) -> Mapping[str, Any] | None:
    """Return the summary of a session: what clients said of it, and the newest that a run made."""
    if made is None:
        return said
    return {**(said or {}), "summary": made.text, "updated_at": iso_time(made.at_us)}


def _render_chat(run: RunRow) -> bytes:
    """Return the messages of a run that are part of the conversation, as items of a list."""
    messages = run_output(run).get("messages", ())
    chat = [message for message in messages if message["role"] in _CHATTING]
    return compact_json(chat)[1:-1].encode()


def describe_session(call: Call, row: SessionRow, cost: Usage) -> dict[str, Any]:
    """Return a session without what was said, in the shape of its kind; absent members left out."""
    fields: dict[str, Any] = {
        "user_id": name_of(row.owner),
        "agent_session_id": row.session_id if row.kind == "agent" else None,
        **_item(row),
        f"{row.kind}_id": row.component_id or None,
        "total_tokens": cost.total_tokens,
        f"{row.kind}_data": _component(call, row),
        "session_summary": row.summary,
        "metrics": usage_metrics(cost) if cost.total_tokens else {},
        "metadata": row.metadata,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _component(call: Call, row: SessionRow) -> dict[str, Any] | None:
    """Return the agent or team of a session, as far as the platform and the caller know it."""
    if not row.component_id:
        return None
    known = call.registry.components(row.kind).get(row.component_id)
    if known is None or not _may_know(call, known):
        return {f"{row.kind}_id": row.component_id}
    name, model_id, provider = known.model_names
    model = {"name": name, "provider": provider, "id": model_id}
    return {"name": known.name, f"{row.kind}_id": known.id, "model": model}


def _may_know(call: Call, component: Component) -> bool:
    need = FOLLOW_RUNS[component.kind]
    return isinstance(decide(need, call.principal, component.id), Allow)
