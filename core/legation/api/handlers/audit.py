"""The audit trail as whoever may read it sees it: page by page, and proven whole.

What changed data is in the trail as soon as it was done; reads and refusals are written in batches
and follow within a tenth of a second.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import Any, Final

from attrs import asdict, evolve

from ...effects import Now, Program, ThisNode, Transact
from ...http.bodies.json_text import parse_json
from ...http.bodies.reader import Reader
from ...http.messages import Response, compact_json, json_response
from ...http.refusals import Fault
from ...runs.output import iso_time
from ...store.audit import OldPlace, ReadOldRows, ReadPages
from ...store.audit_entries import PRUNED, AuditEntry
from ...store.audit_lists import AuditRow, ListAudit, Place
from ...store.audit_moving import MoveOldRows
from ...store.audit_pages import NO_KEYS, Head, KeyRing
from ...store.audit_pruning import CountOldEntries, DropStubs, OldChains, PruneChain
from ...store.audit_verify import Verdict, Verifier
from ...store.failures import StoreFailure
from ...values import frozen
from ..call import Call
from ..fields import choice, declare, integer, text
from ..listing import link_next
from ..moments import LAST_US, moment

__all__ = [
    "AuditQuery",
    "count_old_entries",
    "find_databases",
    "list_audit",
    "prune_trail",
    "verify_trail",
]

_LONGEST: Final = 1024  # characters of a filter
_CURSOR: Final = re.compile(r"[A-Za-z0-9_-]{1,1024}")
_ROWS: Final = 1000
_PAGES: Final = 64


@frozen
class _Cursor:
    """The last row of a page, in the order of all databases: by time, then database, then place."""

    at_us: int
    database: str
    writer: str
    seq: int

    def place(self, database: str) -> Place:
        """Return where to go on in `database`."""
        if database == self.database:
            return Place(self.at_us, self.writer, self.seq)
        return Place(self.at_us + (database < self.database))

    def text(self) -> str:
        """Return what a client sends back; what is in it is nobody's business."""
        packed = compact_json([self.at_us, self.database, self.writer, self.seq])
        return urlsafe_b64encode(packed.encode()).decode().rstrip("=")


def _parse_cursor(text: str) -> _Cursor | None:
    """Return the cursor that `text` is, or None."""
    if not _CURSOR.fullmatch(text) or len(text) % 4 == 1:
        return None
    match parse_json(urlsafe_b64decode(text + "=" * (-len(text) % 4))):
        case [int(at_us), str(database), str(writer), int(seq)] if (
            0 <= at_us <= LAST_US and 0 <= seq <= LAST_US
        ):
            return _Cursor(at_us, database, writer, seq)
        case _:
            return None


def _read_cursor(read: Reader, name: str) -> _Cursor | None:
    text = read.text(name) or None
    cursor = None if text is None else _parse_cursor(text)
    if text is not None and cursor is None:
        read.fault(name, "is none that a page has given")
    return cursor


@frozen
class AuditQuery:
    """A page of the trail."""

    db_id: str | None = text("The database; needed where there are several")
    subject: str | None = text("By this caller", max_length=_LONGEST)
    operation: str | None = text("This operation id", max_length=_LONGEST)
    resource: str | None = text("This resource, and what is beneath it", max_length=_LONGEST)
    decision: str | None = choice(("allow", "deny", "open"))
    since: int | None = moment("Not before")
    until: int | None = moment("Before")
    order: str = choice(("desc", "asc"), default="desc")
    limit: int = integer("Rows on a page", default=50, minimum=1, maximum=1000)
    cursor: _Cursor | None = declare(
        {"type": "string", "pattern": r"^[A-Za-z0-9_-]{0,1024}$"},
        _read_cursor,
        "Where the page before ended: its `meta.next_cursor`",
    )
    request_id: str | None = text("Of this request", max_length=_LONGEST)

    @property
    def newest_first(self) -> bool:
        """Whether the last row of the trail comes first."""
        return self.order == "desc"

    def filters(self) -> ListAudit:
        """Return what is asked of each database, one row more than a page has."""
        return ListAudit(
            place=Place(0),
            newest_first=self.newest_first,
            size=self.limit + 1,
            since_us=self.since or 0,
            until_us=LAST_US if self.until is None else self.until,
            subject=self.subject,
            operation=self.operation,
            resource=self.resource,
            decision=self.decision,
            request_id=self.request_id,
        )


def find_databases(call: Call, query: AuditQuery) -> tuple[str, ...] | Fault:
    """Return the databases whose trails are asked for."""
    names = tuple(call.registry.databases)
    if query.db_id is None:
        return names
    return (query.db_id,) if query.db_id in names else Fault("query.db_id", "names no database")


