"""Subjects: whose share a request or a run is counted against.

A subject is a text.  That of a caller with a name is the name under which its rows are kept.  Who
has none is counted by address: `~address:` and the network of the client.  No user's name begins
so (`access.decide.Principal.owner`).
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address
from typing import Final

__all__ = [
    "ADDRESS",
    "address_subject",
    "component_subject",
    "is_near",
    "network_of",
    "split_subject",
]

ADDRESS: Final = "~address:"
_COMPONENTS: Final = ("~agent", "~team")


@lru_cache(maxsize=4096)
def network_of(client: str) -> str:
    """Return the part of an address that one client has: of IPv6 the first 64 bits.

    A client chooses the rest as often as it likes (RFC 4291 section 2.5.4).  A text that is no
    address is returned as it stands.
    """
    if ":" not in client:
        return client
    try:
        number = int(IPv6Address(client.partition("%")[0]))
    except ValueError:
        return client
    return f"{IPv6Address(number >> 64 << 64)}/64"


def address_subject(client: str) -> str:
    """Return the subject of who has no name and asks from the address `client`."""
    return f"{ADDRESS}{network_of(client)}"


def component_subject(kind: str, component_id: str, subject: str) -> str:
    """Return the subject of `subject` where an agent or a team has an account of its own."""
    return f"~{kind}:{component_id}:{subject}"


def split_subject(subject: str) -> tuple[tuple[str, str] | None, str]:
    """Return the agent or team that has an account of its own, and the subject behind it."""
    kind, _, rest = subject.partition(":")
    if kind not in _COMPONENTS:
        return None, subject
    component_id, _, base = rest.partition(":")  # an id has no colon
    return (kind[1:], component_id), base


def is_near(client: str) -> bool:
    """Return whether `client` is on this machine: perhaps a proxy, with all its clients behind it.

    Empty stands for a Unix socket.
    """
    return client in ("", "::1") or client.startswith("127.")
