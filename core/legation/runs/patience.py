"""Patience with a database: what a run has to store is tried again, a while.

Only for units that find their own work when they are run a second time: then a commit without an
answer needs no other care than a lock that was not to be had.
"""

from __future__ import annotations

from typing import Final, TypeVar

from ..effects import Program, Sleep, Transact
from ..store.failures import Busy, CommitLost, StoreFailure, Unavailable
from ..store.units import Unit

__all__ = ["FEW", "MANY", "PASSING", "patiently"]

R = TypeVar("R")

PASSING: Final[tuple[type[StoreFailure], ...]] = (Busy, CommitLost, Unavailable)
"""What may be otherwise at the next try."""

FEW: Final = (0.05, 0.1, 0.2)
"""Seconds between the tries while a client waits."""

MANY: Final = (0.05, 0.1, 0.2, 0.4, 0.8, *(1.0,) * 20)
"""Seconds between the tries under a lease: as long as it lasts without being extended."""


def patiently(
    database: str,
    unit: Unit[R],
    pauses: tuple[float, ...] = MANY,
    passing: tuple[type[StoreFailure], ...] = PASSING,
) -> Program[R]:
    """Return the result of `unit`.

    Raises:
        StoreFailure: One that does not pass, or the last after every pause.
    """
    for pause in pauses:
        try:
            return (yield from Transact(database, unit))
        except passing:
            pass
        yield from Sleep(pause)
    return (yield from Transact(database, unit))
