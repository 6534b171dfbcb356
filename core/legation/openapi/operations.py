"""What each operation takes and answers, by its operation id.

A route without a line here fails `tests/core/test_openapi.py`, as does a line without a route.
Path parameters, tags, scopes and the errors that follow from them come from the route table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from attrs import field

from ..bodies.media_types import MEDIA_TYPES
from ..runs.states import RunState
from ..values import frozen
from .schemas import MOST
from .shapes import (
    BOOLEAN,
    OBJECT,
    TEXT,
    Schema,
    either,
    integer,
    list_of,
    object_of,
    one_of_words,
    ref,
    text,
)

__all__ = ["CHANNEL_ONLY", "OPERATIONS", "Body", "Field", "Operation", "Reply"]

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
HTML: Final = "text/html"
PLAIN: Final = "text/plain"
FORMS: Final = ("multipart/form-data", "application/x-www-form-urlencoded")


Encoding: TypeAlias = Mapping[str, Mapping[str, str]]
"""The types of a form's fields, by name."""


@frozen
class Field:
    """One parameter of the query, or a header when `where` says so."""

    name: str
    schema: Schema
    description: str = ""
    required: bool = False
    where: str = "query"


@frozen
class Body:
    """What is read of a request's body, by media type.

    `encoding` says, of a form, which of its fields are not plain text.
    """

    content: Mapping[str, Schema]
    required: bool = True
    encoding: Mapping[str, Encoding] = field(factory=dict[str, Encoding])


@frozen
class Reply:
    """An answer that is no error: its content by media type, none for a status without one."""

    description: str
    content: Mapping[str, Schema]


@frozen
class Operation:
    """What the route table does not know.  `errors` are statuses beside those that follow."""

    summary: str
    replies: Mapping[int, Reply]
    description: str = ""
    query: tuple[Field, ...] = ()
    body: Body | None = None
    errors: tuple[int, ...] = ()


def _json(schema: Schema, description: str = "Successful response") -> Reply:
    return Reply(description, {JSON: schema})


def _got(
    summary: str, schema: Schema, *query: Field, description: str = "", errors: tuple[int, ...] = ()
) -> Operation:
    """Describe an operation that answers 200 with one shape."""
    return Operation(summary, {200: _json(schema)}, description, query, errors=errors)


# OpenAPI 3.1 leaves open whether the schema of a stream is that of its text or of each event.
_EVENT_STREAM: Final = either(ref("ServerSentEvent"), TEXT)
_INSTANT: Final = integer(minimum=0, maximum=1 << 40)
_PAGE: Final = Field("page", integer(minimum=1, maximum=1_000_000, default=1), "Which page, from 1")
_HOSTED_TYPE: Final = Field("type", one_of_words("agent", "team", default="agent"))
_USER: Final = Field("user_id", TEXT, "Whose; counts for administrators alone")
_DATABASE: Final = Field("db_id", TEXT, "The database; needed where there are several")
_TYPE: Final = Field("type", one_of_words("agent", "team", "workflow", default="agent"))
_IGNORED_USER: Final = Field("user_id", TEXT, "Accepted, without effect")
_TABLE: Final = Field("table", TEXT, "Accepted, without effect")
_SESSION_PLACE: Final = (_TYPE, _USER, _DATABASE, _TABLE)
_TARGET: Final = Field("target_version", ref("TargetVersion"))

# --- The platform itself -----------------------------------------------------------------------

_PLATFORM: Final = {
    "get_api_info": _got("Where to begin", ref("Home")),
    "health_check": _got("Whether the process lives", ref("Health")),
    "readiness_check": Operation(
        "Whether requests can be served",
        {
            200: _json(ref("Readiness"), "Every database is served"),
            503: _json(
                either(ref("Readiness"), ref("Error")), "A database is not, and why, or not now"
            ),
        },
    ),
    "get_metrics": Operation(
        "Measurements of this process and of what waits in its databases",
        {200: Reply("Prometheus text format, version 0.0.4", {PLAIN: TEXT})},
        "Several worker processes answer each for itself, under a label that tells them apart.",
    ),
    "get_info": _got("What this platform is", ref("Info")),
    "get_config": _got("What this platform hosts", ref("Config")),
    "get_models": _got("The models that agents and teams use", list_of(ref("UsedModel"))),
    "get_me": _got("Who the token says you are, and what you may do", ref("Caller")),
    "explain_request": Operation(
        "Whether you may make a request, and by which scope",
        {200: _json(ref("Permission"))},
        body=Body({JSON: ref("ExplainRequest")}),
    ),
}

