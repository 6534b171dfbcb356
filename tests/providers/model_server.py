"""A provider of models behind a socket on loopback, and how it misbehaves.

What it answers is a plan: one item for each request, in order.  What a protocol looks like is in
`chat_completions` and `anthropic_messages`; here are the sockets, and everything that can go wrong
on them.
"""

from __future__ import annotations

import json
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar, Final, TypeAlias, cast

from attrs import define, field, frozen

from ..http_threads import Quiet, ThreadedServer, serve

__all__ = [
    "KEY",
    "Cut",
    "Hangs",
    "Huge",
    "Item",
    "ModelServer",
    "Nonsense",
    "Refusal",
    "Said",
    "Seen",
    "TellsTrouble",
    "serving",
]

KEY: Final = "key-of-the-test"
_RESET: Final = b"\x01\x00\x00\x00\x00\x00\x00\x00"


@frozen
class Said:
    """A sound answer.

    Attributes:
        pieces: Of the text.
        calls: Id, name and arguments of each tool call.
        finish: stop, length, refused; a call of a tool is told from `calls`.
        tokens: In and out.
        apart: Of these, what was thought, read from the cache and written to it.
        thoughts: Text and signature of each, before everything else; without a text it is
            redacted.  Only some protocols have a place for them.
        whole: Sent whole although it was asked for as a stream.
        pause_seconds: Before each event.
    """

    pieces: tuple[str, ...] = ()
    calls: tuple[tuple[str, str, str], ...] = ()
    finish: str = "stop"
    tokens: tuple[int, int] = (7, 3)
    apart: tuple[int, int, int] = (0, 0, 0)
    thoughts: tuple[tuple[str | None, str], ...] = ()
    whole: bool = False
    pause_seconds: float = 0.0


@frozen
class Refusal:
    """A response of this status, and an error as the provider writes it."""

    status: int
    headers: Mapping[str, str] = field(factory=dict[str, str])


@frozen
class Hangs:
    """Silence, before the head or after so many events of `said`."""

    said: Said = Said()
    events: int | None = None


@frozen
class Cut:
    """The connection is reset, before the head or after so many events of `said`."""

    said: Said = Said()
    events: int | None = None


@frozen
class Nonsense:
    """These bytes, well framed."""

    body: bytes
    content_type: str = "text/event-stream"


@frozen
class Huge:
    """A stream of so many bytes, of sound events."""

    size: int


@frozen
class TellsTrouble:
    """An error in the stream, after so many events of `said`."""

    kind: str
    said: Said = Said()
    events: int = 0


Item: TypeAlias = Said | Refusal | Hangs | Cut | Nonsense | Huge | TellsTrouble


@frozen
class Seen:
    """A request that was judged: its header, and its body as JSON."""

    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: Any = field(repr=False)


@define(eq=False)
class ModelServer(ABC):
    """A protocol, and a plan of what to answer; `Said()` of one word when it is used up.

    Attributes:
        seen: Every request.
        broken: What requests did that the protocol does not allow.
        connections: How many were opened, and how many are open.
        address: Without a slash at the end.
    """

    path: ClassVar[str]

    plan: list[Item] = field(factory=list[Item])
    seen: list[Seen] = field(factory=list[Seen], init=False)
    broken: list[str] = field(factory=list[str], init=False)
    opened: int = field(default=0, init=False)
    open: int = field(default=0, init=False)
    address: str = field(default="", init=False)
    stopped: threading.Event = field(factory=threading.Event, init=False)
    lock: threading.Lock = field(factory=threading.Lock, init=False)

    @abstractmethod
    def faults(self, headers: Mapping[str, str], body: bytes) -> Iterator[str]:
        """Yield what the protocol does not allow in this request."""

    @abstractmethod
    def events(self, said: Said, request: Any) -> Iterable[tuple[str, Any]]:
        """Return the stream: names of events, empty where they have none, and their data."""

    @abstractmethod
    def whole(self, said: Said, request: Any) -> Any:
        """Return the answer in one."""

    @abstractmethod
    def error(self, status: int, kind: str) -> Any:
        """Return the body of a refusal."""

    @abstractmethod
    def trouble(self, kind: str) -> tuple[str, Any]:
        """Return the event that tells of trouble in a stream."""

    def take(self, path: str, headers: Mapping[str, str], body: bytes) -> Item:
        """Judge a request, and return what to answer."""
        faults = [] if path == self.path else [f"no such path: {path}"]
        faults += self.faults(headers, body)
        with self.lock:
            self.seen.append(Seen(path, headers, None if faults else json.loads(body)))
            self.broken += faults
            if faults:
                return Refusal(400)
            return self.plan.pop(0) if self.plan else Said(("OK",))


