"""The operations by their ids: the bodies that they take, and their answers.

A route without a line here fails `tests/core/api/openapi/test_document.py`, and so does a line
without a route.
Path parameters, tags, scopes and the errors that follow from them come from the route table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from attrs import field

from ...http.bodies.media_types import MEDIA_TYPES
from ...http.refusals import (
    Refusal,
    Unauthenticated,
    Unavailable,
)
from ...values import frozen
from ..fields import Field
from ..handlers.collections import COLLECTIONS, Collection
from ..json_schema import (
    OBJECT,
    TEXT,
    Schema,
    either,
    list_of,
    object_of,
    ref,
    text,
)
from .examples import EXAMPLES, STARTED
from .schemas import collection_schema

__all__ = [
    "CHANNEL_ONLY",
    "FORM_ONLY",
    "JSON",
    "LINKED",
    "OPERATIONS",
    "Body",
    "Operation",
    "Reply",
]

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
HTML: Final = "text/html"
PLAIN: Final = "text/plain"
FORMS: Final = ("multipart/form-data", "application/x-www-form-urlencoded")


Encoding: TypeAlias = Mapping[str, Mapping[str, str]]
"""The types of a form's fields, by name."""


@frozen
class Body:
    """The description of a request's body, by media type; a page that sends one takes the first.

    `encoding` says, of a form, which of its fields are not plain text.
    """

    content: Mapping[str, Schema]
    required: bool = True
    encoding: Mapping[str, Encoding] = field(factory=dict[str, Encoding])


@frozen
class Reply:
    """An answer that is no error: its content by media type, none for a status without one.

    `examples` has one answer, by its media type.
    """

    description: str
    content: Mapping[str, Schema]
    examples: Mapping[str, Any] = field(factory=dict[str, Any])


@frozen
class Operation:
    """The description of an operation beyond the row of its route: its words and its answers.

    Attributes:
        summary: In a few words.
        replies: What is answered, by its status.
        description: In more words.
        query: Of a query that is not read here but by the codec of a provider.
        parameters: What the path and the query mean here, by name, where fields say less.
        body: Of one that is not JSON, or not read here.
        errors: One of each that neither follows from the route nor is declared by its handler.
        meanings: What statuses of errors mean here, where that is not the usual.
    """

    summary: str
    replies: Mapping[int, Reply]
    description: str = ""
    query: tuple[Field, ...] = ()
    parameters: Mapping[str, str] = field(factory=dict[str, str], kw_only=True)
    body: Body | None = None
    errors: tuple[Refusal, ...] = ()
    meanings: Mapping[int, str] = field(factory=dict[int, str])


def _json(schema: Schema, description: str = "Successful Response", example: Any = None) -> Reply:
    return Reply(description, {JSON: schema}, {} if example is None else {JSON: example})


def _describe(
    summary: str,
    schema: Schema,
    *,
    errors: tuple[Refusal, ...] = (),
) -> Operation:
    """Describe an operation that answers 200 with one shape."""
    return Operation(summary, {200: _json(schema)}, errors=errors)


def _same(operation: str, description: str, schema: Schema, status: int = 200) -> dict[int, Reply]:
    """Describe the answer of an operation that AgentOS has as well, in its words."""
    return {status: _json(schema, description, EXAMPLES.get(operation))}


# Where a database that does not answer is no failure, the server alone says that it is not now.
_SERVER_BUSY: Final = Unavailable("The server is busy")

# OpenAPI 3.1 leaves open whether the schema of a stream is that of its text or of each event.
_EVENT_STREAM: Final = either(ref("ServerSentEvent"), TEXT)
_CHANGES: Final = either(ref("RunChange"), TEXT)


# --- The platform itself -----------------------------------------------------------------------

