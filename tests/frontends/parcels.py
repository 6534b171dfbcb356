"""A small service for the tests of `legation_testing`: parcels, and workers that deliver them.

A worker claims a parcel under a lease, carries it to a door over the network and says so.  Each of
its planted faults is one that programs of this kind really have.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final

from attrs import frozen

from legation.effects import (
    AwaitNudge,
    Fetch,
    FetchReply,
    Log,
    Now,
    Nudge,
    Program,
    Transact,
)
from legation.store.units import Dialect, Sql, Statements, Undo, Unit

__all__ = [
    "Accept",
    "Claim",
    "CreateTables",
    "Deliveries",
    "Finish",
    "accept",
    "create_tables",
    "deliver",
    "log_while_unwinding",
]

LEASE_US: Final = 10_000_000


@frozen(eq=False)
class LocalSql(Sql):
    """A statement that is not the core's: it stays out of `all_sql`."""

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "registered", False)
        super().__attrs_post_init__()


CREATE: Final = LocalSql(
    "create table if not exists parcel (id text primary key, lease_until integer not null"
    " default 0, attempts integer not null default 0, delivered integer not null default 0) strict"
)
INSERT: Final = LocalSql("insert into parcel (id) values (:id)")
CLAIM: Final = LocalSql(
    "update parcel set lease_until = :now + :lease, attempts = attempts + 1 where id = (select id"
    " from parcel where delivered = 0 and lease_until <= :now order by id limit 1)"
    " returning id, attempts"
)
FINISH: Final = LocalSql("update parcel set delivered = delivered + 1 where id = :id returning id")
FINISH_FENCED: Final = LocalSql(
    "update parcel set delivered = delivered + 1 where id = :id and attempts = :attempt"
    " returning id"
)
DELIVERIES: Final = LocalSql("select id, delivered from parcel order by id")


@frozen
class CreateTables(Unit[None]):
    """Make the table unless it is there."""

    def statements(self, dialect: Dialect) -> Statements[None]:
        yield CREATE()


@frozen
class Accept(Unit[None]):
    """Store a parcel."""

    parcel: str

    def statements(self, dialect: Dialect) -> Statements[None]:
        yield INSERT(id=self.parcel)


@frozen
class Claim(Unit[tuple[str, int] | None]):
    """Take the next parcel that nobody holds: its id and the number of the attempt."""

    now_us: int

    def statements(
        self, dialect: Dialect
    ) -> Statements[tuple[str, int] | None | Undo[tuple[str, int] | None]]:
        rows = yield CLAIM(now=self.now_us, lease=LEASE_US)
        return rows[0] if rows else None


@frozen
class Finish(Unit[bool]):
    """Say that a parcel was delivered, if the attempt is still the last; any attempt is if None."""

    parcel: str
    attempt: int | None

    def statements(self, dialect: Dialect) -> Statements[bool | Undo[bool]]:
        if self.attempt is None:
            rows = yield FINISH(id=self.parcel)
        else:
            rows = yield FINISH_FENCED(id=self.parcel, attempt=self.attempt)
        return bool(rows)


@frozen
class Deliveries(Unit[dict[str, int]]):
    """How often each parcel was delivered."""

    writes: ClassVar[bool] = False

    def statements(self, dialect: Dialect) -> Statements[dict[str, int] | Undo[dict[str, int]]]:
        rows = yield DELIVERIES()
        return dict(rows)


def create_tables() -> Program[None]:
    """Make the table."""
    yield from Transact("main", CreateTables())


def accept(parcel: str, *, nudge_first: bool = False) -> Program[None]:
    """Store a parcel and wake a worker; `nudge_first` is the planted fault."""
    if nudge_first:
        yield from Nudge("parcels")
    yield from Transact("main", Accept(parcel))
    if not nudge_first:
        yield from Nudge("parcels")


def deliver(
    count: int = 1, *, fenced: bool = True, patience: float = math.inf
) -> Program[list[Any]]:
    """Deliver `count` parcels; without `fenced`, a worker that was overtaken does not notice."""
    done: list[Any] = []
    while len(done) < count:
        claimed = yield from Transact("main", Claim((yield from Now())))
        if claimed is None:
            yield from AwaitNudge("parcels", patience)
            continue
        parcel, attempt = claimed
        reply = yield from Fetch("POST", f"https://door.example/{parcel}")
        if isinstance(reply, FetchReply):
            yield from Transact("main", Finish(parcel, attempt if fenced else None))
            done.append(parcel)
    return done


def log_while_unwinding() -> Program[None]:
    """The fault that every host fears: an effect in a `finally`."""
    try:
        yield from Now()
        yield from Now()
    finally:
        yield from Log("info", "left")
