"""The rounds of a node: claim what waits, keep alive what is under work, forget what is long done.

A nudge makes a round begin at once; without one it begins within a second, which is also how the
work of another node, and of a dead one, is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, TypeVar

from ..effects import AwaitNudge, Job, Log, Now, Program, Sleep, Spawn, ThisNode, Transact
from ..incidents import where
from ..store.failures import StoreFailure
from ..store.inbox import INBOX
from ..store.leased_queue import (
    Claimed,
    ClaimItems,
    ExtendLeases,
    ForgetItems,
    LeasedQueue,
)
from ..store.outbox import OUTBOX
from ..values import frozen
from .answers import AnswerMessage
from .leases import MOST, WorkerLeases
from .replies import SendReply
from .retry import MAX_ATTEMPTS

__all__ = ["KEPT_US", "AnswerInbox", "ForgetDone", "KeepLeases", "SendOutbox", "channel_jobs"]

KEPT_US: Final = 30 * 24 * 3600 * 1_000_000
"""How long the id of an answered message is known: providers deliver again for a week."""

_ROUND_SECONDS: Final = 1.0
_TROUBLE_SECONDS: Final = 5.0
_FORGET_SECONDS: Final = 3600.0
_BATCH: Final = 500
# At least so many places are free before more is claimed: a claim for each that becomes free
# would keep the database busy when the node is.
_WORTHWHILE: Final = MOST // 4

C = TypeVar("C")

Waiting: TypeAlias = AwaitNudge | Sleep


def channel_jobs(workers: Iterable[WorkerLeases]) -> tuple[Job, ...]:
    """Return the rounds of `workers`."""
    kinds = (AnswerInbox, SendOutbox, KeepLeases, ForgetDone)
    return tuple(kind(worker) for worker in workers for kind in kinds)


def _rounds(
    worker: WorkerLeases, one_round: Callable[[], Program[None]], pause: Waiting
) -> Program[None]:
    """Go round for ever, whatever goes wrong; the same trouble is told once."""
    logged = ""
    while True:
        trouble: Exception | None = None
        try:
            yield from one_round()
        except Exception as error:  # noqa: BLE001 (a bug in one round must not end all of them)
            trouble = error
        if trouble is None:
            logged = ""
            yield from pause
            continue
        found = where(trouble)
        if found != logged:
            fields = (("database", worker.database), ("error", found))
            level = "warning" if isinstance(trouble, StoreFailure) else "error"
            yield from Log(level, "channel_round_failed", fields)
        logged = found
        yield from Sleep(_TROUBLE_SECONDS)


def _claim(
    worker: WorkerLeases, queue: LeasedQueue[C, Any], held: int
) -> Program[Claimed[C] | None]:
    """Return what was claimed; None where there is no room, or the process is about to end."""
    free = MOST - held
    if free < _WORTHWHILE or worker.context.draining:
        return None
    node = yield from ThisNode()
    now_us = yield from Now()
    until_us = now_us + worker.lease_us
    unit = ClaimItems(queue, node, now_us, until_us, free, MAX_ATTEMPTS, worker.channels)
    worker.claims += 1
    try:
        return (yield from Transact(worker.database, unit))
    finally:
        worker.claims -= 1


@frozen
class AnswerInbox(Job):
    """Claim messages and start the work on each, as long as the process lives."""

    worker: WorkerLeases

    def program(self) -> Program[None]:
        """Go round."""
        return _rounds(self.worker, self._round, AwaitNudge(self.worker.inbox, _ROUND_SECONDS))

    def _round(self) -> Program[None]:
        claimed = yield from _claim(self.worker, INBOX, len(self.worker.leases))
        if claimed is None:
            return
        for message in claimed.items:
            self.worker.take(message.lease)
            yield from Spawn(AnswerMessage(self.worker, message))
        for key in claimed.buried:
            yield from Log("error", "message_abandoned", (("channel", key.channel),))


@frozen
class SendOutbox(Job):
    """Claim replies and send each, as long as the process lives."""

    worker: WorkerLeases

    def program(self) -> Program[None]:
        """Go round."""
        return _rounds(self.worker, self._round, AwaitNudge(self.worker.outbox, _ROUND_SECONDS))

    def _round(self) -> Program[None]:
        claimed = yield from _claim(self.worker, OUTBOX, len(self.worker.sending))
        if claimed is None:
            return
        for reply in claimed.items:
            self.worker.take(reply.lease)
            yield from Spawn(SendReply(self.worker, reply))
        for key in claimed.buried:
            yield from Log("error", "reply_abandoned", (("channel", key.channel),))


@frozen
class KeepLeases(Job):
    """Extend the leases of what is under work, three times within a lease."""

    worker: WorkerLeases

    def program(self) -> Program[None]:
        """Go round."""
        return _rounds(self.worker, self._round, Sleep(self.worker.lease_us / 3 / 1_000_000))

    def _round(self) -> Program[None]:
        """Extend; what was lost makes room, for its work comes to nothing."""
        now_us = yield from Now()
        until_us = now_us + self.worker.lease_us
        for held in (self.worker.leases, self.worker.sending):
            if leases := tuple(held.values()):
                extend = ExtendLeases(leases, now_us, until_us)
                kept = yield from Transact(self.worker.database, extend)
                for lease in leases:
                    if lease not in kept:
                        self.worker.let_go(lease)


@frozen
class ForgetDone(Job):
    """Delete, every hour, what was answered and sent long ago."""

    worker: WorkerLeases

    def program(self) -> Program[None]:
        """Go round."""
        return _rounds(self.worker, self._round, Sleep(_FORGET_SECONDS))

    def _round(self) -> Program[None]:
        """Delete in batches, each a transaction of its own: nobody waits long for one."""
        before_us = (yield from Now()) - KEPT_US
        for queue in (INBOX, OUTBOX):
            forget = ForgetItems(queue, before_us, _BATCH)
            while (yield from Transact(self.worker.database, forget)) == _BATCH:
                pass
