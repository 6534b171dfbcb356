"""The work on one message: its run in the sender's session, and the reply.

A message may be worked on more than once, after a crash or a failure of the database; the run that
answers it is begun once.  Its id is noted on the message before it begins, so whoever comes later
finds it, waits for it, and takes its answer: a run goes on when the node that executed it died.
One that was deleted while it was waited for ends the message: whoever deleted its session wants no
more of it.
"""

from __future__ import annotations

import json
from typing import Final, TypeVar

from attrs import evolve

from ..channels.deliveries import (
    Ask,
    IncomingMessage,
    Say,
    channel_session_id,
    decode_message,
    rest_of_new,
    treat,
)
from ..channels.replies import apology_key, outbox_rows, replies_to
from ..effects import Job, Log, Now, Nudge, Program
from ..hosted.registry import HostedChannel
from ..incidents import trace, where
from ..runs.followers import join
from ..runs.ids import new_id
from ..runs.retry import PASSING, Patience, persist
from ..runs.start import NewRun, start
from ..store.conversations import CurrentSession, OpenSession
from ..store.failures import StoreFailure
from ..store.inbox import AttachRun, ClaimedMessage, CompleteMessage, FailMessage
from ..store.outbox import NewReply
from ..store.run_reads import FetchRun
from ..store.run_rows import RunRow
from ..store.run_states import RunState
from ..store.units import Unit
from ..values import frozen
from .attachments import attachments
from .leases import WorkerLeases
from .retry import draw_wait_us

__all__ = ["AnswerMessage", "owner_of"]

R = TypeVar("R")

_NEW: Final = "A new conversation begins. What can I do for you?"


class _LeaseLost(Exception):
    """Somebody else works on the message now."""


def owner_of(channel: str, sender: str) -> str:
    """Return under what name a sender's sessions are kept; no token's subject is ever one."""
    return f"~channel:{channel}:{sender}"


