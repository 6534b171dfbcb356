"""What this node heard of lately: events just stored, and work that waits.

Hints only.  Everything is in memory and bounded, so that a hint may be lost at any time; whoever
waits here asks the database in the end.  All of it belongs to the thread of the event loop.

What other nodes tell comes by hash, and interrupts nothing: whoever waits for work, or for an
event, looks into the database a little sooner.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64encode
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final

import anyio
import anyio.lowlevel
from attrs import define, field

from legation.store.run_rows import StoredEvent

__all__ = ["Hub", "digest"]

EVENTS_OF_A_RUN: Final = 1_024
CHARACTERS: Final = 32 << 20
RUNS: Final = 4_096
TOPICS: Final = 4_096
REMEMBERED_SECONDS: Final = 60.0


def digest(name: str) -> str:
    """Return what a topic or the id of a run is called between nodes: 12 characters."""
    return urlsafe_b64encode(blake2b(name.encode(), digest_size=9).digest()).decode()


@define
class _Feed:
    """The last events of one run, in order and without gap."""

    events: deque[StoredEvent] = field(factory=deque[StoredEvent])
    characters: int = 0
    heard: float = 0.0

    def extend(self, events: Sequence[StoredEvent]) -> None:
        """Append what is new; an event out of order starts the feed afresh."""
        for event in events:
            if self.events and event.seq <= self.events[-1].seq:
                continue
            if self.events and event.seq > self.events[-1].seq + 1:
                self.events.clear()
                self.characters = 0
            self.events.append(event)
            self.characters += len(event.data)
            if len(self.events) > EVENTS_OF_A_RUN:
                self.characters -= len(self.events.popleft().data)

    def behind(self, after: int) -> tuple[StoredEvent, ...] | None:
        """Return the events behind `after`; empty over a gap, None when there are none yet."""
        if not self.events or self.events[-1].seq <= after:
            return None
        first = self.events[0].seq
        if first > after + 1:
            return ()
        return tuple(self.events)[after + 1 - first :]


@define
class _Bell:
    """Who waits under each key, all woken at once.  A key without anyone waiting is gone."""

    waiting: dict[str, set[anyio.Event]] = field(factory=dict[str, set[anyio.Event]])

    @property
    def count(self) -> int:
        """How many wait."""
        return sum(map(len, self.waiting.values()))

    def ring(self, key: str) -> None:
        for event in self.waiting.pop(key, ()):
            event.set()

    async def wait(self, key: str, seconds: float) -> None:
        event = anyio.Event()
        self.waiting.setdefault(key, set()).add(event)
        try:
            with anyio.move_on_after(seconds):
                await event.wait()
        finally:
            self._leave(key, event)

    def _leave(self, key: str, event: anyio.Event) -> None:
        events = self.waiting.get(key)
        if events is not None:
            events.discard(event)
            if not events:
                del self.waiting[key]


def _put(numbers: OrderedDict[str, int], key: str, number: int) -> None:
    """Note `number`, and forget what was noted longest ago."""
    numbers[key] = number
    numbers.move_to_end(key)
    if len(numbers) > TOPICS:
        numbers.popitem(last=False)


@define
class Hub:
    """Events by run, nudges by topic.  Who waits does so under the `digest` of either."""

    monotonic: Callable[[], float] = time.monotonic
    sequence: int = 0
    _feeds: OrderedDict[str, _Feed] = field(factory=OrderedDict[str, _Feed], init=False)
    _characters: int = field(default=0, init=False)
    _nudged: OrderedDict[str, int] = field(factory=OrderedDict[str, int], init=False)
    _told: OrderedDict[str, int] = field(factory=OrderedDict[str, int], init=False)
    _ahead: OrderedDict[str, int] = field(factory=OrderedDict[str, int], init=False)
    _events: _Bell = field(factory=_Bell, init=False)
    _nudges: _Bell = field(factory=_Bell, init=False)
    _called: dict[str, list[Callable[[], None]]] = field(
        factory=dict[str, list[Callable[[], None]]], init=False
    )

    @property
    def runs_held(self) -> int:
        """Runs whose latest events are held."""
        return len(self._feeds)

    @property
    def followers(self) -> int:
        """Programs that wait for an event."""
        return self._events.count

    def publish(self, run_id: str, events: Sequence[StoredEvent]) -> None:
        """Keep `events` for a while and wake who follows `run_id`."""
        if not events:
            return
        feed = self._feeds.setdefault(run_id, _Feed())
        before = feed.characters
        feed.extend(events)
        feed.heard = self.monotonic()
        self._characters += feed.characters - before
        self._feeds.move_to_end(run_id)
        self._forget()
        self._events.ring(digest(run_id))

    def hear_event(self, key: str, seq: int) -> None:
        """Note that another node stored the events up to `seq` of the run with this digest."""
        _put(self._ahead, key, seq)
        self._events.ring(key)

    def _forget(self) -> None:
        """Drop the runs heard of longest ago, but never the last."""
        stale = self.monotonic() - REMEMBERED_SECONDS
        while len(self._feeds) > 1:
            oldest = next(iter(self._feeds.values()))
            crowded = len(self._feeds) > RUNS or self._characters > CHARACTERS
            if not crowded and oldest.heard >= stale:
                return
            self._feeds.popitem(last=False)
            self._characters -= oldest.characters

    def held(self, run_id: str, after: int) -> tuple[StoredEvent, ...] | None:
        """Return the events behind `after`; empty over a gap, None when there are none yet."""
        feed = self._feeds.get(run_id)
        return None if feed is None else feed.behind(after)

    async def next_events(
        self, run_id: str, after: int, timeout_seconds: float
    ) -> tuple[StoredEvent, ...]:
        """Return the events behind `after`, waiting for the first of them if need be.

        Nothing, at once, where another node has told of them; for one time, since what it told
        need not be so.
        """
        events = self.held(run_id, after)
        if events is None:
            key = digest(run_id)
            if self._ahead.pop(key, 0) > after:
                await anyio.lowlevel.checkpoint()
                return ()
            await self._events.wait(key, timeout_seconds)
            events = self.held(run_id, after)
        return events or ()

    def nudge(self, topic: str) -> None:
        """Wake who waits under `topic`; who is about to wait there finds it as well."""
        self.sequence += 1
        _put(self._nudged, topic, self.sequence)
        self._nudges.ring(digest(topic))
        for call in self._called.get(topic, ()):
            call()

    def hear_nudge(self, key: str) -> None:
        """Wake who waits under the topic with this digest: another node did something for it."""
        self.sequence += 1
        _put(self._told, key, self.sequence)
        self._nudges.ring(key)

    async def await_nudge(self, topic: str, since: int, timeout_seconds: float) -> None:
        """Wait for a nudge later than `since`, a value that `sequence` had."""
        key = digest(topic)
        if self._nudged.get(topic, 0) <= since and self._told.get(key, 0) <= since:
            await self._nudges.wait(key, timeout_seconds)

    @contextmanager
    def calling(self, topic: str, since: int, call: Callable[[], None]) -> Generator[None]:
        """Call `call`, within this block, at each nudge under `topic` later than `since`."""
        if self._nudged.get(topic, 0) > since:
            call()
        calls = self._called.setdefault(topic, [])
        calls.append(call)
        try:
            yield
        finally:
            calls.remove(call)
            if not calls:
                del self._called[topic]
