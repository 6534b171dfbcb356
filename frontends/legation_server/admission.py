"""The admission of connections: a limit per worker, and a limit per address."""

from __future__ import annotations

from collections import Counter

from legation.http.refusals import Refusal, TooManyRequests, Unavailable
from legation.shares.exceeded import Exceeded
from legation.shares.subjects import is_near, network_of

from .settings import Settings

__all__ = ["Admission"]


class Admission:
    """The count of admitted connections, in all and by address."""

    __slots__ = ("_admitted", "_by_address", "_limits")

    def __init__(self, limits: Settings) -> None:
        self._limits = limits
        self._admitted = 0
        self._by_address: Counter[str] = Counter()

    def enter(self, client: str, *, proxied: bool = False) -> Refusal | None:
        """Count a connection from `client` in, or return why it may not stay.

        A trusted proxy (`proxied`) has all its clients behind one address.
        """
        if self._admitted >= self._limits.connections:
            return Unavailable("The server has too many connections")
        origin = network_of(client)
        full = self._by_address[origin] >= self._limits.connections_per_address
        if full and not proxied and not is_near(client):
            return TooManyRequests(Exceeded("connections", self._limits.connections_per_address))
        self._admitted += 1
        self._by_address[origin] += 1
        return None

    def leave(self, client: str) -> None:
        """Count a connection out that was counted in."""
        self._admitted -= 1
        origin = network_of(client)
        self._by_address[origin] -= 1
        if not self._by_address[origin]:
            del self._by_address[origin]
