"""The ASGI application: scopes looked at again, mounts taken off, and a life between two events."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pytest
import trio
import trio.lowlevel
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from legation import Agent, AuthorizationConfig, Database, Platform, Principal
from legation.effects import Emit, Now, Program, Sleep
from legation.http.messages import Answer, Request, Streamed, text_response
from legation.http.refusals import BadRequest
from legation.observability.request_log import Telemetry
from legation_asgi import Application, asgi
from legation_asgi.messages import (
    ClientGone,
    Message,
    ReceivedBody,
    Scope,
    below_mount,
    request_of,
)
from legation_host import Host, open_host

from ..callers import Issuer
from .conformance import SECONDS, Conformance, Wire
from .served import application, hypercorn_trio, uvicorn_asyncio

HOST = (b"host", b"a")
ISSUER: Final = Issuer()


def scope(raw_path: bytes | None = b"/a", query: bytes = b"", **others: Any) -> dict[str, Any]:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "raw_path": raw_path,
        "query_string": query,
        "headers": [HOST],
        "client": ("192.0.2.1", 1),
        **others,
    }


# --- from a scope to a request -----------------------------------------------------------------


def test_a_scope_becomes_a_request() -> None:
    headers = [(b"Host", b"a"), [b"x", b"1"], (b"x", b"2")]

    assert request_of(scope(b"/a%2Fb", b"c=%20", headers=headers)) == Request(
        "GET", "/a%2Fb?c=%20", ((b"host", b"a"), (b"x", b"1"), (b"x", b"2")), "192.0.2.1"
    )


def test_what_a_server_may_leave_out() -> None:
    bare: dict[str, Any] = {
        "http_version": "1.0",
        "method": "GET",
        "raw_path": b"/a",
        "headers": [],
    }

    assert request_of(bare) == Request("GET", "/a")
    assert request_of(scope(client=None)) == Request("GET", "/a", (HOST,))


def test_the_header_list_is_the_requests_own() -> None:
    headers: list[tuple[bytes, bytes]] = [HOST]
    request = request_of(scope(headers=headers))

    headers.append((b"authorization", b"from a trailer"))

    assert isinstance(request, Request)
    assert request.headers == (HOST,)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/a", "/a"),
        ("/", "/"),
        ("/a b/\u00e9", "/a%20b/%C3%A9"),
        ("/a?b#c", "/a%3Fb%23c"),
        ("/a;b\\\n", "/a%3Bb%5C%0A"),
        ("/a//b/..", "/a//b/.."),  # as it stands: the router refuses it
    ],
)
def test_a_decoded_path_is_quoted_again(path: str, target: str) -> None:
    bare = {key: value for key, value in scope(query=b"q").items() if key != "raw_path"}

    for seen in (scope(None, b"q", path=path), {**bare, "path": path}):
        assert request_of(seen) == Request("GET", f"{target}?q", (HOST,), "192.0.2.1")


@given(st.text())
def test_a_quoted_path_leads_where_the_decoded_one_did(text: str) -> None:
    path = f"/{text}"
    found = request_of(scope(None, path=path))

    if isinstance(found, Request):
        assert unquote(found.target, errors="strict") == path
    else:
        assert "%" in text or "\ufffd" in text or not text.isprintable()


@pytest.mark.parametrize("path", ["/a%2Fb", "/100%", "/a\ufffd", "/\ud800"])
def test_a_decoded_path_with_two_readings_is_refused(path: str) -> None:
    refusal = request_of(scope(None, path=path))

    assert isinstance(refusal, BadRequest)
    assert refusal.detail.startswith("The path has two readings: the server passes no raw_path on")


def test_a_peer_without_an_address_has_an_empty_one() -> None:
    assert request_of(scope(client=(None, 0))) == Request("GET", "/a", (HOST,))


@pytest.mark.parametrize(
    ("headers", "detail"),
    [
        ([], "The request has no Host"),
        ([HOST, HOST], "The request has more than one Host"),
        ([(b"host", b"a/b")], "The Host of the request is malformed"),
        (
            [HOST, (b"content-length", b"1"), (b"Content-Length", b"1")],
            "The request has more than one Content-Length",
        ),
        ([HOST, (b"content-length", b"+1")], "The Content-Length of the request is malformed"),
        ([HOST, (b"content-length", b"")], "The Content-Length of the request is malformed"),
        ([HOST, (b"content-length", b"1" * 19)], "The Content-Length of the request is malformed"),
        (
            [HOST, (b"transfer-encoding", b"chunked"), (b"content-length", b"1")],
            "The request has Content-Length and Transfer-Encoding",
        ),
        (
            [HOST, (b"content-type", b"a/b"), (b"content-type", b"a/c")],
            "The request has more than one Content-Type",
        ),
    ],
)
def test_a_head_that_a_server_let_pass_is_refused(
    headers: list[tuple[bytes, bytes]], detail: str
) -> None:
    assert request_of(scope(headers=headers)) == BadRequest(detail)


@pytest.mark.parametrize("raw_path", [b"", b"*", b"a", b"/a#b", b"/\xff", b"/a b", b"ftp://a/b"])
def test_a_malformed_target_is_refused(raw_path: bytes) -> None:
    assert request_of(scope(raw_path)) == BadRequest("The target of the request is malformed")


@pytest.mark.parametrize(
    ("target", "root_path", "expected"),
    [
        (b"/a/b?c/d", "", b"/a/b?c/d"),
        (b"/a/b?c/d", "/", b"/a/b?c/d"),
        (b"/api/a?/api/", "/api", b"/a?/api/"),
        (b"/api/a", "/api/", b"/a"),
        (b"/api/v1/a", "/api/v1", b"/a"),
        (b"/api", "/api", b"/"),
        (b"/api/", "/api", b"/"),
        (b"/api?q", "/api", b"/?q"),
        (b"/a%20b/c", "/a b", b"/c"),
        (b"/%C3%A9/c", "/é", b"/c"),
        (b"/api//a", "/api", b"//a"),
        (b"/apix/a", "/api", b"/apix/a"),
        (b"/a", "/api", b"/a"),
        (b"/api%2Fv1/a", "/api/v1", b"/api%2Fv1/a"),
        (b"/api/%61", "/api", b"/%61"),
    ],
)
def test_the_mount_is_taken_off(target: bytes, root_path: str, expected: bytes) -> None:
    assert below_mount(target, root_path) == expected


@pytest.mark.parametrize(
    ("path", "root_path", "mount", "target"),
    [
        (b"/x/agents", "", "/x", "/agents"),  # nothing says it
        (b"/x/agents", "", "x/", "/agents"),
        (b"/x", "", "/x", "/"),
        (b"/x/agents", "/x", "/x", "/agents"),  # said twice, taken off once
        (b"/x/x/agents", "/x", "/x", "/x/agents"),
        (b"/api/x/agents", "/api/x", "/x", "/agents"),
        (b"/api/x/agents", "/api", "/x", "/agents"),  # of a proxy, and of the mount
        (b"/x/agents", "/api/x", "/x", "/agents"),  # the proxy took its part off
        (b"/agents", "/x", "/x", "/agents"),  # off already
        (b"/agents", "", "/x", "/agents"),
        (b"/xy/agents", "", "/x", "/xy/agents"),
        (b"/x%2Fagents", "", "/x", "/x%2Fagents"),
        (b"/api/yx/agents", "/api", "/x", "/yx/agents"),
    ],
)
def test_a_mount_is_taken_off_where_no_root_path_says_it(
    path: bytes, root_path: str, mount: str, target: str
) -> None:
    found = request_of(scope(path, root_path=root_path), mount)

    assert isinstance(found, Request)
    assert found.target == target


segments = st.text("abc.~", min_size=1, max_size=3)


@given(st.lists(segments, min_size=1, max_size=3), st.lists(segments, max_size=3))
def test_a_path_with_and_without_its_mount_is_the_same(mount: list[str], rest: list[str]) -> None:
    root_path = "/" + "/".join(mount)
    path = "/" + "/".join(rest)

    assert below_mount((root_path + path).encode(), root_path) == path.encode()


# --- bodies ------------------------------------------------------------------------------------


@define(eq=False)
class Script:
    """The server's side of one scope: what it says, and what it was told."""

    says: list[Message]
    told: list[Message] = field(factory=list[Message])
    gone: bool = False

    async def receive(self) -> Message:
        if not self.says:
            await trio.sleep_forever()
        return self.says.pop(0)

    async def send(self, message: Message) -> None:
        if self.gone:
            raise BrokenPipeError
        self.told.append(message)


