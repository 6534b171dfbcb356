"""The audit trail: who asked for what, on which resource, and what came of it.

Rows are chained: each holds a hash over itself and the hash of the row before it.  A chain belongs
to one writer, because two that append at the same moment could not agree on what came before.
What the chain proves: a row that was edited, removed, exchanged or put in between shows, unless
all rows behind it were written anew; and that shows against a head that was exported before.  The
end of a chain cut off shows against such a head alone.  A beginning may be missing where an entry
of the trail says that it was pruned (`audit_pruning`).

Who a writer is: on SQLite the node, as its process has one thread that writes; on PostgreSQL the
node and the server process behind the connection, which has one transaction at a time.  So a
chain has one writer at a time without a lock that everybody would have to wait for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar, cast

from attrs import asdict, define, field, fields

from ..values import frozen
from .units import Dialect, Numbered, ReadUnit, Sql, Statement, Statements, Undo, Unit

__all__ = [
    "PRUNED",
    "Anchor",
    "AppendAudit",
    "AuditEntry",
    "AuditRow",
    "Audited",
    "Broken",
    "Changed",
    "Head",
    "Intact",
    "ListAudit",
    "Place",
    "ReadChain",
    "Verifier",
    "append_entries",
    "hash_row",
]

R = TypeVar("R")


# Made for every request, and never changed: `frozen` would triple what making it costs.
@define(unsafe_hash=True)
class AuditEntry:
    """One decision or change.  It never holds a token, a secret or the text of a message.

    `at_us` is in microseconds since the epoch; `decision` is allow, deny or open (authorization
    off); `scope` is the scope that allowed or the one that was missing.  `resource` holds the ids
    of the path, joined by `/`; within an id `/` is written `%2F`, and `%` is `%25`.
    """

    at_us: int
    request_id: str
    subject: str | None
    key_id: str | None
    operation: str
    resource: str
    decision: str
    scope: str
    status: int
    client: str


@frozen
class AuditRow:
    """An entry at its place in a chain."""

    writer: str
    seq: int
    previous: str
    hash: str
    entry: AuditEntry


_FIELDS: Final = tuple(attribute.name for attribute in fields(AuditEntry))
_content = attrgetter(*_FIELDS)


def hash_row(previous: str, writer: str, seq: int, entry: AuditEntry) -> str:
    """Return the hash of a row: SHA-256 over the one before, its place and its content."""
    content = json.dumps([previous, writer, seq, *_content(entry)])
    return hashlib.sha256(content.encode()).hexdigest()


# --- Writing ------------------------------------------------------------------------------------

_LINKS: Final = ("seq", "previous", "hash")
_NUMBERS: Final = frozenset({"seq", "at_us", "status"})


def _names(names: Iterable[str], form: str = "{}") -> str:
    return ", ".join(form.format(name) for name in names)


def _with_types(names: Iterable[str]) -> str:
    return ", ".join(f"{name} {'bigint' if name in _NUMBERS else 'text'}" for name in names)


END: Final = Sql(
    """select :node, seq, hash from (select 1) left join
    (select seq, hash from audit where writer = :node order by seq desc limit 1) on true""",
    """select writer, seq, hash
    from (select cast(:node as text) || '/' || pg_backend_pid() as writer) as named
    left join lateral (
        select last.seq, last.hash from audit as last
        where last.writer = named.writer order by last.seq desc limit 1) as found on true""",
)
_COLUMNS: Final = (*_LINKS, *_FIELDS)
_WIDTH: Final = len(_COLUMNS)


def _number_values(size: int) -> str:
    """Return the values of `size` rows as SQLite numbers them: the writer, then row after row."""
    rows = (range(2 + row * _WIDTH, 2 + (row + 1) * _WIDTH) for row in range(size))
    return ", ".join(f"(?1, {', '.join(f'?{number}' for number in row)})" for row in rows)


# As JSON the rows would cost SQLite three times as much: each value is looked for in its text.
# PostgreSQL takes as many as there are at once.
_RECORDS: Final = f"""insert into audit (writer, {_names(_COLUMNS)})
    select :writer, {_names(_COLUMNS)}
    from json_to_recordset(cast(:rows as json)) as rows ({_with_types(_COLUMNS)})"""
APPEND: Final = {
    size: Sql(
        f"insert into audit (writer, {_names(_COLUMNS)}) values {_number_values(size)}", _RECORDS
    )
    for size in (64, 16, 4, 1)
}
"""How rows are appended, by how many of them one statement takes on SQLite."""

_Rows: TypeAlias = list[tuple[Any, ...]]


def append_entries(
    dialect: Dialect, node: str, entries: tuple[AuditEntry, ...]
) -> Statements[None]:
    """Yield the look for the end of this writer's chain, and the rows behind it."""
    ((writer, last, previous),) = yield END(node=node)
    previous = previous or ""
    rows: _Rows = []
    for seq, entry in enumerate(entries, (last or 0) + 1):
        hashed = hash_row(previous, writer, seq, entry)
        rows.append((seq, previous, hashed, *_content(entry)))
        previous = hashed
    if dialect is Dialect.SQLITE:
        for part in _split(rows):
            yield Statement(APPEND[len(part)], Numbered((writer, *chain.from_iterable(part))))
    else:
        named = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
        records = json.dumps(named, ensure_ascii=False)
        yield APPEND[1](writer=writer, rows=records)


