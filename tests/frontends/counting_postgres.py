"""Count the round trips and the statements of a run on PostgreSQL.

What the jobs of the platform ask meanwhile does not show: the median of several rounds counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from statistics import median
from typing import Final
from urllib.parse import urlencode

import trio

from legation import Agent, Database, Platform, Request
from legation.http.messages import Streamed
from legation_host.hosting import open_platform

from ..postgres_messages import MessageRelay
from .counting import FORM, Body, Sink, clerk

__all__ = ["count_trips"]

WARM: Final = 8
ROUNDS: Final = 9


async def count_trips(relay: MessageRelay) -> dict[str, dict[str, float]]:
    """Return the counts of each operation, on a platform whose database is behind `relay`."""
    platform = Platform(
        agents=[Agent(id="concierge"), clerk("clerk", 1, 2 * (WARM + ROUNDS))],
        databases=[Database("main", relay.url, auto_migrate=True)],
    )
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(open_platform(platform))

        async def run(stream: str, agent: str) -> None:
            body = urlencode({"message": "hello", "stream": stream}).encode()
            headers = (*FORM, (b"content-length", str(len(body)).encode()))
            request = Request("POST", f"/agents/{agent}/runs", headers)
            answer = await host.run(platform.answer(request), body=Body(body))
            assert answer.status == 200, answer
            if isinstance(answer, Streamed):
                await host.run(answer.body, sink=Sink())

        async def measured(operation: Callable[[], Awaitable[None]]) -> dict[str, float]:
            rounds: list[dict[str, int]] = []
            for number in range(WARM + ROUNDS):
                before = relay.counts.copy()
                await operation()
                await trio.sleep(0.05)  # the audit trail, and what the end of a run brings about
                if number >= WARM:
                    rounds.append(dict(relay.counts - before))
            return {
                name: median(made.get(name, 0) for made in rounds)
                for name in ("trips", "statements")
            }

        return {
            "joined run": await measured(lambda: run("false", "concierge")),
            "streamed run": await measured(lambda: run("true", "concierge")),
            "joined run, one call": await measured(lambda: run("false", "clerk")),
            "streamed run, one call": await measured(lambda: run("true", "clerk")),
        }
