"""The audit trail: who asked for what, on which resource, and what came of it.

Its entries are stored in pages, which are sealed and chained (`audit_pages`).  A change writes its
entry in its own transaction, a page with one entry; reads and refusals come in batches.

Who a writer is: on SQLite the node, as its process has one thread that writes; on PostgreSQL the
node and the server process behind the connection, which has one transaction at a time.  So a
chain has one writer at a time without a lock that everybody would have to wait for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, ClassVar, Final, Generic, TypeVar, cast

from attrs import field, fields

from ..values import define, frozen
from .audit_entries import AuditEntry, Line, OldRow
from .audit_pages import Head, Page, SigningKey, seal_page, split_lines, writer_name
from .units import (
    NO_ROWS,
    Dialect,
    Numbered,
    ReadUnit,
    Rows,
    Sql,
    Statement,
    Statements,
    Undo,
    Unit,
    Work,
    along,
)

__all__ = [
    "OLD_COLUMNS",
    "PAGE_COLUMNS",
    "AppendAudit",
    "AuditEntry",
    "Audited",
    "ChainEnd",
    "Changed",
    "OldPlace",
    "OldRows",
    "ReadOldRows",
    "ReadPages",
    "append_entries",
    "append_pages",
    "old_row",
]

R = TypeVar("R")


# --- Writing ------------------------------------------------------------------------------------

END: Final = Sql(
    """select :writer, last, hash from (select 1) left join
    (select last, hash from trail where writer = :writer order by last desc limit 1) on true""",
    """select writer, last, hash
    from (select cast(:writer as text) || '/' || pg_backend_pid() as writer) as named
    left join lateral (
        select last.last, last.hash from trail as last
        where last.writer = named.writer order by last.last desc limit 1) as found on true""",
)
# For PostgreSQL, in less time: it has no row where the chain has no page yet.
LAST: Final = Sql(
    """select writer, last, hash from trail where writer = :writer order by last desc limit 1""",
    """select writer, last, hash from trail
    where writer = cast(:writer as text) || '/' || pg_backend_pid() order by last desc limit 1""",
)

_NAMES: Final = tuple(attribute.name for attribute in fields(Page))
PAGE_COLUMNS: Final = ", ".join(_NAMES)
_values: Final = attrgetter(*_NAMES)
_NUMBERS: Final = tuple(f"?{number}" for number in range(1, len(_NAMES) + 2))
APPEND: Final = Sql(
    f"insert into trail ({PAGE_COLUMNS}, subject) values ({', '.join(_NUMBERS)})",
    f"insert into trail ({PAGE_COLUMNS}, subject)"
    f" values ({', '.join(f':{name}' for name in _NAMES)}, :subject)",
)
# For SQLite.  A hash covers the place of its page, so that the end with this one is the very end.
# Where the chain ends with another, `previous` is null, and the row ignored: an `insert ... select`
# would put it into a temporary table first.
_PREVIOUS: Final = _NUMBERS[_NAMES.index("previous")]
_END_AS_KNOWN: Final = f"""(select hash from
        (select hash from trail where writer = ?1 order by last desc limit 1)
        where hash = {_PREVIOUS})"""
_BEHIND: Final = ", ".join(_END_AS_KNOWN if n == _PREVIOUS else n for n in _NUMBERS)
APPEND_BEHIND: Final = Sql(
    f"""insert or ignore into trail ({PAGE_COLUMNS}, subject) values ({_BEHIND})
    returning last""",
    APPEND.postgresql,
)
ADD_SUBJECTS: Final = Sql(
    """insert into trail_subjects (subject, from_us, writer, last)
    select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
        json_extract(value, '$[3]') from json_each(:rows)""",
    """insert into trail_subjects (subject, from_us, writer, last)
    select value ->> 0, cast(value ->> 1 as bigint), value ->> 2, cast(value ->> 3 as bigint)
    from json_array_elements(cast(:rows as json)) as rows (value)""",
)
_at_us: Final = attrgetter("at_us")


@define(eq=False)
class ChainEnd:
    """The end of a chain in one database as its writer knows it, which may be wrong.

    It is ahead of a transaction that was rolled back, and behind what another connection wrote.  So
    a page is stored behind it only where the chain still ends there.
    """

    head: Head | None = None


def append_entries(
    dialect: Dialect,
    node: str,
    entries: tuple[AuditEntry, ...],
    key: SigningKey | None,
    known: ChainEnd | None = None,
    rows: Rows = NO_ROWS,
) -> Statements[None]:
    """Yield the look for the end of this writer's chain, and the pages behind it.

    On SQLite one entry behind the `known` end is one statement.  On PostgreSQL the writer is not
    known before, as a node has a chain for each of its connections; `rows` are those of that look,
    where it was made before in the transaction and found a page.
    """
    writer, alone = writer_name(node, key), len(entries) == 1
    end = known.head if known is not None and dialect is Dialect.SQLITE else None
    if known is not None and end is not None and alone and end.writer == writer:
        page = seal_page(end, entries, key)
        if (yield Statement(APPEND_BEHIND, Numbered((*_values(page), entries[0].subject)))):
            known.head = page.head
            return
    ((writer, last, hashed),) = rows or (yield END(writer=writer))
    end = Head(writer, last or 0, hashed or "")
    if alone:
        page = seal_page(end, entries, key)
        yield _insert(dialect, page, entries[0].subject)
        end = page.head
    else:
        end = yield from append_pages(dialect, end, sorted(entries, key=_at_us), key)
    if known is not None:
        known.head = end


def append_pages(
    dialect: Dialect, end: Head, lines: Sequence[Line], key: SigningKey | None
) -> Statements[Head]:
    """Yield what stores `lines` in their order, in pages behind `end`; return the new end."""
    filed: list[tuple[str, int, str, int]] = []
    for part in split_lines(lines):
        page = seal_page(end, part, key)
        subjects = {line.subject for line in part} - {None}
        alone = subjects.pop() if len(subjects) == 1 else None
        filed += [
            (one, page.from_us, page.writer, page.last)
            for one in sorted(cast("set[str]", subjects))
        ]
        yield _insert(dialect, page, alone)
        end = page.head
    if filed:
        yield ADD_SUBJECTS(rows=json.dumps(filed))
    return end


def _insert(dialect: Dialect, page: Page, subject: str | None) -> Statement:
    values = (*_values(page), subject)
    if dialect is Dialect.SQLITE:
        return Statement(APPEND, Numbered(values))
    return APPEND(**dict(zip((*_NAMES, "subject"), values, strict=True)))


@frozen
class AppendAudit(Unit[None]):
    """Append `entries`, in the order of time, to the chain that `node` writes on this connection.

    `key` signs them; without one they are only chained.  `known` is where the chain may end.
    """

    node: str
    entries: tuple[AuditEntry, ...]
    key: SigningKey | None
    known: ChainEnd | None = field(default=None, eq=False, repr=False)

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield the end of the chain, then the pages."""
        yield from append_entries(dialect, self.node, self.entries, self.key, self.known)


