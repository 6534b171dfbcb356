"""The states of channels: who each is at its provider, and whether that refuses it.

The replies of a held channel, whose credentials are taken no more, wait, whatever node found it
out, and use up no attempts.  One of them is sent now and then, to see whether it is taken; then
all go on, the oldest first.
"""

from __future__ import annotations

from typing import Final

from ..values import frozen
from .leases import fill_clock
from .units import Dialect, ReadUnit, Sql, Statements, Unit

__all__ = [
    "PROBE_US",
    "FetchIdentities",
    "HeldChannel",
    "ListHeld",
    "NoteIdentity",
    "StoredIdentity",
    "hold",
    "probe_later",
    "probe_now",
    "release",
    "stay",
]

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


# --- held --------------------------------------------------------------------------------------

PROBE_US: Final = 60_000_000
"""How long a held channel waits until one of its replies is sent again."""

STAY: Final = fill_clock(
    """update channel_states set held = :reason, probe_us = $CLOCK + :pause_us
    where channel = :channel and held_us is not null returning channel"""
)
HOLD: Final = fill_clock(
    """insert into channel_states (channel, held_us, held, probe_us)
    values (:channel, $CLOCK, :reason, $CLOCK + :pause_us)
    on conflict (channel) do update
    set held_us = excluded.held_us, held = excluded.held, probe_us = excluded.probe_us
    where channel_states.held_us is null returning channel"""
)
PROBE_LATER: Final = fill_clock(
    """update channel_states set probe_us = $CLOCK + :pause_us
    where channel = :channel and held_us is not null"""
)
PROBE_NOW: Final = Sql(
    """update channel_states set probe_us = 0
    where channel = :channel and held_us is not null returning channel"""
)
RELEASE: Final = fill_clock(
    """update channel_states
    set held_us = null, held = null, probe_us = null, released_us = $CLOCK
    where channel = :channel and held_us is not null returning channel"""
)
LIST: Final = Sql(
    """select channel, held_us, held from channel_states
    where held_us is not null order by channel"""
)


def stay(channel: str, reason: str) -> Statements[bool]:
    """Go on holding `channel`; return whether it is held.  Part of a larger unit."""
    return bool((yield STAY(channel=channel, reason=reason, pause_us=PROBE_US)))


def hold(channel: str, reason: str) -> Statements[bool]:
    """Hold `channel`; return whether nobody did meanwhile.  Part of a larger unit."""
    return bool((yield HOLD(channel=channel, reason=reason, pause_us=PROBE_US)))


def probe_later(channel: str) -> Statements[None]:
    """Send nothing of `channel` for a while, if it is held; part of a larger unit."""
    yield PROBE_LATER(channel=channel, pause_us=PROBE_US)


def probe_now(channel: str) -> Statements[bool]:
    """Send a reply of `channel` at the next claim; whether it is held.  Part of a larger unit."""
    return bool((yield PROBE_NOW(channel=channel)))


def release(channel: str) -> Statements[bool]:
    """Release `channel`; return whether it was held.  Part of a larger unit."""
    return bool((yield RELEASE(channel=channel)))


@frozen
class HeldChannel:
    """A channel that is held: since when, and what its provider said."""

    channel: str
    since_us: int
    reason: str


@frozen
class ListHeld(ReadUnit[tuple[HeldChannel, ...]]):
    """The channels that are held."""

    def statements(self, dialect: Dialect) -> Statements[tuple[HeldChannel, ...]]:
        """Yield one read."""
        return tuple(HeldChannel(*row) for row in (yield LIST()))