_PLATFORM: Final = {
    "get_api_info": Operation(
        "API Information",
        {
            200: Reply(
                "API information retrieved successfully",
                {JSON: ref("Home"), HTML: TEXT},
                {JSON: EXAMPLES["get_api_info"]},
            ),
            303: Reply("Redirect of a browser, which prefers HTML, to the console", {}),
        },
        "The name of the platform, and the addresses of its pages.",
    ),
    "health_check": Operation(
        "Health Check",
        _same("health_check", "API is healthy and operational", ref("HealthResponse")),
        "Check the health status of the API. Returns a simple status indicator.",
    ),
    "readiness_check": Operation(
        "Readiness of the server and its databases",
        {
            200: _json(ref("Readiness"), "Every database is served"),
            503: _json(
                either(ref("Readiness"), ref("Error")),
                "A database is not served, with the reason, or the server is busy",
            ),
        },
        errors=(Unauthenticated("Invalid token", sent=True),),
    ),
    "get_prometheus_metrics": Operation(
        "Metrics of this server and of the waiting work in its databases",
        {200: Reply("Prometheus text format, version 0.0.4", {PLAIN: TEXT})},
        "With several worker processes, each counter is the sum of all of them.",
        errors=(_SERVER_BUSY,),
    ),
    "get_info": _describe("Description of this platform", ref("Info")),
    "get_config": Operation(
        "Get OS Configuration",
        _same("get_config", "OS configuration retrieved successfully", ref("ConfigResponse")),
        "The databases, agents, teams and channels of this platform.",
    ),
    "get_models": Operation(
        "Get Available Models",
        _same("get_models", "List of models retrieved successfully", list_of(ref("Model"))),
        "Retrieve a list of all unique models currently used by agents and teams in this OS"
        " instance. This includes the model ID and provider information for each model.",
    ),
    "get_effective_config": Operation(
        "Effective configuration, without secrets",
        {200: _json(ref("SettingList"))},
        "Keys, passwords, instructions and all other possible secrets are shown as `[redacted]`.",
    ),
    "get_access_keys": _describe("Public keys for tokens, by name", ref("KeyList")),
    "explain_access": Operation(
        "Explanation of the access of any caller to a request",
        {200: _json(ref("AccessExplanation"))},
        "The caller is the bearer of `token`, or of a token with `claims` and any signature."
        " Without both, the caller is you. `because` gives the reason for a refused token.",
    ),
    "get_posture": _describe("Unsafe settings, as `legation check` finds them", ref("Posture")),
    "get_incidents": Operation(
        "Errors by incident id, the newest first",
        {200: _json(ref("IncidentPage"))},
        "An incident appears here after some seconds. A process stores at most 100 in a minute. A"
        " database holds the newest 10,000, for 30 days. The log has all of them, with more"
        " details.",
    ),
    "get_nodes": Operation(
        "Live nodes, by database",
        {200: _json(ref("NodeList"))},
        "The list is that of the answering process at its last beat. No database is read.",
        errors=(_SERVER_BUSY,),
    ),
    "get_me": _describe(
        "Your identity and permissions, by your token", ref("Caller"), errors=(_SERVER_BUSY,)
    ),
    "explain_request": Operation(
        "Explanation of your own access to a request",
        {200: _json(ref("Permission"))},
    ),
}

# --- Its own documentation ---------------------------------------------------------------------


_UNCHANGED: Final = Reply("The version in `If-None-Match` is still current", {})


def _page(summary: str, description: str = "") -> Operation:
    reply = Reply("The page", {HTML: TEXT})
    return Operation(summary, {200: reply, 304: _UNCHANGED}, description)


_DOCS: Final = {
    "get_openapi": Operation(
        "OpenAPI document",
        {200: _json(OBJECT), 304: _UNCHANGED},
    ),
    "get_docs": _page(
        "API documentation with a form for each operation", "Swagger UI, served from here."
    ),
    "get_oauth2_redirect": _page("Redirect address for OAuth 2 in the documentation"),
    "get_redoc": _page("API documentation for reading", "ReDoc, served from here."),
    "get_docs_asset": Operation(
        "A file of the documentation pages",
        {200: Reply("The file", {"*/*": TEXT}), 304: _UNCHANGED},
    ),
}

_CONSOLE: Final = {
    "get_console": _page(
        "The console of the operator",
        "An ordinary client of this API: its scripts send your token.",
    ),
    "get_console_asset": Operation(
        "A file of the console",
        {200: Reply("The file", {"*/*": TEXT}), 304: _UNCHANGED},
    ),
    "get_console_part": Operation(
        "A file of the console, in a folder",
        {200: Reply("The file", {"*/*": TEXT}), 304: _UNCHANGED},
    ),
}

# --- Agents and teams --------------------------------------------------------------------------


