"""The trail of a run: its places, and what a fork at one of them begins with.

A place is an answer of the model, `3`, or a call, `3.2`: the second of the third answer.  A fork at
an answer has all that came before it, and asks the model anew.  A fork at a call has the answer
that wants it, and what came of the calls beside it, which do not depend on it; it makes that call
anew, or takes an outcome that somebody gives.  Nothing else that was done is done again.

Answers and calls are found among the steps.  The last answer is no step, and neither is a call that
a person settled: what came of that stands in the output of the run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from attrs import evolve, field

from ..models.conversation import Message
from ..store.forks import RunFork
from ..store.run_rows import RunRow
from ..store.run_states import RunState
from ..store.session_state import EMPTY, StateChange, apply, encode_value
from ..store.steps import Step, StepKind
from ..store.usage import count_octets
from ..tools import MAX_RESULT, render
from ..values import frozen
from .fold import RunRecord, fold
from .output import run_output
from .step_outcomes import (
    START,
    decode_calls,
    decode_model,
    decode_outcome,
    encode_call,
    encode_outcome,
)
from .team_turn import DELEGATE
from .terms import OF_HISTORY
from .turn_state import CallState, ModelTurn, Standing, TurnState

__all__ = [
    "BEGINNING",
    "Place",
    "Trail",
    "WrongPlace",
    "describe_origin",
    "is_at_rest",
    "parse_place",
    "read_trail",
]

_PLACE: Final = re.compile(r"(0|[1-9][0-9]{0,8})(?:\.([1-9][0-9]{0,8}))?")
_OF_MEMBER: Final = re.compile(r"([0-9]{1,9}\.[0-9]{1,9})/[0-9./]{1,200}")
_MALFORMED: Final = (
    "must be a place, such as 2 for the second answer of the model or 2.1 for its first call, or"
    " the id of an event of the run"
)
_BELOW: Final = "is a place of a member: fork at {}, where the member was given its task"
_NONE: Final = "the run has no place {}; {}"
_LAST: Final = "its last is {}"
_NOT_MADE: Final = "the call at {} was never made: fork at {}, to ask the model again"
_BESIDE: Final = "the call at {}, beside it, did not come to its end: fork {}"
_ANEW: Final = "from the beginning"
_OF_OTHER: Final = "is an event of a member's run: name a place of the run that it is part of"
_LARGE: Final = f"has more than {MAX_RESULT} characters, as many as the result of a call may have"


@frozen
class Place:
    """A place of a run: an answer of the model, counted from 1, or a call of it.

    `call` is 0 for the answer itself; the calls of `round` 0 are those that nobody asked for: the
    tasks of a team that collaborates.
    """

    round: int
    call: int = 0

    def __str__(self) -> str:
        return f"{self.round}.{self.call}" if self.call else str(self.round)


BEGINNING: Final = Place(0)
"""The place of a fork that has no step: the run begins anew."""


@frozen
class WrongPlace:
    """A place, or an outcome, that a run cannot be forked with; `field` is the one at fault."""

    sentence: str
    field: str = "at"


def parse_place(text: str) -> Place | WrongPlace:
    """Return the place that is written so; that of a member below is refused."""
    if (below := _OF_MEMBER.fullmatch(text)) is not None:
        return WrongPlace(_BELOW.format(below[1]))
    found = _PLACE.fullmatch(text)
    if found is None or text == START:
        return WrongPlace(_MALFORMED)
    return Place(int(found[1]), int(found[2] or 0))


@frozen
class Trail:
    """The steps of a run, and all that its output says beside them.

    Attributes:
        asked: Its input.
        steps: By their places; those among them that are `told` are no rows of the database.
        answers: The calls of each answer, as they were admitted; the first are those of round 0.
        told: The steps of calls that people settled.
        state: The turn as far as steps say how it went.
    """

    row: RunRow
    asked: Mapping[str, Any]
    steps: Mapping[str, Step]
    answers: tuple[tuple[CallState, ...], ...]
    told: tuple[Step, ...]
    state: TurnState = field(eq=False)

    @property
    def last(self) -> Place:
        """The last answer of the model that can be asked for anew, or the last call."""
        calls, number = self.answers[-1], len(self.answers) - 1
        over = all(self.is_done(Place(number, n)) for n in range(1, len(calls) + 1))
        if not over or any(map(self._is_final, self._places_of(number))):
            return Place(number, len(calls))
        return Place(number + 1)

    def _places_of(self, number: int) -> Iterable[Place]:
        return tuple(Place(number, n) for n in range(1, len(self.answers[number]) + 1))

    def is_done(self, place: Place) -> bool:
        """Return whether a call came to its end."""
        call, step = self.answers[place.round][place.call - 1], self.steps.get(str(place))
        return call.standing is Standing.DONE or (step is not None and step.outcome is not None)

    def _is_final(self, place: Place) -> bool:
        """Return whether what came of a call is the answer of the run."""
        step = self.steps.get(str(place))
        return step is not None and bool(step.outcome and decode_outcome(step.outcome).get("last"))

    def check(self, place: Place) -> WrongPlace | None:
        """Return why the run cannot be forked at `place`, if it cannot."""
        last = self.last
        known = place.round <= last.round
        if place.call:
            known = place.round < len(self.answers)
            known = known and place.call <= len(self.answers[place.round])
        if not known:
            return WrongPlace(_NONE.format(place, _LAST.format(last)))
        return self._check_call(place) if place.call else None

    def _check_call(self, place: Place) -> WrongPlace | None:
        if self.answers[place.round][place.call - 1].standing is Standing.DONE:
            return WrongPlace(_NOT_MADE.format(place, place.round))
        for beside in self._places_of(place.round):
            step = self.steps.get(str(beside))
            if beside != place and step is not None and step.outcome is None:
                instead = f"at {place.round}" if place.round else _ANEW
                return WrongPlace(_BESIDE.format(beside, instead))
        return None

    def keeps(self, step_place: str, at: Place) -> bool:
        """Return whether a fork at `at` has the step at `step_place`."""
        number = int(step_place.partition(".")[0])
        if not at.call:
            return number < at.round
        call = str(at)
        beside = step_place != call and not step_place.startswith(f"{call}/")
        return number <= at.round and beside

    def fork(self, at: Place, outcome: Any, *, told_history: bool) -> RunFork | WrongPlace:
        """Return what a fork at `at` begins with; `outcome` is given for its call, if it is one.

        `told_history`: it is told the history of the run, and has the step of its start.
        """
        added = [step for step in self.told if self.keeps(step.place, at)]
        if outcome is not None:
            given = self._give(at, outcome)
            if isinstance(given, WrongPlace):
                return given
            added.append(given)
        other = {step.place for step in self.told}
        if not told_history:
            other.add(START)
        rows = [step for place, step in self.steps.items() if place not in other]
        texts = [step.outcome for step in rows if self.keeps(step.place, at)]
        return RunFork(
            source=self.row.run_id,
            attempt=self.row.attempt,
            last=at.round if at.call else at.round - 1,
            call=str(at) if at.call else "",
            start=told_history,
            added=tuple(added),
            bytes=count_octets((*texts, *(step.outcome for step in added))),
        )

    def _give(self, at: Place, outcome: Any) -> Step | WrongPlace:
        """Return the step of a call with an outcome that somebody gives."""
        call, step = self.answers[at.round][at.call - 1], self.steps.get(str(at))
        result = render(outcome) or ""
        if len(result) > MAX_RESULT:
            return WrongPlace(_LARGE, "outcome")
        done = call.with_result(result, last=self._is_final(at))
        kind, asked = _ask(call) if step is None else (step.kind, step.asked)
        begun_us = call.created_us if step is None else step.begun_us
        ended_us = begun_us if step is None or step.ended_us is None else step.ended_us
        text = encode_outcome(str(at), asked, encode_call(done))
        return Step(str(at), kind, asked, begun_us, ended_us, text)

    def start(self) -> Mapping[str, Any] | None:
        """Return the start of the run, as the input of a fork has it; None where it has none."""
        step = self.steps.get(START)
        if step is None or step.outcome is None:
            return None
        members = decode_outcome(step.outcome)
        return {
            name: members[name]
            for name in members
            if name not in ("f", "usage", "cost", *OF_HISTORY)
        }

    def find_place(self, name: str, data: str) -> Place | WrongPlace | None:
        """Return the place at which an event happened; None where an earlier one says it."""
        fields: Mapping[str, Any] = json.loads(data)
        if fields["run_id"] != self.row.run_id:
            return WrongPlace(_OF_OTHER)
        if name.endswith("RunStarted"):
            return BEGINNING
        if (tool := fields.get("tool")) is not None:
            return next(self._find_call(tool["tool_call_id"]), None)
        if "message_id" not in fields:
            return None
        number = int(fields["message_id"].rpartition(".")[2])
        said = [n for n, one in enumerate(self.state.said, 1) if one.message.role == "assistant"]
        answers = said[1:] if self.answers[0] else said
        return Place(1 + sum(earlier < number for earlier in answers))

    def _find_call(self, call_id: str) -> Iterator[Place]:
        for number, calls in enumerate(self.answers):
            for n, call in enumerate(calls, 1):
                if call.call.id == call_id:
                    yield Place(number, n)

    def find_state(self, at: Place, before: str | None, *, whole: bool) -> str:
        """Return the state of the session at `at`, as JSON.

        `before` is what the run before this one left; None where that is not known.  A key that
        the run wrote behind `at` has the value that it had by then, as far as it is known; all
        others have those that the run left.  `whole` False: it wrote more than steps say.
        """
        kept, touched = list[StateChange](), set[str]()
        for place, step in sorted(self.steps.items(), key=lambda item: item[1].ended_us or 0):
            change = _read_change(step)
            if self.keeps(place, at):
                kept.append(change)
            else:
                touched |= set(change.keys)
        earlier: Mapping[str, Any] = json.loads(apply(before or EMPTY, *kept))
        left = run_output(self.row).get("session_state")
        if left is None or not whole:
            return encode_value(earlier)
        hidden = self.asked.get("state_claims", {}).get("names", ())
        state = {name: left[name] for name in left if name not in {*touched, *hidden}}
        return encode_value({**state, **{n: earlier[n] for n in sorted(touched) if n in earlier}})


def _read_change(step: Step) -> StateChange:
    """Return what a call wrote to the state of the session."""
    if step.kind != StepKind.CALL or step.outcome is None:
        return StateChange()
    written: Mapping[str, Any] = decode_outcome(step.outcome).get("state", {})
    values = tuple((key, encode_value(value)) for key, value in written.get("set", {}).items())
    return StateChange(values, tuple(written.get("deleted", ())))


def _ask(call: CallState) -> tuple[str, str]:
    """Return the kind of the step of a call, and whom or what it asks."""
    if call.call.name == DELEGATE and isinstance(member := call.arguments.get("member_id"), str):
        return StepKind.MEMBER, member
    return StepKind.CALL, call.call.name


def read_trail(row: RunRow, steps: Iterable[Step]) -> Trail:
    """Return the trail of a run of which these are the steps.

    Raises:
        UnknownOutcome: A later version of this code stored one of them.
    """
    asked: Mapping[str, Any] = json.loads(row.input)
    known = {step.place: step for step in steps}
    record = RunRecord(row.run_id, row.created_us, known)
    start = record.start() or {}
    answers = [decode_calls(start.get("calls", ()), row.created_us)]
    while (step := known.get(str(len(answers)))) is not None and step.outcome is not None:
        at_us = step.ended_us or step.begun_us
        answers.append(decode_model(decode_outcome(step.outcome), at_us).calls)
    told = _find_told(row, known, answers)
    known |= {step.place: step for step in told}
    said = ModelTurn(Message("user", asked["message"]), row.created_us)
    base = TurnState(said=(said,))
    if answers[0]:
        base = base.with_calls(answers[0], row.created_us)
    state = fold(evolve(record, steps=known), "", base)
    return Trail(row, asked, known, tuple(answers), told, state)


def _find_told(
    row: RunRow, steps: Mapping[str, Step], answers: Iterable[tuple[CallState, ...]]
) -> tuple[Step, ...]:
    """Return the steps of calls that people settled, which the output of the run shows as over."""
    open_calls = {
        call.call.id: (str(Place(number, n)), call)
        for number, calls in enumerate(answers)
        for n, call in enumerate(calls, 1)
        if call.standing is not Standing.DONE and str(Place(number, n)) not in steps
    }
    if not open_calls:
        return ()
    told: list[Step] = []
    for shown in run_output(row).get("tools", ()):
        place, call = open_calls.get(shown["tool_call_id"], ("", None))
        if call is None or shown["tool_call_error"] is None or "member_run_id" in shown:
            continue
        done = call.with_result(shown["result"] or "", failed=shown["tool_call_error"])
        outcome = encode_outcome(place, call.call.name, encode_call(done))
        at_us = call.created_us
        told.append(Step(place, StepKind.CALL, call.call.name, at_us, at_us, outcome))
    return tuple(told)


def is_at_rest(row: RunRow) -> bool:
    """Return whether nobody executes the run, and it does not wait for its turn either."""
    state = RunState(row.status)
    return state.final or state is RunState.PAUSED


def describe_origin(run_id: str, at: Place) -> dict[str, Any]:
    """Return what a fork says of the run that it is a fork of."""
    return {"run_id": run_id, "at": None if at == BEGINNING else str(at)}
