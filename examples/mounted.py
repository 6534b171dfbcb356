"""A platform inside another ASGI application.

    uvicorn mounted:app

The outer application answers `/` itself and hands on what is below `/mission`.  A server sends its
lifespan to the outer one alone, so that holds the platform open (`Application.opened`).
"""

from __future__ import annotations

from legation import Agent, Database, Platform
from legation_asgi import asgi
from legation_asgi.messages import Receive, Scope, Send

__all__ = ["app", "mission"]

MOUNT = "/mission"

mission = asgi(
    Platform(
        agents=[Agent(id="concierge")],
        databases=[Database("main", "sqlite:///mission.db")],
    )
)


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one scope."""
    if scope["type"] == "lifespan":
        await live(receive, send)
    elif scope["path"] == MOUNT or scope["path"].startswith(f"{MOUNT}/"):
        below = {**scope, "root_path": scope.get("root_path", "") + MOUNT}
        await mission(below, receive, send)
    elif scope["type"] == "http":
        await welcome(send)


async def live(receive: Receive, send: Send) -> None:
    """Hold the platform open between start-up and shut-down."""
    await receive()
    async with mission.open():
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})


async def welcome(send: Send) -> None:
    """Answer everything that is the outer application's own."""
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"31")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"The agents are below /mission.\n"})