# --- Its own documentation ---------------------------------------------------------------------


_UNCHANGED: Final = Reply("What `If-None-Match` names is still the same", {})


def _page(summary: str, description: str = "") -> Operation:
    reply = Reply("The page", {HTML: TEXT})
    return Operation(summary, {200: reply, 304: _UNCHANGED}, description, errors=(404,))


_DOCS: Final = {
    "get_openapi": Operation("This document", {200: _json(OBJECT), 304: _UNCHANGED}, errors=(404,)),
    "get_docs": _page("The operations, to read and to try", "Swagger UI, served from here."),
    "get_oauth2_redirect": _page("Where an OAuth 2 provider sends the page back to"),
    "get_redoc": _page("The operations, to read", "ReDoc, served from here."),
    "get_docs_asset": Operation(
        "A part of these pages",
        {200: Reply("The file", {"*/*": TEXT}), 304: _UNCHANGED},
    ),
}

# --- Agents and teams --------------------------------------------------------------------------


def _hosted(kind: str) -> dict[str, Operation]:
    shape = ref(kind.capitalize())
    return {
        f"get_{kind}s": _got(
            f"The {kind}s that you may read or run",
            list_of(shape),
            description=f"A caller with scopes on some {kind}s sees those alone.",
        ),
        f"get_{kind}": _got(f"One {kind}", shape),
        f"create_{kind}_run": _start(kind),
        f"list_{kind}_runs": _got(
            "Your runs in a session",
            list_of(_run(kind)),
            Field("session_id", text(minLength=1), "Of this session", required=True),
            Field("status", one_of_words(*(s.value for s in RunState)), "In this state alone"),
            _USER,
            _PAGE,
            Field("limit", integer(minimum=1, maximum=1000, default=1000), "Runs on a page"),
        ),
        f"get_{kind}_run": _got(
            "One run",
            _run(kind),
            Field("session_id", TEXT, "The session it has to be of"),
            _IGNORED_USER,
        ),
        f"get_{kind}_run_events": _tail(),
        f"cancel_{kind}_run": Operation(
            "Cancel a run",
            {200: _json(object_of({}), "It goes no further")},
            "A run that is over stays as it is.",
            body=_form("Cancel"),
        ),
        f"continue_{kind}_run": Operation(
            "Go on with a run that waits for a person",
            {
                200: Reply(
                    "Its events behind the pause, or the run",
                    {JSON: _run(kind), EVENTS: _EVENT_STREAM},
                )
            },
            "Confirms or rejects the calls of tools that it waits for, or brings their results."
            " What is executed is what was shown: an answer that changes a call, and one that"
            " leaves a call open, is refused, and the run waits on. Of several who answer, one goes"
            " on; the others are told 409.",
            body=_form("Continue"),
            errors=(409,),
        ),
        f"resume_{kind}_run": Operation(
            "Go on following a run",
            {200: Reply("The events missed, and those to come", {EVENTS: _EVENT_STREAM})},
            "As `events`, the way later versions of AgentOS have it: between the"
            " events of the run stand `replay`, `catch_up` and `subscribed`, and each event of the"
            " run has an `event_index`, counted from 0.",
            body=_form("Resume"),
        ),
    }


def _form(name: str) -> Body:
    """Describe a body that is a form, in each of its encodings, and may be left out."""
    form, whole = ref(f"{name}Form"), ref(f"{name}Request")
    return Body({FORMS[0]: form, FORMS[1]: form, JSON: whole}, required=False)


def _run(kind: str) -> Schema:
    return ref(f"{kind.capitalize()}Run")


def _start(kind: str) -> Operation:
    return Operation(
        f"Run the {kind}",
        {
            200: Reply(
                "The run at its end, or its events as they come",
                {JSON: _run(kind), EVENTS: _EVENT_STREAM},
            ),
            202: _json(ref("RunAccepted"), "Accepted; it goes on in the background"),
        },
        "With `stream` (the default) the answer is a stream of events; without it, the run at its"
        " end; with `background`, at once where to look. A client that goes away ends nothing: a"
        " run goes on, and its events can be read again from where a client stopped.",
        body=Body(
            {FORMS[0]: ref("RunUpload"), FORMS[1]: ref("RunForm"), JSON: ref("RunRequest")},
            encoding={FORMS[0]: {"files": {"contentType": ", ".join(MEDIA_TYPES)}}},
        ),
        errors=(409,),
    )


