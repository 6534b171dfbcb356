"""The work on one message: its run in the sender's session, and the reply.

A message may be worked on more than once, after a crash or a failure of the database; the run that
answers it is begun once.  Its id is noted on the message before it begins, so whoever comes later
finds it, waits for it, and takes its answer.
"""

from __future__ import annotations

import json
from typing import Final

from attrs import frozen

from ..channels.backoff import retry_us
from ..channels.messages import (
    Ask,
    IncomingMessage,
    Say,
    channel_session_id,
    decode_message,
    rest_of_new,
    treat,
)
from ..channels.replies import outbox_rows, replies_to
from ..effects import Job, Log, Now, Nudge, Program, RandomBytes, Transact
from ..incidents import where
from ..registry import HostedChannel
from ..runs.follow import join
from ..runs.starting import NewRun, new_id, start
from ..store.conversations import CurrentSession, OpenSession
from ..store.failures import StoreFailure
from ..store.inbox import AttachRun, ClaimedMessage, CompleteMessage, FailMessage
from ..store.outbox import NewReply
from ..store.runs import FetchRun, RunRow
from .desk import Desk

__all__ = ["AnswerMessage"]

_NEW: Final = "A new conversation begins. What can I do for you?"
_ELSEWHERE_US: Final = 300_000_000
_FRACTION: Final = 1 << 16


class _LeaseLost(Exception):
    """Somebody else works on the message now."""


@frozen
class AnswerMessage(Job):
    """Answer one claimed message, or say when to try again."""

    desk: Desk
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
        finally:
            self.desk.leases.pop(self.claimed.lease.key, None)
        if trouble is not None:
            yield from self._try_later(where(trouble))
        yield from Nudge(self.desk.inbox)

    def _answer(self) -> Program[None]:
        channel = self.desk.workshop.registry.channels.get(self.claimed.lease.key.channel)
        if channel is None:
            # Another node of the platform may know it; this one must not bury it.
            now_us = yield from Now()
            waits = FailMessage(
                self.claimed.lease, "no such channel here", now_us + _ELSEWHERE_US, now_us
            )
            yield from Transact(self.desk.database, waits)
            return
        message = decode_message(self.claimed.payload)
        treatment = treat(message)
        match treatment:
            case Ask():
                text = yield from self._asked(channel, message, treatment.text)
            case Say():
                text = treatment.text
            case _:
                text = ""
        yield from self._complete(channel, message, text)

    def _asked(self, channel: HostedChannel, message: IncomingMessage, text: str) -> Program[str]:
        """Return what the agent says to `text`."""
        owner = f"~channel:{channel.id}:{message.sender}"
        base = channel_session_id(channel.id, message.sender, message.conversation, message.thread)
        rest = rest_of_new(text)
        if rest is not None:
            session_id = f"{base}#{message.message_id}"
            yield from self._open(channel, owner, session_id)
            if not rest:
                return _NEW
            text = rest
        else:
            session_id = yield from Transact(self.desk.database, CurrentSession(owner, base))
        run_id = yield from self._run_id()
        new = NewRun(
            owner=owner,
            session_id=session_id,
            run_id=run_id,
            message=text,
            stream=False,
        )
        row = yield from self._row(owner, run_id)
        if row is None:
            yield from start(self.desk.workshop, channel.component, new)
        yield from join(self.desk.database, owner, run_id)
        row = yield from self._row(owner, run_id)
        return _said(row) or channel.apology

    def _open(self, channel: HostedChannel, owner: str, session_id: str) -> Program[None]:
        now_us = yield from Now()
        component = channel.component
        opened = OpenSession(owner, session_id, component.kind, component.id, now_us)
        yield from Transact(self.desk.database, opened)

    def _run_id(self) -> Program[str]:
        """Return the id of the run that answers the message: noted before, or noted now."""
        if self.claimed.run_id is not None:
            return self.claimed.run_id
        run_id = yield from new_id()
        if not (yield from Transact(self.desk.database, AttachRun(self.claimed.lease, run_id))):
            raise _LeaseLost
        return run_id

    def _row(self, owner: str, run_id: str) -> Program[RunRow | None]:
        return (yield from Transact(self.desk.database, FetchRun(run_id, owner)))

    def _complete(
        self, channel: HostedChannel, message: IncomingMessage, text: str
    ) -> Program[None]:
        now_us = yield from Now()
        replies: tuple[NewReply, ...] = ()
        if text:
            replies = outbox_rows(replies_to(message, text, channel.codec.text_limit, now_us))
        done = CompleteMessage(self.claimed.lease, now_us, replies)
        if (yield from Transact(self.desk.database, done)) and replies:
            yield from Nudge(self.desk.outbox)

    def _try_later(self, reason: str) -> Program[None]:
        """Put the message back with a growing pause; in the end among the dead letters."""
        key, lease = self.claimed.lease.key, self.claimed.lease
        fields = (("channel", key.channel), ("attempt", lease.attempts), ("error", reason))
        yield from Log("warning", "message not answered", fields)
        now_us = yield from Now()
        fraction = int.from_bytes((yield from RandomBytes(2)), "big") / _FRACTION
        again_us = retry_us(lease.attempts, self.claimed.received_us, now_us, fraction)
        lost = False
        try:
            yield from Transact(
                self.desk.database, FailMessage(lease, reason[:200], again_us, now_us)
            )
        except StoreFailure:
            lost = True  # the lease runs out, and the message is claimed again
        if lost:
            yield from Log("warning", "message not put back", fields)


def _said(row: RunRow | None) -> str:
    """Return what a completed run answered, else nothing."""
    if row is None or row.status != "COMPLETED" or row.output is None:
        return ""
    content = json.loads(row.output)["content"]
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
