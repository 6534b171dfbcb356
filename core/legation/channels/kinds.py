"""Our own kinds of channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .codec import Codec
from .slack import Slack
from .standard import Standard
from .telegram import Telegram
from .whatsapp import WhatsApp

__all__ = ["CHANNEL_KINDS", "Slack", "Standard", "Telegram", "WhatsApp"]

CHANNEL_KINDS: Final[Mapping[str, type[Codec]]] = {
    cls.kind: cls for cls in (WhatsApp, Telegram, Slack, Standard)
}
"""Our own kinds by the name that a configuration uses."""
