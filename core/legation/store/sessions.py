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
from .copies import erase_answers_of, erase_letters
from .run_rows import ACTIVE_RUN, NEW_VERSION
from .session_state import RETURNED_STATE
from .units import Dialect, ReadUnit, Rows, Sql, Statements, Undo, Unit
from .usage import NOBODY, add_usage, count_octets, keeper_of

__all__ = [
    "RETURNED_SESSION",
    "SESSION_COLUMNS",
    "CreateSession",
    "DeleteSessions",
    "Deleted",
    "FetchSession",
    "NoRoom",
    "OwnersOf",
    "SessionChange",
    "SessionRow",
    "SeveralOwners",
    "UpdateSession",
    "delete_session",
    "find_keeper",
    "has_room",
    "read_session",
    "to_session",
]


@frozen
class SessionRow:
    """One session, without its runs; times in microseconds since the epoch.

    `last_status` is the state of the newest run of a session that is listed.
    """

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
    last_status: str | None = None


SESSION_COLUMNS: Final = ", ".join(field.name for field in fields(SessionRow)[:-1])
"""The columns of a `SessionRow`, in its order, without that of its runs."""

RETURNED_SESSION: Final = SESSION_COLUMNS.replace(" state,", f" {RETURNED_STATE},")
"""They as an insert or an update returns them."""

_STATE: Final = SESSION_COLUMNS.split(", ").index("state")


