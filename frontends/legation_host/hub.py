"""The hub of a host: where programs wait for events and for nudges.

What is remembered, and who waits, is in `legation.node_state`; here they wait, and are woken.  All
of it belongs to the thread of the event loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import anyio.lowlevel
from attrs import field

from legation.node_state import NodeState
from legation.store.run_rows import StoredEvent
from legation.values import define

from .native import EITHER, Event, Native

__all__ = ["Hub"]

Wake: TypeAlias = Callable[[], object]


@define
class Hub:
    """The state of this node, and those who wait for it to change, by what `native` makes."""

    state: NodeState[Wake] = field(factory=NodeState[Wake])
    native: Native = EITHER

    def publish(self, run_id: str, events: Sequence[StoredEvent]) -> None:
        """Keep `events` for a while and wake who follows `run_id`."""
        for wake in self.state.publish(run_id, events, time.monotonic()):
            wake()

    def hear_event(self, key: str, seq: int) -> None:
        """Note that another node stored the events up to `seq` of the run with this digest."""
        for wake in self.state.hear_event(key, seq):
            wake()

    async def next_events(
        self, run_id: str, after: int, timeout_seconds: float
    ) -> tuple[StoredEvent, ...] | None:
        """Return the events behind `after`, waiting for the first of them if need be.

        None when the time has passed.
        """
        event = self.native.make_event()
        events = self.state.next_events(run_id, after, event.set)
        if events is None:
            woken = await self._wait(event, timeout_seconds)
            return (self.state.held_events(run_id, after) or ()) if woken else None
        if not events:
            await anyio.lowlevel.checkpoint()
        return events

    def nudge(self, topic: str) -> None:
        """Wake who waits under `topic`; who is about to wait there finds it as well."""
        for wake in self.state.nudge(topic):
            wake()

    def hear_nudge(self, key: str) -> None:
        """Wake who waits under the topic with this digest: another node did something for it."""
        for wake in self.state.hear_nudge(key):
            wake()

    async def await_nudge(self, topic: str, since: int, timeout_seconds: float) -> None:
        """Wait for a nudge later than `since`, a value that `state.sequence` had."""
        event = self.native.make_event()
        if not self.state.await_nudge(topic, since, event.set):
            await self._wait(event, timeout_seconds)

    async def _wait(self, event: Event, seconds: float) -> bool:
        """Wait for so long at most; return whether `event` was set, which is forgotten else."""
        try:
            with self.native.limit(seconds):
                await event.wait()
        finally:
            woken = event.is_set()
            if not woken:
                self.state.leave(event.set)
        return woken
