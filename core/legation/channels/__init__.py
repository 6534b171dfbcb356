"""Messaging channels: codecs that verify and parse deliveries and encode replies.

Each kind is a frozen class of settings with the same functions (`Codec`): `handshake` and `verify`
for a request, `parse` for a verified delivery, `locate` and `download` for a file in a message,
`prepare` and `encode` for a reply, `read_reply` for the provider's answer to it.  No input from
outside makes any of them raise.  An application may add kinds of its own, which go through the same
table.  Our own kinds are imported when they are asked for first: most platforms have no channel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .codec import Codec

if TYPE_CHECKING:
    from .kinds import CHANNEL_KINDS, Slack, Standard, Telegram, WhatsApp
else:

    def __getattr__(name: str) -> Any:
        """Import our own kinds, and return one of them, or all.

        Raises:
            AttributeError: There is none of that name.
        """
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(__import__(f"{__name__}.kinds", fromlist=[name]), name)
        return value


__all__ = ["CHANNEL_KINDS", "Codec", "Slack", "Standard", "Telegram", "WhatsApp"]