def to_session(columns: tuple[Any, ...]) -> SessionRow:
    """Return the session of a row of `SESSION_COLUMNS`, and of its `last_status` behind them."""
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
        (owner, session_id, kind, component_id, name, state, metadata, bytes, version, created_us,
        updated_us)
    values (:owner, :session_id, :kind, :component_id, :name, :state, :metadata, :bytes,
        {NEW_VERSION}, :now_us, :now_us)
    on conflict (owner, session_id) do nothing returning {RETURNED_SESSION}"""
)


KEPT: Final = Sql("select bytes from usage where subject = :owner")


@frozen
class NoRoom:
    """The owner keeps as many bytes as it may: nothing was stored."""


def has_room(owner: str, size: int, most: int | None) -> Statements[bool]:
    """Yield the look whether `owner` may keep `size` bytes more, of `most` in all."""
    if most is None or size <= 0:
        return True
    kept = yield KEPT(owner=owner)
    return size + (kept[0][0] if kept else 0) <= most


@frozen
class CreateSession(Unit[SessionRow | NoRoom | None]):
    """A new session without runs; None when the owner has one of this id, which stays as it is.

    `subject` is whose share its bytes take where the owner is nobody: of those nothing is given
    back, as nobody can delete it.  `stored_bytes` is how many may be kept.
    """

    owner: str
    session_id: str
    kind: str
    component_id: str
    now_us: int
    name: str | None = None
    state: Mapping[str, Any] = field(factory=dict[str, Any])
    metadata: Mapping[str, Any] | None = None
    subject: str | None = None
    stored_bytes: int | None = None

    def statements(
        self, dialect: Dialect
    ) -> Statements[SessionRow | Undo[SessionRow | NoRoom | None]]:
        """Yield one insert, and the count of what it stores."""
        state, metadata = json.dumps(self.state), _json(self.metadata)
        size, keeper = count_octets((state, metadata)), keeper_of(self.owner, self.subject)
        kept = size if keeper == self.owner else 0
        rows = yield CREATE.of(self, state=state, metadata=metadata, bytes=kept)
        if not rows:
            return Undo(None)
        if not (yield from has_room(keeper, size, self.stored_bytes)):
            return Undo(NoRoom())
        yield from add_usage(keeper, size, keeper, 0, self.now_us)
        return (yield from read_session(rows))


def read_session(returned: Rows) -> Statements[SessionRow]:
    """Return the session of a row of `RETURNED_SESSION`; yield a read where its state is long."""
    row = returned[0]
    if row[_STATE] is None:
        (row,) = yield FETCH(owner=row[0], session_id=row[1])
    return to_session(row)


def _json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(value)


UPDATE: Final = Sql(
    f"""update sessions set version = version + 1, updated_us = :now_us, bytes = bytes + :bytes,
        name = coalesce(cast(:name as text), name),
        state = coalesce(cast(:state as text), state),
        metadata = coalesce(cast(:metadata as text), metadata),
        summary = coalesce(cast(:summary as text), summary)
    where owner = :owner and session_id = :session_id returning {RETURNED_SESSION}"""
)


@frozen
class SessionChange:
    """New values, each in place of the old one; None leaves it as it is."""

    name: str | None = None
    state: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None
    summary: Mapping[str, Any] | None = None


_BEFORE: Final = "from sessions where owner = :owner and session_id = :session_id"
BEFORE: Final = Sql(
    f"""select coalesce(length(cast(metadata as blob)), 0),
        coalesce(length(cast(summary as blob)), 0) {_BEFORE}""",
    f"""select coalesce(octet_length(metadata), 0), coalesce(octet_length(summary), 0) {_BEFORE}
        for update""",
)


_NEWEST_SUMMARY: Final = """select run_no, {} from session_summaries
    where owner = :owner and session_id = :session_id order by run_no desc limit 1"""
NEWEST_SUMMARY: Final = Sql(
    _NEWEST_SUMMARY.format("length(cast(summary as blob))"),
    _NEWEST_SUMMARY.format("octet_length(summary)"),
)
SET_SUMMARY: Final = Sql(
    """update session_summaries set summary = :text, model = '', at_us = :now_us
    where owner = :owner and session_id = :session_id and run_no = :run_no"""
)


@frozen
class UpdateSession(Unit[SessionRow | NoRoom | None]):
    """The session after `change`, or None when there is none.

    A `summary` among the members of the summary is the text of the newest one that a run made.
    The bytes are those of the new documents in place of the old ones; but a state that was counted
    stays so, since a run may have left it.  `stored_bytes` is how many its owner may keep.
    """

    owner: str
    session_id: str
    change: SessionChange
    now_us: int
    stored_bytes: int | None = None

    def statements(
        self, dialect: Dialect
    ) -> Statements[SessionRow | Undo[SessionRow | NoRoom | None]]:
        """Yield a look, the update, and the count of what it stores."""
        change = self.change
        documents = (change.state, change.metadata, change.summary)
        state, metadata, summary = map(_json, documents)
        before = yield BEFORE.of(self)
        if not before:
            return Undo(None)
        size = count_octets((state, metadata, summary))
        for text, old in zip((metadata, summary), before[0], strict=True):
            size -= 0 if text is None else old
        said = (change.summary or {}).get("summary")
        made = (yield NEWEST_SUMMARY.of(self)) if isinstance(said, str) else ()
        if made:
            size += count_octets((said,)) - made[0][1]
        if not (yield from has_room(self.owner, size, self.stored_bytes)):
            return Undo(NoRoom())
        if made:
            yield SET_SUMMARY.of(self, run_no=made[0][0], text=said)
        rows = yield UPDATE.of(
            self, name=change.name, state=state, metadata=metadata, summary=summary, bytes=size
        )
        if size:
            yield from add_usage(self.owner, size, self.owner, 0, self.now_us)
        return (yield from read_session(rows))


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
DELETE_SUMMARIES: Final = Sql(
    "delete from session_summaries where owner = :owner and session_id = :session_id"
)
DELETE_RUNS: Final = Sql("delete from runs where owner = :owner and session_id = :session_id")
DELETE: Final = Sql(
    "delete from sessions where owner = :owner and session_id = :session_id returning bytes"
)
SUBJECT: Final = Sql(
    """select subject from runs where owner = :owner and session_id = :session_id
    and subject is not null limit 1"""
)


_DELETIONS: Final = (DELETE_EVENTS, DELETE_STEPS, DELETE_STATES, DELETE_SUMMARIES, DELETE_RUNS)


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

    With them go the copies of what was said in them (`copies`).
    One that is absent is passed over.  An executor of a run that is gone has lost its lease.  They
    are taken in order, so that two who delete do not wait for each other.  `own` is the owner whose
    deletions are remembered: that of a caller who sees all and did not say whose is meant.
    """

    sessions: tuple[tuple[str, str, str | None], ...]
    own: str | None
    now_us: int

    def statements(self, dialect: Dialect) -> Statements[Deleted | Undo[Deleted]]:
        """Yield, for each session, its lock, what is unfinished in it, and the deletions.

        What is counted for them is given back to their owners.
        """
        gone, runs, back = 0, list[str](), dict[str, int]()
        for owner, session_id, kind in sorted(self.sessions, key=str):
            session = {"owner": owner, "session_id": session_id}
            if not (yield LOCK(**session, kind=kind)):
                continue
            runs += [row[0] for row in (yield UNFINISHED(**session))]
            keeper, size = yield from delete_session(dialect, owner, session_id)
            back[keeper] = back.get(keeper, 0) + size
            if owner == self.own:
                until_us = self.now_us + _REMEMBERED_US
                yield REMEMBER.of(self, **session, until_us=until_us)
            gone += 1
        for keeper, size in sorted(back.items()):
            yield from add_usage(keeper, -size, keeper, 0, self.now_us)
        deleted = Deleted(gone, tuple(runs))
        return deleted if gone else Undo(deleted)


def delete_session(dialect: Dialect, owner: str, session_id: str) -> Statements[tuple[str, int]]:
    """Yield the deletion of a session that is locked; return whose bytes it kept, and how many."""
    session = {"owner": owner, "session_id": session_id}
    keeper = yield from find_keeper(owner, session_id)
    yield from erase_letters(dialect, owner, session_id)
    for statement in _DELETIONS:
        yield statement(**session)
    ((size,),) = yield DELETE(**session)
    yield from erase_answers_of(owner, "session_id", session_id)
    return keeper, size


def find_keeper(owner: str, session_id: str) -> Statements[str]:
    """Return whom the bytes of a session are counted for."""
    if not owner.startswith(NOBODY):
        return owner
    subjects = yield SUBJECT(owner=owner, session_id=session_id)
    return subjects[0][0] if subjects else owner