_DETAILS: Final = {
    "agent": "One agent: its model, its tools, and the database of its sessions.",
    "team": "Retrieve detailed configuration and member information for a specific team.",
}
_NOT_CANCELLED: Final = {"agent": "Failed to cancel run", "team": "Failed to cancel team run"}


def _component_operations(kind: str) -> dict[str, Operation]:
    title = kind.capitalize()
    shape = ref(f"{title}Response")
    return {
        f"get_{kind}s": Operation(
            f"List All {title}s",
            _same(f"get_{kind}s", f"List of {kind}s retrieved successfully", list_of(shape)),
            f"The {kind}s that you may read or run. A caller with scopes for some {kind}s sees only"
            " those.",
        ),
        f"get_{kind}": Operation(
            f"Get {title} Details",
            _same(f"get_{kind}", f"{title} details retrieved successfully", shape),
            _DETAILS[kind],
            meanings={404: f"{title} not found"},
        ),
        f"create_{kind}_run": _start(kind),
        f"list_{kind}_runs": Operation(
            f"List {title} Runs",
            {200: _json(list_of(ref(f"{title}RunItem")), "List of runs retrieved successfully")},
            "Your runs in a session, all or those of one state.",
            meanings={404: f"{title} not found"},
        ),
        f"get_{kind}_run": Operation(
            f"Get {title} Run",
            {200: _json(_run(kind), "Run output retrieved successfully")},
            "The state of a run, and its output when it is over.",
            meanings={404: f"{title} or run not found"},
        ),
        f"get_{kind}_run_events": _tail(title),
        f"replay_{kind}_run": _replay(title),
        f"cancel_{kind}_run": Operation(
            f"Cancel {title} Run",
            {200: _json(object_of({}))},
            "The run stops. A run that has ended stays unchanged.",
            body=_form("CancelRequest", "CancelForm"),
            meanings={404: f"{title} not found", 500: _NOT_CANCELLED[kind]},
        ),
        f"continue_{kind}_run": _continue(kind),
        f"resume_{kind}_run": Operation(
            "Resume the event stream of a run",
            {200: Reply("Missed events, and new ones", {EVENTS: _EVENT_STREAM})},
            "The same as `events`, in the form of later versions of AgentOS. The events `replay`,"
            " `catch_up` and `subscribed` stand between those of the run. Each event of the run has"
            " an `event_index`, counted from 0.",
            body=_form("ResumeRequest", "ResumeForm"),
            meanings={404: f"{title} or run not found"},
        ),
        f"fork_{kind}_run": _fork(kind),
        **_checkpoints(kind),
    }


def _replay(title: str) -> Operation:
    return Operation(
        "Record a run for replay",
        {200: Reply("The recording", {"application/x-ndjson": TEXT})},
        "Everything that a run asked of the world and was answered, as a file that a test"
        " replays: the run, the definitions that it began with, the history, each step, and the"
        " end. A recording without `end` is incomplete. A paused run has one too. It is for the"
        " owner and for administrators.",
        meanings={404: f"{title} or run not found"},
    )


def _checkpoints(kind: str) -> dict[str, Operation]:
    title = kind.capitalize()
    return {
        f"list_{kind}_run_checkpoints": Operation(
            f"List {title} Run Checkpoints",
            {200: _json(ref("RunCheckpoints"), "Run checkpoints retrieved successfully")},
            "The numbers of messages after which one can look back at a run. They are derived from"
            " the run as it is stored. `place` and `calls` say where a fork can begin.",
            meanings={404: f"{title} or run not found"},
        ),
        f"get_{kind}_run_checkpoint_snapshot": Operation(
            f"Get {title} Run Checkpoint Snapshot",
            {
                200: _json(
                    ref(f"{title}RunSnapshot"), "Run checkpoint snapshot retrieved successfully"
                )
            },
            "The run as it was after its first `message_index` messages. A snapshot never ends"
            " between a call and its result; it then has fewer messages.",
            parameters={"message_index": "How many messages, from 0"},
            meanings={
                400: "Invalid checkpoint message index",
                404: f"{title} or run not found",
            },
        ),
    }


def _form(whole: str, form: str) -> Body:
    """Describe a body that is a form, in each of its encodings, and may be left out."""
    return Body({JSON: ref(whole), FORMS[1]: ref(form), FORMS[0]: ref(form)}, required=False)


