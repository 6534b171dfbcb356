"""The steps that the function of an agent takes: noted before they are done, and done once.

A function that is called anew, after a crash or a pause, takes its steps anew as well.  Those that
are known are given to it with their outcomes, by the ids of calls and by the keys of answers; the
text between them was heard before.  A call that had begun is in doubt, as that of a tool would be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, TypeAlias

from attrs import evolve, field

from ..http.bodies.json_text import BadJson, parse_json
from ..http.messages import compact_json
from ..models.conversation import Message, ToolCall, Usage, storable
from ..models.prices import ModelName
from ..money import number_of
from ..store.steps import StepKind
from ..tools import CallStep, ModelStep, StepEnd, render
from ..tools.accepted import is_object
from ..values import define
from .agent_turn import (
    ENDED_IN_DOUBT,
    INTERRUPTED,
    Stopped,
    Waits,
    find_overspent,
    resolve_doubt,
)
from .event_writer import EventWriter
from .events import (
    ABSENT,
    ModelRequestCompleted,
    ModelRequestStarted,
    ToolCallCompleted,
    ToolCallError,
    ToolCallStarted,
)
from .meter import ERROR, OK
from .payloads import NOT_KNOWN, call_sentence, tokens, tool_execution
from .step_outcomes import (
    MAX_OUTCOME,
    START,
    StepTooLarge,
    encode_answer,
    encode_own,
    name_own,
)
from .turn_state import CallState, RecordedAnswer, Standing, TurnState

__all__ = ["MAX_STEPS", "FunctionSteps", "Step", "find_steps"]

MAX_STEPS: Final = 1000
"""How many steps a function may take in one run."""

Step: TypeAlias = CallStep | ModelStep | StepEnd

_NOTHING: Final = Usage()
_STEPS: Final = (CallStep, ModelStep, StepEnd)
_ID: Final = 200  # characters
_ZERO: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # U+0000, which no text has that is stored
_MANY: Final = f"The run was ended: the agent took {MAX_STEPS} steps, and no more are recorded"
_TWICE: Final = "The agent began the step {} a second time"
_NOT_BEGUN: Final = "The agent ended the step {}, which it had not begun"
_NO_JSON: Final = "The agent gave the step {} a value that JSON does not have ({})"
_NO_OBJECT: Final = "The agent gave the step {} arguments that are no object"


def find_steps(value: Any) -> tuple[Step, ...] | None:
    """Return the steps that a piece of a function's answer is: one, or a tuple of several."""
    if isinstance(value, _STEPS):
        return (value,)
    if not isinstance(value, tuple):
        return None
    several: list[Any] = [*value]  # pyright: ignore[reportUnknownVariableType]
    steps = tuple(one for one in several if isinstance(one, _STEPS))
    return steps if steps and len(steps) == len(several) else None


class _Refused(Exception):
    """Leaves a step; never leaves this module."""

    def __init__(self, stopped: Stopped) -> None:
        super().__init__(stopped.sentence)
        self.stopped = stopped


