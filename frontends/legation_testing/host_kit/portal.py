"""A host for asyncio or trio, asked from a thread: its event loop runs in another."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

import anyio.lowlevel
from anyio.from_thread import BlockingPortal, start_blocking_portal
from attrs import frozen

from legation.effects import Program
from legation_host import BodySource, Sink

from .bench import HostSetup, MakeHost

__all__ = ["AsyncHost", "OpenHost", "portal_host"]

R = TypeVar("R")


class AsyncHost(Protocol):
    """A host that is asked in its event loop, as `legation_host.Host` is."""

    async def run(self, program: Program[R], *, body: BodySource | None, sink: Sink | None) -> R:
        """Run `program` to its end and return its result."""
        ...


OpenHost: TypeAlias = Callable[[HostSetup], AbstractAsyncContextManager[AsyncHost]]


def portal_host(open_host: OpenHost, backend: str = "asyncio") -> MakeHost:
    """Return what opens the host of `open_host` in an event loop of `backend`, for `check_host`.

    Args:
        open_host: Called in the event loop.
        backend: `asyncio` or `trio`.
    """

    @contextmanager
    def make(setup: HostSetup) -> Generator[_PortalHost]:
        with (
            start_blocking_portal(backend) as portal,
            portal.wrap_async_context_manager(open_host(setup)) as host,
        ):
            yield _PortalHost(portal, host)

    return make


@frozen
class _PortalHost:
    """A host in another thread, with its event loop."""

    _portal: BlockingPortal
    _host: AsyncHost

    def run(self, program: Program[R], *, body: bytes, emit: Callable[[bytes], object]) -> R:
        run = partial(self._host.run, program, body=_Body(body), sink=_Sink(emit))
        result: R = self._portal.call(run)
        return result


@frozen
class _Body:
    """A body that is there already."""

    _data: bytes

    async def read(self, limit: int) -> bytes | None:
        await anyio.lowlevel.checkpoint()
        return self._data if len(self._data) <= limit else None


@frozen
class _Sink:
    """A sink that takes at once."""

    _emit: Callable[[bytes], object]

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        self._emit(data)
