"""What OpenTelemetry is told of models and tools, at an interval and at the end."""

from __future__ import annotations

import logging
import signal
import threading
import urllib.request
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, field
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData

from legation import Agent, Database, Platform
from legation.http.messages import Request
from legation.models.conversation import Usage
from legation.models.prices import ModelName
from legation.observability.genai import SCHEMA_URL
from legation.observability.genai_metrics import Instrument, list_instruments
from legation.runs.meter import Meter
from legation_host.errors import BadExporter
from legation_host.hosting import open_platform
from legation_host.metrics_sender import MetricsSender
from legation_host.observer import Observer
from legation_host.otel_metrics import OpenTelemetryMetrics, open_metrics

from .command_kit import running, write_platform


class Kept(MetricExporter):
    """Keeps what it is given; it fails as often as it is told."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__()
        self.data: list[Any] = []
        self.failures = failures
        self.closed = False

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_: Any
    ) -> MetricExportResult:
        if self.failures:
            self.failures -= 1
            raise OSError
        self.data.append(metrics_data)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **_: Any) -> None:
        self.closed = True


def counted() -> tuple[Instrument, ...]:
    meter = Meter()
    usage = Usage(8, 2, cost_nano=5_000_000)
    meter.count_request("a", ModelName("small", "acme"), "ok", 15_000, usage, 9_000)
    meter.count_request("a", ModelName("small", "acme"), "timeout", 30_000_000, Usage())
    return list_instruments(meter)


def told(kept: Kept) -> dict[str, Any]:
    """Return the last data of each metric, by its name."""
    [resource] = kept.data[-1].resource_metrics
    [scope] = resource.scope_metrics
    assert (scope.scope.name, scope.schema_url) == ("legation", SCHEMA_URL)
    return {metric.name: metric.data for metric in scope.metrics}


def test_what_is_counted_is_told_in_the_form_of_the_sdk() -> None:
    kept = Kept()
    exporter = OpenTelemetryMetrics(kept, "desk")
    exporter.export(counted(), 1, 2)
    exporter.close()
    found = told(kept)
    good, late = found["gen_ai.client.operation.duration"].data_points
    [cost] = found["legation.model.cost"].data_points

    assert (good.count, good.sum, sum(good.bucket_counts)) == (1, 0.015, 1)
    assert (good.start_time_unix_nano, good.time_unix_nano) == (1_000, 2_000)
    assert len(good.bucket_counts) == len(good.explicit_bounds) + 1
    assert late.attributes["error.type"] == "timeout"
    assert (cost.value, found["legation.model.cost"].is_monotonic) == (0.005, True)
    assert kept.data[0].resource_metrics[0].resource.attributes["service.name"] == "desk"
    assert kept.closed


def test_it_can_be_sent_by_otlp() -> None:
    kept = Kept()
    OpenTelemetryMetrics(kept).export(counted(), 1, 2)

    sent = encode_metrics(kept.data[0]).SerializeToString()
    assert b"gen_ai.client.token.usage" in sent
    assert b"legation.model.cost" in sent


# --- In a host ---------------------------------------------------------------------------------


def platform(folder: Path) -> Platform:
    databases = [Database("main", f"sqlite:///{folder}/main.db")]
    return Platform(agents=[Agent(id="alpha")], databases=databases)


def count(made: Platform) -> None:
    made.context.meter.count_request("alpha", ModelName("m", "p"), "ok", 1, Usage(1))


@define
class Lines:
    """The lines of a log."""

    events: list[tuple[str, Mapping[str, Any]]] = field(factory=list[tuple[str, Mapping[str, Any]]])

    def write(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        self.events.append((event, fields))


async def test_metrics_are_sent_at_an_interval_and_at_the_end(tmp_path: Path) -> None:
    kept, made, log = Kept(failures=1), platform(tmp_path), Lines()
    sender = MetricsSender(OpenTelemetryMetrics(kept), 0.01, log.write)
    async with open_platform(made, observer=Observer(metrics=sender)):
        with trio.fail_after(60):
            count(made)
            while not kept.data:
                await trio.sleep(0.01)
        count(made)
    [point] = told(kept)["gen_ai.client.operation.duration"].data_points

    assert (point.count, kept.closed) == (2, True)
    assert point.start_time_unix_nano < point.time_unix_nano
    assert [event for event, _ in log.events] == ["metrics_not_sent"]


async def test_nothing_is_sent_where_nothing_was_asked(tmp_path: Path) -> None:
    kept, made = Kept(), platform(tmp_path)
    async with open_platform(made, observer=Observer(metrics=_sender(kept))):
        await trio.sleep(0.05)

    assert (kept.data, kept.closed) == ([], True)


def _sender(kept: Kept) -> MetricsSender:
    return MetricsSender(OpenTelemetryMetrics(kept), 0.01)


class Stuck(Kept):
    """Takes its first metrics only when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.free = threading.Event(), threading.Event()

    def export(self, metrics_data: MetricsData, *_: Any, **__: Any) -> MetricExportResult:
        self.asked.set()
        self.free.wait(60)
        return super().export(metrics_data)


