"""The heads of the audit trail: the last page of each chain, chain after chain."""

from __future__ import annotations

from typing import ClassVar

from ..values import frozen
from .audit_pages import Head
from .units import Dialect, ReadUnit, Sql, Statements

__all__ = ["ChainHead", "ReadHeads"]

# A seek of the key for each chain, however many pages there are: the next greater writer, again
# and again.
HEADS = Sql(
    """with recursive chains (writer, number) as (
        select (select min(writer) from trail where writer > :after), 1
        union all
        select (select min(trail.writer) from trail where trail.writer > chains.writer), number + 1
        from chains where chains.writer is not null and number < :size)
    select trail.writer, trail.last, trail.hash, trail.to_us
    from chains join trail on trail.writer = chains.writer
        and trail.last = (
            select max(newest.last) from trail as newest where newest.writer = chains.writer)
    order by chains.number"""
)


@frozen
class ChainHead:
    """The last page of a chain: its place and its hash, and the time of its last entry."""

    head: Head
    at_us: int


@frozen
class ReadHeads(ReadUnit[tuple[ChainHead, ...]]):
    """The heads of at most `size` chains behind the writer `after`, in the order of writers."""

    long: ClassVar[bool] = True

    after: str
    size: int

    def statements(self, dialect: Dialect) -> Statements[tuple[ChainHead, ...]]:
        """Yield one read along the key."""
        rows = yield HEADS.of(self)
        return tuple(ChainHead(Head(*place), at_us) for *place, at_us in rows)
