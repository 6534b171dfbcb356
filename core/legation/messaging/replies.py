"""Sending one reply through its provider, and judging what came of it.

At least once: a crash between the provider's answer and our note sends the reply again, under the
same idempotency key.
"""

from __future__ import annotations

from ..channels.replies import Outcome, RetryLater, Sent, decode_reply
from ..effects import Job, Log, Now, Nudge, Program
from ..incidents import where
from ..runs.retry import persist
from ..store.failures import StoreFailure
from ..store.leased_queue import CompleteItem, FailItem
from ..store.outbox import ClaimedReply
from ..values import frozen
from .leases import WorkerLeases
from .retry import draw_wait_us

__all__ = ["SendReply"]


@frozen
class SendReply(Job):
    """Send one claimed reply and store what became of it."""

    worker: WorkerLeases
    claimed: ClaimedReply

    def program(self) -> Program[None]:
        """Send under the lease; a failure of ours counts as one of the provider's."""
        lease = self.claimed.lease
        outcome: Outcome | None = None
        reason = ""
        try:
            outcome = yield from self._send()
        except Exception as error:  # noqa: BLE001 (a bug must not keep a reply from being tried again)
            reason = where(error)
        lost = False
        try:
            yield from self._note(outcome or RetryLater(None, reason))
        except StoreFailure:
            lost = True  # the lease is released, and the reply sent again under its key
        # Not while unwinding: what is broken off with its process is still held, and given back.
        self.worker.leave(lease)
        if lost:
            yield from Log("warning", "reply_record_failed", (("channel", lease.key.channel),))
        yield from Nudge(self.worker.outbox)

    def _send(self) -> Program[Outcome]:
        codec = self.worker.channel(self.claimed.lease.key.channel).codec
        now_us = yield from Now()
        answer = yield from codec.encode(decode_reply(self.claimed.payload), now_us)
        now_us = yield from Now()
        return codec.read_reply(answer, now_us)

    def _note(self, outcome: Outcome) -> Program[None]:
        now_us = yield from Now()
        lease, database = self.claimed.lease, self.worker.database
        is_over = self.worker.context.is_over
        if isinstance(outcome, Sent):
            yield from persist(database, CompleteItem(lease), is_over)
            return
        wait_us = None
        if isinstance(outcome, RetryLater):
            wait_us = yield from draw_wait_us(
                lease.attempts, self.claimed.created_us, now_us, outcome.after_seconds
            )
        fields = (
            ("channel", lease.key.channel),
            ("attempt", lease.attempts),
            ("reason", outcome.reason),
            ("dead", wait_us is None),
        )
        yield from Log("warning" if wait_us else "error", "reply_failed", fields)
        failed = FailItem(lease, outcome.reason[:200], wait_us)
        yield from persist(database, failed, is_over)
