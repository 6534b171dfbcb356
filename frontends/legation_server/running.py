"""The process: one worker under trio, ended by signals.

Several workers on one machine are this function in several processes, with listeners that their
parent opened and keeps (`listeners`).
"""

from __future__ import annotations

import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeVar

import trio

from legation_host import Write
from legation_host.units import quiet

from .listeners import close_listeners
from .server import Server, serve
from .settings import DEFAULT, Settings
from .worker import Platform, Runner

__all__ = ["run"]

P = TypeVar("P", bound=Platform)


def run(
    platform_factory: Callable[[], P],
    host_factory: Callable[[P], AbstractAsyncContextManager[Runner]],
    listeners: Sequence[socket.socket],
    settings: Settings = DEFAULT,
    *,
    log: Write = quiet,
    started: Callable[[Server], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; return when drained.

    The first signal begins the drain, a second one ends the process's work at once.

    Args:
        platform_factory: Makes the platform, within the worker.
        host_factory: Opens what runs its programs; closed after the last connection.
        listeners: From `open_listeners`; closed at the end.
        settings: The limits.
        log: Takes what went wrong.
        started: Called when connections are accepted.
    """
    try:
        trio.run(_main, platform_factory, host_factory, listeners, settings, log, started)
    finally:
        # Closed by the server already, unless it never came to be.
        close_listeners(listener for listener in listeners if listener.fileno() >= 0)


async def _main(
    platform_factory: Callable[[], P],
    host_factory: Callable[[P], AbstractAsyncContextManager[Runner]],
    listeners: Sequence[socket.socket],
    settings: Settings,
    log: Write,
    started: Callable[[Server], None] | None,
) -> None:
    platform = platform_factory()
    # Signals are held from before the first connection to after the last.
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with host_factory(platform) as host, trio.open_nursery() as nursery:
            task = partial(serve, platform, host, listeners, settings, log=log)
            async with trio.open_nursery() as serving:
                server: Server = await serving.start(task)
                if started is not None:
                    started(server)
                nursery.start_soon(_obey, signals, server, serving.cancel_scope)
            nursery.cancel_scope.cancel()


async def _obey(signals: AsyncIterator[int], server: Server, scope: trio.CancelScope) -> None:
    """Drain at the first signal, stop at the second."""
    await anext(signals)
    server.drain()
    await anext(signals)
    scope.cancel()
