"""What every frontend has to do, as one suite: requests in, assertions on what comes back.

A frontend is a function from a platform to a context manager of something that can `send`; the
cases drive it with `Conformance`, a platform whose paths each show one thing a program can do.
`CASES` run everywhere.  `WIRE_CASES` are about connections, so they need an `address`.
`RUN_CASES` run everywhere, too, on `two_databases`: a whole platform with two of them.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import urlencode

from attrs import define, field, frozen

from legation import Agent, Database, Model, Platform
from legation.effects import (
    Emit,
    Log,
    Now,
    Program,
    RandomBytes,
    ReadBody,
    Sleep,
    Spawn,
    ThisNode,
)
from legation.http.messages import (
    Answer,
    Headers,
    Request,
    Response,
    Streamed,
    Unfinished,
    empty_response,
    json_response,
    text_response,
)
from legation.http.refusals import NotFound, TooLarge, respond
from legation.observability.request_log import Telemetry

__all__ = [
    "CASES",
    "RUN_CASES",
    "WIRE_CASES",
    "Body",
    "Conformance",
    "Frontend",
    "Open",
    "OpenPlatform",
    "Reply",
    "Wire",
    "two_databases",
]

MEBIBYTE: Final = 1 << 20
SECONDS: Final = 30.0  # nothing here takes longer, so whatever does has stopped

Body: TypeAlias = bytes | Sequence[bytes]
"""Of a request: whole, with its length; or in chunks, without."""


@frozen
class Reply:
    """A response, its body whole; header names are lower case."""

    status: int
    headers: Headers
    body: bytes = field(repr=False)

    def values(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key == name]

    def json(self) -> Any:
        return json.loads(self.body)


class Frontend(Protocol):
    """A running frontend."""

    @property
    def address(self) -> tuple[str, int] | None:
        """Where it listens; None when it is reached without a connection."""
        ...

    def send(
        self, method: str, target: str, headers: Headers = (), body: Body | None = None
    ) -> Reply:
        """Send one request, with `host` unless `headers` has it, and return the response."""
        ...


Open: TypeAlias = "Callable[[Conformance], AbstractContextManager[Frontend]]"
OpenPlatform: TypeAlias = "Callable[[Platform], AbstractContextManager[Frontend]]"


# --- the platform ------------------------------------------------------------------------------


@define(eq=False)
class Mark:
    """A job that says when it ran."""

    ran: threading.Event

    def program(self) -> Program[None]:
        yield from Now()
        self.ran.set()


@define(eq=False)
class Conformance:
    """A platform whose paths each show one thing that a program can do."""

    closed: threading.Event = field(factory=threading.Event)
    """The endless stream was closed."""
    ran: threading.Event = field(factory=threading.Event)
    """The spawned job ran."""
    gone: threading.Event = field(factory=threading.Event)
    """A program was closed while it waited for a body."""
    telemetry: Telemetry = field(factory=Telemetry)

    def answer(self, request: Request) -> Program[Answer]:
        path = request.target.partition("?")[0]
        name = "_on_" + path.strip("/").replace("/", "_")
        program: Callable[[Request], Program[Answer]] = getattr(self, name, self._no_such)
        return program(request)

    def _no_such(self, request: Request) -> Program[Answer]:
        yield from Now()
        return _head(request) if request.target.startswith("/head") else respond(NotFound())

    def _on_hello(self, request: Request) -> Program[Answer]:
        yield from Now()
        return _for_method(request, json_response(200, {"hello": "world"}))

    def _on_large(self, request: Request) -> Program[Answer]:
        yield from Now()
        return _for_method(request, text_response(200, "x" * MEBIBYTE))

    def _on_echo(self, request: Request) -> Program[Answer]:
        body = yield from ReadBody(2 * MEBIBYTE)
        return respond(TooLarge(limit=2 * MEBIBYTE)) if body is None else _octets(body)

    def _on_narrow(self, request: Request) -> Program[Answer]:
        try:
            body = yield from ReadBody(1000)
        except GeneratorExit:
            self.gone.set()
            raise
        return respond(TooLarge(limit=1000)) if body is None else _octets(body)

    def _on_nothing(self, request: Request) -> Program[Answer]:
        yield from Now()
        return empty_response(204)

    def _on_cookies(self, request: Request) -> Program[Answer]:
        yield from Now()
        cookies = ((b"set-cookie", b"b=2"), (b"x-one", b"1"), (b"set-cookie", b"a=1"))
        return text_response(200, "", headers=cookies)

    def _on_bug(self, request: Request) -> Program[Answer]:
        yield from Now()
        raise RuntimeError("select secret from internals")

    def _on_effects(self, request: Request) -> Program[Answer]:
        before = yield from Now()
        yield from Sleep(0.05)
        after = yield from Now()
        first = yield from RandomBytes(16)
        second = yield from RandomBytes(16)
        node = yield from ThisNode()
        yield from Log("info", "conformance", (("answer", 42),))
        drawn = [first.hex(), second.hex()]
        return json_response(200, {"slept": after - before, "drawn": drawn, "node": node})

    def _on_spawn(self, request: Request) -> Program[Answer]:
        yield from Spawn(Mark(self.ran))
        return empty_response(204)

    def _on_stream(self, request: Request) -> Program[Answer]:
        yield from Now()
        return _events(_numbers(5))

    def _on_stream_empty(self, request: Request) -> Program[Answer]:
        yield from Now()
        return _events(_numbers(0))

    def _on_stream_bug(self, request: Request) -> Program[Answer]:
        yield from Now()
        return _events(_broken())

    def _on_stream_part(self, request: Request) -> Program[Answer]:
        yield from Now()
        return _events(_part())

    def _on_stream_large(self, request: Request) -> Program[Answer]:
        yield from Now()
        return _events(_blocks(64))

    def _on_stream_endless(self, request: Request) -> Program[Answer]:
        yield from Now()
        return _events(_endless(self.closed))


def _head(request: Request) -> Response:
    headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in request.headers]
    return json_response(
        200, {"method": request.method, "target": request.target, "headers": headers}
    )


def _for_method(request: Request, response: Response) -> Response:
    if request.method == "HEAD":
        return Response(response.status, response.headers)
    return response


def _octets(body: bytes) -> Response:
    headers = (
        (b"content-type", b"application/octet-stream"),
        (b"content-length", b"%d" % len(body)),
    )
    return Response(200, headers, body)


def _events(program: Program[Unfinished | None]) -> Streamed:
    return Streamed(
        200, ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")), program
    )


def _numbers(count: int) -> Program[None]:
    for number in range(count):
        yield from Emit(b"data: %d" % number)
        yield from Emit(b"\n\n")
        yield from Sleep(0.005)


def _broken() -> Program[None]:
    yield from Emit(b"data: 0\n\n")
    yield from Sleep(0.005)
    raise RuntimeError("select secret from internals")


def _part() -> Program[Unfinished]:
    yield from Emit(b"data: 0\n\n")
    yield from Sleep(0.005)
    return Unfinished()


def _blocks(count: int) -> Program[None]:
    for number in range(count):
        yield from Emit(bytes([65 + number % 26]) * 16384)


def _endless(closed: threading.Event) -> Program[None]:
    try:
        while True:
            yield from Emit(b": heartbeat\n\n")
            yield from Sleep(0.01)
    finally:
        closed.set()


# --- a client over a socket --------------------------------------------------------------------


@frozen
class Wire:
    """A frontend behind a socket, spoken to by the client of the standard library."""

    address: tuple[str, int]

    def send(
        self, method: str, target: str, headers: Headers = (), body: Body | None = None
    ) -> Reply:
        connection = http.client.HTTPConnection(*self.address, timeout=SECONDS)
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in _with_framing(headers, body):
                connection.putheader(name.decode("ascii"), value)
            chunked = body is not None and not isinstance(body, bytes)
            connection.endheaders(body, encode_chunked=chunked)
            return _reply(connection.getresponse())
        finally:
            connection.close()

    def exchange(self, data: bytes) -> bytes:
        """Send `data` on a connection of its own; return what comes until the end."""
        with socket.create_connection(self.address, timeout=SECONDS) as connection:
            connection.sendall(data)
            return b"".join(iter(lambda: connection.recv(65536), b""))


def _with_framing(headers: Headers, body: Body | None) -> Iterable[tuple[bytes, bytes]]:
    if all(name != b"host" for name, _ in headers):
        yield b"host", b"legation.test"
    yield from headers
    if isinstance(body, bytes):
        yield b"content-length", b"%d" % len(body)
    elif body is not None:
        yield b"transfer-encoding", b"chunked"


def _reply(response: http.client.HTTPResponse) -> Reply:
    headers = tuple(
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in response.getheaders()
    )
    return Reply(response.status, headers, response.read())


# --- cases for every frontend ------------------------------------------------------------------


def get_is_answered_with_the_length_of_its_body(frontend: Frontend) -> None:
    reply = frontend.send("GET", "/hello")

    assert (reply.status, reply.body) == (200, b'{"hello":"world"}')
    assert reply.values(b"content-type") == [b"application/json"]
    assert reply.values(b"content-length") == [b"17"]


def head_has_the_headers_of_get_and_no_body(frontend: Frontend) -> None:
    reply = frontend.send("HEAD", "/hello")

    assert (reply.status, reply.body) == (200, b"")
    assert reply.values(b"content-length") == [b"17"]


def a_body_comes_back(frontend: Frontend) -> None:
    reply = frontend.send("POST", "/echo", body=b"\0\xff bytes\r\n")

    assert (reply.status, reply.body) == (200, b"\0\xff bytes\r\n")


def a_body_in_chunks_comes_back(frontend: Frontend) -> None:
    reply = frontend.send("POST", "/echo", body=[b"a", b"bc" * 5000, b"d"])

    assert (reply.status, reply.body) == (200, b"a" + b"bc" * 5000 + b"d")


def a_request_without_a_body_has_an_empty_one(frontend: Frontend) -> None:
    assert frontend.send("POST", "/echo", body=b"").body == b""
    assert frontend.send("GET", "/echo").body == b""


def a_mebibyte_comes_back(frontend: Frontend) -> None:
    body = bytes(range(256)) * 4096

    assert frontend.send("POST", "/echo", body=body).body == body


def a_mebibyte_is_sent(frontend: Frontend) -> None:
    assert frontend.send("GET", "/large").body == b"x" * MEBIBYTE


def a_body_of_exactly_the_limit_is_read(frontend: Frontend) -> None:
    assert frontend.send("POST", "/narrow", body=b"x" * 1000).status == 200
    assert frontend.send("POST", "/narrow", body=[b"x" * 400, b"x" * 600]).status == 200


def a_body_declared_over_the_limit_is_refused(frontend: Frontend) -> None:
    reply = frontend.send("POST", "/narrow", body=b"x" * 1001)

    assert reply.status == 413
    assert reply.json() == {
        "detail": "The body is longer than 1000 bytes",
        "error_code": "PAYLOAD_TOO_LARGE",
    }


def a_body_over_the_limit_in_chunks_is_refused(frontend: Frontend) -> None:
    reply = frontend.send("POST", "/narrow", body=[b"x" * 600, b"x" * 600])

    assert (reply.status, reply.json()["error_code"]) == (413, "PAYLOAD_TOO_LARGE")


def a_body_that_nobody_reads_does_no_harm(frontend: Frontend) -> None:
    assert frontend.send("POST", "/hello", body=b"x" * 10000).status == 200


def no_content_has_no_content(frontend: Frontend) -> None:
    reply = frontend.send("DELETE", "/nothing")

    assert (reply.status, reply.body) == (204, b"")
    assert reply.values(b"transfer-encoding") == []


def a_stream_arrives_whole_and_in_order(frontend: Frontend) -> None:
    reply = frontend.send("GET", "/stream")

    assert (reply.status, reply.values(b"cache-control")) == (200, [b"no-cache"])
    assert reply.body == b"".join(b"data: %d\n\n" % number for number in range(5))


def a_stream_may_be_empty(frontend: Frontend) -> None:
    reply = frontend.send("GET", "/stream/empty")

    assert (reply.status, reply.body) == (200, b"")


def a_stream_without_a_pause_arrives_whole(frontend: Frontend) -> None:
    expected = b"".join(bytes([65 + number % 26]) * 16384 for number in range(64))

    assert frontend.send("GET", "/stream/large").body == expected


def the_target_is_passed_on_undecoded(frontend: Frontend) -> None:
    target = "/head/a%2Fb/%C3%A9/..%2f/;x=1/?q=%20&q=%2B+&empty="

    assert frontend.send("GET", target).json()["target"] == target


def an_empty_query_is_none(frontend: Frontend) -> None:
    assert frontend.send("GET", "/head").json()["target"] == "/head"


def headers_keep_their_order_and_their_duplicates(frontend: Frontend) -> None:
    sent = ((b"x-b", b"2"), (b"x-a", b"1"), (b"x-b", b"3, 4"), (b"x-c", b"\xe9 \t!"))

    headers = frontend.send("GET", "/head", sent).json()["headers"]

    assert [pair for pair in headers if pair[0].startswith("x-")] == [
        ["x-b", "2"],
        ["x-a", "1"],
        ["x-b", "3, 4"],
        ["x-c", "\xe9 \t!"],
    ]


def header_names_are_lower_case_for_the_program(frontend: Frontend) -> None:
    headers = frontend.send("GET", "/head", ((b"X-Mixed-Case", b"Kept"),)).json()["headers"]

    assert ["x-mixed-case", "Kept"] in headers


def headers_of_the_answer_keep_their_order_and_their_duplicates(frontend: Frontend) -> None:
    reply = frontend.send("GET", "/cookies")

    assert [pair for pair in reply.headers if pair[0] in (b"set-cookie", b"x-one")] == [
        (b"set-cookie", b"b=2"),
        (b"x-one", b"1"),
        (b"set-cookie", b"a=1"),
    ]


def any_method_reaches_the_program(frontend: Frontend) -> None:
    for method in ("PATCH", "OPTIONS", "PUT"):
        assert frontend.send(method, "/head").json()["method"] == method


def effects_are_performed(frontend: Frontend) -> None:
    value = frontend.send("GET", "/effects").json()

    assert 45_000 <= value["slept"] < SECONDS * 1_000_000
    assert [len(drawn) for drawn in value["drawn"]] == [32, 32]
    assert len(set(value["drawn"])) == 2
    assert value["node"] != ""


def what_the_program_refuses_is_passed_on(frontend: Frontend) -> None:
    reply = frontend.send("GET", "/no/such/path")

    assert (reply.status, reply.json()["error_code"]) == (404, "NOT_FOUND")


CASES: Final[tuple[Callable[[Frontend], None], ...]] = (
    get_is_answered_with_the_length_of_its_body,
    head_has_the_headers_of_get_and_no_body,
    a_body_comes_back,
    a_body_in_chunks_comes_back,
    a_request_without_a_body_has_an_empty_one,
    a_mebibyte_comes_back,
    a_mebibyte_is_sent,
    a_body_of_exactly_the_limit_is_read,
    a_body_declared_over_the_limit_is_refused,
    a_body_over_the_limit_in_chunks_is_refused,
    a_body_that_nobody_reads_does_no_harm,
    no_content_has_no_content,
    a_stream_arrives_whole_and_in_order,
    a_stream_may_be_empty,
    a_stream_without_a_pause_arrives_whole,
    the_target_is_passed_on_undecoded,
    an_empty_query_is_none,
    headers_keep_their_order_and_their_duplicates,
    header_names_are_lower_case_for_the_program,
    headers_of_the_answer_keep_their_order_and_their_duplicates,
    any_method_reaches_the_program,
    effects_are_performed,
    what_the_program_refuses_is_passed_on,
)


# --- cases for what has connections ------------------------------------------------------------


def a_bug_is_500_and_tells_nothing(wire: Wire, platform: Conformance) -> None:
    reply = wire.send("GET", "/bug")

    assert (reply.status, reply.json()["error_code"]) == (500, "INTERNAL_SERVER_ERROR")
    assert len(reply.values(b"x-request-id")) == 1
    assert b"secret" not in reply.body
    assert b"Traceback" not in reply.body


def a_bug_in_a_stream_shows_as_a_stream_that_is_not_whole(
    wire: Wire, platform: Conformance
) -> None:
    received = wire.exchange(b"GET /stream/bug HTTP/1.1\r\nhost: a\r\n\r\n")

    assert b"data: 0\n\n" in received
    assert not received.endswith(b"0\r\n\r\n")
    assert b"secret" not in received


def a_stream_that_its_program_leaves_shows_as_one_that_is_not_whole(
    wire: Wire, platform: Conformance
) -> None:
    received = wire.exchange(b"GET /stream/part HTTP/1.1\r\nhost: a\r\n\r\n")

    assert b"data: 0\n\n" in received
    assert not received.endswith(b"0\r\n\r\n")


def no_body_is_sent_to_head_whatever_the_program_answers(wire: Wire, platform: Conformance) -> None:
    for target, status in ((b"/stream/endless", b"200"), (b"/no/such/path", b"404")):
        received = wire.exchange(
            b"HEAD %b HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n" % target
        )
        head, _, body = received.partition(b"\r\n\r\n")

        assert head.startswith(b"HTTP/1.1 " + status)
        assert body == b""


def a_stream_is_closed_when_its_client_leaves(wire: Wire, platform: Conformance) -> None:
    platform.closed.clear()
    with socket.create_connection(wire.address, timeout=SECONDS) as connection:
        connection.sendall(b"GET /stream/endless HTTP/1.1\r\nhost: a\r\n\r\n")
        received = b""
        while b": heartbeat" not in received:
            received += connection.recv(65536)
        assert not platform.closed.is_set()

    assert platform.closed.wait(SECONDS)


def a_program_is_closed_when_its_body_breaks_off(wire: Wire, platform: Conformance) -> None:
    platform.gone.clear()
    with socket.create_connection(wire.address, timeout=SECONDS) as connection:
        connection.sendall(b"POST /narrow HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nx")
        time.sleep(0.05)

    assert platform.gone.wait(SECONDS)


def a_stream_comes_as_it_is_emitted(wire: Wire, platform: Conformance) -> None:
    with socket.create_connection(wire.address, timeout=SECONDS) as connection:
        connection.sendall(b"GET /stream/endless HTTP/1.1\r\nhost: a\r\n\r\n")
        received = b""
        while received.count(b": heartbeat") < 3:
            received += connection.recv(65536)

    head, _, _ = received.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head.lower()


def a_job_runs_beside_the_request_that_spawned_it(wire: Wire, platform: Conformance) -> None:
    assert wire.send("POST", "/spawn", body=b"").status == 204
    assert platform.ran.wait(SECONDS)


def a_connection_serves_one_request_after_another(wire: Wire, platform: Conformance) -> None:
    connection = http.client.HTTPConnection(*wire.address, timeout=SECONDS)
    try:
        for method, target, body in (
            ("GET", "/hello", None),
            ("HEAD", "/hello", None),
            ("HEAD", "/no/such/path", None),
            ("POST", "/echo", b"x"),
            ("GET", "/stream", None),
            ("DELETE", "/nothing", None),
            ("GET", "/bug", None),
            ("GET", "/hello", None),
        ):
            connection.request(method, target, body)
            response = connection.getresponse()
            response.read()
        assert response.status == 200
    finally:
        connection.close()


BOTH_FRAMINGS: Final = (
    b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n"
    b"\r\n1\r\nx\r\n0\r\n\r\n"
)


def the_head_is_checked_before_the_program_sees_it(wire: Wire, platform: Conformance) -> None:
    for head in (
        b"GET /hello HTTP/1.1\r\n\r\n",
        b"GET /hello HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n",
        b"GET /hello HTTP/1.1\r\nhost: a/b\r\n\r\n",
        b"GET /hello HTTP/1.1\r\nhost: user@a\r\n\r\n",
        b"GET /hello HTTP/1.1\r\nhost: [::1\r\n\r\n",
        BOTH_FRAMINGS,
        b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
        b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: +1\r\n\r\nx",
    ):
        received = wire.exchange(head.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))

        assert received.startswith(b"HTTP/1.1 400 "), head


def absolute_form_is_accepted(wire: Wire, platform: Conformance) -> None:
    received = wire.exchange(
        b"GET http://a.test/head?q=1 HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n"
    )

    assert received.startswith(b"HTTP/1.1 200 ")
    assert b'"target":"/head?q=1"' in received


WIRE_CASES: Final[tuple[Callable[[Wire, Conformance], None], ...]] = (
    a_bug_is_500_and_tells_nothing,
    a_bug_in_a_stream_shows_as_a_stream_that_is_not_whole,
    a_stream_that_its_program_leaves_shows_as_one_that_is_not_whole,
    no_body_is_sent_to_head_whatever_the_program_answers,
    a_stream_is_closed_when_its_client_leaves,
    a_program_is_closed_when_its_body_breaks_off,
    a_stream_comes_as_it_is_emitted,
    a_job_runs_beside_the_request_that_spawned_it,
    a_connection_serves_one_request_after_another,
    the_head_is_checked_before_the_program_sees_it,
    absolute_form_is_accepted,
)


# --- cases on a platform of two databases ------------------------------------------------------

AGENTS: Final = ("first", "second")


def two_databases(*urls: str) -> Platform:
    """Return a platform of two databases, with an agent in each that takes more than a second."""
    return Platform(
        databases=[
            Database(name, url, auto_migrate=True) for name, url in zip(AGENTS, urls, strict=True)
        ],
        models=[Model("slow", "echo", delay_seconds=1.4)],
        agents=[Agent(id=name, model="slow", database=name) for name in AGENTS],
    )


def _begin(frontend: Frontend, agent: str, **form: str) -> str:
    """Begin a run in the background; return its path."""
    content = urlencode({"message": "hello", "background": "true", **form}).encode()
    headers = ((b"content-type", b"application/x-www-form-urlencoded"),)
    reply = frontend.send("POST", f"/agents/{agent}/runs", headers, content)
    assert reply.status == 202, reply.body
    return f"/agents/{agent}/runs/{reply.json()['run_id']}"


def a_run_of_either_database_comes_to_its_end_and_one_that_is_cancelled_to_another(
    frontend: Frontend,
) -> None:
    """All are under execution for longer than a node takes to look whom to cancel."""
    runs = [_begin(frontend, agent) for agent in (*AGENTS, "second")]
    assert frontend.send("POST", f"{runs[-1]}/cancel", body=b"").status == 200
    ends = [frontend.send("GET", f"{run}/events").body for run in runs]
    found = [frontend.send("GET", run).json()["status"] for run in runs]

    assert found == ["COMPLETED", "COMPLETED", "CANCELLED"]
    names = (b"RunCompleted", b"RunCompleted", b"RunCancelled")
    assert all(b"event: " + name in end for name, end in zip(names, ends, strict=True))


def a_run_whose_session_is_deleted_ends_at_once(frontend: Frontend) -> None:
    session = "to be deleted"
    for agent in AGENTS:
        run = _begin(frontend, agent, session_id=session)
        target = f"/sessions/to%20be%20deleted?type=agent&db_id={agent}"
        assert frontend.send("DELETE", target).status == 204
        assert frontend.send("GET", run).status == 404
        assert frontend.send("GET", target).status == 404


RUN_CASES: Final[tuple[Callable[[Frontend], None], ...]] = (
    a_run_of_either_database_comes_to_its_end_and_one_that_is_cancelled_to_another,
    a_run_whose_session_is_deleted_ends_at_once,
)