def chunk(data: bytes, *, more: bool = True) -> Message:
    return {"type": "http.request", "body": data, "more_body": more}


DISCONNECT: Message = {"type": "http.disconnect"}


@pytest.mark.parametrize(
    ("says", "body"),
    [
        ([chunk(b"a"), chunk(b""), chunk(b"bc", more=False)], b"abc"),
        ([{"type": "http.request"}], b""),
        ([chunk(b"abc"), chunk(b"", more=False)], b"abc"),
        ([chunk(b"abc"), chunk(b"d"), chunk(b"never asked for")], None),
    ],
)
async def test_a_body_is_read_up_to_its_limit(says: list[Message], body: bytes | None) -> None:
    script = Script(says)

    assert await ReceivedBody(script.receive, None).read(3) == body
    assert len(script.says) == (1 if body is None else 0)


async def test_a_body_declared_too_long_is_not_read() -> None:
    script = Script([chunk(b"abcd", more=False)])

    assert await ReceivedBody(script.receive, b"4").read(3) is None
    assert len(script.says) == 1


async def test_a_client_that_leaves_in_its_body_is_gone() -> None:
    script = Script([chunk(b"a"), DISCONNECT])

    with pytest.raises(ClientGone):
        await ReceivedBody(script.receive, None).read(3)


