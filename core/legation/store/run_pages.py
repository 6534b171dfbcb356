"""Pages of the runs of a session, bounded in rows and in bytes, and rendered where they are read.

A run may hold megabytes.  So the numbers of the runs of a list are found first, then how long each
is, and then they are read, as many at a time as are short enough together; at least one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Generic, TypeVar

from attrs import evolve, field

from ..values import frozen
from .once import whole_output
from .run_rows import COLUMNS, RunRow
from .units import Dialect, ReadUnit, Sql, Statements

__all__ = ["PAGE_BYTES", "ReadRuns", "RunsPage", "count_fitting"]

R = TypeVar("R")

PAGE_BYTES: Final = 1 << 20
"""How much of stored runs or sessions is read at once, in bytes; one that is longer comes alone."""

_SIZED: Final = 32
"""How many runs are measured at once: SQLite has to read them for that."""

_LISTED: Final = """select run_no from runs where owner = :owner and session_id = :session_id
    and run_no > :after
    and (cast(:status as text) is null or status = :status)
    and (cast(:created_from_us as bigint) is null or created_us >= :created_from_us)
    and (cast(:created_to_us as bigint) is null or created_us <= :created_to_us)
    and (cast(:kind as text) is null or kind = :kind)
    and (cast(:component_id as text) is null or component_id = :component_id)
    and (:members = 1 or parent_run_id is null)"""
FIND: Final = Sql(f"{_LISTED} order by run_no limit :most offset :start")
FIND_NEWEST: Final = Sql(f"{_LISTED} order by run_no desc limit :most offset :start")

_OF_SESSION: Final = "owner = :owner and session_id = :session_id"
_NUMBERED: Final = f"{_OF_SESSION} and run_no in (select value from json_each(:numbers))"
_ANY_NUMBERED: Final = f"{_OF_SESSION} and run_no = any (cast(:numbers as bigint[]))"


def _measure(length: str) -> str:
    """Return the bytes of a run: of its input, its output, and the state that it left."""
    output = length.format(whole_output())
    return f"""{length.format("input")} + coalesce({output}, 0) + coalesce(
        (select {length.format("document")} from session_states as kept
        where kept.owner = runs.owner and kept.session_id = runs.session_id
        and kept.digest = runs.state), 0)"""


_MEASURED: Final = "select run_no, {} from runs where {} order by run_no"
MEASURE: Final = Sql(
    _MEASURED.format(_measure("length(cast({} as blob))"), _NUMBERED),
    _MEASURED.format(_measure("octet_length({})"), _ANY_NUMBERED),
)
READ: Final = Sql(
    f"select {COLUMNS} from runs where {_NUMBERED} order by run_no",
    f"select {COLUMNS} from runs where {_ANY_NUMBERED} order by run_no",
)


def count_fitting(sizes: Sequence[int], most: int = PAGE_BYTES) -> int:
    """Return how many of the first `sizes` have `most` bytes together; at least one."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > most:
            return max(count, 1)
    return len(sizes)


@frozen
class RunsPage(Generic[R]):
    """A page of runs as they were rendered.

    Attributes:
        items: In the order they were asked for.
        following: Reads what is left of the list; None at its end.
        last: The number of the last run of the list, 0 where it is empty.
        more: Whether the session has runs behind the list, which is as long as was asked for.
    """

    items: tuple[R, ...]
    following: ReadRuns[R] | None
    last: int = 0
    more: bool = False


@frozen
class ReadRuns(ReadUnit[RunsPage[R]], Generic[R]):
    """The runs of a session in the order they were asked for, each as `render` gives it.

    Attributes:
        size: How many runs the list has at most.
        start: How many are passed over before.
        after: The number behind which the list begins.
        newest: It is the last `size` runs of the session.
        members: With those that members of teams did for the runs of others.
        numbers: Of the runs that are left to be read, once that is known.
        sizes: Of the first of these, in bytes.
    """

    long: ClassVar[bool] = True

    owner: str
    session_id: str
    render: Callable[[RunRow], R] = field(repr=False)
    status: str | None = None
    created_from_us: int | None = None
    created_to_us: int | None = None
    kind: str | None = None
    component_id: str | None = None
    size: int = 1000
    start: int = 0
    after: int = 0
    newest: bool = False
    members: bool = False
    numbers: tuple[int, ...] | None = None
    sizes: tuple[int, ...] = ()

    def statements(self, dialect: Dialect) -> Statements[RunsPage[R]]:
        """Yield what finds the runs, at first; what measures the next of them; what reads these."""
        numbers, more = self.numbers, False
        if numbers is None:
            find = FIND_NEWEST if self.newest else FIND
            found = yield find.of(self, members=int(self.members), most=self.size + 1)
            more = len(found) > self.size
            numbers = tuple(sorted(number for (number,) in found[: self.size]))
        if not numbers:
            return RunsPage((), None)
        last, sizes = numbers[-1], self.sizes
        if not sizes:
            measured = yield MEASURE.of(self, numbers=_encode_numbers(dialect, numbers[:_SIZED]))
            numbers = (*(number for number, _ in measured), *numbers[_SIZED:])
            sizes = tuple(size for _, size in measured)
        count = count_fitting(sizes)
        rows = yield READ.of(self, numbers=_encode_numbers(dialect, numbers[:count]))
        left = numbers[count:]
        following = evolve(self, numbers=left, sizes=sizes[count:]) if left else None
        return RunsPage(tuple(self.render(RunRow(*row)) for row in rows), following, last, more)


def _encode_numbers(dialect: Dialect, numbers: tuple[int, ...]) -> str | list[int]:
    return json.dumps(numbers) if dialect is Dialect.SQLITE else list(numbers)
