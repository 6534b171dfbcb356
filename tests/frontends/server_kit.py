"""A server on a free port of loopback, a platform that does what its path says, a raw client."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import trio
from attrs import define, field, frozen

from legation.effects import AwaitNudge, Emit, Program, ReadBody, Sleep
from legation.http.messages import Answer, Request, Response, Streamed, Unfinished, json_response
from legation.http.refusals import TooLarge, Unauthenticated, respond
from legation.observability.request_log import Telemetry
from legation_host import open_host
from legation_server import DEFAULT, Proxies, Server, Settings, open_listeners, serve
from legation_server.proxies import NO_PROXIES

__all__ = [
    "ALIVE",
    "HIDDEN",
    "SSE",
    "Client",
    "Reply",
    "Served",
    "Tried",
    "connected",
    "reset",
    "serving",
]

ALIVE: Final = b"GET /alive HTTP/1.1\r\nHost: a\r\n\r\n"
HIDDEN: Final = b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
SSE: Final = (b"content-type", b"text/event-stream; charset=utf-8")

_STREAMS: Final = (
    *("/events", "/download", "/ticks", "/flood", "/broken", "/stillborn", "/quiet", "/part"),
)

PATIENCE: Final = 30.0
"""Seconds after which a test that waits is a failed one."""


@define(eq=False)
class Tried:
    """The platform of these tests.  It remembers what it was asked and which streams ended."""

    asked: list[Request] = field(factory=list[Request])
    ended: list[str] = field(factory=list[str])
    released: int = 0
    telemetry: Telemetry = field(factory=Telemetry)

    def answer(self, request: Request) -> Program[Answer]:
        """Do what the path says."""
        self.asked.append(request)
        path, _, query = request.target.partition("?")
        if path == "/read":
            return (yield from self._read(int(query or 1000)))
        if path == "/twice":
            yield from ReadBody(1000)
            yield from ReadBody(1000)
        if path == "/wait":
            yield from Sleep(float(query))
        if path == "/boom":
            raise ZeroDivisionError("the reason, which is nobody's business")
        if path == "/deny":
            return respond(Unauthenticated())
        if path == "/large":
            return Response(200, (), b"x" * int(query))
        if path == "/headers":
            return json_response(
                200, [[n.decode(), v.decode("latin-1")] for n, v in request.headers]
            )
        if path in _STREAMS:
            headers = (SSE,) if path != "/download" else ((b"content-type", b"text/csv"),)
            return Streamed(200, headers, self._stream(path, query))
        return json_response(200, {"path": request.target, "method": request.method})

    def _read(self, limit: int) -> Program[Answer]:
        body = yield from ReadBody(limit)
        if body is None:
            return respond(TooLarge(limit))
        return Response(200, ((b"content-type", b"application/octet-stream"),), body)

    def _stream(self, path: str, query: str) -> Program[Unfinished | None]:
        try:
            if path == "/quiet":
                yield from AwaitNudge("never", 60.0)
            if path in ("/broken", "/stillborn"):
                yield from Emit(b"begun")
                if path == "/broken":
                    yield from Sleep(0.0)
                raise ZeroDivisionError("in a stream")
            for number in range(int(query or 3)):
                yield from Emit(b"x" * 65536 if path == "/flood" else b"data: %d\n\n" % number)
                if path in ("/ticks", "/download"):
                    yield from Sleep(0.02)
            return Unfinished() if path == "/part" else None
        finally:
            self.ended.append(path)


@frozen
class Reply:
    """A response as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    chunks: tuple[bytes, ...] = ()

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


