"""The shapes of what the platform answers, and of the bodies it reads, each in one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import fields

from ...access.trust_files import FileState
from ...findings import FINDINGS, SEVERITIES
from ...migrations.catalogue import CATALOGUE
from ...migrations.plan import Direction
from ...runs.output import MEDIA
from ...store.erasure import Tally
from ...store.run_states import RunState
from ..fields import describe_body, shape_name
from ..handlers.access import ExplainAccessRequest
from ..handlers.collections import COLLECTIONS, Collection
from ..handlers.forks import ForkSessionRequest
from ..handlers.letters import DiscardRequest, LettersRequest, MessageTestRequest
from ..handlers.outgoing import MessageRequest
from ..handlers.run_arguments import (
    Action,
    Argument,
    Treatment,
    arguments_of,
    describe_rules,
)
from ..handlers.sessions import (
    KINDS,
    ORDERS,
    CreateSessionRequest,
    DeleteSessionRequest,
    RenameSessionRequest,
    UpdateSessionRequest,
)
from ..handlers.system import ExplainRequest
from ..json_schema import (
    ANYTHING,
    BOOLEAN,
    INTEGER,
    NUMBER,
    OBJECT,
    TEXT,
    TIME,
    UNIX_TIME,
    Schema,
    by_name,
    either,
    integer,
    list_of,
    nullable,
    object_of,
    one_of_words,
    ref,
    text,
)
from .run_schemas import APPROVALS, RUN_LISTS, RUN_SUMS

__all__ = ["SCHEMAS", "collection_schema"]

_STATUS: Final = one_of_words(*(state.value for state in RunState))
_VERSION: Final = text(examples=[str(CATALOGUE.latest)])
_OBJECTS: Final = list_of(OBJECT)
_PAGED: Final[Mapping[str, Schema]] = {
    "page": integer(minimum=1),
    "limit": integer(minimum=1),
    "total_pages": integer(minimum=0),
    "total_count": integer(minimum=0),
}

_ERROR: Final[Mapping[str, Schema]] = {"detail": text(description="Error detail message")}
_CODE: Final[Mapping[str, Schema]] = {
    "error_code": {**nullable(TEXT), "description": "Error code for categorization"}
}
_FAULTS: Final[Mapping[str, Schema]] = {
    "errors": list_of(ref("Fault"), description="What was wrong, field by field")
}

_ERRORS: Final[Mapping[str, Schema]] = {
    "Error": object_of(_ERROR, {**_CODE, **_FAULTS}, description="What every error looks like"),
    "BadRequestResponse": object_of(_ERROR, _CODE),
    "UnauthenticatedResponse": object_of(_ERROR, _CODE),
    "NotFoundResponse": object_of(_ERROR, _CODE),
    "ValidationErrorResponse": object_of(_ERROR, {**_CODE, **_FAULTS}),
    "InternalServerErrorResponse": object_of(_ERROR, _CODE),
    "Fault": object_of(
        {
            "path": text(examples=["query.limit"]),
            "message": text(examples=["must be at most 100"]),
        },
        description="One broken rule: where, and what was expected",
    ),
}

# --- The platform itself -----------------------------------------------------------------------

_DATABASE: Final[Mapping[str, Schema]] = {
    "id": TEXT,
    "state": one_of_words(
        *("current", "empty", "behind", "ahead", "drifted", "unreachable"),
        *("full", "silent", "replaced"),
    ),
    "serving": BOOLEAN,
}
_REACHED: Final[Mapping[str, Schema]] = {
    "engine": one_of_words("sqlite", "postgresql"),
    "version": nullable(_VERSION),
    "latest": _VERSION,
    "detail": TEXT,
    "cluster": object_of(
        {
            "nodes": {**INTEGER, "description": "Nodes that live, this one among them"},
            "clock_skew_seconds": {
                **NUMBER,
                "description": "How far this machine's clock is ahead of the database's",
            },
        },
        {
            "warning": text(description="What is to be done about this machine's clock"),
            "unhosted": list_of(
                object_of({"component": TEXT, "runs": INTEGER, "oldest": TIME, "run_id": TEXT}),
                description="What runs wait for and no living node hosts",
            ),
            "members": list_of(
                object_of({"node": TEXT, "release": TEXT, "since": TIME}),
                description="The nodes, for administrators",
            ),
        },
        description="The nodes of the database, as the last beat of this one showed them",
    ),
}
_DECIDED: Final[Mapping[str, Schema]] = {
    "method": TEXT,
    "route": text(examples=["/agents/{agent_id}"]),
    "needs": text(description="What a caller needs, in words"),
    "by": text(description="What allows it"),
    "only": list_of(TEXT, description="The ids for which it is allowed"),
    "reason": one_of_words("scope", "signature", "method", "no route"),
    "missing": text(description="A scope that would be enough"),
    "allow": list_of(TEXT, description="The methods that the path takes"),
}

_SUMMARY: Final[Mapping[str, Schema]] = {"id": TEXT, "name": TEXT, "db_id": TEXT}

_DOMAINS: Final = {
    name: f"{name.capitalize()}Config"
    for name in ("session", "metrics", "memory", "knowledge", "evals", "traces")
}
_DOMAIN: Final = object_of(
    {
        "dbs": list_of(
            object_of(
                {"db_id": TEXT, "domain_config": object_of({"display_name": TEXT})},
                {"tables": list_of(TEXT)},
            )
        )
    },
    {"knowledge_instances": _OBJECTS},
)

_FILE_STATE: Final = one_of_words(*(state.value for state in FileState))

_PLATFORM: Final[Mapping[str, Schema]] = {
    "Home": object_of(dict.fromkeys(("name", "id", "version", "health", "info", "docs"), TEXT)),
    "HealthResponse": object_of({"status": one_of_words("ok"), "instantiated_at": TIME}),
    "Readiness": object_of(
        {
            "status": one_of_words("ready", "not ready", "draining"),
            "databases": by_name(ref("Database")),
        },
        {
            "channels": list_of(ref("Channel")),
            "keys": {**_FILE_STATE, "description": "Of the JWKS file, where one is configured"},
            "revocations": {
                **_FILE_STATE,
                "description": "Of the file with revocations, where one is configured",
            },
        },
    ),
    "Info": object_of(
        {
            **dict.fromkeys(("id", "os_id", "name", "version", "interface_version"), TEXT),
            **dict.fromkeys(("agent_count", "team_count", "workflow_count"), INTEGER),
            "auth_mode": one_of_words("none", "jwt"),
        }
    ),
    "ConfigResponse": object_of(
        {
            "os_id": TEXT,
            "name": TEXT,
            "available_models": list_of(TEXT),
            "os_database": TEXT,
            "databases": list_of(TEXT),
            **{name: ref(shape) for name, shape in _DOMAINS.items()},
            "agents": list_of(ref("AgentSummaryResponse")),
            "teams": list_of(ref("TeamSummaryResponse")),
            "workflows": _OBJECTS,
            "interfaces": list_of(ref("InterfaceResponse")),
        },
        {"description": TEXT},
    ),
    "AgentSummaryResponse": object_of(_SUMMARY, {"description": TEXT}),
    "TeamSummaryResponse": object_of(_SUMMARY, {"description": TEXT, "mode": TEXT}),
    "InterfaceResponse": object_of({"type": TEXT, "version": TEXT, "route": TEXT}),
    "Model": object_of({"id": TEXT, "provider": TEXT}),
    **dict.fromkeys(_DOMAINS.values(), _DOMAIN),
    "Setting": object_of(
        {
            "path": text(examples=["platform.lease_seconds"]),
            "value": {
                **ANYTHING,
                "description": "As it is configured; what may hold a secret is `[redacted]`",
            },
            "source": one_of_words("default", "configuration", "environment"),
        },
        description="One key of the configuration; functions stand there by their names",
    ),
    "SettingList": object_of({"data": list_of(ref("Setting"))}),
    "KeyList": object_of(
        {
            "data": list_of(
                object_of(
                    {
                        "key_id": text(description="Its name in the audit trail"),
                        "kid": {**nullable(TEXT), "description": "Its name in tokens"},
                        "source": one_of_words("configuration", "environment", "jwks"),
                    }
                )
            ),
            "meta": object_of(
                {
                    "authorization": BOOLEAN,
                    "algorithm": nullable(TEXT),
                    "loaded_at": {
                        **nullable(TIME),
                        "description": "Since when these keys are in force, if that is known",
                    },
                    "notes": list_of(TEXT, description="What is passed over in the JWKS"),
                    "trouble": {
                        **nullable(ref("KeysTrouble")),
                        "description": "Why the keys that came last were not taken",
                    },
                }
            ),
        }
    ),
    "KeysTrouble": object_of({"at": nullable(TIME), "reasons": list_of(ref("Fault"))}),
    "ExplainAccessRequest": describe_body(ExplainAccessRequest),
    "AccessExplanation": object_of(
        {
            "allowed": BOOLEAN,
            "caller": nullable(
                object_of(
                    {
                        "sub": nullable(TEXT),
                        "scopes": list_of(TEXT),
                        "session_id": nullable(TEXT),
                        "admin": BOOLEAN,
                        "key_id": nullable(TEXT),
                    },
                    description="Whom the token names; null where it is refused",
                )
            ),
        },
        {
            **_DECIDED,
            "reason": one_of_words("scope", "signature", "method", "no route", "token"),
            "because": text(description="Why the token is refused"),
        },
    ),
    "Incident": object_of(
        {
            "incident": text(description="As it stands in an answer, in a run and in the log"),
            "at": TIME,
            "db_id": TEXT,
            "node": TEXT,
            "error_type": text(description="A class of exceptions, or why a run failed"),
            "place": text(description="What raised it; empty where nothing was raised"),
            "operation": nullable(TEXT),
            "component": nullable(TEXT),
            "request_id": nullable(TEXT),
            "run_id": nullable(TEXT),
        },
        description="What went wrong, without a word of what it was about",
    ),
    "IncidentPage": object_of(
        {
            "data": list_of(ref("Incident")),
            "meta": object_of(
                {
                    "limit": INTEGER,
                    "next_cursor": nullable(TEXT),
                    "absent": list_of(TEXT, description="Databases that did not answer"),
                }
            ),
        }
    ),
    "Posture": object_of({"data": list_of(ref("Finding"))}),
    "Finding": object_of(
        {
            "code": one_of_words(*FINDINGS),
            "path": text(examples=["platform.authorization"]),
            "message": text(examples=["is off: whoever reaches it may do anything"]),
            "severity": one_of_words(*SEVERITIES),
            "remedy": text(description="What to do"),
        },
        description="One unsafe setting: where, and why it is",
    ),
    "Node": object_of(
        {
            "db_id": TEXT,
            "node": TEXT,
            "this": {**BOOLEAN, "description": "Whether it is the process that answers"},
            "release": TEXT,
            "schema": {**_VERSION, "description": "The latest version of the schema it knows"},
            "since": TIME,
            "beat_seconds": {**NUMBER, "description": "How long ago it said that it lives"},
            "draining": {
                **nullable(BOOLEAN),
                "description": "Whether it is about to end; known of the one that answers alone",
            },
            "hosts": list_of(TEXT, description="The agents and teams whose runs it takes up"),
        },
        description="A living node of a database",
    ),
    "NodeList": object_of(
        {
            "data": list_of(ref("Node")),
            "meta": object_of(
                {"absent": list_of(TEXT, description="Databases of which nothing is known yet")}
            ),
        }
    ),
    "Caller": object_of(
        {
            "sub": nullable(TEXT),
            "scopes": list_of(TEXT),
            "session_id": nullable(TEXT),
            "admin": BOOLEAN,
            "authorization": BOOLEAN,
            "limits": list_of(ref("ShareLevel")),
            "routes": list_of(ref("Permission")),
        }
    ),
    "ShareLevel": object_of(
        {
            "share": one_of_words(
                "requests",
                "streams",
                "followers",
                "model_calls",
                "runs",
                "waiting",
                "stored_bytes",
                "tokens",
                "cost",
            ),
            "limit": nullable(INTEGER),
            "used": INTEGER,
            "remaining": nullable(INTEGER),
            "unit": TEXT,
        },
        {
            "reset_seconds": INTEGER,
            "database": text(description="Where it is counted; without one, it is in this process"),
        },
    ),
    "Permission": object_of({"allowed": BOOLEAN}, _DECIDED),
    "ExplainRequest": describe_body(ExplainRequest),
}

# --- Agents, teams and their runs --------------------------------------------------------------

_COMPONENT: Final[Mapping[str, Schema]] = {
    "id": TEXT,
    "name": TEXT,
    "db_id": TEXT,
    "model": ref("ModelResponse"),
    "sessions": OBJECT,
    "is_component": BOOLEAN,
}
_MAY_HAVE: Final[Mapping[str, Schema]] = {
    "description": TEXT,
    "role": TEXT,
    "mode": TEXT,
    "tools": OBJECT,
    "system_message": {**OBJECT, "description": "Shown to administrators alone"},
}
_FAILURE: Final[Mapping[str, Schema]] = {
    "error_type": text(description="Why a run that is ERROR failed, for programs"),
    "error_message": text(
        description="The reason in words, where `content` is what was said by then"
    ),
    "incident": text(description="The number under which the operator's log says more"),
}
_OF_TEAM: Final = list_of(either(ref("AgentResponse"), ref("TeamResponse")))


def _run_output(kind: str) -> Schema:
    return object_of(
        {
            "run_id": TEXT,
            f"{kind}_id": TEXT,
            "session_id": TEXT,
            "user_id": TEXT,
            "created_at": UNIX_TIME,
            "status": _STATUS,
            "metrics": ref("Metrics"),
            "input": object_of({"input_content": TEXT}, dict.fromkeys(MEDIA, _OBJECTS)),
        },
        {
            "events": _OBJECTS,
            "metadata": OBJECT,
            "forked_from": ref("RunOrigin"),
            f"{kind}_name": TEXT,
            "content": ANYTHING,
            "content_type": TEXT,
            "reasoning_content": {**TEXT, "description": "What was seen of the model's thoughts"},
            "model": TEXT,
            "model_provider": TEXT,
            "parent_run_id": TEXT,
            **_FAILURE,
            "session_state": OBJECT,
            "messages": _OBJECTS,
            "tools": list_of(ref("ToolExecution")),
            "requirements": list_of(
                ref("Requirement"), description="What a run that is PAUSED waits for"
            ),
            **({"member_responses": _OBJECTS} if kind == "team" else {}),
        },
    )


_TOOL: Final[Mapping[str, Schema]] = {
    "tool_call_id": TEXT,
    "tool_name": TEXT,
    "tool_args": OBJECT,
    "tool_call_error": nullable(BOOLEAN),
    "result": nullable(TEXT),
    "metrics": nullable(OBJECT),
    "child_run_id": nullable(TEXT),
    "stop_after_tool_call": BOOLEAN,
    "created_at": UNIX_TIME,
    "requires_confirmation": nullable(BOOLEAN),
    "confirmed": nullable(BOOLEAN),
    "confirmation_note": nullable(TEXT),
    "external_execution_required": nullable(BOOLEAN),
    **dict.fromkeys(
        (
            *("requires_user_input", "user_input_schema", "user_feedback_schema", "answered"),
            *("external_execution_silent", "approval_type", "approval_id"),
        ),
        ANYTHING,
    ),
}
_MEMBER_ASKS: Final = ("member_agent_id", "member_agent_name", "member_run_id")


def _run_row(kind: str) -> Schema:
    lists = ("reasoning_steps", "messages", "tools", "references", "reasoning_messages")
    return object_of(
        {
            "run_id": TEXT,
            "parent_run_id": TEXT,
            f"{kind}_id": TEXT,
            "user_id": TEXT,
            "status": _STATUS,
            "run_input": TEXT,
            "content": ANYTHING,
            "run_response_format": one_of_words("text", "json"),
            "reasoning_content": TEXT,
            "metrics": ref("Metrics"),
            "created_at": TIME,
            "session_state": OBJECT,
            **dict.fromkeys((*lists, *MEDIA), _OBJECTS),
            "input_media": OBJECT,
        },
        {**_FAILURE, "forked_from": ref("RunOrigin")},
    )


def _run_snapshot(kind: str) -> Schema:
    """Return what stands in a snapshot: the output of a run with its first messages."""
    output = _run_output(kind)
    known, names = output["properties"], output["required"]
    needed = {name: known[name] for name in names}
    more = {"messages": _OBJECTS, "last_checkpoint_at_message_index": integer(minimum=0)}
    others = {name: known[name] for name in known if name not in {*names, *more}}
    return object_of(
        {
            "checkpoint": ref("RunCheckpoint"),
            "snapshot": object_of({**needed, **more}, others),
        }
    )


def _run_item(kind: str) -> Schema:
    """Return what stands in the runs of an agent or a team: a row, and the output beside."""
    row, output = _run_row(kind), _run_output(kind)["properties"]
    needed = {name: row["properties"][name] for name in row["required"]}
    return object_of(needed, {name: output[name] for name in output if name not in needed})


_WORDLESS: Final[Schema] = {"description": "Accepted, without effect"}
_FILES: Final = list_of(
    text(format="binary", contentMediaType="application/octet-stream"), examples=[[]]
)


def _arguments(action: Action, *, required: bool) -> Mapping[str, Schema]:
    """Return the arguments that `action` takes, those that it needs or the others."""
    return {
        argument.name: _WORDLESS
        if argument.kind is None
        else {**argument.kind.schema, "description": argument.meaning}
        for argument in arguments_of(action)
        if argument.required is required and argument.treatment is not Treatment.REFUSED
    }


# With a `contentMediaType` a page would ask for a file, and without an example it would send what
# it makes of the pattern.
_AS_TEXT: Final[Mapping[str, Schema]] = {
    "object": text(format="json-object", examples=["{}"]),
    "array": text(format="json-array", examples=["[]"]),
}
_EMPTY: Final[Schema] = {"examples": [""]}


def _as_text(argument: Argument) -> Schema:
    """Return a field of a form: all of it is text, so objects and arrays are JSON in text."""
    kind = argument.kind
    if kind is None:
        return {**TEXT, **_EMPTY, **_WORDLESS}
    field = kind.form or _AS_TEXT.get(kind.schema.get("type", ""), kind.schema)
    empty = _EMPTY if "pattern" in field else {}
    return {**field, **empty, "description": argument.meaning}


def _form(action: Action, files: Mapping[str, Schema] | None = None) -> Schema:
    """Return the form of `action`; `files` are the fields that are uploads."""
    taken = [a for a in arguments_of(action) if a.treatment is not Treatment.REFUSED]
    needed = {argument.name: _as_text(argument) for argument in taken if argument.required}
    others = {argument.name: _as_text(argument) for argument in taken if not argument.required}
    rules = describe_rules(action, in_form=True)
    return object_of(needed, {**others, **(files or {})}, additionalProperties=False, **rules)


def _whole(action: Action) -> Schema:
    """Return the same as JSON."""
    needed, others = _arguments(action, required=True), _arguments(action, required=False)
    return {**_members(others, needed), **describe_rules(action, in_form=False)}


def _members(fields: Mapping[str, Schema], required: Mapping[str, Schema] | None = None) -> Schema:
    """Return an object in which null is as good as absent."""
    members = {name: f if f is _WORDLESS else nullable(f) for name, f in fields.items()}
    return object_of(required or {}, members, additionalProperties=False)


_RUNS: Final[Mapping[str, Schema]] = {
    "ModelResponse": object_of({"name": TEXT, "model": TEXT, "provider": TEXT}),
    "AgentResponse": object_of(_COMPONENT, _MAY_HAVE),
    "TeamResponse": object_of({**_COMPONENT, "members": _OF_TEAM}, _MAY_HAVE),
    "AgentRunItem": _run_item("agent"),
    "TeamRunItem": _run_item("team"),
    "AgentRun": _run_output("agent"),
    "TeamRun": _run_output("team"),
    "Metrics": object_of(
        {},
        {
            **dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), INTEGER),
            "reasoning_tokens": {**INTEGER, "description": "Of the output, unless 0"},
            "cache_read_tokens": {**INTEGER, "description": "Of the input, unless 0"},
            "cache_write_tokens": {**INTEGER, "description": "Of the input, unless 0"},
            "cost": {**NUMBER, "description": "US dollars, where the prices are known"},
            "duration": {**NUMBER, "description": "Seconds"},
            "time_to_first_token": {**NUMBER, "description": "Seconds"},
            "details": OBJECT,
        },
    ),
    "ToolExecution": object_of(
        _TOOL,
        {
            "member_run_id": {**TEXT, "description": "The run of the member whose call it is"},
            "in_doubt": {
                **BOOLEAN,
                "description": "It was interrupted, and whether it was carried out is not known",
            },
            "confirmation_reason": {**TEXT, "description": "Why a guard has a person asked"},
        },
    ),
    "ToolAnswer": object_of(
        {"tool_call_id": text(minLength=1)},
        {
            "tool_name": nullable(TEXT),
            "tool_args": nullable(OBJECT),
            "confirmed": nullable(BOOLEAN),
            "confirmation_note": nullable(TEXT),
            "result": ANYTHING,
            "member_run_id": {
                **nullable(TEXT),
                "description": "Of several calls that look alike, the run whose call is answered",
            },
            "requirement_id": {
                **nullable(TEXT),
                "description": "The `id` of the requirement that is answered",
            },
            "in_doubt": {
                **nullable(BOOLEAN),
                "description": "True, as it was shown, where a call in doubt is confirmed again",
            },
        },
        description="The answer to a call that waits; other members are as they were shown",
        additionalProperties=True,
    ),
    "RequirementAnswer": object_of(
        {"tool_execution": ref("ToolAnswer")},
        {
            "id": nullable(TEXT),
            "confirmation": nullable(BOOLEAN),
            "confirmation_note": nullable(TEXT),
            "external_execution_result": ANYTHING,
        },
        description="The answer to a requirement; other members are as they were shown",
        additionalProperties=True,
    ),
    "Requirement": object_of(
        {"id": TEXT, "created_at": TIME, "tool_execution": ref("ToolExecution")},
        dict.fromkeys(_MEMBER_ASKS, TEXT),
    ),
    "RunAccepted": object_of({"run_id": TEXT, "session_id": TEXT, "status": _STATUS}),
    "ServerSentEvent": object_of(
        {
            "event": text(examples=["RunContent"]),
            "data": text(contentMediaType="application/json", contentSchema=ref("RunEvent")),
        },
        {"id": text(examples=["6f1c:1"], description="Of a stored event: `run_id:number`")},
        description="One event of a stream (WHATWG HTML section 9.2)",
    ),
    "RunEvent": object_of(
        {"event": text(examples=["RunContent", "TeamRunCompleted"]), "run_id": TEXT},
        {"created_at": UNIX_TIME, "session_id": TEXT},
        description="What the data line of one event holds",
        additionalProperties=True,
    ),
    "RunRequest": _whole(Action.START),
    "RunForm": _form(Action.START),
    "Body_create_agent_run": _form(Action.START, {"files": _FILES}),
    "Body_create_team_run": _form(Action.START, {"files": _FILES}),
    "CancelRequest": _whole(Action.CANCEL),
    "CancelForm": _form(Action.CANCEL),
    "ContinueRequest": _whole(Action.CONTINUE),
    "Body_continue_agent_run": _form(Action.CONTINUE),
    "Body_continue_team_run": _form(Action.CONTINUE),
    "ForkRequest": _whole(Action.FORK),
    "Body_fork_agent_run": _form(Action.FORK),
    "Body_fork_team_run": _form(Action.FORK),
    "RunOrigin": object_of(
        {
            "run_id": TEXT,
            "at": {**nullable(TEXT), "description": "The place; null from the beginning"},
        },
        description="The run that a run is a fork of",
    ),
    "RunCheckpoint": object_of(
        {
            "checkpoint_id": {**nullable(TEXT), "description": "Its number in the list"},
            "run_id": TEXT,
            "session_id": TEXT,
            "message_index": integer(minimum=0, description="How many messages there are by then"),
            "continue_from": integer(minimum=0),
            "status": _STATUS,
            "reason": one_of_words("checkpoint", "end", "snapshot"),
            "created_at": UNIX_TIME,
            "message_id": nullable(TEXT),
            "message_role": nullable(TEXT),
            "message_preview": nullable(TEXT),
            "is_latest": BOOLEAN,
            "place": {
                **nullable(TEXT),
                "description": "`at` of a fork that goes on behind it; null where there is none",
            },
            "calls": {
                **list_of(
                    object_of(
                        {"place": nullable(TEXT), "tool_call_id": TEXT, "tool_name": TEXT},
                    )
                ),
                "description": "The calls of the answer before it, with `at` of a fork at each",
            },
        },
    ),
    "AgentRunSnapshot": _run_snapshot("agent"),
    "TeamRunSnapshot": _run_snapshot("team"),
    "RunCheckpoints": object_of(
        {"run_id": TEXT, "session_id": TEXT, "checkpoints": list_of(ref("RunCheckpoint"))}
    ),
    "ResumeRequest": _whole(Action.RESUME),
    "ResumeForm": _form(Action.RESUME),
}

# --- Sessions ----------------------------------------------------------------------------------

_SESSION: Final[Mapping[str, Schema]] = {
    "session_id": TEXT,
    "session_name": TEXT,
    "session_state": OBJECT,
    "created_at": TIME,
    "updated_at": TIME,
}


def _session_detail(kind: str) -> Schema:
    return object_of(
        {
            **_SESSION,
            **({"agent_session_id": TEXT} if kind == "agent" else {}),
            "user_id": TEXT,
            "total_tokens": INTEGER,
            "metrics": ref("Metrics"),
            "chat_history": _OBJECTS,
        },
        {
            f"{kind}_id": TEXT,
            f"{kind}_data": OBJECT,
            "session_summary": OBJECT,
            "metadata": OBJECT,
            "forked_from_session_id": {
                **TEXT,
                "description": "In the answer to a fork alone: the session that it is a fork of",
            },
        },
    )


_SESSIONS: Final[Mapping[str, Schema]] = {
    "SessionType": one_of_words(*KINDS),
    "SortOrder": one_of_words(*ORDERS),
    "PaginationInfo": object_of(_PAGED, {"search_time_ms": NUMBER}),
    "SessionSchema": object_of(
        _SESSION,
        {
            "user_id": {**TEXT, "description": "Whose it is, for those who see every owner"},
            "agent_id": TEXT,
            "team_id": TEXT,
            "last_status": {
                **_STATUS,
                "description": "That of its newest run; absent where it has none",
            },
        },
    ),
    "PaginatedResponse_SessionSchema_": object_of(
        {"data": list_of(ref("SessionSchema")), "meta": ref("PaginationInfo")}
    ),
    "SessionExport": object_of(
        {
            "session": OBJECT,
            "runs": list_of(
                object_of(
                    {
                        "run": OBJECT,
                        "events": list_of(object_of({"seq": INTEGER, "event": OBJECT})),
                    }
                )
            ),
        }
    ),
    "ErasureReceipt": object_of(
        {
            "user_id": TEXT,
            "dry_run": BOOLEAN,
            "erased_by": nullable(TEXT),
            "erased_at": TEXT,
            "request_id": TEXT,
            "counts": ref("ErasureCounts"),
            "databases": by_name(ref("ErasureCounts")),
            "kept": TEXT,
            "digest": TEXT,
            "signature": nullable(object_of({"key_id": TEXT, "algorithm": TEXT, "value": TEXT})),
        },
        {"unsigned": TEXT},
    ),
    "ErasureCounts": object_of({one.name: INTEGER for one in fields(Tally)}),
    "AgentSessionDetailSchema": _session_detail("agent"),
    "TeamSessionDetailSchema": _session_detail("team"),
    "RunSchema": _run_row("agent"),
    "TeamRunSchema": _run_row("team"),
    **{
        shape_name(shape): describe_body(shape)
        for shape in (
            CreateSessionRequest,
            UpdateSessionRequest,
            RenameSessionRequest,
            DeleteSessionRequest,
            ForkSessionRequest,
        )
    },
}

# --- Databases ---------------------------------------------------------------------------------

_DATABASES: Final[Mapping[str, Schema]] = {
    "Database": object_of(_DATABASE, _REACHED),
    "DatabaseSize": object_of(
        {
            "id": TEXT,
            "bytes": integer(minimum=0),
            "tables": nullable(
                list_of(
                    object_of(
                        {
                            "name": TEXT,
                            "rows": {**nullable(INTEGER), "description": "About so many"},
                            "bytes": {**integer(minimum=0), "description": "With its indexes"},
                        }
                    ),
                    description="The largest first; null where nobody counts them",
                )
            ),
        }
    ),
    "MigrationEntry": object_of(
        {
            "seq": INTEGER,
            "from_version": _VERSION,
            "to_version": _VERSION,
            **dict.fromkeys(("actor", "node", "request_id"), TEXT),
            "at_us": {**INTEGER, "description": "Microseconds since the epoch, UTC"},
        }
    ),
    "MigrationHistory": object_of(
        {**_DATABASE, "data": list_of(ref("MigrationEntry")), "meta": ref("PaginationInfo")},
        _REACHED,
    ),
    "MigrationMove": object_of(
        {
            "direction": one_of_words(*(direction.value for direction in Direction)),
            "version": _VERSION,
            "title": TEXT,
            "loses": list_of(TEXT, description="What is discarded"),
        },
        {"statements": list_of(TEXT)},
    ),
    "MigrationPlan": object_of(
        {
            "from_version": nullable(_VERSION),
            "to_version": _VERSION,
            "moves": list_of(ref("MigrationMove")),
            "loses": list_of(TEXT, description="What is discarded"),
            "refused_by": {**nullable(TEXT), "description": "Why it would not be done"},
        }
    ),
    "Migrated": object_of(
        {
            "message": text(
                examples=[f"Database migrated successfully to version {CATALOGUE.latest}"]
            ),
            "from_version": _VERSION,
            "to_version": _VERSION,
            "dry_run": BOOLEAN,
            "moves": list_of(ref("MigrationMove")),
        }
    ),
    "AllMigrated": object_of({"message": TEXT, "databases": by_name(ref("Migrated"))}),
    "SomeMigrated": object_of(
        {
            "message": TEXT,
            "databases": by_name(ref("Migrated")),
            "failed": {**by_name(TEXT), "description": "Why, by the database's id"},
        }
    ),
}

# --- Channels ----------------------------------------------------------------------------------

_LETTER: Final[Mapping[str, Schema]] = {
    "id": TEXT,
    "next_attempt_at": nullable(TIME),
    "attempts": INTEGER,
    "error": nullable(TEXT),
}
_MESSAGE: Final[Mapping[str, Schema]] = {
    **_LETTER,
    "sender": TEXT,
    "state": one_of_words("ready", "done", "dead"),
    "received_at": TIME,
    "run_id": nullable(TEXT),
    "session_owner": nullable(TEXT),
    "done_at": nullable(TIME),
}


def _letters(items: str) -> Schema:
    meta = object_of({"state": TEXT, "limit": INTEGER, "next": nullable(TEXT)})
    return object_of({"data": list_of(ref(items)), "meta": meta})


_CHANNELS: Final[Mapping[str, Schema]] = {
    "Delivery": object_of(
        {"status": one_of_words("processing", "duplicate", "ignored")}, {"reason": TEXT}
    ),
    "ChannelStatus": object_of({"status": one_of_words("available")}),
    "Channel": object_of(
        {
            "id": TEXT,
            "kind": TEXT,
            "db_id": TEXT,
            "messages": nullable(ref("Depth")),
            "replies": nullable(ref("Depth")),
        },
        {"agent_id": TEXT, "team_id": TEXT, "held": ref("Held")},
    ),
    "Held": object_of(
        {"since": TIME, "reason": TEXT},
        description="The provider takes nothing with the credentials; the replies wait",
    ),
    "Depth": object_of(
        {
            "ready": INTEGER,
            "in_work": INTEGER,
            "oldest_seconds": nullable(INTEGER),
            "dead": INTEGER,
        },
        description="What waits; null where the database does not answer",
    ),
    "ChannelMessage": object_of(_MESSAGE),
    "ChannelMessageDetail": object_of({**_MESSAGE, "replies": list_of(ref("ChannelReply"))}),
    "ChannelMessagePage": _letters("ChannelMessage"),
    "ChannelReply": object_of(
        {
            **_LETTER,
            "recipient": TEXT,
            "state": one_of_words("ready", "sent", "dead"),
            "created_at": TIME,
            "sent_at": nullable(TIME),
        }
    ),
    "ChannelReplyPage": _letters("ChannelReply"),
    **{
        name: object_of(
            {
                "what": one_of_words("messages", "replies"),
                done: integer(minimum=0),
                "left": {**integer(minimum=0), "description": "More of the same choice"},
                "ids": list_of(TEXT, description="Those that were touched, sorted"),
            }
        )
        for name, done in (("LettersRetried", "retried"), ("LettersDiscarded", "discarded"))
    },
    "ReplyRetried": object_of({"id": TEXT, "state": one_of_words("ready")}),
    **{
        shape_name(shape): describe_body(shape)
        for shape in (LettersRequest, DiscardRequest, MessageTestRequest, MessageRequest)
    },
    "MessageAccepted": object_of({"ids": list_of(TEXT), "state": one_of_words("ready")}),
    "ChannelRetry": object_of({"id": TEXT, "message_retried": BOOLEAN, "replies_retried": INTEGER}),
}

# --- The audit trail ---------------------------------------------------------------------------

_AUDIT: Final[Mapping[str, Schema]] = {
    "AuditRow": object_of(
        {
            "at": TIME,
            "at_us": {**INTEGER, "description": "Microseconds since the epoch, UTC"},
            "request_id": TEXT,
            "subject": nullable(TEXT),
            "key_id": nullable(TEXT),
            "operation": TEXT,
            "resource": TEXT,
            "decision": one_of_words("allow", "deny", "open"),
            "scope": TEXT,
            "status": INTEGER,
            "client": TEXT,
            "db_id": TEXT,
            "writer": TEXT,
            "seq": INTEGER,
            "previous": TEXT,
            "hash": TEXT,
            "signed_by": nullable(TEXT),
        },
        description="One decision or change; `hash` is that of its page, made with the key"
        " `signed_by`, and `previous` that of the page before it",
    ),
    "AuditPage": object_of(
        {
            "data": list_of(ref("AuditRow")),
            "meta": object_of(
                {"limit": INTEGER, "next_cursor": nullable(TEXT)},
                {"absent": {**list_of(TEXT), "description": "Databases that did not answer"}},
            ),
        }
    ),
    "RefusalCount": object_of(
        {
            "at": {**TIME, "description": "The minute"},
            "client": {**TEXT, "description": "An address or a network, else `others`"},
            "route": TEXT,
            "status": nullable(INTEGER),
            "count": integer(minimum=1),
        },
        description="Refusals of one minute, client, route and status",
    ),
    "RefusalsPage": object_of(
        {
            "data": list_of(ref("RefusalCount")),
            "meta": object_of({"limit": INTEGER, "next_cursor": nullable(TEXT)}),
        }
    ),
}

# --- What is empty ------------------------------------------------------------------------------


def collection_schema(collection: Collection) -> Schema:
    """Return the schema of a collection's answer, which has no item."""
    if collection.body is not None:
        return _schema_of(collection.body)
    meta = object_of({**_PAGED, "search_time_ms": NUMBER})
    return object_of({"data": _OBJECTS, "meta": meta})


def _schema_of(value: Any) -> Schema:
    """Return the schema of a value that is as empty as its type can be."""
    match value:
        case ():
            return list_of(ANYTHING)
        case None:
            return nullable(TIME)
        case _:
            return object_of({name: _schema_of(item) for name, item in value.items()})


SCHEMAS: Final[Mapping[str, Schema]] = {
    **_ERRORS,
    **_PLATFORM,
    **_RUNS,
    **RUN_LISTS,
    **RUN_SUMS,
    **APPROVALS,
    **_SESSIONS,
    **_DATABASES,
    **_CHANNELS,
    **_AUDIT,
    **{empty.shape: collection_schema(empty) for empty in COLLECTIONS if empty.shape},
}
"""Every shape by its name in the document."""
