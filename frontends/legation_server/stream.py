"""A streamed answer: its program is driven, what it emits is sent, while the client is there.

A stream has as long as any other request, also in a drain.  Which one is sent elsewhere, and when,
its program decides: it returns `Unfinished`, and the body has no last chunk.
"""

from __future__ import annotations

import enum
from typing import Final

import trio

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

    __slots__ = ("_answer", "_chunked", "_scope", "_wire", "gone")

    def __init__(self, wire: Wire, answer: Streamed, head: RequestHead) -> None:
        self._wire = wire
        self._answer = answer
        self._chunked = not head.old
        self._scope = trio.CancelScope()
        self.gone = False

    async def run(self, *, close: bool) -> StreamEnd:
        """Send the head, then what the program emits, until either side has had enough.

        Raises:
            ClientGone: Before the program was begun, or at its last chunk.
            Exception: What the program raised.
        """
        wire, answer = self._wire, self._answer
        whole = False
        try:
            date = wire.context.clock.date
            await wire.send(stream_head(answer, date, chunked=self._chunked, close=close))
            whole = wire.method == "HEAD"
            if whole:
                return StreamEnd.COMPLETE
            wire.enter(Phase.STREAM)
            whole = await self._drive()
        finally:
            answer.body.close()
            if not whole:
                self._cut()
        if whole and self._chunked:
            await wire.send(LAST_CHUNK)
        return StreamEnd.COMPLETE if whole else StreamEnd.CUT

    def _cut(self) -> None:
        """See that no client takes the part that was sent for the whole.

        Without chunks the end of the connection is the end of the body (RFC 9112 section 6.3), so
        it is reset.
        """
        if not self._chunked and not self.gone:
            self._wire.reset()

    async def _drive(self) -> bool:
        """Run the program beside a watch on the client; tell whether the body is whole."""
        complete, failure = False, None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            with self._scope:
                try:
                    run = self._wire.context.host.run
                    complete = await run(self._answer.body, body=None, sink=self) is None
                except Exception as error:  # noqa: BLE001 (raised below)
                    failure = error
            nursery.cancel_scope.cancel()
        if failure is not None and not self.gone:
            raise failure
        return complete

    async def _watch(self) -> None:
        """End the stream when the client closes; keep what it sends for later, within bounds.

        A client that closes only its sending side is taken for gone: the two look the same
        until something is written, and a quiet stream would be held for nobody.
        """
        guard = self._wire.guard
        try:
            while data := await self._wire.receive():
                guard.receive(data)
                if guard.unread >= READ_AHEAD:
                    return
        except ClientGone:
            pass
        self.gone = True
        self._scope.cancel()

    async def send(self, data: bytes) -> None:
        """Send `data` as one piece of the body; the host's sink."""
        if not data:
            return
        try:
            await self._wire.send(chunk(data) if self._chunked else data)
        except ClientGone:
            self.gone = True
            raise