def _tail() -> Operation:
    after = Field("after", integer(minimum=0, maximum=MOST, default=0), "Events behind this one")
    last = Field(
        "Last-Event-ID",
        text(pattern=r"^([A-Za-z0-9._~-]{1,128}:(0|[1-9][0-9]{0,17}))?$", examples=["6f1c:1"]),
        "The `id` of the last event received; counts before `after`",
        where="header",
    )
    return Operation(
        "The events of a run, those to come included",
        {200: Reply("The events", {EVENTS: _EVENT_STREAM})},
        query=(after, last, _IGNORED_USER),
    )


# --- Sessions ----------------------------------------------------------------------------------

_SESSION_DETAIL: Final = either(ref("AgentSession"), ref("TeamSession"))
_SESSION_RUN: Final = either(ref("AgentSessionRun"), ref("TeamSessionRun"))

_SESSIONS: Final = {
    "get_sessions": _got(
        "Your sessions",
        ref("SessionPage"),
        *_SESSION_PLACE,
        Field("component_id", TEXT, "Of this agent or team"),
        Field("session_name", TEXT, "Whose name contains this, in any case"),
        _PAGE,
        Field("limit", integer(minimum=1, maximum=1000, default=20), "Sessions on a page"),
        Field("sort_by", one_of_words("created_at", "updated_at", default="created_at")),
        Field("sort_order", one_of_words("asc", "desc", default="desc")),
        errors=(400, 404),
    ),
    "create_session": Operation(
        "Begin a session",
        {201: _json(_SESSION_DETAIL, "The session, without runs")},
        query=(_HOSTED_TYPE, *_SESSION_PLACE[1:]),
        body=Body({JSON: ref("NewSession")}, required=False),
        errors=(404, 409),
    ),
    "delete_sessions": Operation(
        "Delete sessions with their runs",
        {204: Reply("None of them is there any more", {})},
        "One that is not there, or of another type, is passed over.",
        query=_SESSION_PLACE,
        body=Body({JSON: ref("SessionList")}),
        errors=(404,),
    ),
    "get_session_by_id": _got("One session", _SESSION_DETAIL, *_SESSION_PLACE, errors=(400,)),
    "update_session": Operation(
        "Change the name, the state, the metadata or the summary of a session",
        {200: _json(_SESSION_DETAIL)},
        query=_SESSION_PLACE,
        body=Body({JSON: ref("SessionChange")}, required=False),
    ),
    "delete_session": Operation(
        "Delete a session with its runs",
        {204: Reply("It is not there any more", {})},
        query=_SESSION_PLACE,
        errors=(400,),
    ),
    "rename_session": Operation(
        "Give a session another name",
        {200: _json(_SESSION_DETAIL)},
        query=_SESSION_PLACE,
        body=Body({JSON: ref("SessionRename")}),
    ),
    "get_session_runs": _got(
        "The runs of a session",
        list_of(_SESSION_RUN),
        *_SESSION_PLACE,
        Field("created_after", _INSTANT, "In seconds since the epoch"),
        Field("created_before", _INSTANT, "In seconds since the epoch"),
        _PAGE,
        Field("limit", integer(minimum=1, maximum=1000, default=1000), "Runs on a page"),
        errors=(400,),
    ),
    "get_session_run": _got("One run of a session", _SESSION_RUN, *_SESSION_PLACE, errors=(400,)),
}

# --- Databases ---------------------------------------------------------------------------------

_LOSS: Final = Field(
    "allow_data_loss", {**BOOLEAN, "default": False}, "Go back although data is discarded"
)
_MIGRATING: Final = (
    _TARGET,
    Field("dry_run", {**BOOLEAN, "default": False}, "Do it, and undo it"),
    _LOSS,
)
_MIGRATE_BODY: Final = Body({JSON: ref("MigrateRequest")}, required=False)

