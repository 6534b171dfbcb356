"""The retry of units: a run stores its state again while the database is away.

Only for units that find their own work when they are run a second time: then a commit without an
answer needs no other care than a lock that was not to be had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

from attrs import field

from ..backoff import Backoff
from ..effects import Now, Program, Sleep, Transact
from ..store.failures import Busy, CommitLost, StoreFailure, Unavailable
from ..store.units import Unit
from ..values import define

__all__ = [
    "BACKOFF",
    "FEW",
    "MANY",
    "MOST_TRIES",
    "OUTAGE_US",
    "PASSING",
    "Change",
    "Patience",
    "never",
    "persist",
    "transact",
    "with_retry",
]

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
"""Retries for about 21 seconds."""

OUTAGE_US: Final = 900_000_000
"""How long a database may be away without costing the runs of its nodes their end: 15 minutes."""

_STEP_US: Final = 60_000_000
"""The most that one attempt counts for: a clock that is set is not an outage."""

MOST_TRIES: Final = 3
"""How often a run is taken up in which nothing happens: it may be what ends its nodes."""


def transact(database: str, unit: Unit[R]) -> Program[R]:
    """Return the result of `unit`."""
    result: R = yield Transact(database, unit)
    return result


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


def never() -> bool:
    """Return that there is no end to be expected."""
    return False


@define
class Patience:
    """The patience of what is stored under a lease, which lasts as long as its node lives.

    Attributes:
        is_over: Whether the process ends: then it waits for no longer than who has no lease.
        attempts: How many failed.
    """

    is_over: Callable[[], bool] = never
    attempts: int = 0
    _spent_us: int = field(default=0, init=False)
    _last_us: int | None = field(default=None, init=False)

    @property
    def exhausted(self) -> bool:
        """Whether the next attempt is the last."""
        ends = self.attempts >= MANY and self.is_over()
        return ends or self._spent_us >= OUTAGE_US

    def wait(self) -> Program[None]:
        """Wait behind an attempt that failed."""
        self.attempts += 1
        now_us = yield from Now()
        seconds = yield from BACKOFF.draw(self.attempts)
        passed_us = 0 if self._last_us is None else min(now_us - self._last_us, _STEP_US)
        self._spent_us += max(passed_us, 0)
        self._last_us = now_us
        yield from Sleep(seconds)


def persist(
    database: str,
    unit: Unit[R],
    is_over: Callable[[], bool] = never,
    others: tuple[type[StoreFailure], ...] = (),
) -> Program[R]:
    """Return the result of `unit`, however long its database is away, up to `OUTAGE_US`.

    A failure that is one of `others`, and does not pass, is one for which it is tried `MANY` times.

    Raises:
        StoreFailure: That of the last attempt.
    """
    result: R
    patience: Patience | None = None
    failed = 0
    while patience is None or (not patience.exhausted and failed < MANY):
        try:
            result = yield Transact(database, unit)
        except PASSING:
            pass
        except others:
            failed += 1
        else:
            return result
        patience = patience or Patience(is_over)  # nearly always the first attempt is the only one
        yield from patience.wait()
    result = yield Transact(database, unit)
    return result
