"""What one process holds in memory: nudges and the newest events of runs.

All of it is hints.  A node that is killed loses them, and a program must not need them.
"""

from __future__ import annotations

from attrs import define, field

from legation.effects import NextEvents, Publish
from legation.store.run_rows import StoredEvent

__all__ = ["Node"]


@define(eq=False)
class Node:
    """One process among those that share the databases.

    `events_held` bounds the events it keeps of one run: who is further behind must ask the
    database.
    """

    name: str
    events_held: int = 1024
    alive: bool = True
    nudges: int = 0  # of any topic, so far
    _nudged: dict[str, int] = field(factory=dict[str, int], init=False)
    _events: dict[str, tuple[StoredEvent, ...]] = field(
        factory=dict[str, tuple[StoredEvent, ...]], init=False
    )

    def nudge(self, topic: str) -> None:
        """Remember that `topic` was nudged."""
        self.nudges += 1
        self._nudged[topic] = self.nudges

    def nudged_since(self, topic: str, seen: int) -> bool:
        """Tell whether `topic` was nudged after the first `seen` nudges."""
        return self._nudged.get(topic, 0) > seen

    def publish(self, effect: Publish) -> None:
        """Keep the events that follow those held; after a gap, only what is behind it."""
        held = self._events.get(effect.run_id, ())
        for event in effect.events:
            if not held or event.seq == held[-1].seq + 1:
                held = (*held, event)
            elif event.seq > held[-1].seq:
                held = (event,)
        self._events[effect.run_id] = held[-self.events_held :]

    def next_events(self, effect: NextEvents) -> tuple[StoredEvent, ...] | None:
        """Return the answer to `effect`, or None when nothing behind `after` is known yet."""
        held = self._events.get(effect.run_id, ())
        if not held or held[-1].seq <= effect.after:
            return None
        if held[0].seq > effect.after + 1:
            return ()
        return tuple(event for event in held if event.seq > effect.after)