# --- one request -------------------------------------------------------------------------------


@define(eq=False)
class Log:
    """Takes the lines of a host."""

    lines: list[tuple[str, str, Mapping[str, Any]]] = field(
        factory=list[tuple[str, str, Mapping[str, Any]]]
    )

    def __call__(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        self.lines.append((level, event, fields))


async def test_a_client_that_leaves_in_its_body_gets_no_answer() -> None:
    app = application(Conformance())
    script = Script([chunk(b"a"), DISCONNECT])

    async with app.open():
        await app(scope(b"/echo"), script.receive, script.send)

    assert script.told == []


async def test_a_client_that_left_before_its_answer_does_no_harm() -> None:
    app = application(Conformance())
    script = Script([], gone=True)

    async with app.open():
        await app(scope(b"/hello"), script.receive, script.send)
        await app(scope(b"/stream"), script.receive, script.send)

    assert script.told == []


@define(eq=False)
class Kept:
    """A platform that finishes what it began, whether or not the client waits."""

    done: list[str] = field(factory=list[str])
    telemetry: Telemetry = field(factory=Telemetry)

    def answer(self, request: Request) -> Program[Answer]:
        yield from Sleep(0.01)
        self.done.append(request.target)
        return text_response(200, "")


async def test_a_client_that_leaves_does_not_end_what_its_request_began() -> None:
    platform = Kept()
    app = application(platform)
    script = Script([DISCONNECT])

    async with app.open():
        await app(scope(b"/a"), script.receive, script.send)

    assert platform.done == ["/a"]


async def test_what_a_client_still_sends_into_a_stream_is_dropped() -> None:
    platform = Conformance()
    app = application(platform)
    script = Script([chunk(b"late"), chunk(b"later", more=False), DISCONNECT])

    with trio.fail_after(SECONDS):
        async with app.open():
            await app(scope(b"/stream/endless"), script.receive, script.send)

    assert platform.closed.is_set()
    assert script.told[0]["type"] == "http.response.start"


async def test_a_bug_is_logged_under_the_incident_that_the_caller_is_told() -> None:
    log = Log()
    app = Application(Conformance(), lambda: open_host(log=log))
    script = Script([])

    async with app.open():
        await app(scope(b"/bug", b"token=secret"), script.receive, script.send)

    [(level, event, fields)] = log.lines
    assert (level, event, fields["path"]) == ("error", "request_failed", "/bug")
    assert fields["error"].startswith("RuntimeError in ")
    assert fields["incident"] in script.told[1]["body"].decode()
    assert (b"x-request-id", fields["incident"].encode()) in script.told[0]["headers"]


async def test_a_bug_in_a_stream_is_logged_and_left_to_the_server() -> None:
    log = Log()
    app = Application(Conformance(), lambda: open_host(log=log))
    script = Script([])

    async with app.open():
        with pytest.raises(RuntimeError, match="internals"):
            await app(scope(b"/stream/bug"), script.receive, script.send)

    assert [line[1] for line in log.lines] == ["request_failed"]
    assert script.told[-1]["more_body"] is True


async def test_a_stream_that_its_program_leaves_has_no_end() -> None:
    app = application(Conformance())
    script = Script([])

    async with app.open():
        await app(scope(b"/stream/part"), script.receive, script.send)

    assert [message.get("more_body") for message in script.told] == [None, True]


async def test_the_program_of_a_stream_is_not_started_for_head() -> None:
    started: list[bool] = []

    def body() -> Program[None]:
        started.append(True)
        yield from Emit(b"x")

    class Streams:
        telemetry = Telemetry()

        def answer(self, request: Request) -> Program[Answer]:
            yield from Now()
            return Streamed(200, (), body())

    app = application(Streams())
    script = Script([])

    async with app.open():
        await app(scope(b"/", method="HEAD"), script.receive, script.send)

    assert started == []
    assert [message.get("body") for message in script.told] == [None, b""]


async def test_a_stream_is_a_start_and_parts_and_an_end() -> None:
    app = application(Conformance())
    script = Script([])

    async with app.open():
        await app(scope(b"/stream"), script.receive, script.send)

    start, *parts, end = script.told
    assert (start["type"], start["status"]) == ("http.response.start", 200)
    assert [part["body"] for part in parts] == [b"data: %d\n\n" % n for n in range(5)]
    assert all(part["more_body"] for part in parts)
    assert end == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_a_refused_head_does_not_reach_the_platform() -> None:
    platform = Kept()
    app = application(platform)
    script = Script([])

    async with app.open():
        await app(scope(b"/a", headers=[]), script.receive, script.send)

    start, body = script.told
    assert (start["status"], platform.done) == (400, [])
    assert [name for name, _ in start["headers"]].count(b"x-request-id") == 1
    assert body["body"] == b'{"detail":"The request has no Host","error_code":"BAD_REQUEST"}'


def lines_of(telemetry: Telemetry) -> list[tuple[str, str, int | None, str]]:
    lines = telemetry.take_lines()
    return [(line.method, line.template, line.status, line.request_id) for line in lines]


async def test_what_is_answered_without_the_platform_has_a_line() -> None:
    platform = Conformance()
    platform.telemetry.keep_lines()
    app = application(platform)
    script = Script([])
    named = (b"x-request-id", b"mine-1")

    await app(scope(b"/hello", headers=[HOST, named]), script.receive, script.send)
    await app(scope(b"/hello", method="BREW", headers=[]), script.receive, script.send)
    async with app.open():
        await app(scope(b"/a", method="POST", headers=[]), script.receive, script.send)
        await app(scope(b"/bug"), script.receive, script.send)
    starts = [message for message in script.told if message["type"] == "http.response.start"]
    ids = [dict(start["headers"])[b"x-request-id"].decode() for start in starts]

    assert lines_of(platform.telemetry) == [
        ("GET", "*", 503, "mine-1"),
        ("other", "*", 503, ids[1]),
        ("POST", "*", 400, ids[2]),
        ("GET", "*", 500, ids[3]),
    ]


# --- other scopes ------------------------------------------------------------------------------


async def test_a_web_socket_is_closed_before_it_opens() -> None:
    script = Script([{"type": "websocket.connect"}])

    await application(Conformance())({"type": "websocket"}, script.receive, script.send)

    assert script.told == [{"type": "websocket.close", "code": 1000}]


async def test_a_scope_of_another_kind_is_an_error_of_the_server() -> None:
    script = Script([])

    with pytest.raises(NotImplementedError, match="webtransport"):
        await application(Conformance())({"type": "webtransport"}, script.receive, script.send)


LIFE: list[Message] = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]


