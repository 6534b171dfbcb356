"""Incidents on their way to the database: written a moment after they happened, several at once."""

from __future__ import annotations

from typing import Any, Final

from attrs import evolve, field

from ..effects import Log, Now, Program, Sleep, ThisNode, Transact
from ..runs.incident_book import IncidentBook
from ..runs.rounds import Pause, RoundJob
from ..store.failures import StoreFailure
from ..store.incidents import INCIDENT_DAYS, AddIncidents
from ..values import frozen

__all__ = ["WriteIncidents"]

_ROUND_SECONDS: Final = 2.0
_HOUR_US: Final = 3_600_000_000


@frozen
class WriteIncidents(RoundJob):
    """Write the incidents of a process to `database`: no statement where there was none.

    They are kept for `days`, or for the usual time.

    A process that is killed loses those of its last seconds, which the log has.  What could not be
    written is kept for the next round, within the bounds of the book.
    """

    book: IncidentBook = field(eq=False, repr=False)
    database: str
    days: int | None = None

    @property
    def pause(self) -> Pause:
        """Wait a moment."""
        return Sleep(_ROUND_SECONDS)

    def log_trouble(self, level: str, fields: tuple[tuple[str, Any], ...]) -> Log:
        """Return the line of the log for a round that failed."""
        return Log(level, "incidents_failed", fields)

    def round(self) -> Program[bool]:
        """Write what there is for the database, and say how many are not in the list."""
        if omitted := self.book.take_omitted():
            yield from Log("warning", "incidents_omitted", (("incidents", omitted),))
        yield from self._write()
        return False

    def end(self) -> Program[None]:
        """Write what is left, if that can be done now: the process ends."""
        try:
            yield from self._write()
        except StoreFailure:
            return

    def _write(self) -> Program[None]:
        book, database = self.book, self.database
        if not (taken := book.take(database)):
            return
        written = False
        try:
            node, now_us = (yield from ThisNode()), (yield from Now())
            incidents = tuple(evolve(one, node=node) for one in taken)
            hour = now_us // _HOUR_US
            forgets, days = hour != book.forgot.get(database), self.days or INCIDENT_DAYS
            unit = AddIncidents(incidents, now_us, forgets, days)
            yield from Transact(database, unit)
            written, book.forgot[database] = True, hour
        finally:
            if not written:
                book.put_back(database, taken)
