"""The ledger: a row for each move of the schema, never changed and never deleted.

The version of a database is the fold of its ledger.  Going down is a new row as going up is, so
the history that people read is the one that the planner trusts.  The row is written in the
transaction of the move itself: there is no state in which one is there without the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, ClassVar, Final

from attrs import fields

from ..store.units import Dialect, ReadUnit, Rows, Sql, Statements
from ..values import frozen
from .catalogue import Catalogue
from .schema_version import EMPTY, MalformedVersion, Version, parse_version

__all__ = [
    "Assessment",
    "Corrupt",
    "Entry",
    "Fit",
    "LedgerReading",
    "ReadLedger",
    "ReadServedLedger",
    "State",
    "add_entry",
    "assess_state",
    "create_ledger",
    "drift",
    "entries_of",
    "find_attempt",
    "fold",
    "history",
    "read_state",
]

# `step` of `steps` is always 1 of 1: all steps of a move are one transaction.  An engine whose
# changes of the schema cannot be rolled back would need a row for each step.
_CREATE: Final = Sql(
    """
    create table if not exists schema_ledger (
        seq bigint not null,
        from_version text not null,
        to_version text not null,
        seal text not null,
        serves text not null,
        actor text not null,
        node text not null,
        request_id text not null,
        attempt text not null,
        at_us bigint not null,
        step bigint not null default 1,
        steps bigint not null default 1,
        primary key (seq),
        unique (attempt)
    )
    """,
    registered=False,
)

# Only in the schema where a table would be made: another one on the search path has a history,
# too, and it is not ours.
_EXISTS: Final = Sql(
    "select 1 from sqlite_master where type = 'table' and name = 'schema_ledger'",
    "select 1 where to_regclass(quote_ident(current_schema()) || '.schema_ledger') is not null",
)


@frozen
class Entry:
    """One row of the ledger.

    Attributes:
        seq: From 1, without gaps.
        seal: The catalogue's seal of `to_version`.
        serves: The oldest code that may serve `to_version`.
        actor: Who asked: the subject of a token, or the name of a command.
        attempt: Random, so that whoever wrote the row knows it again.
        at_us: When it was asked for, in microseconds since the epoch.
    """

    seq: int
    from_version: Version
    to_version: Version
    seal: str
    serves: Version
    actor: str
    node: str
    request_id: str
    attempt: str
    at_us: int


_NAMES: Final = tuple(field.name for field in fields(Entry))
_COLUMNS: Final = ", ".join(_NAMES)
_READ: Final = Sql(f"select {_COLUMNS} from schema_ledger order by seq")
_FIND: Final = Sql(f"select {_COLUMNS} from schema_ledger where attempt = :attempt")
_ADD: Final = Sql(
    f"insert into schema_ledger ({_COLUMNS}) values ({', '.join(f':{name}' for name in _NAMES)})"
)


@frozen
class State:
    """The state of a database: the last row of its ledger, or the empty database."""

    version: Version = EMPTY
    seal: str = ""
    serves: Version = EMPTY
    seq: int = 0


@frozen
class Corrupt:
    """The ledger contradicts itself: it was changed by other hands."""

    reason: str

    @property
    def detail(self) -> str:
        """One sentence for the caller."""
        return f"The ledger of the schema contradicts itself: {self.reason}"


def entries_of(rows: Rows) -> tuple[Entry, ...] | Corrupt:
    """Return rows of the ledger as entries."""
    entries: list[Entry] = []
    for row in rows:
        entry = _entry(row)
        if entry is None:
            return Corrupt(f"row {row[0]!a} cannot be read")
        entries.append(entry)
    return tuple(entries)


def _entry(row: tuple[Any, ...]) -> Entry | None:
    """Return the entry in `row`, or None: SQLite lets any type into any column."""
    seq, from_text, to_text, seal, serves_text, actor, node, request_id, attempt, at_us = row
    texts = (from_text, to_text, seal, serves_text, actor, node, request_id, attempt)
    if type(seq) is not int or type(at_us) is not int or {*map(type, texts)} != {str}:
        return None
    from_, to, serves = map(parse_version, (from_text, to_text, serves_text))
    if (
        isinstance(from_, MalformedVersion)
        or isinstance(to, MalformedVersion)
        or isinstance(serves, MalformedVersion)
    ):
        return None
    return Entry(seq, from_, to, seal, serves, actor, node, request_id, attempt, at_us)


def fold(entries: Iterable[Entry]) -> State | Corrupt:
    """Return where the moves of `entries` have led; each has to follow the one before."""
    state = State()
    for entry in entries:
        if entry.seq != state.seq + 1 or entry.from_version != state.version:
            return Corrupt(f"row {entry.seq} does not follow row {state.seq}")
        state = State(entry.to_version, entry.seal, entry.serves, entry.seq)
    return state


def drift(state: State, catalogue: Catalogue, dialect: Dialect) -> str | None:
    """Return how the history behind `state` differs from the catalogue's, in a sentence, or None.

    One comparison finds a migration that was edited, removed, or inserted below.
    """
    if state.version not in catalogue.versions:
        return f"The database is at {state.version}, a version that this server does not know"
    if state.seal != catalogue.seal(state.version, dialect):
        return f"The history of the database up to {state.version} is not the one this server knows"
    return None


def history(entries: tuple[Entry, ...], *, page: int, limit: int) -> tuple[Entry, ...]:
    """Return page `page` (from 1) of the entries, the newest first, `limit` to a page."""
    newest_first = entries[::-1]
    return newest_first[(page - 1) * limit : page * limit]


# --- statements -------------------------------------------------------------------------------


def create_ledger() -> Statements[None]:
    """Make the ledger where it is missing.  Only under the migration lock."""
    yield _CREATE()


def add_entry(entry: Entry) -> Statements[None]:
    """Write `entry`."""
    moved = {"from_version": str(entry.from_version), "to_version": str(entry.to_version)}
    yield _ADD.of(entry, **moved, serves=str(entry.serves))


def read_state() -> Statements[State | Corrupt]:
    """Return where the ledger, which is there, has led."""
    entries = entries_of((yield _READ()))
    return entries if isinstance(entries, Corrupt) else fold(entries)


def find_attempt(attempt: str) -> Statements[Entry | None]:
    """Return the row of the ledger, if there is one, that `attempt` has written."""
    if not (yield _EXISTS()):
        return None
    entries = entries_of((yield _FIND(attempt=attempt)))
    return None if isinstance(entries, Corrupt) or not entries else entries[0]


@frozen
class LedgerReading:
    """The result of reading the ledger; `entries` is empty when they cannot be read."""

    dialect: Dialect
    entries: tuple[Entry, ...]
    state: State | Corrupt


@frozen
class ReadLedger(ReadUnit[LedgerReading]):
    """The ledger as it stands.  A database without one is the empty database: nothing is made."""

    needs_schema: ClassVar[bool] = False

    def statements(self, dialect: Dialect) -> Statements[LedgerReading]:
        """Read the ledger, if there is one."""
        if not (yield _EXISTS()):
            return LedgerReading(dialect, (), State())
        return _make_reading(dialect, (yield _READ()))


@frozen
class ReadServedLedger(ReadUnit[LedgerReading]):
    """The ledger of a database that is served: it is there, so that one statement is enough."""

    def statements(self, dialect: Dialect) -> Statements[LedgerReading]:
        """Read the ledger."""
        return _make_reading(dialect, (yield _READ()))


def _make_reading(dialect: Dialect, rows: Rows) -> LedgerReading:
    entries = entries_of(rows)
    if isinstance(entries, Corrupt):
        return LedgerReading(dialect, (), entries)
    return LedgerReading(dialect, entries, fold(entries))


# --- serving ----------------------------------------------------------------------------------


class Fit(Enum):
    """The relation of a database's schema to this code, in the words of the interface."""

    CURRENT = "current"
    EMPTY = "empty"
    BEHIND = "behind"
    AHEAD = "ahead"
    DRIFTED = "drifted"


