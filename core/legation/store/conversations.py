"""Units of work on the conversations of channels: which session is the current one."""

from __future__ import annotations

from typing import Final

from ..values import frozen
from .units import Dialect, ReadUnit, Sql, Statements, Unit

__all__ = ["CurrentSession", "OpenSession"]

CURRENT: Final = Sql(
    """select session_id from sessions where owner = :owner
    and (session_id = :base or substr(session_id, 1, :length) = :prefix)
    order by created_us desc, session_id desc limit 1"""
)
OPEN: Final = Sql(
    """insert into sessions
        (owner, session_id, kind, component_id, created_us, updated_us)
    values (:owner, :session_id, :kind, :component_id, :now_us, :now_us)
    on conflict do nothing"""
)


@frozen
class CurrentSession(ReadUnit[str]):
    """The session a conversation is in: the one begun last, `base` when there is none yet."""

    owner: str
    base: str

    def statements(self, dialect: Dialect) -> Statements[str]:
        """Yield one read."""
        prefix = f"{self.base}#"
        rows = yield CURRENT(owner=self.owner, base=self.base, prefix=prefix, length=len(prefix))
        session_id: str = rows[0][0] if rows else self.base
        return session_id


@frozen
class OpenSession(Unit[None]):
    """Begin a session without a run, unless it is there."""

    owner: str
    session_id: str
    kind: str
    component_id: str
    now_us: int

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield one insert."""
        yield OPEN.of(self)
