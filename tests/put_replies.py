"""A unit of the tests: replies without a message that they answer."""

from __future__ import annotations

from legation.store.outbox import NewReply, put_replies
from legation.store.units import Dialect, Statements, Unit
from legation.values import frozen

__all__ = ["PutReplies"]


@frozen
class PutReplies(Unit[tuple[str, ...]]):
    """Store `replies` beside no message; the keys that were new."""

    channel: str
    replies: tuple[NewReply, ...]
    now_us: int

    def statements(self, dialect: Dialect) -> Statements[tuple[str, ...]]:
        """Insert each; a key that is there already is left alone."""
        return (yield from put_replies(self.channel, self.replies, self.now_us))