class _Handler(Quiet, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 20

    @property
    def model(self) -> ModelServer:
        return cast("_Server", self.server).model

    def setup(self) -> None:
        super().setup()
        with self.model.lock:
            self.model.opened += 1
            self.model.open += 1

    def finish(self) -> None:
        super().finish()
        with self.model.lock:
            self.model.open -= 1

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        item = self.model.take(self.path, headers, body)
        request: Any = self.model.seen[-1].body
        match item:
            case Said():
                self._say(item, request)
            case Refusal(status, more):
                self._whole(status, self.model.error(status, "api_error"), more)
            case Hangs(said, None) | Cut(said, None):
                self._stop(item)
            case Hangs(said, events) | Cut(said, events):
                self._stream(said, request, events)
                self._stop(item)
            case Nonsense(sent, kind):
                self._head(kind)
                self._chunk(sent)
                self._chunk(b"")
            case Huge(size):
                self._flood(size, request)
            case TellsTrouble(kind, said, events):
                self._stream(said, request, events)
                self._event(*self.model.trouble(kind))
                self._chunk(b"")

    def _say(self, said: Said, request: Any) -> None:
        if said.whole or not request.get("stream"):
            self._whole(200, self.model.whole(said, request), {})
            return
        self._stream(said, request, None)
        self._chunk(b"")

    def _stream(self, said: Said, request: Any, events: int | None) -> None:
        self._head("text/event-stream; charset=utf-8")
        for name, data in list(self.model.events(said, request))[:events]:
            if said.pause_seconds and self.model.stopped.wait(said.pause_seconds):
                return
            self._event(name, data)

    def _flood(self, size: int, request: Any) -> None:
        self._head("text/event-stream")
        events = list(self.model.events(Said(("x" * 60_000,)), request))
        middle = max(events, key=lambda event: len(str(event)))
        event = _written(*middle)
        for _ in range(size // len(event) + 1):
            self._chunk(event)
        self._chunk(b"")

    def _stop(self, item: Item) -> None:
        self.close_connection = True
        if isinstance(item, Hangs):
            self.model.stopped.wait(20)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def _whole(self, status: int, value: Any, headers: Mapping[str, str]) -> None:
        body = json.dumps(value).encode()
        lines = [f"HTTP/1.1 {status} Said", "content-type: application/json"]
        lines += [f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.wfile.write("\r\n".join([*lines, "", ""]).encode() + body)

    def _head(self, content_type: str) -> None:
        lines = ["HTTP/1.1 200 OK", f"content-type: {content_type}", "transfer-encoding: chunked"]
        self.wfile.write("\r\n".join([*lines, "", ""]).encode())

    def _event(self, name: str, data: Any) -> None:
        self._chunk(_written(name, data))

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))


def _written(name: str, data: Any) -> bytes:
    told = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return (f"event: {name}\n" if name else "").encode() + f"data: {told}\n\n".encode()


class _Server(ThreadedServer):
    def __init__(self, model: ModelServer) -> None:
        super().__init__(_Handler)
        self.model = model


@contextmanager
def serving(model: ModelServer) -> Generator[str]:
    """Serve `model` until the block ends; yield its address, without a slash at its end."""
    server = _Server(model)
    model.address = f"http://127.0.0.1:{server.server_address[1]}"
    with serve(server):
        try:
            yield model.address
        finally:
            model.stopped.set()
