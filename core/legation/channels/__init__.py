"""Messaging channels: codecs that verify and parse deliveries and encode replies.

The set of kinds is closed.  Each is a frozen value of its settings with the same seven functions:
`handshake` and `verify` for a request, `parse` for a verified delivery, `locate` and `download`
for a file in a message, `encode` for a reply, `read_reply` for the provider's answer to it.  No
input from outside makes any of them raise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from .slack import Slack
from .standard import Standard
from .telegram import Telegram
from .whatsapp import WhatsApp

__all__ = ["CHANNEL_KINDS", "Channel", "Slack", "Standard", "Telegram", "WhatsApp"]

Channel: TypeAlias = WhatsApp | Telegram | Slack | Standard
"""Every kind of channel there is."""

CHANNEL_KINDS: Final[Mapping[str, type[Channel]]] = {
    cls.kind: cls for cls in (WhatsApp, Telegram, Slack, Standard)
}
"""The kinds by the name that a configuration uses."""
