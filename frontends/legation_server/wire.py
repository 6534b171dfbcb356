"""The socket of one connection, with the deadline it is under.

A quick request is one `recv` and one `send` and no trio object of its own: one cancel scope
serves the connection for life, and the server's sweeper compares `deadline` with the time.
Whoever changes what the connection waits for sets `phase` and `deadline`.
"""

from __future__ import annotations

import enum
import math
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio
from trio.lowlevel import notify_closing, wait_readable, wait_writable

from legation.http.cors import respond_instead
from legation.http.messages import Request
from legation.http.refusals import Refusal, RequestTimeout, Unavailable

from .context import ServerContext
from .guard import Guard
from .render import response_bytes

__all__ = ["RECEIVE", "ClientGone", "Phase", "Wire"]

RECEIVE: Final = 64 << 10
"""Bytes of one recv."""


_RESET: Final = struct.pack("ii", 1, 0)
"""As `struct linger`: on, for no time (socket(7))."""


class ClientGone(Exception):
    """The client has closed or reset the connection: nobody is left to answer."""


class Phase(enum.Enum):
    """The phase of a connection: the event that it waits for."""

    IDLE = enum.auto()  # the first byte of a request after the first one
    HEAD = enum.auto()  # the first head, or the rest of another
    BODY = enum.auto()  # the body that a program asked for
    ANSWER = enum.auto()  # the platform
    STREAM = enum.auto()  # the next piece of a streamed answer
    CLOSING = enum.auto()  # the rest of what the client sends, read to be dropped


_LATE: Final[dict[Phase, Refusal]] = {
    Phase.HEAD: RequestTimeout(),
    Phase.BODY: RequestTimeout(),
    Phase.ANSWER: Unavailable("The request took too long"),
}
"""The answer when time ran out; in the other phases there is none."""


class Wire:
    """A non-blocking socket, what has been received from it, and how long to wait for more.

    Attributes:
        fd: Its file descriptor.
        phase: What is waited for.
        deadline: When `expire` is due, on trio's clock.
        scope: Whatever the connection does is under it.
        method: Of the request being answered; the answer to HEAD has no body.
        writing: Whether a part of what is being sent is still to go.
    """

    __slots__ = (
        "_put",
        "_sock",
        "context",
        "deadline",
        "fd",
        "guard",
        "method",
        "phase",
        "scope",
        "writing",
    )

    def __init__(self, sock: socket.socket, context: ServerContext) -> None:
        self._sock = sock
        self._put: Callable[[bytes | memoryview], int] = sock.send
        self.fd = sock.fileno()
        self.writing = False
        self.context = context
        self.guard = Guard(context.settings, context.memo)
        self.scope = trio.CancelScope()
        self.method = "GET"
        self.phase = Phase.HEAD
        self.deadline = context.soon + context.settings.header_seconds

    async def open(self) -> None:
        """Do what comes before the first head: on a plain connection nothing."""

    def enter(self, phase: Phase, seconds: float = math.inf) -> None:
        """Wait for `phase` from now on, for `seconds` at most."""
        self.phase = phase
        self.deadline = self.context.soon + seconds

    def expire(self) -> None:
        """Cancel the connection, its deadline having passed."""
        self.scope.cancel()

    def part(self) -> None:
        """Announce the end of the data, on a connection where closing does not show it."""

    def close(self) -> None:
        """Close the socket."""
        notify_closing(self._sock)
        self._sock.close()

    def reset(self) -> None:
        """Let the close be a reset; what the kernel has not sent yet is lost."""
        with suppress(OSError):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    async def receive(self) -> bytes:
        """Return what has come; empty at the end of what the client sends."""
        while True:
            await wait_readable(self.fd)
            if (data := self.take()) is not None:
                return data

    def take(self) -> bytes | None:
        """Return the bytes that can be read now, or None when it was a false alarm."""
        try:
            return self._sock.recv(RECEIVE)
        except BlockingIOError:
            return None
        except OSError as error:
            raise ClientGone from error

    async def send(self, data: bytes) -> None:
        """Send `data`; return when the kernel has taken all of it."""
        left = self.give(data)
        if left:
            await self.give_all(left)

    def give(self, data: bytes) -> memoryview | None:
        """Send what the kernel has room for; return what is left, None when nothing is."""
        try:
            sent = self._put(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise ClientGone from error
        return memoryview(data)[sent:] if sent < len(data) else None

    async def give_all(self, data: memoryview) -> None:
        """Send `data` as the client makes room for it."""
        before, self.writing = self.deadline, True
        while data:
            self.deadline = self.context.soon + self.context.settings.write_seconds
            await wait_writable(self.fd)
            try:
                data = data[self._put(data) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise ClientGone from error
        self.deadline, self.writing = before, False

    async def refuse(self, refusal: Refusal) -> None:
        """Answer a request that cannot be read, and close."""
        await self.send(self._render(refusal, self._unread()))
        await self.linger()

    def apologize(self, request: Request | None) -> None:
        """Say why time ran out, without waiting, unless an answer has been begun.

        `request` is what the platform was asked; None when its head had not come yet.
        """
        silent = self.phase is Phase.HEAD and not self.guard.has_begun
        if self.writing or silent or self.phase not in _LATE:
            return
        waited = 0.0
        if request is None:
            begun = self.deadline - self.context.settings.header_seconds
            request, waited = self._unread(), max(0.0, trio.current_time() - begun)
        try:
            self._put(self._render(_LATE[self.phase], request, waited))
        except OSError:
            return
        self.shut(socket.SHUT_WR)

    def _unread(self) -> Request:
        """Return the request, as far as it is known, whose head was refused or is incomplete."""
        return Request(self.guard.method, "*")

    def _render(self, refusal: Refusal, request: Request, waited: float = 0.0) -> bytes:
        request_id = self.context.instead(request, refusal.status, waited)
        response = respond_instead(refusal, request_id)
        return response_bytes(response, request.method, self.context.clock.date, close=True)

    async def linger(self) -> None:
        """Close the sending side, and drop what comes until the client closes too.

        A socket closed with unread bytes is reset, and the reset may overtake the answer
        (RFC 9112 section 9.6).
        """
        self.enter(Phase.CLOSING, self.context.settings.linger_seconds)
        self.shut(socket.SHUT_WR)
        left = self.context.settings.body
        while left >= 0 and (data := await self.receive()):
            left -= len(data)

    def shut(self, how: int) -> None:
        """Close one side of the connection, if the client has not done so already."""
        with suppress(OSError):
            self._sock.shutdown(how)