def _run(kind: str) -> Schema:
    return ref(f"{kind.capitalize()}Run")


def _start(kind: str) -> Operation:
    title = kind.capitalize()
    upload = ref(f"Body_create_{kind}_run")
    return Operation(
        f"Create {title} Run",
        {
            200: Reply(
                f"{title} run executed successfully",
                {JSON: _run(kind), EVENTS: _EVENT_STREAM},
                {EVENTS: STARTED},
            ),
            202: _json(ref("RunAccepted"), "Accepted; the run continues in the background"),
        },
        "With `stream` (the default) the response is a stream of events. With `stream` false it is"
        " the completed run. With `background` it names the run at once. A client that disconnects"
        " does not end the run, and can read the events again from the place where it stopped."
        " The events of a run in the background can be followed too, piece by piece.",
        body=Body(
            {JSON: ref("RunRequest"), FORMS[0]: upload, FORMS[1]: ref("RunForm")},
            encoding={FORMS[0]: {"files": {"contentType": ", ".join(MEDIA_TYPES)}}},
        ),
        meanings={
            400: "Invalid request or unsupported file type",
            404: f"{title} not found",
        },
    )


def _continue(kind: str) -> Operation:
    title = kind.capitalize()
    return Operation(
        f"Continue {title} Run",
        {
            200: Reply(
                f"{title} run continued successfully",
                {JSON: _run(kind), EVENTS: _EVENT_STREAM},
                {EVENTS: STARTED.replace("RunStarted", "RunContinued")},
            )
        },
        "Approves or rejects the tool calls of a paused run, or delivers their results. A call is"
        " executed as it was shown. An answer that changes a call or leaves one open is refused,"
        " and the run keeps waiting. Of several answers the first one counts, and the others get"
        " 409. A call that is `in_doubt` was interrupted, and its outcome is unknown. It is called"
        " again if it is confirmed; a `result` is taken as its outcome.",
        body=_form("ContinueRequest", f"Body_continue_{kind}_run"),
        meanings={
            400: "Invalid JSON in tools field or invalid tool structure",
            404: f"{title} not found",
            409: "Run is not paused (e.g. run is already running, continued, or errored)."
            " Only PAUSED runs can be continued.",
        },
    )


def _fork(kind: str) -> Operation:
    title = kind.capitalize()
    return Operation(
        f"Fork {title} Run",
        {
            200: Reply(
                f"{title} run forked successfully",
                {JSON: _run(kind), EVENTS: _EVENT_STREAM},
                {EVENTS: STARTED},
            ),
            202: _json(ref("RunAccepted"), "Accepted; the fork continues in the background"),
        },
        "Starts a new run that begins at a place of this one, and leaves this one as it is. What"
        " was done before the place is kept. At an answer of the model (`at` 2) the model"
        " is asked again. At a call (`at` 2.1) the call is made again, or `outcome` stands in its"
        " place. Without `at` the run begins again, with another `message` if there is one. Without"
        " `session_id` the fork has a new session, with copies of the runs before. `stream` and"
        " `background` mean what they mean for a new run.",
        body=_form("ForkRequest", f"Body_fork_{kind}_run"),
        meanings={
            404: f"{title} or run not found",
            409: "The run is under way, or that of a member of a team",
            422: "The run has no such place, or an argument does not go with it",
        },
    )


def _tail(title: str) -> Operation:
    return Operation(
        "Event stream of a run: past and new events",
        {200: Reply("The events", {EVENTS: _EVENT_STREAM})},
        meanings={404: f"{title} or run not found"},
    )


# --- Sessions ----------------------------------------------------------------------------------


def _place(
    action: str,
    *,
    kind: str = "Session type (agent, team, or workflow)",
    user: str = "User ID to {}",
    table: str = "Table to {}",
    **ids: str,
) -> Mapping[str, str]:
    """Return what AgentOS says of the parameters of a place, and what they do here."""
    return {
        **ids,
        "type": kind,
        "user_id": f"{user.format(action)}. Counts for administrators alone; needed where several"
        " users have the id.",
        "db_id": f"Database ID to {action}. Needed where there are several and no component is"
        " named.",
        "table": f"{table.format(action)}. Accepted, without effect.",
    }


