"""Units of work that read of a run what its recording needs beside its row and its steps."""

from __future__ import annotations

from typing import ClassVar, Final

from ..values import frozen
from .once import whole_data
from .run_reads import LongRecentRuns, select_recent
from .run_rows import StoredEvent, status_is
from .run_states import RunMove, RunState, state_after
from .session_state import EMPTY, select_state
from .units import Dialect, ReadUnit, Sql, Statements

__all__ = ["EarlierRuns", "FetchMarks", "FetchStateBefore"]

# Of a member of a team the same names; those of the members stand in the log of the run at the top.
_MARKS: Final = ("RunStarted", "RunContinued", "ModelRequestStarted", "ModelRequestCompleted")
_NAMES: Final = ", ".join(f"'{prefix}{name}'" for name in _MARKS for prefix in ("", "Team"))
MARKS: Final = Sql(
    f"""select e.seq, e.name, {whole_data("e", "r")}
    from events e join runs r on r.run_id = e.run_id
    where r.owner = :owner and e.run_id = :run_id and e.name in ({_NAMES}) order by e.seq"""
)
EARLIER: Final = select_recent(
    state_after(RunMove.COMPLETE), condition="and ended_us <= cast(:before_us as bigint)"
)
_ENDED: Final = status_is(*(state for state in RunState if state.final))
STATE_BEFORE: Final = Sql(
    f"""select {select_state()} from runs where owner = :owner and session_id = :session_id
    and run_no < :run_no and parent_run_id is null and {_ENDED} and ended_us <= :before_us
    order by run_no desc limit 1"""
)


@frozen
class FetchMarks(ReadUnit[tuple[StoredEvent, ...]]):
    """The events of a run and its members that say that one begins, goes on, or asks a model."""

    long: ClassVar[bool] = True

    owner: str
    run_id: str

    def statements(self, dialect: Dialect) -> Statements[tuple[StoredEvent, ...]]:
        """Yield one read along the primary key."""
        return tuple(StoredEvent(*row) for row in (yield MARKS.of(self)))


@frozen(kw_only=True)
class EarlierRuns(LongRecentRuns):
    """Number and output of the last `size` runs that were completed at the time `before_us`.

    What has become of others since makes no difference.
    """

    before_us: int

    def statements(self, dialect: Dialect) -> Statements[tuple[tuple[int, str], ...] | None]:
        """Yield one read, back along the primary key."""
        rows = yield EARLIER.of(self)
        return tuple((number, output) for number, output, _ in reversed(rows))


@frozen
class FetchStateBefore(ReadUnit[str]):
    """The state of a session as JSON, as the last run before `run_no` left it that had ended."""

    owner: str
    session_id: str
    run_no: int
    before_us: int

    def statements(self, dialect: Dialect) -> Statements[str]:
        """Yield one read, back along the primary key."""
        rows = yield STATE_BEFORE.of(self)
        return (rows[0][0] if rows else None) or EMPTY
