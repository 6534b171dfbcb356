"""The recording of a run: all that it asked of the world and was answered, as lines of JSON.

The first line has the run, the next ones the definitions that it began with, then come the messages
that the model was told before it, the steps in the order of their places, and the end.  There is no
clock and no host in it, so the same run gives the same bytes.  A file is somebody's input: whatever
stands in one, it is a recording or a sentence that names the line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn

from attrs import field

from ..http.bodies.json_text import MAX_DEPTH, BadJson, parse_json
from ..http.messages import compact_json
from ..runs.step_outcomes import START, decode_model
from ..store.run_states import RunState
from ..store.steps import StepKind
from ..tools.accepted import is_array, is_object
from ..values import define, frozen

__all__ = [
    "FORMAT",
    "FUNCTION",
    "MAX_FILE",
    "MAX_LINE",
    "MAX_STEPS",
    "BadRecording",
    "RecordedDefinition",
    "RecordedRun",
    "RecordedStep",
    "Recording",
    "decode_recording",
    "encode_recording",
    "order_of",
    "read_recording",
]

FORMAT: Final = 1
"""The number of the format that this release writes and reads."""

MAX_FILE: Final = 64 << 20
"""How long a file may be, in bytes."""

MAX_LINE: Final = 16 << 20
"""How long a line may be, in bytes: the history that a run is told may have megabytes."""

MAX_STEPS: Final = 100_000
"""How many steps a recording may have."""

FUNCTION: Final = "function"
"""The kind of the step that is an agent's function: no step is stored of it."""

_DEEP: Final = MAX_DEPTH + 8  # a value of a run stands some levels below its line
_PLACE: Final = re.compile(r"(?:[0-9]{1,9}\.[0-9]{1,9}/)*[0-9]{1,9}(?:\.[0-9]{1,9})?")
_NUMBER: Final = re.compile("[0-9]+")
_ENDS: Final = frozenset(state.value for state in RunState)
_CALLS: Final = (StepKind.CALL.value, StepKind.MEMBER.value)


@frozen
class RecordedRun:
    """The run: who was asked what, with which state of the session.

    Attributes:
        state: That of the session before the run, as far as it is known.
        definition: The digest of the definition it began with; empty where none was kept.
        user: The name of the user who asked; empty where nobody has one.
    """

    kind: str
    component: str
    run_id: str
    session_id: str
    input: Mapping[str, Any]
    state: Mapping[str, Any]
    definition: str = ""
    redacted: bool = False
    user: str = ""


@frozen
class RecordedDefinition:
    """The definition of an agent or a team, by the digest of its document."""

    digest: str
    kind: str
    component: str
    document: Mapping[str, Any]


@frozen
class RecordedStep:
    """One step.

    Attributes:
        kind: `model`, `call`, `member` or `start`, as `StepKind`; or `function`, the answer of an
            agent's function.
        asked: The id of the model, of the member or of the agent, or the name of the tool.
        outcome: As `decode_outcome` returns it, without the number of its format; of a function
            its `content`.  None: it began, and nobody knows more.
        arguments: Those of a call.
        seconds: How long it took, where that is known.
        decision: The answer of a person who was asked about the call: `confirmed`, and a `note`.
        error: The `type` of the failure that ended the run in the place of an answer, and the
            `sentence` about it.
    """

    place: str
    kind: str
    asked: str
    outcome: Mapping[str, Any] | None
    arguments: Mapping[str, Any] | None = None
    seconds: float | None = None
    decision: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None


@frozen
class Recording:
    """A whole recording; its definitions are in the order in which they are first named.

    Attributes:
        history: The messages told before the run, each with `role` and `content`.
        end: The state in which the run ended, or waits, as `RunState`.
        output: What came of it, above all `content`.
    """

    run: RecordedRun
    steps: tuple[RecordedStep, ...]
    end: str
    output: Mapping[str, Any]
    definitions: tuple[RecordedDefinition, ...] = ()
    history: tuple[Mapping[str, Any], ...] = ()


