"""The shapes of runs in lists of every owner, and of approvals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...store.run_states import RunState
from ..fields import describe_body
from ..handlers.approvals import ApprovalResolve
from ..json_schema import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    OBJECT,
    TEXT,
    TIME,
    UNIX_TIME,
    Schema,
    either,
    integer,
    list_of,
    nullable,
    object_of,
    one_of_words,
    ref,
    text,
)

__all__ = ["APPROVALS", "RUN_LISTS", "RUN_SUMS"]

_STATUS: Final = one_of_words(*(state.value for state in RunState))
_OBJECTS: Final = list_of(OBJECT)
_ABSENT: Final[Mapping[str, Schema]] = {
    "absent": {**list_of(TEXT), "description": "Databases that did not answer"}
}

RUN_LISTS: Final[Mapping[str, Schema]] = {
    "ListedRun": object_of(
        {
            "run_id": TEXT,
            "session_id": TEXT,
            "db_id": TEXT,
            "component": ref("RunComponent"),
            "user_id": TEXT,
            "status": _STATUS,
            "created_at": TIME,
            "started_at": nullable(TIME),
            "ended_at": {**nullable(TIME), "description": "When it ended, or paused"},
            "model": {**nullable(TEXT), "description": "The id of the model that answered"},
            "tokens": nullable(ref("RunTokens")),
            "error_type": {**nullable(TEXT), "description": "Why it failed, for programs"},
            "incident": {
                **nullable(TEXT),
                "description": "The number under which the operator's log says more",
            },
            "resolution": nullable(ref("RunResolution")),
        },
        {
            "approval_id": text(description="Of a run that is PAUSED: its approval"),
            "requirements": {
                **nullable(_OBJECTS),
                "description": "Of a run that is PAUSED: the calls that wait, as the run shows"
                " them; null where they are long, and the approval has them",
            },
        },
        description="A run that a client asked for, as lists of every user have it",
    ),
    "RunComponent": object_of(
        {
            "kind": one_of_words("agent", "team"),
            "id": TEXT,
            "name": {**nullable(TEXT), "description": "Null where it is hosted no more"},
        },
        description="What a run is of",
    ),
    "RunResolution": object_of(
        {
            "approval_id": TEXT,
            "status": one_of_words("approved", "rejected"),
            "resolved_by": {**nullable(TEXT), "description": "The user who answered"},
            "resolved_at": TIME,
        },
        description="How the last pause of a run was answered",
    ),
    "RunTokens": object_of(
        {"input_tokens": INTEGER, "output_tokens": INTEGER, "total_tokens": INTEGER}
    ),
    "RunChange": object_of(
        {
            "event": one_of_words("snapshot", "run"),
            "data": text(
                contentMediaType="application/json",
                contentSchema=either(ref("RunCounts"), ref("ListedRun")),
            ),
        },
        description="One event of the stream of changes: a snapshot, and then runs",
    ),
    "RunCounts": object_of(
        {"counts": object_of({state.value: integer(minimum=0) for state in RunState})},
        description="How many runs there are in each state, as far as 1,000",
    ),
    "RunPage": object_of(
        {
            "data": list_of(ref("ListedRun")),
            "meta": object_of({"limit": INTEGER, "next_cursor": nullable(TEXT)}, _ABSENT),
        }
    ),
}

_SECONDS: Final[Schema] = nullable(NUMBER)
_SUM: Final[Mapping[str, Schema]] = {
    "runs": integer(minimum=0),
    "states": object_of({state.value: integer(minimum=0) for state in RunState}),
    "errors": integer(minimum=0),
    "input_tokens": INTEGER,
    "output_tokens": INTEGER,
    "seconds_p50": {**_SECONDS, "description": "Half of those that ended took no longer"},
    "seconds_p95": {**_SECONDS, "description": "95 of 100 of those that ended took no longer"},
}
_COST: Final[Mapping[str, Schema]] = {
    "cost": {**NUMBER, "description": "US dollars, where the prices are known"}
}
RUN_SUMS: Final[Mapping[str, Schema]] = {
    "RunSum": object_of(
        {
            "key": {
                **nullable(TEXT),
                "description": "`agent:ID` or `team:ID`, the id of a model, a user, or an hour;"
                " null where nothing is known of it",
            },
            **_SUM,
        },
        _COST,
        description="The sum of the runs of one group",
    ),
    "RunTotal": object_of(_SUM, _COST, description="The sum of all runs that were read"),
    "RunSummary": object_of(
        {
            "data": list_of(ref("RunSum"), description="The largest first; hours in order"),
            "total": ref("RunTotal"),
            "meta": object_of(
                {
                    "by": one_of_words("agent", "model", "user", "hour"),
                    "truncated": {
                        **BOOLEAN,
                        "description": "Whether there are more runs than were read",
                    },
                    "groups": {
                        **integer(minimum=0),
                        "description": "How many there are, of which the first 1,000 are shown",
                    },
                },
                _ABSENT,
            ),
        }
    ),
}

_APPROVAL_STATUS: Final = one_of_words("pending", "approved", "rejected", "cancelled")
_RESOLVED: Final[Mapping[str, Schema]] = {
    "resolved_at": nullable(UNIX_TIME),
    "resolved_by": {**nullable(TEXT), "description": "The user who answered, as the token said"},
}

APPROVALS: Final[Mapping[str, Schema]] = {
    "ApprovalResponse": object_of(
        {
            "id": text(description="The run, and how many events it had at the pause"),
            "run_id": TEXT,
            "session_id": TEXT,
            "status": _APPROVAL_STATUS,
            "source_type": one_of_words("agent", "team"),
            "approval_type": one_of_words("required"),
            "pause_type": one_of_words("confirmation", "external_execution"),
            "tool_name": {**nullable(TEXT), "description": "Of the first call that waits"},
            "tool_args": {**nullable(OBJECT), "description": "Of the first call that waits"},
            "expires_at": nullable(INTEGER),
            "agent_id": nullable(TEXT),
            "team_id": nullable(TEXT),
            "workflow_id": nullable(TEXT),
            "user_id": text(description="Whose run it is"),
            "schedule_id": nullable(TEXT),
            "schedule_run_id": nullable(TEXT),
            "source_name": TEXT,
            "requirements": {
                **nullable(_OBJECTS),
                "description": "The calls that wait; null in a list where they are long",
            },
            "context": object_of({"db_id": TEXT}),
            "resolution_data": {
                **nullable(object_of({"calls": _OBJECTS})),
                "description": "How each call was answered, once the run has gone on",
            },
            **_RESOLVED,
            "created_at": {**UNIX_TIME, "description": "When the run paused"},
            "updated_at": UNIX_TIME,
            "run_status": _STATUS,
        },
        description="A run that waits for a person, or that was answered",
    ),
    "ApprovalStatusResponse": object_of(
        {"approval_id": TEXT, "status": _APPROVAL_STATUS, "run_id": TEXT, **_RESOLVED}
    ),
    "ApprovalCountResponse": object_of({"count": integer(minimum=0)}),
    "PaginatedResponse_ApprovalResponse_": object_of(
        {
            "data": list_of(ref("ApprovalResponse")),
            "meta": object_of(
                {
                    **dict.fromkeys(("page", "limit"), integer(minimum=1)),
                    **dict.fromkeys(("total_pages", "total_count"), integer(minimum=0)),
                    "search_time_ms": NUMBER,
                },
                _ABSENT,
            ),
        }
    ),
    "ApprovalResolve": describe_body(ApprovalResolve),
}