def failing_host(*, at_open: bool) -> Any:
    @asynccontextmanager
    async def opened() -> AsyncGenerator[Host]:
        if at_open:
            raise ValueError("no such database")
        async with open_host() as host:
            yield host
        raise ValueError("not closed")

    return opened


async def test_the_host_lives_between_startup_and_shutdown() -> None:
    script = Script(list(LIFE))

    await application(Conformance())({"type": "lifespan"}, script.receive, script.send)

    assert [message["type"] for message in script.told] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]


@pytest.mark.parametrize(
    ("at_open", "told"),
    [
        (True, [{"type": "lifespan.startup.failed", "message": "ValueError: no such database"}]),
        (
            False,
            [
                {"type": "lifespan.startup.complete"},
                {"type": "lifespan.shutdown.failed", "message": "ValueError: not closed"},
            ],
        ),
    ],
    ids=["opening", "closing"],
)
async def test_a_host_that_fails_is_told_to_the_server(
    at_open: bool, told: Iterable[Message]
) -> None:
    script = Script(list(LIFE))
    app = Application(Conformance(), failing_host(at_open=at_open))

    with pytest.raises(ValueError):
        await app({"type": "lifespan"}, script.receive, script.send)

    assert script.told == told


async def test_without_a_host_a_request_is_told_to_come_back() -> None:
    script = Script([])

    await application(Conformance())(scope(b"/hello"), script.receive, script.send)

    start, body = script.told
    assert start["status"] == 503
    assert (b"retry-after", b"1") in start["headers"]
    assert b"SERVICE_UNAVAILABLE" in body["body"]


