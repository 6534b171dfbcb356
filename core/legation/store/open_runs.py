"""Pages of the runs of every owner that are not over, with their steps: to look at all of them.

A page is bounded in rows and in bytes, by what the inputs and the outcomes of steps have; a run
that is longer comes alone.  What is active and what is paused have an index each, so the former
come first, in the order of their sessions, and then the latter, in the order of time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from attrs import field, fields

from ..values import frozen
from .run_pages import count_fitting
from .run_rows import ACTIVE_RUN, ASKED_OF, INACTIVE_RUN, OF_A_CLIENT, RunRow, literal
from .run_states import RunState
from .steps import Step
from .units import Dialect, ReadUnit, Rows, Sql, Statements, text_array

__all__ = ["OpenPage", "OpenPlace", "OpenRun", "ReadOpenRuns"]

PAGE_BYTES: Final = 4 << 20

_UNREAD: Final = ("output", "state")
_COLUMNS: Final = ", ".join(
    "null" if column.name in _UNREAD else column.name for column in fields(RunRow)
)


def _measure(length: str) -> str:
    """Return the bytes of a run: of its input, and of the outcomes of its steps."""
    return f"""{length.format("input")} + coalesce((select sum(coalesce(
        {length.format("outcome")}, 0)) from steps where steps.run_id = runs.run_id), 0)"""


def _find(length: str, head: str, order: str, behind: str) -> str:
    return f"""select run_id, {order}, {_measure(length)} from runs
        where {head} and {OF_A_CLIENT} and ({order}) > ({behind}) order by {order} limit :size"""


_LENGTHS: Final = ("length(cast({} as blob))", "octet_length({})")
_ACTIVE: Final = (
    ACTIVE_RUN,
    "owner, session_id, run_no",
    ":owner, :session_id, cast(:number as bigint)",
)
_PAUSED: Final = (
    f"status = {literal(RunState.PAUSED)} and {INACTIVE_RUN}",
    "created_us, run_id",
    "cast(:number as bigint), :run_id",
)
ANY_ACTIVE: Final = Sql(*(_find(length, *_ACTIVE) for length in _LENGTHS))
ANY_PAUSED: Final = Sql(*(_find(length, *_PAUSED) for length in _LENGTHS))

_OPEN: Final = f"select {_COLUMNS}, {ASKED_OF} from runs where run_id"
_STEPS: Final = """select run_id, place, kind, asked, begun_us, ended_us, outcome, attempt
    from steps where run_id"""
_AMONG: Final = ("in (select value from json_each(:runs))", "= any (cast(:runs as text[]))")
ANY_OPEN: Final = Sql(*(f"{_OPEN} {among}" for among in _AMONG))
ANY_STEPS: Final = Sql(*(f"{_STEPS} {among}" for among in _AMONG))


@frozen
class OpenPlace:
    """A place in the order of the open runs: behind one that is active, or that is paused."""

    owner: str = ""
    session_id: str = ""
    number: int = -1
    run_id: str = ""
    paused: bool = False


@frozen
class OpenRun:
    """A run that is not over: its row without its output, and its steps, in no order.

    `asked_of` is what it was asked of, as those who host it say so (`ASKED_OF`).
    """

    row: RunRow
    asked_of: str
    steps: tuple[Step, ...] = ()


@frozen
class OpenPage:
    """A page of open runs; `following` is where the next one begins, None at the end of all."""

    runs: tuple[OpenRun, ...]
    following: OpenPlace | None


@frozen
class ReadOpenRuns(ReadUnit[OpenPage]):
    """The open runs behind `place`, at most `size`."""

    long: ClassVar[bool] = True

    place: OpenPlace = field(factory=OpenPlace)
    size: int = 200
    most_bytes: int = PAGE_BYTES

    def statements(self, dialect: Dialect) -> Statements[OpenPage]:
        """Yield the search, and two reads by ids."""
        place, search = self.place, ANY_PAUSED if self.place.paused else ANY_ACTIVE
        found = yield search.of(place, size=self.size)
        taken = found[: count_fitting([row[-1] for row in found], self.most_bytes)]
        following = self._find_following(found, taken)
        if not taken:
            return OpenPage((), following)
        ids = [row[0] for row in taken]
        runs = text_array(dialect, ids)
        stored = {run[0]: run[1:] for run in map(_read, (yield ANY_OPEN(runs=runs)))}
        steps: Mapping[str, list[Step]] = {run_id: [] for run_id in ids}
        for run_id, *step in (yield ANY_STEPS(runs=runs)):
            steps[run_id].append(Step(*step))
        read = (OpenRun(*stored[run_id], tuple(steps[run_id])) for run_id in ids)
        return OpenPage(tuple(read), following)

    def _find_following(self, found: Rows, taken: Rows) -> OpenPlace | None:
        """Return where the next page begins: behind the last run that is taken, if any is left."""
        if len(taken) == len(found) < self.size:
            return None if self.place.paused else OpenPlace(paused=True)
        run_id, *order, _ = taken[-1]
        if self.place.paused:
            return OpenPlace(number=order[0], run_id=run_id, paused=True)
        return OpenPlace(*order)


def _read(columns: tuple[Any, ...]) -> tuple[str, RunRow, str]:
    """Return the id of a run, its row, and what it was asked of."""
    row = RunRow(*columns[:-1])
    return row.run_id, row, columns[-1]