_ANY_TABLE: Final = "The database table to use"
_SESSION_DETAIL: Final = either(ref("AgentSessionDetailSchema"), ref("TeamSessionDetailSchema"))
_SESSION_RUN: Final = either(ref("RunSchema"), ref("TeamRunSchema"))

_SESSIONS: Final = {
    "get_sessions": Operation(
        "List Sessions",
        _same(
            "get_sessions",
            "Sessions retrieved successfully",
            ref("PaginatedResponse_SessionSchema_"),
        ),
        "Retrieve paginated list of sessions with filtering and sorting options. Supports filtering"
        " by session type (agent, team, workflow), component, user, and name. Sessions represent"
        " conversation histories and execution contexts.",
        parameters=_place(
            "query sessions from",
            kind="Type of sessions to retrieve (agent, team, or workflow)",
            user="Filter sessions by user ID",
            table=_ANY_TABLE,
        ),
        meanings={
            400: "Invalid session type or filter parameters",
            404: "Not found",
            422: "Validation error in query parameters",
        },
    ),
    "create_session": Operation(
        "Create New Session",
        _same("create_session", "Session created successfully", _SESSION_DETAIL, 201),
        "Create a new empty session with optional configuration. Later requests for runs can name"
        " its `session_id`.",
        parameters=_place(
            "create session in",
            kind="Type of session to create (agent, team, or workflow)",
            user="User ID",
            table=_ANY_TABLE,
        ),
        meanings={
            400: "Invalid request parameters",
            422: "Validation error",
            500: "Failed to create session",
        },
    ),
    "fork_session": Operation(
        "Fork Session",
        {201: _json(_SESSION_DETAIL, "Session forked successfully")},
        "Makes a new session with copies of the runs of this one, which stays as it is. The copies"
        " have ids of their own, no events, and count no tokens. Runs that are not over are left"
        " out. The state is that which the last copied run left.",
        parameters=_place("fork the session in", session_id="Session ID to fork"),
        meanings={
            404: "Session not found",
            409: "The last run that is named is not over, or there are too many runs",
        },
    ),
    "delete_sessions": Operation(
        "Delete Multiple Sessions",
        {204: Reply("Sessions deleted successfully", {})},
        "Delete multiple sessions by their IDs in a single operation. This action cannot be undone"
        " and will permanently remove all specified sessions and their runs. Sessions"
        " that do not exist, or are of another type, are ignored.",
        parameters=_place("use for deletion", user="User ID to scope deletion to"),
        meanings={
            400: "Invalid request - session IDs and types length mismatch",
            500: "Failed to delete sessions",
        },
    ),
    "get_session_by_id": Operation(
        "Get Session by ID",
        _same("get_session_by_id", "Session details retrieved successfully", _SESSION_DETAIL),
        "Retrieve detailed information about a specific session including metadata,"
        " configuration, and run history. Response schema varies based on session type (agent,"
        " team, or workflow).",
        parameters=_place("query session from", session_id="Session ID to retrieve"),
        meanings={404: "Session not found", 422: "Invalid session type"},
    ),
    "update_session": Operation(
        "Update Session",
        _same("update_session", "Session updated successfully", _SESSION_DETAIL),
        "Update session properties such as session_name, session_state, metadata, or summary.",
        parameters=_place(
            "use for update operation", user="User ID", session_id="Session ID to update"
        ),
        meanings={
            404: "Session not found",
            422: "Invalid request",
            500: "Failed to update session",
        },
    ),
    "delete_session": Operation(
        "Delete Session",
        {204: Reply("Successful Response", {})},
        "Permanently delete a specific session and all its associated runs. This action cannot be"
        " undone and will remove all conversation history. A session that does not"
        " exist counts as deleted.",
        parameters=_place(
            "use for deletion",
            user="User ID to scope deletion to",
            session_id="Session ID to delete",
        ),
        meanings={500: "Failed to delete session"},
    ),
    "delete_session_run": Operation(
        "Delete one run of a session",
        {204: Reply("Successful Response", {})},
        "Permanently delete a run with its events, its steps, the runs of its members, the kept"
        " answers that name it, and the messages and replies of channels that it answered. What it"
        " left in the state, the name or the summary of the session stays. A run that is not there"
        " counts as deleted.",
        parameters=_place(
            "use for deletion",
            user="User ID to scope deletion to",
            session_id="Session ID of the run",
        ),
        meanings={500: "Failed to delete the run"},
    ),
    "erase_user": Operation(
        "Erase all that is stored of a user",
        {200: _json(ref("ErasureReceipt"), "The receipt")},
        "In every database: sessions with their runs, events, steps and states, messages and"
        " replies of channels, kept answers of idempotency keys, and counters. Runs under way are"
        " cancelled first. `dry_run=true` counts and deletes nothing. The erasure goes in small"
        " transactions; one that was broken off is completed by the next request. A user of whom"
        " nothing is stored gets counts of 0. A user id that a path cannot have is written as"
        " `~base64url:` and its UTF-8 in base64url.",
        parameters={"user_id": "User ID, percent-encoded: `sub` of the token, or `iss#sub`"},
        meanings={400: "An owner of the platform's own, which is no user"},
    ),
    "export_user": Operation(
        "Export all that is stored of a user",
        {200: Reply("Rows of every table", {"application/x-ndjson": TEXT})},
        'Streamed as NDJSON: a line is `{"db": …, "table": …, "row": …}`, the last one'
        ' `{"end": …}` with the number of rows of each table. An export without `end` is'
        " incomplete. Any token exports its own user; `users:read` exports every user.",
        parameters={"user_id": "User ID, percent-encoded: `sub` of the token, or `iss#sub`"},
        meanings={
            400: "An owner of the platform's own, which is no user",
            403: "Another user, without the scope for all of them",
        },
    ),
    "rename_session": Operation(
        "Rename Session",
        _same("rename_session", "Session renamed successfully", _SESSION_DETAIL),
        "Update the name of an existing session.",
        parameters=_place(
            "use for rename operation",
            user="User ID to scope rename to",
            session_id="Session ID to rename",
        ),
        meanings={
            400: "Invalid session name",
            404: "Session not found",
            422: "Invalid session type or validation error",
        },
    ),
    "export_session": Operation(
        "Export Session",
        {
            200: Reply(
                "The session, its runs and their events",
                {JSON: ref("SessionExport"), "application/x-ndjson": TEXT},
            )
        },
        "Everything that is stored of a session, streamed: the session, each run in order, with"
        " those of members of teams, and each event of a run. As NDJSON a line has one of"
        " `session`, `run`, `event` (with `run_id` and `seq`) and `end`. An export without `end` is"
        " incomplete.",
        parameters=_place("query session from", session_id="Session ID to export"),
        meanings={404: "Session not found", 422: "Invalid session type"},
    ),
    "get_session_runs": Operation(
        "Get Session Runs",
        _same("get_session_runs", "Session runs retrieved successfully", list_of(_SESSION_RUN)),
        "Retrieve all runs (executions) for a specific session with optional timestamp filtering."
        " Runs represent individual interactions or executions within a session. Response schema"
        " varies based on session type.",
        parameters=_place("query runs from", session_id="Session ID to get runs from"),
        meanings={404: "Session not found or has no runs", 422: "Invalid session type"},
    ),
    "get_session_run": Operation(
        "Get Run by ID",
        _same("get_session_run", "Run retrieved successfully", _SESSION_RUN),
        "Retrieve a specific run by its ID from a session. Response schema varies based on the run"
        " type (agent run, team run, or workflow run).",
        parameters=_place(
            "query run from", session_id="Session ID to get run from", run_id="Run ID to retrieve"
        ),
        meanings={404: "Session or run not found", 422: "Invalid session type"},
    ),
}