# --- a whole platform --------------------------------------------------------------------------


@pytest.mark.parametrize("served", [uvicorn_asyncio, hypercorn_trio], ids=["asyncio", "trio"])
def test_a_platform_is_served_with_its_databases_and_jobs(
    served: Callable[[Application], AbstractContextManager[Wire]], tmp_path: Path
) -> None:
    platform = Platform(
        id="demo",
        authorization=False,
        databases=[Database("main", f"sqlite:///{tmp_path / 'legation.db'}")],
        agents=[Agent(id="concierge")],
    )
    form = ((b"content-type", b"application/x-www-form-urlencoded"),)

    with served(asgi(platform, log=Log())) as wire:
        health = wire.send("GET", "/health")
        whole = wire.send("POST", "/agents/concierge/runs", form, b"message=hi&stream=false")
        streamed = wire.send("POST", "/agents/concierge/runs", form, b"message=hi")

    assert (health.status, health.json()["status"]) == (200, "ok")
    assert (whole.status, whole.json()["content"]) == (200, "hi")
    assert b"event: RunStarted\n" in streamed.body
    assert b"event: RunCompleted\n" in streamed.body


# --- callers of the outer application ----------------------------------------------------------


def hosting(tmp_path: Path, caller: Any, log: Log, *, authorization: bool = False) -> Application:
    key = ISSUER.authorization() if authorization else AuthorizationConfig()
    return asgi(
        Platform(
            authorization=authorization,
            authorization_config=key,
            databases=[Database("main", f"sqlite:///{tmp_path / 'legation.db'}")],
            agents=[Agent(id="concierge")],
        ),
        log=log,
        caller=caller,
    )


async def status_of(app: Application, path: bytes, *headers: tuple[bytes, bytes]) -> int:
    script = Script([chunk(b"", more=False)])
    await app(scope(path, headers=[HOST, *headers]), script.receive, script.send)
    status: int = script.told[0]["status"]
    return status


ANN: Final = Principal("ann", ["agents:read"])


def says(caller: object) -> Callable[[Scope], Any]:
    def say(_: Scope) -> Any:
        return caller

    return say


async def in_a_coroutine(_: Scope) -> Principal:
    await trio.lowlevel.checkpoint()
    return ANN


async def nobody(_: Scope) -> None:
    await trio.lowlevel.checkpoint()


def broken(_: Scope) -> None:
    raise LookupError("a secret")


