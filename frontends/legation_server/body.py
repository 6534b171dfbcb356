"""The body of a request, read when the program asks for it and not before."""

from __future__ import annotations

from typing import Final

from legation.http.refusals import BadRequest, Refusal, TooLarge

from .framing import Framing
from .head import RequestHead
from .render import CONTINUE
from .wire import ClientGone, Phase, Wire

__all__ = ["NO_BODY", "BodyRefused", "NoBody", "RequestBody"]


class BodyRefused(Exception):
    """The body cannot be had; `Body.refusal` is the answer."""


class NoBody:
    """The body of a request that has none."""

    done: Final = True
    gone: Final = False
    can_be_dropped: Final = True
    refusal: Final[Refusal | None] = None

    async def read(self, limit: int) -> bytes | None:
        """Return nothing."""
        return b""

    async def drop(self) -> bool:
        """Do nothing."""
        return True


NO_BODY: Final = NoBody()


class RequestBody:
    """The body of one request, on its connection.

    Attributes:
        done: The connection stands behind the end of the body.
        refusal: Why the body could not be had: the answer, in the place of the program's.
        gone: The client went away in the middle.
    """

    __slots__ = ("_begun", "_head", "_wire", "done", "gone", "refusal")

    def __init__(self, wire: Wire, head: RequestHead) -> None:
        self._wire = wire
        self._head = head
        self._begun = False
        self.done = False
        self.refusal: Refusal | None = None
        self.gone = False

    @property
    def can_be_dropped(self) -> bool:
        """Whether the connection can go on: the body was read, or is short and on its way.

        Without a 100 (Continue), a client that expects one may send the body or not (RFC 9110
        section 10.1.1).
        """
        if self._begun:
            return self.done
        length, limit = self._head.length, self._wire.context.settings.unread_body
        return length is not None and length <= limit and not self._head.expects

    async def read(self, limit: int) -> bytes | None:
        """Return the whole body, or None when it is longer than `limit` bytes.

        A declared length decides before anything is read.
        """
        if self._begun:
            raise RuntimeError("the body of a request is read once")
        declared, guard = self._head.length, self._wire.guard
        if declared is not None and declared > limit:
            return None
        if declared is not None and declared <= len(guard.buffer):  # it came with its head
            self._begun = self.done = True
            return guard.take(declared)
        try:
            if self._head.expects and not guard.buffer:
                await self._wire.send(CONTINUE)
            limit = min(limit, self._wire.context.settings.body)
            pieces = await self._collect(self._head.make_framing(limit), Phase.BODY)
        except ClientGone:
            self.gone = True
            raise
        return None if pieces is None else b"".join(pieces)

    async def drop(self) -> bool:
        """Read what nobody asked for; tell whether it came to its end."""
        try:
            return await self._collect(self._head.make_framing(0), Phase.CLOSING) is not None
        except BodyRefused:
            return False

    async def _collect(self, framing: Framing, phase: Phase) -> list[bytes] | None:
        wire, settings = self._wire, self._wire.context.settings
        self._begun = True
        pieces: list[bytes] = []
        size, started = 0, wire.context.soon
        before, data = (wire.phase, wire.deadline), wire.guard.take()
        while True:
            taken = framing.receive(data)
            if isinstance(taken, TooLarge):
                return None
            if isinstance(taken, Refusal):
                raise self._refuse(taken)
            size += len(taken[0])
            pieces.append(taken[0])
            if framing.done:
                self.done = True
                if taken[1]:
                    wire.guard.receive(taken[1])
                wire.phase, wire.deadline = before
                return pieces
            wire.phase = phase
            due = started + settings.body_seconds + size / settings.body_rate
            wire.deadline = min(before[1], due)
            data = await wire.receive()
            if not data:
                raise self._refuse(BadRequest("The body ended before its length"))

    def _refuse(self, refusal: Refusal) -> BodyRefused:
        self.refusal = refusal
        return BodyRefused(refusal.detail)
