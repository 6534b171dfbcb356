"""Metrics as OpenTelemetry takes them.  The extra `otel` brings what this module imports.

Nothing is measured by the SDK: what the platform has counted is put into the form of an exporter,
so that OpenTelemetry and Prometheus are told the same numbers.  They count from the start of the
process (cumulative temporality).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from legation.observability.genai import SCHEMA_URL
from legation.observability.genai_metrics import Instrument
from legation.version import VERSION

from .errors import BadExporter
from .logs import Write, quiet
from .metrics_sender import MetricsSender
from .otel import Complaints, load_exporter, service_name

__all__ = ["OpenTelemetryMetrics", "open_metrics"]

_GROUP: Final = "opentelemetry_metrics_exporter"
_INTERVAL: Final = "OTEL_METRIC_EXPORT_INTERVAL"
_INTERVAL_MS: Final = 60_000
_MOST_MS: Final = 86_400_000
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE
_SCOPE: Final = InstrumentationScope("legation", VERSION, SCHEMA_URL)
# The least and the most since the start of a process are of no use: no exporter needs them.
_UNKNOWN: Final[Any] = None


class _Complaints(Complaints):
    """Makes lines of the log of what an exporter of metrics has to say."""

    of_metrics = True

    def write(self, fields: Mapping[str, Any]) -> None:
        """Write a line of what became of metrics."""
        self._log("warning", "metrics_not_sent", fields)


class OpenTelemetryMetrics:
    """Hands metrics to `exporter`; a `MetricsExporter` of the host."""

    def __init__(
        self, exporter: MetricExporter, service: str = "legation", *, log: Write = quiet
    ) -> None:
        """Make an exporter of ours of one of the SDK.

        Args:
            exporter: Takes the metrics.
            service: Their `service.name`.
            log: Takes what the exporter complains of; unless given, Python's `logging` alone does.
        """
        self._exporter: Any = exporter  # whose further arguments have no types
        self._complaints = None if log is quiet else _Complaints(log)
        self._logger = logging.getLogger(type(exporter).__module__)
        if self._complaints is not None:
            self._logger.addHandler(self._complaints)
        self._resource = Resource.create({"service.name": service})

    def export(self, instruments: Sequence[Instrument], since_us: int, now_us: int) -> None:
        """Hand over what was counted from `since_us` to `now_us`."""
        times = since_us * 1000, now_us * 1000
        metrics = [
            Metric(one.name, one.description, one.unit, _translate(one, *times))
            for one in instruments
        ]
        scope = ScopeMetrics(_SCOPE, metrics, SCHEMA_URL)
        self._exporter.export(MetricsData([ResourceMetrics(self._resource, [scope], "")]))

    def close(self) -> None:
        """Let go of what the exporter has open."""
        self._exporter.shutdown()
        if self._complaints is not None:
            self._logger.removeHandler(self._complaints)


def _translate(one: Instrument, since_ns: int, now_ns: int) -> Histogram | Sum:
    if not one.bounds:
        numbers = [
            NumberDataPoint(dict(point.attributes), since_ns, now_ns, point.total)
            for point in one.points
        ]
        return Sum(numbers, _CUMULATIVE, is_monotonic=True)
    points = [
        HistogramDataPoint(
            dict(point.attributes),
            since_ns,
            now_ns,
            sum(point.counts),
            point.total,
            point.counts,
            one.bounds,
            _UNKNOWN,
            _UNKNOWN,
        )
        for point in one.points
    ]
    return Histogram(points, _CUMULATIVE)


def open_metrics(environ: Mapping[str, str], log: Write = quiet) -> MetricsSender:
    """Return what sends metrics as `OTEL_METRICS_EXPORTER` says, by OTLP over HTTP unless it does.

    `OTEL_METRIC_EXPORT_INTERVAL` is the time between two exports, in milliseconds.

    Args:
        environ: The environment.
        log: As of `OpenTelemetryMetrics`.

    Raises:
        BadExporter: In words for the operator.
    """
    said = environ.get(_INTERVAL) or str(_INTERVAL_MS)
    if not (said.isascii() and said.isdecimal() and 0 < int(said[:9]) <= _MOST_MS):
        raise BadExporter(f"{_INTERVAL}: {said[:20]!r} is no number of milliseconds")
    exporter = load_exporter(environ, "OTEL_METRICS_EXPORTER", _GROUP)
    metrics = OpenTelemetryMetrics(exporter, service_name(environ), log=log)
    return MetricsSender(metrics, int(said) / 1000, log)
