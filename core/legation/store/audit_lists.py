"""Lists of the audit trail: entries in the order of time, taken out of their pages.

A page is found by the time of its earliest entry, and none of its entries is more than a second
later.  So whoever has read the pages down to a time has every entry that is a second younger, and
one who reads them upwards every entry that is older.  A list reads a few pages at a time until it
has enough, and no more than `BUDGET` of them: what it has found by then it returns, with the time
up to which that is all.

Rows of versions up to 2.11.0 are listed at the place that they had, whether they were moved into
pages or not; those that a migration kept are listed once they were moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, ClassVar, Final, overload

from attrs import field

from ..values import define, frozen
from .audit import OLD_COLUMNS, PAGE_COLUMNS, old_row
from .audit_entries import AuditEntry, OldRow, decode_lines, encode_json
from .audit_pages import SPAN_US, Page
from .units import Dialect, ReadUnit, Rows, Sql, Statements

__all__ = ["AuditRow", "ListAudit", "ListedRows", "Place"]

CHUNK: Final = 64
"""The pages that one statement reads."""

BUDGET: Final = 2_048
"""The pages that a list reads; it gets on by a second of the trail, however many that has."""


@frozen
class AuditRow:
    """An entry at its place.

    Attributes:
        previous: The hash of the page before its own; of an old row, of the row before it.
        hash: The hash of its page; of an old row, its own.
        signed_by: The id of the key that signed its page; None where none did.
    """

    writer: str
    seq: int
    previous: str
    hash: str
    entry: AuditEntry
    signed_by: str | None = None


@frozen
class Place:
    """A place in the order of time: before every row of `at_us`, or at the row that is named."""

    at_us: int
    writer: str = ""
    seq: int = 0


@frozen
class ListedRows:
    """The rows of a list, in its order.

    `reached_us` is None where they are all that was asked for; else they are all that is younger,
    in the other order older, and the list goes on with what is of `reached_us` itself.
    """

    rows: tuple[AuditRow, ...]
    reached_us: int | None = None


_SUBJECT: Final = "cast(:subject as text) is null or subject = :subject"
# A part of an id is no prefix of a resource: what is asked for ends where an id ends.
_FILTER: Final = """at_us >= :since_us and at_us < :until_us
    and (cast(:request_id as text) is null or request_id = :request_id)
    and (cast(:operation as text) is null or operation = :operation)
    and (cast(:decision as text) is null or decision = :decision)
    and (cast(:resource as text) is null or resource = :resource
        or substr(resource, 1, length(:resource) + 1) = :resource || '/')"""
_TEXT: Final = "cast(:resource as text)"  # PostgreSQL has to know before it can take the length


def _old_statement(*, newest_first: bool) -> Sql:
    """Return the statement of the rows that were not moved; an index gives the order of time."""
    compared, order = ("<", "desc") if newest_first else (">", "asc")

    def text(writer: str) -> str:
        return f"""select {OLD_COLUMNS} from audit where ({_SUBJECT}) and {_FILTER}
            and at_us {compared}= :at_us
            and (at_us, {writer}, seq) {compared} (:at_us, :writer, :seq)
            order by at_us {order}, {writer} {order}, seq {order} limit :size"""

    # By bytes on both engines, so that pages of several databases can be put together.
    return Sql(text("writer"), text('writer collate "C"').replace(":resource", _TEXT))


OLD: Final = {
    newest_first: _old_statement(newest_first=newest_first) for newest_first in (False, True)
}

# What cannot be in a page that holds none of these texts is not decoded.
_HOLDS: Final = " and ".join(
    f"(cast(:{name} as text) is null or instr(data, cast(:{name} as text)) > 0)"
    for name in ("in_subject", "in_request", "in_operation", "in_decision", "in_resource")
)
_PAGE: Final = ", ".join(f"page.{name}" for name in PAGE_COLUMNS.split(", ")[:-1])
_KEY: Final = "from_us, writer, last"


def _page_statement(*, of_subject: bool, newest_first: bool) -> Sql:
    """Return the statement of some pages behind a place, along an index."""
    compared, order = ("<", "desc") if newest_first else (">", "asc")
    behind = f"""from_us >= :from_us and from_us <= :to_us
        and ({_KEY}) {compared} (:page_us, :page_writer, :page_last)
        order by from_us {order}, writer {order}, last {order} limit :chunk"""
    found = f"select {_KEY} from trail where {behind}"
    if of_subject:
        found = f"""select {_KEY} from (
            select {_KEY} from trail where subject = :subject and {behind}) as alone
            union all select {_KEY} from (
            select {_KEY} from trail_subjects where subject = :subject and {behind}) as among"""
    return Sql(
        f"""select {_PAGE}, case when {_HOLDS} then page.data end
        from ({found}) as found join trail as page
            on page.writer = found.writer and page.last = found.last
        order by page.from_us {order}, page.writer {order}, page.last {order} limit :chunk"""
    )


PAGES: Final = {
    (of_subject, newest_first): _page_statement(of_subject=of_subject, newest_first=newest_first)
    for of_subject in (False, True)
    for newest_first in (False, True)
}
_order: Final = attrgetter("entry.at_us", "writer", "seq")


@frozen
class ListAudit(ReadUnit[ListedRows]):
    """At most `size` rows behind `place`: those before it when `newest_first`, else those after.

    Rows are as they are for ever, and each has one place; so lists share no row, and together
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
    request_id: str | None = None

    def statements(self, dialect: Dialect) -> Statements[ListedRows]:
        """Yield one read of old rows, then some pages at a time."""
        place = self.place
        listing = _Listing(self)
        at = {"at_us": place.at_us, "writer": place.writer, "seq": place.seq}
        for columns in (yield OLD[self.newest_first].of(self, **at)):
            row = old_row(columns)
            listing.found.append(AuditRow(row.writer, row.seq, row.previous, row.hash, row.entry))
        statement = PAGES[self.subject is not None, self.newest_first]
        while not listing.is_enough():
            listing.take((yield statement.of(self, **listing.parameters())))
        return listing.result()


