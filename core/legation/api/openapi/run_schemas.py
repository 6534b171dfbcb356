"""The shapes of runs in lists of every owner, and of approvals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...store.run_states import RunState
from ..json_schema import (
    INTEGER,
    OBJECT,
    TEXT,
    TIME,
    Schema,
    list_of,
    nullable,
    object_of,
    one_of_words,
    ref,
    text,
)

__all__ = ["RUN_LISTS"]

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
    "RunPage": object_of(
        {
            "data": list_of(ref("ListedRun")),
            "meta": object_of({"limit": INTEGER, "next_cursor": nullable(TEXT)}, _ABSENT),
        }
    ),
}