class Client:
    """A raw connection.  Reads are bounded in time; a reset counts as the end."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.buffer = b""

    async def send(self, data: bytes) -> None:
        """Send `data`, as far as the server takes it."""
        try:
            await self.stream.send_all(data)
        except trio.BrokenResourceError:
            pass

    async def more(self) -> bool:
        """Wait for bytes; False at the end."""
        try:
            with trio.fail_after(PATIENCE):
                data = await self.stream.receive_some(65536)
        except trio.BrokenResourceError:
            return False
        self.buffer += data
        return data != b""

    async def until(self, mark: bytes) -> bytes | None:
        """Return what comes up to and with `mark`; None when the end comes first."""
        while mark not in self.buffer:
            if not await self.more():
                return None
        data, _, self.buffer = self.buffer.partition(mark)
        return data + mark

    async def exactly(self, size: int) -> bytes:
        """Return `size` bytes, fewer at the end."""
        while len(self.buffer) < size and await self.more():
            pass
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    async def rest(self) -> bytes:
        """Return everything up to the end."""
        while await self.more():
            pass
        data, self.buffer = self.buffer, b""
        return data

    async def reply(self, method: str = "GET") -> Reply | None:
        """Return the next response, which must be whole, or None at the end of the connection."""
        head = await self.until(b"\r\n\r\n")
        if head is None:
            return None
        first, *lines = head[:-4].decode("latin-1").split("\r\n")
        headers = {name: value for name, _, value in (line.partition(": ") for line in lines)}
        status = int(first.split(" ")[1])
        chunks: list[bytes] = []
        if method == "HEAD" or status in (204, 304) or status < 200:
            return Reply(status, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            while piece := await self.chunk():
                chunks.append(piece)
            assert piece is not None, "the body has no last chunk"
            return Reply(status, headers, b"".join(chunks), tuple(chunks))
        if "content-length" in headers:
            size = int(headers["content-length"])
            body = await self.exactly(size)
            assert len(body) == size, "the body is cut"
            return Reply(status, headers, body)
        return Reply(status, headers, await self.rest())

    async def chunk(self) -> bytes | None:
        """Return the next chunk, empty for the last one, None when the body is cut."""
        line = await self.until(b"\r\n")
        if line is None:
            return None
        data = await self.exactly(int(line, 16) + 2)
        return data[:-2] if data.endswith(b"\r\n") else None

    async def get(self, data: bytes, method: str = "GET") -> Reply:
        """Send `data` and return the response, which must come."""
        await self.send(data)
        reply = await self.reply(method)
        assert reply is not None, "the connection ended"
        return reply

    async def is_open(self) -> bool:
        """Tell whether another request is answered on this connection."""
        await self.send(ALIVE)
        reply = await self.reply()
        return reply is not None and reply.status == 200


@asynccontextmanager
async def connected(port: int) -> AsyncGenerator[Client]:
    """Connect to a server on this machine."""
    with trio.fail_after(PATIENCE):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        yield Client(stream)


@define(eq=False)
class Served:
    """A running server."""

    server: Server
    platform: Tried
    port: int
    log: list[tuple[str, str, Mapping[str, Any]]]
    nursery: trio.Nursery
    done: trio.Event = field(factory=trio.Event)

    def client(self) -> AbstractAsyncContextManager[Client]:
        """Connect."""
        return connected(self.port)

    async def once(self, data: bytes) -> list[Reply]:
        """Send `data` on a connection of its own, and return all that is answered to it."""
        replies: list[Reply] = []
        async with self.client() as client:
            await client.send(data)
            await client.stream.send_eof()
            while (reply := await client.reply()) is not None:
                replies.append(reply)
        return replies

    async def lives(self) -> bool:
        """Tell whether a new client is served."""
        async with self.client() as client:
            return await client.is_open()

    async def until_connections(self, number: int) -> None:
        """Wait until so many connections are left."""
        with trio.fail_after(PATIENCE):
            while self.server.connections != number:
                await trio.sleep(0.005)


@asynccontextmanager
async def serving(
    settings: Settings = DEFAULT, platform: Tried | None = None, proxies: Proxies = NO_PROXIES
) -> AsyncGenerator[Served]:
    """Run a server; at the end check that it is alive, then stop it."""
    tried = Tried() if platform is None else platform
    log: list[tuple[str, str, Mapping[str, Any]]] = []

    def write(level: str, event: str, fields: Mapping[str, Any]) -> None:
        log.append((level, event, fields))

    listeners = open_listeners("127.0.0.1", 0)
    port = listeners[0].getsockname()[1]
    async with open_host() as host, trio.open_nursery() as nursery:
        done = trio.Event()

        async def run(task_status: trio.TaskStatus[Server]) -> None:
            await serve(
                tried,
                host,
                listeners,
                settings,
                log=write,
                proxies=proxies,
                task_status=task_status,
            )
            done.set()

        server = await nursery.start(run)
        yield Served(server, tried, port, log, nursery, done)
        nursery.cancel_scope.cancel()


def reset(client: Client) -> None:
    """Close with a reset."""
    linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
    client.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    client.stream.socket.close()
