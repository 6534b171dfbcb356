"""The state of a turn, as a value that can be stored and gone on with.

Everything that the turn needs to go on is here, and nothing that the world may change meanwhile:
what was said, what the model wants called, and where each call stands.  A member of a team takes a
turn within that of its leader, so a pause deep in a team is the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final

import cattrs
from attrs import evolve, field, fields
from cattrs.gen import make_dict_unstructure_fn

from ..models.conversation import NO_USAGE, Message, ToolCall, Usage
from ..values import copy_with, frozen

__all__ = [
    "CallState",
    "MemberState",
    "ModelTurn",
    "RecordedAnswer",
    "Standing",
    "TurnState",
    "UnknownFormat",
    "dump",
    "load",
    "unlike",
]


class Standing(Enum):
    """The state of a tool call."""

    DUE = "due"
    CONFIRM = "confirm"
    EXTERNAL = "external"
    MEMBER = "member"
    DONE = "done"


@frozen(kw_only=True, slots=False)  # for `copy_with`
class CallState:
    """A tool that the model wants called, and what came of it.

    Attributes:
        call: As the model gave it; its id is unlike any other of the run.
        arguments: What they were read as, which is what people are shown and what is executed.
        standing: Due; waiting for a person to confirm it, for a result from outside, or for what
            a member of the team waits for; or done.
        needs: `CONFIRM` or `EXTERNAL` if that was asked for, also afterwards.
        result: The result for the model.
        failed: Whether that is an error.
        last: The result is the answer of the turn.
        member: The turn of the member that it was delegated to, as long as it is not over.
        response: The run of that member, as clients read it, as soon as it is.
        announced: Its start was an event before it could begin, since it waits for a person.
        in_doubt: It had begun when a node went away, and its outcome is not known.
        reason: Why a guard has a person asked about it; None where none has.
        place: That of its step, where the function of an agent makes it: `0.3`.
        structured: The result is JSON, which such a function is given as a value.
    """

    call: ToolCall
    created_us: int
    arguments: Mapping[str, Any] = field(factory=dict[str, Any])
    standing: Standing = Standing.DUE
    needs: Standing | None = None
    result: str | None = None
    failed: bool = False
    last: bool = False
    confirmed: bool | None = None
    note: str | None = None
    started_us: int | None = None
    ended_us: int | None = None
    child_run_id: str | None = None
    member: MemberState | None = None
    response: Mapping[str, Any] | None = None
    announced: bool = False
    in_doubt: bool = False
    reason: str | None = None
    place: str = ""
    structured: bool = False

    @property
    def waits(self) -> bool:
        """Whether it cannot go on without a person."""
        return self.standing in (Standing.CONFIRM, Standing.EXTERNAL, Standing.MEMBER)

    def with_result(self, result: str, *, failed: bool = False, last: bool = False) -> CallState:
        """Return the call with its result."""
        return copy_with(
            self, standing=Standing.DONE, result=result, failed=failed, last=last, member=None
        )


@frozen(kw_only=True)
class MemberState:
    """The turn of a member of a team, as a run of its own."""

    run_id: str
    kind: str
    component_id: str
    name: str
    created_us: int
    state: TurnState


@frozen
class ModelTurn:
    """A message of this turn, and when."""

    message: Message
    at_us: int


@frozen(kw_only=True)
class RecordedAnswer:
    """An answer of a model to the function of an agent: JSON, by its place and what was asked."""

    place: str
    key: str
    answer: Any


@frozen(kw_only=True, slots=False)  # for `copy_with`
class TurnState:
    """The state of a turn.

    Attributes:
        before: The messages before this turn: instructions and history.
        said: The messages of this turn; the first is what was asked.
        calls: Every tool that was to be called, in order.
        answered: The results of how many of them are among the messages.
        rounds: How often the model was asked.
        usage: What that cost.
        worked_us: How long the turn took before it last paused.
        first_seconds: How long it took until the first piece of an answer was there.
        message: What the model reads in place of what was asked, where a guard has changed that.
        recorded: The answers that the function of an agent was given, which are its `rounds`.
    """

    before: tuple[Message, ...] = ()
    said: tuple[ModelTurn, ...] = ()
    calls: tuple[CallState, ...] = ()
    answered: int = 0
    rounds: int = 0
    usage: Usage = NO_USAGE
    worked_us: int = 0
    first_seconds: float | None = None
    corrected: bool = False
    message: str | None = None
    recorded: tuple[RecordedAnswer, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation."""
        return (*self.before, *[said.message for said in self.said])

    @property
    def reasoning(self) -> str:
        """The thoughts of the model that were seen, of one answer after the other."""
        return "\n\n".join([said.message.reasoning for said in self.said if said.message.reasoning])

    @property
    def due(self) -> tuple[int, ...]:
        """The places of the calls that can be carried out."""
        return tuple([n for n, call in enumerate(self.calls) if call.standing is Standing.DUE])

    @property
    def waits(self) -> bool:
        """Whether it cannot go on without a person."""
        return any(call.waits for call in self.calls)

    @property
    def whole_call(self) -> CallState | None:
        """The call of the function of an agent, where a person was asked about that."""
        return next((call for call in self.calls if not call.place), None)

    @property
    def of_function(self) -> bool:
        """Whether all that there is by now may be of an agent that is a function."""
        return self.rounds == len(self.recorded)

    @property
    def last(self) -> CallState | None:
        """The call whose result is the answer, if there is one."""
        return next((call for call in self.calls if call.last), None)

    def place(self, index: int) -> str:
        """Return the place of a call that the model has not read the result of: `3.2`.

        Of its third answer the second call.
        """
        return f"{self.rounds}.{index - self.answered + 1}"

    def with_message(self, message: Message, at_us: int) -> TurnState:
        """Return the state with one more message."""
        return copy_with(self, said=(*self.said, ModelTurn(message, at_us)))

    def with_last_text(self, text: str) -> TurnState:
        """Return the state with another text in the last message, by a guard."""
        *before, last = self.said
        said = (*before, ModelTurn(evolve(last.message, content=text), last.at_us))
        return copy_with(self, said=said, message=self.message if before else text)

    def with_calls(self, calls: tuple[CallState, ...], at_us: int) -> TurnState:
        """Return the state with `calls` that no model asked for: all members of a team."""
        message = Message("assistant", "", calls=tuple(call.call for call in calls))
        return copy_with(self.with_message(message, at_us), calls=calls)

    def with_reply(
        self, message: Message, usage: Usage, at_us: int, first_seconds: float | None = None
    ) -> TurnState:
        """Return the state after an answer of the model, which began after `first_seconds`."""
        return copy_with(
            self,
            said=(*self.said, ModelTurn(message, at_us)),
            rounds=self.rounds + 1,
            usage=self.usage.plus(usage),
            first_seconds=first_seconds if self.first_seconds is None else self.first_seconds,
        )

    def with_call(self, place: int, call: CallState) -> TurnState:
        """Return the state with another call in this place."""
        return copy_with(self, calls=(*self.calls[:place], call, *self.calls[place + 1 :]))

    def with_results(self, at_us: int) -> TurnState:
        """Return the state with the results of all calls among the messages."""
        if self.answered == len(self.calls):
            return self
        results = [
            ModelTurn(Message("tool", call.result or "", call_id=call.call.id), at_us)
            for call in self.calls[self.answered :]
        ]
        return copy_with(self, said=(*self.said, *results), answered=len(self.calls))


