"""Conversations: whose session a message of a channel belongs to, and which one it is.

The owner of a session is a person (`~channel:telegram:15551234`), or a conversation whose members
share one (`~channel:slack:C02:171.2`).  A token's subject is neither: an owner that is made of one
and begins with `~` has one `~` more.
"""

from __future__ import annotations

from typing import Final

from attrs import evolve

from ..channels.commands import read_word
from ..channels.deliveries import IncomingMessage, channel_session_id, rest_of_new
from ..hosted.registry import HostedChannel
from ..values import frozen

__all__ = [
    "Beginning",
    "Conversation",
    "begin_with",
    "find_conversation",
    "find_owner",
    "list_ids",
    "name_speaker",
    "owner_of",
    "read_beginning",
    "resume",
]

_LONGEST_NAME: Final = 64
_NEW: Final = "A new conversation begins. What can I do for you?"
_NEW_WITH: Final = "A new conversation with {} begins. What can I do for you?"


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
    subject = message.subject
    if subject is None:
        subject = channel.options.subjects.get(sender)
    if subject and (alone or not message.in_group):
        return Conversation(subject, base)
    return Conversation(f"~channel:{base}" if session == "thread" else owner_of(name, sender), base)


@frozen
class Beginning:
    """The beginning of a conversation: with whom, in which session, and its first words.

    `greeting` is for a person who says no more.
    """

    channel: HostedChannel
    session_id: str
    words: str
    greeting: str


def read_beginning(
    channel: HostedChannel, message: IncomingMessage, base: str, text: str
) -> Beginning | None:
    """Return the conversation that begins with `text`, if one does: by `/new`, or with another."""
    rest = rest_of_new(text) if channel.options.commands else None
    if rest is not None:
        return Beginning(channel, f"{base}#{message.message_id}", rest, _NEW)
    word, words = read_word(text) if channel.others else ("", "")
    return _begin_other(channel, message, base, word, words) if word in channel.others else None


def begin_with(
    channel: HostedChannel, message: IncomingMessage, base: str, text: str
) -> Beginning | None:
    """Return the conversation with whom a router chose for `message`; None where it goes on."""
    if not message.agent:
        return None
    if message.agent == channel.component.id:
        return Beginning(channel, f"{base}#{message.message_id}", text, _NEW)
    named = (word for word, other in channel.others.items() if other.id == message.agent)
    word = next(named, None)
    return None if word is None else _begin_other(channel, message, base, word, text)


def _begin_other(
    channel: HostedChannel, message: IncomingMessage, base: str, word: str, words: str
) -> Beginning:
    """Return the conversation with whom the command `word` names."""
    other = channel.others[word]
    session_id = f"{base}!{word[1:]}#{message.message_id}"
    greeting = _NEW_WITH.format(other.name)
    return Beginning(evolve(channel, component=other), session_id, words, greeting)


def resume(channel: HostedChannel, base: str, session_id: str) -> tuple[HostedChannel, str]:
    """Return the channel with who answers in `session_id`, and the session itself.

    Where its command is gone from the configuration, the first session of the conversation goes on.
    """
    named = session_id.removeprefix(base)
    if not named.startswith("!"):
        return channel, session_id
    other = channel.others.get("/" + named[1:].partition("#")[0])
    return (channel, base) if other is None else (evolve(channel, component=other), session_id)


def find_owner(channel: HostedChannel, sender: str) -> str | None:
    """Return the owner of the session of a message of `sender`; None where that depends on more."""
    if channel.options.find_subject is not None:
        return None
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
