"""Spans: what a request and the runs it began did, and how long each part took.

`with_trace` runs a program within a trace: what it sends to others bears its headers, what it
spawns belongs to it as well, and where spans are recorded the events that it publishes are folded
into them.  Nothing of what people or models say is in a span: names, ids and counts alone.

The id of a run's span follows from the id of the run, those of the parts from their place in it:
so whoever ends the run of a process that died tells the span that its parts are within.

What is stored for later, a run, a message, a reply, bears the trace that it was stored in; whoever
takes it up goes on in that one.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final, TypeAlias, TypeGuard, TypeVar, cast

from attrs import define, evolve, field

from ..effects import (
    Asks,
    Concurrently,
    Fetch,
    Interruptible,
    Job,
    Now,
    OpenStream,
    Program,
    Publish,
    RunEvent,
    Spawn,
    Transact,
)
from ..messaging.answers import AnswerMessage
from ..messaging.replies import SendReply
from ..programs import Handlers, intercept
from ..runs.executor import ExecuteRun
from ..store.audit import Audited
from ..store.inbox import CompleteMessage, FailMessage, PutMessages
from ..store.outbox import FailReply, NewReply
from ..store.run_keeping import Neglected
from ..store.run_rows import RunRow
from ..store.run_steering import ContinueRun
from ..store.runs import StartRun
from ..store.units import Unit
from ..values import frozen
from . import genai
from .request_log import Arrival, method_label
from .tracing import Trace, read_note, with_note

__all__ = [
    "Attributes",
    "Kind",
    "Recorder",
    "Span",
    "TraceContext",
    "TracedJob",
    "Work",
    "with_trace",
]

R = TypeVar("R")

Attributes: TypeAlias = Mapping[str, str | int]

_KEPT: Final = 20_000
"""Spans that wait to be taken; the oldest give way."""

_RUNS: Final = 10_000
"""Runs that are followed at once; one whose end is never heard of gives way."""


class Kind(Enum):
    """What side of a call a span is, in the words of OpenTelemetry."""

    SERVER = "server"
    INTERNAL = "internal"
    CLIENT = "client"
    CONSUMER = "consumer"


@frozen
class Span:
    """One span, from its beginning to its end.

    Attributes:
        error: Of what kind its failure was.
        link: The span in which the message that this one is about was made.
    """

    name: str
    kind: Kind
    trace_id: str
    span_id: str
    parent_id: str | None
    start_us: int
    end_us: int
    attributes: Attributes = field(factory=dict[str, "str | int"])
    error: str | None = None
    link: Trace | None = None


@define
class _Open:
    """A span that has begun."""

    name: str
    kind: Kind
    span_id: str
    start_us: int
    attributes: dict[str, str | int]


@define
class _Run:
    """A run that goes on: its own span, and what is open in it, by the name of the part."""

    trace_id: str
    parent_id: str | None
    span: _Open
    parts: dict[str, _Open] = field(factory=dict[str, _Open])


@define(eq=False)
class Work:
    """The work on one message or one reply: a span from the beginning of its job to the end.

    The message that a reply answers, or the request that brought a message, is the parent, and is
    linked to as well: OpenTelemetry's conventions for messaging ask for the link, and leave the
    parent to those who take messages one by one.
    """

    operation: str
    kind: Kind
    channel: str
    trace: Trace
    origin: Trace | None
    error: str | None = None


@frozen
class TraceContext:
    """The trace that the effects of a program belong to.

    Attributes:
        trace: What is handed on; None where nobody named a trace.
        recorder: Takes the spans, where they are recorded.
        parent: The span that a run is within; `trace` is then the run's own.
        work: The job's own span, where it is work on a message.
        beyond: Takes the spans of what goes on in another trace, where those of this are not
            recorded.
    """

    trace: Trace | None
    recorder: Recorder | None = None
    parent: Trace | None = None
    work: Work | None = None
    beyond: Recorder | None = None

    def wrap_job(self, job: Job) -> Job:
        """Return `job` within the trace that it was stored in, if it was, else within this one.

        So the next run of a session is no part of the one that made way for it.
        """
        match job:
            case ExecuteRun(run=run):
                origin = read_note(run.input)
            case AnswerMessage(claimed=claimed) | SendReply(claimed=claimed):
                origin = read_note(claimed.payload)
            case _:
                return TracedJob(job, evolve(self, work=None) if self.work else self)
        # What was asked for by somebody who records nothing is not recorded either.
        recorder = self.recorder or self.beyond
        if recorder is not None and (origin is None or origin.sampled):
            return TracedJob(job, _begin_context(job, origin, recorder))
        # Nothing follows on a message: with nothing to hand on, a context would bring it nothing.
        if origin is None and not isinstance(job, ExecuteRun):
            return job
        return TracedJob(job, TraceContext(origin, beyond=recorder))


def _begin_context(
    job: ExecuteRun | AnswerMessage | SendReply, origin: Trace | None, to: Recorder
) -> TraceContext:
    """Return the context of a span of its own, within `origin` or in a trace of its own."""
    if isinstance(job, ExecuteRun):
        run = job.run
        span_id = _run_span(run.run_id, run.events)
        return TraceContext(_within_span(origin, span_id, _run_trace(run.run_id)), to, origin)
    if isinstance(job, AnswerMessage):
        what, kind, name = genai.PROCESS, Kind.CONSUMER, job.claimed.lease.key.message_id
    else:
        what, kind, name = genai.SEND, Kind.CLIENT, job.claimed.lease.key.idempotency_key
    channel = job.claimed.lease.key.channel
    span_id = _hash(16, what, channel, name, str(job.claimed.lease.attempts))
    trace = _within_span(origin, span_id, _hash(32, what, channel, name))
    return TraceContext(trace, to, work=Work(what, kind, channel, trace, origin))


def _within_span(origin: Trace | None, span_id: str, alone: str) -> Trace:
    """Return the span `span_id` in the trace of `origin`, without one in the trace `alone`."""
    return Trace(alone, span_id) if origin is None else evolve(origin, span_id=span_id)


def _run_trace(run_id: str) -> str:
    """Return the trace of a run that nobody has told one."""
    return _hash(32, "trace", run_id)


def _run_span(run_id: str, before: int) -> str:
    """Return the id of the span of a run that goes on after `before` events."""
    return _hash(16, "run", run_id, str(before))


@define(eq=False)
class Recorder:
    """Folds requests and the events of runs into spans, and keeps them until they are taken.

    Attributes:
        dropped: Spans that nobody took in time.
    """

    dropped: int = 0
    _ended: deque[Span] = field(factory=deque[Span], init=False)
    _given_up: deque[Span] = field(factory=deque[Span], init=False)
    _runs: dict[str, _Run] = field(factory=dict[str, _Run], init=False)
    _neglected: dict[str, RunRow] = field(factory=dict[str, RunRow], init=False)

    def take(self, now_us: int) -> tuple[Span, ...]:
        """Return the spans that ended since this was called last.

        Those that were given up, when nobody could ask for the time, end at `now_us`.
        """
        taken = (*self._ended, *(evolve(span, end_us=now_us) for span in self._given_up))
        self._ended.clear()
        self._given_up.clear()
        return taken

    def record_request(
        self, arrival: Arrival, trace: Trace, status: int | None, end_us: int | None
    ) -> None:
        """Record a request, whose own span `trace` names; without `end_us` it was given up."""
        method = method_label(arrival.request.method)
        told: dict[str, str | int] = {
            genai.HTTP_METHOD: method,
            genai.HTTP_ROUTE: arrival.template,
            genai.REQUEST_ID: arrival.request_id,
        }
        if status is not None:
            told[genai.HTTP_STATUS] = status
        failed = str(status) if status is not None and status >= 500 else None
        span = Span(
            f"{method} {arrival.template}",
            Kind.SERVER,
            trace.trace_id,
            trace.span_id,
            arrival.parent_id,
            arrival.now_us,
            arrival.now_us if end_us is None else end_us,
            told,
            "cut" if end_us is None else failed,
        )
        self._keep(span, self._given_up if end_us is None else self._ended)

    def record_late_answer(self, arrival: Arrival, status: int, end_us: int) -> None:
        """Record that a request was answered which was recorded as given up just now."""
        trace = arrival.trace
        if trace is None or not self._given_up or self._given_up[-1].span_id != trace.span_id:
            return
        self._given_up.pop()
        self.record_request(arrival, trace, status, end_us)

    def record_work(self, work: Work, start_us: int, end_us: int | None) -> None:
        """Record the work on a message; without `end_us` it was given up."""
        told: dict[str, str | int] = {
            genai.MESSAGING_SYSTEM: "legation",
            genai.MESSAGING_DESTINATION: work.channel,
            genai.MESSAGING_OPERATION: work.operation,
            genai.MESSAGING_OPERATION_TYPE: work.operation,
        }
        span = Span(
            f"{work.operation} {work.channel}",
            work.kind,
            work.trace.trace_id,
            work.trace.span_id,
            work.origin.span_id if work.origin else None,
            start_us,
            start_us if end_us is None else end_us,
            told,
            "cut" if end_us is None else work.error,
            work.origin,
        )
        self._keep(span, self._given_up if end_us is None else self._ended)

    def remember_neglected(self, neglected: Neglected) -> None:
        """Remember the runs of nodes that died: what ends them has not begun them."""
        for row in neglected.expired:
            self._neglected[row.run_id] = row
            if len(self._neglected) > _RUNS:
                del self._neglected[next(iter(self._neglected))]

    def record_events(
        self, run_id: str, events: tuple[RunEvent, ...], parent: Trace | None
    ) -> None:
        """Fold events of `run_id`, a run within the span `parent`.

        The members of a team speak of runs of their own among them.
        """
        for event in events:
            name = event.name.removeprefix("Team")
            if name in _QUIET:
                continue
            told = _read_attributes(event)
            whose = str(told.get("run_id", run_id))
            run = self._runs.get(whose)
            if run is None:
                if name in _BEGINNINGS:
                    self._neglected.pop(whose, None)
                    begun = _run_span(whose, event.seq - 1), event.at_us
                    run = self._begin(whose, begun, told, parent)
                else:
                    run = self._take_over(whose, told)
            if run is None:
                continue
            self._part(run, name, event, told)
            if name in _ENDS:
                self._finish(whose, run, name, event.at_us, told)

    def _take_over(self, run_id: str, told: Attributes) -> _Run | None:
        """Return the run of a node that died, as that node began it; None of anything else."""
        row = self._neglected.pop(run_id, None)
        parent = read_note(row.input) if row is not None else None
        if row is None or (parent is not None and not parent.sampled):
            return None
        # Where it had gone on after a pause, nobody knows any more how far it had come by then.
        before = row.events if "turn" in json.loads(row.input) else 0
        start_us = row.created_us if row.started_us is None else row.started_us
        return self._begin(run_id, (_run_span(run_id, before), start_us), told, parent)

    def _begin(
        self, run_id: str, begun: tuple[str, int], told: Attributes, parent: Trace | None
    ) -> _Run:
        """Return a run whose span has the id and the beginning `begun`."""
        above = self._runs.get(str(told.get("parent_run_id")))
        if above is not None:
            trace_id, parent_id = above.trace_id, above.span.span_id
        elif parent is not None:
            trace_id, parent_id = parent.trace_id, parent.span_id
        else:
            trace_id, parent_id = _run_trace(run_id), None
        name = told.get("agent_name") or told.get("team_name") or ""
        attributes: dict[str, str | int] = {
            genai.OPERATION: genai.INVOKE_AGENT,
            genai.AGENT_ID: told.get("agent_id") or told.get("team_id") or "",
            genai.AGENT_NAME: name,
            genai.CONVERSATION_ID: told.get("session_id", ""),
            genai.RUN_ID: run_id,
            **_rename_keys(told, _OF_MODEL),
        }
        span = _Open(f"{genai.INVOKE_AGENT} {name}", Kind.INTERNAL, *begun, attributes)
        run = self._runs[run_id] = _Run(trace_id, parent_id, span)
        if len(self._runs) > _RUNS:
            del self._runs[next(iter(self._runs))]
        return run

    def _part(self, run: _Run, name: str, event: RunEvent, told: Attributes) -> None:
        """Begin or end the span of a call to a model or a tool."""
        tool = f"tool {told.get(genai.TOOL_CALL_ID, '')}"
        if name == "ModelRequestStarted":
            attributes = {genai.OPERATION: genai.CHAT, **_rename_keys(told, _OF_MODEL)}
            title = f"{genai.CHAT} {told.get('model', '')}"
            run.parts["chat"] = _open_part(run, title, Kind.CLIENT, event, attributes)
        elif name == "ToolCallStarted":
            attributes = {genai.OPERATION: genai.EXECUTE_TOOL, **_rename_keys(told, _OF_TOOL)}
            title = f"{genai.EXECUTE_TOOL} {told.get(genai.TOOL_NAME, '')}"
            run.parts[tool] = _open_part(run, title, Kind.INTERNAL, event, attributes)
        elif name == "ModelRequestCompleted":
            self._close(run, "chat", _rename_keys(told, _OF_USE), event.at_us)
        elif name in {"ToolCallCompleted", "ToolCallError"}:
            failed = name == "ToolCallError" or bool(told.get("failed"))
            self._close(run, tool, {}, event.at_us, "tool_error" if failed else None)

    def _close(
        self, run: _Run, part: str, more: Attributes, now_us: int, error: str | None = None
    ) -> None:
        opened = run.parts.pop(part, None)
        if opened is not None:
            self._end(opened, run.trace_id, run.span.span_id, now_us, more, error)

    def _finish(self, run_id: str, run: _Run, name: str, now_us: int, told: Attributes) -> None:
        """End the run's span, and before it whatever is still open in it."""
        error = None
        if name in {"RunError", "RunCancelled"}:
            error = str(told.get("error_type") or "cancelled")
        for part in tuple(run.parts):
            self._close(run, part, {}, now_us, error)
        self._end(run.span, run.trace_id, run.parent_id, now_us, _rename_keys(told, _OF_USE), error)
        self._runs.pop(run_id, None)

    def _end(
        self,
        opened: _Open,
        trace_id: str,
        parent_id: str | None,
        now_us: int,
        more: Attributes,
        error: str | None,
    ) -> None:
        span = Span(
            opened.name,
            opened.kind,
            trace_id,
            opened.span_id,
            parent_id,
            opened.start_us,
            now_us,
            {**opened.attributes, **more},
            error,
        )
        self._keep(span, self._ended)

    def _keep(self, span: Span, where: deque[Span]) -> None:
        if len(where) >= _KEPT:
            where.popleft()
            self.dropped += 1
        where.append(span)


