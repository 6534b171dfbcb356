"""The rows of runs and of their events, as every unit of work on them shares them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

from attrs import evolve, field, fields

from ..values import frozen
from .once import shorten, whole_output
from .run_states import RunMove, RunState, state_after, states_before
from .session_state import RETURNED_STATE, fill_state, select_state
from .units import Dialect, Numbered, Rows, Sql, Statement

__all__ = [
    "ACTIVE_RUN",
    "ASKED_OF",
    "CLAIMED",
    "CLAIMED_MARK",
    "COLUMNS",
    "DAY_US",
    "EXECUTED",
    "EXECUTED_RUN",
    "INACTIVE_RUN",
    "LOCK_SESSION",
    "NEW_VERSION",
    "NEXT_VERSION",
    "OF_A_CLIENT",
    "RECORDED_MARK",
    "SESSION",
    "SESSION_BY_ID",
    "SINCE_CLAIM",
    "UNTOUCHED",
    "WAITING_RUN",
    "ClaimedRun",
    "RunLease",
    "RunOrder",
    "RunRow",
    "StoredEvent",
    "insert_events",
    "literal",
    "make_claimed_run",
    "order_columns",
    "shorten_events",
    "status_is",
    "to_claimed_run",
]


DAY_US: Final = 86_400_000_000
"""The length of a day, by which tokens are counted, in microseconds."""


@frozen
class RunLease:
    """The right to execute a run: who holds it, and which try this is."""

    node: str
    attempt: int


@frozen
class RunOrder:
    """A run as it was ordered: whose, in which session, of which component, with which input."""

    owner: str
    session_id: str
    run_id: str
    kind: str
    component_id: str
    input: str


order_columns: Final = attrgetter(*(field.name for field in fields(RunOrder)))


@frozen
class ClaimedRun(RunOrder):
    """A run that this node is to execute; its lease was written by the unit that claimed it.

    `state` is the JSON of the session's state as it stood then; `events` is how many events the run
    had, which are none unless it goes on after a pause or a crash.  `tries` is how often it was
    claimed since it last came further.  `subject` is whose share it is counted against, None for
    the owner's; `used` is how many tokens that had used of the day, `used_nano` what they cost.
    """

    created_us: int
    attempt: int
    run_no: int = 1
    events: int = 0
    tries: int = 1
    subject: str | None = None
    state: str = "{}"
    used: int = 0
    used_nano: int = 0

    @property
    def counted_for(self) -> str:
        """The subject whose share it is counted against."""
        return self.subject or self.owner


@frozen
class RunRow:
    """One run as stored; `input` and `output` are JSON, times in microseconds since the epoch.

    `state` is that of the session as the run left it, as JSON; None where it is empty, or stands in
    the output, as it did before it was kept apart.
    """

    owner: str
    session_id: str
    run_no: int
    run_id: str
    parent_run_id: str | None
    kind: str
    component_id: str
    status: str
    input: str
    output: str | None
    reason: str | None
    created_us: int
    started_us: int | None
    ended_us: int | None
    events: int
    lease_by: str | None
    lease_us: int | None
    attempt: int
    cancel_us: int | None = None
    tries: int = 0
    recorded: int = 0
    subject: str | None = None
    state: str | None = None

    @property
    def shown(self) -> str | None:
        """The output with the state of the session in it."""
        if self.output is None or self.state is None:
            return self.output
        return fill_state(self.output, self.state)

    @property
    def lease(self) -> RunLease:
        """The lease as it stands on the row."""
        return RunLease(self.lease_by or "", self.attempt)

    @property
    def untouched(self) -> bool:
        """Whether nothing of it need be known to execute it: it is new, or was continued."""
        return self.events == 0 or (self.reason or RECORDED_MARK) != RECORDED_MARK

    @property
    def is_recorded(self) -> bool:
        """Whether all that happened since it began, or was continued, stands among its steps."""
        return self.recorded == self.attempt

    @property
    def claim(self) -> ClaimedRun:
        """The run as whoever holds the lease was given it."""
        return ClaimedRun(*_claimed_columns(self))


_STORED: Final = tuple(field.name for field in fields(RunRow) if field.name != "state")
_WHOLE: Final = (whole_output() if name == "output" else name for name in _STORED)

COLUMNS: Final = ", ".join((*_WHOLE, select_state()))
"""What a `RunRow` is made of, in its order; the table is called `runs`."""

_CLAIMED: Final = tuple(
    field.name for field in fields(ClaimedRun) if field.name not in ("state", "used", "used_nano")
)
_claimed_columns = attrgetter(*_CLAIMED)

_OF_DAY: Final = f"""from usage where usage.subject = coalesce(runs.subject, runs.owner)
    and usage.day >= cast(:now_us as bigint) / {DAY_US}"""
CLAIMED: Final = f"""{", ".join(_CLAIMED)}, coalesce((select tokens {_OF_DAY}), 0),
    coalesce((select cost_nano {_OF_DAY}), 0)"""
"""What a `ClaimedRun` is made of, but for the session's state; the time is `:now_us`."""


