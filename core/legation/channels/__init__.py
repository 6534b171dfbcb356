"""Messaging channels: codecs that verify and parse deliveries and encode replies.

Each kind is a frozen class of settings with the same functions (`Codec`): `handshake` and `verify`
for a request, `parse` for a verified delivery, `locate` and `download` for a file in a message,
`prepare` and `encode` for a reply, `read_reply` for the provider's answer to it.  No input from
outside makes any of them raise.  An application may add kinds of its own, which go through the same
table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .codec import Codec
from .slack import Slack
from .standard import Standard
from .telegram import Telegram
from .whatsapp import WhatsApp

__all__ = ["CHANNEL_KINDS", "Codec", "Slack", "Standard", "Telegram", "WhatsApp"]

CHANNEL_KINDS: Final[Mapping[str, type[Codec]]] = {
    cls.kind: cls for cls in (WhatsApp, Telegram, Slack, Standard)
}
"""Our own kinds by the name that a configuration uses."""
