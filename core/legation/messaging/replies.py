"""Sending one reply through its provider, and judging what came of it.

At least once: a crash between the provider's answer and our note sends the reply again, under the
same idempotency key.
"""

from __future__ import annotations

from typing import Final

from attrs import evolve

from ..channels.codec import Codec
from ..channels.replies import (
    GiveUp,
    Moved,
    Outcome,
    Purpose,
    Reply,
    RetryLater,
    Sent,
    Unauthorized,
    decode_reply,
)
from ..effects import Fetch, FetchReply, Job, Log, Now, Nudge, Program, Unreachable
from ..incidents import where
from ..runs.retry import persist
from ..store.failures import StoreFailure
from ..store.leased_queue import FailItem
from ..store.outbox import ClaimedReply
from ..store.reply_outcomes import (
    CIRCLE,
    BuryReply,
    CompleteReply,
    DelayReply,
    HoldChannel,
    MoveReply,
    Noted,
)
from ..store.units import Unit
from ..values import frozen
from .leases import WorkerLeases
from .retry import MAX_ATTEMPTS, draw_wait_us

__all__ = ["SendReply"]

_UNMISSED: Final[frozenset[Purpose]] = frozenset({"acknowledge", "close"})
"""What nobody misses where the provider refuses it."""
_LONGEST: Final = 200


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
        # The row says to whom: a chat may have moved since the reply was written.
        reply = evolve(decode_reply(self.claimed.payload), recipient=self.claimed.recipient)
        prepared = yield from _prepare(codec, reply)
        if not isinstance(prepared, Reply):
            return prepared
        outcome = yield from _post(codec, prepared)
        if isinstance(outcome, GiveUp) and reply.edits:  # the message is gone, or too old
            return (yield from _post(codec, evolve(prepared, edits="")))
        if isinstance(outcome, GiveUp) and reply.purpose in _UNMISSED:
            return Sent("")  # a press that is too old to be acknowledged, a question that is gone
        return outcome

    def _note(self, outcome: Outcome) -> Program[None]:
        match outcome:
            case Sent(provider_id):
                noted = yield from self._store(CompleteReply(self.claimed, provider_id or None))
            case Unauthorized(reason):
                noted = yield from self._store(HoldChannel(self.claimed, reason[:_LONGEST]))
                if noted.held:
                    yield from Log("error", "channel_held", (self._channel, ("reason", reason)))
                if noted.dead:
                    yield from self._log_failure(reason, dead=True)
            case Moved(to):
                noted = yield from self._move(to)
            case RetryLater():
                noted = yield from self._retry(outcome)
            case _:
                noted = yield from self._bury(outcome.reason)
        if noted.released:
            yield from Log("info", "channel_released", (self._channel,))

    def _retry(self, outcome: RetryLater) -> Program[Noted]:
        """Try again later, if it is not the end; a reply of a held channel has no end."""
        claimed, now_us = self.claimed, (yield from Now())
        attempts = claimed.lease.attempts - claimed.spared
        since_us = max(claimed.created_us, claimed.released_us or 0)
        if claimed.held_us is not None:
            attempts, since_us = min(attempts, MAX_ATTEMPTS - 1), now_us
        wait_us = yield from draw_wait_us(attempts, since_us, now_us, outcome.after_seconds)
        if wait_us is None:
            return (yield from self._bury(outcome.reason))
        yield from self._log_failure(outcome.reason, dead=False)
        reason = outcome.reason[:_LONGEST]
        if claimed.held_us is not None:
            return (yield from self._store(DelayReply(claimed, reason, wait_us)))
        failed = FailItem(claimed.lease, reason, wait_us)
        yield from persist(self.worker.database, failed, self.worker.context.is_over)
        return Noted()

    def _bury(self, reason: str) -> Program[Noted]:
        yield from self._log_failure(reason, dead=True)
        return (yield from self._store(BuryReply(self.claimed, reason[:_LONGEST])))

    def _move(self, to: str) -> Program[Noted]:
        """Follow the chat, for as many attempts as a reply has."""
        if self.claimed.lease.attempts - self.claimed.spared >= MAX_ATTEMPTS:
            return (yield from self._bury(CIRCLE))
        noted = yield from self._store(MoveReply(self.claimed, to))
        if noted.dead:
            yield from self._log_failure(CIRCLE, dead=True)
        else:
            yield from Log("info", "chat_moved", (self._channel,))
        return noted

    def _store(self, unit: Unit[Noted]) -> Program[Noted]:
        return (yield from persist(self.worker.database, unit, self.worker.context.is_over))

    def _log_failure(self, reason: str, *, dead: bool) -> Program[None]:
        attempt = ("attempt", self.claimed.lease.attempts)
        fields = (self._channel, attempt, ("reason", reason), ("dead", dead))
        yield from Log("error" if dead else "warning", "reply_failed", fields)

    @property
    def _channel(self) -> tuple[str, str]:
        return "channel", self.claimed.lease.key.channel


def _post(codec: Codec, reply: Reply) -> Program[Outcome]:
    now_us = yield from Now()
    answer = yield from codec.encode(reply, now_us)
    now_us = yield from Now()
    return codec.read_reply(answer, now_us)


def _prepare(codec: Codec, reply: Reply) -> Program[Reply | Outcome]:
    """Do what comes before `reply` is sent; return it as it is sent then, or why it is not."""
    answers: tuple[FetchReply, ...] = ()
    prepared = codec.prepare(reply, answers)
    while isinstance(prepared, Fetch):
        answer = yield from prepared
        now_us = yield from Now()
        outcome = codec.read_reply(answer, now_us)
        if isinstance(answer, Unreachable) or not isinstance(outcome, Sent):
            return outcome
        answers = (*answers, answer)
        prepared = codec.prepare(reply, answers)
    return prepared
