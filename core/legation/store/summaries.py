"""Units of work on the summaries of sessions.

A summary covers the runs of its session up to the number in its key.  It is stored under the lock
of the session, and only where the summary that it goes on from is still the newest, and the runs
that it tells of are all there: so of two that are made at once one is stored, and none has in it
what was deleted meanwhile.
"""

from __future__ import annotations

import json
from typing import Final

from ..values import frozen
from .sessions import LOCK
from .units import Dialect, ReadUnit, Sql, Statements, Undo, Unit
from .usage import ADD_BYTES, add_usage, count_octets, keeper_of

__all__ = ["FetchSummary", "StoreSummary", "Summary", "SummaryOfNumber"]

_COLUMNS: Final = "run_no, summary, run_id, model, usage, at_us"
_OF_SESSION: Final = "from session_summaries where owner = :owner and session_id = :session_id"
NEWEST: Final = Sql(
    f"select {_COLUMNS} {_OF_SESSION} and run_no < :before order by run_no desc limit 1"
)
NUMBERED: Final = Sql(f"select {_COLUMNS} {_OF_SESSION} and run_no = :run_no")


@frozen
class Summary:
    """A summary of a session.

    Attributes:
        run_no: The number of the last run that it covers.
        text: For the model.
        run_id: The run that made it.
        model: The id of the model that wrote it; empty where a person did.
        usage: What that cost, as JSON.
    """

    run_no: int
    text: str
    run_id: str
    model: str
    usage: str | None
    at_us: int


@frozen
class FetchSummary(ReadUnit[Summary | None]):
    """The newest summary of a session that covers no run from the number `before` on, or None."""

    owner: str
    session_id: str
    before: int

    def statements(self, dialect: Dialect) -> Statements[Summary | None]:
        """Yield one read, back along the primary key."""
        rows = yield NEWEST.of(self)
        return Summary(*rows[0]) if rows else None


@frozen
class SummaryOfNumber(ReadUnit[Summary | None]):
    """The summary of a session up to the run of this number, or None where it is gone."""

    owner: str
    session_id: str
    run_no: int

    def statements(self, dialect: Dialect) -> Statements[Summary | None]:
        """Yield one point read."""
        rows = yield NUMBERED.of(self)
        return Summary(*rows[0]) if rows else None


_PRESENT: Final = """select count(*) from runs
    where owner = :owner and session_id = :session_id and run_no"""
PRESENT: Final = Sql(
    f"{_PRESENT} in (select value from json_each(:numbers))",
    f"{_PRESENT} = any (cast(:numbers as bigint[]))",
)
INSERT: Final = Sql(
    f"""insert into session_summaries (owner, session_id, {_COLUMNS})
    values (:owner, :session_id, :run_no, :text, :run_id, :model, :usage, :at_us)"""
)


@frozen
class StoreSummary(Unit[Summary | None]):
    """Store a summary of a session; return the one that counts from now on.

    That is another one where that was stored first, and None where a run or a summary that it goes
    on from was deleted meanwhile.

    Attributes:
        before: The number of the run that needs it.
        base: That of the last run that the summary covers which this one goes on from; 0: none.
        runs: The numbers of the runs that it tells of beside that.
        subject: Whose share the bytes of a session of nobody take.
    """

    owner: str
    session_id: str
    summary: Summary
    before: int
    base: int
    runs: tuple[int, ...]
    subject: str | None = None

    def statements(self, dialect: Dialect) -> Statements[Summary | Undo[Summary | None]]:
        """Yield the session's lock, two looks, the insert, and the count of what it stores."""
        summary = self.summary
        if not (yield LOCK.of(self, kind=None)):
            return Undo(None)
        rows = yield NEWEST.of(self)
        newest = Summary(*rows[0]) if rows else None
        if newest is not None and newest.run_no > self.base:
            return Undo(newest)
        numbers = json.dumps(self.runs) if dialect is Dialect.SQLITE else list(self.runs)
        ((present,),) = yield PRESENT.of(self, numbers=numbers)
        if present < len(self.runs) or (newest.run_no if newest else 0) != self.base:
            return Undo(None)
        yield INSERT.of(
            self,
            run_no=summary.run_no,
            text=summary.text,
            run_id=summary.run_id,
            model=summary.model,
            usage=summary.usage,
            at_us=summary.at_us,
        )
        size, keeper = count_octets((summary.text,)), keeper_of(self.owner, self.subject)
        yield ADD_BYTES.of(self, bytes=size)
        yield from add_usage(keeper, size, keeper, 0, summary.at_us)
        return summary