@pytest.mark.parametrize("authorization", [True, False])
@pytest.mark.parametrize(
    ("caller", "agents", "health", "event"),
    [
        (says(ANN), 200, 200, None),
        (in_a_coroutine, 200, 200, None),
        (says(Principal("ann")), 403, 200, None),
        (says(None), 401, 200, None),
        (nobody, 401, 200, None),
        (says(Principal("a\0")), 401, 200, "caller_refused"),
        (says("ann"), 401, 200, "caller_refused"),
        (says(False), 401, 200, "caller_refused"),
        (broken, 500, 500, "request_failed"),
    ],
    ids=["ann", "later", "no scope", "None", "None later", "NUL", "a text", "False", "raises"],
)
async def test_nobody_passes_whom_the_outer_application_does_not_name(
    tmp_path: Path,
    caller: Any,
    agents: int,
    health: int,
    event: str | None,
    *,
    authorization: bool,
) -> None:
    log = Log()
    app = hosting(tmp_path, caller, log, authorization=authorization)
    token = (b"authorization", b"Bearer " + ISSUER.token("agents:read").encode())

    async with app.open():
        assert await status_of(app, b"/agents") == agents
        assert await status_of(app, b"/agents", token) == agents
        assert await status_of(app, b"/health") == health

    events = {name for _, name, _ in log.lines if name in {"caller_refused", "request_failed"}}
    assert events == ({event} if event else set())
    assert "a secret" not in str(log.lines)


async def test_the_caller_is_asked_once_with_the_scope_and_before_anything_else(
    tmp_path: Path,
) -> None:
    asked: list[Any] = []
    app = hosting(tmp_path, lambda scope: asked.append(scope["user"]), Log())
    seen = scope(b"/agents", user="ann")
    bad = scope(b"/agents", user="eve", headers=[])

    async with app.open():
        for each in (seen, bad):
            script = Script([])
            await app(each, script.receive, script.send)
        script = Script([{"type": "websocket.connect"}])
        await app({"type": "websocket", "user": "ann"}, script.receive, script.send)

    assert asked == ["ann"]
    assert script.told == [{"type": "websocket.close", "code": 1000}]


# --- mounted -----------------------------------------------------------------------------------


def test_uvicorn_puts_the_root_path_in_front() -> None:
    with uvicorn_asyncio(application(Conformance()), root_path="/api") as wire:
        assert wire.send("GET", "/head/a%2Fb?c").json()["target"] == "/head/a%2Fb?c"


def test_hypercorn_leaves_the_root_path_to_the_proxy() -> None:
    with hypercorn_trio(application(Conformance()), root_path="/api") as wire:
        assert wire.send("GET", "/api/head/a%2Fb?c").json()["target"] == "/head/a%2Fb?c"
        assert wire.send("GET", "/head").json()["target"] == "/head"


@define(eq=False)
class Outer:
    """An application that mounts another below /api, as frameworks do: without a lifespan."""

    inner: Application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self.inner({**scope, "root_path": "/api"}, receive, send)
            return
        await receive()
        async with self.inner.open():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


def test_another_application_can_hold_the_host() -> None:
    outer: Any = Outer(application(Conformance()))

    with uvicorn_asyncio(outer) as wire:
        assert wire.send("GET", "/api/hello").status == 200


def test_a_web_socket_handshake_is_refused_by_the_server() -> None:
    handshake = (
        b"GET /agents HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    with (
        hypercorn_trio(application(Conformance())) as wire,
        socket.create_connection(wire.address, timeout=SECONDS) as connection,
    ):
        connection.sendall(handshake)

        assert connection.recv(4096).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(
    ("path", "root_path", "folder"),
    [
        (b"/api/x", "/api/x", "./x/"),
        (b"/api/x/", "/api/x", ""),
        (b"/api/x/agents", "/api/x", ""),
        (b"/a%3Ab", "/a:b", "./a%3Ab/"),
        (b"/", "", ""),
    ],
)
def test_a_mount_without_its_slash_says_where_links_lead(
    path: bytes, root_path: str, folder: str
) -> None:
    found = request_of(scope(path, root_path=root_path))

    assert isinstance(found, Request)
    assert found.folder == folder
