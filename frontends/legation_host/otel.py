"""Spans as OpenTelemetry takes them.  The extra `otel` brings what this module imports.

Where they are sent, how they are batched and which are sampled is said by the `OTEL_…` variables
of the OpenTelemetry SDK.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, ClassVar, Final

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from legation.observability.genai import ERROR_TYPE, SCHEMA_URL
from legation.observability.spans import Kind, Span
from legation.observability.tracing import Trace
from legation.version import VERSION

from .errors import BadExporter
from .logs import Write, quiet

__all__ = ["Complaints", "OpenTelemetry", "load_exporter", "open_exporter", "service_name"]

_KINDS: Final = {
    Kind.SERVER: SpanKind.SERVER,
    Kind.INTERNAL: SpanKind.INTERNAL,
    Kind.CLIENT: SpanKind.CLIENT,
    Kind.CONSUMER: SpanKind.CONSUMER,
}
_PROTOCOLS: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_SDK: Final = logging.getLogger("opentelemetry")
_GROUP: Final = "opentelemetry_traces_exporter"


class _Given(IdGenerator):
    """The ids that a span has already."""

    trace_id = span_id = 0

    def generate_trace_id(self) -> int:
        """Return the trace of the span that is begun."""
        return self.trace_id

    def generate_span_id(self) -> int:
        """Return the id of the span that is begun."""
        return self.span_id


class Complaints(logging.Handler):
    """Makes lines of the log of what the SDK has to say, which would stand between them.

    Exporters of metrics are modules with that word in their name: their lines are of another event.
    """

    of_metrics: ClassVar[bool] = False

    def __init__(self, log: Write) -> None:
        """Write to `log`."""
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, unless it is about the other."""
        if ("metric" in record.name) != self.of_metrics:
            return
        fields: dict[str, Any] = {"reason": record.getMessage()}
        if record.exc_info is not None and record.exc_info[1] is not None:
            fields["error"] = record.exc_info[1]
        self.write(fields)

    def write(self, fields: Mapping[str, Any]) -> None:
        """Write a line of what became of spans."""
        self._log("warning", "spans_not_sent", fields)


class OpenTelemetry:
    """Hands spans to `processor`; an `Exporter` of the host."""

    def __init__(
        self, processor: SpanProcessor, service: str = "legation", *, log: Write = quiet
    ) -> None:
        """Make a provider of our own: the global one is the application's.

        Args:
            processor: Takes the spans.
            service: Its `service.name`.
            log: Takes what the SDK complains of; unless given, Python's `logging` alone does.
        """
        self._complaints = None if log is quiet else Complaints(log)
        if self._complaints is not None:
            _SDK.addHandler(self._complaints)
        self._given = _Given()
        resource = Resource.create({"service.name": service})
        self._provider = TracerProvider(
            resource=resource, id_generator=self._given, shutdown_on_exit=False
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("legation", VERSION, schema_url=SCHEMA_URL)

    def export(self, spans: Sequence[Span]) -> None:
        """Begin and end each of `spans`, at its own times and under its own id."""
        for span in spans:
            self._given.trace_id = int(span.trace_id, 16)
            self._given.span_id = int(span.span_id, 16)
            attributes = dict(span.attributes)
            if span.error is not None:
                attributes[ERROR_TYPE] = span.error
            begun = self._tracer.start_span(
                span.name,
                _within(span),
                _KINDS[span.kind],
                attributes,
                links=() if span.link is None else (Link(_context(span.link)),),
                start_time=span.start_us * 1000,
            )
            if span.error is not None:
                begun.set_status(Status(StatusCode.ERROR))
            begun.end(span.end_us * 1000)

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()
        if self._complaints is not None:
            _SDK.removeHandler(self._complaints)


def _within(span: Span) -> Context:
    """Return the context of the parent of `span`."""
    if span.parent_id is None:
        return Context()
    parent = _context(Trace(span.trace_id, span.parent_id))
    return set_span_in_context(NonRecordingSpan(parent), Context())


def _context(trace: Trace) -> SpanContext:
    """Return the span that `trace` names; it was recorded, or nobody would speak of it."""
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(trace.trace_id, 16), int(trace.span_id, 16), True, flags)


def open_exporter(environ: Mapping[str, str], log: Write = quiet) -> OpenTelemetry:
    """Return what sends spans as `OTEL_TRACES_EXPORTER` says, by OTLP over HTTP unless it does.

    Args:
        environ: The environment.
        log: As of `OpenTelemetry`.

    Raises:
        BadExporter: In words for the operator.
    """
    exporter = load_exporter(environ, "OTEL_TRACES_EXPORTER", _GROUP)
    return OpenTelemetry(BatchSpanProcessor(exporter), service_name(environ), log=log)


def load_exporter(environ: Mapping[str, str], variable: str, group: str) -> Any:
    """Return the exporter of the entry points `group` that `variable` names.

    Raises:
        BadExporter: In words for the operator.
    """
    name = environ.get(variable) or "otlp"
    if name == "otlp":
        protocol = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
        name = _PROTOCOLS.get(protocol, protocol)
    found: Any = next(iter(entry_points(group=group, name=name)), None)
    if found is None:
        known = ", ".join(sorted({entry.name for entry in entry_points(group=group)}))
        raise BadExporter(f"{variable}: there is no {name!r} here, but {known}")
    return found.load()()


def service_name(environ: Mapping[str, str]) -> str:
    """Return the `service.name` of this process."""
    return environ.get("OTEL_SERVICE_NAME") or "legation"
