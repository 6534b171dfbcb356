"""The ASGI application: scopes in, answers out, and the host between start-up and shut-down.

Everything here runs in the event loop of the server, trio's or asyncio's: the host is on anyio.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from inspect import isawaitable
from typing import TypeAlias

import anyio
from attrs import define, field

from legation import Platform, Principal
from legation.access.decide import ANONYMOUS
from legation.access.posture import Door
from legation.effects import Program
from legation.http.cors import respond_instead
from legation.http.messages import Answer, Request, Response, Streamed
from legation.http.refusals import Refusal, Unavailable, internal_error
from legation.incidents import where
from legation.observability.request_log import Arrival, read_request_id
from legation.platform import MeasuredResponder
from legation_host import Host, Write, open_log
from legation_host.errors import LifeMisuse
from legation_host.hosting import open_platform
from legation_host.life import one_life
from legation_host.observer import Observer

from .messages import (
    ClientGone,
    Receive,
    ReceivedBody,
    Scope,
    Send,
    SentResponse,
    find_hsts,
    request_of,
)

__all__ = ["Application", "CallerOf", "asgi"]

CallerOf: TypeAlias = Callable[[Scope], Principal | Awaitable[Principal | None] | None]
"""Says who sent the request of a scope; None where nobody is signed in."""

Ask: TypeAlias = Callable[[Request, Scope], Awaitable[Program[Answer]]]


@define(eq=False)
class Application:
    """`platform` as an ASGI 3 application.

    The host is opened by `open_host` at the server's lifespan start-up and closed at its
    shut-down.  Where the application is mounted in another, which gets no lifespan of its own,
    the outer one holds `open()` open.  Without either, requests are answered with 503.

    `mount` is taken off the path where `root_path` does not say it.  `ask` returns the program of
    a request whose sender the outer application knows.

    Attributes:
        platform: Answers the requests.
        open_host: Opens the host at start-up.
        mount: The path under which the application is mounted.
        ask: Makes the program of a request, for a sender whom the outer application knows.
        hsts: Tell browsers that come by TLS to come by TLS alone.
    """

    platform: MeasuredResponder
    open_host: Callable[[], AbstractAsyncContextManager[Host]]
    mount: str = ""
    ask: Ask | None = None
    hsts: bool = True
    _host: Host | None = field(default=None, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one scope."""
        match scope["type"]:
            case "http":
                await self._http(scope, receive, send)
            case "lifespan":
                await self._lifespan(receive, send)
            case "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1000})  # before accept: 403
            case kind:
                raise NotImplementedError(f"no such scope: {kind}")

    @one_life("the application")
    async def open(self) -> AsyncGenerator[Host]:
        """Hold the host open, for all requests of the event loop.

        Raises:
            LifeMisuse: The platform is open already, or what this returns is entered or left twice.
        """
        async with self.open_host() as host:
            self._host = host
            try:
                yield host
            finally:
                self._host = None

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        phase = "startup"
        await receive()
        try:
            async with self.open():
                await send({"type": "lifespan.startup.complete"})
                phase = "shutdown"
                await receive()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            await send({"type": f"lifespan.{phase}.failed", "message": reason})
            raise
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.  Nothing is sent to a client that has left."""
        host = self._host
        request = request_of(scope, self.mount)
        response = SentResponse(send, find_hsts(scope, self.mount) if self.hsts else ())
        with suppress(ClientGone):
            if host is None:
                not_ready = Unavailable("The server is not ready")
                answer = self._instead(_identify(request, scope), not_ready)
                await _write(response, answer, scope["method"])
            elif isinstance(request, Refusal):
                answer = self._instead(_identify(request, scope), request)
                await _write(response, answer, scope["method"])
            else:
                reply = await self._answer(host, request, scope, receive)
                if isinstance(reply, Response):
                    await _write(response, reply, request.method)
                else:
                    await _stream(host, reply, request, receive, response)

    async def _answer(self, host: Host, request: Request, scope: Scope, receive: Receive) -> Answer:
        """Run the program of `request` to its answer, also when the client leaves meanwhile."""
        body = ReceivedBody(receive, request.header(b"content-length"))
        try:
            if self.ask is None:
                program = self.platform.answer(request)
            else:
                program = await self.ask(request, scope)
            return await host.run(program, body=body)
        except (ClientGone, LifeMisuse):
            raise  # nobody is there to get an answer; or it is the outer application's mistake
        except Exception as error:  # noqa: BLE001 (the boundary of the request)
            incident = _log(host, request, error)
            return self._instead(request, internal_error(incident), incident)

    def _instead(self, request: Request, refusal: Refusal, incident: str = "") -> Response:
        """Answer in the platform's place; log and count it like an answer of the platform."""
        now_us = time.time_ns() // 1_000
        arrival = Arrival(request, now_us, read_request_id(request) or incident or _new_id())
        request_id = self.platform.telemetry.instead(arrival, refusal.status, now_us)
        return respond_instead(refusal, request_id)


