"""Counts of refusals on their way to the database: those of a minute, once it is over."""

from __future__ import annotations

from typing import Any, Final

from attrs import asdict, field

from ..effects import Log, Now, Program, Sleep, Transact
from ..runs.rounds import Pause, RoundJob
from ..shares.refusal_counter import RefusalCounter
from ..store.failures import StoreFailure
from ..store.refusals import REFUSAL_DAYS, AddRefusals, RefusalCount, shorten
from ..values import frozen

__all__ = ["WriteRefusals"]

_ROUND_SECONDS: Final = 10.0
_HOUR_US: Final = 3_600_000_000
_STEP_SECONDS: Final = 0.05
_STEPS: Final = 20
_LINES: Final = 100
"""Of what could not be written, at the end."""


@frozen
class WriteRefusals(RoundJob):
    """Write what a process has counted: one unit of work a minute, none where nothing was.

    A process that is killed loses the counts of its last minute.  What could not be written is kept
    for the next round.  It is written twice where the answer to a commit was lost.  It is kept for
    `days`, or for the usual time.
    """

    counter: RefusalCounter = field(eq=False, repr=False)
    database: str
    days: int | None = None

    @property
    def pause(self) -> Pause:
        """Wait for a part of a minute."""
        return Sleep(_ROUND_SECONDS)

    def log_trouble(self, level: str, fields: tuple[tuple[str, Any], ...]) -> Log:
        """Return the line of the log for a round that failed."""
        return Log(level, "refusals_failed", fields)

    def round(self) -> Program[bool]:
        """Write what was counted in the minutes that are over."""
        if self.counter and not self.counter.writing:
            now_us = yield from Now()
            yield from self._write(self.counter.take(now_us), now_us)
            if lines := self.counter.take_unlogged():
                yield from Log("warning", "refusals_unlogged", (("lines", lines),))
        return False

    def end(self) -> Program[None]:
        """Write all that is left, or log it: the process ends."""
        counter = self.counter
        for _ in range(_STEPS):
            if not counter.writing:
                break
            yield from Sleep(_STEP_SECONDS)
        if not counter:
            return
        now_us = yield from Now()
        try:
            yield from self._write(counter.take(), now_us)
        except StoreFailure:
            for one in shorten(counter.take(), _LINES):
                yield from Log("warning", "refusals_unwritten", tuple(asdict(one).items()))

    def _write(self, counted: tuple[RefusalCount, ...], now_us: int) -> Program[None]:
        if not counted:
            return
        counter, hour = self.counter, now_us // _HOUR_US
        counter.writing = True
        written = False
        try:
            forgets, days = hour != counter.forgot, self.days or REFUSAL_DAYS
            yield from Transact(self.database, AddRefusals(counted, forgets, days))
            written, counter.forgot = True, hour
        finally:
            counter.writing = False
            if not written:
                counter.put_back(counted)