def _split(rows: _Rows) -> Iterator[_Rows]:
    """Yield `rows` in parts as long as there are statements for."""
    done = 0
    for size in APPEND:
        while done + size <= len(rows):
            yield rows[done : done + size]
            done += size


@frozen
class AppendAudit(Unit[None]):
    """Append `entries`, in their order, to the chain that `node` writes on this connection."""

    node: str
    entries: tuple[AuditEntry, ...]

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield the end of the chain, then the rows."""
        yield from append_entries(dialect, self.node, self.entries)


@frozen
class Changed(Generic[R]):
    """The result of an audited unit; `kept` is False when it undid itself."""

    result: R
    kept: bool


@frozen
class Audited(Unit[Changed[R]], Generic[R]):
    """`unit`, and in the same transaction the record of it: both are kept, or neither.

    A unit that returns `Undo` has changed nothing, and nothing is recorded.  The unit is none that
    is exclusive or does without the schema: a migration leaves its record in its ledger.
    """

    unit: Unit[R]
    node: str
    entry: AuditEntry

    def statements(self, dialect: Dialect) -> Statements[Changed[R] | Undo[Changed[R]]]:
        """Yield what the unit yields, then what appends the entry."""
        outcome = yield from self.unit.statements(dialect)
        if isinstance(outcome, Undo):
            return Undo(Changed(cast("Undo[R]", outcome).result, kept=False))
        yield from append_entries(dialect, self.node, (self.entry,))
        return Changed(outcome, kept=True)


PRUNED: Final = "audit.prune"
"""The operation of the entry that says what was pruned."""


@frozen
class Anchor:
    """The cut of a chain: its rows up to number `seq` went, `count` of them at that time.

    `hash` is that of row `seq`.  In an entry it is the resource: `writer/seq/hash/count`.
    """

    writer: str
    seq: int
    hash: str
    count: int

    @property
    def resource(self) -> str:
        """The anchor as an entry has it."""
        writer = self.writer.replace("%", "%25").replace("/", "%2F")
        return f"{writer}/{self.seq}/{self.hash}/{self.count}"

    @classmethod
    def of(cls, entry: AuditEntry) -> Anchor | None:
        """Return the anchor that `entry` is, or None."""
        writer, *numbers = entry.resource.split("/")
        if entry.operation != PRUNED or len(numbers) != 3:
            return None
        seq, hashed, count = numbers
        if not (seq.isascii() and seq.isdigit() and count.isascii() and count.isdigit()):
            return None
        writer = writer.replace("%2F", "/").replace("%25", "%")
        return cls(writer, int(seq), hashed, int(count))


# --- Reading ------------------------------------------------------------------------------------

_ROW: Final = f"writer, seq, previous, hash, {_names(_FIELDS)}"


def _row(columns: tuple[Any, ...]) -> AuditRow:
    writer, seq, previous, hashed, *entry = columns
    return AuditRow(writer, seq, previous, hashed, AuditEntry(*entry))


@frozen
class Place:
    """A place in the order of time: before every row of `at_us`, or at the row that is named."""

    at_us: int
    writer: str = ""
    seq: int = 0


# A part of an id is no prefix of a resource: what is asked for ends where an id ends.
_FILTER: Final = """at_us >= :since_us and at_us < :until_us
    and (cast(:operation as text) is null or operation = :operation)
    and (cast(:decision as text) is null or decision = :decision)
    and (cast(:resource as text) is null or resource = :resource
        or substr(resource, 1, length(:resource) + 1) = :resource || '/')"""


def _list_statement(*, of_subject: bool, newest_first: bool) -> Sql:
    """Return the statement of one page; an index gives the order of time, and of a subject's."""
    compared, order = ("<", "desc") if newest_first else (">", "asc")
    subject = "subject = :subject and" if of_subject else ""

    def text(writer: str) -> str:
        return f"""select {_ROW} from audit where {subject} {_FILTER}
            and at_us {compared}= :at_us
            and (at_us, {writer}, seq) {compared} (:at_us, :writer, :seq)
            order by at_us {order}, {writer} {order}, seq {order} limit :size"""

    # By bytes on both engines, so that pages of several databases can be put together.
    return Sql(text("writer"), text('writer collate "C"').replace(":resource", _TEXT))


_TEXT: Final = "cast(:resource as text)"  # PostgreSQL has to know before it can take the length
LIST: Final = {
    (of_subject, newest_first): _list_statement(of_subject=of_subject, newest_first=newest_first)
    for of_subject in (False, True)
    for newest_first in (False, True)
}


