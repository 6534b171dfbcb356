"""Spans: what a request and the runs it began did, and how long each part took.

Nothing of what people or models say is in a span: names, ids and counts alone.

The id of a run's span follows from the id of the run, those of the parts from their place in it:
so whoever ends the run of a process that died tells the span that its parts are within.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, TypeAlias, cast

from attrs import evolve, field

from ..runs.events import (
    ABSENT,
    Event,
    EventOrigin,
    ModelRequestCompleted,
    ModelRequestStarted,
    RunCancelled,
    RunCompleted,
    RunContent,
    RunContinued,
    RunError,
    RunPaused,
    RunStarted,
    ToolCallCompleted,
    ToolCallError,
    ToolCallStarted,
)
from ..store.run_keeping import Neglected
from ..store.run_rows import RunRow, StoredEvent
from ..values import define, frozen
from . import genai
from .request_log import Arrival, method_label
from .tracing import Trace, read_note

__all__ = [
    "Attributes",
    "Kind",
    "Recorder",
    "Span",
    "Work",
    "derive_id",
    "run_span_id",
    "run_trace_id",
]

Attributes: TypeAlias = Mapping[str, str | int]

_NOTHING: Final[Attributes] = {}

_KEPT: Final = 20_000
"""Spans that wait to be taken; the oldest give way."""

_RUNS: Final = 10_000
"""Runs that are followed at once; one whose end is never heard of gives way."""


class Kind(Enum):
    """The kind of a span, in the words of OpenTelemetry."""

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

    run_id: str
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


def run_trace_id(run_id: str) -> str:
    """Return the trace id of a run that came without a trace."""
    return derive_id(32, "trace", run_id)


def run_span_id(run_id: str, before: int) -> str:
    """Return the id of the span of a run that goes on after `before` events."""
    return derive_id(16, "run", run_id, str(before))


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
        facts: dict[str, str | int] = {
            genai.HTTP_METHOD: method,
            genai.HTTP_ROUTE: arrival.template,
            genai.REQUEST_ID: arrival.request_id,
        }
        if status is not None:
            facts[genai.HTTP_STATUS] = status
        failed = str(status) if status is not None and status >= 500 else None
        span = Span(
            f"{method} {arrival.template}",
            Kind.SERVER,
            trace.trace_id,
            trace.span_id,
            arrival.parent_id,
            arrival.now_us,
            arrival.now_us if end_us is None else end_us,
            facts,
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
        facts: dict[str, str | int] = {
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
            facts,
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

    def record_events(self, events: tuple[StoredEvent, ...], parent: Trace | None) -> None:
        """Fold events that this process noted, of a run within the span `parent`.

        The members of a team note events of runs of their own among them.
        """
        for stored in events:
            origin, event = stored.origin, cast("Event", stored.noted)
            if not isinstance(origin, EventOrigin) or isinstance(event, RunContent):
                continue
            run = self._runs.get(origin.run.run_id)
            if isinstance(event, RunStarted | RunContinued) and run is None:
                self._neglected.pop(origin.run.run_id, None)
                run_id = origin.run.run_id
                begun = run_span_id(run_id, stored.seq - 1), stored.at_us
                run = self._begin(origin, begun, _model(event), parent)
            elif run is None:
                run = self._take_over(origin)
            if run is not None:
                self._record(run, event, stored)

    def _record(self, run: _Run, event: Event, stored: StoredEvent) -> None:
        """Begin or end a span: that of a call to a model or a tool, or the run's own."""
        now_us = stored.at_us
        match event:
            case ModelRequestStarted(again=True) if _is_asked(run, event.model):
                pass  # the same answer, which began anew
            case ModelRequestStarted():
                self._close(run, "chat", {}, now_us, "model_replaced")
                chat = {genai.OPERATION: genai.CHAT, **_model(event)}
                title = f"{genai.CHAT} {event.model}"
                run.parts["chat"] = _open_part(run, title, Kind.CLIENT, stored, chat)
            case ModelRequestCompleted():
                self._close(run, "chat", _usage(event.input_tokens, event.output_tokens), now_us)
            case ToolCallStarted(tool):
                if not _waits(tool):
                    run.parts[_part(tool)] = _open_tool(run, tool, stored)
            case ToolCallCompleted(tool=tool):
                failed = tool["tool_call_error"] is True
                if tool["confirmed"] and tool["metrics"]:  # announced before a person was asked
                    begun_us = round(tool["metrics"]["start_time"] * 1_000_000)
                    opened = _open_tool(run, tool, evolve(stored, at_us=begun_us))
                    run.parts.setdefault(_part(tool), opened)
                self._close(run, _part(tool), {}, now_us, "tool_error" if failed else None)
            case ToolCallError(tool=tool):
                self._close(run, _part(tool), {}, now_us, "tool_error")
            case RunCompleted(metrics={"input_tokens": came_in, "output_tokens": went_out}):
                self._finish(run, now_us, _usage(came_in, went_out))
            case RunCompleted() | RunPaused():
                self._finish(run, now_us)
            case RunError(error_type=error):
                self._finish(run, now_us, error=error)
            case RunCancelled():
                self._finish(run, now_us, error="cancelled")
            case _:
                pass

    def _take_over(self, origin: EventOrigin) -> _Run | None:
        """Return the run of a node that died, as that node began it; None of anything else."""
        run_id = origin.run.run_id
        row = self._neglected.pop(run_id, None)
        parent = read_note(row.input) if row is not None else None
        if row is None or (parent is not None and not parent.sampled):
            return None
        # Where it had gone on after a pause, nobody knows any more how far it had come by then.
        before = row.events if "turn" in json.loads(row.input) else 0
        start_us = row.created_us if row.started_us is None else row.started_us
        return self._begin(origin, (run_span_id(run_id, before), start_us), {}, parent)

    def _begin(
        self, origin: EventOrigin, begun: tuple[str, int], model: Attributes, parent: Trace | None
    ) -> _Run:
        """Return a run whose span has the id and the beginning `begun`."""
        run_id = origin.run.run_id
        above = self._runs.get(origin.parent_run_id or "")
        if above is not None:
            trace_id, parent_id = above.trace_id, above.span.span_id
        elif parent is not None:
            trace_id, parent_id = parent.trace_id, parent.span_id
        else:
            trace_id, parent_id = run_trace_id(run_id), None
        attributes: dict[str, str | int] = {
            genai.OPERATION: genai.INVOKE_AGENT,
            genai.AGENT_ID: origin.run.component_id,
            genai.AGENT_NAME: origin.name,
            genai.CONVERSATION_ID: origin.run.session_id,
            genai.RUN_ID: run_id,
            **model,
        }
        span = _Open(f"{genai.INVOKE_AGENT} {origin.name}", Kind.INTERNAL, *begun, attributes)
        run = self._runs[run_id] = _Run(run_id, trace_id, parent_id, span)
        if len(self._runs) > _RUNS:
            del self._runs[next(iter(self._runs))]
        return run

    def _close(
        self, run: _Run, part: str, more: Attributes, now_us: int, error: str | None = None
    ) -> None:
        opened = run.parts.pop(part, None)
        if opened is not None:
            self._end(opened, run.trace_id, run.span.span_id, now_us, more, error)

    def _finish(
        self, run: _Run, now_us: int, usage: Attributes = _NOTHING, error: str | None = None
    ) -> None:
        """End the run's span, and before it whatever is still open in it."""
        for part in tuple(run.parts):
            self._close(run, part, {}, now_us, error)
        self._end(run.span, run.trace_id, run.parent_id, now_us, usage, error)
        self._runs.pop(run.run_id, None)

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
    run: _Run, title: str, kind: Kind, event: StoredEvent, attributes: dict[str, str | int]
) -> _Open:
    span_id = derive_id(16, run.span.span_id, str(event.seq))
    return _Open(title, kind, span_id, event.at_us, attributes)


