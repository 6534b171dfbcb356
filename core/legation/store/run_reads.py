"""Units of work that read runs and their events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from ..values import frozen
from .leases import fill_clock, is_held
from .once import whole_data, whole_output
from .run_rows import (
    ACTIVE_RUN,
    ASKED_OF,
    COLUMNS,
    EXECUTED_RUN,
    RunRow,
    StoredEvent,
    literal,
    status_is,
)
from .run_states import RunMove, RunState, state_after
from .session_state import fill_state, select_state
from .units import Dialect, ReadUnit, Sql, Statements, text_array
from .usage import count_octets

__all__ = [
    "EVENTS_BYTES",
    "HISTORY_AT_ONCE",
    "HISTORY_BYTES",
    "EventsPage",
    "FetchEvents",
    "FetchRun",
    "FindProgress",
    "LongRecentRuns",
    "PausedRuns",
    "RecentRuns",
    "RunProgress",
    "RunsOfNumbers",
    "SumUsage",
    "estimate_tokens",
    "fit_tokens",
    "select_recent",
]

FETCH: Final = Sql(f"select {COLUMNS} from runs where owner = :owner and run_id = :run_id")
ANY_FETCH: Final = Sql(f"select {COLUMNS} from runs where run_id = :run_id")
HISTORY_BYTES: Final = 4 << 20
"""How much of the runs before it a run is told, in bytes as they are read: the newest of them, and
of those before as many as begin within it."""

HISTORY_AT_ONCE: Final = 256 << 10
"""How much of them is read where other programs wait for it."""


def _recent(length: str, states: Sequence[RunState], condition: str) -> str:
    measured = " + ".join(length.format(column) for column in ("input", whole_output()))
    return f"""with sized as (
        select run_no, sum(bytes) over (order by run_no desc) - bytes as before from (
            select run_no, {measured} as bytes from runs
            where owner = :owner and session_id = :session_id and run_no < :run_no
            and run_no > :after and {status_is(*states)} and parent_run_id is null {condition}
            and output is not null order by run_no desc limit :size) as recent)
    select run_no, {whole_output()}, (select max(before) from sized) >= :most from runs
    where owner = :owner and session_id = :session_id
    and run_no in (select run_no from sized where before < :most) order by run_no desc"""


def select_recent(*states: RunState, condition: str = "") -> Sql:
    """Return what reads the last runs of a session in `states` that meet the `condition`."""
    lengths = ("length(cast({} as blob))", "octet_length({})")
    return Sql(*(_recent(length, states, condition) for length in lengths))


_COMPLETED: Final = state_after(RunMove.COMPLETE)
RECENT: Final = select_recent(_COMPLETED)
RECENT_OR_PAUSED: Final = select_recent(_COMPLETED, RunState.PAUSED)
_LOOKED_AT: Final = 100
PAUSED: Final = Sql(
    f"""select run_id, events, input from (
        select run_no, run_id, events, input, status from runs
        where owner = :owner and session_id = :session_id and parent_run_id is null
        order by run_no desc limit {_LOOKED_AT}) as recent
    where {status_is(RunState.PAUSED)} order by run_no desc limit 2"""
)
_NUMBERED: Final = f"""select run_no, {whole_output()} from runs
    where owner = :owner and session_id = :session_id and output is not null and run_no"""
NUMBERED: Final = Sql(
    f"{_NUMBERED} in (select value from json_each(:numbers)) order by run_no",
    f"{_NUMBERED} = any (cast(:numbers as bigint[])) order by run_no",
)
# Of a run that was stored before the last three were counted there is nothing to add.
_COUNTED: Final = (
    *("input_tokens", "output_tokens"),
    *("reasoning_tokens", "cache_read_tokens", "cache_write_tokens"),
)
# The cost of a run is that of its members as well.
_COST: Final = "sum(case when parent_run_id is null then {} end)"
_CONSUMED: Final = """select {}, {}
    from runs where owner = :owner and session_id = :session_id and usage is not null"""


def _sums(template: str, cost: str) -> str:
    return _CONSUMED.format(", ".join(template.format(name) for name in _COUNTED), cost)


CONSUMED: Final = Sql(
    _sums(
        "coalesce(sum(json_extract(usage, '$.{}')), 0)",
        _COST.format("json_extract(usage, '$.cost_nano')"),
    ),
    _sums(
        "cast(coalesce(sum(cast(cast(usage as json) ->> '{}' as bigint)), 0) as bigint)",
        f"cast({_COST} as bigint)".format("cast(cast(usage as json) ->> 'cost_nano' as bigint)"),
    ),
)
EVENTS_BYTES: Final = 1 << 20
"""How much of the events of a run is read at once, in bytes; one that is longer comes alone."""


def _events(length: str) -> str:
    """Return what reads events as far as they are short enough together; they have no gap."""
    marked = f"(select {length.format(whole_data('n', 'm'))} from runs m where m.run_id = n.run_id)"
    return f"""with recursive page (seq, bytes) as (
        select cast(:after as bigint), cast(0 as bigint)
        union all
        select n.seq, page.bytes
            + case when substr(n.data, 1, 1) = ' ' then {marked} else {length.format("n.data")} end
        from page join events n on n.run_id = :run_id and n.seq = page.seq + 1
        where page.bytes < :most and page.seq < cast(:after as bigint) + :size)
    select e.seq, e.name, {whole_data("e", "r")},
        case when e.seq = r.events then {select_state("r")} end
    from events e join runs r on r.run_id = e.run_id
    where r.owner = :owner and e.run_id = :run_id and e.seq > :after
    and e.seq <= (select max(seq) from page) order by e.seq"""


EVENTS: Final = Sql(_events("length(cast({} as blob))"), _events("octet_length({})"))
# A run that waits is held up by the one of its session that is executed; where there is none, it
# waits for a place, and a living node that hosts it takes it up when there is one.
_RUNNING, _PENDING = literal(RunState.RUNNING), literal(RunState.PENDING)
_HELD: Final = f"""case status
        when {_RUNNING} then case when {is_held("r")} then 1 else 0 end
        when {_PENDING} then coalesce((
            select max(case when {is_held("a")} then 1 else 0 end) from runs a
            where a.owner = r.owner and a.session_id = r.session_id
            and a.{ACTIVE_RUN} and a.{EXECUTED_RUN}),
            case when exists ($HOSTING) then 1 else 0 end) end"""
_HOSTING: Final = (
    f"select 1 from nodes, json_each(nodes.hosts) as hosted where hosted.value = {ASKED_OF}",
    f"select 1 from nodes where cast(nodes.hosts as jsonb) @> to_jsonb({ASKED_OF})",
)


def _progress(text: str, postgresql: str | None = None) -> Sql:
    """Return what asks how far runs are; `$HOSTING` finds the nodes that may take up one."""
    sqlite, on_postgresql = _HOSTING
    postgresql = (text if postgresql is None else postgresql).replace("$HOSTING", on_postgresql)
    return fill_clock(text.replace("$HOSTING", sqlite), postgresql)


PROGRESS: Final = _progress(
    f"""select status, events, {_HELD}, lease_by
    from runs r where owner = :owner and run_id = :run_id"""
)
_PROGRESS_OF_RUNS: Final = f"select run_id, status, events, {_HELD} from runs r where run_id"
PROGRESS_OF_RUNS: Final = _progress(
    f"{_PROGRESS_OF_RUNS} in (select value from json_each(:runs))",
    f"{_PROGRESS_OF_RUNS} = any (cast(:runs as text[]))",
)


_BYTES_A_TOKEN: Final = 4


def estimate_tokens(output: str) -> int:
    """Return about how many tokens the messages of a run have: one for each 4 bytes of UTF-8.

    `output` is that of the run, as JSON.
    """
    size = 0
    for message in json.loads(output).get("messages", ()):
        calls = message.get("tool_calls", ())
        texts = [message["content"], *(call["function"]["arguments"] for call in calls)]
        size += count_octets(texts)
    return -(-size // _BYTES_A_TOKEN)


def fit_tokens(runs: Sequence[tuple[int, str]], tokens: int) -> tuple[tuple[int, str], ...]:
    """Return the newest of `runs` whose messages have no more than `tokens` together.

    They are numbers and outputs, in their order.  One that does not fit is left out with all
    before it.
    """
    left, first = tokens, len(runs)
    while first and (left := left - estimate_tokens(runs[first - 1][1])) >= 0:
        first -= 1
    return tuple(runs[first:])


@frozen
class FetchRun(ReadUnit[RunRow | None]):
    """The run with this id, or None; `any_owner` is for callers who see all owners."""

    run_id: str
    owner: str | None
    any_owner: bool = False

    def statements(self, dialect: Dialect) -> Statements[RunRow | None]:
        """Yield one point read."""
        if self.any_owner:
            rows = yield ANY_FETCH.of(self)
        else:
            rows = yield FETCH.of(self)
        return RunRow(*rows[0]) if rows else None


@frozen
class RecentRuns(ReadUnit[tuple[tuple[int, str], ...] | None]):
    """Number and output, as JSON, of the last `size` runs that were completed before `run_no`.

    In the order they were asked for; without those of members of teams.  With `paused`, those that
    wait for a person are among them.  With `tokens`, they are those whose messages fit into so
    many, from the newest one back.  None where they are longer than is read where others wait:
    then `LongRecentRuns` reads them.

    Attributes:
        after: They come after the run of this number.
    """

    most: ClassVar[int] = HISTORY_AT_ONCE

    owner: str
    session_id: str
    run_no: int
    size: int
    paused: bool = False
    after: int = 0
    tokens: int | None = None

    def statements(self, dialect: Dialect) -> Statements[tuple[tuple[int, str], ...] | None]:
        """Yield one read, back along the primary key."""
        rows = yield (RECENT_OR_PAUSED if self.paused else RECENT).of(self)
        if rows and rows[0][2] and not self.long:
            return None
        runs = tuple((number, output) for number, output, _ in reversed(rows))
        return runs if self.tokens is None else fit_tokens(runs, self.tokens)


@frozen
class LongRecentRuns(RecentRuns):
    """The same, of up to `HISTORY_BYTES`; what is older is left out."""

    long: ClassVar[bool] = True
    most: ClassVar[int] = HISTORY_BYTES


@frozen
class RunsOfNumbers(ReadUnit[tuple[tuple[int, str], ...]]):
    """Number and output of the runs of a session that have one of `numbers`, in their order."""

    long: ClassVar[bool] = True

    owner: str
    session_id: str
    numbers: tuple[int, ...]

    def statements(self, dialect: Dialect) -> Statements[tuple[tuple[int, str], ...]]:
        """Yield one read."""
        numbers = list(self.numbers)
        listed = json.dumps(numbers) if dialect is Dialect.SQLITE else numbers
        rows = yield NUMBERED.of(self, numbers=listed)
        return tuple((number, output) for number, output in rows)


@frozen
class PausedRuns(ReadUnit[tuple[tuple[str, int, str], ...]]):
    """The last two runs of a session that wait for a person: ids, numbers of events, inputs.

    They are looked for among the last 100 of it.
    """

    owner: str
    session_id: str

    def statements(self, dialect: Dialect) -> Statements[tuple[tuple[str, int, str], ...]]:
        """Yield one read, back along the primary key."""
        rows = yield PAUSED.of(self)
        return tuple((run_id, events, asked) for run_id, events, asked in rows)


@frozen
class SumUsage(ReadUnit[Mapping[str, int]]):
    """The tokens that the runs of a session took in and gave out, by the names of metrics.

    `cost_nano` is what they cost, in nano-USD; it is absent where no price was known.
    """

    long: ClassVar[bool] = True

    owner: str
    session_id: str

    def statements(self, dialect: Dialect) -> Statements[Mapping[str, int]]:
        """Yield one read."""
        (sums,) = yield CONSUMED.of(self)
        *counts, cost = sums
        known = dict(zip(_COUNTED, counts, strict=True))
        return known if cost is None else {**known, "cost_nano": cost}


@frozen
class EventsPage:
    """Events of a run in order, and where the run stands; `status` None: no such run.

    `held`: somebody has the lease of what the run waits for, itself or the active run of its
    session, and lives; or it waits for a place, and a node lives that hosts what it was asked of.
    `holder` is the node that executes the run, or did last.
    """

    events: tuple[StoredEvent, ...]
    status: str | None
    last: int
    held: bool = False
    holder: str | None = None


@frozen
class FetchEvents(ReadUnit[EventsPage]):
    """The events of a run behind `after`: at most `size`, and about `EVENTS_BYTES`."""

    most: ClassVar[int] = EVENTS_BYTES

    owner: str
    run_id: str
    after: int
    size: int = 256

    def statements(self, dialect: Dialect) -> Statements[EventsPage]:
        """Yield where the run stands, then the events."""
        progress = yield PROGRESS.of(self)
        if not progress:
            return EventsPage((), None, 0)
        rows = yield EVENTS.of(self)
        status, last, held_now, holder = progress[0]
        events = tuple(
            StoredEvent(seq, name, data if state is None else fill_state(data, state))
            for seq, name, data, state in rows
        )
        return EventsPage(events, status, last, bool(held_now), holder)


@frozen
class RunProgress:
    """The progress of a run: its status, the number of its last event, and as `EventsPage`."""

    status: str
    last: int
    held: bool


@frozen
class FindProgress(ReadUnit[Mapping[str, RunProgress]]):
    """The progress of each of `runs`, by its id; without those that are not there.

    They are anybody's: it is for whoever was let in to follow them.
    """

    runs: tuple[str, ...]

    def statements(self, dialect: Dialect) -> Statements[Mapping[str, RunProgress]]:
        """Yield one read."""
        rows = yield PROGRESS_OF_RUNS(runs=text_array(dialect, self.runs))
        return {
            run_id: RunProgress(status, last, bool(held)) for run_id, status, last, held in rows
        }
