"""The rounds of a node: claim what waits, keep alive what is under work, forget what is long done.

A nudge makes a round begin at once; without one it begins within a second, which is also how the
work of another node, and of a dead one, is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ..effects import AwaitNudge, Job, Log, Now, Program, Sleep, Spawn, ThisNode, Transact
from ..runs.rounds import Pause, repeat
from ..store.inbox import INBOX
from ..store.leased_queue import ClaimItems, ExtendLeases, ForgetItems, LeasedQueue
from ..store.outbox import OUTBOX
from ..values import frozen
from .answers import AnswerMessage
from .leases import MOST, WorkerLeases
from .replies import SendReply
from .retry import MAX_ATTEMPTS

__all__ = ["KEPT_US", "ClaimWork", "ForgetDone", "KeepLeases", "channel_jobs"]

KEPT_US: Final = 30 * 24 * 3600 * 1_000_000
"""How long the id of an answered message is known: providers deliver again for a week."""

_ROUND_SECONDS: Final = 1.0
_TROUBLE_SECONDS: Final = 5.0
_FORGET_SECONDS: Final = 3600.0
_BATCH: Final = 500
# At least so many places are free before more is claimed: a claim for each that becomes free
# would keep the database busy when the node is.
_WORTHWHILE: Final = MOST // 4


def channel_jobs(workers: Iterable[WorkerLeases]) -> tuple[Job, ...]:
    """Return the rounds of `workers`."""
    return tuple(job for worker in workers for job in _jobs(worker))


def _jobs(worker: WorkerLeases) -> tuple[Job, ...]:
    return (
        ClaimWork(worker, INBOX, AnswerMessage, worker.inbox),
        ClaimWork(worker, OUTBOX, SendReply, worker.outbox),
        KeepLeases(worker),
        ForgetDone(worker),
    )


def _repeat(
    worker: WorkerLeases, one_round: Callable[[], Program[None]], pause: Pause
) -> Program[None]:
    """Go round for ever."""
    return repeat(
        worker.database,
        one_round,
        lambda level, fields: Log(level, "channel_round_failed", fields),
        pause,
        Sleep(_TROUBLE_SECONDS),
    )


@frozen
class ClaimWork(Job):
    """Claim what waits in `queue` and start `work` on each, as long as the process lives.

    Under `topic` it is announced that something waits.
    """

    worker: WorkerLeases
    queue: LeasedQueue[Any, Any]
    work: Callable[[WorkerLeases, Any], Job]
    topic: str

    def program(self) -> Program[None]:
        """Go round."""
        return _repeat(self.worker, self._round, AwaitNudge(self.topic, _ROUND_SECONDS))

    def _round(self) -> Program[None]:
        """Claim what there is room for; nothing where the process is about to end."""
        worker, queue = self.worker, self.queue
        free = MOST - len(worker.held(queue))
        if free < _WORTHWHILE or worker.context.draining:
            return
        node = yield from ThisNode()
        now_us = yield from Now()
        until_us = now_us + worker.lease_us
        unit = ClaimItems(queue, node, now_us, until_us, free, MAX_ATTEMPTS, worker.channels)
        worker.claims += 1
        try:
            claimed = yield from Transact(worker.database, unit)
        finally:
            worker.claims -= 1
        for item in claimed.items:
            worker.enter(item.lease)
            yield from Spawn(self.work(worker, item))
        for key in claimed.buried:
            yield from Log(
                "error",
                "reply_abandoned" if queue is OUTBOX else "message_abandoned",
                (("channel", key.channel),),
            )


@frozen
class KeepLeases(Job):
    """Extend the leases of what is under work, three times within a lease."""

    worker: WorkerLeases

    def program(self) -> Program[None]:
        """Go round."""
        return _repeat(self.worker, self._round, Sleep(self.worker.lease_us / 3 / 1_000_000))

    def _round(self) -> Program[None]:
        """Extend; what was lost makes room, for its work comes to nothing."""
        worker, now_us = self.worker, (yield from Now())
        for queue in (INBOX, OUTBOX):
            if leases := worker.held(queue):
                extend = ExtendLeases(leases, now_us, now_us + worker.lease_us)
                kept = yield from Transact(worker.database, extend)
                for lease in leases:
                    if lease not in kept:
                        worker.leave(lease)


@frozen
class ForgetDone(Job):
    """Delete, every hour, what was answered and sent long ago."""

    worker: WorkerLeases

    def program(self) -> Program[None]:
        """Go round."""
        return _repeat(self.worker, self._round, Sleep(_FORGET_SECONDS))

    def _round(self) -> Program[None]:
        """Delete in batches, each a transaction of its own: nobody waits long for one."""
        before_us = (yield from Now()) - KEPT_US
        for queue in (INBOX, OUTBOX):
            forget = ForgetItems(queue, before_us, _BATCH)
            while (yield from Transact(self.worker.database, forget)) == _BATCH:
                pass
