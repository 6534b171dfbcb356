"""Units of work on a message together with its replies, for those who look after channels."""

from __future__ import annotations

from typing import Final

from ..values import frozen
from .inbox import INBOX, MessageRow
from .leases import fill_clock
from .outbox import OUTBOX, ReplyRow
from .units import Dialect, ReadUnit, Rows, Sql, Statements, Undo, Unit

__all__ = ["FetchMessageRecord", "MessageRecord", "Retried", "RetryDeadMessage"]

MESSAGE: Final = Sql(
    f"select {INBOX.columns} from inbox where channel = :channel and message_id = :message_id"
)
REPLIES: Final = Sql(
    f"""select {OUTBOX.columns} from outbox
    where channel = :channel and message_id = :message_id order by created_us, idempotency_key"""
)
REVIVE_MESSAGE: Final = fill_clock(
    """update inbox set state = 'ready', ready_us = $CLOCK, done_us = null
    where channel = :channel and message_id = :message_id and state = 'dead'
    returning message_id"""
)
REVIVE_REPLIES: Final = fill_clock(
    """update outbox set state = 'ready', ready_us = $CLOCK
    where channel = :channel and message_id = :message_id and state = 'dead'
    returning idempotency_key"""
)


@frozen
class MessageRecord:
    """A message and its replies, in order."""

    message: MessageRow
    replies: tuple[ReplyRow, ...]


@frozen
class FetchMessageRecord(ReadUnit[MessageRecord | None]):
    """The message with this id, and the replies to it."""

    channel: str
    message_id: str

    def statements(self, dialect: Dialect) -> Statements[MessageRecord | None]:
        """Read the message, then its replies."""
        messages = yield MESSAGE.of(self)
        if not messages:
            return None
        replies = yield REPLIES.of(self)
        return MessageRecord(MessageRow(*messages[0]), tuple(ReplyRow(*row) for row in replies))


@frozen
class Retried:
    """The dead letters that are retried: the message or not, and the number of its replies."""

    message: bool
    replies: int


@frozen
class RetryDeadMessage(Unit[Retried | None]):
    """Take a message and its replies out of the dead letters; None when there is no message.

    Each gets one attempt more.  `attempts` stays, for a fencing token never goes back.
    """

    channel: str
    message_id: str

    def statements(self, dialect: Dialect) -> Statements[Retried | None | Undo[Retried | None]]:
        """Look for the message, then revive what is dead."""
        if not (yield MESSAGE.of(self)):
            return Undo(None)
        message: Rows = yield REVIVE_MESSAGE.of(self)
        replies: Rows = yield REVIVE_REPLIES.of(self)
        retried = Retried(bool(message), len(replies))
        return retried if message or replies else Undo(retried)
