"""Units of work on incidents: what went wrong, and where, without a word of what it was about.

Nothing here is the text of an exception, which may quote what a user sent or a database said.
"""

from __future__ import annotations

import json
from typing import Final

from attrs import astuple

from ..values import frozen
from .units import Dialect, ReadUnit, Sql, Statements, Unit

__all__ = ["INCIDENT_DAYS", "AddIncidents", "Incident", "IncidentPlace", "ListIncidents"]

MOST_ROWS: Final = 10_000
"""So many incidents are kept in a database, the newest."""

INCIDENT_DAYS: Final = 30
"""For so many days an incident is kept, unless the configuration says so."""

_DAY_US: Final = 24 * 3_600_000_000
_COLUMNS: Final = (
    "incident_id, at_us, node, error_type, place, operation, component, request_id, run_id"
)

_TEXTS: Final = ", ".join(f"value ->> {place}" for place in range(2, 9))


@frozen
class Incident:
    """An error under the number that a caller sees.

    Attributes:
        incident_id: As it stands in the answer, or in the output of a run, and in the log.
        error_type: The class of the exception, or the reason why a run failed.
        place: The function and the line that raised it; empty where nothing was raised.
        operation: The operation of the request, or the name of the log's line.
        component: The agent or team, as `agent:clerk`.
    """

    incident_id: str
    at_us: int
    node: str
    error_type: str
    place: str
    operation: str | None = None
    component: str | None = None
    request_id: str | None = None
    run_id: str | None = None


ADD: Final = Sql(
    f"""insert into incidents ({_COLUMNS})
    select {", ".join(f"json_extract(value, '$[{place}]')" for place in range(9))}
    from json_each(:rows) where true on conflict (incident_id) do nothing""",
    f"""insert into incidents ({_COLUMNS})
    select value ->> 0, cast(value ->> 1 as bigint), {_TEXTS}
    from json_array_elements(cast(:rows as json)) as rows (value)
    on conflict (incident_id) do nothing""",
)
FORGET_OLD: Final = Sql("delete from incidents where at_us < :before_us")
FORGET_MANY: Final = Sql(
    """delete from incidents where at_us <= (
        select at_us from incidents order by at_us desc limit 1 offset :most)"""
)


@frozen
class AddIncidents(Unit[None]):
    """Store `incidents`, each once; with `forgets`, delete those of before `days`, or too many."""

    incidents: tuple[Incident, ...]
    now_us: int
    forgets: bool = False
    days: int = INCIDENT_DAYS

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield one insertion, and two deletions now and then."""
        yield ADD(rows=json.dumps([astuple(one) for one in self.incidents]))
        if self.forgets:
            yield FORGET_OLD(before_us=self.now_us - self.days * _DAY_US)
            yield FORGET_MANY(most=MOST_ROWS)


@frozen
class IncidentPlace:
    """A place in the order of time and id."""

    at_us: int
    incident_id: str = ""


_LIST: Final = f"""select {_COLUMNS} from incidents
    where at_us >= :since_us and at_us <= :at_us and (at_us, {{id}}) < (:at_us, :incident_id)
    order by at_us desc, {{id}} desc limit :size"""
LIST: Final = Sql(_LIST.format(id="incident_id"), _LIST.format(id='incident_id collate "C"'))


@frozen
class ListIncidents(ReadUnit[tuple[Incident, ...]]):
    """At most `size` incidents before `place` and not before `since_us`, the newest first."""

    place: IncidentPlace
    since_us: int
    size: int

    def statements(self, dialect: Dialect) -> Statements[tuple[Incident, ...]]:
        """Yield one read."""
        place = self.place
        rows = yield LIST.of(self, at_us=place.at_us, incident_id=place.incident_id)
        return tuple(Incident(*row) for row in rows)
