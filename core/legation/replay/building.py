"""The recording of a stored run, built from its row, its steps and the events that frame them.

The last answer of a model is no step, since nothing follows it: its line is built from the output
of the run, and so is that of an agent's function.  The answer of a person to a call that was not
carried out here is no step either: its line is built from the event with which the run went on.
Nothing is guessed: where an answer is not known, its line says that it began, and how it failed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import evolve, field

from ..effects import Program, Transact
from ..http.bodies.media_types import TEXT
from ..models.conversation import Message
from ..money import nano_of
from ..runs.fold import RunRecord
from ..runs.given import name_user
from ..runs.output import MEDIA
from ..runs.prompt import history
from ..runs.step_outcomes import START, UnknownOutcome, decode_outcome, own_number
from ..runs.summaries import show_summary
from ..runs.terms import FORKED_FROM, OF_HISTORY
from ..runs.turn_state import Standing
from ..store.recordings import EarlierRuns, FetchMarks, FetchStateBefore
from ..store.run_reads import FetchRun, RunsOfNumbers
from ..store.run_rows import RunRow, StoredEvent
from ..store.run_states import RunState
from ..store.session_state import EMPTY
from ..store.steps import COPIED, FetchDefinitions, FetchMembersOver, FetchSteps, Step, StepKind
from ..store.summaries import SummaryOfNumber
from ..tools import plain_arguments
from ..values import define, frozen
from .recording import (
    FUNCTION,
    MAX_FILE,
    MAX_LINE,
    MAX_STEPS,
    RecordedDefinition,
    RecordedRun,
    RecordedStep,
    Recording,
    encode_recording,
    order_of,
)

__all__ = [
    "MEDIA_ROOM",
    "UNDER_WAY",
    "NotRecordable",
    "StoredRun",
    "build_recording",
    "encode_lines",
    "fetch_recording",
]

MEDIA_ROOM: Final = 1 << 20
"""How much of files and media is in a recording, in characters of base64 and text."""

UNDER_WAY: Final = "The run is under way: it can be recorded when it is over, or waits for a person"
_CHANGED: Final = "The run went on, or was deleted, while it was read: ask for it again"
_MEMBER: Final = "The run is that of a member: record the run that it is part of, {}"
_NO_STEPS: Final = (
    "The run cannot be recorded: its steps are not kept any more, or its release kept none"
)
_PRUNED: Final = "The run cannot be recorded: its {} are not kept any more"
_COPY: Final = "The run is a copy in a fork of a session: record the run that it is a copy of"
_FORK: Final = (
    "The run is a fork behind calls of members, whose answers stand in another run: record {}"
)
_LATER: Final = "The run cannot be recorded: a later release stored its steps"
_TOO_LONG: Final = (
    "The run cannot be recorded: its file would have {}, and no more than {} are read of one"
)

# Of the input all that a turn reads; its limits, and whom its answer is sent to, are not the run's.
_ASKED: Final = (
    "message",
    *MEDIA,
    "dependencies",
    "metadata",
    "claims",
    "output_schema",
    "use_json_schema",
    "in_doubt",
)
_OUTPUT: Final = (
    "content",
    "content_type",
    "reasoning_content",
    "error_type",
    "error_message",
    "session_state",
)
_USAGE: Final = (
    "input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
)
_ASKS: Final = (Standing.CONFIRM.value, Standing.EXTERNAL.value)
_NO_OUTPUT: Final[Mapping[str, Any]] = {}


@frozen
class NotRecordable:
    """The run has no recording; `detail` is a sentence that says why."""

    detail: str


class _Refused(Exception):
    """Leaves the building of a recording with a sentence; never leaves this module."""


@frozen
class StoredRun:
    """All that is stored of a run and matters for its recording.

    Attributes:
        members: The runs of members that are over, or wait: status and output, by their ids.
        definitions: The documents of the definitions that the steps name, by their digests.
        marks: The events that say that a run begins, goes on, or asks a model.
        earlier: Number and output of the runs that the model was told, in their order.
        state_before: The state of the session as the run before this one left it, as JSON.
    """

    row: RunRow
    steps: tuple[Step, ...] = ()
    members: Mapping[str, tuple[str, str]] = field(factory=dict[str, tuple[str, str]])
    definitions: Mapping[str, str] = field(factory=dict[str, str])
    marks: tuple[StoredEvent, ...] = ()
    earlier: tuple[tuple[int, str], ...] = ()
    summary: str = ""
    state_before: str = EMPTY


# --- Reading -----------------------------------------------------------------------------------


def fetch_recording(
    database: str, row: RunRow, history_runs: int = 0
) -> Program[Recording | NotRecordable]:
    """Return the recording of `row`, or why it has none.

    `history_runs` is how many earlier runs the model of its agent or team is told: it counts where
    the run kept no steps, which would say what it was told.

    Raises:
        StoreFailure: The database does not answer.
    """
    if row.parent_run_id is not None:
        return NotRecordable(_MEMBER.format(row.parent_run_id))
    status = RunState(row.status)
    if not (status.final or status is RunState.PAUSED):
        return NotRecordable(UNDER_WAY)
    steps = yield from Transact(database, FetchSteps(row.owner, row.run_id))
    try:
        starts = _decode_starts(steps)
    except UnknownOutcome:
        return NotRecordable(_LATER)
    digests = {start["definition"] for start in starts.values()}
    definitions: Mapping[str, str] = {}
    if digests:
        definitions = yield from Transact(database, FetchDefinitions(tuple(sorted(digests))))
    record = _to_record(row, steps)
    runs = tuple(sorted(map(record.run_of, record.member_places)))
    members: Mapping[str, tuple[str, str]] = {}
    if runs:
        members = yield from Transact(database, FetchMembersOver(row.owner, runs))
    marks = yield from Transact(database, FetchMarks(row.owner, row.run_id))
    earlier = yield from _fetch_earlier(database, row, starts.get(START), history_runs)
    told = starts.get(START, _NO_OUTPUT).get("history", ())
    summary = yield from _fetch_summary(database, row, starts.get(START, _NO_OUTPUT))
    if (row.events > 1 and not marks) or len(earlier) < len(told) or summary is None:
        return NotRecordable(_PRUNED.format("earlier runs" if marks else "events"))
    before = FetchStateBefore(row.owner, row.session_id, row.run_no, _began(row))
    state = yield from Transact(database, before)
    now = yield from Transact(database, FetchRun(row.run_id, row.owner))
    if now is None or (now.attempt, now.events) != (row.attempt, row.events):
        return NotRecordable(_CHANGED)
    return build_recording(
        StoredRun(row, steps, members, definitions, marks, earlier, summary, state),
    )


def _decode_starts(steps: Iterable[Step]) -> dict[str, Mapping[str, Any]]:
    return {
        step.place: decode_outcome(step.outcome)
        for step in steps
        if step.kind == StepKind.START and step.outcome is not None
    }


def _to_record(row: RunRow, steps: Iterable[Step]) -> RunRecord:
    return RunRecord(row.run_id, row.created_us, {step.place: step for step in steps})


def _began(row: RunRow) -> int:
    return row.created_us if row.started_us is None else row.started_us


def _fetch_earlier(
    database: str, row: RunRow, start: Mapping[str, Any] | None, history_runs: int
) -> Program[tuple[tuple[int, str], ...]]:
    """Return the runs that the model was told: those of the start, else those that it was to be."""
    place = (row.owner, row.session_id)
    if start is not None:
        numbers = tuple(start.get("history", ()))
        if not numbers:
            return ()
        return (yield from Transact(database, RunsOfNumbers(*place, numbers)))
    if not history_runs:
        return ()
    unit = EarlierRuns(*place, row.run_no, history_runs, before_us=_began(row))
    return (yield from Transact(database, unit)) or ()


def _fetch_summary(database: str, row: RunRow, start: Mapping[str, Any]) -> Program[str | None]:
    """Return the summary that the model was told, empty for none; None where it was deleted."""
    if "summary" not in start:
        return ""
    unit = SummaryOfNumber(row.owner, row.session_id, start["summary"])
    found = yield from Transact(database, unit)
    return None if found is None else found.text


# --- Building ----------------------------------------------------------------------------------


def build_recording(stored: StoredRun) -> Recording | NotRecordable:
    """Return the recording of a run that is over or waits, or why it has none."""
    try:
        return _Builder(stored).build()
    except UnknownOutcome:
        return NotRecordable(_LATER)
    except _Refused as refused:
        return NotRecordable(str(refused))


@frozen
class _Requests:
    """The requests of one run to its model, as its events tell.

    Attributes:
        model: The id of the model that was asked last.
        count: How many answers were asked for; one that was asked for again counts once.
        answer: The data of the event with the last answer, None where there was none.
    """

    model: str
    count: int
    answer: Mapping[str, Any] | None


@define(eq=False)
class _Builder:
    """Builds one recording.

    Attributes:
        output: That of the run at the top.
        steps: The steps so far, by their places.
    """

    stored: StoredRun
    output: Mapping[str, Any] = field(init=False)
    steps: dict[str, RecordedStep] = field(factory=dict[str, RecordedStep], init=False)
    _record: RunRecord = field(init=False)
    _marks: tuple[tuple[str, dict[str, Any]], ...] = field(init=False)
    _decisions: dict[tuple[str, str], Mapping[str, Any]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        stored = self.stored
        self.output = json.loads(stored.row.shown or EMPTY)
        self._record = _to_record(stored.row, stored.steps)
        self._marks = tuple((one.name, json.loads(one.data)) for one in stored.marks)
        self._decisions = self._find_decisions()

    def build(self) -> Recording:
        row = self.stored.row
        self._check_kept()
        self._check_copied()
        self._add_stored()
        self._add_turn("", row.run_id, row.status, self.output)
        for place in self._record.member_places:
            run_id = self._record.run_of(place)
            status, output = self.stored.members.get(run_id, ("", EMPTY))
            self._add_turn(f"{place}/", run_id, status, json.loads(output))
        steps = tuple(sorted(self.steps.values(), key=lambda step: order_of(step.place)))
        if len(steps) > MAX_STEPS:
            raise _Refused(_TOO_LONG.format(f"{len(steps)} steps", MAX_STEPS))
        start = self.steps.get(START)
        return Recording(
            run=RecordedRun(
                row.kind,
                row.component_id,
                row.run_id,
                row.session_id,
                _list_input(json.loads(row.input)),
                self._find_state(),
                "" if start is None or start.outcome is None else start.outcome["definition"],
                user=name_user(row.owner) or "",
            ),
            steps=steps,
            end=row.status,
            output={name: self.output[name] for name in _OUTPUT if name in self.output},
            definitions=tuple(self._list_definitions(steps)),
            history=tuple(map(_encode_message, self._list_history())),
        )

    def _list_history(self) -> list[Message]:
        stored = self.stored
        summary = [show_summary(stored.summary)] if stored.summary else []
        return [*summary, *history(stored.earlier)]

    def _check_kept(self) -> None:
        """Hold a run of a model with calls to have steps."""
        calls = self.output.get("tools") or self.output.get("member_responses")
        if calls and "model" in self.output and not self.stored.steps:
            raise _Refused(_NO_STEPS)

    def _check_copied(self) -> None:
        """Hold what is copied from another run to be whole here: its last answers are no steps."""
        row, copied = self.stored.row, [s for s in self.stored.steps if s.attempt == COPIED]
        if not row.events and (copied or row.status == RunState.COMPLETED.value):
            raise _Refused(_COPY)
        if any(step.kind == StepKind.MEMBER for step in copied):
            raise _Refused(_FORK.format(json.loads(row.input)[FORKED_FROM]["run_id"]))

    # The steps that are stored

    def _add_stored(self) -> None:
        answers = {
            step.place: decode_outcome(step.outcome)
            for step in self.stored.steps
            if step.outcome is not None
        }
        for step in self.stored.steps:
            if self._is_own(step):
                continue  # the function as a whole is a step
            members = answers.get(step.place)
            outcome = None if members is None else _without(members, ("f", *OF_HISTORY))
            self.steps[step.place] = RecordedStep(
                step.place,
                step.kind,
                step.asked,
                outcome,
                _find_arguments(answers, step.place) if "." in _own(step.place) else None,
                _find_seconds(step),
            )

    def _is_own(self, step: Step) -> bool:
        """Return whether the function of an agent took a step."""
        prefix = step.place.removesuffix(_own(step.place))
        return own_number(prefix, step) is not None

    # The steps that are not

    def _add_turn(self, prefix: str, run_id: str, status: str, output: Mapping[str, Any]) -> None:
        """Add what is known of one turn beside its steps: decisions, and its last answer."""
        rounds, copied = self._count_rounds(prefix), self._count_copied(prefix)
        for number in range(rounds + 1):
            self._add_decisions(f"{prefix}{number}", run_id)
        requests = self._find_requests(run_id)
        started = self._find_start(run_id)
        place = f"{prefix}{rounds + 1}"
        function = started is not None and "model" not in started
        if not function and requests is not None and requests.count > rounds - copied:
            if requests.count > rounds - copied + 1:
                raise _Refused(_NO_STEPS)
            answer = _find_answer(requests, status, output)
            step = RecordedStep(place, StepKind.MODEL.value, requests.model, answer)
        elif started is not None and function and not rounds:
            answer = None
            if status == RunState.COMPLETED.value:
                answer = {"content": output["content"]}
            asked: str = started.get("agent_id") or started["team_id"]
            step = RecordedStep(place, FUNCTION, asked, answer)
        else:
            return
        if answer is None:
            step = evolve(step, error=_find_error(status, output))
        elif not rounds and (took := output.get("metrics", {}).get("duration")) is not None:
            step = evolve(step, seconds=took)
        self.steps[place] = step

    def _count_rounds(self, prefix: str) -> int:
        """Return how many answers of a turn are stored; none between them may be missing."""
        numbers = sorted(
            int(_own(place))
            for place, step in self.steps.items()
            if step.kind == StepKind.MODEL and place == prefix + _own(place)
        )
        if numbers != list(range(1, len(numbers) + 1)):
            raise _Refused(_NO_STEPS)
        return len(numbers)

    def _count_copied(self, prefix: str) -> int:
        """Return how many answers at the top were given in the run that this one is a fork of."""
        answers = (s for s in self.stored.steps if s.kind == StepKind.MODEL and not prefix)
        return sum(step.attempt == COPIED for step in answers)

    def _add_decisions(self, answer: str, run_id: str) -> None:
        """Add what people said about the calls of one answer, which asked for that."""
        step = self.steps.get(answer)
        outcome = None if step is None else step.outcome
        calls: Sequence[Sequence[str]] = (outcome or _NO_OUTPUT).get("calls", ())
        for number, (call_id, name, text, standing, *_) in enumerate(calls, 1):
            place, said = f"{answer}.{number}", self._decisions.get((run_id, call_id))
            if standing not in _ASKS:
                continue
            one = self.steps.get(place)
            if one is None and said is not None:
                arguments = plain_arguments(text)
                outcome = _find_outcome(said)
                kind = StepKind.CALL.value
                given = {} if isinstance(arguments, str) else arguments
                one = RecordedStep(place, kind, name, outcome, given)
            if one is None:
                continue
            if standing == Standing.CONFIRM.value:
                one = evolve(one, decision=_find_decision(said))
            self.steps[place] = one

    def _find_decisions(self) -> dict[tuple[str, str], Mapping[str, Any]]:
        """Return the first answer of a person to each call, by its run and its id.

        A second one is about a call in doubt, whose outcome is among the steps.
        """
        run_id = self.stored.row.run_id
        found: dict[tuple[str, str], Mapping[str, Any]] = {}
        for name, data in self._marks:
            if name.endswith("RunContinued") and data["run_id"] == run_id:
                for one in data.get("tools", ()):
                    key = one.get("member_run_id", run_id), one["tool_call_id"]
                    found.setdefault(key, one)
        return found

    def _find_requests(self, run_id: str) -> _Requests | None:
        """Return the requests of a run to its model; None where it asked none."""
        model, asked, answer = "", set[str](), None
        for name, data in self._marks:
            if data["run_id"] != run_id:
                continue
            if name.endswith("ModelRequestStarted"):
                model, answer = data["model"], None
                asked.add(data.get("message_id", ""))
            elif name.endswith("ModelRequestCompleted"):
                answer = data
        return _Requests(model, len(asked), answer) if asked else None

    def _find_start(self, run_id: str) -> Mapping[str, Any] | None:
        """Return the event with which a run began; None where it never did."""
        started = (
            data
            for name, data in self._marks
            if name.endswith("RunStarted") and data["run_id"] == run_id
        )
        return next(started, None)

    # The rest of the run

    def _find_state(self) -> dict[str, Any]:
        """Return the state of the session before the run, as far as it is known.

        It is as the run left it, without what its calls wrote; of these keys, and all that a
        function of an agent may have written, as the run before left it.
        """
        left: Mapping[str, Any] = self.output.get("session_state", _NO_OUTPUT)
        before: dict[str, Any] = json.loads(self.stored.state_before)
        if any(step.kind == FUNCTION for step in self.steps.values()):
            return before
        written: set[str] = set()
        for step in self.steps.values():
            change = (step.outcome or {}).get("state", {})
            written.update(change.get("set", ()), change.get("deleted", ()))
        kept = {key: value for key, value in left.items() if key not in written}
        return {**kept, **{key: before[key] for key in before if key in written}}

    def _list_definitions(self, steps: Iterable[RecordedStep]) -> Iterator[RecordedDefinition]:
        """Yield the definitions in the order in which they are first named."""
        known: set[str] = set()
        for step in steps:
            if step.kind != StepKind.START or step.outcome is None:
                continue
            digest: str = step.outcome["definition"]
            if digest not in known:
                known.add(digest)
                kind: str = step.outcome.get("kind", self.stored.row.kind)
                document = json.loads(self.stored.definitions[digest])
                yield RecordedDefinition(digest, kind, step.asked, document)


def _own(place: str) -> str:
    return place.rpartition("/")[2]


def _without(members: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: members[name] for name in members if name not in names}


def _find_arguments(answers: Mapping[str, Mapping[str, Any]], place: str) -> Mapping[str, Any]:
    """Return the arguments of the call at `place`, as the answer before it has them."""
    answer, _, number = place.rpartition(".")
    calls = answers.get(answer, {}).get("calls", ())
    if len(calls) < int(number):
        raise _Refused(_NO_STEPS)
    arguments = plain_arguments(calls[int(number) - 1][2])
    return {} if isinstance(arguments, str) else arguments


def _find_seconds(step: Step) -> float | None:
    if step.ended_us is None or step.kind == StepKind.START:
        return None
    return (step.ended_us - step.begun_us) / 1_000_000


def _find_answer(
    requests: _Requests, status: str, output: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the outcome of the last answer of a run; None where that is not known.

    One that used up the tokens of a day stands in the output, beside the sentence about that.
    """
    answer = requests.answer
    if answer is None:
        return None
    if status == RunState.COMPLETED.value:
        message: Mapping[str, Any] = output["messages"][-1]
    elif "error_message" in output:
        message = output
    else:
        return None
    whole = {
        "content": message["content"],
        "reasoning": message.get("reasoning_content", ""),
        "usage": [answer.get(name, 0) for name in _USAGE],
        "cost": nano_of(answer.get("cost")),
        "seconds": answer.get("time_to_first_token"),
    }
    return {name: value for name, value in whole.items() if value not in ("", None)}


