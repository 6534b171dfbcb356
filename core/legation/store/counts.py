"""The counts of waiting work in a database, for metrics."""

from __future__ import annotations

from typing import Final

from ..values import frozen
from .run_rows import ACTIVE_RUN
from .units import Dialect, ReadUnit, Sql, Statements

__all__ = ["CountRuns"]

# What is over is not counted: a table of millions would be read for it.  The condition is that of
# the indexes `runs_active` and `runs_leased`, to the letter.
ANY_COUNT_RUNS: Final = Sql(
    f"""select status, count(*) from runs where {ACTIVE_RUN}
    group by status order by status"""
)


@frozen
class CountRuns(ReadUnit[tuple[tuple[str, int], ...]]):
    """The runs that wait or go on, by their state."""

    def statements(self, dialect: Dialect) -> Statements[tuple[tuple[str, int], ...]]:
        """Count them."""
        rows = yield ANY_COUNT_RUNS()
        return tuple((status, count) for status, count in rows)