@frozen
class BadRecording:
    """The file is no recording; `detail` is a sentence that names the line."""

    detail: str


def order_of(place: str) -> tuple[int, ...]:
    """Return what places are sorted by: `3.10` is behind `3.2`, and `3.2/1` behind its call."""
    return tuple(map(int, _NUMBER.findall(place)))


# --- Writing -----------------------------------------------------------------------------------


def encode_recording(recording: Recording) -> Iterator[str]:
    """Yield the lines of a recording, without their ends."""
    run = recording.run
    members = {
        "kind": run.kind,
        "component": run.component,
        "run_id": run.run_id,
        "session_id": run.session_id,
        "user": run.user,
        "input": run.input,
        "state": run.state,
        "definition": run.definition,
        "redacted": run.redacted,
    }
    yield compact_json({"format": FORMAT, "run": members})
    for one in recording.definitions:
        named = {"definition": one.digest, "kind": one.kind, "component": one.component}
        yield compact_json({**named, "document": one.document})
    yield compact_json({"history": list(recording.history)})
    for step in recording.steps:
        yield compact_json(_encode_step(step))
    yield compact_json({"end": recording.end, "output": recording.output})


def _encode_step(step: RecordedStep) -> dict[str, Any]:
    name = "asked" if step.kind == StepKind.MODEL else "name"
    whole: dict[str, Any] = {"place": step.place, "kind": step.kind, name: step.asked}
    if step.arguments is not None:
        whole["arguments"] = step.arguments
    if step.decision is not None:
        whole["decision"] = step.decision
    whole["outcome"] = step.outcome
    others = {"error": step.error, "seconds": step.seconds}
    return {**whole, **{key: value for key, value in others.items() if value is not None}}


# --- Reading -----------------------------------------------------------------------------------

_NUMBERS: Final = (int, float)
_FIRST: Final = {"format": (int,), "run": (dict,)}
_RUN: Final = {
    "kind": (str,),
    "component": (str,),
    "run_id": (str,),
    "session_id": (str,),
    "user": (str,),
    "input": (dict,),
    "state": (dict,),
    "definition": (str,),
    "redacted": (bool,),
}
_DEFINITION: Final = {
    "definition": (str,),
    "kind": (str,),
    "component": (str,),
    "document": (dict,),
}
_HISTORY: Final = {"history": (list,)}
_MESSAGE: Final = {"role": (str,), "content": (str,)}
_END: Final = {"end": (str,), "output": (dict,)}
_OUTCOME: Final = (dict, type(None))
_STEP: Final = {"place": (str,), "kind": (str,), "outcome": _OUTCOME}
_BY_KIND: Final[Mapping[str, Mapping[str, tuple[type, ...]]]] = {
    StepKind.MODEL: {**_STEP, "asked": (str,)},
    StepKind.CALL: {**_STEP, "name": (str,), "arguments": (dict,)},
    StepKind.MEMBER: {**_STEP, "name": (str,), "arguments": (dict,)},
    StepKind.START: {**_STEP, "name": (str,)},
    FUNCTION: {**_STEP, "name": (str,)},
}
_OF_STEP: Final[Mapping[str, Mapping[str, tuple[type, ...]]]] = {
    StepKind.MODEL: {"error": (dict,), "seconds": _NUMBERS},
    StepKind.CALL: {"decision": (dict,), "seconds": _NUMBERS},
    StepKind.MEMBER: {"seconds": _NUMBERS},
    StepKind.START: {},
    FUNCTION: {"error": (dict,), "seconds": _NUMBERS},
}
_GIVEN: Final = ("outcome", "arguments", "seconds", "decision", "error")
_DECISION: Final = {"confirmed": (bool,)}
_OF_DECISION: Final[Mapping[str, tuple[type, ...]]] = {"note": (str,)}
_ERROR: Final = {"type": (str,), "sentence": (str,)}
_MODEL: Final = {"usage": (list,)}
_OF_MODEL: Final[Mapping[str, tuple[type, ...]]] = {
    "content": (str,),
    "calls": (list,),
    "thoughts": (list,),
    "reasoning": (str,),
    "correction": (str,),
    "cost": (int,),
    "guards": (list,),
    "prompt": (str,),
    "seconds": _NUMBERS,
    "model": (list,),
}
_OF_CALL: Final[Mapping[str, tuple[type, ...]]] = {
    "result": (str,),
    "failed": (bool,),
    "last": (bool,),
    "run": (str,),
    "state": (dict,),
}
_OF_STATE: Final[Mapping[str, tuple[type, ...]]] = {"set": (dict,), "deleted": (list,)}
_FUNCTION: Final = {"content": (str, *_NUMBERS, bool, dict, list, type(None))}
_OF_START: Final[Mapping[str, tuple[type, ...]]] = {
    "definition": (str,),
    "instructions": (str, type(None)),
    "kind": (str,),
    "name": (str,),
    "calls": (list,),
    "guards": (list,),
    "message": (str,),
    "usage": (list,),
    "cost": (int,),
}
_GUARD: Final = (str, str, str, int, str)
_WORDS: Final = {
    str: "text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
    type(None): "null",
}


