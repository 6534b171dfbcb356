"""The state of a node: the events of runs and the nudges that it heard of, and who waits for more.

Hints only.  Everything is in memory and bounded, so that a hint may be lost at any time; whoever
waits here asks the database in the end.  What other nodes tell comes by hash, and interrupts
nothing: whoever waits for work, or for an event, looks into the database a little sooner.

The state has no clock and does not wait.  A method takes what happened and returns who is to be
woken; a host, or a simulation, does that.  A waiter is whatever they need to know one by; it waits
in one place at a time.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final, Generic, TypeAlias, TypeVar

from attrs import field

from .store.run_rows import StoredEvent
from .values import define

__all__ = [
    "CHARACTERS",
    "ENDED_RUNS",
    "EVENTS_OF_A_RUN",
    "REMEMBERED_SECONDS",
    "RUNS",
    "TOPICS",
    "NodeState",
    "digest",
]

W = TypeVar("W", bound=Hashable)

EVENTS_OF_A_RUN: Final = 1_024
CHARACTERS: Final = 32 << 20
RUNS: Final = 4_096
ENDED_RUNS: Final = 64
"""How many runs that have ended are held: until those who follow them have taken the last events.
Whoever comes later asks the database.  More of them would be memory that nobody reads."""

TOPICS: Final = 4_096
REMEMBERED_SECONDS: Final = 60.0

_Place: TypeAlias = tuple[str, str]
"""What is waited for, and under which name."""


@lru_cache(maxsize=TOPICS)
def digest(name: str) -> str:
    """Return what a topic or the id of a run is called between nodes: 12 characters.

    Who waits for something and who tells it both ask for it.
    """
    return urlsafe_b64encode(blake2b(name.encode(), digest_size=9).digest()).decode()


@define
class _Feed:
    """The last events of one run, in order and without gap.

    Attributes:
        gap_after: The number behind which a gap was told last.
    """

    events: deque[StoredEvent] = field(factory=deque[StoredEvent])
    characters: int = 0
    heard: float = 0.0
    gap_after: int = -1

    def extend(self, events: Sequence[StoredEvent], most: int) -> None:
        """Append what is new, and keep `most`; an event out of order starts the feed afresh."""
        kept = self.events
        last = kept[-1].seq if kept else events[0].seq - 1
        for event in events:
            seq = event.seq
            if seq <= last:
                continue
            if seq > last + 1:
                kept.clear()
                self.characters = 0
            last = seq
            kept.append(event)
            self.characters += len(event.data)
            if len(kept) > most:
                self.characters -= len(kept.popleft().data)

    def behind(self, after: int) -> tuple[StoredEvent, ...] | None:
        """Return the events behind `after`; empty over a gap, None when there are none yet."""
        if not self.events or self.events[-1].seq <= after:
            return None
        first = self.events[0].seq
        if first > after + 1:
            return ()
        return tuple(self.events)[after + 1 - first :]


def _put(numbers: OrderedDict[str, int], key: str, number: int) -> None:
    """Note `number`, and forget what was noted longest ago."""
    numbers[key] = number
    numbers.move_to_end(key)
    if len(numbers) > TOPICS:
        numbers.popitem(last=False)


@define(eq=False)
class NodeState(Generic[W]):
    """Events by run, nudges by topic, and waiters under the `digest` of either.

    Attributes:
        events_of_a_run: So many are kept; who is further behind asks the database.
        sequence: Nudges so far, of any topic.
        followers: Waiters for an event.
    """

    events_of_a_run: int = EVENTS_OF_A_RUN
    sequence: int = field(default=0, init=False)
    followers: int = field(default=0, init=False)
    _feeds: OrderedDict[str, _Feed] = field(factory=OrderedDict[str, _Feed], init=False)
    _ended: deque[str] = field(factory=deque[str], init=False)
    _characters: int = field(default=0, init=False)
    _nudged: OrderedDict[str, int] = field(factory=OrderedDict[str, int], init=False)
    _nudged_elsewhere: OrderedDict[str, int] = field(factory=OrderedDict[str, int], init=False)
    _ahead: OrderedDict[str, int] = field(factory=OrderedDict[str, int], init=False)
    _waiting: dict[_Place, dict[W, None]] = field(factory=dict[_Place, dict[W, None]], init=False)
    _places: dict[W, _Place] = field(factory=dict[W, _Place], init=False)

    @property
    def runs_held(self) -> int:
        """Runs whose latest events are held."""
        return len(self._feeds)

    # --- Events ---------------------------------------------------------------------------------

    def publish(self, run_id: str, events: Sequence[StoredEvent], now: float) -> tuple[W, ...]:
        """Keep `events` for a while, from `now` on in seconds; return who follows `run_id`.

        Where there are none, nothing is kept, and whoever is woken asks the database.
        """
        if events:
            feed = self._feeds.get(run_id)
            if feed is None:
                feed = self._feeds[run_id] = _Feed()
            before = feed.characters
            feed.extend(events, self.events_of_a_run)
            feed.heard = now
            self._characters += feed.characters - before
            self._feeds.move_to_end(run_id)
            if events[-1].final:
                self._ended.append(run_id)
            self._forget(now - REMEMBERED_SECONDS)
        return self._take(("event", digest(run_id))) if self.followers else ()

    def hear_event(self, key: str, seq: int) -> tuple[W, ...]:
        """Note that another node stored the events up to `seq` of the run with this digest."""
        _put(self._ahead, key, seq)
        return self._take(("event", key))

    def _forget(self, stale: float) -> None:
        """Drop the run that ended longest ago, unless it was continued behind a pause.

        Drop as well the runs heard of longest ago, but never the last.
        """
        if len(self._ended) > ENDED_RUNS:
            ended = self._ended.popleft()
            feed = self._feeds.get(ended)
            if feed is not None and feed.events[-1].final:
                del self._feeds[ended]
                self._characters -= feed.characters
        while len(self._feeds) > 1:
            oldest = next(iter(self._feeds.values()))
            crowded = len(self._feeds) > RUNS or self._characters > CHARACTERS
            if not crowded and oldest.heard >= stale:
                return
            self._feeds.popitem(last=False)
            self._characters -= oldest.characters

    def held_events(self, run_id: str, after: int) -> tuple[StoredEvent, ...] | None:
        """Return the events behind `after`; empty over a gap, None when there are none yet."""
        feed = self._feeds.get(run_id)
        return None if feed is None else feed.behind(after)

    def next_events(self, run_id: str, after: int, waiter: W) -> tuple[StoredEvent, ...] | None:
        """Return the events behind `after`; None where `waiter` is woken by the next.

        Nothing where another node has told of them, or where some between are not held any more;
        for one time, since neither need be so in the database.
        """
        feed = self._feeds.get(run_id)
        events = None if feed is None else feed.behind(after)
        if feed is not None and events == ():
            events = None if feed.gap_after == after else ()
            feed.gap_after = after
        if events is None:
            key = digest(run_id)
            if self._ahead.pop(key, 0) > after:
                return ()
            place = ("event", key)
            self._waiting.setdefault(place, {})[waiter] = None
            self._places[waiter] = place
            self.followers += 1
        return events

    # --- Nudges ---------------------------------------------------------------------------------

    def nudge(self, topic: str) -> tuple[W, ...]:
        """Note a nudge; return who waits under `topic`, and who is to be interrupted by it."""
        self.sequence += 1
        _put(self._nudged, topic, self.sequence)
        woken: tuple[W, ...] = ()
        for place in (("nudge", digest(topic)), ("interruption", topic)):
            if place in self._waiting:
                woken += self._take(place)
        return woken

    def hear_nudge(self, key: str) -> tuple[W, ...]:
        """Note that another node did something for the topic with this digest."""
        self.sequence += 1
        _put(self._nudged_elsewhere, key, self.sequence)
        return self._take(("nudge", key))

    def await_nudge(self, topic: str, since: int, waiter: W) -> bool:
        """Tell whether a nudge came after `since`, a value of `sequence`; else `waiter` is woken.

        Nudges of other nodes count as well.
        """
        key = digest(topic)
        elsewhere = self._nudged_elsewhere
        if self._nudged.get(topic, 0) > since or elsewhere.get(key, 0) > since:
            return True
        place = ("nudge", key)
        self._waiting.setdefault(place, {})[waiter] = None
        self._places[waiter] = place
        return False

    def await_interruption(self, topic: str, since: int, waiter: W) -> bool:
        """Tell whether a nudge on this node came after `since`; else `waiter` is woken by one."""
        if self._nudged.get(topic, 0) > since:
            return True
        place = ("interruption", topic)
        self._waiting.setdefault(place, {})[waiter] = None
        self._places[waiter] = place
        return False

    # --- Waiters --------------------------------------------------------------------------------

    def leave(self, waiter: W) -> None:
        """Let `waiter` wait no longer, if it does."""
        place = self._places.pop(waiter, None)
        if place is not None:
            waiters = self._waiting[place]
            del waiters[waiter]
            self.followers -= place[0] == "event"
            if not waiters:
                del self._waiting[place]

    def _take(self, place: _Place) -> tuple[W, ...]:
        """Return who waits in `place`, in the order of their coming; they wait no longer."""
        waiters = tuple(self._waiting.pop(place, ()))
        if place[0] == "event":
            self.followers -= len(waiters)
        for waiter in waiters:
            del self._places[waiter]
        return waiters
