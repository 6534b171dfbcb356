"""The reader of the steps of a run that goes on after a crash."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from attrs import evolve

from ..effects import Program
from ..store.run_reads import EventsPage, FetchEvents
from ..store.run_rows import ClaimedRun
from ..store.steps import FetchDefinitions, FetchMembersOver, FetchSteps, Step, StepKind
from ..store.units import Unit
from .fold import RunRecord
from .retry import never, persist
from .step_outcomes import decode_outcome
from .terms import FORK_START
from .turn_state import TurnState, load

__all__ = ["Read", "fetch_record", "is_answered", "read_record"]

Read: TypeAlias = Callable[[Unit[Any]], Program[Any]]
"""How a unit is run: with patience by who executes the run, or once by who looks at it.

It gives what the unit gives; no alias of a callable can say that, so it says `Any`.
"""

_PAUSES: Final = ("RunPaused", "TeamRunPaused")


def fetch_record(
    database: str,
    run: ClaimedRun,
    asked: Mapping[str, Any],
    is_over: Callable[[], bool] = never,
) -> Program[RunRecord | None]:
    """Return the record of `run`, which has steps; None where a person has continued it.

    `is_over`: whether the process ends, and waits no longer for its database.

    Raises:
        StoreFailure: The database does not answer.
        UnknownOutcome: A later version of this code stored it.
    """

    def read(unit: Unit[Any]) -> Program[Any]:
        return (yield from persist(database, unit, is_over))

    if (yield from is_answered(read, run, asked)):
        return None
    steps = yield from persist(database, FetchSteps(run.owner, run.run_id), is_over)
    return (yield from read_record(read, run, asked, steps))


def read_record(
    read: Read, run: ClaimedRun, asked: Mapping[str, Any], rows: tuple[Step, ...]
) -> Program[RunRecord]:
    """Return the record of `run`, which has the steps `rows`.

    Raises:
        UnknownOutcome: A later version of this code stored it.
    """
    steps = {step.place: step for step in rows}
    attempt = asked.get("answered", {}).get("attempt", 0)
    begun: Mapping[str, Any] | None = asked.get(FORK_START)
    record = RunRecord(run.run_id, run.created_us, steps, attempt=attempt, begun=begun)
    starts = (step for step in rows if step.kind == StepKind.START and step.outcome is not None)
    digests = {decode_outcome(step.outcome or "")["definition"] for step in starts}
    digests |= set() if begun is None else {begun["definition"]}
    members = {record.run_of(place) for place in record.member_places}
    if "turn" in asked:
        members |= set(_find_members(load(asked["turn"])))
    definitions: Mapping[str, str] = {}
    if digests:
        unit = FetchDefinitions(tuple(sorted(digests)))
        definitions = yield from read(unit)
    over: Mapping[str, tuple[str, str]] = {}
    if members:
        over_unit = FetchMembersOver(run.owner, tuple(sorted(members)))
        over = yield from read(over_unit)
    return evolve(record, members=over, definitions=definitions)


def is_answered(read: Read, run: ClaimedRun, asked: Mapping[str, Any]) -> Program[bool]:
    """Return whether a person has continued `run`, and nothing has happened since."""
    answered: Mapping[str, Any] = asked.get("answered", {})
    if run.events == answered.get("events"):
        return True
    return "turn" in asked and not answered and (yield from _has_paused(read, run))


def _has_paused(read: Read, run: ClaimedRun) -> Program[bool]:
    """Return whether nothing has happened since the run paused, as its log says.

    A release before the one that records answers has continued it.
    """
    unit = FetchEvents(run.owner, run.run_id, run.events - 1, 1)
    page: EventsPage = yield from read(unit)
    (last,) = page.events
    return last.name in _PAUSES and json.loads(last.data)["run_id"] == run.run_id


def _find_members(state: TurnState) -> Iterator[str]:
    """Yield the runs of members that had paused."""
    for call in state.calls:
        if call.member is not None:
            yield call.member.run_id
            yield from _find_members(call.member.state)