def _open_tool(run: _Run, tool: Mapping[str, Any], event: StoredEvent) -> _Open:
    title = f"{genai.EXECUTE_TOOL} {tool['tool_name']}"
    return _open_part(run, title, Kind.INTERNAL, event, _tool(tool))


def _waits(tool: Mapping[str, Any]) -> bool:
    """Whether a person is asked about the call, so that it does not begin yet."""
    return tool["requires_confirmation"] is True or tool["external_execution_required"] is True


def _part(tool: Mapping[str, Any]) -> str:
    """Return the name of the part of a run that a call of a tool is."""
    return f"tool {tool['tool_call_id']}"


# What a span may hold of an event is chosen by name, so that content is never in it.


def _model(event: RunStarted | RunContinued | ModelRequestStarted) -> dict[str, str | int]:
    """Return which model answers; nothing for a function, and for a run that goes on."""
    if isinstance(event, RunContinued) or event.model is ABSENT:
        return {}
    return {genai.MODEL: event.model, genai.PROVIDER: event.model_provider}


def _is_asked(run: _Run, model: str) -> bool:
    """Return whether the run waits for an answer of `model`."""
    opened = run.parts.get("chat")
    return opened is not None and opened.attributes[genai.MODEL] == model


def _tool(tool: Mapping[str, Any]) -> dict[str, str | int]:
    return {
        genai.OPERATION: genai.EXECUTE_TOOL,
        genai.TOOL_NAME: tool["tool_name"],
        genai.TOOL_CALL_ID: tool["tool_call_id"],
    }


def _usage(tokens_in: int, tokens_out: int) -> dict[str, str | int]:
    return {genai.INPUT_TOKENS: tokens_in, genai.OUTPUT_TOKENS: tokens_out}


def derive_id(digits: int, *parts: str) -> str:
    """Return an id that follows from `parts`."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:digits]
