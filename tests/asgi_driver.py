"""The least of an ASGI server: a lifespan, and one request after another, in this process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio
from attrs import define

__all__ = ["AsgiDriver"]


@define
class AsgiDriver:
    """Drives an application within a trio program."""

    app: Any

    async def get(self, path: str, root_path: str = "") -> tuple[int, bytes]:
        """Return the status and the body of the answer to a GET."""
        scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "root_path": root_path,
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
        }
        sent: list[Mapping[str, Any]] = []

        async def receive() -> Mapping[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Mapping[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        head, *parts = sent
        body = b"".join(part["body"] for part in parts)
        lengths = [value for name, value in head["headers"] if name == b"content-length"]
        assert lengths == [b"%d" % len(body)]
        return head["status"], body

    @asynccontextmanager
    async def alive(self) -> AsyncGenerator[None]:
        """Hold the application between its start-up and its shut-down."""
        scope: dict[str, Any] = {"type": "lifespan", "state": {}}
        started, ending = trio.Event(), trio.Event()
        told: list[str] = []

        async def receive() -> Mapping[str, Any]:
            if not told:
                return {"type": "lifespan.startup"}
            await ending.wait()
            return {"type": "lifespan.shutdown"}

        async def send(message: Mapping[str, Any]) -> None:
            told.append(message["type"])
            started.set()

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.app, scope, receive, send)
                await started.wait()
                yield
                ending.set()
        assert told == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
