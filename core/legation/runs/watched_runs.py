"""The runs of one database that somebody follows here, and what is known of each.

A follower asks the database at first, unless the run begins here, and then no more than it has to:
the executor of a run of this process notes what it has stored, and a watcher (`runs.run_watch`)
asks for the runs of other nodes, once for all who follow them.  Here each follower sees whether
there is anything to look at.

Where no watcher goes round, as in a process that is frozen between its requests, a follower asks
by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from attrs import field

from ..effects import Program, Publish
from ..store.run_reads import RunProgress
from ..store.run_states import RunState
from ..values import define
from .register import Registers

__all__ = [
    "LEFT_SECONDS",
    "OVER",
    "POLL_SECONDS",
    "SOON_SECONDS",
    "WatchedRun",
    "WatchedRuns",
    "wake_followers",
    "watch_topic",
]

# A run of another node tells nothing here: the database is asked soon after something happened,
# and less and less often while nothing does.
SOON_SECONDS: Final = 0.05
POLL_SECONDS: Final = 1.0

# Whoever finds a lease that has passed takes the run up within a second or two.
LEFT_SECONDS: Final = 15.0
_LEFT_US: Final = round(LEFT_SECONDS * 1_000_000)

OVER: Final = {state.value for state in RunState if state.final or state is RunState.PAUSED}
"""The states in which nothing more comes, unless somebody continues a run that paused."""


def watch_topic(database: str) -> str:
    """Return the topic that wakes the watcher of a database: there is a run of another node."""
    return f"followed:{database}"


@define(eq=False)
class WatchedRun:
    """One run, and what is known of it.

    Attributes:
        followers: How many follow it here.
        last: The number of its newest event that is known to be stored.  The executor of a run of
            this process notes it before it publishes the event: a follower that the hub does not
            tell, as it was busy until that had forgotten, finds here that it has to ask.
        found: That which the watcher found last.
        changes: How often there was something to look at that is no event: that it is over, or
            gone, or held by nobody.
        wakes: How often its followers were woken who find here whether there is something.
        status: As it was found last; None where it was gone, empty before it was asked for.
        left_us: For how long nobody has held its lease.
        stalled: Whether that is too long.
        seen: Whether a round has passed since it was followed first.
        in_step: It is executed here, and was asked for since: what other nodes stored is known.
    """

    run_id: str
    followers: int = 0
    last: int = 0
    found: int = 0
    changes: int = 0
    wakes: int = 0
    status: str | None = ""
    left_us: int = 0
    stalled: bool = False
    seen: bool = False
    in_step: bool = False

    def learn(self, found: RunProgress | None, elapsed_us: int) -> bool:
        """Take what the database says; return whether its followers have something to look at.

        `elapsed_us` is the time since it was asked before.
        """
        status, last, held = (None, 0, False)
        if found is not None:
            status, last, held = found.status, found.last, found.held
        is_over, has_news = status is None or status in OVER, last > self.found
        has_changed = is_over and status != self.status
        self.last, self.found, self.status = max(self.last, last), last, status
        self.left_us = 0 if held or is_over or has_news else self.left_us + elapsed_us
        was_stalled, self.stalled = self.stalled, self.left_us > _LEFT_US
        if has_changed or (self.stalled and not was_stalled):
            self.changes += 1
            return True
        return has_news


@define(eq=False)
class WatchedRuns:
    """The runs of `database` that are followed here.

    Attributes:
        executing: The registers of the runs that this process executes.
        live: Whether a watcher goes round.
        awake: Whether it asks for a run of another node.
        pause: Until its next round, in seconds.
        asked_us: When it asked last.
        away_us: For how long the database has not answered it.
        trust: What tokens were judged by at its last round.
        runs: They, by their ids.
        again: Whose followers are woken once more: one that was about to wait is not woken.
    """

    database: str
    executing: Registers[int] = field(factory=Registers[int], repr=False)
    live: bool = False
    awake: bool = False
    pause: float = POLL_SECONDS
    asked_us: int = 0
    away_us: int = 0
    trust: bytes | None = None
    again: dict[str, WatchedRun] = field(factory=dict[str, WatchedRun])
    runs: dict[str, WatchedRun] = field(factory=dict[str, WatchedRun], init=False)

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[WatchedRun]:
        """Iterate over the runs, in the order in which they were followed first."""
        return iter(tuple(self.runs.values()))

    def enter(self, run_id: str) -> WatchedRun:
        """Note one more follower of a run; return what is known of that."""
        run = self.runs.get(run_id)
        if run is None:
            run = self.runs[run_id] = WatchedRun(run_id)
        run.followers += 1
        return run

    def leave(self, run: WatchedRun) -> None:
        """Note that a follower of `run` is gone."""
        run.followers -= 1
        if not run.followers:
            del self.runs[run.run_id]

    def executes(self, run_id: str) -> bool:
        """Return whether a program of this process executes the run."""
        key = (self.database, run_id)
        return any(key in register for register in self.executing)

    def choose(self) -> tuple[WatchedRun, ...]:
        """Return the runs to be asked for now: those of other nodes.

        A run that is executed here is asked for once, so that its followers learn of what another
        node had stored before; most are over sooner.
        """
        chosen: list[WatchedRun] = []
        self.awake = False
        registers = tuple(self.executing)
        for run in self.runs.values():
            key = (self.database, run.run_id)
            if not any(key in register for register in registers):
                run.in_step, self.awake = False, True
                chosen.append(run)
            elif run.seen and not run.in_step:
                run.in_step = True
                chosen.append(run)
            run.seen = True
        return tuple(chosen)


def wake_followers(runs: Iterable[WatchedRun]) -> Program[None]:
    """Let everybody who follows one of `runs` see what is known of it, and of itself."""
    for run in runs:
        run.wakes += 1
        yield from Publish(run.run_id, ())
