"""Leases of rows: who works on a run, a message or a reply, and for how long.

A lease names its node (`lease_by`) and holds `FOREVER`, which is as long as the node is among the
`nodes` of the database (`store.nodes`).  A lease with an end was written by a node of a release
before 2.6.0; it is compared with the database's own clock, never with that of a node.
"""

from __future__ import annotations

from typing import Final

from .units import Sql

__all__ = [
    "FOREVER",
    "LONGEST_WAIT_US",
    "due_at",
    "end_of_lease",
    "fill_clock",
    "has_lapsed",
    "is_due",
    "is_held",
]

FOREVER: Final = (1 << 63) - 1
"""The `lease_us` of a lease that lasts as long as its node is there."""

_SQLITE_CLOCK: Final = "cast((julianday('now') - 2440587.5) * 86400000000 as integer)"
# As a subquery it is asked once in a statement, and not for each row.
_POSTGRESQL_CLOCK: Final = (
    "(select cast(extract(epoch from clock_timestamp()) * 1000000 as bigint))"
)


LONGEST_WAIT_US: Final = 24 * 3600 * 1_000_000
"""So long an item waits at most for its next attempt."""


def fill_clock(text: str, postgresql: str | None = None, *, registered: bool = True) -> Sql:
    """Return the statement in which `$CLOCK` is the database's own clock, in microseconds."""
    return Sql(
        text.replace("$CLOCK", _SQLITE_CLOCK),
        (text if postgresql is None else postgresql).replace("$CLOCK", _POSTGRESQL_CLOCK),
        registered=registered,
    )


def _is_there(row: str) -> str:
    return f"exists (select 1 from nodes where nodes.node_id = {row}.lease_by)"


def is_held(row: str) -> str:
    """Return the condition that somebody works on `row`, as far as its database knows."""
    return f"({row}.lease_us > $CLOCK and ({row}.lease_us < {FOREVER} or {_is_there(row)}))"


def has_lapsed(row: str) -> str:
    """Return the condition that `row` has a lease, and its node is gone."""
    return f"({row}.lease_us <= $CLOCK or ({row}.lease_us = {FOREVER} and not {_is_there(row)}))"


def end_of_lease(row: str) -> str:
    """Return when the lease of `row` is over unless its node beats again; null without one.

    It is 0 where the node is gone.
    """
    return f"""case when {row}.lease_us = {FOREVER} then coalesce((
        select $CLOCK + nodes.until_us - cluster.up_us from nodes cross join cluster
        where nodes.node_id = {row}.lease_by), 0) else {row}.lease_us end"""


def is_due(row: str) -> str:
    """Return the condition that `row` may be worked on by now.

    A first attempt waits for nothing.  One that would have to wait for longer than there is to wait
    says that the clock of the database was set back: its time has come as well.
    """
    return f"""({row}.attempts = 0
        or not {row}.ready_us between $CLOCK + 1 and $CLOCK + {LONGEST_WAIT_US})"""


def due_at(row: str) -> str:
    """Return when `row` may be worked on, 0 where that is so by now."""
    return f"case when {is_due(row)} then 0 else {row}.ready_us end"
