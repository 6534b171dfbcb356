"""Parts of the audit trail by their time: of each chain, the pages from one to another."""

from __future__ import annotations

from typing import ClassVar, Final

from ..values import frozen
from .audit_pages import SPAN_US, Head
from .units import Dialect, ReadUnit, Sql, Statements

__all__ = ["ChainPart", "ReadParts"]

PARTS: Final = Sql(
    """select writer, min(last), max(last) from trail
    where from_us >= :from_us and from_us < :until_us and to_us >= :since_us and writer > :after
    group by writer order by writer limit :size"""
)


@frozen
class ChainPart:
    """A part of a chain: its pages from the one that ends with `first` to that with `last`.

    What lies between two pages of the time is of the part as well, whatever its own time is.
    """

    writer: str
    first: int
    last: int

    @property
    def start(self) -> Head:
        """The place before the first page."""
        return Head(self.writer, self.first - 1, "")

    def holds(self, page: Head) -> bool:
        """Return whether the page that ends so is of the part."""
        return page.writer == self.writer and self.first <= page.seq <= self.last


@frozen
class ReadParts(ReadUnit[tuple[ChainPart, ...]]):
    """The parts of at most `size` chains behind the writer `after`, in the order of writers.

    A part has the pages with an entry of the time from `since_us`, before `until_us`.
    """

    long: ClassVar[bool] = True

    since_us: int
    until_us: int
    after: str
    size: int

    def statements(self, dialect: Dialect) -> Statements[tuple[ChainPart, ...]]:
        """Yield one read along the times of pages."""
        rows = yield PARTS.of(self, from_us=self.since_us - SPAN_US)
        return tuple(ChainPart(*row) for row in rows)
