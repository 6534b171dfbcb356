"""Runs that wait and no living node hosts: their agent, or its version, is gone."""

from __future__ import annotations

from typing import Final

from ..values import frozen
from .run_rows import ACTIVE_RUN, ASKED_OF, OF_A_CLIENT, WAITING_RUN
from .units import Dialect, ReadUnit, Sql, Statements, text_array

__all__ = ["FindUnhosted", "Unhosted"]


def _find(among: str, oldest: str) -> str:
    """Return the search; of a session the run counts that waits first, as it holds up the rest."""
    return f"""select {ASKED_OF} as asked_of, count(*), min(created_us), {oldest} from runs r
    where {ACTIVE_RUN} and {WAITING_RUN} and created_us < :before_us and not ({ASKED_OF} {among})
    and run_no = (select min(a.run_no) from runs a where a.owner = r.owner
        and a.session_id = r.session_id and a.{ACTIVE_RUN} and a.{OF_A_CLIENT})
    group by asked_of order by min(created_us), asked_of limit :size"""


ANY_UNHOSTED: Final = Sql(
    # SQLite takes a column that stands alone from the row of `min`.
    _find("in (select value from json_each(:hosted))", "run_id"),
    _find("= any (:hosted)", "(array_agg(run_id order by created_us, run_id))[1]"),
)


@frozen
class Unhosted:
    """Runs that wait for what nobody hosts.

    Attributes:
        component: The kind and the id of an agent or a team, with the version if there is one:
            `agent:ID@VERSION`.
        runs: How many sessions wait for it.
        oldest_us: When the oldest of the runs was asked for.
        run_id: The id of that one, by which it can be cancelled.
    """

    component: str
    runs: int
    oldest_us: int
    run_id: str


@frozen
class FindUnhosted(ReadUnit[tuple[Unhosted, ...]]):
    """Runs that wait since `before_us` for none of `hosted`, by what they were asked of."""

    hosted: tuple[str, ...]
    before_us: int
    size: int = 20

    def statements(self, dialect: Dialect) -> Statements[tuple[Unhosted, ...]]:
        """Yield one read."""
        rows = yield ANY_UNHOSTED.of(self, hosted=text_array(dialect, self.hosted))
        return tuple(Unhosted(*row) for row in rows)
