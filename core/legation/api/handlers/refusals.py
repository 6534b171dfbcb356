"""The counts of refusals that nobody is known for, page by page."""

from __future__ import annotations

from typing import Any, Final

from ...effects import Program, Transact
from ...http.messages import Headers, Response, json_response
from ...http.refusals import Fault
from ...runs.output import iso_time
from ...shares.subjects import network_of
from ...store.refusals import ListRefusals, RefusalCount, RefusalPlace
from ...values import frozen
from ..call import Call
from ..fields import integer, text
from ..listing import Cursor, cursor, encode_cursor, link_next

__all__ = [
    "RefusalSum",
    "RefusalsQuery",
    "add_up_refusals",
    "find_database",
    "list_refusals",
]

_BATCH: Final = 1_000
_MINUTE: Final = 60
_MINUTE_US: Final = 60_000_000
_LAST_SECOND: Final = 1 << 37  # of the year 6325


@frozen
class RefusalsQuery:
    """A page of the counts."""

    db_id: str | None = text("The database; the first unless given, where they are written")
    client: str | None = text("To this address, or its network", max_length=64)
    since: int | None = integer(
        "Not of minutes before, in seconds since the epoch", minimum=0, maximum=_LAST_SECOND
    )
    until: int | None = integer(
        "Of minutes that begin before, in seconds since the epoch",
        minimum=0,
        maximum=_LAST_SECOND,
    )
    limit: int = integer("Rows on a page", default=50, minimum=1, maximum=1000)
    cursor: Cursor | None = cursor(int, str, str, int)

    def to_unit(self) -> ListRefusals:
        """Return the unit that reads the page, and one row more."""
        until = _LAST_SECOND if self.until is None else self.until
        place = RefusalPlace(-(-until // _MINUTE))
        if self.cursor is not None:
            place = min(place, RefusalPlace(*self.cursor), key=_order)
        only = None if self.client is None else network_of(self.client.removesuffix("/64"))
        return ListRefusals(place, (self.since or 0) // _MINUTE, self.limit + 1, only)


def _order(place: RefusalPlace) -> tuple[Any, ...]:
    return place.minute, place.client, place.route, place.status


def find_database(call: Call, query: RefusalsQuery) -> str | Fault:
    """Return the database whose counts are asked for."""
    registry = call.registry
    if query.db_id is None:
        return registry.default_database
    known = query.db_id in registry.databases
    return query.db_id if known else Fault("query.db_id", "names no database")


def list_refusals(call: Call, database: str, query: RefusalsQuery) -> Program[Response]:
    """Return how often requests were refused of which nobody knows who asked, the newest first.

    Counted by minute, client (of IPv6 the first 64 bits), route and status.  A minute is there once
    it is over.  A row whose `client` is `others` has no status: it counts what had no row of its
    own.
    """
    found = yield from Transact(database, query.to_unit())
    page, more = found[: query.limit], len(found) > query.limit
    following: str | None = None
    headers: Headers = ()
    if more:
        last = page[-1]
        following = encode_cursor((last.minute, last.client, last.route, last.status))
        headers = link_next(call.query, "cursor", following)
    meta = {"limit": query.limit, "next_cursor": following}
    return json_response(200, {"data": [_item(one) for one in page], "meta": meta}, headers)


@frozen
class RefusalSum:
    """The refusals of one client, route and status; that of `others` is 0."""

    client: str
    route: str
    status: int
    count: int


def add_up_refusals(
    database: str, since: int, only: str | None = None
) -> Program[tuple[RefusalSum, ...]]:
    """Add up the refusals from the minute `since` on, the greatest first; `only` names a client."""
    sums: dict[tuple[str, str, int], int] = {}
    place = RefusalPlace(_LAST_SECOND)
    while True:
        rows = yield from Transact(database, ListRefusals(place, since, _BATCH, only))
        for row in rows:
            key = (row.client, row.route, row.status)
            sums[key] = sums.get(key, 0) + row.count
        if len(rows) < _BATCH:
            break
        last = rows[-1]
        place = RefusalPlace(last.minute, last.client, last.route, last.status)
    ranked = sorted(sums.items(), key=lambda one: (-one[1], one[0]))
    return tuple(RefusalSum(*key, count) for key, count in ranked)


def _item(one: RefusalCount) -> dict[str, Any]:
    return {
        "at": iso_time(one.minute * _MINUTE_US),
        "client": one.client,
        "route": one.route,
        "status": one.status or None,
        "count": one.count,
    }
