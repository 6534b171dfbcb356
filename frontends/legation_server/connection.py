"""One connection: its requests in turn, each answered before the next is parsed.

Nothing a connection raises leaves its task: `run` ends the connection and logs the reason under
an incident id; the server lives.
"""

from __future__ import annotations

import math
import socket
from typing import Final

import trio
from trio.lowlevel import wait_readable

from legation.http.cors import respond_instead
from legation.http.messages import Answer, Request, Response, Streamed
from legation.http.refusals import Refusal, Unavailable, internal_error
from legation.incidents import where

from .body import NO_BODY, NoBody, RequestBody
from .context import ServerContext, new_incident
from .head import RequestHead
from .render import response_bytes
from .stream import ResponseStream, StreamEnd
from .wire import ClientGone, Phase, Wire

__all__ = ["Connection"]

PIPELINED: Final = 16
"""Requests answered from one recv before other connections get a turn."""


# Looked up once: a member of an enumeration costs as much as a call.
ANSWER: Final = Phase.ANSWER
IDLE: Final = Phase.IDLE


class Connection:
    """A client's connection; `run` serves it to its end.

    Attributes:
        wire: Its socket, with the deadline that the sweeper looks at.
        client: The peer's address, for the audit and for the limit per address.
        proxied: Whether the peer is a trusted proxy, which names the client of each request.
        evictable: Whether it has a place, and may be asked to make room for another one.
    """

    __slots__ = ("_context", "_given_up", "client", "evictable", "proxied", "wire")

    def __init__(
        self, wire: Wire, client: str, context: ServerContext, *, proxied: bool = False
    ) -> None:
        self._context = context
        self._given_up: Request | None = None  # what the platform was asked when time ran out
        self.client = client
        self.proxied = proxied
        self.evictable = False
        self.wire = wire

    async def run(self, refusal: Refusal | None = None) -> None:
        """Serve the connection to its end, or send `refusal` and close."""
        wire = self.wire
        try:
            with wire.scope:
                await wire.open()
                await (self._converse() if refusal is None else wire.refuse(refusal))
            if wire.scope.cancelled_caught:
                wire.apologize(self._given_up)
        except ClientGone:
            pass
        except Exception as error:  # noqa: BLE001 (the boundary of the connection)
            fields = {"incident": new_incident(), "client": self.client, "error": where(error)}
            self._context.log("error", "connection_failed", fields)
        finally:
            wire.close()

    def leave(self) -> None:
        """Drain: end the connection if it is idle.

        A connection that waits for a request sees an end of file, behind whatever the client has
        sent already: a request on its way in is still answered.
        """
        if self.is_idle:
            self.wire.shut(socket.SHUT_RD)

    @property
    def is_idle(self) -> bool:
        """Whether a request is waited for, of which nothing has come."""
        wire = self.wire
        return wire.phase in (Phase.IDLE, Phase.HEAD) and not wire.guard.has_begun

    @property
    def since(self) -> float:
        """The time from which a request, or the end, has been waited for, on trio's clock."""
        settings, wire = self._context.settings, self.wire
        seconds = {
            Phase.IDLE: settings.keep_alive_seconds,
            Phase.HEAD: settings.header_seconds,
        }
        return wire.deadline - seconds.get(wire.phase, settings.linger_seconds)

    def evict(self) -> None:
        """End the connection, which waits for its client, for the sake of another one.

        As in a drain, a request on its way in is still answered, and is the last one.
        """
        self.evictable = False
        if self.is_idle:
            self.leave()
        else:
            self.wire.expire()

    async def _converse(self) -> None:
        wire, guard = self.wire, self.wire.guard
        since_pause = 0
        while True:
            head = guard.head() if guard.buffer else None
            if head is None:
                since_pause = 0
                if wire.phase is IDLE and guard.has_begun:
                    wire.enter(Phase.HEAD, self._context.settings.header_seconds)
                await wait_readable(wire.fd)
                data = wire.take()
                if data is not None:
                    if not data:
                        return
                    guard.receive(data)
            elif isinstance(head, Refusal):
                await wire.refuse(head)
                return
            elif not await self._serve(head):
                return
            else:
                self._rest()
                since_pause += 1
                if since_pause == PIPELINED:
                    since_pause = 0
                    await trio.lowlevel.checkpoint()

    def _rest(self) -> None:
        """Wait for another request.  One that was promised in a drain is not waited for long."""
        settings = self._context.settings
        seconds = settings.keep_alive_seconds
        if self._context.draining:
            seconds = min(seconds, settings.grace_seconds)
        wire = self.wire
        wire.method = "GET"
        wire.phase, wire.deadline = IDLE, self._context.soon + seconds

    async def _serve(self, head: RequestHead) -> bool:
        """Answer one request; tell whether the connection goes on."""
        wire, context = self.wire, self._context
        wire.method = head.method
        wire.phase, wire.deadline = ANSWER, math.inf
        body = NO_BODY if head.length == 0 else RequestBody(wire, head)
        answer = await self._ask(head, body)
        if isinstance(answer, Streamed):
            return await self._send_stream(answer, head, body)
        read = body.done or body.can_be_dropped
        goes_on = head.keep_alive and read and not context.draining
        rendered = response_bytes(answer, head.method, context.clock.date, close=not goes_on)
        if (left := wire.give(rendered)) is not None:
            await wire.give_all(left)
        if goes_on:
            return body.done or await body.drop()
        # A client that asked for the end, and sent all it had to, needs no waiting for.
        if head.keep_alive or not body.done or wire.guard.buffer:
            await wire.linger()
        else:
            wire.part()
        return False

    async def _ask(self, head: RequestHead, body: RequestBody | NoBody) -> Answer:
        """Return the platform's answer; a bug of a program is an answer too, and a log line."""
        context = self._context
        if context.in_flight >= context.settings.requests_in_flight:
            request = Request(head.method, head.target, head.headers)
            return self._instead(request, Unavailable("The server is busy"))
        if context.settings.request_seconds is not None:
            self.wire.enter(Phase.ANSWER, context.settings.request_seconds)
        client = self.client
        if self.proxied:
            client = context.proxies.client(client, head.headers)
        request = Request(head.method, head.target, head.headers, client)
        context.in_flight += 1
        try:
            return await context.host.run(context.platform.answer(request), body=body, sink=None)
        except trio.Cancelled:
            self._given_up = request
            raise
        except Exception as error:  # noqa: BLE001 (the boundary of the request)
            if body.gone:
                raise ClientGone from None
            if body.refusal is not None:
                return self._instead(request, body.refusal)
            incident = self._incident(head, error)
            return self._instead(request, internal_error(incident), incident)
        finally:
            context.in_flight -= 1

    def _instead(self, request: Request, refusal: Refusal, incident: str = "") -> Response:
        """Answer in the platform's place."""
        request_id = self._context.instead(request, refusal.status, new_id=incident)
        return respond_instead(refusal, request_id)

    def _incident(self, head: RequestHead, error: Exception) -> str:
        """Log `error`; return the id of the incident, which is all that a client may know."""
        incident = new_incident()
        # The query of a target may hold what no log should.
        path = head.target.partition("?")[0]
        fields = {"incident": incident, "method": head.method, "path": path, "error": where(error)}
        self._context.log("error", "request_failed", fields)
        return incident

    async def _send_stream(
        self, answer: Streamed, head: RequestHead, body: RequestBody | NoBody
    ) -> bool:
        """Send a streamed answer; tell whether the connection goes on."""
        close = not (head.keep_alive and body.done) or self._context.draining
        try:
            end = await ResponseStream(self.wire, answer, head).run(close=close)
        except ClientGone:
            return False
        except Exception as error:  # noqa: BLE001 (the boundary of the stream)
            self._incident(head, error)
            return False
        if end is StreamEnd.CUT:
            return False
        if close or self._context.draining:
            await self.wire.linger()
            return False
        return True
