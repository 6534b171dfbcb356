"""A whole platform behind a socket, served by the trio server in a thread of this process."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial

import trio

from legation import Platform
from legation_host.hosting import open_platform
from legation_server import DEFAULT, Settings, open_listeners, serve

__all__ = ["hosted"]


@contextmanager
def hosted(platform: Platform, settings: Settings = DEFAULT) -> Generator[str]:
    """Serve `platform` until the block ends; yield its base address."""
    listeners = open_listeners("127.0.0.1", 0)
    port = listeners[0].getsockname()[1]
    stopped = threading.Event()
    failures: list[BaseException] = []

    async def serving() -> None:
        async with open_platform(platform) as host, trio.open_nursery() as nursery:
            server = await nursery.start(partial(serve, platform, host, listeners, settings))
            while not stopped.is_set():
                await trio.sleep(0.02)
            server.drain()

    def target() -> None:
        try:
            trio.run(serving)
        except BaseException as error:  # noqa: BLE001 (raised below)
            failures.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stopped.set()
        thread.join(20)
        assert not thread.is_alive(), "the server does not stop"
        if failures:
            raise failures[0]
