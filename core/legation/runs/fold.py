"""The fold of the steps of a run: how far its turn had come when its executor went away.

It begins with the turn as it began, or as it stood at the last pause, and adds what the steps say.
A step that is in the turn already is passed over, so it makes no difference which of them were
stored before the pause.  A call that had begun, and of which nobody knows more, is due and in
doubt; the turn decides what becomes of it.  The turn of a member is folded within the call that it
was given, of the steps below the place of that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from attrs import evolve, field

from ..models.conversation import Message, Usage
from ..money import nano_of
from ..store.run_states import RunState
from ..store.steps import COPIED, Definition, Step, StepKind
from ..values import copy_with, frozen
from .ids import member_run_id
from .step_outcomes import (
    OF_SUMMARY,
    START,
    decode_answer,
    decode_call,
    decode_calls,
    decode_model,
    decode_outcome,
    decode_own,
    decode_usage,
    own_number,
)
from .turn_state import CallState, MemberState, ModelTurn, Standing, TurnState

__all__ = ["RunRecord", "find_last", "fold"]

# A run may have waited since it was asked for, and a member may have gone on after a crash.
_LONG_AGO: Final = (StepKind.START, StepKind.MEMBER)
_OVER: Final = tuple(state.value for state in RunState if state.final)


@frozen
class RunRecord:
    """The record of a run: all by which it goes on after a crash.

    Attributes:
        run_id: The run at the top.
        created_us: When that was asked for.
        steps: Its steps, by their places.
        members: The runs of its members that are over, or wait: status and output, by their ids.
        definitions: The documents of the definitions that the steps name, by their digests.
        attempt: The attempt that ended at the last pause, 0 where there was none.
        begun: The start of the run that this one is a fork of, as long as it has none of its own.
    """

    run_id: str
    created_us: int
    steps: Mapping[str, Step]
    members: Mapping[str, tuple[str, str]] = field(factory=dict[str, tuple[str, str]])
    definitions: Mapping[str, str] = field(factory=dict[str, str])
    attempt: int = 0
    begun: Mapping[str, Any] | None = None

    def start(self, prefix: str = "") -> Mapping[str, Any] | None:
        """Return what is known of a start; None where nothing is."""
        step = self.steps.get(prefix + START)
        if step is not None and step.outcome is not None:
            return decode_outcome(step.outcome)
        return None if prefix else self.begun

    def define(self, start: Mapping[str, Any], kind: str, component_id: str) -> Definition:
        """Return the definition that a start names."""
        digest: str = start["definition"]
        return Definition(digest, kind, component_id, self.definitions[digest])

    def instructions(self, prefix: str, now: str | None) -> str | None:
        """Return the instructions with which a run began; `now` where nobody knows them."""
        start = self.start(prefix) or {}
        if "instructions" in start:  # what a function said
            said: str | None = start["instructions"]
            return said
        document = self.definitions.get(start.get("definition", ""))
        if document is None:
            return now
        instructions: str | None = json.loads(document)["instructions"]
        return instructions

    def sum_work_us(self, prefix: str = "") -> int:
        """Return how long the attempts since the last pause worked, as far as steps say so."""
        spans: dict[int, tuple[int, int]] = {}
        for place, step in self.steps.items():
            if step.attempt > self.attempt and place.startswith(prefix):
                ended_us = step.begun_us if step.ended_us is None else step.ended_us
                begun_us = ended_us if step.kind in _LONG_AGO else step.begun_us
                first, last = spans.get(step.attempt, (begun_us, ended_us))
                spans[step.attempt] = (min(first, begun_us), max(last, ended_us))
        return sum(last - first for first, last in spans.values())

    def sum_usage(self) -> Usage:
        """Return what the models used and cost since the last pause, as steps say so."""
        whole, known, members = Usage(), dict[str, Usage](), list[str]()
        for place, step in self.steps.items():
            if step.kind in (StepKind.START, StepKind.MODEL) and step.outcome:
                outcome = decode_outcome(step.outcome)
                usage = decode_usage(outcome)
                if step.kind == StepKind.START:
                    usage = usage.plus(decode_usage(outcome, OF_SUMMARY))
                if step.attempt > self.attempt:
                    whole = whole.plus(usage)
                if "/" in place:
                    turn = place.rpartition("/")[0]
                    known[turn] = known.get(turn, Usage()).plus(usage)
            elif step.kind == StepKind.MEMBER:
                members.append(place)
        for place in members:
            whole = whole.plus(self._find_rest(place, known.get(place, Usage())))
        return whole

    def _find_rest(self, place: str, known: Usage) -> Usage:
        """Return what a member that is over since the last pause used beside what is `known`.

        That is its last answer, which no step has, and what failed.
        """
        step = self.steps[place]
        counted = step.outcome is not None and step.attempt <= self.attempt
        status, output = self.members.get(self.run_of(place), ("", ""))
        if step.attempt == COPIED or counted or status not in _OVER:
            return Usage()
        metrics = json.loads(output).get("metrics", {})
        cost = nano_of(metrics.get("cost"))
        return Usage(
            max(0, metrics.get("input_tokens", 0) - known.input_tokens),
            max(0, metrics.get("output_tokens", 0) - known.output_tokens),
            cost_nano=None if cost is None else max(0, cost - (known.cost_nano or 0)),
        )

    def start_turn(self, prefix: str, state: TurnState) -> TurnState:
        """Return the turn as the guards left it that acted before the run."""
        start, step = self.start(prefix) or {}, self.steps.get(prefix + START)
        if "message" in start:
            state = state.with_last_text(start["message"])
        if step is None or step.attempt == COPIED:
            return state
        return evolve(state, usage=state.usage.plus(decode_usage(start)))

    @property
    def member_places(self) -> tuple[str, ...]:
        """The places of the calls that were given to members."""
        return tuple(p for p, step in self.steps.items() if step.kind == StepKind.MEMBER)

    def run_of(self, place: str) -> str:
        """Return the id of the run of the member that has the call at `place`.

        One that was over before the run was forked is of the run that this is a fork of.
        """
        step = self.steps.get(place)
        if step is not None and step.attempt == COPIED and step.outcome is not None:
            run_id: str = decode_outcome(step.outcome).get("run", "")
            return run_id
        return member_run_id(self.run_id, place, self.created_us)


def find_last(steps: Iterable[Step]) -> tuple[str, str]:
    """Return where a run stands: the place, and what was asked there.

    It is the step that began last and has no outcome, else the next answer of the model.
    """
    known = sorted(steps, key=lambda step: (step.begun_us, step.place))
    if begun := [step for step in known if step.outcome is None]:
        return begun[-1].place, begun[-1].asked
    answers = [step for step in known if step.kind == StepKind.MODEL]
    if not answers:
        return "1", "the model"
    prefix, slash, number = answers[-1].place.rpartition("/")
    beside, dot, last = number.rpartition(".")  # `0.3` of a function
    return f"{prefix}{slash}{beside}{dot}{int(last) + 1}", answers[-1].asked


def fold(record: RunRecord, prefix: str, base: TurnState) -> TurnState:
    """Return the turn whose places begin with `prefix`, which was `base` before its steps."""
    taken = base.recorded or (base.calls and base.calls[-1].place)
    if base.rounds == len(base.recorded) and (taken or f"{prefix}{START}.1" in record.steps):
        own = _find_own(record, prefix)
        if own or taken:
            return _fold_own(record, prefix, base, own)
    folding = _Folding(record, prefix, base)
    folding.add_results()
    while folding.add_answer():
        folding.add_results()
    return folding.state


def _find_own(record: RunRecord, prefix: str) -> dict[str, Step]:
    """Return the steps of the function of an agent, by their places in its turn, in order."""
    numbers = ((own_number(prefix, step), step) for step in record.steps.values())
    found = {number: step for number, step in numbers if number is not None}
    return {f"{START}.{number}": found[number] for number in sorted(found)}


def _fold_own(
    record: RunRecord, prefix: str, base: TurnState, own: Mapping[str, Step]
) -> TurnState:
    """Return the turn of the function of an agent, with the steps that it took."""
    calls = {call.place or call.call.id: call for call in base.calls}
    recorded = {answer.place: answer for answer in base.recorded}
    usage, seconds = base.usage, base.first_seconds
    for place, step in own.items():
        if step.kind == StepKind.MODEL and place not in recorded and step.outcome is not None:
            members = decode_outcome(step.outcome)
            recorded[place] = decode_answer(place, members)
            answer = decode_model(members, step.ended_us or step.begun_us)
            usage = usage.plus(answer.usage)
            seconds = answer.seconds if seconds is None else seconds
        elif step.kind == StepKind.CALL:
            calls[place] = _fold_own_call(calls.get(place), decode_own(place, step))
    return evolve(
        base,
        calls=tuple(calls.values()),
        recorded=tuple(recorded.values()),
        rounds=len(recorded),
        usage=usage,
        first_seconds=seconds,
        worked_us=base.worked_us + record.sum_work_us(prefix),
    )


def _fold_own_call(known: CallState | None, stored: CallState) -> CallState:
    """Return a call of a function: as it paused, with what its step knows since."""
    if known is None:
        return stored
    if known.standing is Standing.DONE:
        return evolve(known, ended_us=stored.ended_us)
    asked = evolve(stored, needs=known.needs, confirmed=known.confirmed, note=known.note)
    if stored.standing is Standing.DONE:
        return asked
    return evolve(asked, call=known.call, arguments=known.arguments)


class _Folding:
    """A turn in the making, in lists: a thousand steps are added in one go."""

    def __init__(self, record: RunRecord, prefix: str, base: TurnState) -> None:
        self._record, self._prefix, self._base = record, prefix, base
        self._said, self._calls = list(base.said), list(base.calls)
        self._answered, self._rounds = base.answered, base.rounds
        self._usage, self._seconds = base.usage, base.first_seconds
        self._corrected, self._message = base.corrected, base.message

    @property
    def state(self) -> TurnState:
        """The turn so far."""
        base = self._base
        return copy_with(
            base,
            said=tuple(self._said),
            calls=tuple(self._calls),
            answered=self._answered,
            rounds=self._rounds,
            usage=self._usage,
            worked_us=base.worked_us + self._record.sum_work_us(self._prefix),
            first_seconds=self._seconds,
            corrected=self._corrected,
            message=self._message,
        )

    def add_results(self) -> None:
        """Add what became of the calls of the last answer."""
        for index in range(self._answered, len(self._calls)):
            call = self._calls[index]
            place = f"{self._prefix}{self._rounds}.{index - self._answered + 1}"
            step = self._record.steps.get(place)
            if call.standing is Standing.DONE:
                if step is not None and step.outcome is not None:  # a person has told it
                    self._calls[index] = copy_with(call, ended_us=step.ended_us)
            elif step is not None:
                self._calls[index] = self._fold_call(call, place, step)
            elif call.member is not None:  # it paused at a release that kept no steps
                self._calls[index] = self._fold_member(call, place)

    def add_answer(self) -> bool:
        """Add the next answer of the model, and return whether there is one."""
        step = self._record.steps.get(f"{self._prefix}{self._rounds + 1}")
        open_calls = self._calls[self._answered :]
        if step is None or step.outcome is None or not all(map(_is_done, open_calls)):
            return False
        answer = decode_model(decode_outcome(step.outcome), step.ended_us or step.begun_us)
        self._said += [
            ModelTurn(Message("tool", call.result or "", call_id=call.call.id), step.begun_us)
            for call in open_calls
        ]
        if answer.prompt is not None:
            self._change_last(answer.prompt)
        at_us = step.ended_us or step.begun_us
        self._said.append(ModelTurn(answer.message, at_us))
        if answer.correction:
            self._said.append(ModelTurn(Message("user", answer.correction), at_us))
            self._corrected = True
        self._answered = len(self._calls)
        self._calls += answer.calls
        self._rounds += 1
        if step.attempt != COPIED:
            self._usage = self._usage.plus(answer.usage)
            self._seconds = answer.seconds if self._seconds is None else self._seconds
        return True

    def _change_last(self, text: str) -> None:
        """Put the text of a guard in place of that of the last message."""
        last = self._said[-1]
        self._said[-1] = ModelTurn(evolve(last.message, content=text), last.at_us)
        if len(self._said) == 1:
            self._message = text

    def _fold_call(self, call: CallState, place: str, step: Step) -> CallState:
        if step.outcome is not None:
            done = decode_call(call, decode_outcome(step.outcome), step)
            return copy_with(done, response=self._find_response(done.child_run_id))
        begun = copy_with(call, standing=Standing.DUE, started_us=step.begun_us, announced=True)
        if step.kind != StepKind.MEMBER:
            return copy_with(begun, in_doubt=True)
        return self._fold_member(begun, place)

    def _fold_member(self, call: CallState, place: str) -> CallState:
        """Return a call that was given to a member: with its output, or with how far it came."""
        record, below = self._record, f"{place}/"
        run_id = record.run_of(place) if call.member is None else call.member.run_id
        if (over := self._find_response(run_id)) is not None:
            return copy_with(call, member=None, child_run_id=run_id, response=over)
        member = call.member or self._begin_member(call, run_id, below)
        if member is None:
            return call
        return copy_with(call, member=evolve(member, state=fold(record, below, member.state)))

    def _find_response(self, run_id: str | None) -> Mapping[str, Any] | None:
        """Return the run of a member as clients read it; None where it is not over."""
        status, output = self._record.members.get(run_id or "", ("", ""))
        response: Mapping[str, Any] | None = json.loads(output) if status in _OVER else None
        return response

    def _begin_member(self, call: CallState, run_id: str, below: str) -> MemberState | None:
        """Return a member as it began; None where nobody knows that it did."""
        start, step = self._record.start(below), self._record.steps.get(below + START)
        if start is None or step is None:
            return None
        instructions, at_us = self._record.instructions(below, None), step.begun_us
        before = () if instructions is None else (Message("system", instructions),)
        task = evolve(self._said[0].message, content=call.arguments["task"])
        state = TurnState(before=before, said=(ModelTurn(task, at_us),))
        state = self._record.start_turn(below, state)
        if calls := decode_calls(start.get("calls", ()), at_us):
            state = state.with_calls(calls, at_us)
        return MemberState(
            run_id=run_id,
            kind=start["kind"],
            component_id=step.asked,
            name=start["name"],
            created_us=at_us,
            state=state,
        )


def _is_done(call: CallState) -> bool:
    return call.standing is Standing.DONE