@frozen
class Changed(Generic[R]):
    """The result of an audited unit; `kept` is False when it undid itself."""

    result: R
    kept: bool


@frozen
class Audited(Unit[Changed[R]], Generic[R]):
    """`unit`, and in the same transaction the record of it: both are kept, or neither.

    A unit that returns `Undo` has changed nothing, and nothing is recorded.  The unit is none that
    is exclusive or does without the schema: a migration leaves its record in its ledger.  `known`
    is where the chain may end.
    """

    unit: Unit[R]
    node: str
    entry: AuditEntry
    key: SigningKey | None
    known: ChainEnd | None = field(default=None, eq=False, repr=False)

    def statements(self, dialect: Dialect) -> Work[Changed[R] | Undo[Changed[R]]]:
        """Yield what the unit yields, then what appends the entry."""
        work, end = self.unit.statements(dialect), NO_ROWS
        if dialect is Dialect.POSTGRESQL:  # beside another statement it takes no round trip
            look = LAST(writer=writer_name(self.node, self.key))
            outcome, end = yield from along(work, look)
        else:
            outcome = yield from work
        if isinstance(outcome, Undo):
            return Undo(Changed(cast("Undo[R]", outcome).result, kept=False))
        yield from append_entries(dialect, self.node, (self.entry,), self.key, self.known, end)
        return Changed(outcome, kept=True)


# --- Reading it whole ---------------------------------------------------------------------------

PAGES: Final = Sql(
    f"""select {PAGE_COLUMNS} from trail where (writer, last) > (:writer, :last)
    order by writer, last limit :size"""
)


@frozen
class ReadPages(ReadUnit[tuple[Page, ...]]):
    """At most `size` pages behind number `last` of `writer`, chain after chain."""

    long: ClassVar[bool] = True

    writer: str
    last: int
    size: int

    def statements(self, dialect: Dialect) -> Statements[tuple[Page, ...]]:
        """Yield one read along the key."""
        rows = yield PAGES.of(self)
        return tuple(Page(*row) for row in rows)


OLD_COLUMNS: Final = (
    f"writer, seq, previous, hash, {', '.join(attribute.name for attribute in fields(AuditEntry))}"
)
OLD_ROWS: Final = Sql(
    f"""select 0, {OLD_COLUMNS} from audit where (writer, seq) > (:writer, :seq)
    order by writer, seq limit :size"""
)
KEPT_ROWS: Final = Sql(
    f"""select kept, {OLD_COLUMNS} from trail_kept
    where (kept, writer, seq) > (:kept, :writer, :seq) order by kept, writer, seq limit :size"""
)


def old_row(columns: Sequence[Any]) -> OldRow:
    """Return the row of versions up to 2.11.0 whose `OLD_COLUMNS` these are."""
    writer, seq, previous, hashed, *entry = columns
    return OldRow(writer, seq, previous, hashed, AuditEntry(*entry))


@frozen
class OldPlace:
    """A place among the rows that were not moved into pages.

    `kept` is 0 in the table `audit`, else the number of the migration that kept the rows.
    """

    kept: int = 0
    writer: str = ""
    seq: int = 0


@frozen
class OldRows:
    """Some of the rows that were not moved; `following` is where to go on, None at their end."""

    rows: tuple[OldRow, ...]
    following: OldPlace | None


@frozen
class ReadOldRows(ReadUnit[OldRows]):
    """At most `size` rows behind `place`, chain after chain."""

    long: ClassVar[bool] = True

    place: OldPlace
    size: int

    def statements(self, dialect: Dialect) -> Statements[OldRows]:
        """Yield one read along the key."""
        place = self.place
        statement = KEPT_ROWS if place.kept else OLD_ROWS
        found = yield statement.of(self, kept=place.kept, writer=place.writer, seq=place.seq)
        rows = tuple(old_row(columns) for _, *columns in found)
        if len(rows) == self.size:
            last = rows[-1]
            return OldRows(rows, OldPlace(found[-1][0], last.writer, last.seq))
        return OldRows(rows, None if place.kept else OldPlace(kept=1))
