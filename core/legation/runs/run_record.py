"""The reader of the steps of a run that goes on after a crash."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ..effects import Program
from ..store.run_reads import FetchEvents
from ..store.run_rows import ClaimedRun
from ..store.steps import FetchDefinitions, FetchMembersOver, FetchSteps, StepKind
from .fold import RunRecord
from .retry import never, persist
from .step_outcomes import decode_outcome
from .turn_state import TurnState, load

__all__ = ["fetch_record"]

_PAUSES: Final = ("RunPaused", "TeamRunPaused")


def fetch_record(
    database: str,
    run: ClaimedRun,
    asked: Mapping[str, Any],
    is_over: Callable[[], bool] = never,
) -> Program[RunRecord | None]:
    """Return the record of `run`, which has events; None where a person has continued it.

    `is_over`: whether the process ends, and waits no longer for its database.

    Raises:
        StoreFailure: The database does not answer.
        UnknownOutcome: A later version of this code stored it.
    """
    answered: Mapping[str, Any] = asked.get("answered", {})
    if run.events == answered.get("events"):
        return None
    if "turn" in asked and not answered and (yield from _has_paused(database, run, is_over)):
        return None
    rows = yield from persist(database, FetchSteps(run.owner, run.run_id), is_over)
    steps = {step.place: step for step in rows}
    attempt = answered.get("attempt", 0)
    record = RunRecord(run.run_id, run.created_us, steps, attempt=attempt)
    starts = (step for step in rows if step.kind == StepKind.START and step.outcome is not None)
    digests = {decode_outcome(step.outcome or "")["definition"] for step in starts}
    members = {record.run_of(place) for place in record.member_places}
    if "turn" in asked:
        members |= set(_find_members(load(asked["turn"])))
    definitions: Mapping[str, str] = {}
    if digests:
        unit = FetchDefinitions(tuple(sorted(digests)))
        definitions = yield from persist(database, unit, is_over)
    over: Mapping[str, tuple[str, str]] = {}
    if members:
        over_unit = FetchMembersOver(run.owner, tuple(sorted(members)))
        over = yield from persist(database, over_unit, is_over)
    return RunRecord(run.run_id, run.created_us, steps, over, definitions, attempt)


def _has_paused(database: str, run: ClaimedRun, is_over: Callable[[], bool]) -> Program[bool]:
    """Return whether nothing has happened since the run paused, as its log says.

    A release before the one that records answers has continued it.
    """
    unit = FetchEvents(run.owner, run.run_id, run.events - 1, 1)
    page = yield from persist(database, unit, is_over)
    (last,) = page.events
    return last.name in _PAUSES and json.loads(last.data)["run_id"] == run.run_id


def _find_members(state: TurnState) -> Iterator[str]:
    """Yield the runs of members that had paused."""
    for call in state.calls:
        if call.member is not None:
            yield call.member.run_id
            yield from _find_members(call.member.state)