@define(eq=False)
class FunctionSteps:
    """Takes the steps of one call of a function; `state` is how far the turn has come.

    Attributes:
        in_doubt: What becomes of a call in doubt that must not be made again, as in a `Turn`.
        fresh: Something was noted that is to be stored before the function goes on.
        told: The last answer of a model was known: its text was heard in an attempt before.
    """

    writer: EventWriter
    state: TurnState
    in_doubt: str
    fresh: bool = field(default=False, init=False)
    told: bool = field(default=False, init=False)
    _known: set[str] = field(init=False)
    _places: dict[str, int] = field(init=False)
    _answers: dict[str, list[RecordedAnswer]] = field(init=False)
    _ids: set[str] = field(factory=set[str], init=False)
    _counts: dict[str, int] = field(factory=dict[str, int], init=False)
    _begun: dict[int, tuple[Step, str]] = field(factory=dict[int, tuple[Step, str]], init=False)
    _asked_us: dict[int, int] = field(factory=dict[int, int], init=False)
    _again: bool = field(init=False)
    _last: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Begin anew with what is known; the messages are said once more, as the steps are."""
        state, self._again = self.state, self.writer.resumed
        own = {call.call.id: n for n, call in enumerate(state.calls) if call.place}
        self._places, self._answers = own, {}
        for answer in state.recorded:
            self._answers.setdefault(answer.key, []).append(answer)
        places = [state.calls[n].place for n in own.values()]
        self._known = {*places, *(answer.place for answer in state.recorded)}
        self._last = max((int(place.rpartition(".")[2]) for place in self._known), default=0)
        if self._known:
            self.state = evolve(state, said=state.said[:1])

    @property
    def busy(self) -> bool:
        """Whether a step has begun here and has not ended."""
        return bool(self._asked_us)

    @property
    def repeats(self) -> bool:
        """Whether the function has not yet come as far as it had before."""
        return bool(self._known)

    def take(self, steps: tuple[Step, ...]) -> Stopped | Waits | None:
        """Take steps; return why the turn goes no further, if it does not.

        None of them begins where a person is to be asked about another.
        """
        self.fresh = False
        try:
            for step in steps:
                if not isinstance(step, StepEnd):
                    self._keep(step)
            asking = [step for step in steps if isinstance(step, CallStep) and self._asks(step)]
            for step in asking or steps:
                self._take(step)
        except _Refused as refused:
            return refused.stopped
        except StepTooLarge as error:
            return Stopped("too_large", str(error))
        return self._pause() if self.state.waits else None

    def _take(self, step: Step) -> None:
        match step:
            case CallStep():
                self._begin_call(step)
            case ModelStep():
                self._begin_model(step)
            case _:
                self._end(step)

    def _pause(self) -> Waits:
        """Wait for a person; calls that have begun are broken off, so they are in doubt."""
        calls = (
            evolve(call, in_doubt=True)
            if call.place and call.standing is Standing.DUE and call.started_us is not None
            else call
            for call in self.state.calls
        )
        self.state = evolve(self.state, calls=tuple(calls))
        return Waits()

    def _place(self) -> str:
        """Return the place of the next step."""
        if self._last >= MAX_STEPS:
            raise _Refused(Stopped("max_steps", _MANY))
        self._last += 1
        return f"{START}.{self._last}"

    def _keep(self, step: CallStep | ModelStep) -> None:
        """Keep a step that begins, with its id or its key; no step begins twice."""
        if id(step) in self._begun:
            raise _Refused(Stopped("run_failed", _TWICE.format(_name(step))))
        key = self._new_id(step) if isinstance(step, CallStep) else storable(str(step.key))
        self._begun[id(step)] = (step, key)

    # Calls

    def _new_id(self, step: CallStep) -> str:
        """Return the id of a call: the second that wants the same one has a number behind it."""
        wanted = "_".join(storable(str(step.id or step.name)).split())[:_ID] or "call"
        number = self._counts.get(wanted, 0) + 1
        while (unique := wanted if number == 1 else f"{wanted}-{number}") in self._ids:
            number += 1
        self._counts[wanted] = number
        self._ids.add(unique)
        return unique

    def _asks(self, step: CallStep) -> bool:
        """Return whether a person is to be asked about a call."""
        known = self._places.get(self._begun[id(step)][1])
        if known is None:
            return _needs(step) is not None
        call = self.state.calls[known]
        return call.waits or (call.in_doubt and self._way(step) == "ask")

    def _way(self, step: CallStep) -> str:
        return resolve_doubt(step.again, self.in_doubt)

    def _begin_call(self, step: CallStep) -> None:
        _, call_id = self._begun[id(step)]
        made = ToolCall(call_id, storable(str(step.name)), _arguments(step))
        index = self._places.get(call_id)
        if index is None:
            index = self._admit(step, made)
        call = self.state.calls[index]
        self._known.discard(call.place)
        call = evolve(call, call=made, arguments=_read(made))
        if call.in_doubt:
            call = self._resolve(step, call)
        if call.standing is Standing.DUE and call.started_us is None:
            call = self._start(call)
        elif call.standing is Standing.DONE and call.ended_us is None:
            told = not call.failed and _is_json(call.result or "")
            ended_us = self.writer.journal.now_us
            call = self._tell(evolve(call, structured=told, ended_us=ended_us))
        if call.standing is Standing.DUE:
            self._asked_us[id(step)] = self.writer.journal.now_us
        self._put(index, call)
        step.key = f"{self.writer.journal.run.run_id}:{self.writer.prefix}{call.place}"
        step.confirmed, step.note = call.confirmed, call.note
        if call.standing is Standing.DONE:
            self._give(step, call)

    def _admit(self, step: CallStep, made: ToolCall) -> int:
        """Add a call that is not known to the turn, and return where it stands."""
        needs = _needs(step)
        call = CallState(
            call=made,
            created_us=self.writer.journal.now_us,
            arguments=_read(made),
            standing=needs or Standing.DUE,
            needs=needs,
            announced=needs is not None,
            place=self._place(),
        )
        if needs is not None:
            self.writer.note(ToolCallStarted(tool_execution(call)))
        index = self._places[made.id] = len(self.state.calls)
        self.state = evolve(self.state, calls=(*self.state.calls, call))
        return index

    def _resolve(self, step: CallStep, call: CallState) -> CallState:
        """Decide what becomes of a call that had begun, and of which nobody knows more."""
        way = self._way(step)
        if way == "again":
            return evolve(call, in_doubt=False)
        if way == "ask":
            return evolve(call, standing=Standing.CONFIRM, needs=Standing.CONFIRM)
        if way == "end":
            sentence = ENDED_IN_DOUBT.format(call.call.name)
            raise _Refused(Stopped(INTERRUPTED, sentence))
        return evolve(call, in_doubt=False).with_result(NOT_KNOWN, failed=True)

    def _start(self, call: CallState) -> CallState:
        """Note that a call begins."""
        call = evolve(call, started_us=self.writer.journal.now_us)
        if not call.announced:
            self.writer.note(ToolCallStarted(tool_execution(call)))
        self._note(call)
        return call

    def _note(self, call: CallState, outcome: Mapping[str, Any] | None = None) -> None:
        begun_us = call.created_us if call.started_us is None else call.started_us
        asked = name_own(call.call)
        self.writer.note_step(call.place, StepKind.CALL, asked, begun_us, outcome)
        self.fresh = True

    def _tell(self, call: CallState) -> CallState:
        """Note what became of a call."""
        execution = tool_execution(call)
        self._note(call, encode_own(call))
        if call.started_us is None:  # what a person said of it is in the log already
            return call
        self.writer.note(ToolCallCompleted(call_sentence(call), execution))
        if call.failed:
            self.writer.note(ToolCallError(execution, call.result))
        return call

    def _put(self, index: int, call: CallState) -> None:
        """Put a call into its place in the turn, and its message behind the others."""
        now_us, state = self.writer.journal.now_us, self.state.with_call(index, call)
        self.state = state.with_message(Message("assistant", "", calls=(call.call,)), now_us)

    def _give(self, step: CallStep, call: CallState) -> None:
        """Give a function the outcome of a call, and say it among the messages."""
        text = call.result or ""
        step.done, step.failed = True, call.failed
        step.result = json.loads(text) if call.structured else text
        said = Message("tool", text, call_id=call.call.id)
        self.state = self.state.with_message(said, self.writer.journal.now_us)

    # Answers of models

    def _begin_model(self, step: ModelStep) -> None:
        self.writer.heard.clear()
        known = self._answers.get(self._begun[id(step)][1])
        self.told = bool(known)
        if known:
            answer = known.pop(0)
            self._known.discard(answer.place)
            self._give_answer(step, answer.answer)
            return
        journal = self.writer.journal
        if (over := find_overspent(journal, 1)) is not None:
            raise _Refused(over)
        self._asked_us[id(step)] = journal.now_us
        message_id = f"{self.writer.origin.run.run_id}.{len(self.state.said) + 1}"
        again, self._again = True if self._again else ABSENT, False
        model, provider = storable(str(step.model)), storable(str(step.provider))
        self.writer.note_request(ModelRequestStarted(model, provider, message_id, again))

    def _give_answer(self, step: ModelStep, answer: Any) -> None:
        """Give a function an answer, of which it may do as it likes with its copy."""
        step.done, step.answer = True, json.loads(compact_json(answer))

    # Ends

    def _end(self, end: StepEnd) -> None:
        step, key = self._begun.get(id(end.step), (None, ""))
        if step is None or end.step.done:
            raise _Refused(Stopped("run_failed", _NOT_BEGUN.format(_name(end.step))))
        if isinstance(end.step, CallStep):
            self._end_call(end, end.step, key)
        else:
            self._end_model(end, end.step, key)

    def _end_call(self, end: StepEnd, step: CallStep, call_id: str) -> None:
        index = self._places[call_id]
        value = _plain(end.value)
        text, structured = _render(step, value), not isinstance(value, str)
        call = self.state.calls[index].with_result(text, failed=end.failed)
        now_us = self.writer.journal.now_us
        self._count(step, ERROR if end.failed else OK, now_us)
        call = self._tell(evolve(call, structured=structured, ended_us=now_us))
        self.state = self.state.with_call(index, call)
        self._give(step, call)

    def _end_model(self, end: StepEnd, step: ModelStep, key: str) -> None:
        writer, value = self.writer, _plain(end.value)
        text = _render(step, value)
        answer = text if isinstance(value, str) else json.loads(text)
        writer.look()
        asked_us, first_us = self._asked_us[id(step)], writer.first_us
        seconds = None if first_us is None else max(0, first_us - asked_us) / 1_000_000
        usage = self._price(step, end.usage)
        self._count(step, OK, writer.journal.now_us, usage)
        outcome = encode_answer(key, answer, usage, seconds)
        place = self._place()
        model = storable(str(step.model))
        writer.note_step(place, StepKind.MODEL, model, asked_us, outcome)
        self.fresh = True
        recorded = RecordedAnswer(place=place, key=key, answer=answer)
        state = self.state
        self.state = evolve(
            state,
            recorded=(*state.recorded, recorded),
            rounds=state.rounds + 1,
            usage=state.usage.plus(usage),
            first_seconds=seconds if state.first_seconds is None else state.first_seconds,
        )
        writer.note(
            ModelRequestCompleted(
                model=model,
                model_provider=storable(str(step.provider)),
                time_to_first_token=ABSENT if seconds is None else seconds,
                **tokens(usage),
                cost=ABSENT if usage.cost_nano is None else number_of(usage.cost_nano),
            )
        )
        self._give_answer(step, answer)

    def break_off(self, outcome: str, ended_us: int | None = None) -> None:
        """Count the steps that have begun and will not end; `ended_us` is when, if that is known.

        `outcome`: `error` where the function failed, `cancelled` where it was closed.
        """
        for step, _ in self._begun.values():
            self._count(step, outcome, ended_us)

    def _count(
        self, step: Step, outcome: str, ended_us: int | None, usage: Usage = _NOTHING
    ) -> None:
        """Count a step that the function was taking, once."""
        asked_us = self._asked_us.pop(id(step), None)
        if asked_us is None:
            return
        meter, component = self.writer.journal.meter, self.writer.origin.run.component_id
        took_us = None if ended_us is None else ended_us - asked_us
        if isinstance(step, CallStep):
            meter.count_call(component, _name(step), outcome, took_us)
            return
        heard_us = self.writer.first_us if outcome == OK else None
        first_us = None if heard_us is None else heard_us - asked_us
        model = _model(step)
        meter.count_request(component, model, outcome, took_us, usage, first_us)

    def _price(self, step: ModelStep, usage: Usage) -> Usage:
        """Count what an answer used, and return that with its price."""
        journal = self.writer.journal
        if journal.prices is not None or usage.cost_nano is not None:
            usage = journal.price(_model(step), usage)
        journal.count(usage)
        return usage


def _model(step: Step) -> ModelName:
    model, provider = getattr(step, "model", ""), getattr(step, "provider", "")
    return ModelName(storable(str(model)), storable(str(provider)))


def _name(step: Step) -> str:
    return storable(str(step.name if isinstance(step, CallStep) else getattr(step, "model", "")))


def _needs(step: CallStep) -> Standing | None:
    """Return what a call waits for before it is made; None where it is made at once."""
    if step.external_execution:
        return Standing.EXTERNAL
    return Standing.CONFIRM if step.requires_confirmation else None


def _arguments(step: CallStep) -> str:
    text = _render(step, step.arguments)
    if not is_object(parse_json(text.encode())):
        raise _Refused(Stopped("run_failed", _NO_OBJECT.format(_name(step))))
    return text


def _read(made: ToolCall) -> Mapping[str, Any]:
    arguments: Mapping[str, Any] = json.loads(made.arguments)
    return arguments


def _is_json(text: str) -> bool:
    """Return whether what a person told is JSON, and so a value."""
    return not isinstance(parse_json(text.encode()), BadJson)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _render(step: Step, value: Any) -> str:
    """Return a value as text: JSON that can be read again, but for a text."""
    text = render(value, MAX_OUTCOME)
    if text is None:
        raise _Refused(Stopped("run_failed", _NO_JSON.format(_name(step), type(value).__name__)))
    if len(text) > MAX_OUTCOME:
        raise StepTooLarge(START, _name(step), len(text))
    if isinstance(value, str):
        return text
    text = _ZERO.sub("\\1\ufffd", text)
    if isinstance(bad := parse_json(text.encode()), BadJson):
        raise _Refused(Stopped("run_failed", _NO_JSON.format(_name(step), bad.reason)))
    return text
