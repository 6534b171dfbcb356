"""The retry of units: a run stores its state again while the database is away.

Only for units that find their own work when they are run a second time: then a commit without an
answer needs no other care than a lock that was not to be had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

from ..backoff import Backoff
from ..effects import Program, Transact
from ..store.failures import Busy, CommitLost, StoreFailure, Unavailable
from ..store.units import Unit

__all__ = ["BACKOFF", "FEW", "MANY", "MOST_TRIES", "PASSING", "Change", "transact", "with_retry"]

R = TypeVar("R")

Change: TypeAlias = Callable[[str, Unit[Any]], Program[Any]]
"""How a unit is run on a database: plainly, or with the record of who asked for it.

It gives what the unit gives; no alias of a callable can say that, so it says `Any`.
"""

PASSING: Final[tuple[type[StoreFailure], ...]] = (Busy, CommitLost, Unavailable)
"""What may be otherwise at the next try."""

BACKOFF: Final = Backoff(0.05, 1.0)

FEW: Final = 3
"""Retries while a client waits: for a third of a second at most."""

MANY: Final = 32
"""Retries under a lease: for about 21 seconds, as long as it lasts without being extended."""

MOST_TRIES: Final = 3
"""How often a run is taken up in which nothing happens: it may be what ends its nodes."""


def transact(database: str, unit: Unit[R]) -> Program[R]:
    """Return the result of `unit`."""
    return (yield from Transact(database, unit))


def with_retry(
    database: str,
    unit: Unit[R],
    retries: int = MANY,
    passing: tuple[type[StoreFailure], ...] = PASSING,
    change: Change = transact,
) -> Program[R]:
    """Return the result of `unit`.

    Raises:
        StoreFailure: One that does not pass, or that of the last retry.
    """
    for attempt in range(1, retries + 1):
        try:
            return (yield from change(database, unit))  # type: ignore[no-any-return]
        except passing:
            pass
        yield from BACKOFF.wait(attempt)
    return (yield from change(database, unit))  # type: ignore[no-any-return]
