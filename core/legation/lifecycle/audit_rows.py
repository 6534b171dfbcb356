"""Rows of the audit trail of versions up to 2.11.0 on their way into pages, some at a time."""

from __future__ import annotations

from typing import Any, Final

from attrs import field

from ..effects import Log, Now, Program, Sleep, Transact
from ..runs.membership import Cluster
from ..runs.rounds import Pause, RoundJob
from ..store.audit_moving import MoveOldRows
from ..values import frozen

__all__ = ["MoveAuditRows"]

_ROUND_SECONDS: Final = 600.0


@frozen
class MoveAuditRows(RoundJob):
    """Move the old rows of one database into pages, a thousand of one chain at a time.

    Nodes for 2.11.0 may still write rows beside it, and other nodes move them as well.
    """

    cluster: Cluster = field(eq=False, repr=False)
    database: str

    @property
    def pause(self) -> Pause:
        """Wait for ten minutes: what is not moved yet is listed and verified as well."""
        return Sleep(_ROUND_SECONDS)

    def log_trouble(self, level: str, fields: tuple[tuple[str, Any], ...]) -> Log:
        """Return the line of the log for a round that failed."""
        return Log(level, "audit_rows_failed", fields)

    def round(self) -> Program[bool]:
        """Move some; return whether there may be more."""
        now_us, key = (yield from Now()), self.cluster.trail_keys.signing
        return bool((yield from Transact(self.database, MoveOldRows(now_us, key))))