def literal(state: RunState) -> str:
    """Return `state` as SQL has it."""
    return f"'{state.value}'"


def status_is(*states: RunState) -> str:
    """Return the condition that a run is in one of `states`."""
    if len(states) == 1:
        return f"status = {literal(states[0])}"
    return f"status in ({', '.join(map(literal, states))})"


WAITING_RUN: Final = status_is(*states_before(RunMove.START))
"""The condition that a run waits for its turn in the session."""

EXECUTED: Final = state_after(RunMove.START)
"""The state of a run under a lease; only who holds that moves it on."""

EXECUTED_RUN: Final = status_is(EXECUTED)
"""The condition that a run is executed."""

ACTIVE_RUN: Final = status_is(*states_before(RunMove.START), EXECUTED)
"""The condition of the partial indexes: SQLite takes one only where it is written word for word."""

INACTIVE_RUN: Final = ACTIVE_RUN.replace(" in ", " not in ")
"""The condition of the partial index of the others, word for word as well."""

ASKED_OF: Final = "kind || ':' || component_id || coalesce('@' || version, '')"
"""What a run was asked of, as those who host it say so.

A node that hosts the version 2 of an agent says `agent:ID` and `agent:ID@2`; a run that was asked
of no version in particular is for each of them.
"""

OF_A_CLIENT: Final = "parent_run_id is null"
"""What sets a run that was asked for apart from one of a team's member, which has no turn of its
own in the session and no lease: it goes with the run that it is part of."""

RECORDED_MARK: Final = "recorded"
"""The mark of a run that waits to go on from its steps."""

SINCE_CLAIM: Final = "(events = 0 or reason is not null)"
"""The condition that nothing has happened since the run was claimed.

Whoever continues a run writes a mark as its reason, `claimed` or `waiting`, and who gives it back
again `released`, or `recorded` where it goes on from its steps; the first event that follows takes
it away.  A release before 2.6.0 writes its token behind the mark: `claimed:` and `waiting:`.
"""

UNTOUCHED: Final = f"(events = 0 or coalesce(reason, '{RECORDED_MARK}') <> '{RECORDED_MARK}')"
"""The condition that nothing of the run need be known to execute it: it is new, or continued."""

CLAIMED_MARK: Final = "claimed"
"""The mark of a run that whoever continued it was given at once."""

NEW_VERSION: Final = 1 << 30
NEXT_VERSION: Final = f"""case sessions.runs when 1 then {1 << 20} when 127 then {1 << 10}
        else sessions.version + 1 end"""
"""The version of a session to which a run is added.

Nobody reads it.  SQLite writes a row anew, with all of its state, where its length changes: so the
version begins with four bytes, and gives up one where the number of runs takes one more.
"""

SESSION: Final = "owner = :owner and session_id = :session_id"
"""The condition that a session is the one that is meant."""

SESSION_BY_ID: Final = "session_id = :session_id and owner || '' = :owner"
"""The same for PostgreSQL, which finds it by its id.

It would take an index in which it reads each of the owner's sessions: while the table is small, or
most owners have few, those seem to cost the same.  An expression is in none of them.
"""

