"""The turn of one agent, or of the leader of a team: model, tools, and the model again.

The loop is over a value (`TurnState`), so it ends in one of three ways: with an answer, at a limit,
or where it cannot go on without a person; from there the same loop goes on with the same value.

What is recorded before what: that a tool is called is stored before it is called, and what came of
it before the model sees it.  So whoever goes on with the run after a crash knows what may have
happened.  A call that had begun, and of which nobody knows more, is in doubt: it is called again
where its tool allows that, else a person is asked, the model is told, or the run ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from attrs import evolve, field

from ..effects import NOW, Concurrently, Program
from ..hosted.guards import APPROVE
from ..models.conversation import (
    Message,
    ModelFailed,
    ModelProtocol,
    Prompt,
    Reply,
    ToolCall,
    ToolSpec,
    Usage,
    storable,
)
from ..models.media import fit
from ..money import number_of, render_usd
from ..store.failures import StoreFailure
from ..store.steps import StepKind
from ..tools import Again
from ..tools.shapes import Shape
from ..tools.structured import check_output
from ..values import copy_with, define, frozen
from .event_writer import EventWriter, Journal
from .events import (
    ABSENT,
    ModelRequestCompleted,
    ModelRequestStarted,
    ToolCallCompleted,
    ToolCallError,
    ToolCallStarted,
)
from .guarding import Guards
from .meter import CANCELLED, ERROR, OK, OTHER, REJECTED
from .model_order import ask_in_order
from .model_places import call_in_turn
from .model_requests import ask_model
from .payloads import NOT_KNOWN, call_sentence, tokens, tool_execution
from .step_outcomes import StepTooLarge, encode_call, encode_model
from .turn_state import CallState, Standing, TurnState, unlike

__all__ = [
    "AT_ONCE",
    "ENDED_IN_DOUBT",
    "INTERRUPTED",
    "Answered",
    "Limits",
    "Outcome",
    "Stopped",
    "ToolSet",
    "Turn",
    "Waits",
    "find_overspent",
    "resolve_doubt",
]

INTERRUPTED: Final = "interrupted"
"""The reason of a run that does not go on after its node went away."""

AT_ONCE: Final = 8
"""How many calls of one answer are carried out side by side."""

_ROUNDS: Final = "The run was ended: after {} requests to the model there was no answer"
_TOKENS: Final = "The run was ended: it took {} tokens, and {} are allowed"
_BUDGET: Final = (
    "The run was ended: the {} tokens that there are for one day are used up; there are new ones at"
    " midnight, UTC"
)
_EXPENSE: Final = (
    "The run was ended: the {} USD that there are for one day are used up; there are new ones at"
    " midnight, UTC"
)
_INVALID: Final = "The run was ended: the answer of the model does not have the shape asked for"
_AGAIN: Final = "{} Answer again, with the JSON alone."
ENDED_IN_DOUBT: Final = (
    "The run was interrupted: the node that executed it went away, and whether {} was carried out"
    " is not known"
)
"""The sentence about a run that ends with a call in doubt, by its name."""


@frozen
class Limits:
    """The limits of a turn: requests to the model, and tokens in and out in all."""

    rounds: int = 10
    tokens: int | None = None


@frozen
class Answered:
    """The turn has its answer: a text, or the value of the JSON that was asked for."""

    content: Any


@frozen
class Waits:
    """The turn cannot go on without a person."""


@frozen
class Stopped:
    """The turn came to a limit; `content` is what it had by then."""

    reason: str
    sentence: str
    content: str = ""


Outcome: TypeAlias = Answered | Waits | Stopped


class ToolSet(Protocol):
    """The tools that a turn may call."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The descriptions of the tools for the model."""
        ...

    def admit(self, call: ToolCall, now_us: int) -> CallState:
        """Return the call as it stands at first: due, waiting for a person, or done in vain."""
        ...

    def again(self, call: CallState) -> Again:
        """Return whether a call that a crash interrupted may be made a second time."""
        ...

    def step(self, call: CallState) -> tuple[StepKind, str]:
        """Return the kind of the step that the call is, and whom or what it asks."""
        ...

    def carry_out(self, call: CallState, writer: EventWriter, place: str) -> Program[CallState]:
        """Return the call, done; or waiting, where somebody else's turn does.

        `place` is where it stands in the run at the top, as in the steps of that.  That it begins
        is stored already.  A failure of a database, and what ends the run, is
        raised; everything else is a result for the model.
        """
        ...


