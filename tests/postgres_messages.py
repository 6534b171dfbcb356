"""A relay of PostgreSQL's protocol that counts the messages, and can cut a connection at any.

Whoever connects through it asks for neither TLS nor GSS: `plain` makes such a URL.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

from attrs import define, field

__all__ = ["MessageRelay", "message_relay"]

_TRANSACTIONS: Final = (b"begin", b"commit", b"rollback")


@define(eq=False)
class _Side:
    """What comes from one end of a connection; `statements` are a client's texts, by name."""

    source: socket.socket
    target: socket.socket
    client: bool
    unread: bytes = b""
    begun: bool = False
    bound: bytes = b""
    statements: dict[bytes, bytes] = field(factory=dict[bytes, bytes])

    def messages(self) -> Generator[tuple[str, bytes]]:
        """Yield each message, with its type; the first of a client has none."""
        while data := self.source.recv(1 << 16):
            self.unread += data
            while (size := self._size()) and len(self.unread) >= size:
                message, self.unread = self.unread[:size], self.unread[size:]
                kind = chr(message[0]) if self.begun or not self.client else "startup"
                self.begun = True
                yield kind, message

    def _size(self) -> int:
        kind = 1 if self.begun or not self.client else 0
        length = self.unread[kind : kind + 4]
        return kind + int.from_bytes(length) if len(length) == 4 else 0

    def count(self, kind: str, message: bytes) -> str:
        """Return what a message of a client is counted as, if as anything."""
        body = message[5:]
        if kind == "P":
            name, text, _ = body.split(b"\0", 2)
            self.statements[name] = text
        elif kind == "B":
            _, name, _ = body.split(b"\0", 2)
            self.bound = self.statements[name]
        if kind in ("S", "Q"):
            return "trips"
        ours = kind == "E" and not self.bound.startswith(_TRANSACTIONS)
        return "statements" if ours else ""


class MessageRelay:
    """Passes on what comes, message after message, on threads of its own.

    Attributes:
        counts: The `trips`, each of which ends with a message that asks for all answers, and the
            `statements` that were executed, but for the ends of transactions.
        passed: How many messages came from clients (True) and from the server (False).
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.port is not None
        self._target = ("127.0.0.1", parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        place = parts.netloc.replace(f":{parts.port}", f":{self._listener.getsockname()[1]}")
        query = f"{parts.query}&" if parts.query else ""
        self.url = parts._replace(
            netloc=place, query=f"{query}sslmode=disable&gssencmode=disable"
        ).geturl()
        self.counts: Counter[str] = Counter()
        self.passed = {True: 0, False: 0}
        self._cut: tuple[bool, int, float] | None = None
        self._lock = threading.Lock()
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def cut_at(self, client: bool, number: int, part: float) -> None:
        """Cut the connection at a message from now on, the first is 0; pass on `part` of it."""
        with self._lock:
            self.passed = {True: 0, False: 0}
            self._cut = (client, number, part)

    def let_pass(self) -> bool:
        """Cut nothing any more; return whether there was still something to cut."""
        with self._lock:
            waiting, self._cut = self._cut is not None, None
        return waiting

    def close(self) -> None:
        """End every connection."""
        self._shut(self._listener, *self._ends)
        for thread in self._threads:
            thread.join(10)
        for end in (self._listener, *self._ends):
            end.close()

    def _start(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._ends += (client, server)
                self._start(self._pass_on, _Side(client, server, client=True))
                self._start(self._pass_on, _Side(server, client, client=False))

    def _pass_on(self, side: _Side) -> None:
        with suppress(OSError):
            for kind, message in side.messages():
                with self._lock:
                    part = self._part(side, kind, message)
                side.target.sendall(message[: int(part * len(message))])
                if part < 1:
                    break
        self._shut(side.source, side.target)

    def _part(self, side: _Side, kind: str, message: bytes) -> float:
        """Count a message; return how much of it is passed on."""
        number = self.passed[side.client]
        self.passed[side.client] += 1
        if self._cut is not None and self._cut[:2] == (side.client, number):
            part, self._cut = self._cut[2], None
            return part
        if side.client and (counted := side.count(kind, message)):
            self.counts[counted] += 1
        return 1

    def _shut(self, *ends: socket.socket) -> None:
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def message_relay(url: str) -> Generator[MessageRelay]:
    """Yield a relay to the server of `url`."""
    with closing(MessageRelay(url)) as made:
        yield made