_LOCK: Final = f"""update sessions set version = version + 1
    where {{session}} returning {RETURNED_STATE}"""
LOCK_SESSION: Final = Sql(_LOCK.format(session=SESSION), _LOCK.format(session=SESSION_BY_ID))


def to_claimed_run(rows: Rows, states: Rows) -> ClaimedRun | None:
    """Return the run of the first row of `CLAIMED`, with the state of its session."""
    return make_claimed_run(rows[0], states[0][0]) if rows else None


def make_claimed_run(row: tuple[Any, ...], state: str) -> ClaimedRun:
    """Return the run of a row of `CLAIMED`, with the state of its session."""
    columns: tuple[Any, ...] = (*row[:-2], state, *row[-2:])
    return ClaimedRun(*columns)


@frozen
class StoredEvent:
    """One stored event of a run: `seq` counts from 1 without gaps, `data` is compact JSON.

    Attributes:
        final: Behind this event the run is over, or waits for a person.
        at_us: When it happened, 0 where only the database knows that it did: it keeps when the
            event was stored.
        noted: The value that this process noted, and `origin` whose it is, which those read who
            know the events of runs; None of what was read from a database.
    """

    seq: int
    name: str
    data: str
    final: bool = False
    at_us: int = field(default=0, eq=False, repr=False)
    noted: object = field(default=None, eq=False, repr=False)
    origin: object = field(default=None, eq=False, repr=False)


# Who holds the lease alone writes events, and writes one again only when it does not know whether
# it is there: a commit without an answer, an interrupted wait.  Then it says the same.
_UNNESTED: Final = """insert into events (run_id, seq, at_us, name, data)
    select :run_id, seq, :now, name, data
    from unnest(cast(:seqs as bigint[]), cast(:names as text[]), cast(:datas as text[]))
        as e (seq, name, data)
    on conflict (run_id, seq) do nothing"""
MANY_EVENTS: Final = Sql(
    """insert into events (run_id, seq, at_us, name, data)
    select :run_id, json_extract(value, '$[0]'), :now,
        json_extract(value, '$[1]'), json_extract(value, '$[2]')
    from json_each(:events) where true
    on conflict (run_id, seq) do nothing""",
    _UNNESTED,
)


def shorten_events(
    events: tuple[StoredEvent, ...], message: str, answer: str = ""
) -> tuple[StoredEvent, ...]:
    """Return `events` with marks for `message` and `answer`, as they are stored (`once`)."""
    return tuple(evolve(event, data=shorten(event.data, message, answer)) for event in events)


def _number_values(size: int) -> str:
    """Return the values of `size` events as SQLite numbers them: the run, the time, the events."""
    events = (range(3 + 3 * event, 6 + 3 * event) for event in range(size))
    return ", ".join(f"(?1, ?{seq}, ?2, ?{name}, ?{data})" for seq, name, data in events)


# As JSON they would cost SQLite more than twice as much; a run without tools has five at its end.
FEW_EVENTS: Final = {
    size: Sql(
        f"""insert into events (run_id, seq, at_us, name, data) values {_number_values(size)}
        on conflict (run_id, seq) do nothing""",
        _UNNESTED,
    )
    for size in range(1, 9)
}


def insert_events(
    dialect: Dialect, run_id: str, now_us: int, events: Sequence[StoredEvent]
) -> Statement:
    """Return one statement for all of `events`."""
    if dialect is Dialect.POSTGRESQL:
        return MANY_EVENTS(
            run_id=run_id,
            now=now_us,
            seqs=[e.seq for e in events],
            names=[e.name for e in events],
            datas=[e.data for e in events],
        )
    if few := FEW_EVENTS.get(len(events)):
        row = [value for e in events for value in (e.seq, e.name, e.data)]
        return Statement(few, Numbered((run_id, now_us, *row)))
    rows = json.dumps([[e.seq, e.name, e.data] for e in events])
    return MANY_EVENTS(run_id=run_id, now=now_us, events=rows)
