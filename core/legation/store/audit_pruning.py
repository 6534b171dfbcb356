"""Pruning the audit trail: old rows go, and what is left is still proven.

What goes is a beginning of a chain.  In the same transaction an entry is appended to the chain of
whoever prunes, the *anchor*: where the other chain was cut, the hash of the last row that went,
and how many went.  So the row that now comes first still follows a row whose hash is known, and a
pruning is itself in the trail: who, when, how much.  Rows that are missing without an anchor are
what they have always been, a broken trail.

An anchor is a row like any other, and grows old.  Before anything is deleted, therefore, each
chain that was cut before is given a new one.
"""

from __future__ import annotations

from typing import ClassVar, Final

from attrs import evolve

from ..values import frozen
from .audit import PRUNED, Anchor, AuditEntry, append_entries
from .units import Dialect, ReadUnit, Sql, Statements, Undo, Unit

__all__ = ["AnchorChain", "ChainSpan", "ChainSpans", "PruneChain"]


@frozen
class ChainSpan:
    """A chain as it stands: its first number and the last one of its rows that are all old.

    `old_to` is one less than `first` where the chain begins with a row that is not.
    """

    writer: str
    first: int
    old_to: int


SPANS: Final = Sql(
    """select writer, min(seq),
    coalesce(min(case when at_us >= :before_us then seq end) - 1, max(seq))
    from audit where writer > :after group by writer order by writer limit :size"""
)
CUT: Final = Sql(
    """select count(*), max(case when seq = :upto then hash end)
    from audit where writer = :writer and seq <= :upto"""
)
FIRST: Final = Sql("select seq, previous from audit where writer = :writer order by seq limit 1")
PRUNE: Final = Sql("delete from audit where writer = :writer and seq <= :upto")


@frozen
class ChainSpans(ReadUnit[tuple[ChainSpan, ...]]):
    """At most `size` chains behind the writer `after`, in the order of writers."""

    long: ClassVar[bool] = True

    before_us: int
    after: str
    size: int

    def statements(self, dialect: Dialect) -> Statements[tuple[ChainSpan, ...]]:
        """Yield one read of all chains."""
        rows = yield SPANS.of(self)
        return tuple(ChainSpan(*row) for row in rows)


def _with_anchor(entry: AuditEntry, anchor: Anchor) -> AuditEntry:
    return evolve(entry, operation=PRUNED, resource=anchor.resource)


@frozen
class PruneChain(Unit[int]):
    """Delete the rows of `writer` up to number `upto`, and anchor what is left; how many went.

    `entry` says who prunes, and when.  Nothing happens where somebody else was faster.
    """

    node: str
    writer: str
    upto: int
    entry: AuditEntry

    def statements(self, dialect: Dialect) -> Statements[int | Undo[int]]:
        """Yield the look at what goes, the deletion, and the anchor."""
        ((count, hashed),) = yield CUT.of(self)
        if hashed is None:
            return Undo(0)
        yield PRUNE.of(self)
        anchor = Anchor(self.writer, self.upto, hashed, count)
        yield from append_entries(dialect, self.node, (_with_anchor(self.entry, anchor),))
        return int(count)


@frozen
class AnchorChain(Unit[None]):
    """Anchor the beginning of a chain that was cut before, lest its anchor grow old."""

    node: str
    writer: str
    entry: AuditEntry

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield the look at the first row, and the anchor."""
        rows = yield FIRST.of(self)
        if rows and rows[0][0] > 1:
            anchor = Anchor(self.writer, rows[0][0] - 1, rows[0][1], 0)
            yield from append_entries(dialect, self.node, (_with_anchor(self.entry, anchor),))
