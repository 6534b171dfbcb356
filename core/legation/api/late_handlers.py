"""The functions of handlers whose module is imported when one of them is asked for first.

For a type checker the names are those of the modules.  Here each is a `LateModule`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import handlers
from .late_functions import LateModule

if TYPE_CHECKING:
    from .handlers import (
        access,
        all_runs,
        approvals,
        audit,
        audit_export,
        channels,
        config,
        console,
        databases,
        docs,
        forks,
        incidents,
        letters,
        metrics,
        nodes,
        outgoing,
        refusals,
        replays,
        run_changes,
        run_summary,
        session_export,
        sessions,
        users,
        webhooks,
    )
else:

    def __getattr__(name: str) -> Any:
        """Return what stands for the module `name` of handlers.

        Raises:
            AttributeError: There is none of that name, or it is not late.
        """
        if name not in handlers.LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return LateModule(handlers, name)


__all__ = [
    "access",
    "all_runs",
    "approvals",
    "audit",
    "audit_export",
    "channels",
    "config",
    "console",
    "databases",
    "docs",
    "forks",
    "incidents",
    "letters",
    "metrics",
    "nodes",
    "outgoing",
    "refusals",
    "replays",
    "run_changes",
    "run_summary",
    "session_export",
    "sessions",
    "users",
    "webhooks",
]
