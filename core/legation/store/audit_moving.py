"""Moving the rows of versions up to 2.11.0 into pages of the trail, some at a time.

Those versions stored an entry as a row of the table `audit`, and nodes for 2.11.0 still do so
beside those of this version; a migration on its way down keeps such rows in `trail_kept`.  A row
that is moved keeps its place, its hash and the one before it, so that the old chain is still
verified, and heads exported before still count.  It goes into a chain that is named after its old
one, in the transaction that deletes it: whenever a node stops, each row is there once.

The last row of an old chain is moved only when it is more than a day old, for a node that writes
the chain would begin it anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Final

from ..values import frozen
from .audit import OLD_COLUMNS, append_pages, old_row
from .audit_entries import OldRow, decode_lines
from .audit_pages import Head, SigningKey, writer_name
from .audit_pruning import name_for_moved
from .units import Dialect, Sql, Statements, Unit

__all__ = ["MOVED_AT_ONCE", "MoveOldRows"]

MOVED_AT_ONCE: Final = 1_000
_DAY_US: Final = 24 * 3_600_000_000

OLDEST: Final = Sql(
    """select writer from audit where at_us < :day_us or exists (
        select 1 from audit as later where later.writer = audit.writer and later.seq > audit.seq)
    order by at_us limit 1"""
)
TAKE: Final = Sql(
    f"""delete from audit where writer = :writer and seq in (
        select seq from audit where writer = :writer and (at_us < :day_us
            or seq < (select max(seq) from audit where writer = :writer))
        order by seq limit :size)
    returning 0, {OLD_COLUMNS}"""
)
TAKE_KEPT: Final = Sql(
    f"""delete from trail_kept where (kept, writer, seq) in (
        select kept, writer, seq from trail_kept order by kept, writer, seq limit :size)
    returning kept, {OLD_COLUMNS}"""
)
LAST: Final = Sql(
    "select last, hash, data from trail where writer = :writer order by last desc limit 1"
)


@frozen
class MoveOldRows(Unit[int]):
    """Move at most `size` rows into pages, those that a migration kept first; how many they were.

    `key` signs the pages: that rows are as they were when they were moved.
    """

    now_us: int
    key: SigningKey | None
    size: int = MOVED_AT_ONCE

    def statements(self, dialect: Dialect) -> Statements[int]:
        """Yield the deletion, and for each piece of a chain its end and the pages behind it."""
        rows = yield TAKE_KEPT(size=self.size)
        if not rows:
            day_us = self.now_us - _DAY_US
            oldest = yield OLDEST(day_us=day_us)
            if not oldest:
                return 0
            rows = yield TAKE(writer=oldest[0][0], day_us=day_us, size=self.size)
        in_order = (old_row(columns) for _, *columns in sorted(rows, key=_place))
        for piece in _pieces(in_order):
            end = yield from self._find_end(piece[0])
            yield from append_pages(dialect, end, piece, self.key)
        return len(rows)

    def _find_end(self, first: OldRow) -> Statements[Head]:
        """Return the end of the chain into which a piece goes that begins with `first`.

        That is the chain that is named after the old one, where it has nothing yet or ends with
        the row before; else one that is named after the piece, too.
        """
        name = writer_name(name_for_moved(first.writer), self.key)
        end, data = yield from _read_end(name)
        last = (decode_lines(data) or (None,))[-1]
        follows = isinstance(last, OldRow) and (last.seq, last.hash) == (
            first.seq - 1,
            first.previous,
        )
        if not (follows or end.seq == 0):
            end, _ = yield from _read_end(f"{name}~{first.hash[:16]}")
        return end


_place: Final = itemgetter(0, 1, 2)  # the table, or its number, then writer and number of the row


def _pieces(rows: Iterable[OldRow]) -> Iterator[list[OldRow]]:
    """Yield the rows in pieces in which each row follows the one before."""
    piece: list[OldRow] = []
    for row in rows:
        last = piece[-1] if piece else None
        if last is not None and (last.writer, last.seq + 1, last.hash) != (
            row.writer,
            row.seq,
            row.previous,
        ):
            yield piece
            piece = []
        piece.append(row)
    if piece:
        yield piece


def _read_end(writer: str) -> Statements[tuple[Head, str]]:
    """Return the end of a chain, and the lines of its last page."""
    rows = yield LAST(writer=writer)
    if not rows:
        return Head(writer, 0, ""), ""
    last, hashed, data = rows[0]
    return Head(writer, last, hashed), data