def _find_error(status: str, output: Mapping[str, Any]) -> dict[str, str] | None:
    if status != RunState.ERROR.value:
        return None
    sentence = output.get("error_message", output.get("content", ""))
    return {"type": output.get("error_type", ""), "sentence": sentence}


def _find_outcome(said: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what came of a call that a person answered; None where it was to be carried out."""
    if said["result"] is None:
        return None
    whole = {"result": said["result"], "failed": said["tool_call_error"]}
    return {name: value for name, value in whole.items() if value}


def _find_decision(said: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a person said; a call that was carried out had been confirmed."""
    if said is None:
        return {"confirmed": True}
    note = said["confirmation_note"]
    decision = {"confirmed": said["confirmed"] is not False}
    return {**decision, "note": note} if note else decision


def _encode_message(message: Message) -> dict[str, Any]:
    calls = [[call.id, call.name, call.arguments] for call in message.calls]
    whole = {"calls": calls, "call_id": message.call_id}
    shown = {name: value for name, value in whole.items() if value}
    return {"role": message.role, "content": message.content, **shown}


def _list_input(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input; of media beyond `MEDIA_ROOM` the digest and the size."""
    shown, room = {name: asked[name] for name in _ASKED if name in asked}, MEDIA_ROOM
    for kind in MEDIA:
        if kind in shown:
            items = list[Mapping[str, Any]]()
            for item in shown[kind]:
                kept, room = _fit(item, room)
                items.append(kept)
            shown[kind] = items
    return shown


def _fit(item: Mapping[str, Any], room: int) -> tuple[Mapping[str, Any], int]:
    """Return a file whole, if there is `room` for it, and the room that is left."""
    texts = [item[name] for name in ("content", TEXT) if isinstance(item.get(name), str)]
    size = sum(map(len, texts))
    if size <= room:
        return item, room - size
    digest = hashlib.sha256("".join(texts).encode()).hexdigest()
    return {**_without(item, ("content", TEXT)), "sha256": digest, "characters": size}, room


# --- Writing -----------------------------------------------------------------------------------


def encode_lines(recording: Recording) -> tuple[bytes, ...] | NotRecordable:
    """Return the lines of a recording with their ends, if a reader takes as many bytes."""
    lines, size = list[bytes](), 0
    for text in encode_recording(recording):
        line = f"{text}\n".encode()
        size += len(line)
        if len(line) > MAX_LINE:
            return NotRecordable(_TOO_LONG.format("a line of more bytes", MAX_LINE))
        if size > MAX_FILE:
            return NotRecordable(_TOO_LONG.format("more bytes", MAX_FILE))
        lines.append(line)
    return tuple(lines)
