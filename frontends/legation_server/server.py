"""The server of one process: it accepts connections, sweeps them, and drains.

**The order of a drain**, each step there because leaving it out lost requests:

1. From now on every answer carries `connection: close`.
2. The acceptors leave.  Only then are the listening sockets closed: a task that is already on
   its way to `accept` must not find a closed one.
3. What had been queued by the kernel is accepted too; its first request is answered.
4. Idle connections get `grace_seconds` to end by themselves, so that the next request of a client
   that keeps its connection is answered and not reset; then they are ended.
5. Streams last as any other request does, until `drain_seconds`.  One of a run that others execute
   ends itself after the grace, with words on where to go on: the platform decides.
6. Whatever is left at `drain_seconds` is cancelled, a stream without its last chunk.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import trio
from trio.lowlevel import wait_readable

from legation.http.refusals import Refusal
from legation.observability.request_log import Gauge, Gauges
from legation.platform import MeasuredResponder
from legation_host import Write
from legation_host.logs import quiet

from .admission import Admission, idle_first
from .connection import Connection
from .context import Runner, ServerContext
from .listeners import close_listeners
from .proxies import NO_PROXIES, Proxies, plain
from .render import HSTS, DateClock
from .settings import DEFAULT, Settings
from .wire import Wire

if TYPE_CHECKING:
    from .tls import Certificate

__all__ = ["Server", "serve"]

ACCEPTED: Final = 16
"""Connections accepted before others get a turn."""

REFUSED: Final = 64
"""Connections beyond the limit that get a refusal at once; more are closed without an answer."""

SCAN_SECONDS: Final = 0.05
"""Between two looks for idle connections, where the first one found none."""

EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""What `accept` says when the machine is short of something: it passes, so wait and go on."""


