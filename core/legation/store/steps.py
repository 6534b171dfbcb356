"""The steps of runs: what a run has done, and what came of it, so that it goes on from there.

A step is found by its place, never by the order in which steps ended: `3` is the third answer of
the model, `3.2` its second call, and behind a slash are the places of the member of a team that the
call was given to, `3.2/1`.  All steps of a team and its members stand under the run at the top.

Steps are written in the transactions that store the events of the run, under the same fence.  One
that must not be done twice has its row before it is done; its outcome is written once.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from enum import StrEnum
from itertools import chain
from typing import Final

from ..values import frozen
from .member_runs import MemberMove
from .once import whole_output
from .session_state import EMPTY, StateChanges
from .units import (
    NO_ROWS,
    Dialect,
    Numbered,
    ReadUnit,
    Sql,
    Statement,
    Statements,
    text_array,
)

__all__ = [
    "COPIED",
    "NO_RECORDS",
    "Definition",
    "FetchDefinitions",
    "FetchMembersOver",
    "FetchSteps",
    "Records",
    "Step",
    "StepKind",
    "write_records",
]


COPIED: Final = -1
"""The attempt of a step that a run has from the one that it is a fork of.

Nothing was spent for it, and no time was worked."""


class StepKind(StrEnum):
    """The kind of a step: a start, an answer of a model, a call of a tool, or of a member."""

    START = "start"
    MODEL = "model"
    CALL = "call"
    MEMBER = "member"


@frozen
class Step:
    """One step; without an outcome it has begun, and nobody knows more.

    `attempt` is that of the executor which ended it, or began it; of one that was begun a second
    time, the second time counts.

    `asked` is the id of the model or of the member, or the name of the tool; `outcome` is text.
    """

    place: str
    kind: str
    asked: str
    begun_us: int
    ended_us: int | None = None
    outcome: str | None = None
    attempt: int = 0


@frozen
class Definition:
    """The definition of an agent or a team, as JSON, by the digest of that."""

    digest: str
    kind: str
    component_id: str
    document: str


@frozen
class Records:
    """Steps that begin or end, of places that differ, and what is stored along with them.

    Attributes:
        definitions: Those that the steps name, as far as they are not known to be stored.
        moves: The states of runs of members that changed, in order.
        state: What calls write to the state of the session, whose outcomes are among them.
    """

    steps: tuple[Step, ...] = ()
    definitions: tuple[Definition, ...] = ()
    moves: tuple[MemberMove, ...] = ()
    state: StateChanges | None = None

    @property
    def progress(self) -> bool:
        """Whether a step ended, and the run has come further."""
        return any(step.outcome is not None for step in self.steps)


NO_RECORDS: Final = Records()

# A step that ended is written over by nothing.
_MERGE: Final = """on conflict (run_id, place) do update
    set attempt = excluded.attempt, begun_us = excluded.begun_us,
        ended_us = excluded.ended_us, outcome = excluded.outcome
    where steps.outcome is null and excluded.outcome is not null"""
_COLUMNS: Final = "(run_id, attempt, place, kind, asked, begun_us, ended_us, outcome)"
_UNNESTED: Final = f"""insert into steps {_COLUMNS}
    select :run_id, :attempt, place, kind, asked, begun_us, ended_us, outcome
    from unnest(cast(:places as text[]), cast(:kinds as text[]), cast(:asked as text[]),
        cast(:begun as bigint[]), cast(:ended as bigint[]), cast(:outcomes as text[]))
        as s (place, kind, asked, begun_us, ended_us, outcome)
    {_MERGE}"""
MANY_STEPS: Final = Sql(
    f"""insert into steps {_COLUMNS}
    select :run_id, :attempt, json_extract(value, '$[0]'), json_extract(value, '$[1]'),
        json_extract(value, '$[2]'), json_extract(value, '$[3]'), json_extract(value, '$[4]'),
        json_extract(value, '$[5]')
    from json_each(:steps) where true
    {_MERGE}""",
    _UNNESTED,
)
_FIELDS: Final = 6


def _number_values(size: int) -> str:
    """Return the values of `size` steps as SQLite numbers them: the run, the attempt, the steps."""
    starts = (3 + _FIELDS * step for step in range(size))
    rows = (", ".join(f"?{n}" for n in range(start, start + _FIELDS)) for start in starts)
    return ", ".join(f"(?1, ?2, {row})" for row in rows)


# As JSON they would cost SQLite more than twice as much; a round has a call's end and a model's.
FEW_STEPS: Final = {
    size: Sql(f"insert into steps {_COLUMNS} values {_number_values(size)} {_MERGE}", _UNNESTED)
    for size in range(1, 5)
}
# Those that were stored before are not among the rows.
STORED_STEPS: Final = Sql(
    f"{MANY_STEPS.text} returning place", f"{MANY_STEPS.postgresql} returning place"
)
DEFINE: Final = Sql(
    """insert into definitions (digest, kind, component_id, document, first_us)
    values (:digest, :kind, :component_id, :document, :now_us) on conflict (digest) do nothing"""
)


def write_records(
    dialect: Dialect,
    run_id: str,
    attempt: int,
    now_us: int,
    records: Records,
    state: str = EMPTY,
    ended: Collection[str] = (),
) -> Statements[str]:
    """Yield one statement for all steps, and one for each definition and each move.

    `state` is that of the session, where calls write to it; the result is the state after that.
    `ended` are the runs whose ends the unit stores.
    """
    moved, rows = list[str](), NO_ROWS
    for definition in records.definitions:
        yield DEFINE.of(definition, now_us=now_us)
    for move in records.moves:
        if (yield from move.statements()):
            moved.append(move.run_id)
    if records.steps:
        rows = yield _save(dialect, run_id, attempt, records)
    if records.state is None:
        return state
    stored = {*ended, *moved, *(place for (place,) in rows)}
    return (yield from records.state.write(state, stored))


def _save(dialect: Dialect, run_id: str, attempt: int, records: Records) -> Statement:
    steps = records.steps
    many = MANY_STEPS if records.state is None else STORED_STEPS
    if dialect is Dialect.POSTGRESQL:
        return many(
            run_id=run_id,
            attempt=attempt,
            places=[step.place for step in steps],
            kinds=[step.kind for step in steps],
            asked=[step.asked for step in steps],
            begun=[step.begun_us for step in steps],
            ended=[step.ended_us for step in steps],
            outcomes=[step.outcome for step in steps],
        )
    rows = [(s.place, s.kind, s.asked, s.begun_us, s.ended_us, s.outcome) for s in steps]
    if records.state is None and (few := FEW_STEPS.get(len(rows))):
        return Statement(few, Numbered((run_id, attempt, *chain.from_iterable(rows))))
    return many(run_id=run_id, attempt=attempt, steps=json.dumps(rows))


# --- Reading -----------------------------------------------------------------------------------

OF_RUN: Final = Sql(
    """select s.place, s.kind, s.asked, s.begun_us, s.ended_us, s.outcome, s.attempt
    from steps s join runs r on r.run_id = s.run_id
    where r.owner = :owner and s.run_id = :run_id"""
)
DEFINED: Final = Sql(
    """select digest, document from definitions
    where digest in (select value from json_each(:digests))""",
    "select digest, document from definitions where digest = any (cast(:digests as text[]))",
)
_MEMBERS_OVER: Final = f"""select run_id, status, {whole_output()} from runs
    where owner = :owner and ended_us is not null and output is not null and run_id"""
MEMBERS_OVER: Final = Sql(
    f"{_MEMBERS_OVER} in (select value from json_each(:runs))",
    f"{_MEMBERS_OVER} = any (cast(:runs as text[]))",
)


@frozen
class FetchSteps(ReadUnit[tuple[Step, ...]]):
    """The steps of a run, in no order."""

    owner: str
    run_id: str

    def statements(self, dialect: Dialect) -> Statements[tuple[Step, ...]]:
        """Yield one read along the primary key."""
        return tuple(Step(*row) for row in (yield OF_RUN.of(self)))


@frozen
class FetchDefinitions(ReadUnit[Mapping[str, str]]):
    """The documents of definitions, by their digests."""

    digests: tuple[str, ...]

    def statements(self, dialect: Dialect) -> Statements[Mapping[str, str]]:
        """Yield one read."""
        return dict((yield DEFINED(digests=text_array(dialect, self.digests))))


@frozen
class FetchMembersOver(ReadUnit[Mapping[str, tuple[str, str]]]):
    """The runs of members that are over, or wait, among `runs`: status and output, by their ids."""

    owner: str
    runs: tuple[str, ...]

    def statements(self, dialect: Dialect) -> Statements[Mapping[str, tuple[str, str]]]:
        """Yield one read."""
        rows = yield MEMBERS_OVER.of(self, runs=text_array(dialect, self.runs))
        return {run_id: (status, output) for run_id, status, output in rows}
