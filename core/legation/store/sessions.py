"""Units of work on sessions.

Every statement names the owner: a row of somebody else is not found, by construction.  The few
for callers who see every owner are the ones whose names begin with `ANY_`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from attrs import field

from ..values import frozen
from .units import Dialect, Sql, Statements, Undo, Unit

__all__ = [
    "CreateSession",
    "DeleteSessions",
    "Deleted",
    "FetchSession",
    "ListSessions",
    "SessionChange",
    "SessionPage",
    "SessionRow",
    "UpdateSession",
]

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


# What a page may be narrowed by.  A condition stands in the text only where it is asked for, so
# that an index serves the rest: `count` reads nothing else, and the keys of a page far back are
# found before its rows are read.
_KIND: Final = "kind = :kind"
_OWNED: Final = f"owner = :owner and {_KIND}"
_COMPONENT: Final = " and component_id = :component"
_NAMED: Final = " and lower(name) like :name escape '\\'"
_NARROWED: Final = {
    (component, named): _COMPONENT * component + _NAMED * named
    for component in (False, True)
    for named in (False, True)
}
_ORDERS: Final = tuple(
    (column, order) for column in ("created_us", "updated_us") for order in ("asc", "desc")
)


def _page(where: str, column: str, order: str) -> Sql:
    by = f"{column} {order}, session_id {order}"
    columns = ", ".join(f"s.{name.strip()}" for name in _COLUMNS.split(","))
    return Sql(
        f"""select {columns} from sessions s join (
            select owner, session_id from sessions where {where}
            order by {by} limit :size offset :start
        ) as page on s.owner = page.owner and s.session_id = page.session_id
        order by s.{column} {order}, s.session_id {order}"""
    )


LIST: Final = {
    (*narrowed, *by): _page(_OWNED + more, *by)
    for narrowed, more in _NARROWED.items()
    for by in _ORDERS
}
COUNT: Final = {
    narrowed: Sql(f"select count(*) from sessions where {_OWNED}{more}")
    for narrowed, more in _NARROWED.items()
}
ANY_LIST: Final = {
    (*narrowed, *by): _page(_KIND + more, *by)
    for narrowed, more in _NARROWED.items()
    for by in _ORDERS
}
ANY_COUNT: Final = {
    narrowed: Sql(f"select count(*) from sessions where {_KIND}{more}")
    for narrowed, more in _NARROWED.items()
}

ONLY: Final = {
    narrowed: Sql(f"select {_COLUMNS} from sessions where {_OWNED} and session_id = :only{more}")
    for narrowed, more in _NARROWED.items()
}
ANY_ONLY: Final = {
    narrowed: Sql(
        f"""select {_COLUMNS} from sessions where {_KIND} and session_id = :only{more}
        and (cast(:owner as text) is null or owner = :owner) order by updated_us desc limit 1"""
    )
    for narrowed, more in _NARROWED.items()
}


@frozen
class ListSessions(Unit[SessionPage]):
    """Sessions of `owner`, newest first or as asked; `page` counts from 1.

    `name` matches a part of the name, in any case of ASCII letters.  `any_owner` is for callers
    who see all owners; then `owner` None means all.  `only` is the one session that the caller may
    see, of those that match.
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
    only: str | None = None

    def statements(self, dialect: Dialect) -> Statements[SessionPage | Undo[SessionPage]]:
        """Yield the count and the page; of one session alone, that."""
        matching = {
            "owner": self.owner,
            "kind": self.kind,
            "component": self.component_id,
            "name": None if self.name is None else _pattern(self.name),
        }
        narrowed = (self.component_id is not None, self.name is not None)
        if self.only is not None:
            one = (ANY_ONLY if self.any_owner else ONLY)[narrowed]
            found = yield one(**matching, only=self.only)
            return SessionPage(tuple(_row(row) for row in found if self.page == 1), len(found))
        everybody = self.any_owner and self.owner is None
        ((total,),) = yield (ANY_COUNT if everybody else COUNT)[narrowed](**matching)
        rows = yield (ANY_LIST if everybody else LIST)[(*narrowed, self.sort_by, self.order)](
            **matching, size=self.size, start=(self.page - 1) * self.size
        )
        return SessionPage(tuple(_row(row) for row in rows), total)


def _pattern(part: str) -> str:
    """Return the LIKE pattern for `part`, its own wildcards escaped."""
    escaped = part.lower()
    for special in ("\\", "%", "_"):
        escaped = escaped.replace(special, "\\" + special)
    return f"%{escaped}%"


# --- Changing ----------------------------------------------------------------------------------

CREATE: Final = Sql(
    f"""insert into sessions
        (owner, session_id, kind, component_id, name, state, metadata, created_us, updated_us)
    values (:owner, :session_id, :kind, :component_id, :name, :state, :metadata, :now, :now)
    on conflict (owner, session_id) do nothing returning {_COLUMNS}"""
)


