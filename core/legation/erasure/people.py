"""The names of a person: as a user in a path, as an owner of rows, as a sender in a channel."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, cast

from attrs import field

from ..access.decide import owner_of
from ..channels.deliveries import channel_session_id, sender_of
from ..hosted.registry import Registry
from ..store.erasure import LettersOf, PersonSeen
from ..values import define

__all__ = ["ENCODED", "is_reserved", "letters_of", "owners_of", "read_user"]

ENCODED: Final = "~base64url:"
"""Before a user id that a path cannot have, in base64url."""

_COUNTED: Final = ("~address:", "~agent:", "~team:")
_BASE64URL: Final = re.compile(r"(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2,3})?")


def read_user(text: str) -> str | None:
    """Return the user id that a segment of a path stands for; None where it is no text.

    A path cannot have control characters, `;`, a backslash, `.` and `..`, so that a user id with
    one is written as `ENCODED` and its UTF-8 in base64url (RFC 4648 section 5).
    """
    if not text.startswith(ENCODED):
        return text
    encoded = text.removeprefix(ENCODED).rstrip("=")
    if not encoded or not _BASE64URL.fullmatch(encoded):
        return None
    try:
        name = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in name else name


def is_reserved(name: str) -> bool:
    """Return whether `name` is an owner of the platform's own, which is no user."""
    return not name or (owner_of(name).startswith("~") and not owner_of(name).startswith("~~"))


def owners_of(name: str) -> tuple[str, ...]:
    """Return the owners under whom the rows of the user `name` are.

    A name that begins with `~` may have rows from before such names got one more; but not one that
    looks like the subject of a counter.
    """
    if name.startswith(_COUNTED):
        return (owner_of(name),)
    return tuple(dict.fromkeys((owner_of(name), name)))


@define
class _Addresses:
    """The addresses of a person in one channel."""

    senders: set[str] = field(factory=set[str])
    recipients: set[str] = field(factory=set[str])


def letters_of(
    registry: Registry, database: str, name: str, seen: Iterable[PersonSeen]
) -> tuple[LettersOf, ...]:
    """Return the letters of the user `name` in the channels of `database`.

    Args:
        registry: Its channels say which of their people are which users.
        database: The id of the database.
        name: The user id.
        seen: The people that the database itself says are this user.
    """
    found: dict[str, _Addresses] = {}
    for channel, sender in _find_people(registry, database, name):
        found.setdefault(channel, _Addresses()).senders.add(sender)
    for person in seen:
        addresses, sender = found.setdefault(person.channel, _Addresses()), sender_of(person.sender)
        addresses.senders.add(sender)
        if person.conversation and _is_direct(person, sender):
            addresses.recipients.add(person.conversation)
    return tuple(
        LettersOf(
            channel,
            tuple(sorted({*one.senders, *(f"press {sender}" for sender in one.senders)})),
            tuple(sorted(one.senders | one.recipients)),
        )
        for channel, one in sorted(found.items())
    )


def _find_people(registry: Registry, database: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield the people of channels who are a user as the configuration says, secrets or not."""
    for channel in registry.config.channels:
        component = registry.agents.get(channel.agent or "") or registry.teams.get(
            channel.team or ""
        )
        if component is not None and component.database != database:
            continue
        given: object = channel.subjects
        if isinstance(given, Mapping):
            subjects = cast("Mapping[str, str]", given)
            yield from ((channel.id, one) for one, subject in subjects.items() if subject == name)


def _is_direct(person: PersonSeen, sender: str) -> bool:
    """Return whether the conversation is with this person alone: its session has its name."""
    base = channel_session_id(person.channel, sender, person.conversation)
    return re.split("[#!]", person.session_id, maxsplit=1)[0] == base