# --- Databases ---------------------------------------------------------------------------------


_DATABASES: Final = {
    "get_databases": _describe(
        "Databases that you may read", list_of(ref("Database")), errors=(_SERVER_BUSY,)
    ),
    "get_database": _describe("One database", ref("Database"), errors=(_SERVER_BUSY,)),
    "get_migrations": _describe(
        "Schema version and migration history of a database",
        ref("MigrationHistory"),
    ),
    "get_migration_plan": _describe(
        "Plan of a migration, statement by statement",
        ref("MigrationPlan"),
    ),
    "get_size": Operation(
        "Size of a database, by table",
        {200: _json(ref("DatabaseSize"))},
        "Numbers of rows are estimates. In an SQLite file of more than 256 MiB the tables are not"
        " counted, and are null.",
    ),
    "migrate_all_databases": Operation(
        "Migrate All Databases",
        {
            200: _json(ref("AllMigrated"), "All databases migrated successfully"),
            207: _json(ref("SomeMigrated"), "Some databases were not migrated, with the reasons"),
        },
        "Migrate all database schemas to the given target version. If a target version is not"
        " provided, all databases will be migrated to the latest version."
        " allow_data_loss needs the scope databases:destroy as well.",
        errors=(_SERVER_BUSY,),
        meanings={500: "Failed to migrate databases"},
    ),
    "migrate_database": Operation(
        "Migrate Database",
        _same("migrate_database", "Database migrated successfully", ref("Migrated")),
        "Migrates the schema of the database identified by db_id to a target version. When"
        " target_version is omitted, the database is migrated to the latest version."
        " All or nothing: after an error the database is as it was.",
        errors=(_SERVER_BUSY,),
        meanings={404: "Database not found", 500: "Failed to migrate database"},
    ),
}

