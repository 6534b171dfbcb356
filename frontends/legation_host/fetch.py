"""HTTP requests sent out, over one pooled client per host."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from attrs import define, field

from legation.effects import Fetch, FetchReply, Unreachable

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

__all__ = ["Fetcher"]

CONNECTIONS: Final = 256

# What is counted against `max_bytes` is what came over the wire: a compressed body could grow a
# thousandfold between two counts, so none is asked for and none is taken.
IDENTITY: Final = ("accept-encoding", "identity")


class _TooLarge(Exception):
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
    client: AsyncClient = httpx2.AsyncClient(
        follow_redirects=False,
        timeout=None,
        limits=httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=32),
    )
    return client


async def _exchange(client: AsyncClient, effect: Fetch) -> FetchReply | Unreachable:
    names = {name.lower() for name, _ in effect.headers}
    headers = [*effect.headers] if IDENTITY[0] in names else [*effect.headers, IDENTITY]
    httpx2: Any = import_module("httpx2")
    try:
        url = httpx2.URL(effect.url)
        if not 0 < (url.port or 80) < 65_536:
            return Unreachable("protocol")
        async with client.stream(
            effect.method, url, headers=headers, content=effect.body
        ) as response:
            body = await _read(response, effect.max_bytes)
    except Exception as error:
        reason = _reason(error)
        if reason is None:
            raise
        return Unreachable(reason)
    return FetchReply(response.status_code, dict(response.headers), body)


async def _read(response: Response, max_bytes: int) -> bytes:
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise _Encoded
    declared = response.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > max_bytes:
        raise _TooLarge
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
            raise _TooLarge from error
        raise
    if size > max_bytes:
        raise _TooLarge
    return b"".join(chunks)


def _reason(error: Exception) -> str | None:
    """Return why there was no reply, or None when that is a fault of ours."""
    httpx2: Any = import_module("httpx2")
    if isinstance(error, _TooLarge):
        return "too-large"
    if any(isinstance(cause, ssl.SSLError) for cause in _causes(error)):
        return "tls"
    if isinstance(error, httpx2.TimeoutException):
        return "timeout"
    if isinstance(error, (httpx2.ConnectError, httpx2.ProxyError)):
        return "connect"
    if isinstance(error, (_Encoded, httpx2.RequestError, httpx2.InvalidURL, UnicodeError)):
        return "protocol"
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and what it was raised from, outermost first."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
