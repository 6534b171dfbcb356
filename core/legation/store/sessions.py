"""Units of work on sessions.

Every statement names the owner: a row of somebody else is not found, by construction.  The few
for callers who see every owner are the ones whose names begin with `ANY_`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from attrs import field, fields

from ..values import frozen
from .run_rows import ACTIVE_RUN
from .units import Dialect, ReadUnit, Sql, Statements, Undo, Unit

__all__ = [
    "CreateSession",
    "DeleteSessions",
    "Deleted",
    "FetchSession",
    "ListSessions",
    "OwnersOf",
    "SessionChange",
    "SessionPage",
    "SessionRow",
    "SeveralOwners",
    "UpdateSession",
]


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


_NAMES: Final = tuple(field.name for field in fields(SessionRow))
_COLUMNS: Final = ", ".join(_NAMES)


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
# Two are as many as many: of several owners none is chosen.
ANY_FETCH: Final = Sql(f"select {_COLUMNS} from sessions where session_id = :session_id limit 2")


@frozen
class SeveralOwners:
    """Several others have a session of this id."""

    session_id: str


@frozen
class FetchSession(ReadUnit[SessionRow | SeveralOwners | None]):
    """The session with this id of the first of `owners` that has one, or None.

    `others` is for callers who see all owners: else that of the only owner.
    """

    session_id: str
    owners: tuple[str, ...]
    others: bool = False

    def statements(self, dialect: Dialect) -> Statements[SessionRow | SeveralOwners | None]:
        """Yield point reads, and the look for others."""
        for owner in self.owners:
            if rows := (yield FETCH.of(self, owner=owner)):
                return _row(rows[0])
        rows = (yield ANY_FETCH.of(self)) if self.others else ()
        if len(rows) > 1:
            return SeveralOwners(self.session_id)
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
_ONLY: Final = " and session_id = :only"
_NARROWED: Final = {
    (component, named, only): _COMPONENT * component + _NAMED * named + _ONLY * only
    for component in (False, True)
    for named in (False, True)
    for only in (False, True)
}
_ORDERS: Final = tuple(
    (column, order) for column in ("created_us", "updated_us") for order in ("asc", "desc")
)


def _page(where: str, column: str, order: str) -> Sql:
    by = f"{column} {order}, session_id {order}"
    columns = ", ".join(f"s.{name}" for name in _NAMES)
    return Sql(
        f"""select {columns} from sessions s join (
            select owner, session_id from sessions where {where}
            order by {by} limit :size offset :start
        ) as page on s.owner = page.owner and s.session_id = page.session_id
        order by s.{column} {order}, s.session_id {order}"""
    )


def _pages(where: str) -> Mapping[tuple[object, ...], Sql]:
    return {
        (*narrowed, *by): _page(where + more, *by)
        for narrowed, more in _NARROWED.items()
        for by in _ORDERS
    }


def _counts(where: str) -> Mapping[tuple[object, ...], Sql]:
    return {
        narrowed: Sql(f"select count(*) from sessions where {where}{more}")
        for narrowed, more in _NARROWED.items()
    }


LIST: Final = _pages(_OWNED)
COUNT: Final = _counts(_OWNED)
ANY_LIST: Final = _pages(_KIND)
ANY_COUNT: Final = _counts(_KIND)


@frozen
class ListSessions(ReadUnit[SessionPage]):
    """Sessions of `owner`, newest first or as asked; `page` counts from 1.

    `name` matches a part of the name, in any case of ASCII letters.  `any_owner` is for callers
    who see all owners; then `owner` None means all.  `only` is the id of the one session that the
    caller may see.
    """

    long: ClassVar[bool] = True

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

    def statements(self, dialect: Dialect) -> Statements[SessionPage]:
        """Yield the count and the page."""
        matching = {
            "owner": self.owner,
            "kind": self.kind,
            "component": self.component_id,
            "name": None if self.name is None else _pattern(self.name),
            "only": self.only,
        }
        narrowed = (self.component_id is not None, self.name is not None, self.only is not None)
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
    values (:owner, :session_id, :kind, :component_id, :name, :state, :metadata, :now_us, :now_us)
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

    def statements(self, dialect: Dialect) -> Statements[SessionRow | None | Undo[None]]:
        """Yield one insert."""
        rows = yield CREATE.of(self, state=json.dumps(self.state), metadata=_json(self.metadata))
        return _row(rows[0]) if rows else Undo(None)


def _json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(value)


UPDATE: Final = Sql(
    f"""update sessions set version = version + 1, updated_us = :now_us,
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

    def statements(self, dialect: Dialect) -> Statements[SessionRow | None | Undo[None]]:
        """Yield one update."""
        change = self.change
        documents = (change.state, change.metadata, change.summary)
        state, metadata, summary = map(_json, documents)
        rows = yield UPDATE.of(
            self, name=change.name, state=state, metadata=metadata, summary=summary
        )
        return _row(rows[0]) if rows else Undo(None)


