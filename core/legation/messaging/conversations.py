"""Conversations: whose session a message of a channel belongs to, and which one it is.

The owner of a session is a person (`~channel:telegram:15551234`), or a conversation whose members
share one (`~channel:slack:C02:171.2`).  A token's subject is neither: an owner that is made of one
and begins with `~` has one `~` more.
"""

from __future__ import annotations

from typing import Final

from ..channels.deliveries import IncomingMessage, channel_session_id
from ..hosted.registry import HostedChannel
from ..values import frozen

__all__ = [
    "Conversation",
    "find_conversation",
    "find_owner",
    "list_ids",
    "name_speaker",
    "owner_of",
]

_LONGEST_NAME: Final = 64


@frozen
class Conversation:
    """The owner of the sessions of a conversation, and the name of the first of them."""

    owner: str
    base: str


def owner_of(channel: str, sender: str) -> str:
    """Return under what name a sender's sessions are kept; no token's subject is ever one."""
    return f"~channel:{channel}:{sender}"


def find_conversation(channel: HostedChannel, message: IncomingMessage) -> Conversation:
    """Return the conversation of `message`, as the `session` of its channel says.

    Who is a subject has its sessions in direct chats, and in groups where their session is of the
    person wherever it writes: others read along there.
    """
    name, sender, session = channel.id, message.sender, channel.options.session
    alone = session == "person"
    place = ("", "") if alone else (message.conversation, message.thread)
    base = channel_session_id(name, sender, *place)
    subject = channel.options.subjects.get(sender)
    if subject is not None and (alone or not message.in_group):
        return Conversation(subject, base)
    return Conversation(f"~channel:{base}" if session == "thread" else owner_of(name, sender), base)


def find_owner(channel: HostedChannel, sender: str) -> str | None:
    """Return the owner of the session of a message of `sender`; None where that depends on more."""
    subject, session = channel.options.subjects.get(sender), channel.options.session
    if session == "thread" or (subject is not None and session != "person"):
        return None
    return owner_of(channel.id, sender) if subject is None else subject


def list_ids(message: IncomingMessage) -> tuple[str, ...]:
    """Return the ids under which the sender of `message` is written to, its own one first."""
    direct = () if message.in_group else (message.conversation or message.sender,)
    return tuple(dict.fromkeys((message.sender, *direct)))


def name_speaker(channel: HostedChannel, message: IncomingMessage) -> str:
    """Return what stands before the words of `message`, for a model that hears several people.

    That is the name which a person gives itself, and its id at the provider, which it cannot
    choose.  It is empty where one person alone is heard.
    """
    if not message.in_group or channel.options.session != "thread":
        return ""
    name, sender = _clean(message.name), _clean(message.sender)
    return f"{name} ({sender}): " if name else f"({sender}): "


def _clean(name: str) -> str:
    """Return `name` on one line, without what it could be taken for another's by."""
    plain = "".join(c if c.isprintable() and c not in "():" else " " for c in name)
    return " ".join(plain.split())[:_LONGEST_NAME].strip()
