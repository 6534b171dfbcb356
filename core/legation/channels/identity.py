"""The identity of a channel: who we are at its provider, as the provider says it.

It decides what is meant for us where others are present: a mention of our name, a command for us,
an event of our workspace.
"""

from __future__ import annotations

import json
from typing import Any

from attrs import asdict, fields

from ..effects import FetchReply, Unreachable
from ..http.bodies.json_text import BadJson, JsonValue, parse_json
from ..http.messages import compact_json
from ..values import frozen

__all__ = ["Identity", "Unidentified", "body_of", "decode_identity", "encode_identity"]


@frozen
class Identity:
    """The identity of a channel at its provider.

    Attributes:
        id: What the provider calls us: a bot's id, a user's, that of a phone number.
        name: By what people call us: the name of the bot or the user, the phone number.
        workspace: The only workspace whose events are ours, or "".
        bot_id: The id of the bot behind a user, or "".
        url: The address of the workspace, or "".
        title: The name of the business, or "".
        quality: The provider's judgement of our messages, or "".
        reads_groups: Whether every message of a group comes; None where that is not said.
    """

    id: str
    name: str
    workspace: str = ""
    bot_id: str = ""
    url: str = ""
    title: str = ""
    quality: str = ""
    reads_groups: bool | None = None


@frozen
class Unidentified:
    """The provider has not said who we are.

    Attributes:
        reason: For the log.
        after_seconds: How long it asked us to wait, where it did.
    """

    reason: str
    after_seconds: int | None = None


def encode_identity(identity: Identity) -> str:
    """Return `identity` as the JSON that the database stores."""
    return compact_json(asdict(identity))


def decode_identity(stored: str) -> Identity:
    """Return the identity that `encode_identity` stored; members of a later version are dropped."""
    value: dict[str, Any] = json.loads(stored)
    return Identity(**{a.name: value[a.name] for a in fields(Identity) if a.name in value})


def body_of(reply: FetchReply | Unreachable) -> JsonValue:
    """Return the JSON in the body of `reply`; None where there is none."""
    parsed = None if isinstance(reply, Unreachable) else parse_json(reply.body)
    return None if isinstance(parsed, BadJson) else parsed
