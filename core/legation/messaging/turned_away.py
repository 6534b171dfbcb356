"""People who are turned away: who may not write, who writes too much, whose share is used up.

Of the first two each reads one sentence, however much they write, for as long as the outbox knows
its key.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from attrs import evolve

from ..channels.deliveries import Ask, IncomingMessage, Say, treat
from ..channels.replies import Reply, replies_to
from ..hosted.registry import HostedChannel

__all__ = ["tell_busy", "tell_over", "tell_stranger"]

_STRANGER: Final = "I may answer only people whom I was told of. Your id here is {}."
_BUSY: Final = (
    "You write faster than I can answer. I leave out the oldest of what waits; please write again"
    " what is important."
)
_SPENT: Final = "What you may ask for in a day is used up. Please write again tomorrow."
_FULL: Final = "There is no room for more of what you write. Please tell those who look after me."
_HOUR_US: Final = 3_600_000_000


def tell_stranger(
    channel: HostedChannel, message: IncomingMessage, now_us: int
) -> tuple[Reply, ...]:
    """Return what a person reads who may not write: their id, for who may let them in.

    A group reads nothing, and nothing answers a reaction or a button.
    """
    if message.in_group or not isinstance(treat(message), Ask | Say):
        return ()
    return _once(channel, message, "stranger", _STRANGER.format(f"`{message.sender}`"), now_us)


def tell_busy(channel: HostedChannel, message: IncomingMessage, now_us: int) -> tuple[Reply, ...]:
    """Return what a person reads whose messages are left out: one sentence an hour."""
    return _once(channel, message, f"busy.{now_us // _HOUR_US}", _BUSY, now_us)


def tell_over(
    channel: HostedChannel, message: IncomingMessage, over: str, now_us: int
) -> tuple[Reply, ...]:
    """Return what a person reads whose share is used up: `over` names it."""
    text = _SPENT if over in ("tokens", "cost") else _FULL
    return replies_to(message, text, channel.codec.compose, now_us)


def _once(
    channel: HostedChannel, message: IncomingMessage, why: str, text: str, now_us: int
) -> tuple[Reply, ...]:
    """Return `text` under a key that all of a person's messages have: it is stored once."""
    person = sha256(message.sender.encode()).hexdigest()[:32]
    parts = replies_to(message, text, channel.codec.compose, now_us)
    return tuple(evolve(part, key=f"{why}-{person}") for part in parts[:1])
