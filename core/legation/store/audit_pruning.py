"""Pruning the audit trail: old pages go, and what is left is still proven.

What goes is a beginning of a chain, whole pages of it.  In the same transaction an entry is
appended to the chain of whoever prunes, the *anchor*: where the other chain was cut, the hash of
the last page that went, and how many entries.  So the page that now comes first still follows a
page whose hash is known, and a pruning is itself in the trail: who, when, how much.  Pages that
are missing without an anchor are what they have always been, a broken trail.

Of a chain of which all is old the last page loses its lines and keeps its seal, so that whoever
writes to the chain later goes on with its numbers.  Such a *stub* holds nobody's name, and goes
itself when it is more than a year older than what is pruned.

An anchor is an entry like any other, and grows old.  Where its page goes and a chain still begins
at its cut, it is written again: as signed as it was, so that nothing is signed that was forged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import takewhile
from typing import ClassVar, Final

from attrs import evolve

from ..values import frozen
from .audit import PAGE_COLUMNS, append_entries
from .audit_entries import PRUNED, Anchor, AuditEntry, Line, OldRow, decode_lines, entry_of
from .audit_pages import CHAINED, SIGNED, Head, KeyRing, Page, compute_root, hash_page
from .units import Dialect, ReadUnit, Sql, Statements, Undo, Unit

__all__ = ["CountOldEntries", "DropStubs", "OldChains", "PruneChain", "name_for_moved"]

PAGES_AT_ONCE: Final = 64
STUB_KEPT_US: Final = 400 * 24 * 3_600_000_000
"""How much older than what is pruned a stub has to be to go."""

OLD_CHAINS: Final = Sql(
    """select writer from (
        select distinct writer from trail where from_us < :before_us and writer > :after) as old
    where :before_us > (
        select page.to_us from trail as page
        where page.writer = old.writer and page.data <> '' order by page.last limit 1)
    order by writer limit :size"""
)
COUNT_OLD: Final = Sql(
    """select (select coalesce(sum(count), 0) from trail
            where from_us < :before_us and to_us < :before_us and data <> '')
        + (select count(*) from audit where at_us < :before_us)"""
)
FIRST_PAGES: Final = Sql(
    f"""select {PAGE_COLUMNS}, (select max(last) from trail where writer = :writer)
    from trail where writer = :writer order by last limit :size"""
)
DELETE: Final = Sql("delete from trail where writer = :writer and last <= :upto returning last")
EMPTY: Final = Sql(
    """update trail set data = '', subject = null
    where writer = :writer and last = :last and data <> '' returning last"""
)
DELETE_SUBJECTS: Final = Sql(
    """delete from trail_subjects where (subject, from_us, writer, last) in (
        select json_extract(value, '$[0]'), json_extract(value, '$[1]'),
        json_extract(value, '$[2]'), json_extract(value, '$[3]') from json_each(:rows))""",
    """delete from trail_subjects where (subject, from_us, writer, last) in (
        select value ->> 0, cast(value ->> 1 as bigint), value ->> 2, cast(value ->> 3 as bigint)
        from json_array_elements(cast(:rows as json)) as rows (value))""",
)
FIRST_ROW: Final = Sql(
    "select writer, seq - 1, previous from audit where writer = :writer order by seq limit 1"
)
DROP: Final = Sql("delete from trail where data = '' and from_us < :before_us returning last")


def name_for_moved(writer: str) -> str:
    """Return the name of the chain for the rows of a `writer` of versions up to 2.11.0."""
    return f"moved/{writer}"


@frozen
class OldChains(ReadUnit[tuple[str, ...]]):
    """The writers of at most `size` chains behind `after` that begin before `before_us`."""

    long: ClassVar[bool] = True

    before_us: int
    after: str
    size: int

    def statements(self, dialect: Dialect) -> Statements[tuple[str, ...]]:
        """Yield one read."""
        rows = yield OLD_CHAINS.of(self)
        return tuple(row[0] for row in rows)


@frozen
class CountOldEntries(ReadUnit[int]):
    """The number of entries of pages, and of rows not moved into pages, from before `before_us`."""

    long: ClassVar[bool] = True

    before_us: int

    def statements(self, dialect: Dialect) -> Statements[int]:
        """Yield one read."""
        ((count,),) = yield COUNT_OLD.of(self)
        return int(count)


@frozen
class PruneChain(Unit[int]):
    """Delete old pages of `writer`, a few of them, and anchor what is left; how many entries went.

    Pages go up to the first that has an entry of `before_us` or later.  `entry` says who prunes,
    and when.  Nothing happens where somebody else was faster.
    """

    node: str
    writer: str
    before_us: int
    entry: AuditEntry
    keys: KeyRing

    def statements(self, dialect: Dialect) -> Statements[int | Undo[int]]:
        """Yield the look at what goes, the deletion, and the anchors."""
        rows = yield FIRST_PAGES(writer=self.writer, size=PAGES_AT_ONCE)
        found = (Page(*columns) for *columns, _ in rows)
        pages = tuple(takewhile(lambda page: page.to_us < self.before_us, found))
        count = sum(page.count for page in pages if not page.is_stub)
        if not count:
            return Undo(0)
        last = pages[-1]
        whole = last.last == rows[0][-1]
        deleted = yield DELETE(writer=self.writer, upto=last.last - whole)
        if len(deleted) != len(pages) - whole:
            return Undo(0)
        if whole and not (yield EMPTY(writer=self.writer, last=last.last)):
            return Undo(0)
        lines = [(page, decode_lines(page.data) or ()) for page in pages]
        if filed := [key for page, some in lines for key in _list_subjects(page, some)]:
            yield DELETE_SUBJECTS(rows=json.dumps(filed))
        yield from self._anchor(dialect, last, count, lines)
        return count

    def _anchor(
        self, dialect: Dialect, last: Page, count: int, lines: list[tuple[Page, tuple[Line, ...]]]
    ) -> Statements[None]:
        anchors = [Anchor(self.writer, last.last, last.hash, count)]
        ends = {row.writer: row for _, some in lines for row in some if isinstance(row, OldRow)}
        anchors += [Anchor(row.writer, row.seq, row.hash, 0) for row in ends.values()]
        doubtful: list[Anchor] = []
        for page, some in lines:
            signed = _is_proven(page, self.keys)
            for line in some:
                anchor = Anchor.of(entry_of(line))
                if anchor is None or not (yield from _is_cut(anchor)):
                    continue
                proven = signed and not isinstance(line, OldRow)
                (anchors if proven else doubtful).append(evolve(anchor, count=0))
        key = self.keys.signing
        if key is None:
            anchors, doubtful = anchors + doubtful, []
        yield from append_entries(dialect, self.node, self._entries(anchors), key)
        if doubtful:
            yield from append_entries(dialect, self.node, self._entries(doubtful), None)

    def _entries(self, anchors: Iterable[Anchor]) -> tuple[AuditEntry, ...]:
        return tuple(
            evolve(self.entry, operation=PRUNED, resource=anchor.resource)
            for anchor in dict.fromkeys(anchors)
        )


def _list_subjects(page: Page, lines: tuple[Line, ...]) -> list[tuple[str, int, str, int]]:
    """Return the rows that `page` may have in `trail_subjects`."""
    subjects = {subject for line in lines if (subject := line.subject) is not None}
    if len(subjects) < 2:
        return []
    return [(subject, page.from_us, page.writer, page.last) for subject in sorted(subjects)]


def _is_proven(page: Page, keys: KeyRing) -> bool:
    """Return whether `page` is signed with a known key, and is as it was signed."""
    key = keys.find(page.key_id) if page.key_id else None
    return (
        key is not None
        and hash_page(page, key) == page.hash
        and compute_root(page.data.split("\n")) == page.root
    )


def _is_cut(anchor: Anchor) -> Statements[bool]:
    """Return whether a chain begins where `anchor` says that it was cut."""
    cut, writer = Head(anchor.writer, anchor.seq, anchor.hash), anchor.writer
    if writer.startswith((SIGNED, CHAINED)):
        rows = yield FIRST_PAGES(writer=writer, size=1)
        return any(_cut_before(Page(*columns)) == cut for *columns, _ in rows)
    if any(Head(*row) == cut for row in (yield FIRST_ROW(writer=writer))):
        return True
    for prefix in (SIGNED, CHAINED):
        rows = yield FIRST_PAGES(writer=f"{prefix}{name_for_moved(writer)}", size=1)
        for *columns, _ in rows:
            lines = decode_lines(Page(*columns).data)
            first = lines[0] if lines else None
            if isinstance(first, OldRow) and Head(writer, first.seq - 1, first.previous) == cut:
                return True
    return False


def _cut_before(page: Page) -> Head:
    """Return the end of what went before `page`, the first of its chain."""
    return page.head if page.is_stub else Head(page.writer, page.first - 1, page.previous)


@frozen
class DropStubs(Unit[int]):
    """Delete the stubs that are much older than `before_us`; how many there were."""

    before_us: int

    def statements(self, dialect: Dialect) -> Statements[int]:
        """Yield one deletion."""
        rows = yield DROP(before_us=self.before_us - STUB_KEPT_US)
        return len(rows)
