"""What a served platform tells whoever watches it: measurements, lines, and spans."""

from __future__ import annotations

import http.client
import io
import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Mapping, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from attrs import define, field
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client.parser import text_string_to_metric_families

from legation import Agent, Database, Platform
from legation.http.messages import Request, Response
from legation.migrations.catalogue import CATALOGUE
from legation.observability.genai import SCHEMA_URL
from legation.observability.request_log import RequestLine
from legation.observability.spans import Kind, Span
from legation.observability.tracing import Trace
from legation.store.counts import ANY_COUNT_RUNS
from legation_host import open_log
from legation_host.errors import BadExporter
from legation_host.hosting import open_platform
from legation_host.logs import open_request_log
from legation_host.observer import PAUSE, QUIET_PAUSE, Observer
from legation_host.otel import OpenTelemetry, open_exporter
from legation_server import open_listeners, serve

from ..one_database import Database as RealDatabase
from .command_kit import running, write_platform

LATEST: Final = str(CATALOGUE.latest)
LINE: Final = RequestLine(
    1_767_225_600_000_000,
    1_767_225_600_001_500,
    "id-1",
    "GET",
    "/agents/{agent_id}",
    "get_agent",
    200,
    "",
)


def platform(folder: Path) -> Platform:
    databases = [Database("main", f"sqlite:///{folder}/main.db")]
    return Platform(agents=[Agent(id="alpha", name="Alpha")], databases=databases)


def asking(path: str, *headers: tuple[bytes, bytes]) -> Request:
    return Request("GET", path, headers)


# --- The request log ----------------------------------------------------------------------------


def written(*lines: RequestLine, form: str = "json") -> str:
    stream = io.StringIO()
    write = open_log(form, stream=stream)
    open_request_log(write, form, stream)(lines)
    return stream.getvalue()


def test_a_line_of_json_says_what_a_request_was() -> None:
    assert json.loads(written(LINE)) == {
        "request_id": "id-1",
        "method": "GET",
        "route": "/agents/{agent_id}",
        "operation": "get_agent",
        "status": 200,
        "duration_ms": 1.5,
        "event": "request",
        "level": "info",
        "time": "2026-01-01T00:00:00.001500Z",
    }


def test_what_does_not_apply_is_left_out_and_what_does_is_told() -> None:
    lines = (
        RequestLine(0, 5, "id", "other", "*", "", 404, "a" * 32),
        RequestLine(0, None, "id", "POST", "/agents", "x", None, "", cut=True),
        RequestLine(0, 1, "id", "GET", "/agents", "x", 503, ""),
    )
    nowhere, cut, failed = map(json.loads, written(*lines).splitlines())

    assert ("operation" in nowhere, nowhere["trace_id"]) == (False, "a" * 32)
    assert ("status" in cut, cut["cut"], cut["duration_ms"]) == (False, True, 0)
    assert [told["level"] for told in (nowhere, cut, failed)] == ["info", "info", "warning"]


def test_both_forms_of_a_line_say_the_same() -> None:
    lines = (LINE, RequestLine(0, None, "id", "POST", "/agents", "x", None, "b" * 32, cut=True))
    texts = written(*lines, form="text").splitlines()

    for line, text in zip(map(json.loads, written(*lines).splitlines()), texts, strict=True):
        for name in set(line) - {"event", "level", "time"}:
            assert f"{name}={line[name]}" in text.replace("'", "")


# --- The observer, in a host --------------------------------------------------------------------


@define(eq=False)
class Kept:
    """Keeps spans."""

    spans: list[Span] = field(factory=list[Span])
    closed: bool = False

    def export(self, spans: Sequence[Span]) -> None:
        self.spans += spans

    def close(self) -> None:
        self.closed = True


async def test_lines_and_spans_are_taken_away_while_it_serves_and_at_the_end(
    tmp_path: Path,
) -> None:
    lines: list[RequestLine] = []
    kept = Kept()
    made = platform(tmp_path)
    observer = Observer(write_lines=lines.extend, exporter=kept)
    async with open_platform(made, observer=observer) as host:
        await host.run(made.answer(asking("/agents")))
        with trio.fail_after(10):
            while not kept.spans:
                await trio.sleep(PAUSE)
        assert [line.operation for line in lines] == ["get_agents"]
        assert [span.name for span in kept.spans] == ["GET /agents"]
        program = made.answer(asking("/agents"))
        program.send(None)
        program.close()
        await host.run(made.answer(asking("/health")))
        assert (len(lines), kept.closed) == (1, False)
    assert [line.operation for line in lines] == ["get_agents", "health_check"]
    assert kept.closed


async def test_a_line_of_what_was_given_up_ends_when_it_is_taken(tmp_path: Path) -> None:
    lines: list[RequestLine] = []
    made = platform(tmp_path)
    async with open_platform(made, observer=Observer(write_lines=lines.extend)) as host:
        program = made.answer(asking("/sessions"))
        for answer in (None, host.clock(), bytes(16)):
            program.send(answer)
        program.close()
    [line] = lines

    assert (line.status, line.cut) == (None, True)
    assert line.end_us is not None
    assert line.end_us >= line.at_us


