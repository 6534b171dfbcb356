"""Examples of requests: a page that sends them as they stand gets an answer that is no error.

The ids are those of the platform where it is open to all, and else of the demonstration, which has
a session, runs and messages under them.  Operations that use something up have one each, so that
any order of them succeeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...hosted.registry import Registry
from . import example_ids as ids

__all__ = ["BODIES", "PARAMETERS", "example_of", "find_ids"]

_IDS: Final[Mapping[str, str]] = {
    "agent_id": ids.AGENT,
    "team_id": ids.TEAM,
    "channel": ids.CHANNEL,
    "db_id": ids.DATABASE,
    "session_id": ids.SESSION,
    "run_id": ids.RUN,
    "approval_id": ids.APPROVAL,
    "message_id": ids.MESSAGE,
    "reply_id": ids.REPLY,
    "user_id": ids.USER,
}

PARAMETERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "get_docs_asset": {"name": "page.css"},
    "get_console_asset": {"digest": "0", "name": "main.js"},
    "get_console_part": {"digest": "0", "name": "vendor", "part": "lit-html.js"},
    "get_runs_events": {"seconds": 2},
    "continue_agent_run": {"run_id": ids.PAUSED_RUN},
    **{
        f"{action}_team_run": {"run_id": ids.TEAM_RUN}
        for action in ("get", "cancel", "resume", "fork")
    },
    "list_team_run_checkpoints": {"run_id": ids.TEAM_RUN},
    "get_agent_run_checkpoint_snapshot": {"message_index": 1},
    "get_team_run_checkpoint_snapshot": {"run_id": ids.TEAM_RUN, "message_index": 1},
    "get_team_run_events": {"run_id": ids.TEAM_RUN},
    "replay_team_run": {"run_id": ids.TEAM_RUN},
    "continue_team_run": {"run_id": ids.TEAM_PAUSED_RUN},
    "list_team_runs": {"session_id": ids.TEAM_SESSION},
    "delete_session": {"session_id": ids.SPARE_SESSION},
    "delete_session_run": {"session_id": ids.SPARE_SESSION, "run_id": ids.SPARE_RUN},
    "erase_user": {"user_id": ids.SPARE_USER},
    "resolve_approval_approvals__approval_id__resolve_post": {"approval_id": ids.WAITING_APPROVAL},
    "delete_approval_approvals__approval_id__delete": {"approval_id": ids.RESOLVED_APPROVAL},
}
"""The parameters of operations that take another value than the usual, or an optional one."""


def _answer(call: str) -> Mapping[str, Any]:
    return {"tools": [{"tool_call_id": call, "confirmed": True}], "stream": False}


_EXPLAINED: Final = {"method": "GET", "path": "/agents"}
_RUN: Final = {"message": "What can you do?", "stream": False}
_LETTERS: Final = {"what": "messages", "ids": [ids.MESSAGE]}

BODIES: Final[Mapping[str, Any]] = {
    "create_agent_run": _RUN,
    "create_team_run": _RUN,
    "cancel_agent_run": {},
    "cancel_team_run": {},
    "continue_agent_run": _answer(ids.TOOL_CALL),
    "continue_team_run": _answer(ids.TEAM_TOOL_CALL),
    "resume_agent_run": {"last_event_index": -1},
    "resume_team_run": {"last_event_index": -1},
    "fork_agent_run": {"message": "What else can you do?", "stream": False},
    "fork_team_run": {"stream": False},
    "fork_session": {"run_id": ids.RUN},
    "explain_request": _EXPLAINED,
    "explain_access": {**_EXPLAINED, "claims": {"sub": ids.USER, "scopes": ["agents:read"]}},
    "create_session": {"session_name": "A new conversation"},
    "update_session": {"metadata": {"source": "docs"}},
    "rename_session": {"session_name": "Welcome"},
    "delete_sessions": {"session_ids": [ids.SPARE_SESSION], "session_types": ["agent"]},
    "retry_channel_letters": _LETTERS,
    "discard_channel_letters": _LETTERS,
    "send_channel_test": {"recipient": ids.USER},
    "send_channel_message": {"recipient": ids.USER, "text": "Your room is ready."},
    "resolve_approval_approvals__approval_id__resolve_post": {"status": "approved"},
    "receive_webhook": {},
}
"""The JSON bodies of operations, by their ids."""


def find_ids(registry: Registry) -> Mapping[str, str]:
    """Return an id for each parameter that names something.

    A platform with authorization does not tell everybody what it hosts.
    """
    if registry.config.authorization:
        return _IDS
    hosted: Mapping[str, Mapping[str, Any]] = {
        "agent_id": registry.agents,
        "team_id": registry.teams,
        "channel": registry.channels,
        "db_id": registry.databases,
    }
    return {**_IDS, **{name: next(iter(known)) for name, known in hosted.items() if known}}


def example_of(operation: str, name: str, known: Mapping[str, str], *, required: bool) -> Any:
    """Return what a parameter of `operation` may be; None where it is better left out."""
    own = PARAMETERS.get(operation, {})
    return own.get(name, known.get(name) if required else None)
