"""Connections whose next read waits until somebody wants it.

A token is a packet, and to be woken for each costs more than all that is done with it.  Whoever
reads a stream in larger steps lets the kernel gather it meanwhile; but the client below, which
reads when its parser has nothing left, cannot be asked where it is.  So its connections are made
here, by the client's own means, and ask before they read.

When such a read is wanted at last, the kernel nearly always has something.  On trio that is taken
from the socket at once, without the scopes and the turn of the event loop that a read costs which
may have to wait.

Imported at the first request: what it rests on takes a while to load.
"""
# ruff: noqa: ASYNC109  the interface is the client's

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import anyio.lowlevel
import httpcore2
import httpx2
from attrs import field

from legation.http.chunk_joining import ChunkJoiner
from legation.values import define

__all__ = ["HeldStream", "Transport"]


@define(eq=False)
class HeldStream(httpcore2.AsyncNetworkStream):
    """A connection; of its bytes, those that were read are with the parser.

    Attributes:
        hold: Awaited before a read; None where nobody holds it.
        empty: The last read took all that was there.  That of an encrypted connection never says
            so, because what it has read and not yet decrypted is nobody's to see.
    """

    _stream: httpcore2.AsyncNetworkStream
    _encrypted: bool = field(default=False, alias="encrypted")
    _fd: int = field(default=-1, alias="fd")  # its socket, where that can be read at once
    hold: Callable[[], Awaitable[None]] | None = field(default=None, init=False)
    empty: bool = field(default=False, init=False)
    _joiner: ChunkJoiner = field(factory=ChunkJoiner, init=False)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return what comes next, empty at the end."""
        data: bytes | None = None
        if self.hold is not None:
            await self.hold()
            data = self._take(max_bytes)
        if data is None:
            data = await self._stream.read(max_bytes, timeout)
        self.empty = not self._encrypted and len(data) < max_bytes
        return self._joiner.feed(data)

    def _take(self, max_bytes: int) -> bytes | None:
        """Return what the kernel has, empty at the end; None where that is nothing by now."""
        if self._fd < 0:
            return None
        try:
            return os.read(self._fd, max_bytes)
        except OSError:
            return None  # where that is an error, who reads in the usual way is told

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send `buffer`."""
        self._joiner = ChunkJoiner()  # for the response: none is read before its request is sent
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        self._fd = -1  # before the number is that of another
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> HeldStream:
        """Return the same connection, encrypted."""
        self._fd = -1
        stream = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        return HeldStream(stream, encrypted=True)

    def get_extra_info(self, info: str) -> Any:
        """Return what is known of the connection under the name `info`."""
        return self._stream.get_extra_info(info)


@define(eq=False)
class _Backend(httpcore2.AsyncNetworkBackend):
    """Opens connections on the event loop that runs."""

    _opener: httpcore2.AsyncNetworkBackend | None = field(default=None, init=False)
    _on_trio: bool = field(default=False, init=False)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> HeldStream:
        """Return a connection to `host`."""
        opener = self._opener or self._find_opener()
        stream = await opener.connect_tcp(host, port, timeout, local_address, socket_options)
        # On asyncio the event loop may have read what the socket had.
        fd = stream.get_extra_info("socket").fileno() if self._on_trio else -1
        return HeldStream(stream, fd=fd)

    def _find_opener(self) -> httpcore2.AsyncNetworkBackend:
        loop: Any = anyio.lowlevel.current_token().native_token
        made: Any = httpcore2  # what it has depends on what is installed
        self._on_trio = hasattr(loop, "run_sync_soon")
        opener: httpcore2.AsyncNetworkBackend
        opener = self._opener = made.TrioBackend() if self._on_trio else made.AnyIOBackend()
        return opener


class _Body(httpx2.AsyncByteStream):
    """The body of a response, without a layer of its own."""

    def __init__(self, parts: Any) -> None:
        self._parts = parts

    def __aiter__(self) -> AsyncIterator[bytes]:
        parts: AsyncIterator[bytes] = aiter(self._parts)
        return parts

    async def aclose(self) -> None:
        await self._parts.aclose()


class Transport(httpx2.AsyncBaseTransport):
    """Sends requests over a pool of such connections, without a proxy."""

    def __init__(self, connections: int, kept: int) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=httpx2.create_ssl_context(),
            max_connections=connections,
            max_keepalive_connections=kept,
            keepalive_expiry=httpx2.Limits().keepalive_expiry,
            network_backend=_Backend(),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the response to `request`, with its body unread."""
        url = request.url
        asked = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(
                scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        answer: Any = await self._pool.handle_async_request(asked)
        return httpx2.Response(
            answer.status,
            headers=answer.headers,
            stream=_Body(answer.stream),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._pool.aclose()