@define(eq=False)
class Turn:
    """Takes a turn; `state` is how far it has come, also when something is raised.

    Attributes:
        schema: JSON schema of the answer; None if it is a text.
        tool_choice: What the model must call before anything else, as in a `Prompt`.
        in_doubt: What becomes of a call in doubt that must not be called again: `ask`, `tell` or
            `end`.
        shape: The shape that the answer is read by, where the schema is that of a class.
        fallback: The models that are asked in turn where the first fails.
        guards: Those around the model and its tools, if there are any.
    """

    writer: EventWriter
    model: ModelProtocol
    tool_set: ToolSet
    state: TurnState
    limits: Limits = Limits()
    schema: Mapping[str, Any] | None = None
    tool_choice: str | None = None
    in_doubt: str = "ask"
    shape: Shape | None = None
    fallback: tuple[ModelProtocol, ...] = ()
    _answered_by: ModelProtocol | None = field(default=None, init=False)
    guards: Guards | None = None
    _asked_us: int = field(default=0, init=False)
    _again: bool = field(default=False, init=False)
    _in_hand: int = field(default=0, init=False)

    def take(self) -> Program[Outcome]:
        """Go on until there is an answer, a limit, or nothing to be done without a person.

        Raises:
            ModelFailed: There is no answer to be had.
            CancelAsked: Somebody wants the run to end.
            LeaseLost: The run is no longer ours.
        """
        if self.state.calls:
            self._close_answered()
        if self.writer.resumed and (stopped := self._resume()) is not None:
            return stopped
        try:
            while True:
                if self.state.calls:
                    end = yield from self._call_tools()
                    if end is not None:
                        return end
                if self.writer.journal.spending is not None and (over := self._overspent(1)):
                    return over
                reply = yield from self._ask()
                if self.guards is not None and self.guards.answer_waits:
                    continue
                outcome = self._beyond() if reply.calls else self._answer(reply)
                if outcome is not None:
                    return outcome
        except StepTooLarge as error:
            return Stopped("too_large", str(error))

    def _call_tools(self) -> Program[Outcome | None]:
        """Carry out the calls; return the end of the turn where they are that."""
        while due := self.state.due[:AT_ONCE]:
            yield from self._carry_out(due)
        if self.state.waits:
            return Waits()
        if (last := self.state.last) is not None:
            result = last.result or ""
            if self.guards is not None:
                result = yield from self.guards.check_last(last)
            return self._final(result)
        self.state = self.state.with_results(self.writer.journal.now_us)
        return None

    # The model

    def _ask(self) -> Program[Reply]:
        """Ask the model once; all that it reads is stored before."""
        writer, guards = self.writer, self.guards
        if guards is not None:
            self.state = yield from guards.prepare(self.state)
        message_id = f"{writer.origin.run.run_id}.{len(self.state.said) + 1}"
        again, self._again = True if self._again else ABSENT, False
        request = ModelRequestStarted(self.model.id, self.model.provider, message_id, again)
        writer.note_request(request)
        if self.state.calls or self.state.corrected:
            yield from writer.settle()
        asked_us = self._asked_us = writer.journal.now_us
        model, prompt = self.model, self._prompt
        try:
            if self.fallback:
                count = self._count_failure
                ask = ask_in_order((model, *self.fallback), request, prompt, writer, count)
                answer = yield from call_in_turn(writer.journal, ask)
                reply, model = answer.reply, answer.model
            else:
                call = ask_model(writer, model, prompt(model), writer)
                reply = yield from call_in_turn(writer.journal, call)
        except ModelFailed as error:
            if error.usage.total_tokens and not self.fallback:
                self._count_failure(error.usage)
            raise
        self._answered_by, now_us = model, writer.journal.now_us
        reply = self._make_storable(reply)
        if guards is not None:
            reply = yield from guards.judge(reply, self.state)
            now_us = writer.journal.now_us
        said, calls, thoughts, seen = reply.content, reply.calls, reply.thoughts, reply.reasoning
        message = Message("assistant", said, calls=calls, thoughts=thoughts, reasoning=seen)
        seconds = None if (us := writer.first_us) is None else (us - asked_us) / 1_000_000
        self.state = self.state.with_reply(message, reply.usage, now_us, seconds)
        writer.journal.tokens += reply.usage.input_tokens + reply.usage.output_tokens
        if writer.journal.spending is not None:
            writer.journal.spending.spend(reply.usage.total_tokens)
        if reply.usage.cost_nano is not None:
            writer.journal.pay(reply.usage.cost_nano)
        writer.note(_build_completed(model, reply, seconds))
        if guards is not None and guards.refused is not None:
            raise guards.refused
        if reply.calls:
            admitted = self._admit(reply, now_us)
            self._note_answer(encode_model(message, reply.usage, seconds, admitted))
        return reply

    def _count_failure(self, usage: Usage) -> None:
        """Count what requests without an answer have used: their providers ask to be paid."""
        self.state = copy_with(self.state, usage=self.state.usage.plus(usage))
        self.writer.journal.count(usage)

    def _note_answer(self, outcome: Mapping[str, Any]) -> None:
        place, model = str(self.state.rounds), self._answered_by or self.model
        if self.guards is not None:
            outcome = {**outcome, **self.guards.members}
        if model is not self.model:
            outcome = {**outcome, "model": [model.id, model.provider]}
        self.writer.note_step(place, StepKind.MODEL, model.id, self._asked_us, outcome)

    def _prompt(self, model: ModelProtocol) -> Prompt:
        limit, messages = self.limits.tokens, self.state.messages
        if self.guards is not None:
            messages = self.guards.render(messages)
        return Prompt(
            fit(messages, model),
            tools=self.tool_set.specs,
            output_schema=self.schema,
            max_tokens=None if limit is None else max(1, limit - self.state.usage.total_tokens),
            tool_choice=None if self.state.calls else self.tool_choice,
        )

    def _make_storable(self, reply: Reply) -> Reply:
        """Return `reply` as it can be stored, whatever the model is.

        Its calls have ids that no other call of the turn has.
        """
        content, reasoning = storable(reply.content), storable(reply.reasoning)
        if not (reply.calls or reply.thoughts):
            same = content is reply.content and reasoning is reply.reasoning
            return reply if same else evolve(reply, content=content, reasoning=reasoning)
        taken = [call.call.id for call in self.state.calls]
        calls: list[ToolCall] = []
        for call in reply.calls:
            name, arguments = storable(call.name), storable(call.arguments)
            calls.append(ToolCall(unlike(storable(call.id), taken), name, arguments))
            taken.append(calls[-1].id)
        thoughts = (evolve(one, block=storable(one.block)) for one in reply.thoughts)
        return evolve(
            reply,
            content=content,
            calls=tuple(calls),
            thoughts=tuple(thoughts),
            reasoning=reasoning,
        )

    def _admit(self, reply: Reply, now_us: int) -> tuple[CallState, ...]:
        """Add the calls of `reply` to the turn.

        One that cannot be made, or that waits for a person, is announced at once: nothing else
        would say that it was asked for.
        """
        admitted = (self.tool_set.admit(call, now_us) for call in reply.calls)
        calls = tuple(copy_with(call, announced=call.failed or call.waits) for call in admitted)
        for call in calls:
            if call.announced:
                asked = copy_with(call, standing=call.needs or Standing.DUE, result=None)
                self.writer.note(ToolCallStarted(tool_execution(asked)))
            if call.failed:
                self.writer.note(ToolCallError(tool_execution(call), call.result))
                self._count_rejected(call)
        self.state = copy_with(self.state, calls=(*self.state.calls, *calls))
        return calls

    def _beyond(self) -> Stopped | None:
        """Return the limit that the turn has come to."""
        if self.writer.journal.spending is not None and (over := self._overspent(1)):
            return over
        state, limits = self.state, self.limits
        if state.rounds >= limits.rounds:
            return Stopped("max_rounds", _ROUNDS.format(state.rounds))
        spent = state.usage.total_tokens
        if limits.tokens is not None and spent >= limits.tokens:
            return Stopped("max_tokens", _TOKENS.format(spent, limits.tokens))
        return None

    def _overspent(self, need: int) -> Stopped | None:
        said = (one.message for one in reversed(self.state.said))
        answers = (message.content for message in said if message.role == "assistant")
        return find_overspent(self.writer.journal, need, answers)

    def _answer(self, reply: Reply) -> Answered | Stopped | None:
        """Return the answer; None where the model is to be asked for it again."""
        if self.writer.journal.spending is not None and (over := self._overspent(0)):
            return over
        if self.schema is None:
            return Answered(reply.content)
        value = check_output(self.schema, reply.content, self.shape)
        if not isinstance(value, str):
            return Answered(value)
        if self.state.corrected:
            return Stopped("output_invalid", _INVALID)
        if (beyond := self._beyond()) is not None:
            return beyond
        now_us, sentence = self.writer.journal.now_us, _AGAIN.format(value)
        said = self.state.said[-1].message
        first = self.state.first_seconds
        self._note_answer(encode_model(said, reply.usage, first, correction=sentence))
        corrected = self.state.with_message(Message("user", sentence), now_us)
        self.state = copy_with(corrected, corrected=True)
        return None

    def _final(self, result: str) -> Answered | Stopped:
        """Return the result of a call as the answer; there is nobody to ask for it again."""
        if self.schema is None:
            return Answered(result)
        value = check_output(self.schema, result, self.shape)
        return Stopped("output_invalid", _INVALID) if isinstance(value, str) else Answered(value)

    # The tools

    def _close_answered(self) -> None:
        """Note the end of calls in doubt whose outcome a person has told."""
        for index in range(self.state.answered, len(self.state.calls)):
            call = self.state.calls[index]
            begun = call.started_us is not None and call.ended_us is None
            if call.standing is Standing.DONE and begun:
                call = copy_with(call, ended_us=self.writer.journal.now_us)
                self.state = self.state.with_call(index, call)
                self._tell(index, call)

    def _resume(self) -> Stopped | None:
        """Decide what becomes of calls in doubt; return the end of the turn, if it is that.

        Where all calls are over, the model may have been asked already.
        """
        due = self.state.due
        self._again = not due
        for index in due:
            call = self.state.calls[index]
            if not call.in_doubt:
                continue
            way = resolve_doubt(self.tool_set.again(call), self.in_doubt)
            if way == "again":
                call = copy_with(call, in_doubt=False)
            elif way == "ask":
                call = copy_with(call, standing=Standing.CONFIRM, needs=Standing.CONFIRM)
            elif way == "end":
                return Stopped(INTERRUPTED, ENDED_IN_DOUBT.format(call.call.name))
            else:
                call = copy_with(call, in_doubt=False).with_result(NOT_KNOWN, failed=True)
                call = copy_with(call, ended_us=self.writer.journal.now_us)
                self._tell(index, call)
            self.state = self.state.with_call(index, call)
        return None

    def _carry_out(self, due: tuple[int, ...]) -> Program[None]:
        """Carry out calls, side by side if there are several."""
        writer = self.writer
        for index in due:
            call = self.state.calls[index]
            if call.started_us is not None and call.member is not None:
                continue  # the member goes on
            begins = call.started_us is None
            call = copy_with(call, started_us=writer.journal.now_us)
            self.state = self.state.with_call(index, call)
            if begins and not call.announced:
                writer.note(ToolCallStarted(tool_execution(call)))
            if begins:
                self._note_call(index, call)
        yield from writer.settle()
        self._in_hand = len(due)
        if len(due) == 1:
            wrong: tuple[Exception | None, ...] = ((yield from self._one(due[0])),)
        else:
            wrong = yield from Concurrently(tuple(self._one(index) for index in due))
        for error in wrong:
            if error is not None:
                raise error

    def _one(self, index: int) -> Program[Exception | None]:
        """Carry out one call; what goes wrong is the result, but for failures of a database."""
        writer, journal = self.writer, self.writer.journal
        call, place = self.state.calls[index], writer.prefix + self.state.place(index)
        begun_us = journal.now_us
        try:
            if self.tool_set.again(call) == "never":
                yield from journal.check_lease((yield NOW))
            call = yield from self.tool_set.carry_out(call, writer, place)
            journal.now_us = yield NOW
            call = copy_with(call, ended_us=journal.now_us)
            self.state = self.state.with_call(index, call)
            self._in_hand -= 1
            if not call.waits:
                self._count_call(call, ERROR if call.failed else OK, journal.now_us - begun_us)
                self._tell(index, call)
            if self._in_hand:
                yield from writer.settle()
        except (GeneratorExit, Exception) as error:  # (the others come to their ends first)
            if self.state.calls[index].ended_us is None:
                self._count_call(call, CANCELLED)
            if isinstance(error, GeneratorExit | StoreFailure):
                raise
            return error
        return None

    def _count_call(self, call: CallState, outcome: str, took_us: int | None = None) -> None:
        """Count a call that was carried out; what a person says of an answer is none."""
        if call.call.name != APPROVE:
            component = self.writer.origin.run.component_id
            self.writer.journal.meter.count_call(component, call.call.name, outcome, took_us)

    def _count_rejected(self, call: CallState) -> None:
        """Count a call that cannot be made; what no tool is called is the model's word alone."""
        known = any(spec.name == call.call.name for spec in self.tool_set.specs)
        component, name = self.writer.origin.run.component_id, call.call.name
        self.writer.journal.meter.count_call(component, name if known else OTHER, REJECTED, None)

    def _note_call(
        self, index: int, call: CallState, outcome: Mapping[str, Any] | None = None
    ) -> None:
        kind, asked = self.tool_set.step(call)
        begun_us = call.started_us or call.created_us
        self.writer.note_step(self.state.place(index), kind, asked, begun_us, outcome)

    def _tell(self, index: int, call: CallState) -> None:
        execution = tool_execution(call)
        self._note_call(index, call, encode_call(call))
        self.writer.note(ToolCallCompleted(call_sentence(call), execution))
        if call.failed:
            self.writer.note(ToolCallError(execution, call.result))


