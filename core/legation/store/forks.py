"""Units of work on forks: a run that begins with the steps of another, a session with its runs.

What is forked is read and never written.  The steps before a place are copied by one statement, and
so are the runs of a session: a copy has the number that its original has, so that a history which
is told by numbers is the same.  Copies have no events, no members of their own, and count no
tokens: nothing was spent for them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from attrs import field

from ..values import frozen
from .once import whole_output
from .run_rows import NEW_VERSION, OF_A_CLIENT, RunOrder, status_is
from .run_states import RunState
from .session_state import select_state
from .sessions import RETURNED_SESSION, NoRoom, SessionRow, has_room, read_session
from .steps import COPIED, Records, Step, write_records
from .units import Dialect, ReadUnit, Sql, Statements, Undo, Unit
from .usage import ADD_BYTES, add_usage, keeper_of

__all__ = [
    "CopiedRuns",
    "FindCopied",
    "ForkSession",
    "RunFork",
    "SessionCopy",
]

_OVER: Final = status_is(*(state for state in RunState if state.final))
_AT_REST: Final = status_is(*(s for s in RunState if s.final or s is RunState.PAUSED))

# --- Reading -----------------------------------------------------------------------------------

_STEPS_OF: Final = """(select coalesce(sum({}), 0) from steps s where s.run_id = runs.run_id)"""
_COPIED: Final = f"""select run_id, run_no, {{}} + coalesce({{}}, 0) + {_STEPS_OF} from runs
    where owner = :owner and session_id = :session_id and run_no <= :last and {OF_A_CLIENT}
    and {_OVER} and output is not null order by run_no limit :most"""


def _measure_copies(length: str) -> str:
    sizes = (length.format(column) for column in ("runs.input", "runs.output", "s.outcome"))
    return _COPIED.format(*sizes)


COPIED_RUNS: Final = Sql(
    _measure_copies("length(cast({} as blob))"), _measure_copies("octet_length({})")
)
_LEFT: Final = f"""select {select_state()}, {whole_output()}, (
        select coalesce(sum({{}}), 0) from session_summaries
        where owner = :owner and session_id = :session_id and run_no <= :last)
    from runs where owner = :owner and run_id = :run_id"""
LEFT: Final = Sql(
    _LEFT.format("length(cast(summary as blob))"), _LEFT.format("octet_length(summary)")
)


@frozen
class CopiedRuns:
    """The runs of a session that a fork of it has: their ids, in order, and their bytes.

    `state` is that of the session as the last of them left it, as JSON; None where that is not
    known.  `last` is its number.
    """

    runs: tuple[str, ...]
    bytes: int
    last: int
    state: str | None


@frozen
class FindCopied(ReadUnit[CopiedRuns]):
    """The runs of a session up to the number `last` that are over; at most `most`."""

    long = True

    owner: str
    session_id: str
    last: int
    most: int

    def statements(self, dialect: Dialect) -> Statements[CopiedRuns]:
        """Yield one read along the primary key, and one of the state."""
        rows = yield COPIED_RUNS.of(self)
        if not rows:
            return CopiedRuns((), 0, 0, None)
        ((document, output, summaries),) = yield LEFT.of(self, run_id=rows[-1][0])
        state: str | None = document
        if document is None:
            shown: Mapping[str, Any] = json.loads(output)
            state = json.dumps(shown["session_state"]) if "session_state" in shown else None
        sizes = sum(size for _, _, size in rows) + int(summaries)
        return CopiedRuns(tuple(run_id for run_id, _, _ in rows), sizes, rows[-1][1], state)


# --- Sessions ----------------------------------------------------------------------------------

_FORKED: Final = " (fork)"
_NAME_KEPT: Final = 480  # characters of a name, which has no more than 500
_PAIR_ROWS: Final = """(select json_extract(value, '$[0]') as old,
        json_extract(value, '$[1]') as new from json_each(:pairs)) as p"""
_PAIR_ELEMENTS: Final = """(select value ->> 0 as old, value ->> 1 as new
        from json_array_elements(cast(:pairs as json))) as p"""
_PAIRS: Final = (_PAIR_ROWS, _PAIR_ELEMENTS)
OPEN_COPY: Final = Sql(
    f"""insert into sessions (owner, session_id, kind, component_id, name, state, metadata, runs,
        bytes, version, created_us, updated_us)
    select owner, :copy_id, kind, component_id, substr(name, 1, {_NAME_KEPT}) || '{_FORKED}',
        cast(:state as text), metadata, cast(:runs as bigint), cast(:bytes as bigint),
        {NEW_VERSION}, cast(:now_us as bigint), cast(:now_us as bigint)
    from sessions where owner = :owner and session_id = :session_id
    on conflict (owner, session_id) do nothing returning {RETURNED_SESSION}"""
)
# All before the content of an output are ids and names.
_HEAD: Final = """case when instr(r.output, ',"content"') > 0
        then instr(r.output, ',"content"') else length(r.output) end"""
_OUTPUT: Final = f"""replace(replace(substr(r.output, 1, {_HEAD}),
            '"run_id":"' || p.old || '"', '"run_id":"' || p.new || '"'),
            '"session_id":' || cast(:old_name as text), '"session_id":' || cast(:new_name as text))
        || substr(r.output, {_HEAD} + 1)"""
_COPY_RUNS: Final = f"""insert into runs (owner, session_id, run_no, run_id, kind, component_id,
        version, status, input, output, reason, created_us, started_us, ended_us, subject, state,
        model, incident)
    select r.owner, :copy_id, r.run_no, p.new, r.kind, r.component_id, r.version, r.status,
        r.input, {_OUTPUT}, r.reason, r.created_us, r.started_us, r.ended_us, r.subject, r.state,
        r.model, r.incident
    from {{}} join runs r on r.run_id = p.old
    where r.owner = :owner and r.session_id = :session_id"""
COPY_RUNS: Final = Sql(*(_COPY_RUNS.format(pairs) for pairs in _PAIRS))
_COPY_ALL_STEPS: Final = f"""insert into steps
        (run_id, place, kind, asked, attempt, begun_us, ended_us, outcome)
    select p.new, s.place, s.kind, s.asked, {COPIED}, s.begun_us, s.ended_us, s.outcome
    from {{}} join runs r on r.run_id = p.old join steps s on s.run_id = r.run_id
    where r.owner = :owner and r.session_id = :session_id"""
COPY_ALL_STEPS: Final = Sql(*(_COPY_ALL_STEPS.format(pairs) for pairs in _PAIRS))
COPY_STATES: Final = Sql(
    """insert into session_states (owner, session_id, digest, document, first_us)
    select owner, :copy_id, digest, document, first_us from session_states
    where owner = :owner and session_id = :session_id and digest in (
        select state from runs where owner = :owner and session_id = :copy_id)"""
)
COPY_SUMMARIES: Final = Sql(
    """insert into session_summaries
        (owner, session_id, run_no, summary, run_id, model, usage, at_us)
    select owner, :copy_id, run_no, summary, run_id, model, usage, at_us from session_summaries
    where owner = :owner and session_id = :session_id and run_no <= :runs"""
)


@frozen
class SessionCopy:
    """A new session with copies of runs of another.

    Attributes:
        session_id: The session that is forked.
        copy_id: The new one.
        names: Both ids as they stand in JSON.
        pairs: The id of each run that is copied, and that of its copy.
        runs: The highest number that a run of it has.
        bytes: What the copies have in all.
    """

    owner: str
    session_id: str
    copy_id: str
    names: tuple[str, str]
    state: str
    pairs: tuple[tuple[str, str], ...]
    runs: int
    bytes: int
    now_us: int

    def make(self) -> Statements[SessionRow | None]:
        """Yield the session, and its runs; None where it is there, or the other one is gone."""
        rows = yield OPEN_COPY.of(self)
        if not rows:
            return None
        if self.pairs:
            pairs = json.dumps(self.pairs)
            old_name, new_name = self.names
            yield COPY_RUNS.of(self, pairs=pairs, old_name=old_name, new_name=new_name)
            yield COPY_ALL_STEPS.of(self, pairs=pairs)
            yield COPY_STATES.of(self)
            yield COPY_SUMMARIES.of(self)
        return (yield from read_session(rows))


@frozen
class ForkSession(Unit[SessionRow | NoRoom | None]):
    """Fork a session; None where the id of the copy is taken, or the session is gone.

    `subject` and `stored_bytes` are as those of a `CreateSession`.
    """

    copy: SessionCopy
    subject: str | None = None
    stored_bytes: int | None = None

    def statements(
        self, dialect: Dialect
    ) -> Statements[SessionRow | Undo[SessionRow | NoRoom | None]]:
        """Yield the copies, and the count of what they take."""
        copy = self.copy
        row = yield from copy.make()
        if row is None:
            return Undo(None)
        keeper = keeper_of(copy.owner, self.subject)
        if not (yield from has_room(keeper, copy.bytes, self.stored_bytes)):
            return Undo(NoRoom())
        yield from add_usage(keeper, copy.bytes, keeper, 0, copy.now_us)
        return row


# --- Runs --------------------------------------------------------------------------------------

# On PostgreSQL whoever continues the run meanwhile waits for the end of the unit.
_STANDS: Final = f"""select 1 from runs where owner = :owner and run_id = :source
    and attempt = :attempt and {_AT_REST}"""
STANDS: Final = Sql(_STANDS, f"{_STANDS} for share")
COPY_STEPS: Final = Sql(
    f"""insert into steps (run_id, place, kind, asked, attempt, begun_us, ended_us, outcome)
    select :run_id, s.place, s.kind, s.asked, {COPIED}, s.begun_us, s.ended_us, s.outcome
    from steps s join runs r on r.run_id = s.run_id
    where r.owner = :owner and s.run_id = :source and s.outcome is not null
    and cast(substr(s.place, 1, instr(s.place || '.', '.') - 1) as bigint) <= :last
    and s.place <> :call and substr(s.place, 1, length(cast(:call as text)) + 1)
        <> cast(:call as text) || '/'
    and (s.place <> '0' or cast(:start as bigint) = 1)"""
)


@frozen
class RunFork:
    """The beginning of a run that is a fork of another.

    Attributes:
        source: The run that is forked; it stands as it did at `attempt`.
        last: The rounds of it whose steps are copied: up to this one.
        call: The place of the call that is made anew, empty for none.
        start: Whether the step of its start is copied.
        added: Steps beside those: outcomes that somebody gave, and did not come of a call.
        copy: The session that is made for it; None where it has one.
        bytes: What its steps have in all.
    """

    source: str
    attempt: int
    last: int = -1
    call: str = ""
    start: bool = False
    added: tuple[Step, ...] = field(default=())
    copy: SessionCopy | None = None
    bytes: int = 0

    @property
    def size(self) -> int:
        """The bytes that are stored for it beside its input."""
        return self.bytes + (0 if self.copy is None else self.copy.bytes)

    def open_session(self) -> Statements[bool]:
        """Yield the session that is made for it; return whether it is to be had."""
        return self.copy is None or (yield from self.copy.make()) is not None

    def stands(self, owner: str) -> Statements[bool]:
        """Return whether the run that is forked stands as it did; behind the session's lock."""
        return bool((yield STANDS.of(self, owner=owner)))

    def copy_steps(
        self, dialect: Dialect, run: RunOrder, subject: str | None, now_us: int
    ) -> Statements[None]:
        """Yield the steps of `run`, and the count of all that is copied: the last of its unit."""
        if self.last >= 0:
            yield COPY_STEPS.of(self, owner=run.owner, run_id=run.run_id, start=int(self.start))
        if self.added:
            yield from write_records(dialect, run.run_id, COPIED, now_us, Records(self.added))
        if self.bytes:
            yield ADD_BYTES.of(self, owner=run.owner, session_id=run.session_id)
        if self.size:
            keeper = keeper_of(run.owner, subject)
            yield from add_usage(keeper, self.size, keeper, 0, now_us)
