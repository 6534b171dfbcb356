"""The guard of requests that are trusted for where they come from: by their host, by their sender.

Where authorization is off, whoever reaches a platform may do anything.  A page of a stranger
reaches it through a browser on this machine: the owner of a domain lets its name lead here (DNS
rebinding), and then is of the same origin.  So names are refused that strangers can own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from attrs import field

from ..values import define

__all__ = ["TEST_CLIENT", "TrustGuard", "is_host_name", "is_loopback"]

TEST_CLIENT: Final = "testclient"
"""How Starlette's test client, and those made from it, call themselves."""

# An address, or a name that no stranger can own: without a dot, or below a name that is reserved
# for this machine or for tests (RFC 6761 sections 6.2 and 6.3).
_OURS: Final = re.compile(
    rb"\[[0-9a-f:.]+\]|[0-9.]*|[a-z0-9_-]+|(?:[a-z0-9_-]+\.)+(?:localhost|test)"
)
_NAME: Final = re.compile(r"(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}", re.ASCII)
_PORT: Final = re.compile(rb":[0-9]{0,5}\Z")
# So many ways to write a host are known without a look at them; more are looked at each time.
_REMEMBERED: Final = 64


@define(eq=False)
class TrustGuard:
    """The guard of one platform.

    Attributes:
        names: The names by which it is reached, beside those that no stranger can own.
        local_only: Whether requests from other machines are refused.
        accepted: Values of `Host` that were found in order.
    """

    names: frozenset[bytes]
    local_only: bool = False
    accepted: set[bytes] = field(factory=set[bytes], init=False)

    @classmethod
    def of(cls, names: Iterable[str]) -> TrustGuard:
        """Return the guard that lets `names` pass."""
        return cls(frozenset(name.lower().encode() for name in names))

    def expects(self, host: bytes) -> bool:
        """Return whether a `Host` is one of this platform, whatever the port; remember it."""
        name = _PORT.sub(b"", host).lower().removesuffix(b".")
        expected = name in self.names or _OURS.fullmatch(name) is not None
        if expected and len(self.accepted) < _REMEMBERED:
            self.accepted.add(host)
        return expected


def is_loopback(client: str) -> bool:
    """Return whether a request with this sender comes from this machine, or from a test.

    Without a sender it comes through a Unix socket, or from no network.
    """
    if client in ("", TEST_CLIENT, "localhost"):
        return True
    try:
        address = ip_address(client)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def is_host_name(name: str) -> bool:
    """Return whether `name` is the name of a host, without a port and in small letters."""
    return len(name) <= 253 and _NAME.fullmatch(name) is not None