@frozen
class CreateSession(Unit[SessionRow | None]):
    """A new session without runs; None when the owner has one of this id, which stays as it is."""

    owner: str
    session_id: str
    kind: str
    component_id: str
    now_us: int
    name: str | None = None
    state: Mapping[str, Any] = field(factory=dict[str, Any])
    metadata: Mapping[str, Any] | None = None

    def statements(self, dialect: Dialect) -> Statements[SessionRow | None | Undo[Any]]:
        """Yield one insert."""
        rows = yield CREATE(
            owner=self.owner,
            session_id=self.session_id,
            kind=self.kind,
            component_id=self.component_id,
            name=self.name,
            state=json.dumps(self.state),
            metadata=_json(self.metadata),
            now=self.now_us,
        )
        return _row(rows[0]) if rows else Undo(None)


def _json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(value)


UPDATE: Final = Sql(
    f"""update sessions set version = version + 1, updated_us = :now,
        name = coalesce(cast(:name as text), name),
        state = coalesce(cast(:state as text), state),
        metadata = coalesce(cast(:metadata as text), metadata),
        summary = coalesce(cast(:summary as text), summary)
    where owner = :owner and session_id = :session_id returning {_COLUMNS}"""
)


@frozen
class SessionChange:
    """New values, each in place of the old one; None leaves it as it is."""

    name: str | None = None
    state: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None
    summary: Mapping[str, Any] | None = None


@frozen
class UpdateSession(Unit[SessionRow | None]):
    """The session after `change`, or None when there is none."""

    owner: str
    session_id: str
    change: SessionChange
    now_us: int

    def statements(self, dialect: Dialect) -> Statements[SessionRow | None | Undo[Any]]:
        """Yield one update."""
        rows = yield UPDATE(
            owner=self.owner,
            session_id=self.session_id,
            name=self.change.name,
            state=_json(self.change.state),
            metadata=_json(self.change.metadata),
            summary=_json(self.change.summary),
            now=self.now_us,
        )
        return _row(rows[0]) if rows else Undo(None)


LOCK: Final = Sql(
    """update sessions set version = version + 1 where owner = :owner and session_id = :session_id
    and (cast(:kind as text) is null or kind = :kind) returning session_id"""
)
ANY_LOCK: Final = Sql(
    """update sessions set version = version + 1 where session_id = :session_id and owner = (
        select owner from sessions where session_id = :session_id
        and (cast(:owner as text) is null or owner = :owner)
        and (cast(:kind as text) is null or kind = :kind) order by updated_us desc limit 1)
    returning owner"""
)
UNFINISHED: Final = Sql(
    """select run_id from runs where owner = :owner and session_id = :session_id
    and status in ('PENDING', 'RUNNING')"""
)
DELETE_EVENTS: Final = Sql(
    """delete from events where run_id in (
        select run_id from runs where owner = :owner and session_id = :session_id)"""
)
DELETE_RUNS: Final = Sql("delete from runs where owner = :owner and session_id = :session_id")
DELETE: Final = Sql("delete from sessions where owner = :owner and session_id = :session_id")


@frozen
class Deleted:
    """How many sessions are gone, and which of their runs were not over."""

    sessions: int
    runs: tuple[str, ...]


@frozen
class DeleteSessions(Unit[Deleted]):
    """Delete sessions with their runs; each is an id and a kind, or any kind if that is None.

    One that is absent is passed over.  An executor of a run that is gone has lost its lease.  Ids
    are taken in order, so that two who delete do not wait for each other.
    """

    owner: str | None
    sessions: tuple[tuple[str, str | None], ...]
    any_owner: bool = False

    def statements(self, dialect: Dialect) -> Statements[Deleted | Undo[Deleted]]:
        """Yield, for each session, its lock, what is unfinished in it, and the deletions."""
        gone = 0
        runs: list[str] = []
        for session_id, kind in sorted(self.sessions, key=str):
            for owner in (yield from self._locked(session_id, kind)):
                session = {"owner": owner, "session_id": session_id}
                runs += [row[0] for row in (yield UNFINISHED(**session))]
                for statement in (DELETE_EVENTS, DELETE_RUNS, DELETE):
                    yield statement(**session)
                gone += 1
        deleted = Deleted(gone, tuple(runs))
        return deleted if gone else Undo(deleted)

    def _locked(self, session_id: str, kind: str | None) -> Statements[tuple[str, ...]]:
        """Return the owner whose session of this id is meant, if there is one."""
        wanted = {"owner": self.owner, "session_id": session_id, "kind": kind}
        if self.any_owner:
            return tuple(row[0] for row in (yield ANY_LOCK(**wanted)))
        return (self.owner or "",) if (yield LOCK(**wanted)) else ()
