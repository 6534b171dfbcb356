"""HTTP requests sent out, over one pooled client per host."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from attrs import field

from legation.effects import Fetch, FetchReply, OpenStream, Unreachable
from legation.values import define

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Request, Response

    from .held_reads import HeldStream

__all__ = ["CONNECTIONS", "Fetcher", "ResponseBody"]

CONNECTIONS: Final = 256
"""Open at one time.  Whoever needs one more waits for it, and the wait counts as any other."""

KEPT: Final = 32
"""Of these, open without a request."""

CLOSE_SECONDS: Final = 2.0
"""For saying good-bye to a peer; then the connection is left to the operating system."""

# What is counted against `max_bytes` is what came over the wire: a compressed body could grow a
# thousandfold between two counts, so none is asked for and none is taken.
IDENTITY: Final = ("accept-encoding", "identity")


class _BodyTooLarge(Exception):
    """The body is longer than was to be read."""


class _Encoded(Exception):
    """The body is compressed although that was not asked for."""


@define(eq=False)
class Fetcher:
    """A client of HTTP servers, made at its first use.

    Nothing here writes to the log: the headers of a request carry keys.
    """

    _client: AsyncClient | None = field(default=None, init=False)
    _making: anyio.Lock = field(factory=anyio.Lock, init=False)

    async def fetch(self, effect: Fetch) -> FetchReply | Unreachable:
        """Return the reply, or the reason why there is none."""
        with anyio.move_on_after(effect.timeout_seconds):
            client = self._client or await self._make()
            return await _exchange(client, effect)
        return Unreachable("timeout")

    async def open(self, effect: OpenStream) -> ResponseBody | Unreachable:
        """Return the response with its body unread, which is then to be closed."""
        with anyio.move_on_after(effect.timeout_seconds):
            client = self._client or await self._make()
            return await _open(client, effect)
        return Unreachable("timeout")

    async def aclose(self) -> None:
        """Close every connection."""
        if self._client is not None:
            with anyio.CancelScope(shield=True):
                await self._client.aclose()

    async def _make(self) -> AsyncClient:
        async with self._making:
            if self._client is None:
                # The import takes 120 ms and the certificates 20: not on the event loop.
                self._client = await anyio.to_thread.run_sync(_new_client)
            return self._client


def _new_client() -> AsyncClient:
    httpx2: Any = import_module("httpx2")
    transport: Any = None
    proxies: Mapping[str, str] = import_module("urllib.request").getproxies()
    if not any(proxies.get(scheme) for scheme in ("http", "https", "all")):
        transport = import_module(f"{__package__}.held_reads").Transport(CONNECTIONS, KEPT)
    client: AsyncClient = httpx2.AsyncClient(
        follow_redirects=False,
        timeout=None,
        limits=httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=KEPT),
        transport=transport,
    )
    # What one peer of one caller hands out is not shown to it again on behalf of another.
    cookiejar: Any = import_module("http.cookiejar")
    client.cookies.jar.set_policy(cookiejar.DefaultCookiePolicy(allowed_domains=()))
    return client


@define(eq=False)
class ResponseBody:
    """A response whose body is read as it comes."""

    status: int
    headers: Mapping[str, str]
    _response: Response
    _chunks: AsyncIterator[bytes]
    held: HeldStream | None = None

    async def next(self) -> bytes | Unreachable:
        """Return what came next, empty at the end; after that, or a failure, it is closed."""
        try:
            async for chunk in self._chunks:
                if chunk:
                    return chunk
        except Exception as error:  # noqa: BLE001 (raised where it is ours)
            return _unreachable(error)
        return b""

    async def aclose(self) -> None:
        """Close the connection, unless the body was read to its end.

        The iterator rests on others, and trio objects to one that is left half-way.  With the
        connection closed the next read fails, which ends each of them.
        """
        with anyio.move_on_after(CLOSE_SECONDS, shield=True), suppress(Exception):
            await self._response.aclose()
            async for _ in self._chunks:
                pass


async def _open(client: AsyncClient, effect: OpenStream) -> ResponseBody | Unreachable:
    try:
        response = await client.send(_request(client, effect), stream=True)
        stream: Any = response.extensions.get("network_stream")
        body = ResponseBody(
            response.status_code,
            dict(response.headers),
            response,
            response.aiter_raw(),
            stream if hasattr(stream, "hold") else None,
        )
        if _is_encoded(response):
            await body.aclose()
            return Unreachable("protocol")
    except Exception as error:  # noqa: BLE001 (raised where it is ours)
        return _unreachable(error)
    return body


async def _exchange(client: AsyncClient, effect: Fetch) -> FetchReply | Unreachable:
    try:
        response = await client.send(_request(client, effect), stream=True)
        try:
            body = await _read(response, effect.max_bytes)
        finally:
            await response.aclose()
    except Exception as error:  # noqa: BLE001 (raised where it is ours)
        return _unreachable(error)
    return FetchReply(response.status_code, dict(response.headers), body)


def _request(client: AsyncClient, effect: Fetch | OpenStream) -> Request:
    names = {name.lower() for name, _ in effect.headers}
    headers = [*effect.headers] if IDENTITY[0] in names else [*effect.headers, IDENTITY]
    httpx2: Any = import_module("httpx2")
    url = httpx2.URL(effect.url)
    if not 0 < (url.port or 80) < 65_536:
        raise httpx2.InvalidURL("there is no such port")
    return client.build_request(effect.method, url, headers=headers, content=effect.body)


def _is_encoded(response: Response) -> bool:
    return response.headers.get("content-encoding", "identity").lower() != "identity"


def _unreachable(error: Exception) -> Unreachable:
    """Return `error` as a value; raise it where it is a fault of ours."""
    reason = _reason(error)
    if reason is None:
        raise error
    return Unreachable(reason)


async def _read(response: Response, max_bytes: int) -> bytes:
    if _is_encoded(response):
        raise _Encoded
    declared = response.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > max_bytes:
        raise _BodyTooLarge
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in response.aiter_raw():
            size += len(chunk)
            chunks.append(chunk)
            if size > max_bytes:
                # The iterator rests on others, and trio objects to one that is left half-way.
                # With the connection closed the next read fails, which ends each of them.
                await response.aclose()
    except Exception as error:
        if size > max_bytes:
            raise _BodyTooLarge from error
        raise
    if size > max_bytes:
        raise _BodyTooLarge
    return b"".join(chunks)


def _reason(error: Exception) -> str | None:
    """Return why there was no reply, or None when that is a fault of ours."""
    httpx2: Any = import_module("httpx2")
    core: Any = import_module("httpcore2")  # raises its own where no proxy is between
    if isinstance(error, _BodyTooLarge):
        return "too-large"
    if any(isinstance(cause, ssl.SSLError) for cause in _causes(error)):
        return "tls"
    if isinstance(error, (httpx2.TimeoutException, core.TimeoutException)):
        return "timeout"
    if isinstance(error, (httpx2.ConnectError, httpx2.ProxyError, core.ConnectError)):
        return "connect"
    if isinstance(error, (_Encoded, httpx2.RequestError, httpx2.InvalidURL, UnicodeError)):
        return "protocol"
    if isinstance(error, (core.NetworkError, core.ProtocolError, core.UnsupportedProtocol)):
        return "protocol"
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and what it was raised from, outermost first."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
