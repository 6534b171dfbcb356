"""The supervisor decides when workers start, retire and are replaced; `prefork` does what it says.

It is a machine of values: no process, no clock and no signal.  So every order of signals and of
workers that come up or end can be enumerated.

**Generations.**  Workers are forked from a configuration, and each configuration that was loaded
is a generation, numbered from 0.  The `target` is what the next worker is forked from.  A
generation has served when a worker of it came up.  A restart whose worker does not come up is
abandoned: the target is the newest other generation that has served, and a worker that ends later
is replaced from that one.  A generation that a newer one superseded before it came up fails for
itself alone.  Only where no generation has served does a worker that cannot start end it all.

**Each worker drains once.**  One that retires after a restart goes on retiring when the end
begins.  A second order to end, and nothing else, breaks off what workers do.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Mapping
from typing import Final, TypeAlias

from attrs import field

from legation.values import define, frozen

__all__ = [
    "BACK_OFF",
    "KILL_SECONDS",
    "LOOK_SECONDS",
    "START_SECONDS",
    "STEADY_SECONDS",
    "Action",
    "Child",
    "Note",
    "Order",
    "Report",
    "Send",
    "Stage",
    "Start",
    "Supervisor",
]

START_SECONDS: Final = 60.0
"""For a worker to come up."""

KILL_SECONDS: Final = 5.0
"""After the end of a drain; a worker that is still there has hung."""

STEADY_SECONDS: Final = 10.0
"""A worker that lived so long did not fail for a reason that it was started with."""

LOOK_SECONDS: Final = 2.0
"""Between two calls of `advance` while silence counts; in a longer gap the parent did not run."""

BACK_OFF: Final = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds until a worker is replaced that ended soon, by how often it did so in a row."""


class Stage(enum.Enum):
    """The stage of a worker's life."""

    STARTING = enum.auto()
    SERVING = enum.auto()
    RETIRING = enum.auto()


class Order(enum.Enum):
    """An order to a worker."""

    DRAIN = enum.auto()
    STOP = enum.auto()  # break off what it does
    KILL = enum.auto()


class Note(enum.Enum):
    """A turning point that others wait for."""

    READY = enum.auto()  # every slot is served for the first time
    STOPPING = enum.auto()  # the end begins: the listeners are to be closed


@frozen
class Start:
    """Start a worker for `slot`, forked from `generation`."""

    slot: int
    generation: int


@frozen
class Send:
    """Send `order` to the worker `pid`."""

    pid: int
    order: Order


@frozen
class Report:
    """Write a line to the log."""

    level: str
    event: str
    fields: Mapping[str, int]


Action: TypeAlias = Start | Send | Report | Note


@define(eq=False)
class Child:
    """One worker.

    Attributes:
        overdue: When it is killed, on the clock of the caller.
    """

    pid: int
    slot: int
    generation: int
    born: float
    stage: Stage = Stage.STARTING
    overdue: float = math.inf

    @property
    def fields(self) -> dict[str, int]:
        """The fields of its line in the log."""
        return {"pid": self.pid, "slot": self.slot}