def _open_part(
    run: _Run, title: str, kind: Kind, event: RunEvent, attributes: dict[str, str | int]
) -> _Open:
    span_id = _hash(16, run.span.span_id, str(event.seq))
    return _Open(title, kind, span_id, event.at_us, attributes)


_OF_MODEL: Final = {"model": genai.MODEL, "model_provider": genai.PROVIDER}
_OF_TOOL: Final = {name: name for name in (genai.TOOL_NAME, genai.TOOL_CALL_ID)}
_OF_USE: Final = {"input_tokens": genai.INPUT_TOKENS, "output_tokens": genai.OUTPUT_TOKENS}
_TOLD: Final = (
    *("agent_id", "agent_name", "team_id", "team_name"),
    *("run_id", "session_id", "parent_run_id"),
    *("model", "model_provider", "input_tokens", "output_tokens", "error_type"),
)
_QUIET: Final = frozenset({"RunContent", "RunIntermediateContent", "ReasoningContentDelta"})
_BEGINNINGS: Final = frozenset({"RunStarted", "RunContinued"})
_ENDS: Final = frozenset({"RunCompleted", "RunError", "RunCancelled", "RunPaused"})


def _read_attributes(event: RunEvent) -> Attributes:
    """Return what a span may hold of an event: chosen by name, so that content is never in it."""
    data: dict[str, Any] = json.loads(event.data)
    told: dict[str, str | int] = {}
    for source in (data, _members(data.get("metrics"))):
        told.update({n: source[n] for n in _TOLD if isinstance(source.get(n), str | int)})
    tool = _members(data.get("tool"))
    for name, member in ((genai.TOOL_NAME, "tool_name"), (genai.TOOL_CALL_ID, "tool_call_id")):
        if isinstance(tool.get(member), str):
            told[name] = tool[member]
    told["failed"] = int(tool.get("tool_call_error") is True)
    return told


