"""Units of work on messages that nobody asked for: they are refused where they are not wanted."""

from __future__ import annotations

from typing import Final

from attrs import field

from ..values import frozen
from .outbox import NewReply, put_replies
from .units import Dialect, Sql, Statements, Undo, Unit

__all__ = ["CLOSED", "OPTED_OUT", "PutFirstMessage", "Window"]

OPTED_OUT: Final = "opted out"
CLOSED: Final = "closed"

FIND_OPT_OUT: Final = Sql(
    "select 1 from channel_optouts where channel = :channel and person = :person"
)
FIND_ANSWERED: Final = Sql(
    """select 1 from sessions where owner = :owner and updated_us >= :since_us
    and (session_id = :base or substr(session_id, 1, :length) in (:new, :other)) limit 1"""
)


@frozen
class Window:
    """The time in which a person may be written to, after they have written themselves.

    Attributes:
        owner: Of the person's sessions.
        base: The first of them; the others have its name with `#` or `!` behind it.
        since_us: When the time of those ends who have not written since.
    """

    owner: str
    base: str
    since_us: int


@frozen
class PutFirstMessage(Unit[str]):
    """Store the parts of a message to a person; what it was refused for, or "".

    Attributes:
        window: Where the provider takes messages only for a while after the person wrote.
    """

    channel: str
    person: str = field(repr=False)
    replies: tuple[NewReply, ...]
    now_us: int
    window: Window | None = None

    def statements(self, dialect: Dialect) -> Statements[str | Undo[str]]:
        """Ask who is written to, then store."""
        if (yield FIND_OPT_OUT.of(self)):
            return Undo(OPTED_OUT)
        if (window := self.window) is not None:
            new, other, length = f"{window.base}#", f"{window.base}!", len(window.base) + 1
            if not (yield FIND_ANSWERED.of(window, new=new, other=other, length=length)):
                return Undo(CLOSED)
        yield from put_replies(self.channel, self.replies, self.now_us)
        return ""