@frozen
class ListAudit(ReadUnit[tuple[AuditRow, ...]]):
    """At most `size` rows behind `place`: those before it when `newest_first`, else those after.

    Rows are as they are for ever, and each has one place; so pages share no row, and together
    hold every row that was there when the first of them was read.  None filters nothing;
    `until_us` itself is left out; `resource` also finds what is beneath it.
    """

    long: ClassVar[bool] = True

    place: Place
    newest_first: bool
    size: int
    since_us: int
    until_us: int
    subject: str | None = None
    operation: str | None = None
    resource: str | None = None
    decision: str | None = None

    def statements(self, dialect: Dialect) -> Statements[tuple[AuditRow, ...]]:
        """Yield one read."""
        statement = LIST[self.subject is not None, self.newest_first]
        rows = yield statement.of(self, **asdict(self.place))
        return tuple(map(_row, rows))


CHAIN: Final = Sql(
    f"""select {_ROW} from audit where (writer, seq) > (:writer, :seq)
    order by writer, seq limit :size"""
)


@frozen
class ReadChain(ReadUnit[tuple[AuditRow, ...]]):
    """At most `size` rows behind `seq` of `writer`, chain after chain."""

    long: ClassVar[bool] = True

    writer: str
    seq: int
    size: int

    def statements(self, dialect: Dialect) -> Statements[tuple[AuditRow, ...]]:
        """Yield one read along the key."""
        rows = yield CHAIN.of(self)
        return tuple(map(_row, rows))


# --- Verifying ----------------------------------------------------------------------------------


@frozen
class Head:
    """The last row of a chain, or one that was the last once.  As text: `writer:seq:hash`."""

    writer: str
    seq: int
    hash: str

    def __str__(self) -> str:
        return f"{self.writer}:{self.seq}:{self.hash}"


@frozen
class Intact:
    """Every row is as it was written; `heads`, one for each chain, prove later what was there.

    `pruned` is how many rows are known to have been pruned.
    """

    count: int
    heads: tuple[Head, ...]
    pruned: int = 0


@frozen
class Broken:
    """The first place where the trail is not as it was written."""

    writer: str
    seq: int
    reason: str


Verdict: TypeAlias = Intact | Broken
_START: Final = Head("", 0, "")


@define
class Verifier:
    """Takes the rows of a trail, those of a writer in the order of `seq`, a few at a time.

    `heads` were exported before: the trail has to lead through each of them, but for those that
    were pruned since.
    """

    heads: Iterable[Head] = ()
    _count: int = field(default=0, init=False)
    _last: dict[str, Head] = field(factory=dict[str, Head], init=False)
    _wanted: dict[tuple[str, int], Head] = field(factory=dict[tuple[str, int], Head], init=False)
    _begins: list[AuditRow] = field(factory=list[AuditRow], init=False)
    _anchors: list[Anchor] = field(factory=list[Anchor], init=False)

    def __attrs_post_init__(self) -> None:
        self._wanted = {(head.writer, head.seq): head for head in self.heads}

    def take(self, rows: Iterable[AuditRow]) -> Broken | None:
        """Check `rows`; return the first that is wrong.

        Whether a chain that does not begin with number 1 was pruned is known at the end.
        """
        for row in rows:
            reason = self._fault(row)
            if reason is not None:
                return Broken(row.writer, row.seq, reason)
            if anchor := Anchor.of(row.entry):
                self._anchors.append(anchor)
            self._last[row.writer] = Head(row.writer, row.seq, row.hash)
            self._count += 1
        return None

    def _fault(self, row: AuditRow) -> str | None:
        last = self._last.get(row.writer)
        if last is None and row.seq > 1:
            self._begins.append(row)
            last = Head(row.writer, row.seq - 1, row.previous)
        last = last or _START
        if row.seq != last.seq + 1:
            return f"rows are missing: it follows number {last.seq}"
        if row.previous != last.hash:
            return "the row before it is another one than when it was written"
        if row.hash != hash_row(row.previous, row.writer, row.seq, row.entry):
            return "it is not as it was written"
        wanted = self._wanted.get((row.writer, row.seq))
        if wanted is not None and wanted.hash == row.hash:
            del self._wanted[row.writer, row.seq]
        return None

    def end(self) -> Verdict:
        """Return what came of it, after the last row."""
        cuts = {(anchor.writer, anchor.seq, anchor.hash) for anchor in self._anchors}
        for row in self._begins:
            if (row.writer, row.seq - 1, row.previous) not in cuts:
                return Broken(row.writer, row.seq, "rows are missing: it follows number 0")
        for head in self._wanted.values():
            if not self._was_pruned(head):
                return Broken(head.writer, head.seq, self._explain_missing(head))
        pruned = sum(anchor.count for anchor in self._anchors)
        return Intact(self._count, tuple(self._last.values()), pruned)

    def _was_pruned(self, head: Head) -> bool:
        """Whether the row of `head` went; where it was the last that did, its hash is known."""
        return any(
            anchor.writer == head.writer
            and (anchor.seq > head.seq or (anchor.seq, anchor.hash) == (head.seq, head.hash))
            for anchor in self._anchors
        )

    def _explain_missing(self, head: Head) -> str:
        last = self._last.get(head.writer, _START)
        if last.seq >= head.seq:
            return "it is another one than when the head was exported"
        return "the row of an exported head is missing"
