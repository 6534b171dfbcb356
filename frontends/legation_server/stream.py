"""A streamed answer: its program is driven, what it emits is sent, while the client is there.

A stream has as long as any other request, also in a drain.  Which one is sent elsewhere, and when,
its program decides: it returns `Unfinished`, and the body has no last chunk.
"""

from __future__ import annotations

import enum
from contextlib import suppress
from typing import Final

from legation.effects import Emit, Program
from legation.http.messages import Streamed

from .head import RequestHead
from .render import LAST_CHUNK, chunk, stream_head
from .wire import ClientGone, Phase, Wire

__all__ = ["ResponseStream", "StreamEnd"]

READ_AHEAD: Final = 64 << 10
"""Bytes of later requests kept while a stream lasts; then only writing finds a dead client."""


class StreamEnd(enum.Enum):
    """The end of a stream."""

    COMPLETE = enum.auto()  # with its last chunk: the connection can go on
    CUT = enum.auto()  # without: the client is gone, or is to see that something is missing


class ResponseStream:
    """One streamed answer on its connection.

    Attributes:
        gone: The client went away.
    """

    __slots__ = ("_answer", "_chunked", "_ended", "_head", "_watched", "_whole", "_wire", "gone")

    def __init__(self, wire: Wire, answer: Streamed, head: RequestHead) -> None:
        self._wire = wire
        self._answer = answer
        self._chunked = not head.old
        self._head = b""  # what is not sent yet of the head: all of it, or nothing
        self._whole = False  # the program has come to its end, and nothing is missing
        self._ended = False  # the last chunk is sent
        self._watched = False
        self.gone = False

    async def run(self, *, close: bool) -> StreamEnd:
        """Send the head with what the program emits, until either side has had enough.

        Raises:
            ClientGone: At the last chunk, or at a head without a body.
            Exception: What the program raised.
        """
        wire, answer = self._wire, self._answer
        try:
            date = wire.context.clock.date
            head = stream_head(answer, date, chunked=self._chunked, close=close)
            if wire.method == "HEAD":
                await wire.send(head)
                self._whole = True
                return StreamEnd.COMPLETE
            self._head = head
            wire.enter(Phase.STREAM)
            await self._drive()
        finally:
            answer.body.close()
            if not self._whole:
                self._cut()
        if not self._whole:
            return StreamEnd.CUT
        if self._chunked and not self._ended:
            await wire.send(LAST_CHUNK)
        return StreamEnd.COMPLETE

    def _cut(self) -> None:
        """See that no client takes the part that was sent for the whole.

        Without chunks the end of the connection is the end of the body (RFC 9112 section 6.3), so
        it is reset.
        """
        if not self._chunked and not self.gone:
            self._wire.reset()

    async def _drive(self) -> None:
        """Run the program, while the client is watched."""
        wire = self._wire
        clients, self._watched = wire.context.clients, True
        clients.enter(wire.fd, self._hear)
        try:
            await wire.context.host.run(self._emit(), body=None, sink=self)
        except BaseException as error:
            self._whole = False
            if not (self.gone and isinstance(error, Exception)):
                if self._head and isinstance(error, Exception):
                    with suppress(ClientGone):
                        await wire.send(self._head)  # a client is to see an answer that was cut
                raise
        finally:
            self._leave()

    def _emit(self) -> Program[None]:
        """Emit the head and the body: the host sends as one what comes before the first wait.

        That the body is whole is known when the rest of it is sent.
        """
        yield Emit(self._head)
        self._whole = (yield from self._answer.body) is None

    def _hear(self) -> None:
        """End the stream when the client closes; keep what it sends for later, within bounds.

        A client that closes only its sending side is taken for gone: the two look the same
        until something is written, and a quiet stream would be held for nobody.
        """
        wire = self._wire
        try:
            data = wire.take()
        except ClientGone:
            data = b""
        if data:
            wire.guard.receive(data)
            if wire.guard.unread >= READ_AHEAD:
                self._leave()
        elif data is not None:
            self.gone = True
            self._leave()
            wire.expire()

    def _leave(self) -> None:
        """Watch the client no longer."""
        if self._watched:
            self._watched = False
            self._wire.context.clients.leave(self._wire.fd)

    async def send(self, data: bytes) -> None:
        """Send `data` as one piece of the body, with the last chunk behind it where it is the last.

        The first piece begins with the head.  This is the host's sink.
        """
        head, self._head = self._head, b""
        data = data[len(head) :]
        if self._chunked and data:
            self._ended = self._whole
            data = chunk(data, LAST_CHUNK if self._ended else b"")
        if head:
            data = head + data
        if not data:
            return
        try:
            await self._wire.send(data)
        except ClientGone:
            self.gone = True
            raise
