"""Units of work on sessions.

Every statement names the owner: a row of somebody else is not found, by construction.  The few
for callers who see every owner are the ones whose names begin with `ANY_`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from attrs import frozen

from .units import Dialect, Sql, Statements, Undo, Unit

__all__ = ["FetchSession", "ListSessions", "SessionPage", "SessionRow"]

_COLUMNS: Final = (
    "owner, session_id, kind, component_id, name, state, metadata, summary, runs,"
    " created_us, updated_us"
)


@frozen
class SessionRow:
    """One session, without its runs; times in microseconds since the epoch."""

    owner: str
    session_id: str
    kind: str
    component_id: str
    name: str | None
    state: Mapping[str, Any]
    metadata: Mapping[str, Any] | None
    summary: Mapping[str, Any] | None
    runs: int
    created_us: int
    updated_us: int


def _row(columns: tuple[Any, ...]) -> SessionRow:
    owner, session_id, kind, component, name, state, metadata, summary, *numbers = columns
    return SessionRow(
        owner,
        session_id,
        kind,
        component,
        name,
        json.loads(state),
        None if metadata is None else json.loads(metadata),
        None if summary is None else json.loads(summary),
        *numbers,
    )


FETCH: Final = Sql(
    f"select {_COLUMNS} from sessions where owner = :owner and session_id = :session_id"
)
# Whoever sees every owner may name one; of several with this id the one last used is meant.
ANY_FETCH: Final = Sql(
    f"""select {_COLUMNS} from sessions where session_id = :session_id
    and (cast(:owner as text) is null or owner = :owner) order by updated_us desc limit 1"""
)


@frozen
class FetchSession(Unit[SessionRow | None]):
    """The session with this id, or None.

    `owner` None, or `any_owner`, is for callers who see all owners.
    """

    writes: ClassVar[bool] = False

    session_id: str
    owner: str | None
    any_owner: bool = False

    def statements(
        self, dialect: Dialect
    ) -> Statements[SessionRow | None | Undo[SessionRow | None]]:
        """Yield one point read."""
        statement = ANY_FETCH if self.any_owner else FETCH
        rows = yield statement(owner=self.owner, session_id=self.session_id)
        return _row(rows[0]) if rows else None


@frozen
class SessionPage:
    """One page of sessions and how many there are in all."""

    rows: tuple[SessionRow, ...]
    total: int


_FILTER: Final = """ kind = :kind
    and (cast(:component as text) is null or component_id = :component)
    and (cast(:name as text) is null or lower(name) like :name escape '\\')"""
_ORDERS: Final = {
    (column, order): f"order by {column} {order}, session_id {order} limit :size offset :start"
    for column in ("created_us", "updated_us")
    for order in ("asc", "desc")
}
LIST: Final = {
    key: Sql(f"select {_COLUMNS} from sessions where owner = :owner and {_FILTER} {order}")
    for key, order in _ORDERS.items()
}
COUNT: Final = Sql(f"select count(*) from sessions where owner = :owner and {_FILTER}")
ANY_LIST: Final = {
    key: Sql(
        f"""select {_COLUMNS} from sessions
        where (cast(:owner as text) is null or owner = :owner) and {_FILTER} {order}"""
    )
    for key, order in _ORDERS.items()
}
ANY_COUNT: Final = Sql(
    f"""select count(*) from sessions
    where (cast(:owner as text) is null or owner = :owner) and {_FILTER}"""
)


@frozen
class ListSessions(Unit[SessionPage]):
    """Sessions of `owner`, newest first or as asked; `page` counts from 1.

    `name` matches a part of the name, in any case of ASCII letters.  `any_owner` is for callers
    who see all owners; then `owner` None means all.
    """

    writes: ClassVar[bool] = False

    owner: str | None
    kind: str
    component_id: str | None = None
    name: str | None = None
    page: int = 1
    size: int = 20
    sort_by: str = "created_us"
    order: str = "desc"
    any_owner: bool = False

    def statements(self, dialect: Dialect) -> Statements[SessionPage | Undo[SessionPage]]:
        """Yield the count and the page."""
        matching = {
            "owner": self.owner,
            "kind": self.kind,
            "component": self.component_id,
            "name": None if self.name is None else _pattern(self.name),
        }
        key = (self.sort_by, self.order)
        ((total,),) = yield (ANY_COUNT if self.any_owner else COUNT)(**matching)
        rows = yield (ANY_LIST if self.any_owner else LIST)[key](
            **matching, size=self.size, start=(self.page - 1) * self.size
        )
        return SessionPage(tuple(_row(row) for row in rows), total)


def _pattern(part: str) -> str:
    """Return the LIKE pattern for `part`, its own wildcards escaped."""
    escaped = part.lower()
    for special in ("\\", "%", "_"):
        escaped = escaped.replace(special, "\\" + special)
    return f"%{escaped}%"