# --- Channels ----------------------------------------------------------------------------------

_CHALLENGE: Final = text(pattern=r"^[A-Za-z0-9_-]{1,200}$")

_CHANNELS: Final = {
    "verify_webhook": Operation(
        "Webhook verification",
        {200: Reply("The challenge", {PLAIN: _CHALLENGE})},
        "The provider verifies the address of the webhook.",
        query=(
            Field("hub.mode", TEXT),
            Field("hub.verify_token", TEXT),
            Field("hub.challenge", TEXT),
        ),
    ),
    "channel_status": _describe("Existence of a channel", ref("ChannelStatus")),
    "receive_webhook": Operation(
        "Webhook",
        {
            200: Reply("Successful Response", {JSON: ref("Delivery"), PLAIN: TEXT}),
        },
        "Handles incoming messages of a messaging channel, signed by the provider over the raw"
        " bytes. The response says whether they were stored, were duplicates, or needed no work. A"
        " provider's challenge is answered as text.",
        body=Body({JSON: OBJECT}),
    ),
    "receive_interaction": Operation(
        "Buttons",
        {200: Reply("Successful Response, without content", {})},
        "Handles pressed buttons of a messaging channel, signed by the provider over the raw bytes."
        " Other interactions are ignored.",
        body=Body({FORMS[1]: object_of({"payload": TEXT})}),
    ),
}

_KEPT: Final = {
    "get_channels": _describe(
        "Channels that you may read, with their waiting work",
        list_of(ref("Channel")),
        errors=(_SERVER_BUSY,),
    ),
    "get_channel_messages": _describe(
        "Messages of a channel in one state",
        ref("ChannelMessagePage"),
    ),
    "get_channel_message": _describe(
        "One message and the replies to it", ref("ChannelMessageDetail")
    ),
    "retry_channel_message": _describe(
        "Retry a dead message, or dead replies to it",
        ref("ChannelRetry"),
    ),
    "retry_channel_letters": Operation(
        "Retry many dead letters",
        {200: _json(ref("LettersRetried"))},
        "All dead messages or replies of the channel, or those selected by ids or a filter; at most"
        " 1,000 of them, the oldest first. `left` is the number of the remaining ones.",
    ),
    "discard_channel_letters": Operation(
        "Discard many dead letters",
        {200: _json(ref("LettersDiscarded"))},
        "A discarded message is done, without an answer, and its error is `discarded`. A discarded"
        " reply is deleted. Without ids or a filter, `all` has to be true.",
    ),
    "retry_channel_reply": _describe("Retry one dead reply", ref("ReplyRetried")),
    "send_channel_test": Operation(
        "Send a test message",
        {202: _json(ref("ReplyRetried"), "Accepted; it is sent with the replies")},
        "The platform supplies the text. The list of replies shows its outcome under its id.",
    ),
    "send_channel_message": Operation(
        "Send a message to a person",
        {202: _json(ref("MessageAccepted"), "Accepted; it is sent with the replies")},
        "A message that answers none. It is refused if the person opted out, and on WhatsApp if the"
        " person has not written for 24 hours. A long text is sent in parts. The list of replies"
        " shows the outcome of each part under its id.",
    ),
    "get_channel_replies": _describe(
        "Replies of a channel in one state",
        ref("ChannelReplyPage"),
    ),
}

