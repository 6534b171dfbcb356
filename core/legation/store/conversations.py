"""Units of work on the conversations of channels: the current session, and who wants none."""

from __future__ import annotations

from typing import Final

from ..values import frozen
from .units import Dialect, ReadUnit, Sql, Statements, Unit

__all__ = ["FetchStanding", "OpenSession", "OptIn", "OptOut", "Standing"]

# A chat that moved goes on in the sessions of where it was.
STANDING: Final = Sql(
    """with bases (base) as (
        select cast(:base as text) union all
        select :head || conversation || :tail from channel_chats
        where channel = :channel and moved_to = :conversation
    )
    select (select s.session_id from bases b join sessions s on s.owner = :owner
        and (s.session_id = b.base
            or substr(s.session_id, 1, length(b.base) + 1) in (b.base || '#', b.base || '!'))
        order by s.created_us desc, s.session_id desc limit 1),
    exists (select 1 from channel_optouts where channel = :channel and person = :person),
    (select count(*) from (select 1 from inbox where state = 'ready'
        and channel = :channel and sender = :person limit :most) as waiting)"""
)
OPEN: Final = Sql(
    """insert into sessions
        (owner, session_id, kind, component_id, created_us, updated_us)
    values (:owner, :session_id, :kind, :component_id, :now_us, :now_us)
    on conflict do nothing"""
)
OPT_OUT: Final = Sql(
    """insert into channel_optouts (channel, person, since_us)
    values (:channel, :person, :since_us) on conflict do nothing"""
)
OPT_IN: Final = Sql("delete from channel_optouts where channel = :channel and person = :person")


@frozen
class Standing:
    """The session a conversation is in, and how things stand with the person.

    Attributes:
        session_id: The session that was begun last.
        opted_out: Whether the person wants no messages of the channel.
        waiting: How many messages of the person wait, up to as many as were asked for.
    """

    session_id: str
    opted_out: bool
    waiting: int


@frozen
class FetchStanding(ReadUnit[Standing]):
    """The session of a conversation that was begun last, `base` when there is none yet.

    Where `conversation` goes on for one that was, so do the sessions of that.
    With it comes whether `person` wants no messages of `channel`, and how many of theirs wait; it
    counts up to `most`.
    """

    owner: str
    base: str
    channel: str
    person: str
    most: int = 0
    conversation: str = ""

    def statements(self, dialect: Dialect) -> Statements[Standing]:
        """Yield one read."""
        head, named = f"{self.channel}:", f"{self.channel}:{self.conversation}"
        # A name that is escaped, or a digest, is of no chat that a provider moves.
        moves = self.conversation if self.base.startswith(named) else ""
        tail = self.base[len(named) :]
        rows = yield STANDING.of(self, conversation=moves, head=head, tail=tail)
        session_id, opted_out, waiting = rows[0]
        return Standing(session_id or self.base, bool(opted_out), waiting)


@frozen
class OptOut(Unit[None]):
    """Note that `person` wants no more messages of `channel`; since when, if it is not new."""

    channel: str
    person: str
    since_us: int

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield one insert."""
        yield OPT_OUT.of(self)


@frozen
class OptIn(Unit[None]):
    """Note that `person` wants messages of `channel` again."""

    channel: str
    person: str

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield one deletion."""
        yield OPT_IN.of(self)


@frozen
class OpenSession(Unit[None]):
    """Begin a session without a run, unless it is there."""

    owner: str
    session_id: str
    kind: str
    component_id: str
    now_us: int

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield one insert."""
        yield OPEN.of(self)