async def test_an_exporter_that_waits_holds_up_no_line_of_the_log(tmp_path: Path) -> None:
    stuck, made = Stuck(), platform(tmp_path)
    count(made)
    lines: list[Any] = []

    def take(taken: Sequence[Any]) -> None:
        lines.extend(taken)

    observer = Observer(write_lines=take, metrics=_sender(stuck))
    async with open_platform(made, observer=observer) as host:
        with trio.fail_after(60):
            while not stuck.asked.is_set():
                await trio.sleep(0.01)
            await host.run(made.answer(Request("GET", "/agents", ())))
            while not lines:
                await trio.sleep(0.01)
        stuck.free.set()

    assert stuck.closed


# --- By the environment ------------------------------------------------------------------------


def test_the_exporter_and_the_interval_are_those_of_the_environment() -> None:
    sender = open_metrics({})
    assert sender.interval_seconds == 60
    sender.exporter.close()
    environ = {"OTEL_METRICS_EXPORTER": "console", "OTEL_METRIC_EXPORT_INTERVAL": "500"}
    sender = open_metrics(environ)
    assert sender.interval_seconds == 0.5
    sender.exporter.close()


@pytest.mark.parametrize("said", ["soon", "0", "-1", "1.5", "9" * 5_000, "²"])
def test_an_interval_that_is_none_is_told_in_a_sentence(said: str) -> None:
    with pytest.raises(BadExporter, match=r"OTEL_METRIC_EXPORT_INTERVAL: .* no number of milli"):
        open_metrics({"OTEL_METRIC_EXPORT_INTERVAL": said})


def test_an_exporter_that_is_not_there_is_told_in_a_sentence() -> None:
    with pytest.raises(BadExporter, match="OTEL_METRICS_EXPORTER: there is no 'pigeon' here"):
        open_metrics({"OTEL_METRICS_EXPORTER": "pigeon"})


def test_metrics_that_cannot_be_sent_are_told_to_the_log() -> None:
    log = Lines()
    sender = open_metrics({}, log.write)
    exporters = "opentelemetry.exporter.otlp.proto.http"
    logging.getLogger(f"{exporters}.metric_exporter").warning("Nobody took %s", "them")
    logging.getLogger(f"{exporters}.trace_exporter").warning("of spans")
    sender.exporter.close()
    logging.getLogger(f"{exporters}.metric_exporter").warning("after the end")

    assert log.events == [("metrics_not_sent", {"reason": "Nobody took them"})]


def test_metrics_are_sent_by_the_command(tmp_path: Path) -> None:
    sent: dict[str, bytes] = {}

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent[self.path] = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}"}
        with running(write_platform(tmp_path), "--port", "0", "--metrics", env=environ) as command:
            form = b"message=go&stream=false"
            base = command.until_served()
            with urllib.request.urlopen(
                f"{base}/agents/concierge/runs", form, timeout=20
            ) as answer:
                answer.read()
            command.signal(signal.SIGTERM)
            assert command.ended() == 0
        collector.shutdown()

    assert b"gen_ai.client.operation.duration" in sent["/v1/metrics"]
