"""The HTTP server that cases fetch from: on a port of the loopback, in threads of its own.

What it answers is a value, made from the request alone.  A host that simulates its network takes
these values as they are; for every other host the server plays them over a socket, and sees when a
client closes the connection before the end.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import urlsplit

import h11
from attrs import define, field

from legation.effects import Fetch, OpenStream, Unreachable

from ..performing import Delayed
from ..streams import Chunks

__all__ = ["BIG", "Peer", "open_peer"]

BIG: Final = 1 << 20
"""Bytes, of a large body."""

_NONSENSE: Final = b"Good morning.\r\n\r\n"
_READ_BYTES: Final = 1 << 16
_PLAIN: Final[Mapping[str, str]] = {"content-type": "text/plain", "X-Kit": "Yes"}


@define(eq=False)
class Peer:
    """The server, while it is open.

    Attributes:
        url: Without a path.
        tls_url: The same server, by a scheme that it does not speak.
        closed_url: One at which nobody is.
    """

    port: int
    _stopped: threading.Event = field(factory=threading.Event)
    _under_way: Counter[str] = field(factory=Counter[str])
    _counting: threading.Lock = field(factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def tls_url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def closed_url(self) -> str:
        return "http://127.0.0.1:1"  # tcpmux, which nobody has served for decades

    def answer(self, effect: Fetch | OpenStream) -> Delayed | Unreachable:
        """Return what a host without a network answers `effect` with."""
        try:
            url = urlsplit(effect.url)
            port = url.port
        except ValueError:
            return Unreachable("protocol")
        if url.scheme not in ("http", "https") or not url.hostname:
            return Unreachable("protocol")
        if port != self.port:
            return Unreachable("connect")
        if url.scheme == "https":
            return Unreachable("tls")
        path = url.path + (f"?{url.query}" if url.query else "")
        headers = {name.lower(): value for name, value in effect.headers}
        answer = _answer(effect.method, path, headers, effect.body)
        if isinstance(answer, Unreachable):
            return answer
        return Delayed(answer.seconds, _in_lower_case(answer.answer))

    def under_way(self, path: str) -> int:
        """Return how many answers to `path` are neither at their end nor given up."""
        with self._counting:
            return self._under_way[path]

    # From here on: threads of the server.

    def serve(self, listener: socket.socket) -> None:
        """Accept connections until the listener is closed."""
        while not self._stopped.is_set():
            with suppress(OSError):
                connection, _ = listener.accept()
                threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def stop(self) -> None:
        """Let every answer end where it is."""
        self._stopped.set()

    def _converse(self, connection: socket.socket) -> None:
        """Read one request, answer it and close."""
        with connection, suppress(OSError):
            wire = h11.Connection(h11.SERVER)
            try:
                request = _read(wire, connection)
            except h11.ProtocolError:
                connection.sendall(_NONSENSE)
                return
            if request is None:
                return
            path = request[1]
            with self._counting:
                self._under_way[path] += 1
            try:
                self._play(wire, connection, _answer(*request))
            finally:
                with self._counting:
                    self._under_way[path] -= 1

    def _play(
        self, wire: h11.Connection, connection: socket.socket, answer: Delayed | Unreachable
    ) -> None:
        if isinstance(answer, Unreachable):
            connection.sendall(_NONSENSE)
            return
        chunks = answer.answer
        if not isinstance(chunks, Chunks):
            raise TypeError(chunks)
        self._rest(connection, answer.seconds)
        headers = [*chunks.headers.items(), ("connection", "close")]
        head = h11.Response(status_code=chunks.status, headers=headers)
        connection.sendall(wire.send(head) or b"")
        before = 0.0
        for at, chunk in zip(chunks.times(), (*chunks.chunks, None), strict=True):
            self._rest(connection, at - before)
            before = at
            event = h11.EndOfMessage() if chunk is None else h11.Data(data=chunk)
            if chunk is not None or chunks.end is None:
                connection.sendall(wire.send(event) or b"")

    def _rest(self, connection: socket.socket, seconds: float) -> None:
        """Wait, unless the client closes the connection meanwhile."""
        over = time.monotonic() + seconds
        while (left := over - time.monotonic()) > 0:
            readable, _, _ = select.select([connection], [], [], min(left, 0.02))
            if self._stopped.is_set() or (readable and not connection.recv(1)):
                raise ConnectionAbortedError


def _read(
    wire: h11.Connection, connection: socket.socket
) -> tuple[str, str, Mapping[str, str], bytes] | None:
    """Return a request, its body whole; None when the client has gone."""
    head: h11.Request | None = None
    body = b""
    while True:
        event = wire.next_event()
        if event is h11.NEED_DATA:
            wire.receive_data(connection.recv(_READ_BYTES))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            headers = {name.decode(): value.decode() for name, value in head.headers}
            return head.method.decode(), head.target.decode(), headers, body
        else:
            return None


@contextmanager
def open_peer() -> Generator[Peer]:
    """Open the server on a port that is free."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        peer = Peer(address[1])
        thread = threading.Thread(target=peer.serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield peer
        finally:
            peer.stop()
            socket.create_connection(address).close()  # wakes who accepts
            thread.join()


# What it answers


def _answer(
    method: str, target: str, headers: Mapping[str, str], body: bytes
) -> Delayed | Unreachable:
    """Answer a request by the first part of its path; what follows tells requests apart."""
    word = target.split("/")[1]
    if word == "echo":
        seen = {"method": method, "target": target, "kit": headers.get("x-kit")}
        return _whole(200, json.dumps({**seen, "body": body.decode("latin-1")}).encode())
    if word == "nonsense":
        return Unreachable("protocol")
    return _FIXED[word]


def _whole(status: int, body: bytes, **headers: str) -> Delayed:
    declared = {**_PLAIN, **headers, "content-length": str(len(body))}
    return Delayed(0.0, Chunks(status, declared, (body,) if body else ()))


def _parts(
    *chunks: bytes,
    delays: tuple[float, ...] = (),
    end: Unreachable | None = None,
    head_seconds: float = 0.0,
) -> Delayed:
    return Delayed(head_seconds, Chunks(200, _PLAIN, chunks, delays, end))


_NEVER: Final = 60.0
"""Seconds, beyond the end of every case."""

_FIXED: Final[Mapping[str, Delayed]] = {
    "missing": _whole(404, b"There is no such page."),
    "failing": _whole(500, b"The server failed."),
    "empty": _whole(200, b""),
    "redirect": _whole(302, b"Elsewhere.", location="/echo/redirected"),
    "big": _whole(200, bytes(BIG)),
    "growing": _parts(*[bytes(BIG // 16)] * 16),
    "pieces": _parts(b"one ", b"two ", b"three", delays=(0.0, 0.02, 0.02)),
    "stalled": _parts(b"one ", b"two", delays=(0.0, _NEVER)),
    "broken": _parts(b"one ", end=Unreachable("protocol")),
    "silent": _parts(b"late", head_seconds=_NEVER),
}


def _in_lower_case(answer: Any) -> Any:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return Chunks(answer.status, headers, answer.chunks, answer.delays, answer.end)
