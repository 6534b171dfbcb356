"""The states of channels: who each is at its provider, as the provider said it last."""

from __future__ import annotations

from typing import Final

from ..values import frozen
from .units import Dialect, ReadUnit, Sql, Statements, Unit

__all__ = ["FetchIdentities", "NoteIdentity", "StoredIdentity"]

FETCH: Final = Sql(
    """select channel, identity, asked_us from channel_states
    where identity is not null order by channel"""
)
NOTE: Final = Sql(
    """insert into channel_states (channel, identity, asked_us)
    values (:channel, :identity, :now_us)
    on conflict (channel) do update
    set identity = excluded.identity, asked_us = excluded.asked_us"""
)


@frozen
class StoredIdentity:
    """The identity of a channel as JSON, and when the provider said it."""

    channel: str
    identity: str
    asked_us: int


@frozen
class FetchIdentities(ReadUnit[tuple[StoredIdentity, ...]]):
    """The identities of every channel that keeps its messages in the database."""

    def statements(self, dialect: Dialect) -> Statements[tuple[StoredIdentity, ...]]:
        """Yield one read."""
        rows = yield FETCH()
        return tuple(StoredIdentity(*row) for row in rows)


@frozen
class NoteIdentity(Unit[None]):
    """Note who a channel is, in the place of what was noted before."""

    channel: str
    identity: str
    now_us: int

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield one write."""
        yield NOTE.of(self)
