"""The watch over runs that others execute: one statement for all who follow them here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from ..effects import AwaitNudge, Log, Now, Program, Sleep, Transact
from ..store.failures import StoreFailure
from ..store.run_reads import FindProgress
from ..values import frozen
from .membership import Cluster
from .retry import OUTAGE_US, PASSING
from .rounds import Pause, RoundJob, repeat
from .watched_runs import (
    POLL_SECONDS,
    SOON_SECONDS,
    WatchedRun,
    WatchedRuns,
    wake_followers,
    watch_topic,
)

__all__ = ["WatchFollowed"]

T = TypeVar("T")

AT_ONCE: Final = 256
"""How many runs one statement asks for: so long others wait where the database is read by them."""

_MOST_US: Final = 2_000_000
"""The most that one round counts for: a process that stood still has not seen anything."""


@frozen
class WatchFollowed(RoundJob):
    """Look after the followers of the runs of one database that other nodes execute.

    Every second, and sooner after something happened, their progress is asked for; woken is who has
    something to look at.  Runs of this process tell it themselves, and are not asked for.
    """

    cluster: Cluster
    database: str

    @property
    def watched(self) -> WatchedRuns:
        """The runs of the database that are followed here."""
        return self.cluster.member(self.database).watched

    @property
    def pause(self) -> Pause:
        """Wait for the next round, or for a run of another node where there was none."""
        return AwaitNudge(watch_topic(self.database), self.watched.pause)

    def log_trouble(self, level: str, fields: tuple[tuple[str, Any], ...]) -> Log:
        """Return the line of the log for a round that failed."""
        return Log(level, "watch_round_failed", fields)

    def program(self) -> Program[None]:
        """Go round; as long as that is so, followers do not ask by themselves."""
        watched = self.watched
        watched.live = True
        try:
            yield from repeat(self)
        finally:
            watched.live = False

    def round(self) -> Program[bool]:
        """Ask for what is due, and wake who has something to look at."""
        watched = self.watched
        now_us = yield from Now()
        elapsed_us = min(max(now_us - watched.asked_us, 0), _MOST_US)
        watched.asked_us = now_us
        again, watched.again = watched.again, {}
        yield from wake_followers(again.values())
        yield from self._heed_trust(watched, now_us)
        chosen, has_news = watched.choose(), False
        try:
            for batch in _cut(chosen):
                has_news = (yield from self._ask(batch, elapsed_us)) or has_news
        except PASSING:
            yield from self._note_outage(chosen, elapsed_us)
            raise
        except StoreFailure:
            yield from self._let_look(chosen)
            raise
        watched.away_us = 0
        doubled = min(2 * watched.pause, POLL_SECONDS)
        watched.pause = SOON_SECONDS if has_news else doubled
        return False

    def _ask(self, batch: Sequence[WatchedRun], elapsed_us: int) -> Program[bool]:
        """Ask for the progress of some runs; return whether anything happened in one of them."""
        found = yield from Transact(self.database, FindProgress(tuple(run.run_id for run in batch)))
        woken = [run for run in batch if run.learn(found.get(run.run_id), elapsed_us)]
        yield from self._wake(woken)
        if len(batch) == AT_ONCE:
            yield from Sleep(0.0)  # let others have their turn
        return bool(woken)

    def _heed_trust(self, watched: WatchedRuns, now_us: int) -> Program[None]:
        """Let everybody look at its token when tokens are judged by something else."""
        trust, before = self.cluster.trust(now_us), watched.trust
        watched.trust = trust
        if before not in (None, trust):
            yield from self._wake(watched)

    def _note_outage(self, chosen: Sequence[WatchedRun], elapsed_us: int) -> Program[None]:
        """Let followers give up where the database is away for as long as runs wait for it."""
        watched = self.watched
        watched.away_us += elapsed_us
        if watched.away_us > OUTAGE_US:
            for run in chosen:
                run.stalled = True
            yield from self._let_look(chosen)

    def _let_look(self, chosen: Sequence[WatchedRun]) -> Program[None]:
        """Let followers hear for themselves what the database answers."""
        for run in chosen:
            run.changes += 1
        yield from self._wake(chosen)

    def _wake(self, runs: Iterable[WatchedRun]) -> Program[None]:
        """Let followers see what is known, now and once more in the next round."""
        runs = tuple(runs)
        self.watched.again.update((run.run_id, run) for run in runs)
        yield from wake_followers(runs)


def _cut(runs: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield pieces of `runs` of the size of a statement."""
    for first in range(0, len(runs), AT_ONCE):
        yield runs[first : first + AT_ONCE]