async def test_nothing_is_kept_where_nobody_asked(tmp_path: Path) -> None:
    made = platform(tmp_path)
    async with open_platform(made) as host:
        await host.run(made.answer(asking("/agents")))
        assert made.telemetry.lines is None


def samples(text: str) -> dict[str, float]:
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_measurements_say_what_the_host_and_the_server_know(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    made = platform(tmp_path)
    observer = Observer(labels=(("worker", "7"),), exporter=Kept())
    listeners = open_listeners("127.0.0.1", 0)
    async with open_platform(made, observer=observer) as host, trio.open_nursery() as nursery:
        server = await nursery.start(partial(serve, made, host, listeners))
        observer.sources.append(server.gauges)
        await trio.sleep(2 * QUIET_PAUSE)
        answer = await host.run(made.answer(asking("/metrics/prometheus")))
        nursery.cancel_scope.cancel()
    assert isinstance(answer, Response)
    found = samples(answer.body.decode())

    assert found["legation_connections 7"] == 0
    assert (
        found["legation_database_units_total 7 main"]
        >= found["legation_database_commits_total 7 main"]
    )
    assert found["legation_database_units_waiting 7 main"] <= 1  # the heartbeat's, if any
    assert found["legation_spans_dropped_total 7"] == 0
    assert found["process_resident_memory_bytes 7"] > 1 << 20
    assert found["process_open_fds 7"] > 3
    assert found["process_cpu_seconds_total 7"] > 0
    assert found["legation_hub_runs 7"] == found["legation_hub_followers 7"] == 0


async def test_postgresql_says_how_its_connections_are_used(postgres_database: str) -> None:
    made = Platform(databases=[Database("main", postgres_database, auto_migrate=True)])
    async with open_platform(made) as host:
        usage = host.databases["main"].usage()
        answer = await host.run(made.answer(asking("/metrics/prometheus")))
    assert isinstance(answer, Response)
    found = samples(answer.body.decode())

    assert usage == {"connections_limit": 16, "connections_used": 0, "connections_waiting": 0}
    assert found["legation_runs main PENDING"] == 0
    assert found[f"legation_schema_info main postgresql {LATEST} {LATEST} current"] == 1
    assert found["legation_hints_connected main"] in (0, 1)
    assert found["legation_hints_heard_total main"] == 0
    assert made.telemetry.gauges["legation_hints_connected"].merge == "min"  # one is enough to tell


def test_runs_are_counted_without_reading_what_is_over() -> None:
    database = RealDatabase()
    plan = database.connection.execute(
        f"explain query plan {ANY_COUNT_RUNS.sqlite_text}"
    ).fetchall()

    assert any("INDEX runs_" in row[3] for row in plan)


# --- OpenTelemetry ------------------------------------------------------------------------------


async def test_a_request_and_its_run_are_one_trace_in_opentelemetry(tmp_path: Path) -> None:
    memory = InMemorySpanExporter()
    made = platform(tmp_path)
    observer = Observer(exporter=OpenTelemetry(SimpleSpanProcessor(memory)))
    parent = (b"traceparent", f"00-{'a' * 32}-{'b' * 16}-01".encode())
    body = b"message=a+secret&stream=false"
    form = (b"content-type", b"application/x-www-form-urlencoded")
    request = Request("POST", "/agents/alpha/runs", (parent, form))

    class Sent:
        async def read(self, limit: int) -> bytes:
            return body

    async with open_platform(made, observer=observer) as host:
        answer = await host.run(made.answer(request), body=Sent())
        assert answer.status == 200
    spans: dict[str, Any] = {span.name: span for span in memory.get_finished_spans()}
    root, run, chat = (
        spans[name] for name in ("POST /agents/{agent_id}/runs", "invoke_agent Alpha", "chat echo")
    )

    assert len(spans) == 3
    assert {span.context.trace_id for span in spans.values()} == {int("a" * 32, 16)}
    assert root.parent.span_id == int("b" * 16, 16)
    assert run.parent.span_id == root.context.span_id
    assert chat.parent.span_id == run.context.span_id
    kinds = [SpanKind.SERVER, SpanKind.INTERNAL, SpanKind.CLIENT]
    assert [span.kind for span in (root, run, chat)] == kinds
    assert dict(run.attributes)["gen_ai.operation.name"] == "invoke_agent"
    assert dict(root.attributes)["http.response.status_code"] == 200
    assert root.instrumentation_scope.schema_url == SCHEMA_URL
    assert root.resource.attributes["service.name"] == "legation"
    for span in spans.values():
        assert span.start_time <= span.end_time
        assert "secret" not in span.to_json()


def test_a_span_that_failed_has_its_kind_of_error() -> None:
    memory = InMemorySpanExporter()
    exporter = OpenTelemetry(SimpleSpanProcessor(memory))
    exporter.export([Span("x", Kind.INTERNAL, "a" * 32, "b" * 16, None, 1, 2, {"n": 1}, "timeout")])
    exporter.close()
    spans: Any = memory.get_finished_spans()
    [span] = spans

    assert (span.status.status_code, span.parent) == (StatusCode.ERROR, None)
    assert dict(span.attributes) == {"n": 1, "error.type": "timeout"}
    assert (span.start_time, span.end_time) == (1_000, 2_000)


def test_a_span_about_a_message_is_linked_to_where_it_was_made() -> None:
    memory = InMemorySpanExporter()
    exporter = OpenTelemetry(SimpleSpanProcessor(memory))
    ids, made = ("a" * 32, "b" * 16), Trace("a" * 32, "c" * 16)
    exporter.export([Span("send x", Kind.CONSUMER, *ids, "c" * 16, 1, 2, link=made)])
    exporter.close()
    spans: Any = memory.get_finished_spans()
    [span] = spans
    [link] = span.links

    assert span.kind is SpanKind.CONSUMER
    assert (link.context.trace_id, link.context.span_id) == (int("a" * 32, 16), int("c" * 16, 16))
    assert link.context == span.parent


def test_the_exporter_is_the_one_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for environ in ({}, {"OTEL_TRACES_EXPORTER": "console", "OTEL_SERVICE_NAME": "x"}):
        open_exporter(environ).close()
    with pytest.raises(BadExporter, match=r"there is no 'pigeon' here, but .*console"):
        open_exporter({"OTEL_TRACES_EXPORTER": "pigeon"})
    with pytest.raises(BadExporter, match="otlp_proto_grpc"):
        open_exporter({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})


def test_spans_that_cannot_be_sent_are_told_to_the_log() -> None:
    told: list[tuple[str, str, Mapping[str, Any]]] = []
    environ = {"OTEL_TRACES_EXPORTER": "console"}

    def log(level: str, event: str, fields: Mapping[str, Any]) -> None:
        told.append((level, event, fields))

    exporter = open_exporter(environ, log)
    sdk = logging.getLogger("opentelemetry.sdk.trace.export")
    sdk.warning("%s is full", "The queue")
    sdk.info("of no interest")
    error = OSError("refused")
    sdk.error("Nobody took them", exc_info=error)
    exporter.close()
    sdk.warning("after the end")

    assert told == [
        ("warning", "spans_not_sent", {"reason": "The queue is full"}),
        ("warning", "spans_not_sent", {"reason": "Nobody took them", "error": error}),
    ]


def test_nothing_of_opentelemetry_is_imported_before_it_is_asked_for() -> None:
    code = (
        "import sys, legation, legation_host, legation_server, legation_cli.service\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- legation serve -----------------------------------------------------------------------------

LISTENING: Final = ("--port", "0")


def got(base: str, path: str) -> str:
    with urllib.request.urlopen(f"{base}{path}", timeout=20) as response:
        text: str = response.read().decode()
    return text


def test_every_request_has_a_line_in_the_log(tmp_path: Path) -> None:
    with running(write_platform(tmp_path), *LISTENING) as command:
        base = command.until_served()
        got(base, "/agents?name=secret")
        command.until(lambda: command.named("request"))
        got(base, "/health")
        command.signal(signal.SIGTERM)
        assert command.ended() == 0
        lines = command.named("request")

    assert [line["operation"] for line in lines] == ["get_agents", "health_check"]
    assert "secret" not in "".join(command.lines)


def test_what_the_server_refuses_has_a_line_in_the_log(tmp_path: Path) -> None:
    with running(write_platform(tmp_path), *LISTENING) as command:
        port = int(command.until_served().rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as refused:
            refused.sendall(b"GET /secret HTTP/3.0\r\nHost: a\r\n\r\n")
            answer = http.client.HTTPResponse(refused)
            answer.begin()
        command.signal(signal.SIGTERM)
        assert command.ended() == 0
        [line] = command.named("request")

    assert (line["status"], line["method"], line["route"], line["level"]) == (
        *(505, "GET", "*"),
        "warning",
    )
    assert line["request_id"] == answer.headers["x-request-id"]
    assert "secret" not in "".join(command.lines)


def test_no_line_is_written_where_none_is_wanted(tmp_path: Path) -> None:
    with running(write_platform(tmp_path), *LISTENING, "--no-access-log") as command:
        got(command.until_served(), "/agents")
        command.signal(signal.SIGTERM)
        assert command.ended() == 0
        assert command.named("request") == []


def test_spans_are_sent_by_otlp(tmp_path: Path) -> None:
    sent: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
            "OTEL_BSP_SCHEDULE_DELAY": "60000",
        }
        with running(write_platform(tmp_path), *LISTENING, "--traces", env=environ) as command:
            got(command.until_served(), "/agents")
            command.signal(signal.SIGTERM)
            assert command.ended() == 0
        collector.shutdown()

    assert b"GET /agents" in b"".join(sent)


def test_an_exporter_that_is_not_there_is_told_in_a_sentence(tmp_path: Path) -> None:
    environ = {"OTEL_TRACES_EXPORTER": "pigeon"}
    with running(write_platform(tmp_path), *LISTENING, "--traces", env=environ) as command:
        assert command.ended() == 2

    assert "OTEL_TRACES_EXPORTER: there is no 'pigeon' here" in command.lines[-1]
