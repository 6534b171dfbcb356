"""The process around a server: trio runs it, and signals end it.

Several workers on one machine are this function in several processes (`prefork`), with listeners
that their parent opened and keeps (`listeners`).
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from signal import Signals
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import trio
from trio.lowlevel import wait_readable

from legation.effects import Program
from legation.platform import MeasuredResponder
from legation.values import frozen
from legation_host import Write
from legation_host.logs import quiet

from .context import Runner
from .listeners import close_listeners
from .orders import ALONE_ORDERS, WORKER_ORDERS, Obey, Orders, release_reload
from .proxies import NO_PROXIES, Proxies
from .server import Server, serve
from .settings import DEFAULT, Settings

if TYPE_CHECKING:
    from .tls import Certificate

__all__ = ["ALONE", "Life", "run"]

P = TypeVar("P", bound=MeasuredResponder)

Closing: TypeAlias = Callable[[float, float, Callable[[], bool]], Program[None]]


def _do_nothing() -> None:
    pass


def _take_no_note(_: str) -> None:
    pass


@frozen
class Life:
    """The hooks around a worker, from its first connection to its drain.

    Attributes:
        started: Called when connections are accepted.
        reload: Called at SIGHUP.
        stopping: Called with the name of the signal when the drain begins, and again when a second
            one breaks it off.
        closing: The program that gives back what the worker's platform holds, given the seconds
            for it to come to its end, those until streams of runs that others execute are sent
            elsewhere, and what says whether requests may come; run beside the drain.
        parent: A descriptor that is readable when the parent process is gone, for a worker that
            has one: then it drains.  Its parent also decides about SIGINT and SIGHUP.
        beat: Called by the event loop every `beat_seconds`, up to the end of the drain: where it is
            not called, the loop is blocked.
        beat_seconds: None where nobody waits for beats.
    """

    started: Callable[[Server], object] = lambda _: None
    reload: Callable[[], object] = _do_nothing
    stopping: Callable[[str], object] = _take_no_note
    closing: Closing | None = None
    parent: int | None = None
    beat: Callable[[], object] = _do_nothing
    beat_seconds: float | None = None

    @property
    def orders(self) -> Orders:
        """The signals that are obeyed, and how."""
        return ALONE_ORDERS if self.parent is None else WORKER_ORDERS


ALONE: Final = Life()

_PATIENCE: Final = 0.9
"""The part of a drain in which runs may come to their own end."""


def run(
    platform_factory: Callable[[], P],
    host_factory: Callable[[P], AbstractAsyncContextManager[Runner]],
    listeners: Sequence[socket.socket],
    settings: Settings = DEFAULT,
    *,
    log: Write = quiet,
    proxies: Proxies = NO_PROXIES,
    certificate: Certificate | None = None,
    life: Life = ALONE,
) -> None:
    """Serve until SIGTERM or SIGINT; return when drained.

    The first signal begins the drain, a second one ends the process's work at once.

    Args:
        platform_factory: Makes the platform, within the worker.
        host_factory: Opens what runs its programs; closed after the last connection.
        listeners: From `open_listeners`; closed at the end.
        settings: The limits.
        log: Takes what went wrong.
        proxies: Who is believed about the address of a client.
        certificate: For TLS on every listener.
        life: What else is to happen, and when.
    """
    serving: Callable[..., Awaitable[None]] = partial(
        serve, settings=settings, log=log, proxies=proxies, certificate=certificate
    )
    try:
        closing = partial(_close, life, settings)
        trio.run(_main, platform_factory, host_factory, listeners, serving, life, closing)
    finally:
        # Closed by the server already, unless it never came to be.
        close_listeners(listeners)


async def _main(
    platform_factory: Callable[[], P],
    host_factory: Callable[[P], AbstractAsyncContextManager[Runner]],
    listeners: Sequence[socket.socket],
    serving: Callable[..., Awaitable[None]],
    life: Life,
    closing: Callable[[Runner, Server], Awaitable[None]],
) -> None:
    platform = platform_factory()
    # Signals are held from before the first connection to after the last.
    numbers = {number for number, _ in life.orders}
    with trio.open_signal_receiver(*sorted(numbers)) as signals:
        release_reload()
        async with host_factory(platform) as host, trio.open_nursery() as nursery:
            async with trio.open_nursery() as worker:
                server: Server = await worker.start(partial(serving, platform, host, listeners))
                life.started(server)

                begun = False

                def drain() -> None:
                    nonlocal begun
                    if not begun:
                        begun = True
                        server.drain()
                        worker.start_soon(closing, host, server)

                nursery.start_soon(_obey, signals, drain, worker.cancel_scope, life)
                if life.parent is not None:
                    nursery.start_soon(_survive, life.parent, drain)
                if life.beat_seconds is not None:
                    nursery.start_soon(_beat, life.beat, life.beat_seconds)
            nursery.cancel_scope.cancel()


async def _obey(
    signals: AsyncIterator[int],
    drain: Callable[[], object],
    scope: trio.CancelScope,
    life: Life,
) -> None:
    """Do what the table of orders says."""
    draining = False
    async for number in signals:
        match life.orders[number, draining]:
            case Obey.RELOAD:
                life.reload()
            case Obey.DRAIN:
                draining = True
                life.stopping(Signals(number).name)
                drain()
            case Obey.STOP:
                life.stopping(Signals(number).name)
                scope.cancel()
            case Obey.NOTHING:
                pass


async def _survive(parent: int, drain: Callable[[], object]) -> None:
    """Drain when the parent is gone: nobody else would end this process."""
    await wait_readable(parent)
    drain()


async def _beat(beat: Callable[[], object], seconds: float) -> None:
    """Call `beat` as long as the event loop turns."""
    while True:
        beat()
        await trio.sleep(seconds)


async def _close(life: Life, settings: Settings, host: Runner, server: Server) -> None:
    """Run the platform's shutdown, within the time of the drain.

    It breaks runs off a little before connections end, so that clients that wait get an answer.
    """
    if life.closing is None:
        return
    seconds = settings.drain_seconds
    program = life.closing(
        seconds * _PATIENCE, settings.grace_seconds, lambda: not server.has_ended
    )
    with trio.move_on_after(seconds):
        await host.run(program, body=None, sink=None)