LOCK: Final = Sql(
    """update sessions set version = version + 1 where owner = :owner and session_id = :session_id
    and (cast(:kind as text) is null or kind = :kind) returning session_id"""
)
# Whoever is storing events and steps just now is waited for, so that these go as well.
_UNFINISHED: Final = f"""select run_id from runs where owner = :owner and session_id = :session_id
    and {ACTIVE_RUN} order by run_no"""
UNFINISHED: Final = Sql(_UNFINISHED, f"{_UNFINISHED} for update")
DELETE_EVENTS: Final = Sql(
    """delete from events where run_id in (
        select run_id from runs where owner = :owner and session_id = :session_id)"""
)
DELETE_STEPS: Final = Sql(
    """delete from steps where run_id in (
        select run_id from runs where owner = :owner and session_id = :session_id)"""
)
DELETE_STATES: Final = Sql(
    "delete from session_states where owner = :owner and session_id = :session_id"
)
DELETE_RUNS: Final = Sql("delete from runs where owner = :owner and session_id = :session_id")
DELETE: Final = Sql("delete from sessions where owner = :owner and session_id = :session_id")


@frozen
class Deleted:
    """The deletion of sessions: their number, and those of their runs that were not over."""

    sessions: int
    runs: tuple[str, ...]


HAS: Final = Sql("select 1 from sessions where owner = :owner and session_id = :session_id")
ANY_OWNERS: Final = Sql("select owner from sessions where session_id = :session_id limit 2")


@frozen
class OwnersOf(ReadUnit[Mapping[str, str | SeveralOwners]]):
    """The owner whose session is to be deleted, by its id, as `FetchSession` finds it.

    One that has been deleted of its own lately means nobody else's: a deletion that is sent again
    deletes nothing more.
    """

    session_ids: tuple[str, ...]
    owners: tuple[str, ...]
    others: bool
    now_us: int

    def statements(self, dialect: Dialect) -> Statements[Mapping[str, str | SeveralOwners]]:
        """Yield, for each id, point reads, and the look for others."""
        found: dict[str, str | SeveralOwners] = {}
        for session_id in self.session_ids:
            owners = yield from self._owners(session_id)
            if owners:
                found[session_id] = owners[0] if len(owners) == 1 else SeveralOwners(session_id)
        return found

    def _owners(self, session_id: str) -> Statements[tuple[str, ...]]:
        """Return the owner who is meant; two where several may be."""
        for owner in self.owners:
            if (yield HAS(owner=owner, session_id=session_id)):
                return (owner,)
        if not self.others:
            return ()
        if (yield DELETED.of(self, owner=self.owners[0], key=session_id)):
            return ()
        return tuple(owner for (owner,) in (yield ANY_OWNERS(session_id=session_id)))


# A deletion of one's own is remembered among the idempotency keys, while others have the id.
_ROUTE: Final = "deleted session"
_REMEMBERED_US: Final = 86_400_000_000
REMEMBER: Final = Sql(
    f"""insert into idempotency (owner, route, key, fingerprint, created_us, expires_us)
    select :owner, '{_ROUTE}', :session_id, '', cast(:now_us as bigint), cast(:until_us as bigint)
    where exists (select 1 from sessions where session_id = :session_id)
    on conflict (owner, route, key) do update set expires_us = excluded.expires_us"""
)
DELETED: Final = Sql(
    f"""select 1 from idempotency
    where owner = :owner and route = '{_ROUTE}' and key = :key and expires_us > :now_us"""
)


@frozen
class DeleteSessions(Unit[Deleted]):
    """Delete sessions with their runs; each is an owner, an id, and a kind, or any if that is None.

    One that is absent is passed over.  An executor of a run that is gone has lost its lease.  They
    are taken in order, so that two who delete do not wait for each other.  `own` is the owner whose
    deletions are remembered: that of a caller who sees all and did not say whose is meant.
    """

    sessions: tuple[tuple[str, str, str | None], ...]
    own: str | None
    now_us: int

    def statements(self, dialect: Dialect) -> Statements[Deleted | Undo[Deleted]]:
        """Yield, for each session, its lock, what is unfinished in it, and the deletions."""
        gone = 0
        runs: list[str] = []
        for owner, session_id, kind in sorted(self.sessions, key=str):
            session = {"owner": owner, "session_id": session_id}
            if not (yield LOCK(**session, kind=kind)):
                continue
            runs += [row[0] for row in (yield UNFINISHED(**session))]
            for statement in (DELETE_EVENTS, DELETE_STEPS, DELETE_STATES, DELETE_RUNS, DELETE):
                yield statement(**session)
            if owner == self.own:
                until_us = self.now_us + _REMEMBERED_US
                yield REMEMBER.of(self, **session, until_us=until_us)
            gone += 1
        deleted = Deleted(gone, tuple(runs))
        return deleted if gone else Undo(deleted)