_FORMAT: Final = 1
_CONVERTER: Final = cattrs.Converter()


def _make_dump(optional: Sequence[str], cls: type[Any]) -> Callable[[Any], dict[str, Any]]:
    """Return what dumps `cls`, without members of `optional` that are as they are without them."""
    dump_all = make_dict_unstructure_fn(cls, _CONVERTER)
    defaults = {one.name: one.default for one in fields(cls) if one.name in optional}

    def dump_some(value: Any) -> dict[str, Any]:
        dumped = dump_all(value)
        for name, default in defaults.items():
            if getattr(value, name) == default:
                del dumped[name]
        return dumped

    return dump_some


def _leave_out(cls: type[Any], *optional: str) -> None:
    _CONVERTER.register_unstructure_hook_factory(
        lambda kind: kind is cls, partial(_make_dump, optional)
    )


# Most states have none of these members, and have been stored without them.
_leave_out(Usage, "cost_nano")
_leave_out(CallState, "reason", "place", "structured")
_leave_out(TurnState, "message", "recorded")


class UnknownFormat(Exception):
    """The state was stored by a version of this code that had another idea of it."""


def dump(state: TurnState) -> dict[str, Any]:
    """Return `state` as a JSON object, with the number of its format."""
    return {"format": _FORMAT, **_CONVERTER.unstructure(state)}


def load(dumped: Mapping[str, Any]) -> TurnState:
    """Return what `dump` was given.

    Raises:
        UnknownFormat: It is of another format: nothing of it may be guessed.
    """
    if dumped.get("format") != _FORMAT:
        raise UnknownFormat(f"format {dumped.get('format')}")
    return _CONVERTER.structure(dumped, TurnState)


def unlike(call_id: str, taken: Sequence[str]) -> str:
    """Return `call_id`, or one like it that is not among `taken`: some models repeat theirs."""
    name, number = call_id or "call", 1
    while (unique := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    return unique
