"""A session as AgentOS stores it, made a session of ours with its runs.

A team's run comes before those of its members, as ours do: there it is stored behind them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from attrs import evolve, field

from ..access.decide import name_of, owner_of
from ..http.bodies.json_text import BadJson
from ..http.messages import compact_json
from ..models.conversation import storable
from ..store.imports import ImportedRun, ImportedSession
from ..store.run_states import RunState
from ..store.session_state import EMPTY, MAX_STATE, encode_value
from ..store.usage import count_octets
from ..tools.accepted import is_array, is_object
from ..values import define, frozen
from .report import LeftOut, Reason
from .runs import MAX_RUN, ForeignRun, RunReader, render_run
from .values import LONGEST_ID, clean, decode_column, id_of, microseconds_of, object_of

__all__ = ["ForeignSession", "Options", "SessionPlan", "read_session"]

KINDS: Final = ("agent", "team")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LONGEST_NAME: Final = 500
_RESERVED: Final = "~"
_TOLD: Final = 3
"""How many runs of a session with a summary a model is told beside it."""

_DEEPEST: Final = 8
"""How deep the runs of members stand in those of their teams; deeper ones are rows alone."""


@frozen
class ForeignSession:
    """A row of the table of sessions, and those of its runs, as they are stored.

    Documents are JSON as text, None where there is no such column or value.  `runs` is the list
    of all runs, which releases before 3 keep in the row; `rows` are runs that have rows.
    """

    session_id: object
    session_type: object
    agent_id: object = None
    team_id: object = None
    user_id: object = None
    session_data: str | None = None
    metadata: str | None = None
    summary: str | None = None
    created_at: object = None
    updated_at: object = None
    runs: str | None = field(default=None, repr=False)
    rows: tuple[str | None, ...] = field(default=(), repr=False)


@frozen
class Options:
    """The options for reading sessions.

    Attributes:
        user: Whose sessions without a user become; None: nobody's.
        final: The other server is gone: runs that are not over have come to their end.
    """

    user: str | None = None
    final: bool = False


@frozen
class SessionPlan:
    """A session that can be stored, with its runs in the order in which they are numbered.

    Attributes:
        has_user: The session says whose it is.
        counts: The messages and the files of each run, by its id.
        summary: What a model is told of the runs up to `summary_run`; empty for nothing.
    """

    session: ImportedSession
    runs: tuple[ImportedRun, ...] = field(default=(), repr=False)
    has_user: bool = True
    counts: Mapping[str, tuple[int, int]] = field(factory=dict[str, tuple[int, int]], repr=False)
    summary: str = ""
    summary_run: str = ""
    left_out: tuple[LeftOut, ...] = field(default=(), repr=False)

    @property
    def component(self) -> str:
        """The kind and the id of its agent or team; empty where it has none yet."""
        session = self.session
        return f"{session.kind}:{session.component_id}" if session.component_id else ""


def read_session(foreign: ForeignSession, options: Options) -> SessionPlan | LeftOut:
    """Return a session with its runs as they are stored here, or the reason why it is left out."""
    head = _read_head(foreign, options)
    if isinstance(head, LeftOut):
        return head
    return _SessionReader(foreign, head, options).read()


def _read_head(foreign: ForeignSession, options: Options) -> ImportedSession | LeftOut:
    """Return the session with its ids and times, and nothing else."""
    shown = storable(str(foreign.session_id))
    kind = foreign.session_type
    if kind not in KINDS:
        return LeftOut(Reason.WORKFLOW, shown)
    session_id = id_of(foreign.session_id)
    if session_id is None:
        return LeftOut(Reason.SESSION_ID, shown)
    owner = _owner(foreign.user_id or options.user)
    if owner is None:
        return LeftOut(Reason.USER_ID, session_id)
    component = foreign.agent_id if kind == "agent" else foreign.team_id
    component_id = "" if component in (None, "") else id_of(component)
    if component_id is None:
        return LeftOut(Reason.COMPONENT_ID, session_id)
    created_us = microseconds_of(foreign.created_at)
    updated_us = microseconds_of(foreign.updated_at, created_us)
    return ImportedSession(
        owner, session_id, str(kind), component_id, None, EMPTY, None, None, created_us, updated_us
    )


def _owner(user_id: object) -> str | None:
    """Return the owner that a user id means; nobody's is the owner without a name.

    One that is reserved, such as that of a person on a channel, is nobody else's to bring along.
    """
    if user_id is None:
        return ""
    if not isinstance(user_id, str) or len(user_id) > LONGEST_ID or storable(user_id) != user_id:
        return None
    owner = owner_of(user_id)
    reserved = user_id.startswith(_RESERVED) and owner == user_id
    return None if reserved or _CONTROL.search(user_id) else owner


@define
class _SessionReader:
    foreign: ForeignSession
    head: ImportedSession
    options: Options
    _left_out: list[LeftOut] = field(factory=list[LeftOut], init=False)

    def read(self) -> SessionPlan | LeftOut:
        """Return the session."""
        stored = self._stored_runs()
        if isinstance(stored, LeftOut):
            return stored
        runs = self._order(self._read_runs(stored))
        data = self._document("session_data", self.foreign.session_data)
        metadata = self._document("metadata", self.foreign.metadata)
        summary = self._document("summary", self.foreign.summary)
        session = evolve(
            self.head,
            name=_find_name(data, runs),
            state=self._state(data),
            metadata=compact_json(metadata) if metadata else None,
            summary=compact_json(summary) if summary else None,
        )
        text, at = _place_summary(summary, runs)
        return SessionPlan(
            session,
            _render(runs),
            has_user=bool(self.foreign.user_id),
            counts={run.row.run_id: (run.messages, run.files) for run in runs},
            summary=text,
            summary_run=at,
            left_out=(*self._left_out, *(one for run in runs for one in run.left_out)),
        )

    def _document(self, name: str, text: str | None) -> Mapping[str, Any]:
        read = decode_column(text)
        value = read if isinstance(read, BadJson) else clean(read)
        if value is None or is_object(value):
            return value or {}
        detail = f"{name}: {value.reason}" if isinstance(value, BadJson) else name
        self._left_out.append(LeftOut(Reason.SESSION_VALUE, self.head.session_id, "", detail))
        return {}

    def _state(self, data: Mapping[str, Any]) -> str:
        state = encode_value(dict(object_of(data.get("session_state"))))
        if count_octets((state,)) > MAX_STATE:
            self._left_out.append(LeftOut(Reason.STATE, self.head.session_id))
            return EMPTY
        return state

    def _stored_runs(self) -> list[Any] | LeftOut:
        """Return the runs of the row, and of rows; of one that both have, that of its own row."""
        value = decode_column(self.foreign.runs)
        if value is not None and not is_array(value):
            detail = value.reason if isinstance(value, BadJson) else "the runs are no list"
            return LeftOut(Reason.SESSION_UNREADABLE, self.head.session_id, "", detail)
        found: dict[object, Any] = {}
        for number, run in enumerate((*(value or ()), *map(decode_column, self.foreign.rows))):
            named = object_of(run).get("run_id")
            found[named if isinstance(named, str) else number] = run
        return list(found.values())

    def _read_runs(self, stored: list[Any]) -> list[ForeignRun]:
        """Return the runs that can be stored; without those whose team's run is left out."""
        head = self.head
        reader = RunReader(
            session_id=head.session_id,
            kind=head.kind,
            component_id=head.component_id,
            user=name_of(head.owner),
            created_us=head.created_us,
            final=self.options.final,
        )
        read = [reader.read(run) for run in stored]
        out = {one.run_id for one in read if isinstance(one, LeftOut)} - {""}
        kept = [one for one in read if isinstance(one, ForeignRun)]
        self._left_out += [one for one in read if isinstance(one, LeftOut)]
        of_parent: dict[str | None, list[str]] = {}
        for run in kept:
            of_parent.setdefault(run.row.parent_run_id, []).append(run.row.run_id)
        waiting, lost = sorted(out), set[str]()
        while waiting:
            below = [one for one in of_parent.get(waiting.pop(), ()) if one not in lost]
            lost.update(below)
            waiting += below
        self._left_out += [
            LeftOut(Reason.MEMBER, head.session_id, run.row.run_id)
            for run in kept
            if run.row.run_id in lost
        ]
        return [run for run in kept if run.row.run_id not in lost]

    def _order(self, runs: list[ForeignRun]) -> list[ForeignRun]:
        """Return each run before those of its members; one whose team's run is absent is alone."""
        by_id = {run.row.run_id: run for run in runs}
        of_parent: dict[str, list[ForeignRun]] = {}
        tops: list[ForeignRun] = []
        for run in runs:
            parent = run.row.parent_run_id
            if parent is None or parent not in by_id or parent == run.row.run_id:
                tops.append(self._alone(run))
            else:
                of_parent.setdefault(parent, []).append(run)
        ordered = [*_walk(tops, of_parent)]
        seen = {run.row.run_id for run in ordered}
        rings = [self._alone(run) for run in runs if run.row.run_id not in seen]
        return [*ordered, *rings]

    def _alone(self, run: ForeignRun) -> ForeignRun:
        """Return a run that is part of no other."""
        if run.row.parent_run_id is None:
            return run
        self._left_out.append(LeftOut(Reason.TEAM_RUN_ABSENT, self.head.session_id, run.row.run_id))
        shown = {name: value for name, value in run.shown.items() if name != "parent_run_id"}
        return evolve(run, row=evolve(run.row, parent_run_id=None), shown=shown)