@define(eq=False)
class Supervisor:
    """The state of the workers of `slots` slots.  Times are seconds on the caller's clock.

    Attributes:
        silence_seconds: A worker that serves is killed when it was not heard for so long.
        target: The generation that the next worker is forked from.
        ending: Nothing is started any more.
        code: The exit code.
    """

    slots: int
    drain_seconds: float
    silence_seconds: float = math.inf
    children: dict[int, Child] = field(factory=dict[int, Child], init=False)
    target: int = field(default=0, init=False)
    ending: bool = field(default=False, init=False)
    code: int = field(default=0, init=False)
    _renew: deque[int] = field(init=False)
    """Slots that get a new worker, one after the other."""
    _due: dict[int, float] = field(factory=dict[int, float], init=False)
    """When a slot whose worker failed gets another."""
    _failures: dict[int, int] = field(factory=dict[int, int], init=False)
    _served: set[int] = field(factory=set[int], init=False)
    """Generations that came up, but for those that were abandoned."""
    _newest: int = field(default=0, init=False)
    _up: bool = field(default=False, init=False)
    _advanced: float = field(default=math.inf, init=False)
    """When `advance` was called last."""

    def __attrs_post_init__(self) -> None:
        self._renew = deque(range(self.slots))

    @property
    def is_over(self) -> bool:
        """Whether the end has come."""
        return self.ending and not self.children

    @property
    def generations(self) -> set[int]:
        """The generations that a worker may still be forked from."""
        return {self.target, *self._served}

    def next_time(self) -> float:
        """Return when `advance` has something to do, if nothing else happens."""
        overdue = (child.overdue for child in self.children.values())
        return min([*self._due.values(), *overdue], default=math.inf)

    def advance(self, now: float) -> list[Action]:
        """Start what is to be started, kill what is overdue.

        The time in which the parent did not run is no silence of a worker: it heard nobody.
        """
        actions: list[Action] = []
        missed, self._advanced = max(0.0, now - self._advanced - LOOK_SECONDS), now
        for child in self._in(Stage.SERVING):
            child.overdue += missed
        for child in self.children.values():
            if child.overdue < now:
                child.overdue = math.inf
                actions.append(Report("error", "worker_killed", child.fields))
                actions.append(Send(child.pid, Order.KILL))
        for slot in [slot for slot, due in self._due.items() if due <= now]:
            del self._due[slot]
            self._renew.append(slot)
        if self._renew and not self.ending and not self._in(Stage.STARTING):
            actions.append(Start(self._renew.popleft(), self.target))
        return actions

    def add(self, pid: int, start: Start, now: float) -> Child:
        """Take note of a worker that was started."""
        child = Child(pid, start.slot, start.generation, now, overdue=now + START_SECONDS)
        self.children[pid] = child
        return child

    def reload(self) -> int:
        """Replace all workers from a new generation, and return its number.

        Slots that nobody serves come first.
        """
        self._newest += 1
        self.target = self._newest
        self._due.clear()
        self._renew = deque(sorted(range(self.slots), key=self._is_served))
        return self.target

    def end(self, now: float) -> list[Action]:
        """Begin the end; the second time, break off what the workers do."""
        if self.ending:
            return [Send(pid, Order.STOP) for pid in self.children]
        self.ending = True
        actions: list[Action] = [Note.STOPPING]
        for child in self.children.values():
            if child.stage is not Stage.RETIRING:
                actions.append(self._retire(child, now))
        return actions

    def come_up(self, pid: int, now: float) -> list[Action]:
        """Let a worker serve that came up; its predecessor may go."""
        child = self.children[pid]
        if child.stage is not Stage.STARTING:
            return []  # it was ordered to end meanwhile
        predecessors = [other for other in self._in(Stage.SERVING) if other.slot == child.slot]
        actions: list[Action] = [self._retire(other, now) for other in predecessors]
        child.stage, child.overdue = Stage.SERVING, now + self.silence_seconds
        self._served.add(child.generation)
        if all(other.generation == self.target for other in self._in(Stage.SERVING)):
            self._served = {self.target}
        actions.append(Report("info", "worker_serves", child.fields))
        if not self._up and all(map(self._is_served, range(self.slots))):
            self._up = True
            actions.append(Note.READY)
        return actions

    def hear(self, pid: int, now: float) -> None:
        """Take note that the event loop of a worker turns."""
        child = self.children[pid]
        if child.stage is Stage.SERVING:
            child.overdue = now + self.silence_seconds

    @property
    def answers(self) -> bool:
        """Whether a worker serves, or the last ones end in order."""
        return self.ending or bool(self._in(Stage.SERVING))

    def remove(self, pid: int, code: int, now: float) -> list[Action]:
        """Decide what follows from the end of a worker."""
        child = self.children.pop(pid)
        if child.stage is Stage.RETIRING:
            return []
        fields = {**child.fields, "code": code}
        report = Report("error", "worker_ended", fields)
        if child.stage is Stage.SERVING:
            self._replace(child, now)
            return [report]
        if child.generation != self.target:
            return [report]  # its slot waits for a worker of the generation that superseded it
        return [report, *self._start_failed(child, fields, now)]

    def _start_failed(self, child: Child, fields: dict[str, int], now: float) -> list[Action]:
        former = max(self._served - {child.generation}, default=None)
        proven = self._up and child.generation in self._served and not self._is_served(child.slot)
        if former is None and not self._up:
            self.code = fields["code"] if fields["code"] > 0 else 1
            return self.end(now)
        if proven or former is None:
            self._replace(child, now)
            return []
        self.target = former
        self._served.discard(child.generation)
        self._renew = deque(slot for slot in self._renew if not self._is_served(slot))
        self._replace(child, now)
        return [Report("error", "restart_abandoned", fields)]

    def _replace(self, child: Child, now: float) -> None:
        """Start another worker in the slot of `child` after a while, unless one is to come."""
        starting = any(other.slot == child.slot for other in self._in(Stage.STARTING))
        if starting or child.slot in self._renew or self._is_served(child.slot):
            return
        steady = now - child.born >= STEADY_SECONDS
        failures = 0 if steady else self._failures.get(child.slot, 0)
        self._failures[child.slot] = failures + 1
        self._due[child.slot] = now + BACK_OFF[min(failures, len(BACK_OFF) - 1)]

    def _retire(self, child: Child, now: float) -> Send:
        overdue = now + self.drain_seconds + KILL_SECONDS
        started = child.stage is Stage.SERVING
        child.stage = Stage.RETIRING
        child.overdue = overdue if started else min(child.overdue, overdue)
        return Send(child.pid, Order.DRAIN)

    def _in(self, stage: Stage) -> list[Child]:
        return [child for child in self.children.values() if child.stage is stage]

    def _is_served(self, slot: int) -> bool:
        return any(child.slot == slot for child in self._in(Stage.SERVING))
