"""A provider behind a socket on loopback, and how it misbehaves."""

from __future__ import annotations

import socket
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from random import Random
from typing import Final, cast

from attrs import define, field

from ..http_threads import Quiet, ThreadedServer, serve
from .strict import Provider, Reply

__all__ = ["Faults", "listening"]

_RESET: Final = b"\x01\x00\x00\x00\x00\x00\x00\x00"


@define(eq=False)
class Faults:
    """How often what goes wrong, each a share of the requests; `counted` is how often it did.

    A refusal (`errors`, `throttles`) takes nothing; a cut answer and a slow one have taken the
    message.
    """

    errors: float = 0.0
    throttles: float = 0.0
    cuts: float = 0.0
    slow: float = 0.0
    seconds: float = 0.05
    retry_after: int = 1
    random: Random = field(factory=lambda: Random(7))
    counted: dict[str, int] = field(factory=dict[str, int], init=False)

    def draw(self) -> str:
        """Return what goes wrong this time, or nothing."""
        drawn = self.random.random()
        for name in ("errors", "throttles", "cuts", "slow"):
            drawn -= getattr(self, name)
            if drawn < 0:
                self.counted[name] = self.counted.get(name, 0) + 1
                return name
        return ""


class _Handler(Quiet, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer("GET", 0)

    def do_POST(self) -> None:
        self._answer("POST", int(self.headers["content-length"]))

    def _answer(self, method: str, length: int) -> None:
        body = self.rfile.read(length)
        if len(body) < length:  # who sent it was killed
            self.close_connection = True
            return
        served = cast("_Server", self.server)
        provider, fault = served.provider, served.faults.draw()
        if fault == "errors":
            self._write(Reply(500, b"{}"))
            return
        if fault == "throttles":
            self._write(provider.throttled(served.faults.retry_after))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = provider.take(method, self.path, headers, body)
        if fault == "cuts":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.close_connection = True
            return
        if fault == "slow":
            time.sleep(served.faults.seconds)
        self._write(reply)

    def _write(self, reply: Reply) -> None:
        head = [f"HTTP/1.1 {reply.status} Said", f"Content-Length: {len(reply.body)}"]
        head += [f"{name}: {value}" for name, value in reply.headers.items()]
        self.wfile.write("\r\n".join([*head, "", ""]).encode() + reply.body)


class _Server(ThreadedServer):
    def __init__(self, provider: Provider, faults: Faults) -> None:
        super().__init__(_Handler)
        self.provider = provider
        self.faults = faults


@contextmanager
def listening(provider: Provider, faults: Faults | None = None) -> Generator[str]:
    """Serve `provider`; yield the address to send to, without a slash at its end."""
    with serve(_Server(provider, faults or Faults())) as address:
        yield address
