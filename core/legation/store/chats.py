"""Units of work on chats that moved: what waits for one goes to where it goes on.

What is known of a channel is flat: no chat that another moved to has moved itself.
"""

from __future__ import annotations

from typing import Final

from ..values import frozen
from .units import Dialect, Sql, Statements, Unit

__all__ = ["NoteMoves", "move_chat"]

FIND: Final = Sql(
    """select moved_to from channel_chats
    where channel = :channel and conversation = :to"""
)
NOTE: Final = Sql(
    """insert into channel_chats (channel, conversation, moved_to)
    values (:channel, :old, :to)
    on conflict (channel, conversation) do update set moved_to = excluded.moved_to
    where channel_chats.moved_to <> excluded.moved_to"""
)
FLATTEN: Final = Sql(
    """update channel_chats set moved_to = :to where channel = :channel and moved_to = :old"""
)
REDIRECT: Final = Sql(
    """update outbox set recipient = :to
    where channel = :channel and recipient = :old and state = 'ready'"""
)


def move_chat(channel: str, old: str, to: str) -> Statements[str | None]:
    """Note that the chat `old` goes on as `to`, and send there what waits; part of a larger unit.

    Returns:
        Where it is now, which may be further on; None where it would be where it was.
    """
    rows = yield FIND(channel=channel, to=to)
    target: str = rows[0][0] if rows else to
    if target == old:
        return None
    for statement in (NOTE, FLATTEN, REDIRECT):
        yield statement(channel=channel, old=old, to=target)
    return target


@frozen
class NoteMoves(Unit[None]):
    """The chats of a channel that moved, as pairs: where each was, and where it is."""

    channel: str
    moves: tuple[tuple[str, str], ...]

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Move one by one."""
        for old, to in self.moves:
            yield from move_chat(self.channel, old, to)
