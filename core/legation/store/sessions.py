"""Units of work on sessions.

Every statement names the owner: a row of somebody else is not found, by construction.  The few
for callers who see every owner are the ones whose names begin with `ANY_`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from attrs import field, fields

from ..values import frozen
from .run_rows import ACTIVE_RUN
from .units import Dialect, ReadUnit, Sql, Statements, Undo, Unit

__all__ = [
    "SESSION_COLUMNS",
    "CreateSession",
    "DeleteSessions",
    "Deleted",
    "FetchSession",
    "OwnersOf",
    "SessionChange",
    "SessionRow",
    "SeveralOwners",
    "UpdateSession",
    "to_session",
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


SESSION_COLUMNS: Final = ", ".join(field.name for field in fields(SessionRow))
"""The columns of a `SessionRow`, in its order."""


def to_session(columns: tuple[Any, ...]) -> SessionRow:
    """Return the session of a row of `SESSION_COLUMNS`."""
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
    f"select {SESSION_COLUMNS} from sessions where owner = :owner and session_id = :session_id"
)
# Two are as many as many: of several owners none is chosen.
ANY_FETCH: Final = Sql(
    f"select {SESSION_COLUMNS} from sessions where session_id = :session_id limit 2"
)


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
                return to_session(rows[0])
        rows = (yield ANY_FETCH.of(self)) if self.others else ()
        if len(rows) > 1:
            return SeveralOwners(self.session_id)
        return to_session(rows[0]) if rows else None


# --- Changing ----------------------------------------------------------------------------------

CREATE: Final = Sql(
    f"""insert into sessions
        (owner, session_id, kind, component_id, name, state, metadata, created_us, updated_us)
    values (:owner, :session_id, :kind, :component_id, :name, :state, :metadata, :now_us, :now_us)
    on conflict (owner, session_id) do nothing returning {SESSION_COLUMNS}"""
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
        return to_session(rows[0]) if rows else Undo(None)


def _json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(value)


UPDATE: Final = Sql(
    f"""update sessions set version = version + 1, updated_us = :now_us,
        name = coalesce(cast(:name as text), name),
        state = coalesce(cast(:state as text), state),
        metadata = coalesce(cast(:metadata as text), metadata),
        summary = coalesce(cast(:summary as text), summary)
    where owner = :owner and session_id = :session_id returning {SESSION_COLUMNS}"""
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
        return to_session(rows[0]) if rows else Undo(None)


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
