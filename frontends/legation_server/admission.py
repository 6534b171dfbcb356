"""The admission of connections: a limit per worker, and a limit per address.

Where all places are taken, connections that wait for a request make room, the oldest first
(`idle_first`).  They end within a turn of the event loop; until then up to a twentieth more than
the limit is open.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable

from legation.http.refusals import Refusal, TooManyRequests, Unavailable
from legation.shares.exceeded import Exceeded
from legation.shares.subjects import is_near, network_of

from .connection import Connection
from .settings import Settings
from .wire import Phase

__all__ = ["Admission", "idle_first"]


class Admission:
    """The count of admitted connections, in all and by address.

    Attributes:
        evicted: How many were asked to make room.
    """

    __slots__ = ("_admitted", "_by_address", "_leaving", "_limits", "evicted")

    def __init__(self, limits: Settings) -> None:
        self._limits = limits
        self._admitted = 0
        self._leaving = 0
        self._by_address: Counter[str] = Counter()
        self.evicted = 0

    @property
    def lacks(self) -> int:
        """The connections that are to make room before the next one enters; 0 while there is some.

        They are more than one, so that not every newcomer looks through all.
        """
        limit = self._limits.connections
        if self._admitted - self._leaving < limit:
            return 0
        return max(0, max(1, limit // 20) - self._leaving)

    def enter(self, client: str, *, proxied: bool = False) -> Refusal | None:
        """Count a connection from `client` in, or return why it may not stay.

        A trusted proxy (`proxied`) has all its clients behind one address.
        """
        if self._admitted - self._leaving >= self._limits.connections:
            return Unavailable("The server has too many connections")
        origin = network_of(client)
        full = self._by_address[origin] >= self._limits.connections_per_address
        if full and not proxied and not is_near(client):
            return TooManyRequests(Exceeded("connections", self._limits.connections_per_address))
        self._admitted += 1
        self._by_address[origin] += 1
        return None

    def expect_leave(self) -> None:
        """Count out a connection that was counted in, and is to end at once."""
        self._leaving += 1
        self.evicted += 1

    def leave(self, client: str, *, evicted: bool = False) -> None:
        """Count a connection out that was counted in."""
        self._admitted -= 1
        self._leaving -= evicted
        origin = network_of(client)
        self._by_address[origin] -= 1
        if not self._by_address[origin]:
            del self._by_address[origin]


def idle_first(connections: Iterable[Connection], most: int) -> list[Connection]:
    """Return who may make room, `most` at most, in the order in which they do; never who is served.

    First come those that wait for a request of which nothing has come, the oldest first; then those
    whose head has begun; then those that were answered and are to close.
    """
    ranked = [
        (rank, connection.since, number, connection)
        for number, connection in enumerate(connections)
        if (rank := _rank(connection)) is not None
    ]
    return [connection for *_, connection in heapq.nsmallest(most, ranked)]


def _rank(connection: Connection) -> int | None:
    if not connection.evictable:
        return None
    if connection.is_idle:
        return 0
    phase = connection.wire.phase
    return 1 if phase is Phase.HEAD else 2 if phase is Phase.CLOSING else None
