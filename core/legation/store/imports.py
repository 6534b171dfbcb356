"""Units of work on the import of sessions: what is here already, and what is stored beside it.

A run is known by its id, which no other run has.  A unit stores a session, and some of its runs
behind those that it has; what is there stays as it is.  So an import that was broken off is done
again, and stores what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from attrs import field

from ..values import frozen
from .run_rows import NEW_VERSION
from .session_state import EMPTY, keep_state
from .units import Dialect, ReadUnit, Sql, Statements, Undo, Unit, text_array
from .usage import ADD_BYTES, add_usage, count_octets

__all__ = [
    "FindImported",
    "FoundSession",
    "ImportSession",
    "ImportedRun",
    "ImportedSession",
]


@frozen
class ImportedSession:
    """A session of another database; `state`, `metadata` and `summary` are JSON."""

    owner: str
    session_id: str
    kind: str
    component_id: str
    name: str | None
    state: str
    metadata: str | None
    summary: str | None
    created_us: int
    updated_us: int

    @property
    def size(self) -> int:
        """The bytes of its documents."""
        return count_octets((self.state, self.metadata, self.summary))


@frozen
class ImportedRun:
    """A run of another database, which is over; `input`, `output` and `usage` are JSON.

    `state` is that of the session as the run left it, as JSON; empty where that is not known.
    """

    run_id: str
    parent_run_id: str | None
    kind: str
    component_id: str
    status: str
    created_us: int
    ended_us: int
    input: str = ""
    output: str = ""
    reason: str | None = None
    usage: str | None = None
    model: str | None = None
    state: str = ""

    @property
    def size(self) -> int:
        """The bytes of its documents, but for the state, which is kept once."""
        return count_octets((self.input, self.output))


# --- Looking -----------------------------------------------------------------------------------

_SESSION: Final = "from sessions where owner = :owner and session_id = :session_id"
# A run that was executed here was claimed at least once; one that was imported never was.
_GONE_ON: Final = """exists (select 1 from runs where owner = :owner
        and session_id = :session_id and attempt > 0)"""
FOUND: Final = Sql(f"select kind, component_id, updated_us, {_GONE_ON} {_SESSION}")
_KNOWN: Final = "select run_id, owner, session_id from runs where run_id"
ANY_KNOWN: Final = Sql(
    f"{_KNOWN} in (select value from json_each(:runs))", f"{_KNOWN} = any (cast(:runs as text[]))"
)


@frozen
class FoundSession:
    """The part of a session that is here: nothing where `kind` is empty.

    Attributes:
        updated_us: When it was changed last.
        gone_on: A run of it was executed here.
        known: Its runs among those that were asked for.
        taken: Those of them that belong to another session.
    """

    kind: str = ""
    component_id: str = ""
    updated_us: int = 0
    gone_on: bool = False
    known: frozenset[str] = frozenset()
    taken: frozenset[str] = frozenset()

    def is_other(self, session: ImportedSession) -> bool:
        """Return whether it is a session of another agent or team."""
        if not self.kind:
            return False
        both = self.component_id and session.component_id
        return self.kind != session.kind or bool(both and self.component_id != session.component_id)


@frozen
class FindImported(ReadUnit[FoundSession]):
    """The session of this id of the owner, and which of `runs` are stored, whosever they are."""

    long: ClassVar[bool] = True

    owner: str
    session_id: str
    runs: tuple[str, ...]

    def statements(self, dialect: Dialect) -> Statements[FoundSession]:
        """Yield two reads."""
        rows = yield FOUND.of(self)
        stored = yield ANY_KNOWN(runs=text_array(dialect, self.runs))
        own = (self.owner, self.session_id)
        known = frozenset(run_id for run_id, *place in stored if tuple(place) == own)
        taken = frozenset(run_id for run_id, *place in stored if tuple(place) != own)
        if not rows:
            return FoundSession(known=known, taken=taken)
        kind, component_id, updated_us, gone_on = rows[0]
        return FoundSession(kind, component_id, updated_us, bool(gone_on), known, taken)


# --- Storing -----------------------------------------------------------------------------------

OPEN: Final = Sql(
    f"""insert into sessions
        (owner, session_id, kind, component_id, name, state, metadata, summary, bytes, version,
        created_us, updated_us)
    values (:owner, :session_id, :kind, :component_id, :name, :state, :metadata, :summary, 0,
        {NEW_VERSION}, :created_us, :updated_us)
    on conflict (owner, session_id) do nothing returning session_id"""
)
LOCK: Final = Sql(
    f"""update sessions set version = version + 1
    where owner = :owner and session_id = :session_id
    returning kind, component_id, updated_us, {_GONE_ON}"""
)
_RENEW: Final = """update sessions set name = :name, state = :state, metadata = :metadata,
        summary = :summary, updated_us = :updated_us,
        component_id = case when component_id = '' then :component_id else component_id end
    where owner = :owner and session_id = :session_id"""
_BEFORE: Final = f"""select {{}} + coalesce({{}}, 0) + coalesce({{}}, 0) {_SESSION}"""


def _measure(length: str) -> str:
    return _BEFORE.format(*(length.format(name) for name in ("state", "metadata", "summary")))


BEFORE: Final = Sql(_measure("length(cast({} as blob))"), _measure("octet_length({})"))
RENEW: Final = Sql(_RENEW)
NUMBER: Final = Sql(
    """update sessions set runs = runs + :count
    where owner = :owner and session_id = :session_id returning runs"""
)
INSERT_RUN: Final = Sql(
    """insert into runs (owner, session_id, run_no, run_id, parent_run_id, kind, component_id,
        status, input, output, reason, usage, model, created_us, started_us, ended_us)
    values (:owner, :session_id, :run_no, :run_id, :parent_run_id, :kind, :component_id,
        :status, :input, :output, :reason, :usage, :model, :created_us, :created_us, :ended_us)"""
)
INSERT_SUMMARY: Final = Sql(
    """insert into session_summaries (owner, session_id, run_no, summary, run_id, model, at_us)
    select owner, session_id, run_no, cast(:text as text), run_id, '', cast(:at_us as bigint)
    from runs where owner = :owner and session_id = :session_id and run_id = :run_id
    on conflict (owner, session_id, run_no) do nothing returning run_no"""
)


@frozen
class ImportSession(Unit[int | None]):
    """Store a session, and those of `runs` that are not stored, behind those that it has.

    Values of a session that is here are replaced where it was changed there since, and no run of it
    was executed here.  The result is how many runs are new; None where the session is one of
    another agent or team.  Nothing is counted as used; the bytes are.

    Attributes:
        summary: A text for the model that covers the runs up to `summary_run`, empty for none.
    """

    session: ImportedSession
    runs: tuple[ImportedRun, ...]
    now_us: int
    summary: str = field(default="", repr=False)
    summary_run: str = ""

    def statements(self, dialect: Dialect) -> Statements[int | None | Undo[int | None]]:
        """Yield the session or its lock, a look at the runs, and what is missing of them."""
        session = self.session
        place = {"owner": session.owner, "session_id": session.session_id}
        is_new = bool((yield OPEN.of(session)))
        size, changed = (session.size, True) if is_new else (0, False)
        if not is_new:
            renewed = yield from self._renew(place)
            if renewed is None:
                return Undo(None)
            size, changed = renewed
        new = yield from self._find_new_runs(dialect)
        size += yield from self._insert(place, new)
        if self.summary:
            size += yield from self._summarize(place)
        if not (changed or new or size):
            return Undo(0)
        yield ADD_BYTES(**place, bytes=size)
        yield from add_usage(session.owner, size, session.owner, 0, self.now_us)
        return len(new)

    def _renew(self, place: Mapping[str, str]) -> Statements[tuple[int, bool] | None]:
        """Lock the session, and replace its values where that may be; return the bytes added."""
        session = self.session
        ((kind, component_id, updated_us, gone_on),) = yield LOCK(**place)
        if FoundSession(kind, component_id).is_other(session):
            return None
        if gone_on or session.updated_us <= updated_us:
            return 0, False
        ((before,),) = yield BEFORE(**place)
        yield RENEW.of(session)
        return session.size - int(before), True

    def _find_new_runs(self, dialect: Dialect) -> Statements[tuple[ImportedRun, ...]]:
        named = text_array(dialect, [run.run_id for run in self.runs])
        stored = {row[0] for row in (yield ANY_KNOWN(runs=named))}
        return tuple(run for run in self.runs if run.run_id not in stored)

    def _insert(self, place: Mapping[str, str], new: tuple[ImportedRun, ...]) -> Statements[int]:
        """Yield the rows of `new`, and the states that they left; return their bytes."""
        if not new:
            return 0
        ((last,),) = yield NUMBER(**place, count=len(new))
        size = 0
        for run_no, run in enumerate(new, last - len(new) + 1):
            yield INSERT_RUN.of(run, **place, run_no=run_no)
            size += run.size
            if run.state not in ("", EMPTY):
                at_us = self.now_us
                _, kept = yield from keep_state(**place, run_id=run.run_id, state=run.state,
                                                now_us=at_us)  # fmt: skip
                size += kept
        return size

    def _summarize(self, place: Mapping[str, str]) -> Statements[int]:
        at_us, run_id = self.session.updated_us, self.summary_run
        made = yield INSERT_SUMMARY(**place, text=self.summary, at_us=at_us, run_id=run_id)
        return count_octets((self.summary,)) if made else 0
