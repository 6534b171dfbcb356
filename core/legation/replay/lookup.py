"""The lookup of what a recording knows, by the place in the run.

A file may have been edited, so that no turn could have been taken as it says: `find_fault` finds
that before anything is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from attrs import field

from ..http.messages import compact_json
from ..models.conversation import ModelFailed
from ..runs.output import MEDIA
from ..runs.prompt import SUMMARY
from ..runs.step_outcomes import START, ModelOutcome, decode_calls, decode_model
from ..runs.turn_state import CallState, Standing
from ..store.run_states import RunState
from ..store.steps import StepKind
from ..tools.accepted import is_array, is_object
from ..values import define
from .recording import FUNCTION, RecordedStep, Recording

__all__ = ["Lookup", "find_fault", "show_history", "split_place"]

_BY_THE_TURN: Final = ("max_rounds", "max_tokens", "output_invalid")
_OF_MODEL: Final = "model_"
_OF_FILE: Final = ("content", "filename", "format", "mime_type", "name", "text", "url")


@define(eq=False)
class Lookup:
    """Finds what a recording knows of a place.

    Attributes:
        steps: The steps, by their places.
        answers: How many answers of a model each turn has, by the prefix of its places.
    """

    recording: Recording
    steps: Mapping[str, RecordedStep] = field(init=False)
    answers: dict[str, int] = field(factory=dict[str, int], init=False)
    _decoded: dict[str, ModelOutcome] = field(factory=dict[str, ModelOutcome], init=False)

    def __attrs_post_init__(self) -> None:
        self.steps = {step.place: step for step in self.recording.steps}
        for place, step in self.steps.items():
            if step.kind == StepKind.MODEL and step.outcome is not None:
                prefix, _ = split_place(place)
                self.answers[prefix] = self.answers.get(prefix, 0) + 1

    # The run

    @property
    def error_type(self) -> str:
        """Why the run failed, in a word; empty where it did not."""
        return str(self.recording.output.get("error_type") or "")

    @property
    def is_cut(self) -> bool:
        """Whether the run came to no end of its own: nobody knows what would have come next."""
        own = self.recording.end in (RunState.COMPLETED, RunState.PAUSED)
        return not own and self.error_type not in _BY_THE_TURN

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The places with an answer, or with an outcome of a call."""
        return tuple(
            place
            for place, step in self.steps.items()
            if step.kind != StepKind.START and step.outcome is not None
        )

    # The start of a turn

    def _start(self, prefix: str) -> Mapping[str, Any]:
        return self._outcome(prefix + START) or {}

    def _outcome(self, place: str) -> Mapping[str, Any] | None:
        step = self.steps.get(place)
        return None if step is None else step.outcome

    def play(self, place: str) -> Mapping[str, Any]:
        """Return what is recorded of a place: what guards decided is in it."""
        return self._outcome(place) or {}

    def definition(self, prefix: str) -> tuple[str, Mapping[str, Any] | None]:
        """Return the definition that a turn began with, by its digest; None: the file has none."""
        root = "" if prefix else self.recording.run.definition
        digest = self._start(prefix).get("definition") or root
        known = (one.document for one in self.recording.definitions if one.digest == digest)
        return digest, next(known, None)

    def has_begun(self, prefix: str) -> bool:
        """Return whether the start of a turn is known, which functions give instructions for."""
        return prefix + START in self.steps or f"{prefix}1" in self.steps

    def was_instructed(self, prefix: str) -> bool:
        """Return whether a function gave the instructions."""
        return "instructions" in self._start(prefix)

    def instructions(self, prefix: str) -> str | None:
        """Return the instructions that a turn began with."""
        _, document = self.definition(prefix)
        said = self._start(prefix) if self.was_instructed(prefix) else document or {}
        instructions: str | None = said.get("instructions")
        return instructions

    # Answers

    def answer(self, prefix: str, number: int) -> ModelOutcome | None:
        """Return an answer of the model of a turn; None where nobody knows it, or for 0."""
        place = f"{prefix}{number}"
        step = self.steps.get(place)
        if step is None or step.outcome is None or step.kind != StepKind.MODEL:
            return None
        if place not in self._decoded:
            self._decoded[place] = decode_model(step.outcome, 0)
        return self._decoded[place]

    def content(self, prefix: str) -> Mapping[str, Any] | None:
        """Return the answer of a function, which is its `content`; None where there is none."""
        return self._outcome(f"{prefix}1")

    def failure(self, place: str) -> ModelFailed | None:
        """Return the failure that ended a turn in the place of an answer, as one of a model.

        That of a member is the result of its call, whatever its reason was.
        """
        step = self.steps.get(place)
        if step is None or step.error is None:
            return None
        reason, sentence = step.error["type"], step.error["sentence"]
        if "/" not in place and not reason.startswith(_OF_MODEL):
            return None
        return ModelFailed(reason.removeprefix(_OF_MODEL), sentence)

    # Calls

    def calls(self, prefix: str, number: int) -> tuple[CallState, ...]:
        """Return the calls of an answer as they were admitted; those of the start for 0."""
        if number == 0:
            return decode_calls(self._start(prefix).get("calls", ()), 0)
        answer = self.answer(prefix, number)
        return () if answer is None else answer.calls

    def list_called_tools(self, prefix: str) -> list[str]:
        """Return the names of the tools that a turn called."""
        numbers = range(self.answers.get(prefix, 0) + 1)
        return [call.call.name for number in numbers for call in self.calls(prefix, number)]

    def describe_asked(self, place: str, name: str) -> str:
        """Return what is said of the call at `place`: its tool, else the task for a member."""
        step = self.steps.get(place)
        if step is None or step.kind != StepKind.MEMBER:
            return name
        return f"the task for {step.asked}"

    def result(self, place: str) -> tuple[str, bool] | None:
        """Return what came of a call, and whether that is an error; None where nobody knows."""
        outcome = self._outcome(place)
        if outcome is None:
            return None
        return outcome.get("result", ""), outcome.get("failed", False)

    def decision(self, place: str) -> tuple[bool, str | None] | None:
        """Return whether a person confirmed a call, and the note; None where nobody decided.

        A call that was made without asking counts as confirmed.
        """
        step = self.steps.get(place)
        if step is None:
            return None
        if step.decision is not None:
            return step.decision["confirmed"], step.decision.get("note")
        return None if step.outcome is None else (True, None)


