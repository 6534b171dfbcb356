"""The retention of data: a sweep of each database a day, in small bites.

A bite is a transaction of its own, and a pause comes behind it: what runs and channels store
meanwhile waits for one bite at most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from attrs import field

from ..effects import Log, Now, Program, Sleep, ThisNode, Transact
from ..runs.membership import Cluster
from ..runs.rounds import Pause, RoundJob
from ..store.audit import Audited
from ..store.audit_entries import AuditEntry
from ..store.periods import Kind, Periods
from ..store.retention import AdvanceTrail, CountOld, EndSweep, Sweep, TakeBite
from ..values import frozen

__all__ = ["SWEPT", "CountTrail", "PruneTrail", "SweepDatabase"]

SWEPT: Final = "retention.sweep"
"""The operation of the entry in the trail that says what a sweep deleted."""

_ROUND_SECONDS: Final = 900.0
_TROUBLE_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.02
_WHO: Final = "local:retention"

PruneTrail: TypeAlias = Callable[[str, int, str], Program[int]]
"""Deletes the rows of a trail from before a time, in the name of somebody; returns how many."""

CountTrail: TypeAlias = Callable[[str, int], Program[int]]
"""Returns how many rows of a trail are from before a time, and would be deleted."""


@frozen
class SweepDatabase(RoundJob):
    """Delete what is kept for long enough in `database`, a bite a round, once a day.

    Several nodes may do so: one is at it, and another goes on where that died.
    """

    cluster: Cluster = field(eq=False, repr=False)
    database: str
    periods: Periods
    prune_trail: PruneTrail = field(eq=False, repr=False)
    count_trail: CountTrail = field(eq=False, repr=False)

    @property
    def pause(self) -> Pause:
        """Wait until a sweep may be due, or one that is another node's may be left behind."""
        return Sleep(_ROUND_SECONDS)

    @property
    def after_trouble(self) -> Pause:
        """Wait for a minute."""
        return Sleep(_TROUBLE_SECONDS)

    def log_trouble(self, level: str, fields: tuple[tuple[str, Any], ...]) -> Log:
        """Return the line of the log for a round that failed."""
        return Log(level, "retention_failed", fields)

    def round(self) -> Program[bool]:
        """Take a bite, if a sweep is under way or due; return whether there is more."""
        sweep = yield from self._bite()
        if sweep is None or not sweep.active:
            return False
        yield from Sleep(_PAUSE_SECONDS)
        return True

    def sweep(self) -> Program[Sweep]:
        """Do a whole sweep now, or the rest of one that is under way, and return it.

        Where another node ends it meanwhile, it is returned as it was seen last.
        """
        found = yield from self._bite(forced=True)
        sweep = Sweep()
        while found is not None:
            sweep = found
            if not sweep.active:
                break
            yield from Sleep(_PAUSE_SECONDS)
            found = yield from self._bite()
        return sweep

    def count(self) -> Program[Mapping[Kind, int]]:
        """Return how much a sweep would delete now, of each kind that has a period.

        What goes with its session or its run does not count, and of a session for which a message
        waits that is not known.
        """
        now_us = yield from Now()
        found: dict[Kind, int] = {}
        for kind in self.periods.kinds:
            if kind is Kind.TRAIL:
                before_us = self.periods.before_us(kind, now_us)
                found[kind] = yield from self.count_trail(self.database, before_us)
            else:
                unit = CountOld(kind, self.periods, now_us)
                found[kind] = yield from Transact(self.database, unit)
        return found

    def _bite(self, *, forced: bool = False) -> Program[Sweep | None]:
        node, now_us = (yield from ThisNode()), (yield from Now())
        bite = TakeBite(node, now_us, self.periods, forced)
        sweep = yield from Transact(self.database, bite)
        if sweep is not None and sweep.stage is Kind.TRAIL:
            sweep = yield from self._prune_trail(node, sweep)
        if sweep is not None and sweep.stage is None:
            sweep = yield from self._end(node, sweep)
        return sweep

    def _prune_trail(self, node: str, sweep: Sweep) -> Program[Sweep | None]:
        before_us = self.periods.before_us(Kind.TRAIL, sweep.begun_us)
        pruned = yield from self.prune_trail(self.database, before_us, _WHO)
        now_us = yield from Now()
        advance = AdvanceTrail(node, now_us, sweep.begun_us, pruned)
        return (yield from Transact(self.database, advance))

    def _end(self, node: str, sweep: Sweep) -> Program[Sweep | None]:
        """Note the end, in the trail as well where something went, and say so."""
        now_us = yield from Now()
        end = EndSweep(sweep.begun_us, now_us)
        if sweep.pruned:
            audited = Audited(end, node, _describe(sweep, now_us), self.cluster.trail_keys.signing)
            ended = (yield from Transact(self.database, audited)).result
        else:
            ended = yield from Transact(self.database, end)
        if ended is not None:
            seconds = round((now_us - sweep.begun_us) / 1_000_000, 3)
            counts = tuple(ended.counts.items())
            fields = (("database", self.database), ("seconds", seconds))
            yield from Log("info", "retention_swept", (*fields, *counts))
        return ended


def _describe(sweep: Sweep, now_us: int) -> AuditEntry:
    """Return the entry of the trail for a sweep: its resource has the counts, `runs/12`."""
    counts = "/".join(f"{kind}/{count}" for kind, count in sorted(sweep.counts.items()))
    return AuditEntry(now_us, "", _WHO, None, SWEPT, counts, "allow", "", 200, client="local")
