"""The number of an owner's sessions, most of which is kept.

A row of `session_counts` has how many sessions of an owner and a kind were created until a time:
only those behind it are counted when somebody asks.  Who has few sessions has no row.

Triggers of the schema change a row with each session that is deleted, changes its kind, or was
created before the row's time, as one that is imported.  They also see what older nodes do.  A new
session changes nothing, so that a run writes no page more.
"""

from __future__ import annotations

from typing import Final

from ..values import frozen
from .units import Dialect, Sql, Statements, Unit

__all__ = ["COUNT", "KEEP", "LOCK", "MOST_COUNTED", "KeepSessionCount", "count_sessions"]

MOST_COUNTED: Final = 256
"""So many sessions that were not kept are counted quickly: in 12 microseconds."""

_BEGINNING_US: Final = -(1 << 62)
_OF: Final = "owner = :owner and kind = :kind"
_UNTIL: Final = f"select until_us from session_counts where {_OF}"
_BEHIND: Final = f"coalesce(({_UNTIL}), {_BEGINNING_US})"
# The order and the limit lead PostgreSQL to the index: it takes the newest for a third of all.
COUNT: Final = Sql(
    f"""select coalesce((select sessions from session_counts where {_OF}), 0),
        (select count(*) from (
            select 1 from sessions where {_OF} and created_us > {_BEHIND}
            order by created_us desc limit {MOST_COUNTED + 1}) as newest)"""
)


def count_sessions(owner: str | None, kind: str) -> Statements[int | None]:
    """Return how many sessions the owner has, or None where too many of them were not kept."""
    ((kept, counted),) = yield COUNT(owner=owner, kind=kind)
    return None if counted > MOST_COUNTED else kept + counted


# A transaction that changed a session has this lock from the time at which its trigger looks for a
# row, until it is over.  So either it is over here, or its trigger finds the row that is kept here.
LOCK: Final = Sql(
    "lock table session_counts in share row exclusive mode", registered=False, unread=True
)
UNTIL: Final = Sql(_UNTIL)
KEEP: Final = Sql(
    f"""insert into session_counts (owner, kind, until_us, sessions)
    select owner, kind, max(created_us), count(*) from sessions
    where {_OF} and created_us > :until_us group by owner, kind
    on conflict (owner, kind) do update set until_us = excluded.until_us,
        sessions = session_counts.sessions + excluded.sessions"""
)


@frozen
class KeepSessionCount(Unit[None]):
    """Keep the number of the sessions that the owner has now."""

    owner: str
    kind: str

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield the lock, a look for the row, and what adds the sessions behind it."""
        if dialect is Dialect.POSTGRESQL:
            yield LOCK()
        rows = yield UNTIL.of(self)
        yield KEEP.of(self, until_us=rows[0][0] if rows else _BEGINNING_US)
