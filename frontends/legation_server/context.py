"""The context that the connections of one server share: platform, host, limits, clock."""

from __future__ import annotations

import os
import time
from typing import Protocol, TypeVar

import trio
from attrs import Factory, field

from legation.effects import Program
from legation.http.messages import Request
from legation.observability.request_log import Arrival, read_request_id
from legation.platform import MeasuredResponder
from legation.values import define
from legation_host import BodySource, Sink, Write

from .clients import ClientWatch
from .memo import Memo
from .proxies import NO_PROXIES, Proxies
from .render import DateClock
from .settings import Settings

__all__ = ["Runner", "ServerContext", "new_incident"]

R = TypeVar("R")


def new_incident() -> str:
    """Return an id that ties an answer to its line in the log."""
    return os.urandom(8).hex()


class Runner(Protocol):
    """The runner of programs, which performs their effects: `legation_host`, or a test's."""

    async def run(self, program: Program[R], *, body: BodySource | None, sink: Sink | None) -> R:
        """Run `program` to its end and return its result."""
        ...


def _memo(context: ServerContext) -> Memo | None:
    most = context.settings.remembered_heads
    return Memo(most) if most else None


@define(eq=False)
class ServerContext:
    """The context that the connections of one server share.

    Attributes:
        soon: The time of `trio.current_time()` that is not later than the next sweep.  A
            deadline counted from it is never early, and late by two sweeps at most; reading it
            costs a look at an attribute.
        memo: Of the heads of all connections, where that is switched on.
        in_flight: Requests being answered, streams aside.
        draining: Every answer from now on ends its connection.
        clients: The watch on those of streams.
    """

    platform: MeasuredResponder
    host: Runner
    settings: Settings
    log: Write
    proxies: Proxies = NO_PROXIES
    clock: DateClock = field(factory=DateClock)
    memo: Memo | None = field(init=False, default=Factory(_memo, takes_self=True))
    soon: float = 0.0
    in_flight: int = 0
    draining: bool = False
    clients: ClientWatch = field(factory=ClientWatch)

    def tick(self) -> None:
        """Look at the clocks."""
        self.soon = trio.current_time() + self.settings.sweep_seconds
        self.clock.tick(time.time())

    def instead(self, request: Request, status: int, waited: float = 0.0, new_id: str = "") -> str:
        """Count an answer that the platform has not given; return the request id for it.

        Args:
            request: What is known of it.
            status: Of the answer.
            waited: Seconds since it began to come in, where that is known.
            new_id: For a request that has none; any unless given.
        """
        end_us = time.time_ns() // 1_000
        request_id = read_request_id(request) or new_id or new_incident()
        arrival = Arrival(request, end_us - int(waited * 1e6), request_id)
        return self.platform.telemetry.instead(arrival, status, end_us)