@frozen
class AnswerMessage(Job):
    """Answer one claimed message, or say when to try again."""

    worker: WorkerLeases
    claimed: ClaimedMessage

    def program(self) -> Program[None]:
        """Work under the lease; give it back whatever goes wrong."""
        trouble: Exception | None = None
        try:
            yield from self._answer()
        except _LeaseLost:
            pass
        except Exception as error:  # noqa: BLE001 (a bug must not keep a message from being tried again)
            trouble = error
        if trouble is not None:
            yield from self._try_later(trouble)
        # Not while unwinding: what is broken off with its process is still held, and given back.
        self.worker.leave(self.claimed.lease)
        yield from Nudge(self.worker.inbox)

    def _answer(self) -> Program[None]:
        channel = self.worker.channel(self.claimed.lease.key.channel)
        message = decode_message(self.claimed.payload)
        match treat(message):
            case Ask(text):
                answer = yield from self._ask_agent(channel, message, text)
            case Say(text):
                answer = text
            case _:
                answer = ""
        yield from self._complete(channel, message, answer)

    def _ask_agent(
        self, channel: HostedChannel, message: IncomingMessage, text: str
    ) -> Program[str]:
        """Return what the agent says to `text`."""
        owner = owner_of(channel.id, message.sender)
        base = channel_session_id(channel.id, message.sender, message.conversation, message.thread)
        rest = rest_of_new(text)
        if rest is None:
            session_id = yield from self._transact(CurrentSession(owner, base))
        else:
            session_id = f"{base}#{message.message_id}"
            yield from self._open(channel, owner, session_id)
            if not rest:
                return _NEW
            text = rest
        row = yield from self._run(channel, message, owner, session_id, text)
        return _answer_of(row) or channel.apology

    def _open(self, channel: HostedChannel, owner: str, session_id: str) -> Program[None]:
        now_us = yield from Now()
        component = channel.component
        opened = OpenSession(owner, session_id, component.kind, component.id, now_us)
        yield from self._transact(opened)

    def _run(
        self,
        channel: HostedChannel,
        message: IncomingMessage,
        owner: str,
        session_id: str,
        text: str,
    ) -> Program[RunRow | None]:
        """Return the run that answers the message: the one noted before, or one begun now.

        None where it was deleted while it was waited for.
        """
        run_id = self.claimed.run_id or (yield from self._note_run())
        if (yield from self._row(owner, run_id)) is None:
            attached = yield from attachments(channel, message, text)
            new = NewRun(
                owner=owner,
                session_id=session_id,
                run_id=run_id,
                message=attached.text,
                pieces=False,
                details={**attached.files, "in_doubt": "tell"},
            )
            yield from self._start(channel, new)
        yield from join(self.worker.database, owner, run_id, is_over=self.worker.context.is_over)
        return (yield from self._row(owner, run_id))

    def _start(self, channel: HostedChannel, new: NewRun) -> Program[None]:
        """Begin the run, once, however long the database is away."""
        patience = Patience(self.worker.context.is_over)
        while not patience.exhausted:
            try:
                yield from start(self.worker.context, channel.component, new)
                return
            except PASSING:
                pass
            yield from patience.wait()
        yield from start(self.worker.context, channel.component, new)

    def _transact(self, unit: Unit[R]) -> Program[R]:
        """Run a unit under the lease, however long the database is away."""
        return (yield from persist(self.worker.database, unit, self.worker.context.is_over))

    def _note_run(self) -> Program[str]:
        """Return the id of a run to begin, noted on the message."""
        run_id = yield from new_id(self.claimed.received_us)
        if not (yield from self._transact(AttachRun(self.claimed.lease, run_id))):
            raise _LeaseLost
        return run_id

    def _row(self, owner: str, run_id: str) -> Program[RunRow | None]:
        return (yield from self._transact(FetchRun(run_id, owner)))

    def _complete(
        self, channel: HostedChannel, message: IncomingMessage, text: str
    ) -> Program[None]:
        now_us = yield from Now()
        replies = outbox_rows(replies_to(message, text, channel.codec.compose, now_us))
        done = CompleteMessage(self.claimed.lease, now_us, replies)
        if (yield from self._transact(done)) and replies:
            yield from Nudge(self.worker.outbox)

    def _try_later(self, trouble: Exception) -> Program[None]:
        """Put the message back with a growing pause; in the end among the dead letters."""
        key, lease = self.claimed.lease.key, self.claimed.lease
        now_us = yield from Now()
        wait_us = yield from draw_wait_us(lease.attempts, self.claimed.received_us, now_us)
        replies = self._apology(now_us) if wait_us is None else ()
        reason = where(trouble)
        fields = (
            ("channel", key.channel),
            ("attempt", lease.attempts),
            ("error", reason),
            ("dead", wait_us is None),
        )
        traced = (*fields, ("trace", trace(trouble)))
        yield from Log("warning" if wait_us else "error", "message_failed", traced, trouble)
        failed = FailMessage(lease, reason[:200], wait_us, now_us, replies)
        lost = False
        try:
            yield from self._transact(failed)
        except StoreFailure:
            lost = True  # the lease is released, and the message claimed again
        if lost:
            yield from Log("warning", "message_release_failed", fields)
        elif replies:
            yield from Nudge(self.worker.outbox)

    def _apology(self, now_us: int) -> tuple[NewReply, ...]:
        """Return the apology for a message given up, so that nobody waits for ever.

        Its key is not that of the answer, which an operator may still bring about.
        """
        try:
            message = decode_message(self.claimed.payload)
        except (KeyError, TypeError, ValueError):
            return ()  # stored by a later version, perhaps
        if not isinstance(treat(message), Ask):
            return ()
        channel = self.worker.channel(self.claimed.lease.key.channel)
        key = apology_key(message.message_id)
        parts = replies_to(message, channel.apology, channel.codec.compose, now_us)
        return outbox_rows(tuple(evolve(part, key=key) for part in parts[:1]))


def _answer_of(row: RunRow | None) -> str:
    """Return what a run answered, else nothing; of one that waits for a person, that it does."""
    if row is None or row.status not in (RunState.COMPLETED, RunState.PAUSED) or row.output is None:
        return ""
    content = json.loads(row.output)["content"]
    if content is None or isinstance(content, str):
        return (content or "").strip()
    return json.dumps(content, ensure_ascii=False)
