"""What the server answers by itself: each answer has one line, one count, and one request id."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import pytest
import trio
from attrs import define, evolve
from prometheus_client.parser import text_string_to_metric_families

from legation import Agent, Database, Platform
from legation.observability.prometheus import exposition
from legation.observability.request_log import RequestLine, Telemetry
from legation.observability.spans import Kind, Recorder
from legation.store.refusals import NOWHERE
from legation_host.hosting import open_platform
from legation_server import DEFAULT, Settings, open_listeners, serve

from .server_kit import PATIENCE, Client, Reply, connected, reset, serving

RUNS: Final = "/agents/{agent_id}/runs"
QUICK: Final = evolve(DEFAULT, header_seconds=0.5, body_seconds=0.5, linger_seconds=0.2)
PARENT: Final = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
FORM: Final = b"content-type: application/x-www-form-urlencoded\r\n"


def head(line: bytes, *fields: bytes) -> bytes:
    return b"\r\n".join((line, b"Host: a", *fields, b"", b""))


def run_of(agent: bytes, *fields: bytes) -> bytes:
    return head(b"POST /agents/" + agent + b"/runs HTTP/1.1", FORM[:-2], *fields)


# --- a platform, served -------------------------------------------------------------------------


async def slow(message: str) -> str:
    """Take longer than anybody waits."""
    await anyio.sleep(60)
    return message


@define(eq=False)
class Watched:
    """A served platform, and what it notices."""

    telemetry: Telemetry
    port: int
    recorder: Recorder

    def client(self) -> AbstractAsyncContextManager[Client]:
        return connected(self.port)

    async def told(self, data: bytes) -> Reply:
        """Return the answer to `data`, sent on a connection of its own."""
        async with self.client() as client:
            return await client.get(data)

    async def until_active(self, number: int) -> None:
        """Wait until so many requests are being answered."""
        with trio.fail_after(PATIENCE):
            while self.telemetry.active != number:
                await trio.sleep(0.005)

    def only(self, reply: Reply) -> RequestLine:
        """Return the line of `reply`, which is the only answer, by the log and by the numbers."""
        [line] = self.telemetry.take_lines()
        assert line.request_id == reply.headers["x-request-id"]
        assert line.status == reply.status
        assert line.end_us is not None
        assert line.end_us >= line.at_us
        assert not line.cut
        kind = f"{line.template} {line.method} {reply.status // 100}xx"
        assert counted(self.telemetry) == {kind: 1}
        return line


def counted(telemetry: Telemetry) -> dict[str, float]:
    """Return how many requests of each kind were answered, and cut."""
    names = ("legation_http_request_duration_seconds_count", "legation_http_requests_cut_total")
    return {
        " ".join(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(exposition(telemetry.families()))
        for sample in family.samples
        if sample.name in names and sample.value
    }


@asynccontextmanager
async def watched(folder: Path, settings: Settings = DEFAULT) -> AsyncGenerator[Watched]:
    agents = [Agent(id="alpha"), Agent(id="slow", run=slow)]
    made = Platform(agents=agents, databases=[Database("main", f"sqlite:///{folder}/main.db")])
    made.telemetry.keep_lines()
    recorder = made.record_spans()
    listeners = open_listeners("127.0.0.1", 0)
    port = listeners[0].getsockname()[1]
    async with open_platform(made, drain_seconds=0.0) as host, trio.open_nursery() as nursery:
        await nursery.start(partial(serve, made, host, listeners, settings))
        yield Watched(made.telemetry, port, recorder)
        nursery.cancel_scope.cancel()


# --- before there is a request ------------------------------------------------------------------

UNREAD: Final = {
    "a space before a colon": (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400, "GET"),
    "no host": (b"DELETE / HTTP/1.1\r\n\r\n", 400, "DELETE"),
    "a bare line feed": (b"PUT / HTTP/1.1\nHost: a\r\n\r\n", 400, "PUT"),
    "a hello of TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "other"),
    "a method nobody knows": (b"BREW / HTTP/1.1\r\n\r\n", 400, "other"),
    "one that is no method": (b'{"secret": 1}\r\n\r\n', 400, "other"),
    "empty lines": (b"\r\n" * 4, 400, "other"),
    "a length beyond all": (head(b"POST / HTTP/1.1", b"Content-Length: 99999999999"), 413, "POST"),
    "a long target": (b"GET /" + b"secret" * 2000, 414, "GET"),
    "many fields": (head(b"GET / HTTP/1.1", *[b"a: secret"] * 200), 431, "GET"),
    "a long field": (head(b"PATCH / HTTP/1.1", b"a: " + b"secret" * 2000), 431, "PATCH"),
    "a transfer coding": (head(b"POST / HTTP/1.1", b"Transfer-Encoding: gzip"), 501, "POST"),
    "a tunnel": (b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", 501, "other"),
    "another version": (head(b"GET / HTTP/2.0"), 505, "GET"),
}


@pytest.mark.parametrize("name", UNREAD)
async def test_what_no_request_can_be_made_of_has_a_line_and_a_count(
    name: str, tmp_path: Path
) -> None:
    data, status, method = UNREAD[name]
    async with watched(tmp_path) as served:
        reply = await served.told(data)
        line = served.only(reply)

    assert (reply.status, line.method, line.template) == (status, method, NOWHERE)
    assert (line.operation, line.trace_id) == ("", "")
    assert re.fullmatch(r"[0-9a-f]{16}", line.request_id)
    assert "secret" not in repr(line)


async def test_a_request_before_the_refused_one_has_its_own_line(tmp_path: Path) -> None:
    async with watched(tmp_path) as served, served.client() as client:
        await client.send(head(b"GET /health HTTP/1.1") + b"GET / HTTP/3.0\r\n\r\n")
        replies = [await client.reply(), await client.reply()]
        lines = served.telemetry.take_lines()

    assert [reply and reply.status for reply in replies] == [200, 505]
    assert [(line.template, line.status) for line in lines] == [("/health", 200), ("*", 505)]


async def test_no_rubbish_makes_a_series(tmp_path: Path) -> None:
    async with watched(tmp_path) as served:
        for number in range(30):
            await served.told(b"X%d /%d HTTP/1.1\r\n\r\n" % (number, number))
        lines = served.telemetry.take_lines()

        assert counted(served.telemetry) == {"* other 4xx": 30}
        assert len({line.request_id for line in lines}) == 30


async def test_a_head_that_takes_too_long_is_told_with_the_time_it_took(tmp_path: Path) -> None:
    async with watched(tmp_path, QUICK) as served:
        line = served.only(await served.told(b"GET /agents HTTP/1.1\r\nHost:"))

    assert (line.status, line.method, line.template) == (408, "GET", NOWHERE)
    assert line.end_us is not None
    assert 500_000 <= line.end_us - line.at_us <= 5_000_000


async def test_who_is_sent_off_in_silence_has_no_line(tmp_path: Path) -> None:
    async with watched(tmp_path, QUICK) as served, served.client() as client:
        assert await client.rest() == b""

        assert (served.telemetry.take_lines(), counted(served.telemetry)) == ((), {})


async def test_a_connection_too_many_is_told(tmp_path: Path) -> None:
    one = evolve(DEFAULT, connections=1)
    async with watched(tmp_path, one) as served, served.client() as busy:
        await busy.send(run_of(b"slow", b"Content-Length: 9") + b"message")
        await served.until_active(1)
        async with served.client() as second:
            reply = await second.reply()
        [line] = served.telemetry.take_lines()

    assert reply is not None
    assert (reply.status, line.status, line.method, line.template) == (503, 503, "other", NOWHERE)
    assert line.request_id == reply.headers["x-request-id"]


# --- in the place of the platform ---------------------------------------------------------------


async def test_a_request_too_many_is_told_under_the_id_that_it_has(tmp_path: Path) -> None:
    one = evolve(DEFAULT, requests_in_flight=1)
    async with watched(tmp_path, one) as served, served.client() as busy:
        await busy.send(run_of(b"slow", b"Content-Length: 9") + b"message")
        await served.until_active(1)
        reply = await served.told(head(b"GET /agents HTTP/1.1", b"X-Request-ID: mine-7"))
        line = served.only(reply)

    assert (reply.status, line.method, line.template) == (503, "GET", NOWHERE)
    assert line.request_id == "mine-7"


BODIES: Final = {
    "too slow": (b"Content-Length: 50", b"message=", 408),
    "no chunk": (b"Transfer-Encoding: chunked", b"what\r\n", 400),
    "too short": (b"Content-Length: 50", None, 400),
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_body_that_cannot_be_had_is_told_with_its_route(name: str, tmp_path: Path) -> None:
    framing, body, status = BODIES[name]
    async with watched(tmp_path, QUICK) as served, served.client() as client:
        await client.send(run_of(b"alpha", framing, b"X-Request-ID: mine-8") + (body or b"m"))
        if body is None:
            await client.stream.send_eof()
        reply = await client.reply()
        assert reply is not None
        line = served.only(reply)

    assert (reply.status, line.method, line.template) == (status, "POST", RUNS)
    assert (line.request_id, line.operation != "") == ("mine-8", True)


async def test_a_request_that_takes_too_long_is_told_with_its_route(tmp_path: Path) -> None:
    body = b"message=x&stream=false"
    asked = run_of(b"slow", b"Content-Length: %d" % len(body)) + body
    async with watched(tmp_path, evolve(QUICK, request_seconds=0.3)) as served:
        reply = await served.told(asked)
        line = served.only(reply)

    assert (reply.status, line.template) == (503, RUNS)
    assert re.fullmatch(r"[0-9a-f]{32}", line.request_id)


@pytest.mark.parametrize("late", ["body", "answer"])
async def test_a_request_that_was_refused_in_its_middle_has_a_span_with_the_status(
    late: str, tmp_path: Path
) -> None:
    body = b"message=x&stream=false"
    fields = (b"Content-Length: %d" % len(body), b"traceparent: " + PARENT)
    asked = run_of(b"slow", *fields) + (body if late == "answer" else b"")
    async with watched(tmp_path, evolve(QUICK, request_seconds=1.0)) as served:
        reply = await served.told(asked)
        spans = served.recorder.take(0)

    assert reply.status == (408 if late == "body" else 503)
    (span,) = [span for span in spans if span.kind is Kind.SERVER]
    assert span.attributes["http.response.status_code"] == reply.status
    assert span.error == ("503" if late == "answer" else None)
    assert span.trace_id.encode() in PARENT


async def test_a_client_that_leaves_is_cut_and_answered_nothing(tmp_path: Path) -> None:
    async with watched(tmp_path) as served:
        async with served.client() as client:
            await client.send(run_of(b"alpha", b"Content-Length: 50") + b"m")
            await served.until_active(1)
            reset(client)
        await served.until_active(0)
        [line] = served.telemetry.take_lines()

        assert (line.status, line.cut, counted(served.telemetry)) == (
            None,
            True,
            {f"{RUNS} POST": 1},
        )


async def test_an_incident_is_told_under_its_own_id() -> None:
    async with serving() as served, served.client() as client:
        served.platform.telemetry.keep_lines()
        reply = await client.get(b"GET /boom HTTP/1.1\r\nHost: a\r\n\r\n")
        [line] = served.platform.telemetry.take_lines()
        [(_, _, fields)] = served.log

        assert (line.status, line.template, line.request_id) == (500, "*", fields["incident"])
        assert reply.headers["x-request-id"] == fields["incident"]
