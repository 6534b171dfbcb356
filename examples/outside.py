"""The world outside of a synchronous host: HTTP by the standard library, and an event loop.

`threads` performs the effects of the network and of functions with it.
"""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any
from urllib.parse import SplitResult, urlsplit

from legation import effects as e

__all__ = ["Incoming", "Loop", "Pieces"]

CLOSE_SECONDS = 2.0


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def start(self, awaitable: Any) -> Future[Any]:
        """Await it there; the result is `Returned`, `Raised`, or what ends who asked."""
        return asyncio.run_coroutine_threadsafe(settle(awaitable), self.loop)

    def close(self) -> None:
        """Stop it; one that a function holds up is left alone."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(CLOSE_SECONDS)
        if not self.thread.is_alive():
            self.loop.close()


async def settle(awaitable: Any) -> Any:
    """Return what becomes of `awaitable`; what ends the program that asked as it is."""
    try:
        return e.Returned(await awaitable)
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and asyncio.current_task().cancelling():  # type: ignore[union-attr]
            raise
        if isinstance(error, Exception | SystemExit | asyncio.CancelledError):
            return e.Raised.by(error)
        return error


class Pieces:
    """The items of an async iterator.  `wait` awaits one on the loop, for so many seconds."""

    def __init__(self, loop: Loop, iterator: Any) -> None:
        self.loop, self.iterator = loop, iterator

    def next(self, wait: Callable[[Any, float], Any], seconds: float) -> Any:
        """Return the next item, or the outcome that ends the iterator."""
        outcome = wait(anext(self.iterator), seconds)
        if isinstance(outcome, e.Returned):
            return e.Piece(outcome.value)
        ended = isinstance(outcome, e.Raised) and isinstance(outcome.error, StopAsyncIteration)
        return None if ended else outcome

    def close(self) -> None:
        """Close the iterator; one that takes too long is left alone."""
        if hasattr(self.iterator, "aclose"):
            with suppress(TimeoutError):
                self.loop.start(self.iterator.aclose()).result(CLOSE_SECONDS)


class Incoming:
    """A request sent out, and its response, whose body is read as it comes."""

    def __init__(self, effect: e.Fetch | e.OpenStream) -> None:
        self.effect, self.closed = effect, False
        self.socket: socket.socket | None = None

    def open(self) -> e.Unreachable | None:
        """Send the request, and read the head of the response; or return the reason why not."""
        try:
            self._open(urlsplit(self.effect.url))
        except ssl.SSLError:
            return e.Unreachable("tls")
        except TimeoutError:
            return e.Unreachable("timeout")
        except OSError:
            return e.Unreachable("protocol" if self.socket else "connect")
        except (http.client.HTTPException, KeyError, ValueError):
            return e.Unreachable("protocol")
        return None

    def _open(self, url: SplitResult) -> None:
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        if not url.hostname:
            raise ValueError("the URL names no host")
        connection = kinds[url.scheme](url.hostname, url.port, timeout=self.effect.timeout_seconds)
        connection.connect()
        self.socket = connection.sock
        if self.closed:
            self.close()
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        body, headers = self.effect.body or None, dict(self.effect.headers)
        connection.request(self.effect.method, path, body, headers)
        self.response = connection.getresponse()
        self.headers = {name.lower(): value for name, value in self.response.getheaders()}

    def read(self) -> bytes | e.Unreachable:
        """Return the next bytes, empty at the end."""
        try:
            data = self.response.read1(65_536)
        except TimeoutError:
            return e.Unreachable("timeout")
        except (OSError, http.client.HTTPException, ValueError):
            return e.Unreachable("protocol")
        return e.Unreachable("protocol") if not data and self.response.length else data

    def exchange(self, max_bytes: int) -> e.FetchReply | e.Unreachable:
        """Send the request; return the whole response as one reply."""
        if failure := self.open():
            return failure
        body = b""
        while data := self.read():
            if isinstance(data, e.Unreachable):
                return data
            body += data
            if len(body) > max_bytes:
                return e.Unreachable("too-large")
        return e.FetchReply(self.response.status, self.headers, body)

    def close(self) -> None:
        """Close the connection, also under whoever waits for it."""
        self.closed = True
        if self.socket is not None:
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
            self.socket.close()