def list_audit(call: Call, databases: tuple[str, ...], query: AuditQuery) -> Program[Response]:
    """Return a page of the trail, the newest first unless asked otherwise.

    Filters: `subject`, `operation`, `resource` (and what is beneath it), `decision` (allow, deny,
    open), `request_id`, `since` and `until` (seconds since the epoch, or a time as
    2026-01-31T12:00:00Z), `db_id`.  A page holds `meta.next_cursor` while there is more; sent back
    as `cursor`, with the same filters, it gives the next page.  One that looked through much and
    found little has fewer rows than `limit`, and goes on.
    `meta.absent` names the databases that did not answer, of several.
    """
    filters = query.filters()
    cursor = query.cursor or _Cursor(LAST_US if query.newest_first else 0, "", "", 0)
    found: list[tuple[_Cursor, AuditRow]] = []
    reached: list[int] = []
    absent: list[str] = []
    for name in databases:
        page_of = evolve(filters, place=cursor.place(name))
        try:
            listed = yield from Transact(name, page_of)
        except StoreFailure:
            absent.append(name)
            if len(absent) == len(databases):
                raise
            continue
        found += [(_Cursor(r.entry.at_us, name, r.writer, r.seq), r) for r in listed.rows]
        reached += [] if listed.reached_us is None else [listed.reached_us]
    page, end = _cut_page(found, reached, query)
    following = None if end is None else end.text()
    meta: dict[str, Any] = {"limit": query.limit, "next_cursor": following}
    if absent:
        meta["absent"] = absent
    more = () if following is None else link_next(call.query, "cursor", following)
    data = [_item(c.database, row) for c, row in page]
    return json_response(200, {"data": data, "meta": meta}, more)


def _cut_page(
    found: list[tuple[_Cursor, AuditRow]], reached: list[int], query: AuditQuery
) -> tuple[list[tuple[_Cursor, AuditRow]], _Cursor | None]:
    """Return the rows of the page, and where the next one begins.

    Beyond what one database has `reached`, those of the others wait for the next page.
    """
    end: _Cursor | None = None
    if reached and query.newest_first:
        end = _Cursor(max(reached) + 1, "", "", 0)
        found = [one for one in found if one[0].at_us >= end.at_us]
    elif reached:
        end = _Cursor(min(reached), "", "", 0)
        found = [one for one in found if one[0].at_us < end.at_us]
    found = sorted(found, key=_order, reverse=query.newest_first)
    if len(found) > query.limit:
        found = found[: query.limit]
        end = found[-1][0]
    return found, end


def _order(found: tuple[_Cursor, AuditRow]) -> tuple[int, str, str, int]:
    cursor = found[0]
    return cursor.at_us, cursor.database, cursor.writer, cursor.seq


def _item(database: str, row: AuditRow) -> dict[str, Any]:
    """Return a row as it was hashed, with its database and the time for people."""
    links: dict[str, Any] = {
        "writer": row.writer,
        "seq": row.seq,
        "previous": row.previous,
        "hash": row.hash,
    }
    links["signed_by"] = row.signed_by
    return {"at": iso_time(row.entry.at_us), **asdict(row.entry), "db_id": database, **links}


def verify_trail(
    database: str,
    heads: Iterable[Head] = (),
    keys: KeyRing = NO_KEYS,
    acknowledged: Iterable[Head] = (),
) -> Program[Verdict]:
    """Say whether the trail in `database` is as it was written, and leads through `heads`.

    What is appended meanwhile may be looked at, or not.  Rows that were not moved into pages come
    first: one that is moved meanwhile is seen twice, and none is left out.
    """
    verifier = Verifier(heads, keys, acknowledged)
    place: OldPlace | None = OldPlace()
    while place is not None:
        old = yield from Transact(database, ReadOldRows(place, _ROWS))
        if broken := verifier.take_rows(old.rows):
            return broken
        place = old.following
    head = Head("", 0, "")
    while True:
        pages = yield from Transact(database, ReadPages(head.writer, head.seq, _PAGES))
        if broken := verifier.take(pages):
            return broken
        if len(pages) < _PAGES:
            return verifier.end()
        head = pages[-1].head


def prune_trail(database: str, before_us: int, who: str, keys: KeyRing = NO_KEYS) -> Program[int]:
    """Delete the entries of before `before_us` from the trail in `database`; return how many went.

    Whole pages go, from the beginning of each chain up to the first that is not old.  Broken off
    and begun again, it goes on; at each moment in between the trail is proven.
    """
    node, now_us = (yield from ThisNode()), (yield from Now())
    before_us = min(before_us, now_us)  # its own entries stay
    while (yield from Transact(database, MoveOldRows(now_us, keys.signing))):
        pass
    entry = AuditEntry(now_us, "", who, None, PRUNED, "", "allow", "", 200, client="local")
    pruned, after = 0, ""
    while True:
        writers = yield from Transact(database, OldChains(before_us, after, _ROWS))
        for writer in writers:
            unit = PruneChain(node, writer, before_us, entry, keys)
            while gone := (yield from Transact(database, unit)):
                pruned += gone
        if len(writers) < _ROWS:
            break
        after = writers[-1]
    yield from Transact(database, DropStubs(before_us))
    return pruned


def count_old_entries(database: str, before_us: int) -> Program[int]:
    """Return how many entries `prune_trail` would delete now, but for what a chain ends with."""
    return (yield from Transact(database, CountOldEntries(before_us)))