# --- The audit trail ---------------------------------------------------------------------------

_AUDIT: Final = {
    "get_audit": _describe("Audit trail: callers, operations and decisions", ref("AuditPage")),
    "export_audit": Operation(
        "Export of an audit trail",
        {200: Reply("The trail, as lines of JSON", {"application/x-ndjson": TEXT})},
        "The trail of a database as NDJSON, streamed: each page with its rows, its hash and its"
        " signature. A line has one of the kinds `trail`, `row`, `page` and `heads`; an export"
        " without `heads` at its end is incomplete. `legation audit verify --export` verifies it"
        " without the database.",
    ),
    "verify_audit": Operation(
        "Verification of audit trails",
        {200: Reply("The verdict, as lines of JSON", {"application/x-ndjson": TEXT})},
        "Whether trails are as they were written, as NDJSON, streamed: lines of the kind"
        " `progress`, and one of the kind `verdict` for each database.",
    ),
    "get_audit_refusals": _describe(
        "Counts of refused requests from unknown callers", ref("RefusalsPage")
    ),
}

# --- Runs of every user ------------------------------------------------------------------------

_ALL_RUNS: Final = {
    "get_runs": _describe("Runs of every agent and team, in all databases", ref("RunPage")),
    "get_runs_summary": _describe(
        "Statistics of runs by agent, model, user or hour", ref("RunSummary")
    ),
    "get_runs_events": Operation(
        "Event stream of changes of state of all runs",
        {200: Reply("A snapshot, and then each change of a run", {EVENTS: _CHANGES})},
    ),
}

# --- Approvals ---------------------------------------------------------------------------------

_APPROVALS: Final = {
    "list_approvals_approvals_get": _describe(
        "List Approvals", ref("PaginatedResponse_ApprovalResponse_")
    ),
    "get_approval_count_approvals_count_get": _describe(
        "Get Approval Count", ref("ApprovalCountResponse")
    ),
    "get_approval_approvals__approval_id__get": _describe("Get Approval", ref("ApprovalResponse")),
    "get_approval_status_approvals__approval_id__status_get": _describe(
        "Get Approval Status", ref("ApprovalStatusResponse")
    ),
    "resolve_approval_approvals__approval_id__resolve_post": _describe(
        "Resolve Approval", ref("ApprovalResponse")
    ),
    "delete_approval_approvals__approval_id__delete": Operation(
        "Delete Approval", {204: Reply("Deleted", {})}
    ),
}

LINKED: Final = frozenset(
    {
        *("get_sessions", "get_session_runs", "list_agent_runs", "list_team_runs"),
        *("get_audit", "get_channel_messages", "get_channel_replies", "get_incidents"),
        "get_runs",
    }
)
"""The operations whose answers link to what follows."""

# --- What is empty ------------------------------------------------------------------------------


_NOT_COUNTED: Final[Mapping[str, Mapping[int, str]]] = {
    "get_user_memory_stats": {500: "Failed to retrieve user statistics"},
    "get_metrics": {400: "Invalid date range parameters", 500: "Failed to retrieve metrics"},
    "get_trace_stats": {500: "Failed to retrieve statistics"},
}


def _empty(collection: Collection) -> Operation:
    shape = ref(collection.shape) if collection.shape else collection_schema(collection)
    return Operation(
        collection.summary,
        {200: _json(shape, collection.answer)},
        "This platform has no such data: the response is empty.",
        meanings=_NOT_COUNTED.get(collection.operation, {}),
    )


CHANNEL_ONLY: Final = frozenset(_CHANNELS)
"""Operations that exist once for each channel."""

FORM_ONLY: Final = "receive_interaction"
"""The one that exists for the channels whose buttons come as forms."""

OPERATIONS: Final[Mapping[str, Operation]] = {
    **_PLATFORM,
    **_DOCS,
    **_CONSOLE,
    **_component_operations("agent"),
    **_component_operations("team"),
    **_SESSIONS,
    **_DATABASES,
    **_CHANNELS,
    **_KEPT,
    **_AUDIT,
    **_ALL_RUNS,
    **_APPROVALS,
    **{collection.operation: _empty(collection) for collection in COLLECTIONS},
}
"""Every operation there is."""
