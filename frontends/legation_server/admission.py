"""The admission of connections: a limit per worker, and a limit per address."""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv6Address

from legation.http.refusals import Refusal, TooManyRequests, Unavailable

from .settings import Settings

__all__ = ["Admission", "is_near"]


class Admission:
    """The count of admitted connections, in all and by address."""

    __slots__ = ("_admitted", "_by_address", "_limits")

    def __init__(self, limits: Settings) -> None:
        self._limits = limits
        self._admitted = 0
        self._by_address: Counter[str | int] = Counter()

    def enter(self, client: str, *, proxied: bool = False) -> Refusal | None:
        """Count a connection from `client` in, or return why it may not stay.

        A trusted proxy (`proxied`) has all its clients behind one address.
        """
        if self._admitted >= self._limits.connections:
            return Unavailable("The server has too many connections")
        origin = _origin(client)
        full = self._by_address[origin] >= self._limits.connections_per_address
        if full and not proxied and not is_near(client):
            sentence = "Too many connections from this address"
            return TooManyRequests(retry_after=1, detail=sentence)
        self._admitted += 1
        self._by_address[origin] += 1
        return None

    def leave(self, client: str) -> None:
        """Count a connection out that was counted in."""
        self._admitted -= 1
        origin = _origin(client)
        self._by_address[origin] -= 1
        if not self._by_address[origin]:
            del self._by_address[origin]


def _origin(client: str) -> str | int:
    """Return the part of an address that is counted: of IPv6 the first 64 bits.

    A client chooses the rest as often as it likes (RFC 4291 section 2.5.4).
    """
    return int(IPv6Address(client)) >> 64 if ":" in client else client


def is_near(client: str) -> bool:
    """Tell whether `client` is on this machine: perhaps a proxy, with all its clients behind it."""
    return client in ("", "::1") or client.startswith("127.")
