"""A platform as a serverless function: AWS Lambda behind an HTTP API or a function URL.

    handler: serverless.handler

Such a process is frozen as soon as it has answered, so that nothing may be left to a job.  The
platform is open for the time of one event alone: a request is answered; then, and when a schedule
calls, one round does what waits.  Nothing is under work in a process that is frozen.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from attrs import asdict

from legation import Agent, Database, Platform
from legation.http.messages import Request, Response, Streamed
from legation_host import Host
from legation_host.hosting import open_platform

__all__ = ["handler", "platform"]

Event = Mapping[str, Any]

SECONDS: Final = 20.0
"""For a round.  The function's own time-out has to be longer, and `lease_seconds` too."""

_UNQUOTED: Final = "/%:@!$&'()*+,;=~-._"

platform = Platform(
    agents=[Agent(id="concierge")],
    databases=[Database("main", os.environ.get("DATABASE_URL", "sqlite:////tmp/legation.db"))],
    environ=os.environ,
)


def handler(event: Event, context: object) -> Any:
    """Handle one event: a request of the gateway, or one of a schedule."""
    return asyncio.run(handle(platform, event))


async def handle(platform: Platform, event: Event) -> Any:
    """Answer `event`, and do what waits; a read is answered without that."""
    async with open_platform(platform, jobs=False) as host:
        answer = None
        if "requestContext" in event:
            answer = await respond(platform, host, event)
            if event["requestContext"]["http"]["method"] in ("GET", "HEAD"):
                return answer
        report = await host.run(platform.round(seconds=SECONDS))
        return asdict(report) if answer is None else answer


def request_of(event: Event) -> Request:
    """Return the request of `event`; a gateway may have decoded the path."""
    http = event["requestContext"]["http"]
    target = quote(event["rawPath"], safe=_UNQUOTED)
    if query := event.get("rawQueryString"):
        target += f"?{query}"
    fields = [(n.lower().encode(), v.encode("latin-1")) for n, v in event["headers"].items()]
    return Request(http["method"], target, tuple(fields), http["sourceIp"])


async def respond(platform: Platform, host: Host, event: Event) -> Event:
    """Return the response to `event` as the gateway takes it; a stream is sent as a whole."""
    answer, sent = await host.run(platform.answer(request_of(event)), body=Body(event)), Sent()
    if isinstance(answer, Streamed):
        await host.run(answer.body, sink=sent)
    body = answer.body if isinstance(answer, Response) else bytes(sent.data)
    return {
        "statusCode": answer.status,
        "headers": {name.decode(): value.decode("latin-1") for name, value in answer.headers},
        "body": b64encode(body).decode(),
        "isBase64Encoded": True,
    }


class Body:
    """The body of a request, which came with its event."""

    def __init__(self, event: Event) -> None:
        """Decode it."""
        text: str = event.get("body") or ""
        self.data = b64decode(text) if event.get("isBase64Encoded") else text.encode()

    async def read(self, limit: int) -> bytes | None:
        """Return the body; None when it is longer than `limit` bytes."""
        return self.data if len(self.data) <= limit else None


class Sent:
    """The body of a response, gathered."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.data = bytearray()

    async def send(self, data: bytes) -> None:
        """Take a part."""
        self.data += data
