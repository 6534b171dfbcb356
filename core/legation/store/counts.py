"""The counts of waiting work in a database, for metrics."""

from __future__ import annotations

from typing import Final

from ..values import frozen
from .run_rows import ACTIVE_RUN, INACTIVE_RUN, OF_A_CLIENT, literal
from .run_states import RunState
from .units import Dialect, ReadUnit, Sql, Statements

__all__ = ["MOST_PAUSED", "CountPaused", "CountRuns", "PausedRuns"]

MOST_PAUSED: Final = 10_000
"""So many paused runs are counted at most."""

_OLDEST: Final = 100
"""Among so many paused runs, those that began first, the one is found that waits the longest."""

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


# Those of members wait as well, but with the run of their team.  The condition is that of the index
# `runs_listed`, to the letter.
_PAUSED: Final = f"""from runs where status = {literal(RunState.PAUSED)} and {INACTIVE_RUN}
    and {OF_A_CLIENT}"""
ANY_COUNT_PAUSED: Final = Sql(
    f"select count(*) from (select 1 {_PAUSED} limit {MOST_PAUSED}) as paused"
)
ANY_OLDEST_PAUSED: Final = Sql(
    f"""select min(ended_us) from
    (select ended_us {_PAUSED} order by created_us, run_id limit {_OLDEST}) as paused"""
)


@frozen
class PausedRuns:
    """The runs that wait for a person: how many, and since when the longest of them does."""

    count: int = 0
    since_us: int | None = None


@frozen
class CountPaused(ReadUnit[PausedRuns]):
    """The runs of clients that wait for a person, `MOST_PAUSED` at most."""

    def statements(self, dialect: Dialect) -> Statements[PausedRuns]:
        """Count them; without any nothing else is read."""
        ((count,),) = yield ANY_COUNT_PAUSED()
        if not count:
            return PausedRuns()
        ((since_us,),) = yield ANY_OLDEST_PAUSED()
        return PausedRuns(count, since_us)