@frozen
class Assessment:
    """The answer to whether this code may serve a database; `detail` is a sentence for people."""

    fit: Fit
    may_serve: bool
    detail: str


def assess_state(
    state: State | Corrupt, catalogue: Catalogue, dialect: Dialect, code_version: Version
) -> Assessment:
    """Return whether code named `code_version` may serve a database that stands at `state`.

    `code_version` is the latest version that the code was written for: `catalogue.latest` but for
    a test.  A schema newer than the catalogue cannot be compared by seal; its own word counts.
    """
    if isinstance(state, Corrupt):
        return Assessment(Fit.DRIFTED, False, state.detail)
    version, serves, latest = state.version, state.serves, catalogue.latest
    at = f"The schema is at {version}"
    if version > latest:
        if serves <= code_version:
            return Assessment(Fit.AHEAD, True, f"{at}, which code for {serves} may serve")
        return Assessment(Fit.AHEAD, False, f"{at}, which needs code for {serves} or later")
    if (reason := drift(state, catalogue, dialect)) is not None:
        return Assessment(Fit.DRIFTED, False, reason)
    if version == EMPTY:
        return Assessment(Fit.EMPTY, False, f"The database is empty; migrate it to {latest}")
    if version < latest:
        return Assessment(Fit.BEHIND, False, f"{at}; migrate it to {latest}")
    return Assessment(Fit.CURRENT, True, at)