def _members(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _rename_keys(told: Attributes, names: Mapping[str, str]) -> dict[str, str | int]:
    return {names[name]: value for name, value in told.items() if name in names}


def _hash(digits: int, *parts: str) -> str:
    """Return an id that follows from `parts`."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:digits]


# --- Within a trace ----------------------------------------------------------------------------


def with_trace(program: Program[R], context: TraceContext) -> Program[R]:
    """Run `program` within the trace of `context`, and the programs within it as well."""
    tells = context.trace or context.recorder or context.work
    table = _HANDLERS if tells else _CARRYING
    handlers: Handlers = {kind: partial(table[kind], context) for kind in table}
    return intercept(program, handlers)


def _transact(context: TraceContext, effect: Transact[R]) -> Program[R]:
    """Note the trace on what is stored, and what became of it in the records."""
    unit = effect.unit
    if context.work is not None and isinstance(unit, FailMessage | FailReply):
        context.work.error = "failed"
    stored = unit if context.trace is None else _note_trace(unit, context.trace)
    answer: R = yield effect if stored is unit else Transact(effect.database, stored)
    if isinstance(answer, Neglected) and context.recorder is not None:
        context.recorder.remember_neglected(answer)
    return answer


def _send(context: TraceContext, effect: Fetch | OpenStream) -> Program[Any]:
    """Send the headers of the trace, too."""
    more = () if context.trace is None else context.trace.headers()
    return (yield evolve(effect, headers=(*effect.headers, *more)) if more else effect)


def _publish(context: TraceContext, effect: Publish) -> Program[None]:
    if context.recorder is not None:
        context.recorder.record_events(effect.run_id, effect.events, context.parent)
    yield effect


def _spawn(context: TraceContext, effect: Spawn) -> Program[None]:
    yield Spawn(context.wrap_job(effect.job))


def _interruptible(context: TraceContext, effect: Interruptible[Any]) -> Program[Any]:
    return (yield evolve(effect, program=with_trace(effect.program, context)))


def _concurrently(context: TraceContext, effect: Concurrently[Any]) -> Program[Any]:
    return (yield Concurrently(tuple(with_trace(one, context) for one in effect.programs)))


_Table: TypeAlias = Mapping[type[Asks[Any]], Callable[[TraceContext, Any], Program[Any]]]

_CARRYING: Final[_Table] = {
    Spawn: _spawn,
    Interruptible: _interruptible,
    Concurrently: _concurrently,
}
"""How a context goes on to the programs that begin within it ..."""

_HANDLERS: Final[_Table] = {
    **_CARRYING,
    Transact: _transact,
    Fetch: _send,
    OpenStream: _send,
    Publish: _publish,
}
"""... and what is done where there is something to tell of it."""


def _note_trace(unit: Unit[Any], trace: Trace) -> Unit[Any]:
    """Return `unit` with `trace` noted on what it stores for others to take up."""
    if _is_audited(unit):
        kept = _note_trace(unit.unit, trace)
        return unit if kept is unit.unit else Audited(kept, unit.node, unit.entry)
    match unit:
        case StartRun() | ContinueRun():
            return evolve(unit, input=with_note(unit.input, trace))
        case PutMessages(messages=messages):
            bearing = [evolve(m, payload=with_note(m.payload, trace)) for m in messages]
            return evolve(unit, messages=tuple(bearing))
        case CompleteMessage() | FailMessage():
            return evolve(unit, replies=_replies(unit.replies, trace))
        case _:
            return unit


def _is_audited(unit: Unit[Any]) -> TypeGuard[Audited[Any]]:
    return isinstance(unit, Audited)


def _replies(replies: tuple[NewReply, ...], trace: Trace) -> tuple[NewReply, ...]:
    return tuple(evolve(reply, payload=with_note(reply.payload, trace)) for reply in replies)


@frozen
class TracedJob(Job):
    """A job within a trace, as is whatever it spawns."""

    job: Job
    context: TraceContext = field(eq=False, repr=False)

    def program(self) -> Program[None]:
        """Run the job, and record it where it has a span of its own."""
        program = with_trace(self.job.program(), self.context)
        if self.context.work is None or self.context.recorder is None:
            return program
        return _record_work(program, self.context.work, self.context.recorder)


def _record_work(program: Program[None], work: Work, recorder: Recorder) -> Program[None]:
    start_us = yield from Now()
    end_us: int | None = None
    try:
        yield from program
        end_us = yield from Now()
    finally:
        recorder.record_work(work, start_us, end_us)