async def serve(
    platform: MeasuredResponder,
    host: Runner,
    listeners: Sequence[socket.socket],
    settings: Settings = DEFAULT,
    *,
    log: Write = quiet,
    proxies: Proxies = NO_PROXIES,
    certificate: Certificate | None = None,
    task_status: trio.TaskStatus[Server] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer requests that come to `listeners` until drained or cancelled.

    Args:
        platform: Makes the program that answers a request.
        host: Runs programs.
        listeners: Listening and non-blocking; closed at the end.
        settings: The limits.
        log: Takes what went wrong, a level, an event and its fields.
        proxies: Who is believed about the address of a client.
        certificate: For TLS on every listener.
        task_status: Gets the `Server` when connections are accepted.
    """
    server = Server(platform, host, listeners, settings, log, proxies, certificate)
    await server.run(task_status=task_status)


class Server:
    """A running server.  `drain` ends it in order; cancelling it ends it at once."""

    def __init__(
        self,
        platform: MeasuredResponder,
        host: Runner,
        listeners: Sequence[socket.socket],
        settings: Settings,
        log: Write,
        proxies: Proxies = NO_PROXIES,
        certificate: Certificate | None = None,
    ) -> None:
        self.listeners = tuple(listeners)
        clock = DateClock(HSTS if certificate is not None and certificate.hsts else b"")
        self._context = ServerContext(platform, host, settings, log, proxies, clock=clock)
        self._wire = Wire if certificate is None else certificate.wire
        self._settings = settings
        # In the order in which they came.
        self._connections: dict[Connection, None] = {}
        self._admission = Admission(settings)
        self._refused = 0
        self._scan_due = 0.0
        self._ended = False
        self._accepting = trio.CancelScope()
        self._empty = trio.Event()

    @property
    def has_ended(self) -> bool:
        """Whether no request can come any more."""
        return self._ended

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return len(self._connections)

    def gauges(self) -> Gauges:
        """Return the numbers of this server's connections."""
        text = "Connections that are open."
        evicted = "Idle connections that were closed because others needed their places."
        return {
            "legation_connections": Gauge("gauge", text, {(): len(self._connections)}),
            "legation_connections_evicted_total": Gauge(
                "counter", evicted, {(): self._admission.evicted}
            ),
        }

    def drain(self) -> None:
        """Begin to end: accept nothing more, answer what is in flight, close.  Idempotent."""
        self._context.draining = True
        self._accepting.cancel()

    async def run(self, *, task_status: trio.TaskStatus[Server] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until drained or cancelled."""
        self._context.tick()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._sweep)
                nursery.start_soon(self._context.clients.run)
                with self._accepting:
                    async with trio.open_nursery() as acceptors:
                        for listener in self.listeners:
                            acceptors.start_soon(self._accept, listener, nursery)
                        task_status.started(self)
                for listener in self.listeners:
                    await self._take(listener, nursery, self._settings.backlog)
                close_listeners(self.listeners)
                await self._wind_down()
                nursery.cancel_scope.cancel()
        finally:
            self._ended = True
            self._context.clients.close()
            close_listeners(listener for listener in self.listeners if listener.fileno() >= 0)

    async def _accept(self, listener: socket.socket, nursery: trio.Nursery) -> None:
        while True:
            await wait_readable(listener)
            await self._take(listener, nursery, ACCEPTED)

    async def _take(self, listener: socket.socket, nursery: trio.Nursery, most: int) -> None:
        """Accept what is queued, `most` connections at once."""
        for _ in range(most):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    continue  # that client has gone again (accept(2), ECONNABORTED)
                fields = {"error": str(error), "connections": len(self._connections)}
                self._context.log("error", "accept_failed", fields)
                await trio.sleep(self._settings.sweep_seconds)
                return
            self._admit(sock, address, nursery)

    def _admit(self, sock: socket.socket, address: Any, nursery: trio.Nursery) -> None:
        sock.setblocking(False)
        client = "" if sock.family == socket.AF_UNIX else plain(str(address[0]))
        proxied = self._context.proxies.trusts(client)
        try:
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire = self._wire(sock, self._context)
        except (OSError, ValueError):
            sock.close()  # gone before it began
            return
        self._make_room()
        refusal = self._admission.enter(client, proxied=proxied)
        if refusal is not None and self._refused >= REFUSED:
            wire.close()
            return
        self._refused += refusal is not None
        connection = Connection(wire, client, self._context, proxied=proxied)
        connection.evictable = refusal is None
        self._connections[connection] = None
        nursery.start_soon(self._run, connection, refusal)

    def _make_room(self) -> None:
        """End connections that are idle, where all places are taken."""
        lacks = self._admission.lacks
        if not lacks or trio.current_time() < self._scan_due:
            return
        idle = idle_first(self._connections, lacks)
        if not idle:
            self._scan_due = trio.current_time() + SCAN_SECONDS
        for connection in idle:
            connection.evict()
            self._admission.expect_leave()

    async def _run(self, connection: Connection, refusal: Refusal | None) -> None:
        try:
            await connection.run(refusal)
        finally:
            del self._connections[connection]
            if refusal is None:
                self._admission.leave(connection.client, evicted=not connection.evictable)
            else:
                self._refused -= 1
            if not self._connections:
                self._empty.set()

    async def _sweep(self) -> None:
        """Tick, and end the connections whose deadline has passed."""
        while True:
            self._context.tick()
            now = trio.current_time()
            for connection in self._connections:
                if connection.wire.deadline < now:
                    connection.wire.expire()
            await trio.sleep(self._settings.sweep_seconds)

    async def _wind_down(self) -> None:
        """Wait for the connections to end, then end them."""
        if not self._connections:
            return
        self._empty = trio.Event()
        settings = self._settings
        grace = min(settings.grace_seconds, settings.drain_seconds)
        with trio.move_on_after(grace):
            await self._empty.wait()
        for connection in self._connections:
            connection.leave()
        with trio.move_on_after(settings.drain_seconds - grace):
            await self._empty.wait()
        if self._connections:
            fields = {"connections": len(self._connections)}
            self._context.log("warning", "drain_incomplete", fields)
