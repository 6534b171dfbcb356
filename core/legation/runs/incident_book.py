"""The incidents of a process, kept until a job writes them to the database.

A fault that strikes every request would fill the table, and the memory while the database is away.
So of one minute at most `MINUTE` are kept, and at most `WAITING` that are not written yet; those
beyond are counted.  The log has all of them.
"""

from __future__ import annotations

from typing import Final

from attrs import field

from ..store.incidents import Incident
from ..values import define

__all__ = ["IncidentBook"]

MINUTE: Final = 100
WAITING: Final = 1_000

_MINUTE_US: Final = 60_000_000
_LONGEST: Final = 200
"""Characters of the name of a class or of a place."""


@define(eq=False)
class IncidentBook:
    """The incidents of one process that are not written yet.

    Attributes:
        omitted: How many are not kept, since the process began.
        forgot: The hour in which each database was last asked to forget.
    """

    omitted: int = field(default=0, init=False)
    forgot: dict[str, int] = field(factory=dict[str, int], init=False)
    _waiting: dict[str, list[Incident]] = field(factory=dict[str, list[Incident]], init=False)
    _minute: int = field(default=-1, init=False)
    _noted: int = field(default=0, init=False)
    _reported: int = field(default=0, init=False)

    def note(  # noqa: PLR0913  each is named at the call
        self,
        database: str,
        incident_id: str,
        at_us: int,
        *,
        error_type: str,
        place: str = "",
        operation: str | None = None,
        component: str | None = None,
        request_id: str | None = None,
        run_id: str | None = None,
    ) -> None:
        """Keep an incident for `database`, if there is room for it in this minute."""
        minute = at_us // _MINUTE_US
        if minute != self._minute:
            self._minute, self._noted = minute, 0
        waiting = sum(map(len, self._waiting.values()))
        if self._noted >= MINUTE or waiting >= WAITING:
            self.omitted += 1
            return
        self._noted += 1
        one = Incident(
            incident_id,
            at_us,
            "",
            error_type[:_LONGEST],
            place[:_LONGEST],
            operation,
            component,
            request_id,
            run_id,
        )
        self._waiting.setdefault(database, []).append(one)

    def take(self, database: str) -> tuple[Incident, ...]:
        """Return what is to be written to `database`, and keep it no longer."""
        return tuple(self._waiting.pop(database, ()))

    def put_back(self, database: str, incidents: tuple[Incident, ...]) -> None:
        """Keep what could not be written."""
        self._waiting[database] = [*incidents, *self._waiting.get(database, ())]

    def take_omitted(self) -> int:
        """Return how many were not kept since this was called last."""
        fresh, self._reported = self.omitted - self._reported, self.omitted
        return fresh
