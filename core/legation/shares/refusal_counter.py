"""The refusals of a process that nobody is known for, counted until they are written.

Whoever asks without a token can be refused thousands of times in a second, from as many addresses.
So nothing of such a request is kept but a count, and no more than `KINDS` of these: what is beyond
is counted as one.  The lines of the log that such requests leave come out of one allowance.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from attrs import field

from ..store.refusals import NOWHERE, OTHERS, RefusalCount
from ..values import define
from .subjects import network_of

__all__ = ["RefusalCounter"]

KINDS: Final = 8_192
"""More than are written of one minute, so that those refused most often are among them."""

_LONGEST: Final = 64
"""Characters of an address."""

_MINUTES: Final = 1_440
"""As many rows of others, where what was counted cannot be written for so long."""

_MINUTE_US: Final = 60_000_000
_LINES: Final = 100.0
_LINES_PER_US: Final = 10 / 1_000_000

_Key: TypeAlias = tuple[int, str, str, int]


@define(eq=False)
class RefusalCounter:
    """The refusals of one process that are not written yet.

    Attributes:
        totals: How many there were, by status, since the process began.
        unlogged: How many lines the log does not have, since the process began.
        writing: Whether somebody is writing what was counted.
        forgot: The hour in which the database was last asked to forget.
    """

    totals: dict[int, int] = field(factory=dict[int, int], init=False)
    unlogged: int = field(default=0, init=False)
    writing: bool = field(default=False, init=False)
    forgot: int = field(default=-1, init=False)
    _counts: dict[_Key, int] = field(factory=dict[_Key, int], init=False)
    _others: int = field(default=0, init=False)
    _lines: float = field(default=_LINES, init=False)
    _logged_us: int = field(default=0, init=False)
    _reported: int = field(default=0, init=False)

    def count(self, at_us: int, client: str, route: str, status: int) -> None:
        """Count a refusal at `at_us`, to `client`, on the template `route`."""
        self.totals[status] = self.totals.get(status, 0) + 1
        self._add((at_us // _MINUTE_US, _shorten(client), route, status), 1)

    def _add(self, key: _Key, count: int) -> None:
        counts = self._counts
        if key not in counts and len(counts) >= KINDS:
            if len(counts) < KINDS + _MINUTES:
                self._others = key[0]
            key = (self._others, OTHERS, NOWHERE, 0)
        counts[key] = counts.get(key, 0) + count

    def may_log(self, at_us: int) -> bool:
        """Return whether the log gets a line about such a request: 100 at once, 10 a second."""
        waited_us = max(at_us - self._logged_us, 0)
        self._logged_us = at_us
        self._lines = min(self._lines + waited_us * _LINES_PER_US, _LINES)
        if self._lines < 1:
            self.unlogged += 1
            return False
        self._lines -= 1
        return True

    def take_unlogged(self) -> int:
        """Return how many lines the log does not have, since this was asked last."""
        reported, self._reported = self._reported, self.unlogged
        return self.unlogged - reported

    def __len__(self) -> int:
        """Return how many counts are not written."""
        return len(self._counts)

    def take(self, now_us: int | None = None) -> tuple[RefusalCount, ...]:
        """Return what was counted in other minutes than that of `now_us`, and keep it no longer."""
        minute = None if now_us is None else now_us // _MINUTE_US
        keys = sorted(key for key in self._counts if key[0] != minute)
        return tuple(RefusalCount(*key, self._counts.pop(key)) for key in keys)

    def put_back(self, taken: Iterable[RefusalCount]) -> None:
        """Keep what was taken and could not be written."""
        for one in taken:
            self._add((one.minute, one.client, one.route, one.status), one.count)


def _shorten(client: str) -> str:
    """Return the network of an address; a host may hand on whatever a client says it is."""
    network = network_of(client)
    return network if len(network) <= _LONGEST and network.isprintable() else NOWHERE