@define
class _Listing:
    """The rows found so far, and the place of the last page that was read."""

    query: ListAudit
    found: list[AuditRow] = field(factory=list[AuditRow], init=False)
    _pages: int = field(default=0, init=False)
    _last: tuple[int, str, int] | None = field(default=None, init=False)
    _over: bool = field(default=False, init=False)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the next pages: behind the last one, within the bounds."""
        query = self.query
        from_us, to_us = query.since_us - SPAN_US, query.until_us
        if query.newest_first:
            to_us = min(to_us, query.place.at_us)
            page_us, writer, last = self._last or (to_us + 1, "", 0)
            to_us = min(to_us, page_us)
        else:
            from_us = max(from_us, query.place.at_us - SPAN_US)
            page_us, writer, last = self._last or (from_us - 1, "", 0)
            from_us = max(from_us, page_us)
        return {
            "from_us": from_us,
            "to_us": to_us,
            "page_us": page_us,
            "page_writer": writer,
            "page_last": last,
            "chunk": CHUNK,
            "in_subject": _quote(query.subject),
            "in_request": _quote(query.request_id),
            "in_operation": _quote(query.operation),
            "in_decision": _quote(query.decision),
            "in_resource": None if query.resource is None else _quote(query.resource)[:-1],
        }

    def take(self, rows: Rows) -> None:
        """Take pages, each with its lines or, where it has nothing of what is asked for, none."""
        for *columns, data in rows:
            page = _page(columns, data)
            self.found += filter(self._is_wanted, _rows_of(page))
        self._pages += len(rows)
        self._over = len(rows) < CHUNK
        if rows:
            writer, last, _, from_us, *_ = rows[-1]
            self._last = (from_us, writer, last)

    def _is_wanted(self, row: AuditRow) -> bool:
        query, entry, place = self.query, row.entry, self.query.place
        here = (entry.at_us, row.writer, row.seq)
        there = (place.at_us, place.writer, place.seq)
        return (
            (here < there if query.newest_first else here > there)
            and query.since_us <= entry.at_us < query.until_us
            and query.subject in (None, entry.subject)
            and query.request_id in (None, entry.request_id)
            and query.operation in (None, entry.operation)
            and query.decision in (None, entry.decision)
            and (
                query.resource in (None, entry.resource)
                or entry.resource.startswith(f"{query.resource}/")
            )
        )

    @property
    def _reached_us(self) -> int:
        """The time up to which everything is found; what is of it may be missing in part."""
        last_us = self._last[0] if self._last else 0
        return last_us + SPAN_US if self.query.newest_first else last_us

    def _complete(self) -> list[AuditRow]:
        if self._over:
            return self.found
        reached_us = self._reached_us
        if self.query.newest_first:
            return [row for row in self.found if row.entry.at_us > reached_us]
        return [row for row in self.found if row.entry.at_us < reached_us]

    def is_enough(self) -> bool:
        """Return whether there is enough, or nothing more, or the budget is used up."""
        if self._over:
            return True
        if self._last is None:
            return False
        query, reached_us = self.query, self._reached_us
        if query.newest_first:
            advances = reached_us + SPAN_US <= query.place.at_us
        else:
            advances = reached_us >= query.place.at_us + SPAN_US
        return (self._pages >= BUDGET and advances) or len(self._complete()) >= query.size

    def result(self) -> ListedRows:
        """Return what was found, in order."""
        query, complete = self.query, self._complete()
        complete.sort(key=_order, reverse=query.newest_first)
        whole = self._over or len(complete) >= query.size
        return ListedRows(tuple(complete[: query.size]), None if whole else self._reached_us)


def _page(columns: Sequence[Any], data: str | None) -> Page:
    values: list[Any] = [*columns, data or ""]
    return Page(*values)


def _rows_of(page: Page) -> Iterator[AuditRow]:
    """Yield the entries of `page`; none where its lines are not what we write."""
    for seq, line in enumerate(decode_lines(page.data) or (), page.first):
        key_id = page.key_id or None
        if isinstance(line, OldRow):
            yield AuditRow(line.writer, line.seq, line.previous, line.hash, line.entry, key_id)
        else:
            yield AuditRow(page.writer, seq, page.previous, page.hash, line, key_id)


@overload
def _quote(text: str) -> str: ...
@overload
def _quote(text: None) -> None: ...
def _quote(text: str | None) -> str | None:
    """Return `text` as it stands in a line."""
    return None if text is None else encode_json(text)
