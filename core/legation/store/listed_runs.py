"""Lists of the runs of every owner, in the order in which they began.

An index has the runs that ended or wait for a person, by their state and time; those that are
active are few, and have an index of their own.  A list is merged from the heads of these.  What it
is narrowed by beside that is looked for in a window of `WINDOW` runs, so that a page may be short,
and even empty, while there is more behind it.  The runs of an owner who has few are read along the
primary key.

These are reads of columns: no input and no output is read, but the calls that a paused run waits
for, as far as they are short.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from attrs import evolve, fields

from ..values import frozen
from .once import whole_data
from .run_rows import ACTIVE_RUN, OF_A_CLIENT, literal
from .run_states import RunState
from .units import NO_ROWS, Dialect, ReadUnit, Rows, Sql, Statements, text_array

__all__ = [
    "WINDOW",
    "CountListed",
    "FindListed",
    "ListRuns",
    "ListedPage",
    "ListedRun",
    "NarrowedRuns",
    "RunPlace",
]

WINDOW: Final = 10_000
"""How many runs are looked at for one page at most."""

FEW: Final = 2_000
"""The runs of an owner with so many are read without the index."""

_NEAR: Final = 8
"""A narrowed page is looked for among as many runs as it has, then among so many times as many, and
then in the window."""

PAUSE_BYTES: Final = 64 << 10
"""How long the calls that a paused run waits for may be in a list, in bytes."""


@frozen
class RunPlace:
    """A place in the order of runs: behind the run `run_id`, which began at `at_us`."""

    at_us: int
    run_id: str


@frozen
class ListedRun:
    """A run as a list has it; times are microseconds since the epoch.

    Attributes:
        usage: Its tokens as JSON.
        events: How many it has.
        resolved_us: When its last pause was answered; the next three say more of that.
        resolved_events: How many events it had at that pause.
        pause: The data of the event with which it paused, where it waits and that is short.
    """

    run_id: str
    session_id: str
    owner: str
    kind: str
    component_id: str
    status: str
    created_us: int
    started_us: int | None
    ended_us: int | None
    usage: str | None
    reason: str | None
    model: str | None
    incident: str | None
    events: int
    resolved_us: int | None = None
    resolved_by: str | None = None
    resolved_events: int | None = None
    resolution: str | None = None
    pause: str | None = None

    @property
    def place(self) -> RunPlace:
        """Its place in the order."""
        return RunPlace(self.created_us, self.run_id)


_NAMES: Final = tuple(field.name for field in fields(ListedRun) if field.name != "pause")
_ROW: Final = ", ".join(_NAMES)
_PLACE: Final = "created_us, run_id"

# Word for word as the index has it, without which SQLite does not take it.
_ACTIVE_STATES: Final = (RunState.PENDING, RunState.RUNNING)
_INDEXED: Final = f"{OF_A_CLIENT} and status not in ({', '.join(map(literal, _ACTIVE_STATES))})"
_SETTLED: Final = tuple(state for state in RunState if state not in _ACTIVE_STATES)

_WITHIN: Final = "created_us >= :since_us and created_us < :until_us"
_OWNED: Final = "owner in (:owner, :alias) and "
_NARROWED: Final = """(cast(:session_id as text) is null or session_id = :session_id)
    and (cast(:component as text) is null or kind || ':' || component_id = :component)
    and (cast(:error_type as text) is null or reason = :error_type)
    and (cast(:resolved as bigint) = 0 or resolved_us is not null)"""
_ALLOWED: Final = """(cast(:allowed as text) is null
        or kind || ':*' in (select value from json_each(:allowed))
        or kind || ':' || component_id in (select value from json_each(:allowed)))"""
_ANY_ALLOWED: Final = """(cast(:allowed as text[]) is null
        or kind || ':*' = any (cast(:allowed as text[]))
        or kind || ':' || component_id = any (cast(:allowed as text[])))"""
_ORDERS: Final = {True: ("desc", "<"), False: ("asc", ">")}


def _is_wanted(state: RunState) -> str:
    return f"instr(:statuses, ',{state.value},') > 0"


def _heads(columns: str, order: str, behind: str) -> str:
    """Return what merges the first runs of each state, as many as the window has."""
    rest = f"""and {_WITHIN} and ({_PLACE}) {behind} (:at_us, :behind)
        order by created_us {order}, run_id {order} limit :window"""
    active = f"{ACTIVE_RUN} and {OF_A_CLIENT} and instr(:statuses, ',' || status || ',') > 0"
    heads = [
        f"status = {literal(state)} and {_INDEXED} and {_is_wanted(state)}" for state in _SETTLED
    ]
    arms = (
        f"select {columns} from (select {columns} from runs where {head} {rest}) as head{number}"
        for number, head in enumerate((active, *heads))
    )
    return " union all ".join(arms)


def _list_window(order: str, behind: str, whose: str, allowed: str) -> str:
    by = f"order by created_us {order}, run_id {order}"
    return f"""select {_ROW} from (select {_ROW} from ({_heads(_ROW, order, behind)}) as merged
        {by} limit :window) as listed where {whose}{_NARROWED} and {allowed} {by} limit :most"""


def _own(order: str, behind: str, allowed: str) -> str:
    return f"""select {_ROW} from runs where {_OWNED}{OF_A_CLIENT}
        and {_WITHIN} and ({_PLACE}) {behind} (:at_us, :behind)
        and instr(:statuses, ',' || status || ',') > 0 and {_NARROWED} and {allowed}
        order by created_us {order}, run_id {order} limit :most"""


def _end(order: str, behind: str) -> str:
    return f"""select {_PLACE} from ({_heads(_PLACE, order, behind)}) as merged
        order by created_us {order}, run_id {order} limit 1 offset :before_end"""


LISTED: Final = {
    newest: Sql(_list_window(*words, _OWNED, _ALLOWED), _list_window(*words, _OWNED, _ANY_ALLOWED))
    for newest, words in _ORDERS.items()
}
ANY_LISTED: Final = {
    newest: Sql(_list_window(*words, "", _ALLOWED), _list_window(*words, "", _ANY_ALLOWED))
    for newest, words in _ORDERS.items()
}
OWN: Final = {
    newest: Sql(_own(*words, _ALLOWED), _own(*words, _ANY_ALLOWED))
    for newest, words in _ORDERS.items()
}
ANY_END_OF_WINDOW: Final = {newest: Sql(_end(*words)) for newest, words in _ORDERS.items()}
COUNT_FEW: Final = Sql(
    f"""select count(*) from (select 1 as one from runs where {_OWNED}
    (cast(:session_id as text) is null or session_id = :session_id) limit {FEW + 1}) as few"""
)


def _pauses(length: str, among: str) -> str:
    return f"""select r.run_id, case when {length} <= {PAUSE_BYTES}
        then {whole_data("e", "r")} end
    from runs r join events e on e.run_id = r.run_id and e.seq = r.events where r.run_id {among}"""


ANY_PAUSE: Final = Sql(
    _pauses("length(cast(e.data as blob))", "in (select value from json_each(:runs))"),
    _pauses("octet_length(e.data)", "= any (cast(:runs as text[]))"),
)

_FOUND: Final = f"select {_ROW} from runs where {OF_A_CLIENT} and run_id"
ANY_FOUND: Final = Sql(
    f"{_FOUND} in (select value from json_each(:runs))",
    f"{_FOUND} = any (cast(:runs as text[]))",
)
_COUNTED: Final = ", ".join(
    f"""(select count(*) from (select 1 as one from runs where {OF_A_CLIENT} and {head}
        and {_WITHIN} and $WHOSE{_NARROWED} and $ALLOWED
        limit :most) as of_{state.value.lower()})"""
    for state in RunState
    for head in [
        f"{ACTIVE_RUN} and status = {literal(state)}"
        if state in _ACTIVE_STATES
        else f"status = {literal(state)} and {_INDEXED}"
    ]
)


def _count(whose: str) -> Sql:
    """Return the count of runs in each state."""
    text = f"select {_COUNTED}".replace("$WHOSE", whose)
    return Sql(text.replace("$ALLOWED", _ALLOWED), text.replace("$ALLOWED", _ANY_ALLOWED))


COUNT_LISTED: Final = _count(_OWNED)
ANY_COUNT_LISTED: Final = _count("")


@frozen
class ListedPage:
    """A page of runs; `end` is where it ends, None where nothing is behind it."""

    runs: tuple[ListedRun, ...]
    end: RunPlace | None


@frozen
class NarrowedRuns:
    """The choice of runs in a list, beside their states.

    Attributes:
        owner: Theirs; None for every owner.
        alias: The owner that is meant as well, where a user has two; else the same.
        session_id: Theirs; None for every session.
        since_us: They began then or later.
        until_us: They began before.
        component: What they are runs of, as `agent:ID`.
        error_type: Why they failed.
        allowed: What they may be runs of, as `agent:ID`, or `agent:*`; None for everything.
        resolved: Those alone that paused and were answered.
    """

    owner: str | None = None
    alias: str | None = None
    session_id: str | None = None
    since_us: int = 0
    until_us: int = (1 << 63) - 1
    component: str | None = None
    error_type: str | None = None
    allowed: tuple[str, ...] | None = None
    resolved: bool = False

    @property
    def narrowed(self) -> bool:
        """Whether the index alone does not say which runs belong to the list."""
        choices = (self.owner, self.session_id, self.component, self.error_type, self.allowed)
        return self.resolved or any(choice is not None for choice in choices)

    def encode_choice(self, dialect: Dialect) -> Mapping[str, Any]:
        """Return the parameters that are not as the fields are."""
        return {"allowed": text_array(dialect, self.allowed), "resolved": int(self.resolved)}


@frozen
class ListRuns(NarrowedRuns, ReadUnit[ListedPage]):
    """Runs that clients asked for, in one of `statuses`, the newest first unless asked otherwise.

    Attributes:
        size: How many there are on a page.
        place: Where the page begins; None for the beginning.
        pauses: Whether the calls are read that paused ones wait for.
    """

    long: ClassVar[bool] = True

    size: int = 50
    place: RunPlace | None = None
    newest_first: bool = True
    statuses: tuple[str, ...] = tuple(RunState)
    pauses: bool = False

    def statements(self, dialect: Dialect) -> Statements[ListedPage]:
        """Yield the page, and what it takes to know whether there is more."""
        if (yield from self._has_few()):
            rows = yield OWN[self.newest_first].of(self, **self._parameters(dialect))
            end = None
        else:
            rows = yield from self._list(dialect)
            end = yield from self._find_end(rows)
        runs = tuple(ListedRun(*row) for row in rows)
        if len(runs) > self.size:
            runs = runs[: self.size]
            end = runs[-1].place
        if self.pauses:
            runs = tuple((yield from self._fill(dialect, runs)))
        return ListedPage(runs, end)

    def _list(self, dialect: Dialect) -> Statements[Rows]:
        """Return the rows of the page: where most runs belong to it, few are looked at."""
        parameters, rows = self._parameters(dialect), NO_ROWS
        listed = (ANY_LISTED if self.owner is None else LISTED)[self.newest_first]
        for window in self._windows:
            rows = yield listed.of(self, **parameters, window=window)
            if len(rows) > self.size:
                break
        return rows

    @property
    def _windows(self) -> tuple[int, ...]:
        few = self.size + 1
        return (few, _NEAR * few, WINDOW) if self.narrowed else (few,)

    def _parameters(self, dialect: Dialect) -> Mapping[str, Any]:
        beginning = RunPlace((1 << 63) - 1, "") if self.newest_first else RunPlace(-1, "")
        place = self.place or beginning
        return {
            **self.encode_choice(dialect),
            "statuses": f",{','.join(self.statuses)},",
            "at_us": place.at_us,
            "behind": place.run_id,
            "most": self.size + 1,
        }

    def _has_few(self) -> Statements[bool]:
        """Return whether the runs are those of an owner who has few."""
        if self.owner is None:
            return False
        ((count,),) = yield COUNT_FEW.of(self)
        return bool(count <= FEW)

    def _find_end(self, rows: Rows) -> Statements[RunPlace | None]:
        """Return where the window ends in which too few were found; None at the end of all."""
        if not self.narrowed or len(rows) > self.size:
            return None
        parameters = {
            **self._parameters(Dialect.SQLITE),
            "window": WINDOW,
            "before_end": WINDOW - 1,
        }
        found = yield ANY_END_OF_WINDOW[self.newest_first].of(self, **parameters)
        return RunPlace(*found[0]) if found else None

    def _fill(self, dialect: Dialect, runs: tuple[ListedRun, ...]) -> Statements[list[ListedRun]]:
        paused = [run.run_id for run in runs if run.status == RunState.PAUSED]
        if not paused:
            return list(runs)
        found: dict[str, str | None] = dict((yield ANY_PAUSE(runs=text_array(dialect, paused))))
        return [evolve(run, pause=found.get(run.run_id)) for run in runs]


@frozen
class FindListed(ReadUnit[tuple[ListedRun, ...]]):
    """The runs that have these ids, as far as there are any, in no order."""

    long: ClassVar[bool] = True

    runs: tuple[str, ...]

    def statements(self, dialect: Dialect) -> Statements[tuple[ListedRun, ...]]:
        """Yield one read by ids."""
        rows = yield ANY_FOUND(runs=text_array(dialect, self.runs))
        return tuple(ListedRun(*row) for row in rows)


@frozen
class CountListed(NarrowedRuns, ReadUnit[Mapping[str, int]]):
    """The number of runs in each state; at most `most` of each are counted."""

    long: ClassVar[bool] = True

    most: int = 1_000

    def statements(self, dialect: Dialect) -> Statements[Mapping[str, int]]:
        """Yield one read."""
        count = ANY_COUNT_LISTED if self.owner is None else COUNT_LISTED
        (counts,) = yield count.of(self, **self.encode_choice(dialect))
        return dict(zip((state.value for state in RunState), counts, strict=True))