def asgi(
    platform: Platform,
    *,
    log: Write | None = None,
    drain_seconds: float = 5.0,
    observer: Observer | None = None,
    caller: CallerOf | None = None,
    mount: str = "",
    insecure: bool = False,
    hsts: bool = True,
) -> Application:
    """Return `platform` as an ASGI 3 application: databases, jobs and keys, as served elsewhere.

    Args:
        platform: Belongs to this application alone.
        log: Takes the operator's lines; standard error unless given.
        drain_seconds: For runs and messages under work to come to their end at shut-down; the
            rest is given back to other nodes.  Streams that the server has left open by then last
            as long; those of runs that others execute end at once, with words on where to go on.
        observer: Takes a line for each request, and spans; the server may write such lines, too.
        caller: Says who sent a request, where the outer application authenticates; a function or a
            coroutine function of the scope.  None is nobody, and is refused like a request without
            a token; what it raises is answered 500.  Tokens are not looked at then.
        mount: The prefix of the path where an outer application passes it on and names it in no
            `root_path`.
        insecure: Answer requests from other machines where authorization is off and nobody is
            `caller`.  Else they are refused; test clients pass.
        hsts: Tell browsers that come by TLS to come by TLS alone, from now on: not for this
            machine, and not below an outer application.
    """
    write = open_log() if log is None else log

    def open_host() -> AbstractAsyncContextManager[Host]:
        platform.door = Door(local_only=not insecure)
        return open_platform(platform, log=write, drain_seconds=drain_seconds, observer=observer)

    return Application(
        platform, open_host, mount, None if caller is None else _ask(platform, caller), hsts
    )


def _ask(platform: Platform, caller: CallerOf) -> Ask:
    """Return what asks `platform` in the name of whom `caller` names."""

    async def ask(request: Request, scope: Scope) -> Program[Answer]:
        found = caller(scope)
        principal = await found if isawaitable(found) else found
        return platform.answer(request, ANONYMOUS if principal is None else principal)

    return ask


async def _write(response: SentResponse, answer: Response, method: str) -> None:
    await response.start(answer.status, answer.headers)
    await response.end(b"" if method == "HEAD" else answer.body)


async def _stream(
    host: Host, answer: Streamed, request: Request, receive: Receive, response: SentResponse
) -> None:
    """Send what the program of `answer` emits.  A client that leaves ends the stream alone.

    Of a body that is not whole no end is sent: the server breaks the connection off.

    Raises:
        Exception: What the program raised, so that the server breaks the connection off and the
            client sees that the stream is not whole.
    """
    if request.method == "HEAD":
        answer.body.close()
        await _write(response, Response(answer.status, answer.headers), "HEAD")
        return
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_watch, receive, tasks.cancel_scope)
        try:
            await response.start(answer.status, answer.headers)
            if await host.run(answer.body, sink=response) is None:
                await response.end()
        except Exception as error:  # noqa: BLE001 (raised below, out of the task group)
            failure = error
        tasks.cancel_scope.cancel()
    if failure is None:
        return
    if not isinstance(failure, ClientGone):
        _log(host, request, failure)
    raise failure


async def _watch(receive: Receive, stream: anyio.CancelScope) -> None:
    """Cancel `stream` when the client goes; what it still sends of a body is dropped."""
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.cancel()


def _identify(request: Request | Refusal, scope: Scope) -> Request:
    """Return the request; of one that cannot be read, its method alone."""
    return Request(scope["method"], "*") if isinstance(request, Refusal) else request


def _new_id() -> str:
    return secrets.token_hex(8)


def _log(host: Host, request: Request, error: Exception) -> str:
    """Write `error` to the operator's log, and return the incident id it stands under."""
    incident = _new_id()
    # The query of a target may hold what no log should.
    path = request.target.partition("?")[0]
    fields = {"incident": incident, "method": request.method, "path": path, "error": where(error)}
    host.write("error", "request_failed", fields)
    return incident
