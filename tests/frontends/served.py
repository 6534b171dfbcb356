"""Every frontend, running: in a thread of its own behind a socket, or in this process.

Each is a function from a platform to a context manager; a new one is one function here and one
line in `SERVED`, or in `FRONTENDS` when it has no connections.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import Any, Final

import hypercorn.asyncio
import hypercorn.config
import hypercorn.trio
import trio
import uvicorn
from attrs import frozen

from legation import Platform
from legation.http.messages import Headers
from legation.platform import MeasuredResponder
from legation_asgi import Application, asgi
from legation_host import Host, open_host
from legation_host.hosting import open_platform
from legation_server import open_listeners, serve
from legation_testing import Client

from .conformance import Body, Conformance, Open, OpenPlatform, Reply, Wire

__all__ = ["FRONTENDS", "HOSTS", "SERVED", "application", "hypercorn_trio", "uvicorn_asyncio"]


def application(platform: MeasuredResponder) -> Application:
    return Application(platform, open_host)


def _listening() -> socket.socket:
    """Return a socket that queues connections already, before anybody serves them."""
    return socket.create_server(("127.0.0.1", 0), backlog=64)


@contextmanager
def _thread(run: Callable[[], object], stop: Callable[[], object]) -> Generator[None]:
    """Run `run` in a thread until the block ends; raise what it raised."""
    failures: list[BaseException] = []

    def target() -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 (raised below)
            failures.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join(10)
        assert not thread.is_alive(), "the server does not stop"
        if failures:
            raise failures[0]


@contextmanager
def uvicorn_asyncio(
    app: Application, *, http: Any = "h11", loop: Any = "asyncio", root_path: str = ""
) -> Generator[Wire]:
    with _listening() as listener:
        config = uvicorn.Config(
            app,
            http=http,
            loop=loop,
            ws="none",
            lifespan="on",
            log_config=None,
            root_path=root_path,
        )
        server = uvicorn.Server(config)

        def stop() -> None:
            server.should_exit = True

        with _thread(lambda: server.run([listener]), stop):
            yield Wire(listener.getsockname())


def _hypercorn_config(listener: socket.socket, root_path: str) -> hypercorn.config.Config:
    config = hypercorn.config.Config()
    config.bind = [f"fd://{listener.detach()}"]  # hypercorn closes it
    config.graceful_timeout = 1
    config.root_path = root_path
    return config


@contextmanager
def hypercorn_trio(app: Application, *, root_path: str = "") -> Generator[Wire]:
    listener = _listening()
    address = listener.getsockname()
    config = _hypercorn_config(listener, root_path)
    stopped = threading.Event()

    async def wait() -> None:
        while not stopped.is_set():
            await trio.sleep(0.02)

    serving = partial(hypercorn.trio.serve, app, config, shutdown_trigger=wait)  # type: ignore[arg-type]
    with _thread(lambda: trio.run(serving), stopped.set):
        yield Wire(address)


@contextmanager
def hypercorn_asyncio(app: Application, *, root_path: str = "") -> Generator[Wire]:
    listener = _listening()
    address = listener.getsockname()
    config = _hypercorn_config(listener, root_path)
    stopped = threading.Event()

    async def wait() -> None:
        while not stopped.is_set():
            await asyncio.sleep(0.02)

    async def serving() -> None:
        await hypercorn.asyncio.serve(app, config, shutdown_trigger=wait)  # type: ignore[arg-type]

    with _thread(lambda: asyncio.run(serving()), stopped.set):
        yield Wire(address)


@contextmanager
def trio_server(
    platform: MeasuredResponder, opened: Callable[[], AbstractAsyncContextManager[Host]] = open_host
) -> Generator[Wire]:
    listeners = open_listeners("127.0.0.1", 0)
    address = listeners[0].getsockname()
    stopped = threading.Event()

    async def serving() -> None:
        async with opened() as host, trio.open_nursery() as nursery:
            server = await nursery.start(partial(serve, platform, host, listeners))
            while not stopped.is_set():
                await trio.sleep(0.02)
            server.drain()

    with _thread(lambda: trio.run(serving), stopped.set):
        yield Wire(address)


@frozen
class InProcess:
    """The client of `legation_testing`, which has no connection."""

    client: Client
    address: None = None

    def send(
        self, method: str, target: str, headers: Headers = (), body: Body | None = None
    ) -> Reply:
        content = body if isinstance(body, bytes) else b"".join(body or ())
        fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
        response = self.client.request(method, target, headers=fields, body=content)
        return Reply(response.status, response.headers, response.body)


@contextmanager
def in_process(
    platform: Conformance | Platform, *, raise_errors: bool = True
) -> Generator[InProcess]:
    with Client(platform, raise_errors=raise_errors) as client:
        yield InProcess(client)


SERVED: Final[Mapping[str, Open]] = {
    "trio server": trio_server,
    "asgi under uvicorn": lambda platform: uvicorn_asyncio(application(platform)),
    "asgi under uvicorn with httptools": lambda platform: uvicorn_asyncio(
        application(platform), http="httptools"
    ),
    "asgi under uvicorn with uvloop": lambda platform: uvicorn_asyncio(
        application(platform), http="httptools", loop="uvloop"
    ),
    "asgi under hypercorn on trio": lambda platform: hypercorn_trio(application(platform)),
    "asgi under hypercorn on asyncio": lambda platform: hypercorn_asyncio(application(platform)),
}
"""Those behind a socket."""

FRONTENDS: Final[Mapping[str, Open]] = {**SERVED, "in process": in_process}
"""All."""

HOSTS: Final[Mapping[str, OpenPlatform]] = {
    "trio server": lambda platform: trio_server(platform, partial(open_platform, platform)),
    "asgi under uvicorn": lambda platform: uvicorn_asyncio(asgi(platform)),
    "asgi under uvicorn with httptools": lambda platform: uvicorn_asyncio(
        asgi(platform), http="httptools"
    ),
    "asgi under uvicorn with uvloop": lambda platform: uvicorn_asyncio(
        asgi(platform), http="httptools", loop="uvloop"
    ),
    "asgi under hypercorn on trio": lambda platform: hypercorn_trio(asgi(platform)),
    "asgi under hypercorn on asyncio": lambda platform: hypercorn_asyncio(asgi(platform)),
    "in process": in_process,
}
"""The same, with the databases and the jobs of a whole platform."""
