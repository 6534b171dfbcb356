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
from ...store.audit import (
    PRUNED,
    AuditEntry,
    AuditRow,
    Broken,
    Head,
    Intact,
    ListAudit,
    Place,
    ReadChain,
    Verifier,
)
from ...store.audit_pruning import AnchorChain, ChainSpan, ChainSpans, PruneChain
from ...store.failures import StoreFailure
from ...values import frozen
from ..call import Call
from ..fields import choice, declare, integer, text
from ..listing import link_next

__all__ = ["AuditQuery", "find_databases", "list_audit", "prune_trail", "verify_trail"]

_SECOND: Final = 1_000_000
_LAST_SECOND: Final = 1 << 40  # tens of thousands of years from now
_LAST_US: Final = _LAST_SECOND * _SECOND
_LONGEST: Final = 1024  # characters of a filter
_CURSOR: Final = re.compile(r"[A-Za-z0-9_-]{1,1024}")
_BATCH: Final = 1000


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
            0 <= at_us <= _LAST_US and 0 <= seq <= _LAST_US
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
    since: int | None = integer(
        "Not before, in seconds since the epoch", minimum=0, maximum=_LAST_SECOND
    )
    until: int | None = integer(
        "Before, in seconds since the epoch", minimum=0, maximum=_LAST_SECOND
    )
    order: str = choice(("desc", "asc"), default="desc")
    limit: int = integer("Rows on a page", default=50, minimum=1, maximum=1000)
    cursor: _Cursor | None = declare(
        {"type": "string", "pattern": r"^[A-Za-z0-9_-]{0,1024}$"},
        _read_cursor,
        "Where the page before ended: its `meta.next_cursor`",
    )

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
            since_us=(self.since or 0) * _SECOND,
            until_us=_LAST_US if self.until is None else self.until * _SECOND,
            subject=self.subject,
            operation=self.operation,
            resource=self.resource,
            decision=self.decision,
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
    open), `since` and `until` in seconds since the epoch, `db_id`.  A page holds `meta.next_cursor`
    while there is more; sent back as `cursor`, with the same filters, it gives the next page.
    `meta.absent` names the databases that did not answer, of several.
    """
    filters = query.filters()
    cursor = query.cursor or _Cursor(_LAST_US if query.newest_first else 0, "", "", 0)
    found: list[tuple[_Cursor, AuditRow]] = []
    absent: list[str] = []
    for name in databases:
        page_of = evolve(filters, place=cursor.place(name))
        try:
            rows = yield from Transact(name, page_of)
        except StoreFailure:
            absent.append(name)
            if len(absent) == len(databases):
                raise
            continue
        found += [(_Cursor(r.entry.at_us, name, r.writer, r.seq), r) for r in rows]
    found.sort(key=_order, reverse=query.newest_first)
    page = found[: query.limit]
    following = page[-1][0].text() if len(found) > len(page) else None
    meta: dict[str, Any] = {"limit": query.limit, "next_cursor": following}
    if absent:
        meta["absent"] = absent
    more = () if following is None else link_next(call.query, "cursor", following)
    data = [_item(c.database, row) for c, row in page]
    return json_response(200, {"data": data, "meta": meta}, more)


def _order(found: tuple[_Cursor, AuditRow]) -> tuple[int, str, str, int]:
    cursor = found[0]
    return cursor.at_us, cursor.database, cursor.writer, cursor.seq


def _item(database: str, row: AuditRow) -> dict[str, Any]:
    """Return a row as it was hashed, with its database and the time for people."""
    links = {"writer": row.writer, "seq": row.seq, "previous": row.previous, "hash": row.hash}
    return {"at": iso_time(row.entry.at_us), **asdict(row.entry), "db_id": database, **links}


def verify_trail(database: str, heads: Iterable[Head] = ()) -> Program[Intact | Broken]:
    """Say whether the trail in `database` is as it was written, and leads through `heads`.

    What is appended meanwhile may be looked at, or not.
    """
    verifier = Verifier(heads)
    writer, seq = "", 0
    while True:
        rows = yield from Transact(database, ReadChain(writer, seq, _BATCH))
        if broken := verifier.take(rows):
            return broken
        if len(rows) < _BATCH:
            return verifier.end()
        writer, seq = rows[-1].writer, rows[-1].seq


def prune_trail(database: str, before_us: int, who: str) -> Program[int]:
    """Delete the rows of before `before_us` from the trail in `database`; return how many went.

    Rows go from the beginning of each chain up to the first that is not old: a row that is older
    than one before it in its chain stays until that one is old as well.  Broken off and begun
    again, it goes on; at each moment in between the trail is proven.
    """
    node = yield from ThisNode()
    entry = AuditEntry(
        (yield from Now()), "", who, None, PRUNED, "", "allow", "", 200, client="local"
    )
    chains = yield from _chains(database, before_us)
    for chain in chains:
        if chain.first > 1:
            yield from Transact(database, AnchorChain(node, chain.writer, entry))
    pruned = 0
    for chain in chains:
        for upto in _cuts(chain):
            pruned += yield from Transact(database, PruneChain(node, chain.writer, upto, entry))
    return pruned


def _chains(database: str, before_us: int) -> Program[list[ChainSpan]]:
    chains: list[ChainSpan] = []
    after = ""
    while True:
        found = yield from Transact(database, ChainSpans(before_us, after, _BATCH))
        chains += found
        if len(found) < _BATCH:
            return chains
        after = found[-1].writer


def _cuts(chain: ChainSpan) -> Iterable[int]:
    """Return where to cut: few rows at a time, for others wait meanwhile."""
    if chain.old_to < chain.first:
        return ()
    return (*range(chain.first - 1 + _BATCH, chain.old_to, _BATCH), chain.old_to)
