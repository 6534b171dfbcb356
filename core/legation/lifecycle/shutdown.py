"""The end of a process, in order: it finishes or releases all its work, and lets no lease expire.

1. Nothing more is claimed: messages, replies and runs that wait are left to other nodes.
2. Work in progress gets time to finish, and so does the stream of a run that is executed here.  A
   stream of any other run is cut after a grace, with a comment on where to go on: the run may last
   for hours.
3. Messages and replies still under a lease are released, so that another node claims them at
   once.  A reply that was being sent is sent again, under its key.
4. Runs still executed are broken off and released, with their steps: any node goes on with them.
   Who waits for one is told so, and its streams are cut.

Messages come before runs: a worker waits for the run of its message, which goes on elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..effects import Log, Nudge, Program, Sleep, Transact
from ..messaging.leases import WorkerLeases
from ..runs.executor import ExecutorContext
from ..runs.topics import cancel_topic
from ..runs.watched_runs import wake_followers
from ..store.failures import StoreFailure
from ..store.inbox import INBOX
from ..store.leased_queue import ReleaseLeases
from ..store.outbox import OUTBOX
from ..values import frozen

__all__ = ["Shutdown"]

_STEP_SECONDS: Final = 0.05
_LAST_STEPS: Final = 40
"""For what was broken off to be stored, and for claims to be answered: two seconds."""


@frozen
class Shutdown:
    """The end of a process: it finishes or releases all that the process holds.

    `rounds` are the contexts of the rounds in progress, whose leases are among those of `workers`.
    """

    context: ExecutorContext
    workers: tuple[WorkerLeases, ...]
    rounds: tuple[ExecutorContext, ...] = ()

    @property
    def busy(self) -> bool:
        """Whether anything is under work, or a claim is on its way."""
        executing = any(context.executing for context in self._contexts)
        return executing or any(worker.busy for worker in self.workers)

    @property
    def _contexts(self) -> tuple[ExecutorContext, ...]:
        return (self.context, *self.rounds)

    def program(
        self, patience_seconds: float, grace_seconds: float, is_open: Callable[[], bool]
    ) -> Program[None]:
        """Wait, then release; a database that does not answer keeps its leases.

        While requests may come nothing is released, so that a run begun by the last of them is
        executed as well.
        """
        for context in self._contexts:
            context.draining = True
        yield from self._wake_followers()
        grace = int(grace_seconds / _STEP_SECONDS)
        for step in range(int(patience_seconds / _STEP_SECONDS)):
            leaving, self.context.leaving = self.context.leaving, step >= grace
            if self.context.leaving and not leaving:
                yield from self._wake_followers()
            if not (self.busy or self.context.followers or is_open()):
                break
            yield from Sleep(_STEP_SECONDS)
        for context in self._contexts:
            context.leaving = context.ending = True
        yield from self._wake_followers()
        for _ in range(_LAST_STEPS):
            yield from self._give_back()
            for context in self._contexts:
                for database, run_id in context.executing:
                    yield from Nudge(cancel_topic(database, run_id))
            if not (self.busy or self.context.followers):
                return
            yield from Sleep(_STEP_SECONDS)
        if self.busy:
            yield from Log("warning", "shutdown_incomplete", self.count_left())

    def _wake_followers(self) -> Program[None]:
        """Let them see that they are to leave runs that are not executed here, now or soon.

        From the first time on they look every second: one that is about to wait is not woken.
        """
        for member in self.context.cluster.members.values():
            yield from wake_followers(member.watched)

    def count_left(self) -> tuple[tuple[str, int], ...]:
        """Return how much is under work, by its kind."""
        return (
            ("runs", sum(len(context.executing) for context in self._contexts)),
            ("messages", sum(len(worker.list_leases(INBOX)) for worker in self.workers)),
            ("replies", sum(len(worker.list_leases(OUTBOX)) for worker in self.workers)),
        )

    def _give_back(self) -> Program[None]:
        for worker in self.workers:
            leases = (*worker.list_leases(INBOX), *worker.list_leases(OUTBOX))
            if not leases:
                continue
            try:
                yield from Transact(worker.database, ReleaseLeases(leases))
            except StoreFailure:
                continue  # tried again at the next step
            for lease in leases:
                worker.leave(lease)
