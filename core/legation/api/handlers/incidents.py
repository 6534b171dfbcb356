"""The list of incidents: errors by the number that a caller saw, of all nodes and databases."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from ...effects import Program, Transact
from ...http.messages import Response, json_response
from ...http.refusals import Fault
from ...runs.output import iso_time
from ...store.failures import StoreFailure
from ...store.incidents import Incident, IncidentPlace, ListIncidents
from ...values import frozen
from ..call import Call
from ..fields import integer, text
from ..listing import Cursor, cursor, encode_cursor, link_next

__all__ = ["IncidentsQuery", "find_databases", "list_incidents"]

_SECOND: Final = 1_000_000
_LAST_SECOND: Final = 1 << 40  # tens of thousands of years from now
_LAST_US: Final = _LAST_SECOND * _SECOND

_Found: TypeAlias = tuple[int, str, Incident]
"""An incident behind its time and its database."""


@frozen
class IncidentsQuery:
    """A page of incidents."""

    db_id: str | None = text("The database; all of them unless given")
    since: int | None = integer(
        "Not before, in seconds since the epoch", minimum=0, maximum=_LAST_SECOND
    )
    until: int | None = integer(
        "Before, in seconds since the epoch", minimum=0, maximum=_LAST_SECOND
    )
    limit: int = integer("Incidents on a page", default=50, minimum=1, maximum=200)
    cursor: Cursor | None = cursor(int, str, str)

    def to_unit(self, database: str) -> ListIncidents:
        """Return what is asked of `database`, one row more than a page has.

        The order is by time, then database, then id.
        """
        until_us = _LAST_US if self.until is None else self.until * _SECOND
        place = IncidentPlace(until_us)
        if self.cursor is not None:
            at_us, last, incident_id = self.cursor
            behind = IncidentPlace(at_us + (database < last))
            if database == last:
                behind = IncidentPlace(at_us, incident_id)
            place = min(place, behind, key=_order)
        return ListIncidents(place, (self.since or 0) * _SECOND, self.limit + 1)


def _order(place: IncidentPlace) -> tuple[int, str]:
    return place.at_us, place.incident_id


def find_databases(call: Call, query: IncidentsQuery) -> tuple[str, ...] | Fault:
    """Return the databases whose incidents are asked for."""
    names = tuple(call.registry.databases)
    if query.db_id is None:
        return names
    return (query.db_id,) if query.db_id in names else Fault("query.db_id", "names no database")


def list_incidents(
    call: Call, databases: tuple[str, ...], query: IncidentsQuery
) -> Program[Response]:
    """Return a page of incidents, the newest first.

    An incident is there some seconds after it happened.  Of one process and one minute at most 100
    are, of a database the newest 10,000, and none older than 30 days.  `meta.absent` names the
    databases that did not answer, of several.
    """
    found: list[_Found] = []
    absent: list[str] = []
    for name in databases:
        try:
            rows = yield from Transact(name, query.to_unit(name))
        except StoreFailure:
            absent.append(name)
            if len(absent) == len(databases):
                raise
            continue
        found += [(row.at_us, name, row) for row in rows]
    found.sort(key=lambda one: (one[0], one[1], one[2].incident_id), reverse=True)
    page = found[: query.limit]
    following: str | None = None
    if len(found) > query.limit:
        at_us, name, last = page[-1]
        following = encode_cursor((at_us, name, last.incident_id))
    more = () if following is None else link_next(call.query, "cursor", following)
    meta = {"limit": query.limit, "next_cursor": following, "absent": absent}
    data = [_item(name, row) for _, name, row in page]
    return json_response(200, {"data": data, "meta": meta}, more)


def _item(database: str, row: Incident) -> dict[str, Any]:
    return {
        "incident": row.incident_id,
        "at": iso_time(row.at_us),
        "db_id": database,
        "node": row.node,
        "error_type": row.error_type,
        "place": row.place,
        "operation": row.operation,
        "component": row.component,
        "request_id": row.request_id,
        "run_id": row.run_id,
    }