def split_place(place: str) -> tuple[str, str]:
    """Return the prefix of the turn that a place is of, and the place within that."""
    above, slash, own = place.rpartition("/")
    return f"{above}{slash}", own


def show_history(recording: Recording) -> tuple[tuple[int, str], ...] | None:
    """Return the history as the store has it, in one run; None where there is none."""
    if not recording.history:
        return None
    shown = [_show_message(message) for message in recording.history]
    return ((1, compact_json({"messages": shown})),)


def _show_message(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = [
        {"id": call_id, "function": {"name": name, "arguments": arguments}}
        for call_id, name, arguments, *_ in message.get("calls", ())
    ]
    shown = {"role": message["role"], "content": message["content"], "tool_calls": calls}
    summary = {SUMMARY: True} if message["role"] == "system" else {}
    return {**shown, **summary, "tool_call_id": message.get("call_id")}


# --- Faults ------------------------------------------------------------------------------------


def find_fault(recording: Recording) -> str | None:
    """Return why no turn can have been taken as the recording says, in a sentence; else None."""
    return next(_find_faults(recording), None)


def _find_faults(recording: Recording) -> Iterator[str]:
    yield from _find_input_faults(recording.run.input)
    lookup = Lookup(recording)
    for place, step in lookup.steps.items():
        prefix, own = split_place(place)
        if step.kind == StepKind.MEMBER and not prefix and recording.run.kind != "team":
            yield f"Place {place} is that of a member, and the run is not that of a team"
        if step.kind in (StepKind.MODEL, FUNCTION):
            yield from _find_gaps(lookup, step.kind, prefix, int(own))


def _find_gaps(lookup: Lookup, kind: str, prefix: str, number: int) -> Iterator[str]:
    """Yield what is wrong with the answer before the one of this number, and with its calls."""
    place, before = f"{prefix}{number}", lookup.answer(prefix, number - 1)
    ends = before is None or not (before.calls or before.correction)
    if number > 1 and (kind == FUNCTION or ends):
        yield f"No turn comes to place {place}: the answer before it is the last"
    for index, call in enumerate(lookup.calls(prefix, number - 1), 1):
        of = f"{prefix}{number - 1}.{index}"
        if call.standing is not Standing.DONE and lookup.result(of) is None:
            yield f"Place {of} has no outcome, and the run went on behind it"


def _find_input_faults(asked: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(asked.get("message"), str):
        yield "run.input.message is no text"
    for kind in MEDIA:
        if not _is_list_of_files(asked.get(kind, [])):
            yield f"run.input.{kind} is no list of files"
    for name in ("output_schema", "dependencies", "metadata", "claims"):
        if not isinstance(asked.get(name), dict | None):
            yield f"run.input.{name} is no object"


def _is_list_of_files(value: Any) -> bool:
    return is_array(value) and all(
        is_object(one) and all(isinstance(one.get(name), str | None) for name in _OF_FILE)
        for one in value
    )