def _walk(
    tops: Iterable[ForeignRun], of_parent: Mapping[str, list[ForeignRun]]
) -> Iterator[ForeignRun]:
    """Yield each of `tops`, and behind it all that are below it."""
    for top in tops:
        waiting = [top]
        while waiting:
            run = waiting.pop()
            yield run
            waiting += reversed(of_parent.get(run.row.run_id, ()))


def _render(runs: list[ForeignRun]) -> tuple[ImportedRun, ...]:
    """Return the rows of `runs` with their outputs, in which those of members stand."""
    rows: list[ImportedRun] = []
    responses: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for run in reversed(runs):
        members = responses.get(run.row.run_id, [])[::-1]
        depth = 1 + max((deep for deep, _ in members), default=0)
        whole = render_run(run, [shown for _, shown in members])
        output = compact_json(whole)
        if members and count_octets((output, run.row.input)) > MAX_RUN:
            whole, depth = render_run(run, ()), 1
            output = compact_json(whole)
        rows.append(evolve(run.row, output=output))
        if run.row.parent_run_id is not None and depth < _DEEPEST:
            responses.setdefault(run.row.parent_run_id, []).append((depth, whole))
    return tuple(reversed(rows))


def _find_name(data: Mapping[str, Any], runs: list[ForeignRun]) -> str | None:
    """Return the name of a session: its own, else what was asked first."""
    name = data.get("session_name")
    if not isinstance(name, str) or not name:
        first = next((run for run in runs if run.row.parent_run_id is None), None)
        name = "" if first is None else first.shown["input"]["input_content"]
    return _CONTROL.sub(" ", name[:_LONGEST_NAME]) or None


def _place_summary(summary: Mapping[str, Any], runs: list[ForeignRun]) -> tuple[str, str]:
    """Return the text of a summary, and the last run that it stands for; empty where none is due.

    It covers all runs of the session; the newest of them are told beside it, as they are there.
    """
    text = summary.get("summary")
    done = [
        run.row.run_id
        for run in runs
        if run.row.parent_run_id is None and run.row.status == RunState.COMPLETED
    ]
    if not isinstance(text, str) or not text or len(done) <= _TOLD:
        return "", ""
    return text, done[-_TOLD - 1]
