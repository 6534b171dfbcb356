"""The outcomes of steps as they are stored: JSON with the number of its format, deflated if long.

An outcome holds what cannot be derived from the steps before it: of an answer of the model the
message and what it cost, of a call its result.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import evolve, fields

from ..http.messages import compact_json
from ..models.conversation import Message, Thought, ToolCall, Usage
from ..store.steps import Step, StepKind
from ..tools import plain_arguments
from ..values import copy_with, frozen
from .turn_state import CallState, RecordedAnswer, Standing

__all__ = [
    "MAX_OUTCOME",
    "OF_SUMMARY",
    "START",
    "ModelOutcome",
    "StepTooLarge",
    "UnknownOutcome",
    "decode_answer",
    "decode_call",
    "decode_calls",
    "decode_model",
    "decode_outcome",
    "decode_own",
    "decode_usage",
    "encode_answer",
    "encode_call",
    "encode_calls",
    "encode_model",
    "encode_outcome",
    "encode_own",
    "encode_usage",
    "name_own",
    "own_number",
]

MAX_OUTCOME: Final = 1 << 20
"""How long the JSON of an outcome may be, in bytes, beside what it writes to the state."""

_PLAIN: Final = 1 << 16
"""How long it may be to be stored as it is, in bytes."""

START: Final = "0"
"""The place of the start of a run, behind the prefix of a member."""

OF_SUMMARY: Final = "summary_"
"""Before the names of members of the start that are about the summary made there."""

_FORMAT: Final = 1
_GUARDED: Final = 2
"""The format of an outcome whose `message` or `prompt` the model read in place of another text."""
_DEFLATED: Final = "z:"
_TOO_LARGE: Final = (
    "The run was ended: step {} ({}) has {} bytes, and no more than {} are stored of one"
)


class StepTooLarge(Exception):
    """The outcome of a step cannot be stored; the text says of which."""

    def __init__(self, place: str, asked: str, size: int) -> None:
        super().__init__(_TOO_LARGE.format(place, asked, size, MAX_OUTCOME))


class UnknownOutcome(Exception):
    """The outcome of a step was stored by a version of this code that had another idea of it."""


def encode_outcome(place: str, asked: str, members: Mapping[str, Any]) -> str:
    """Return an outcome as it is stored.

    Raises:
        StepTooLarge: It is longer than `MAX_OUTCOME`.
    """
    form = _GUARDED if "message" in members or "prompt" in members else _FORMAT
    text = compact_json({"f": form, **members})
    data = text.encode()
    if len(data) > MAX_OUTCOME and len(data) - _count_state(members) > MAX_OUTCOME:
        raise StepTooLarge(place, asked, len(data))
    if len(data) <= _PLAIN:
        return text
    return _DEFLATED + b64encode(zlib.compress(data)).decode()


def _count_state(members: Mapping[str, Any]) -> int:
    """Return how many bytes of an outcome are what it writes to the state, which has its limit."""
    return len(compact_json(members["state"]).encode()) if "state" in members else 0


def decode_outcome(text: str) -> Mapping[str, Any]:
    """Return the members of an outcome.

    Raises:
        UnknownOutcome: It is of another format: nothing of it may be guessed.
    """
    if text.startswith(_DEFLATED):
        text = zlib.decompress(b64decode(text[len(_DEFLATED) :])).decode()
    members: dict[str, Any] = json.loads(text)
    if members.get("f") not in (_FORMAT, _GUARDED):
        raise UnknownOutcome(f"format {members.get('f')}")
    return members


# --- Answers of models -------------------------------------------------------------------------

_NOTHING: Final[tuple[Any, ...]] = ("", [], None)
_USAGE: Final = tuple(member.name for member in fields(Usage) if member.name != "cost_nano")


@frozen
class ModelOutcome:
    """An answer of a model as it was stored: its calls are as they were admitted.

    `correction` is the sentence that asks for another answer, empty where none does.  `model` is
    the id and the provider of who answered in place of the first model; None where that one did.
    `correction` is the sentence that asks for another answer, empty where none does; `prompt` what
    a guard has put in place of the last message before it.
    """

    message: Message
    usage: Usage
    seconds: float | None
    calls: tuple[CallState, ...]
    correction: str
    model: tuple[str, str] | None = None
    prompt: str | None = None


def encode_model(
    message: Message,
    usage: Usage,
    seconds: float | None,
    calls: Iterable[CallState] = (),
    correction: str = "",
) -> dict[str, Any]:
    """Return the outcome of an answer."""
    thoughts = [[one.model, one.block, one.characters, one.calls] for one in message.thoughts]
    whole = {
        "content": message.content,
        "calls": encode_calls(calls),
        "thoughts": thoughts,
        "reasoning": message.reasoning,
        "correction": correction,
        **encode_usage(usage),
        "seconds": seconds,
    }
    return {name: value for name, value in whole.items() if value not in _NOTHING}


def decode_model(members: Mapping[str, Any], at_us: int) -> ModelOutcome:
    """Return the answer that was there at `at_us`."""
    calls = decode_calls(members.get("calls", ()), at_us)
    message = Message(
        "assistant",
        members.get("content", ""),
        calls=tuple([call.call for call in calls]),
        thoughts=tuple([Thought(*one) for one in members.get("thoughts", ())]),
        reasoning=members.get("reasoning", ""),
    )
    usage = Usage(*members["usage"], cost_nano=members.get("cost"))
    seconds = members.get("seconds")
    correction, prompt = members.get("correction", ""), members.get("prompt")
    model = (str(members["model"][0]), str(members["model"][1])) if "model" in members else None
    return ModelOutcome(message, usage, seconds, calls, correction, model, prompt)


def encode_usage(usage: Usage, whose: str = "") -> dict[str, Any]:
    """Return tokens, and the cost if it is known, as members of an outcome.

    `whose` stands before their names.
    """
    tokens = {f"{whose}usage": [getattr(usage, name) for name in _USAGE]}
    return tokens if usage.cost_nano is None else {**tokens, f"{whose}cost": usage.cost_nano}


def decode_usage(members: Mapping[str, Any], whose: str = "") -> Usage:
    """Return the tokens and the cost of an outcome: of an answer, or of guards before a run."""
    return Usage(*members.get(f"{whose}usage", ()), cost_nano=members.get(f"{whose}cost"))


def encode_calls(calls: Iterable[CallState]) -> list[list[Any]]:
    """Return calls as they were admitted."""
    return [_encode_admitted(call) for call in calls]


def _encode_admitted(call: CallState) -> list[Any]:
    made = [call.call.id, call.call.name, call.call.arguments, call.standing.value]
    if call.standing is Standing.DONE:
        return [*made, call.result]
    return made if call.reason is None else [*made, call.reason]


def decode_calls(stored: Iterable[Sequence[Any]], at_us: int) -> tuple[CallState, ...]:
    """Return the calls of an answer as they were admitted at `at_us`."""
    return tuple([_decode_admitted(one, at_us) for one in stored])


def _decode_admitted(stored: Sequence[Any], at_us: int) -> CallState:
    call_id, name, text, standing, *result = stored
    arguments = plain_arguments(text)
    state = CallState(
        call=ToolCall(call_id, name, text),
        created_us=at_us,
        arguments={} if isinstance(arguments, str) else arguments,
    )
    stands = Standing(standing)
    if stands is Standing.DONE:
        return copy_with(state.with_result(result[0], failed=True), announced=True)
    if stands is Standing.DUE:
        return state
    reason = result[0] if result else None
    return copy_with(state, standing=stands, needs=stands, announced=True, reason=reason)


# --- Outcomes of calls -------------------------------------------------------------------------


def encode_call(call: CallState) -> dict[str, Any]:
    """Return the outcome of a call that is done."""
    whole = {
        "result": call.result,
        "failed": call.failed,
        "last": call.last,
        "run": call.child_run_id,
    }
    return {name: value for name, value in whole.items() if value}


def decode_call(call: CallState, members: Mapping[str, Any], step: Step) -> CallState:
    """Return `call` as it was done."""
    done = call.with_result(
        members.get("result", ""),
        failed=members.get("failed", False),
        last=members.get("last", False),
    )
    return copy_with(
        done,
        started_us=step.begun_us,
        ended_us=step.ended_us,
        child_run_id=members.get("run"),
        in_doubt=False,
    )


# --- Steps of functions ------------------------------------------------------------------------

_ID: Final = " #"


def own_number(prefix: str, step: Step) -> int | None:
    """Return the number of a step that the function of an agent took; None of any other.

    Their places are `0.1`, `0.2` and so on; those of a team that collaborates are of members.
    """
    own = step.place.removeprefix(f"{prefix}{START}.")
    if own == step.place or not own.isdecimal() or step.kind == StepKind.MEMBER:
        return None
    return int(own)


def name_own(call: ToolCall) -> str:
    """Return what the step of a call says before it has an outcome: its name, and its id."""
    return call.name if call.id == call.name else f"{call.name}{_ID}{call.id}"


def encode_answer(key: str, answer: Any, usage: Usage, seconds: float | None) -> dict[str, Any]:
    """Return the outcome of an answer that the function of an agent was given."""
    outcome = encode_model(Message("assistant", ""), usage, seconds)
    return {**outcome, "answer": answer, **({"key": key} if key else {})}


def decode_answer(place: str, members: Mapping[str, Any]) -> RecordedAnswer:
    """Return an answer that the function of an agent was given."""
    return RecordedAnswer(place=place, key=members.get("key", ""), answer=members["answer"])


def encode_own(call: CallState) -> dict[str, Any]:
    """Return the outcome of a call that the function of an agent made."""
    made = {"arguments": call.call.arguments, "structured": call.structured}
    return {**encode_call(call), **{name: value for name, value in made.items() if value}}


def decode_own(place: str, step: Step) -> CallState:
    """Return a call that the function of an agent made, or began: that is in doubt."""
    name, _, call_id = step.asked.rpartition(_ID)
    made = ToolCall(call_id, name or call_id, "{}")
    begun = CallState(
        call=made,
        created_us=step.begun_us,
        started_us=step.begun_us,
        announced=True,
        in_doubt=True,
        place=place,
    )
    if step.outcome is None:
        return begun
    members = decode_outcome(step.outcome)
    text = members.get("arguments", "{}")
    arguments = plain_arguments(text)
    return evolve(
        decode_call(begun, members, step),
        call=evolve(made, arguments=text),
        arguments={} if isinstance(arguments, str) else arguments,
        structured=members.get("structured", False),
    )