_DATABASES: Final = {
    "get_databases": _got("The databases that you may read", list_of(ref("Database"))),
    "get_database": _got("One database", ref("Database")),
    "get_migrations": _got(
        "Where a database stands, and what was done to it",
        ref("MigrationHistory"),
        Field("page", integer(minimum=1, maximum=MOST, default=1), "Which page, from 1"),
        Field("limit", integer(minimum=1, maximum=100, default=20), "Migrations on a page"),
    ),
    "get_migration_plan": _got(
        "What a migration would do, statement by statement",
        ref("MigrationPlan"),
        _TARGET,
        _LOSS,
    ),
    "migrate_all_databases": Operation(
        "Migrate every database",
        {
            200: _json(ref("AllMigrated"), "All are migrated"),
            207: _json(ref("SomeMigrated"), "Some are not, and why"),
        },
        query=_MIGRATING,
        body=_MIGRATE_BODY,
    ),
    "migrate_database": Operation(
        "Migrate a database",
        {200: _json(ref("Migrated"), "Database migrated successfully")},
        "Migrates the schema to the target version; the latest one when it is omitted. All or"
        " nothing: after an error the database is as it was. The target may also stand in the"
        " body; the query counts first.",
        query=_MIGRATING,
        body=_MIGRATE_BODY,
        errors=(400,),
    ),
}

# --- Channels ----------------------------------------------------------------------------------

_LETTERS: Final = (
    Field("limit", integer(minimum=1, maximum=200, default=20), "How many on a page"),
    Field("after", text(maxLength=1024), "Where the page before ended: its `meta.next`"),
)
_CHALLENGE: Final = text(pattern=r"^[A-Za-z0-9_-]{1,200}$")

_CHANNELS: Final = {
    "verify_webhook": Operation(
        "Webhook verification",
        {200: Reply("The challenge", {PLAIN: _CHALLENGE})},
        "The provider asks whether this address is ours.",
        query=(
            Field("hub.mode", TEXT),
            Field("hub.verify_token", TEXT),
            Field("hub.challenge", TEXT),
        ),
        errors=(403,),
    ),
    "channel_status": _got("Whether the channel is there", ref("ChannelStatus")),
    "receive_webhook": Operation(
        "Webhook",
        {
            200: Reply(
                "Stored, known already, or nothing to do; or the challenge of the provider",
                {JSON: ref("Delivery"), PLAIN: TEXT},
            )
        },
        "Incoming messages of the channel, signed by the provider over the bytes as they are.",
        body=Body({JSON: OBJECT}),
        errors=(400, 403),
    ),
}

_KEPT: Final = {
    "get_channels": _got(
        "The channels that you may read, and what waits in each",
        list_of(ref("Channel")),
        errors=(422,),
    ),
    "get_channel_messages": _got(
        "Messages of a channel in one state",
        ref("ChannelMessagePage"),
        Field("state", one_of_words("ready", "done", "dead", default="dead")),
        *_LETTERS,
    ),
    "get_channel_message": _got("One message and the replies to it", ref("ChannelMessageDetail")),
    "retry_channel_message": _got(
        "Try a dead message, or dead replies to it, once more", ref("ChannelRetry"), errors=(409,)
    ),
    "get_channel_replies": _got(
        "Replies of a channel in one state",
        ref("ChannelReplyPage"),
        Field("state", one_of_words("ready", "sent", "dead", default="dead")),
        *_LETTERS,
    ),
}

# --- The audit trail ---------------------------------------------------------------------------

_AUDIT: Final = {
    "get_audit": _got(
        "Who did what, and whether it was allowed",
        ref("AuditPage"),
        _DATABASE,
        Field("subject", text(maxLength=1024), "By this caller"),
        Field("operation", text(maxLength=1024), "This operation id"),
        Field("resource", text(maxLength=1024), "This resource, and what is beneath it"),
        Field("decision", one_of_words("allow", "deny", "open")),
        Field("since", _INSTANT, "Not before, in seconds since the epoch"),
        Field("until", _INSTANT, "Before, in seconds since the epoch"),
        Field("order", one_of_words("desc", "asc", default="desc")),
        Field("limit", integer(minimum=1, maximum=1000, default=50), "Rows on a page"),
        Field(
            "cursor",
            text(pattern=r"^[A-Za-z0-9_-]{0,1024}$"),
            "Where the page before ended: its `meta.next_cursor`",
        ),
    )
}

CHANNEL_ONLY: Final = frozenset(_CHANNELS)
"""Operations that exist once for each channel."""

OPERATIONS: Final[Mapping[str, Operation]] = {
    **_PLATFORM,
    **_DOCS,
    **_hosted("agent"),
    **_hosted("team"),
    **_SESSIONS,
    **_DATABASES,
    **_CHANNELS,
    **_KEPT,
    **_AUDIT,
}
"""Every operation there is."""