class _Bad(Exception):
    """Leaves the reading of a file; never leaves this module."""


def read_recording(data: bytes) -> Recording | BadRecording:
    """Return the recording that a file holds."""
    if len(data) > MAX_FILE:
        return BadRecording(f"The file has {len(data)} bytes, and no more than {MAX_FILE} are read")
    return decode_recording(data.decode("utf-8", "surrogateescape").split("\n"))


def decode_recording(lines: Iterable[str]) -> Recording | BadRecording:
    """Return the recording that lines are; whatever they are, nothing is raised."""
    reader = _Reader()
    try:
        for text in lines:
            reader.take(text.removesuffix("\n"))
        return reader.finish()
    except _Bad as bad:
        return BadRecording(str(bad))


@define(eq=False)
class _Reader:
    """Reads a recording line by line.

    Attributes:
        number: That of the line.
        root: The digest of the definition that the run began with.
        calls: What an answer had called, by its place: name of the tool and arguments as text.
    """

    number: int = 0
    size: int = 0
    run: RecordedRun | None = None
    root: str = ""
    definitions: dict[str, RecordedDefinition] = field(factory=dict[str, RecordedDefinition])
    history: tuple[Mapping[str, Any], ...] | None = None
    steps: dict[str, RecordedStep] = field(factory=dict[str, RecordedStep])
    calls: dict[str, list[Any]] = field(factory=dict[str, list[Any]])
    end: Mapping[str, Any] | None = None
    last: tuple[int, ...] = ()

    def take(self, text: str) -> None:
        """Read a line; empty ones may stand behind the end."""
        self.number += 1
        data = text.encode("utf-8", "surrogatepass")
        self.size += len(data) + 1
        if self.size > MAX_FILE + 1:
            self.fail(f"more than {MAX_FILE} bytes are not read")
        if len(data) > MAX_LINE:
            self.fail(f"it has {len(data)} bytes, and no more than {MAX_LINE} are read of one")
        if self.end is not None:
            if text:
                self.fail("something stands behind the end")
            return
        line = parse_json(data, _DEEP)
        if isinstance(line, BadJson):
            self.fail(f"it is {line.reason}; the file may have been cut")
        if not isinstance(line, dict):
            self.fail("it is no JSON object")
        if self.run is None:
            self._begin(line)
        elif "definition" in line:
            self._define(line)
        elif "history" in line:
            self._recall(line)
        elif "place" in line:
            self._step(line)
        elif "end" in line:
            self._end(line)
        else:
            self.fail("it is no line of a recording")

    def finish(self) -> Recording:
        """Return the recording, now that there are no more lines."""
        if self.run is None or self.end is None:
            self.number += 1
            self.fail("the line with the end is missing; the file was cut")
        return Recording(
            self.run,
            tuple(self.steps.values()),
            self.end["end"],
            self.end["output"],
            tuple(self.definitions.values()),
            self.history or (),
        )

    def fail(self, what: str) -> NoReturn:
        """Leave with a sentence about this line."""
        raise _Bad(f"Line {self.number} cannot be read: {what}")

    def check(
        self,
        value: Mapping[str, Any],
        needed: Mapping[str, tuple[type, ...]],
        others: Mapping[str, tuple[type, ...]] | None = None,
        where: str = "",
    ) -> None:
        """Hold `value` to be an object with these members."""
        for name in needed:
            if name not in value:
                self.fail(f"{where}{name} is missing")
        known = {**needed, **(others or {})}
        for name, member in value.items():
            if name not in known:
                self.fail(f"{where}{name[:40]!r} is an unknown member")
            if type(member) not in known[name]:
                self.fail(f"{where}{name} is not {_WORDS[known[name][0]]}")

    def _begin(self, line: Mapping[str, Any]) -> None:
        if "format" in line and line["format"] != FORMAT:
            shown = compact_json(line["format"])[:40]
            self.fail(f"its format is {shown}, and this release reads format {FORMAT}")
        self.check(line, _FIRST)
        self.check(line["run"], _RUN, where="run.")
        if line["run"]["kind"] not in ("agent", "team"):
            self.fail("run.kind is neither agent nor team")
        self.run = RecordedRun(**line["run"])
        self.root = self.run.definition

    def _define(self, line: Mapping[str, Any]) -> None:
        self.check(line, _DEFINITION)
        if self.history is not None:
            self.fail("a definition stands behind the history; the file was edited")
        one = RecordedDefinition(*(line[name] for name in _DEFINITION))
        if one.digest in self.definitions:
            self.fail("it defines once more what a line before it does")
        text = compact_json(one.document)
        made = hashlib.sha256(f"{one.kind}:{one.component}:{text}".encode()).hexdigest()
        if self.run is not None and not self.run.redacted and made != one.digest:
            self.fail("the definition is not that of its digest; the file was edited")
        self.definitions[one.digest] = one

    def _recall(self, line: Mapping[str, Any]) -> None:
        self.check(line, _HISTORY)
        if self.history is not None:
            self.fail("it is the second line with a history")
        others = {"calls": (list,), "call_id": (str,)}
        for message in line["history"]:
            if not is_object(message):
                self.fail("a message of the history is no object")
            self.check(message, _MESSAGE, others, "history: ")
            self._check_calls(message.get("calls", ()), 3)
        self.history = tuple(line["history"])
        self._check_definition(self.root)

    def _step(self, line: Mapping[str, Any]) -> None:
        if self.history is None:
            self.fail("a step stands before the history; a line is missing")
        needed = _BY_KIND.get(line["kind"]) if isinstance(line.get("kind"), str) else None
        if needed is None:
            self.fail("kind is none of model, call, member, start and function")
        self.check(line, needed, _OF_STEP[line["kind"]])
        place = line["place"]
        if not _PLACE.fullmatch(place):
            self.fail(f"{place[:40]!r} is no place")
        if place in self.steps:
            self.fail(f"place {place} stands in the file twice")
        order = order_of(place)
        if order <= self.last:
            self.fail(f"place {place} is out of order; the file was edited")
        if len(self.steps) >= MAX_STEPS:
            self.fail(f"no more than {MAX_STEPS} steps are read")
        self.last = order
        asked = line["asked" if line["kind"] == StepKind.MODEL else "name"]
        given = (line.get(name) for name in _GIVEN)
        step = RecordedStep(place, line["kind"], asked, *given)
        self._check_place(step)
        self._check_outcome(step)
        if step.decision is not None:
            self.check(step.decision, _DECISION, _OF_DECISION, "decision.")
        if step.error is not None:
            self.check(step.error, _ERROR, where="error.")
        self.steps[place] = step

    def _check_place(self, step: RecordedStep) -> None:
        """Hold a step to follow from those before it."""
        prefix, slash, own = step.place.rpartition("/")
        below = f"{prefix}{slash}"
        if prefix and (prefix not in self.steps or self.steps[prefix].kind != StepKind.MEMBER):
            self.fail(f"place {step.place} is below no member; the file was cut or edited")
        answer, dot, number = own.partition(".")
        if bool(dot) != (step.kind in _CALLS) or (own == START) != (step.kind == StepKind.START):
            self.fail(f"place {step.place} is none of a {step.kind}")
        if dot:
            self._check_call(step, f"{below}{answer}", int(number))
        elif int(answer) > 1 and f"{below}{int(answer) - 1}" not in self.steps:
            self.fail(f"place {below}{int(answer) - 1} is missing; the file was cut or edited")

    def _check_call(self, step: RecordedStep, answer: str, number: int) -> None:
        calls = self.calls.get(answer, [])
        if not 0 < number <= len(calls):
            self.fail(f"place {answer} has no call {number}; the file was cut or edited")
        if step.kind == StepKind.CALL and calls[number - 1][1] != step.asked:
            self.fail(f"the call at place {step.place} is not of the tool that place {answer} says")

    def _check_outcome(self, step: RecordedStep) -> None:
        members = step.outcome
        if members is None:
            return
        if step.kind == StepKind.MODEL:
            self.check(members, _MODEL, _OF_MODEL, "outcome.")
            self._check_answer(members)
            self.calls[step.place] = members.get("calls", [])
        elif step.kind == StepKind.START:
            self.check(members, {}, _OF_START, "outcome.")
            self._check_definition(members.get("definition", ""))
            self._check_calls(members.get("calls", ()), 4)
            self._check_guards(members.get("guards", ()))
            if "usage" in members:
                self._check_usage(members["usage"])
            self.calls[step.place] = members.get("calls", [])
        elif step.kind == FUNCTION:
            self.check(members, _FUNCTION, where="outcome.")
        else:
            self.check(members, {}, _OF_CALL, "outcome.")
            self.check(members.get("state", {}), {}, _OF_STATE, "outcome.state.")

    def _check_answer(self, members: Mapping[str, Any]) -> None:
        self._check_calls(members.get("calls", ()), 4)
        for thought in members.get("thoughts", ()):
            if not (is_array(thought) and len(thought) == 4):
                self.fail("outcome.thoughts is not that of an answer")
        model = members.get("model", ["", ""])
        if not (len(model) == 2 and all(isinstance(one, str) for one in model)):
            self.fail("outcome.model is not an id and a provider")
        self._check_usage(members["usage"])
        self._check_guards(members.get("guards", ()))
        try:
            decode_model(members, 0)
        except (ValueError, LookupError):
            self.fail("outcome.calls has a call that stands as none can")

    def _check_guards(self, entries: Iterable[Any]) -> None:
        """Hold entries of guards to be lists: moment, guard and verdict; of a call its number."""
        for entry in entries:
            types = tuple(map(type, entry)) if is_array(entry) else ()
            if types not in (_GUARD[:3], _GUARD) or (len(types) == len(_GUARD) and entry[3] < 1):
                self.fail("outcome.guards has one that is no verdict")

    def _check_usage(self, usage: Any) -> None:
        if not (len(usage) == 5 and all(type(one) is int for one in usage)):
            self.fail("outcome.usage is not five numbers")

    def _check_calls(self, calls: Iterable[Any], least: int) -> None:
        """Hold calls to be lists of texts: id, name, arguments, and how they stand."""
        for call in calls:
            fits = is_array(call) and least <= len(call) <= least + 1
            if not fits or not all(isinstance(one, str) for one in call):
                self.fail("calls has one that is no call")

    def _check_definition(self, digest: str) -> None:
        if digest and digest not in self.definitions:
            self.fail("it names a definition that no line before it has")

    def _end(self, line: Mapping[str, Any]) -> None:
        if self.history is None:
            self.fail("the end stands before the history; a line is missing")
        self.check(line, _END)
        if line["end"] not in _ENDS:
            self.fail("end is no state of a run")
        self.end = line
