"""The trace context of a program: the trace that what it does belongs to.

`with_trace` runs a program within a trace: what it sends to others bears its headers, what it
spawns belongs to it as well, and where spans are recorded the events that it publishes are folded
into them.

What is stored for later, a run, a message, a reply, bears the trace that it was stored in; whoever
takes it up goes on in that one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias, TypeGuard, TypeVar

from attrs import evolve, field

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
    Spawn,
    Transact,
)
from ..messaging.answers import AnswerMessage
from ..messaging.replies import SendReply
from ..programs import Handlers, intercept
from ..runs.executor import ExecuteRun
from ..store.audit import Audited
from ..store.inbox import CompleteMessage, FailMessage, PutMessages
from ..store.leased_queue import FailItem
from ..store.outbox import NewReply
from ..store.run_keeping import Neglected
from ..store.run_steering import ContinueRun
from ..store.runs import StartRun
from ..store.units import Unit
from ..values import frozen
from . import genai
from .spans import Kind, Recorder, Work, derive_id, run_span_id, run_trace_id
from .tracing import Trace, read_note, with_note

__all__ = ["TraceContext", "TracedJob", "with_trace"]

R = TypeVar("R")


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
        span_id = run_span_id(run.run_id, run.events)
        return TraceContext(_within_span(origin, span_id, run_trace_id(run.run_id)), to, origin)
    if isinstance(job, AnswerMessage):
        what, kind = genai.PROCESS, Kind.CONSUMER
    else:
        what, kind = genai.SEND, Kind.CLIENT
    lease = job.claimed.lease
    channel, name = lease.key.channel, lease.key.item_id
    span_id = derive_id(16, what, channel, name, str(lease.attempts))
    trace = _within_span(origin, span_id, derive_id(32, what, channel, name))
    return TraceContext(trace, to, work=Work(what, kind, channel, trace, origin))


def _within_span(origin: Trace | None, span_id: str, alone: str) -> Trace:
    """Return the span `span_id` in the trace of `origin`, without one in the trace `alone`."""
    return Trace(alone, span_id) if origin is None else evolve(origin, span_id=span_id)


def with_trace(program: Program[R], context: TraceContext) -> Program[R]:
    """Run `program` within the trace of `context`, and the programs within it as well."""
    tells = context.trace or context.recorder or context.work
    table = _HANDLERS if tells else _CARRYING
    handlers: Handlers = {kind: partial(table[kind], context) for kind in table}
    return intercept(program, handlers)


def _transact(context: TraceContext, effect: Transact[R]) -> Program[R]:
    """Note the trace on what is stored, and what became of it in the records."""
    unit = effect.unit
    if context.work is not None and isinstance(unit, FailItem):
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
        context.recorder.record_events(effect.events, context.parent)
    yield effect


def _spawn(context: TraceContext, effect: Spawn) -> Program[None]:
    yield Spawn(context.wrap_job(effect.job), effect.outcome)


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
        return unit if kept is unit.unit else evolve(unit, unit=kept)
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

    def program(self) -> Program[object]:
        """Run the job, and record it where it has a span of its own."""
        program = with_trace(self.job.program(), self.context)
        if self.context.work is None or self.context.recorder is None:
            return program
        return _record_work(program, self.context.work, self.context.recorder)


def _record_work(program: Program[R], work: Work, recorder: Recorder) -> Program[R]:
    start_us = yield from Now()
    end_us: int | None = None
    try:
        result = yield from program
        end_us = yield from Now()
        return result
    finally:
        recorder.record_work(work, start_us, end_us)
