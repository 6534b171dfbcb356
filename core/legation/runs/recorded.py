"""What is recorded of a run that goes on after a crash, read from its database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..effects import Program
from ..store.run_rows import ClaimedRun
from ..store.steps import FetchDefinitions, FetchMembersOver, FetchSteps, StepKind
from .fold import Recorded
from .retry import persist
from .step_outcomes import decode_outcome
from .turn_state import TurnState, load

__all__ = ["fetch_recorded"]


def fetch_recorded(
    database: str, run: ClaimedRun, asked: Mapping[str, Any]
) -> Program[Recorded | None]:
    """Return what is recorded of `run`, which has events; None where a person has continued it.

    Raises:
        StoreFailure: The database does not answer.
        UnknownOutcome: A later version of this code stored it.
    """
    answered: Mapping[str, Any] = asked.get("answered", {})
    if run.events == answered.get("events") or ("turn" in asked and not answered):
        return None
    rows = yield from persist(database, FetchSteps(run.owner, run.run_id))
    steps = {step.place: step for step in rows}
    attempt = answered.get("attempt", 0)
    recorded = Recorded(run.run_id, run.created_us, steps, attempt=attempt)
    starts = (step for step in rows if step.kind == StepKind.START and step.outcome is not None)
    digests = {decode_outcome(step.outcome or "")["definition"] for step in starts}
    members = {recorded.run_of(place) for place in recorded.member_places}
    if "turn" in asked:
        members |= set(_find_members(load(asked["turn"])))
    definitions: Mapping[str, str] = {}
    if digests:
        unit = FetchDefinitions(tuple(sorted(digests)))
        definitions = yield from persist(database, unit)
    over: Mapping[str, tuple[str, str]] = {}
    if members:
        over = yield from persist(database, FetchMembersOver(run.owner, tuple(sorted(members))))
    return Recorded(run.run_id, run.created_us, steps, over, definitions, attempt)


def _find_members(state: TurnState) -> Iterator[str]:
    """Yield the runs of members that had paused."""
    for call in state.calls:
        if call.member is not None:
            yield call.member.run_id
            yield from _find_members(call.member.state)
