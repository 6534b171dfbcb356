"""Answers as examples, those of AgentOS 2.5.6 as far as they have the shape of what is here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...migrations.catalogue import CATALOGUE
from ...version import INTERFACE_VERSION

__all__ = ["EXAMPLES", "STARTED"]

STARTED: Final = 'event: RunStarted\ndata: {"event": "RunStarted", "run_id": "123..."}\n\n'
"""The beginning of a stream."""

_DB: Final = "main"
_MODEL: Final = {"name": "OpenAIChat", "model": "gpt-4o", "provider": "OpenAI"}
_AGENT: Final = {
    "id": "main-agent",
    "name": "Main Agent",
    "db_id": _DB,
    "model": _MODEL,
    "sessions": {"session_table": "sessions"},
    "is_component": False,
}
_TEAM: Final = {
    **_AGENT,
    "id": "basic-team",
    "name": "Basic Team",
    "mode": "coordinate",
    "members": [_AGENT],
}
_SESSION: Final[dict[str, Any]] = {
    "session_id": "6f6cfbfd-9643-479a-ae47-b8f32eb4d710",
    "session_name": "What tools do you have?",
    "session_state": {},
    "created_at": "2025-09-05T16:02:09Z",
    "updated_at": "2025-09-05T16:02:09Z",
}
_SPENT: Final = {"input_tokens": 134, "output_tokens": 26, "total_tokens": 160}
_DETAIL: Final = {
    "user_id": "123",
    "agent_session_id": _SESSION["session_id"],
    **_SESSION,
    "agent_id": "basic-agent",
    "total_tokens": 160,
    "agent_data": {
        "name": "Basic Agent",
        "agent_id": "basic-agent",
        "model": {"provider": "OpenAI", "name": "OpenAIChat", "id": "gpt-4o"},
    },
    "metrics": _SPENT,
    "chat_history": [
        {"role": "user", "content": "What tools do you have?", "created_at": 1757088129},
        {
            "role": "assistant",
            "content": "I don't have access to external tools.",
            "created_at": 1757088129,
        },
    ],
}
_NEW: Final[dict[str, Any]] = {
    "user_id": "user-123",
    "agent_session_id": "new-session-id",
    "session_id": "new-session-id",
    "session_name": "New Session",
    "session_state": {"key": "value"},
    "created_at": "2025-10-21T12:00:00Z",
    "updated_at": "2025-10-21T12:00:00Z",
    "agent_id": "agent-1",
    "total_tokens": 0,
    "metrics": {},
    "metadata": {"key": "value"},
    "chat_history": [],
}
_RUN: Final = {
    "run_id": "fcdf50f0-7c32-4593-b2ef-68a558774340",
    "parent_run_id": "",
    "agent_id": "basic-agent",
    "user_id": "user_123",
    "status": "COMPLETED",
    "run_input": "Which tools do you have access to?",
    "content": "I don't have access to external tools.",
    "run_response_format": "text",
    "reasoning_content": "",
    "metrics": {"input_tokens": 82, "output_tokens": 56, "total_tokens": 138, "duration": 4.84},
    "created_at": "2025-09-08T15:52:10Z",
    "session_state": {},
    "reasoning_steps": [],
    "messages": [
        {"role": "user", "content": "Which tools do you have access to?", "created_at": 1757346730}
    ],
    "tools": [],
    "references": [],
    "reasoning_messages": [],
    "images": [],
    "audio": [],
    "videos": [],
    "files": [],
    "input_media": {},
}

EXAMPLES: Final[Mapping[str, Any]] = {
    "get_api_info": {
        "name": "Legation",
        "id": "demo-os",
        "version": INTERFACE_VERSION,
        "health": "/health",
        "info": "/info",
        "docs": "/docs",
    },
    "health_check": {"status": "ok", "instantiated_at": "2025-06-10T12:00:00Z"},
    "get_models": [
        {"id": "gpt-4", "provider": "openai"},
        {"id": "claude-3-sonnet", "provider": "anthropic"},
    ],
    "get_agents": [_AGENT],
    "get_agent": _AGENT,
    "get_teams": [_TEAM],
    "get_team": _TEAM,
    "get_sessions": {
        "data": [_SESSION],
        "meta": {
            "page": 1,
            "limit": 20,
            "total_pages": 1,
            "total_count": 1,
            "search_time_ms": 0.0,
        },
    },
    "create_session": _NEW,
    "get_session_by_id": _DETAIL,
    "update_session": {**_DETAIL, "session_name": "Updated Session Name"},
    "rename_session": _DETAIL,
    "get_session_runs": [_RUN],
    "get_session_run": _RUN,
    "migrate_database": {
        "message": f"Database migrated successfully to version {CATALOGUE.latest}",
        "from_version": "2.5.0",
        "to_version": str(CATALOGUE.latest),
        "dry_run": False,
        "moves": [],
    },
}
"""What an operation answers, by its operation id."""
