"""The rounds in which the parent of several workers asks each of them what it has measured.

It is a machine of values: no socket, no process and no clock.  `scrapes` does what it says.

**A round is asked for after the request.**  A worker that is scraped asks the parent, which asks
every worker; who comes while a round goes on waits for the next.  So what was answered before a
scrape is in it, and there are never more than two rounds to come.

**Counters never go back.**  Of each worker the last snapshot is kept: one that does not answer in
time is represented by its counters.  Those of a worker that has ended are added to what is kept of
all before it.  So a scrape never shows less than one before it did, whatever became of workers.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

from attrs import field

from legation.observability.merging import (
    Snapshot,
    Survey,
    choose_newest,
    count_workers,
    keep_counted,
    merge,
)
from legation.observability.prometheus import Family
from legation.values import define, frozen

__all__ = ["ANSWER_SECONDS", "Answer", "Ask", "Rounds", "Step"]

ANSWER_SECONDS: Final = 2.0
"""For a worker to say what it has measured; one that does not hangs in a step, or is starved."""


@frozen
class Ask:
    """Ask the worker `pid` for a snapshot."""

    pid: int


@frozen
class Answer:
    """Tell the worker `pid`, which was scraped, what all have measured."""

    pid: int
    snapshot: Snapshot


Step: TypeAlias = Ask | Answer


@define(eq=False)
class _Worker:
    """One worker.

    Attributes:
        families: What it said last.
        asked: The round for which it was asked and has not answered yet.
        told: The last round that it answered.
        silent: It cannot be asked any more.
    """

    families: tuple[Family, ...] = ()
    asked: int | None = None
    told: int = 0
    silent: bool = False


@define(eq=False)
class Rounds:
    """The state of the rounds.  Times are seconds on the caller's clock.

    Attributes:
        due: When the round ends, whoever has not answered.
    """

    due: float = field(default=math.inf, init=False)
    _workers: dict[int, _Worker] = field(factory=dict[int, _Worker], init=False)
    _ended: tuple[Family, ...] = field(default=(), init=False)
    """The counters of all workers that have ended."""
    _surveyed: Survey | None = field(default=None, init=False)
    _round: int = field(default=0, init=False)
    _scraped: set[int] = field(factory=set[int], init=False)
    """Whom the round is for."""
    _next: set[int] = field(factory=set[int], init=False)
    """Whom the next one is for."""

    def come_up(self, pid: int) -> list[Step]:
        """Take note of a worker that serves."""
        self._workers[pid] = _Worker()
        return [] if self.due == math.inf else self._ask()

    def gather(self, pid: int, now: float) -> list[Step]:
        """Begin a round for `pid`, or note that it waits for the next."""
        self._next.add(pid)
        return self._begin(now) if self.due == math.inf else []

    def take(self, pid: int, snapshot: Snapshot, now: float) -> list[Step]:
        """Take what `pid` says, be it an answer or its last word."""
        worker = self._workers.get(pid)
        if worker is None:
            return []  # it ended before it served anybody
        worker.families = snapshot.families
        self._surveyed = choose_newest(self._surveyed, snapshot.surveyed)
        if worker.asked in (None, self._round):
            worker.told = self._round
        worker.asked = None
        return [*self._ask(), *self._finish(now)] if self.due != math.inf else []

    def silence(self, pid: int, now: float) -> list[Step]:
        """Take note that `pid` cannot be asked any more; its counters are kept."""
        worker = self._workers.get(pid)
        if worker is not None:
            worker.silent = True
        return self._leave_out(pid, now)

    def remove(self, pid: int, now: float) -> list[Step]:
        """Take note that `pid` has ended; its counters are kept."""
        worker = self._workers.pop(pid, None)
        if worker is not None:
            self._ended = merge((self._ended, keep_counted(worker.families)))
        return self._leave_out(pid, now)

    def advance(self, now: float) -> list[Step]:
        """End a round that is overdue."""
        return self._end(now) if self.due <= now else []

    def _leave_out(self, pid: int, now: float) -> list[Step]:
        """Neither wait for `pid` nor answer it."""
        self._scraped.discard(pid)
        self._next.discard(pid)
        return self._finish(now)

    def _begin(self, now: float) -> list[Step]:
        self._round += 1
        self._scraped, self._next = self._next, set()
        self.due = now + ANSWER_SECONDS
        return [*self._ask(), *self._finish(now)]

    def _ask(self) -> list[Step]:
        """Ask whoever has not answered in this round, and owes no earlier answer."""
        asked: list[Step] = []
        for pid, worker in self._workers.items():
            if worker.told < self._round and worker.asked is None and not worker.silent:
                worker.asked = self._round
                asked.append(Ask(pid))
        return asked

    def _finish(self, now: float) -> list[Step]:
        """End the round if nobody is waited for any more."""
        workers = self._workers.values()
        if self.due == math.inf or any(w.told < self._round and not w.silent for w in workers):
            return []
        return self._end(now)

    def _end(self, now: float) -> list[Step]:
        """Answer whoever was scraped, and begin the next round if one is wanted."""
        steps: list[Step] = []
        if self._scraped:
            snapshot = self._sum_up()
            steps = [Answer(pid, snapshot) for pid in sorted(self._scraped)]
        self.due = math.inf
        self._scraped = set()
        return [*steps, *self._begin(now)] if self._next else steps

    def _sum_up(self) -> Snapshot:
        workers = self._workers.values()
        told = [worker for worker in workers if worker.told == self._round]
        parts = (
            worker.families if worker.told == self._round else keep_counted(worker.families)
            for worker in workers
        )
        known = count_workers(len(workers), len(told))
        return Snapshot(merge((self._ended, *parts, known)), self._surveyed)
