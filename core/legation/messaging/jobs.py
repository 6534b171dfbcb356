"""The rounds of a node: claim what waits, look after its leases, forget what is long done.

A nudge makes a round begin at once; without one it begins within a second, which is also how the
work of another node, and of a dead one, is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from attrs import evolve

from ..effects import AwaitNudge, Job, Log, Now, Program, Sleep, Spawn, ThisNode, Transact
from ..runs.membership import enter
from ..runs.rounds import Pause, RoundJob, pause_us
from ..store.inbox import INBOX
from ..store.leased_queue import (
    ClaimedItems,
    ClaimItems,
    ForgetItems,
    LeasedQueue,
    ListLeases,
    ReleaseLeases,
)
from ..store.outbox import OUTBOX
from ..values import frozen
from .answers import AnswerMessage
from .leases import WorkerLeases
from .replies import SendReply
from .retry import MAX_ATTEMPTS

__all__ = [
    "KEPT_US",
    "ClaimWork",
    "ForgetDone",
    "KeepLeases",
    "answer_inbox",
    "channel_jobs",
    "send_outbox",
]

KEPT_US: Final = 30 * 24 * 3600 * 1_000_000
"""How long the id of an answered message is known: providers deliver again for a week.

Where the configuration says how long, a sweep deletes it (`lifecycle.retention`).
"""

_ROUND_SECONDS: Final = 1.0
_TROUBLE_SECONDS: Final = 5.0
_FORGET_SECONDS: Final = 3600.0
_BATCH: Final = 500


def channel_jobs(workers: Iterable[WorkerLeases]) -> tuple[Job, ...]:
    """Return the rounds of `workers`."""
    return tuple(job for worker in workers for job in _jobs(worker))


def _jobs(worker: WorkerLeases) -> tuple[Job, ...]:
    return (answer_inbox(worker), send_outbox(worker), KeepLeases(worker), ForgetDone(worker))


def answer_inbox(worker: WorkerLeases) -> ClaimWork:
    """Return the job that claims messages and answers them."""
    return ClaimWork(worker, INBOX, AnswerMessage, worker.inbox)


def send_outbox(worker: WorkerLeases) -> ClaimWork:
    """Return the job that claims replies and sends them."""
    return ClaimWork(worker, OUTBOX, SendReply, worker.outbox)


@frozen
class _QueueJob(RoundJob):
    """Base of the jobs on the queues of one database."""

    worker: WorkerLeases

    @property
    def database(self) -> str:
        """The database of the queues."""
        return self.worker.database

    @property
    def after_trouble(self) -> Pause:
        """The pause after a round that failed."""
        return Sleep(_TROUBLE_SECONDS)

    def log_trouble(self, level: str, fields: tuple[tuple[str, Any], ...]) -> Log:
        """Return the line of the log for a round that failed."""
        return Log(level, "channel_round_failed", fields)


@frozen
class ClaimWork(_QueueJob):
    """Claim what waits in `queue` and start `work` on each.

    Under `topic` it is announced that something waits.
    """

    queue: LeasedQueue[Any, Any]
    work: Callable[[WorkerLeases, Any], Job]
    topic: str

    @property
    def pause(self) -> Pause:
        """Wait until something is announced."""
        return AwaitNudge(self.topic, _ROUND_SECONDS)

    def round(self) -> Program[bool]:
        """Claim what there is room for."""
        worker, queue = self.worker, self.queue
        room = worker.room(queue)
        if not room:
            return False
        claimed = yield from worker.claim(self._claim(room))
        for item in claimed.items:
            yield from Spawn(self.work(worker, item))
        for key in claimed.buried:
            yield from Log(
                "error",
                "reply_abandoned" if queue is OUTBOX else "message_abandoned",
                (("channel", key.channel),),
            )
        return False

    def _claim(self, room: int) -> Program[ClaimedItems[Any]]:
        """Claim as this node, and note what came of it before anybody else has a turn."""
        worker, queue = self.worker, self.queue
        node, _ = yield from enter(worker.context.cluster, worker.database)
        unit = ClaimItems(queue, node, room, MAX_ATTEMPTS, worker.channels)
        claimed = yield from Transact(worker.database, unit)
        worker.count(queue, len(claimed.items))
        # A database that was restored from a backup gives out again what is under work here.
        items = tuple(item for item in claimed.items if worker.is_idle(item.lease))
        for item in items:
            worker.enter(item.lease)
        return evolve(claimed, items=items)


@frozen
class KeepLeases(_QueueJob):
    """Compare the leases of this node with what it works on, three times within a lease."""

    @property
    def pause(self) -> Pause:
        """Wait for a third of a lease."""
        return Sleep(self.worker.lease_us / 3 / 1_000_000)

    def round(self) -> Program[bool]:
        """Release what nobody works on; what was lost makes room, for its work comes to nothing."""
        worker, node = self.worker, (yield from ThisNode())
        held = (*worker.list_leases(INBOX), *worker.list_leases(OUTBOX))
        leased = yield from Transact(worker.database, ListLeases((INBOX, OUTBOX), node))
        for lease in set(held).difference(leased):
            worker.leave(lease)
        now_us = yield from Now()
        idle = filter(worker.is_idle, leased)
        orphans = worker.shared.find_orphans(idle, now_us, pause_us(self))
        if orphans:
            yield from Transact(worker.database, ReleaseLeases(orphans))
            fields = (("database", worker.database), ("leases", len(orphans)))
            yield from Log("warning", "channel_leases_released", fields)
        return False


@frozen
class ForgetDone(_QueueJob):
    """Delete, every hour, what was answered and sent long ago."""

    @property
    def pause(self) -> Pause:
        """Wait for an hour."""
        return Sleep(_FORGET_SECONDS)

    def round(self) -> Program[bool]:
        """Delete a batch of each queue, a transaction of its own: nobody waits long for one."""
        now_us = yield from Now()
        more = False
        for queue in () if self._is_left_to_sweeps else (INBOX, OUTBOX):
            forget = ForgetItems(queue, KEPT_US, _BATCH)
            more |= (yield from Transact(self.worker.database, forget)) == _BATCH
        if not more:
            self.worker.forgot_us = now_us
        return more

    @property
    def _is_left_to_sweeps(self) -> bool:
        periods = self.worker.context.registry.periods
        return periods[self.worker.database].messages is not None