def find_overspent(journal: Journal, need: int, answers: Iterable[str] = ()) -> Stopped | None:
    """Return the end of the run where fewer than `need` tokens are left of the day's.

    The same holds for what is left to pay for them.  Its content is the first of `answers` that has
    any.
    """
    spending, expense = journal.spending, journal.expense
    if spending is None:
        return None
    if spending.count_left(journal.now_us) < need:
        sentence = _BUDGET.format(spending.limit)
    elif expense is not None and expense.count_left(journal.now_us) < need:
        sentence = _EXPENSE.format(render_usd(expense.limit))
    else:
        return None
    content = next(filter(None, answers), "")
    return Stopped("budget", sentence, content)


def resolve_doubt(again: str, in_doubt: str) -> str:
    """Return what becomes of a call in doubt: `again`, `ask`, `tell` or `end`."""
    return in_doubt if again == "never" else "again"


def _build_completed(
    model: ModelProtocol, reply: Reply, seconds: float | None
) -> ModelRequestCompleted:
    """Return the event of an answer, whose first piece was there after `seconds`."""
    usage = reply.usage
    return ModelRequestCompleted(
        model=model.id,
        model_provider=model.provider,
        time_to_first_token=ABSENT if seconds is None else seconds,
        **tokens(usage),
        cost=ABSENT if usage.cost_nano is None else number_of(usage.cost_nano),
    )
