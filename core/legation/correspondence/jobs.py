"""The rounds of a node: claim what waits, keep alive what is under work.

A nudge makes a round begin at once; without one it begins within a second, which is also how the
work of another node, and of a dead one, is found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import frozen

from ..channels.backoff import MAX_ATTEMPTS
from ..effects import AwaitNudge, Job, Log, Now, Program, Sleep, Spawn, ThisNode, Transact
from ..runs.execute import Workshop
from ..store.failures import StoreFailure
from ..store.inbox import ClaimMessages, ExtendLeases
from ..store.outbox import ClaimReplies, ExtendReplyLeases
from .answering import AnswerMessage
from .desk import LEASE_US, MOST, Desk
from .sending import SendReply

__all__ = ["AnswerInbox", "KeepLeases", "SendOutbox", "channel_jobs"]

_ROUND_SECONDS: Final = 1.0
_TROUBLE_SECONDS: Final = 5.0


def channel_jobs(workshop: Workshop) -> tuple[Job, ...]:
    """Return the rounds for every database that a channel stores its messages in."""
    databases = {c.component.database for c in workshop.registry.channels.values()}
    desks = [Desk(workshop, name) for name in sorted(databases)]
    kinds = (AnswerInbox, SendOutbox, KeepLeases)
    return tuple(kind(desk) for desk in desks for kind in kinds)


def _rounds(desk: Desk, topic: str, one_round: Callable[[], Program[None]]) -> Program[None]:
    """Go round for ever; a database that fails is given a pause."""
    while True:
        trouble = ""
        try:
            yield from one_round()
        except StoreFailure as failure:
            trouble = type(failure).__name__
        if trouble:
            fields = (("database", desk.database), ("error", trouble))
            yield from Log("warning", "channels wait for the database", fields)
            yield from Sleep(_TROUBLE_SECONDS)
        else:
            yield from AwaitNudge(topic, _ROUND_SECONDS)


@frozen
class AnswerInbox(Job):
    """Claim messages and start the work on each, as long as the process lives."""

    desk: Desk

    def program(self) -> Program[None]:
        """Go round."""
        yield from _rounds(self.desk, self.desk.inbox, self._round)

    def _round(self) -> Program[None]:
        free = MOST - len(self.desk.leases)
        if free <= 0:
            return
        node = yield from ThisNode()
        now_us = yield from Now()
        claim = ClaimMessages(node, now_us, now_us + LEASE_US, free, MAX_ATTEMPTS)
        claimed = yield from Transact(self.desk.database, claim)
        for message in claimed.messages:
            self.desk.leases[message.lease.key] = message.lease
            yield from Spawn(AnswerMessage(self.desk, message))
        for key in claimed.buried:
            yield from Log("error", "message given up", (("channel", key.channel),))


@frozen
class SendOutbox(Job):
    """Claim replies and send each, as long as the process lives."""

    desk: Desk

    def program(self) -> Program[None]:
        """Go round."""
        yield from _rounds(self.desk, self.desk.outbox, self._round)

    def _round(self) -> Program[None]:
        free = MOST - len(self.desk.sending)
        if free <= 0:
            return
        node = yield from ThisNode()
        now_us = yield from Now()
        claim = ClaimReplies(node, now_us, now_us + LEASE_US, free, MAX_ATTEMPTS)
        claimed = yield from Transact(self.desk.database, claim)
        for reply in claimed.replies:
            self.desk.sending[reply.lease.key] = reply.lease
            yield from Spawn(SendReply(self.desk, reply))
        for key in claimed.buried:
            yield from Log("error", "reply given up", (("channel", key.channel),))


@frozen
class KeepLeases(Job):
    """Extend the leases of what is under work, three times within a lease."""

    desk: Desk

    def program(self) -> Program[None]:
        """Go round."""
        while True:
            yield from Sleep(LEASE_US / 3 / 1_000_000)
            trouble = ""
            try:
                yield from self._round()
            except StoreFailure as failure:
                trouble = type(failure).__name__
            if trouble:
                fields = (("database", self.desk.database), ("error", trouble))
                yield from Log("warning", "leases of messages not kept", fields)

    def _round(self) -> Program[None]:
        now_us = yield from Now()
        until_us = now_us + LEASE_US
        if messages := tuple(self.desk.leases.values()):
            yield from Transact(self.desk.database, ExtendLeases(messages, now_us, until_us))
        if replies := tuple(self.desk.sending.values()):
            yield from Transact(self.desk.database, ExtendReplyLeases(replies, now_us, until_us))
