"""The supervisor of workers: every order of signals, restarts that fail, and workers that die."""

from __future__ import annotations

import itertools
import math
import signal
from collections import Counter
from collections.abc import Sequence
from typing import Final

import pytest
from attrs import define, field

from legation_server.orders import ALONE_ORDERS, STOP_SIGNAL, WORKER_ORDERS, Obey
from legation_server.supervisor import (
    BACK_OFF,
    START_SECONDS,
    Action,
    Note,
    Order,
    Report,
    Send,
    Stage,
    Start,
    Supervisor,
)

STARTS: Final = 0.3
"""Seconds for a worker to come up."""
FAILS: Final = 0.2
"""Seconds until a worker fails that was forked from a broken configuration."""
RUNS: Final = 2.5
"""Seconds that a run takes.  Every worker that serves begins one before each signal."""
DRAIN: Final = 30.0

GAPS: Final = (0.0, 0.05, 0.25, 2.0)
FIRST: Final = (0.1, 0.4, 3.0)
"""When the first signal comes: before a worker serves, before all do, later."""
WORDS: Final = ("reload", "reload broken", "end", "death")


@define(eq=False)
class Process:
    """A worker as the operating system has it."""

    slot: int
    generation: int
    ready_at: float
    exits_at: float = math.inf
    code: int = 0
    run_until: float = 0.0
    dies: bool = False

    def obey(self, order: Order, now: float) -> None:
        if order is Order.DRAIN and now < self.ready_at:
            self.exits_at, self.code = now, -signal.SIGTERM  # it has no handlers yet
        elif order is Order.DRAIN:
            self.exits_at = max(now, self.run_until)
        else:
            self.exits_at = now


@define(eq=False)
class World:
    """A parent whose processes, clock and signals are values."""

    supervisor: Supervisor
    broken: set[int] = field(factory=set[int])
    now: float = 0.0
    processes: dict[int, Process] = field(factory=dict[int, Process])
    notes: list[Note] = field(factory=list[Note])
    events: list[str] = field(factory=list[str])
    lost: int = 0
    served: set[int] = field(factory=set[int])
    pids: itertools.count[int] = field(factory=lambda: itertools.count(1))

    def act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Start):
                self.start(action)
            elif isinstance(action, Send):
                self.processes[action.pid].obey(action.order, self.now)
            elif isinstance(action, Report):
                self.events.append(action.event)
            else:
                self.notes.append(action)

    def start(self, start: Start) -> None:
        pid = next(self.pids)
        process = Process(start.slot, start.generation, self.now + STARTS)
        if start.generation in self.broken:
            process.ready_at, process.exits_at, process.code = math.inf, self.now + FAILS, 2
        self.processes[pid] = process
        self.supervisor.add(pid, start, self.now)

    def advance(self, until: float) -> None:
        """Let everything happen that happens before `until`."""
        while True:
            self.step()
            due = [self.supervisor.next_time()]
            for pid, process in self.processes.items():
                due.append(process.exits_at)
                if self.supervisor.children[pid].stage is Stage.STARTING:
                    due.append(process.ready_at)
            if not min(due) < until:
                break
            self.now = max(self.now, min(due))
        self.now = until

    def step(self) -> None:
        for pid in [pid for pid, each in self.processes.items() if each.exits_at <= self.now]:
            process = self.processes.pop(pid)
            self.lost += not process.dies and process.run_until > self.now
            self.act(self.supervisor.remove(pid, process.code, self.now))
        for pid, process in self.processes.items():
            starting = self.supervisor.children[pid].stage is Stage.STARTING
            if starting and process.ready_at <= self.now:
                self.act(self.supervisor.come_up(pid, self.now))
        self.act(self.supervisor.advance(self.now))
        self.check()

    def check(self) -> None:
        stages = Counter(child.stage for child in self.supervisor.children.values())
        assert stages[Stage.STARTING] <= 1
        serving = [each.slot for each in self.supervisor.children.values() if is_serving(each)]
        assert len(serving) == len(set(serving))
        if not self.supervisor.ending and "death" not in self.events:
            assert self.served <= {*serving}, "a slot that was served is not served any more"
        self.served |= {*serving}

    def serving(self) -> dict[int, int]:
        """Return the generation that serves, by slot."""
        children = self.supervisor.children.values()
        return {child.slot: child.generation for child in children if is_serving(child)}

    def do(self, word: str) -> None:
        children = self.supervisor.children
        if word == "end":
            self.act(self.supervisor.end(self.now))
        elif word == "death":
            self.events.append("death")
            serving = (p for pid, p in self.processes.items() if is_serving(children[pid]))
            for process in itertools.islice(serving, 1):
                process.exits_at, process.code, process.dies = self.now, -signal.SIGKILL, True
        elif not self.supervisor.ending:
            generation = self.supervisor.reload()
            if word == "reload broken":
                self.broken.add(generation)


def is_serving(child: object) -> bool:
    return getattr(child, "stage", None) is Stage.SERVING


def played(slots: int, first: float, words: Sequence[str], gaps: Sequence[float]) -> World:
    """Return the world long after `words`, with runs under way at each."""
    world = World(Supervisor(slots, DRAIN))
    world.advance(first)
    for word, gap in zip(words, (*gaps, 120.0), strict=True):
        for pid, process in world.processes.items():
            if is_serving(world.supervisor.children[pid]):
                process.run_until = world.now + RUNS
        world.do(word)
        world.step()
        world.advance(world.now + gap)
    return world


SEQUENCES: Final = [
    *itertools.product(WORDS, repeat=1),
    *itertools.product(WORDS, repeat=2),
    *itertools.product(WORDS, repeat=3),
]


@pytest.mark.enumeration
@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_no_run_is_lost_that_one_order_to_end_would_have_kept(slots: int, first: float) -> None:
    for words in SEQUENCES:
        for gaps in itertools.product(GAPS, repeat=len(words) - 1):
            world = played(slots, first, words, gaps)
            told = (slots, first, words, gaps)

            if words.count("end") < 2:
                assert world.lost == 0, told
            if "end" in words:
                assert world.supervisor.is_over, told
                assert world.notes.count(Note.STOPPING) == 1, told
            else:
                check_served(world, words, told)


def check_served(world: World, words: Sequence[str], told: object) -> None:
    """Check that every slot is served, by what can be served, also after each worker died."""
    slots = {*range(world.supervisor.slots)}
    generations = world.serving()
    assert generations.keys() == slots, told
    assert not world.broken & {*generations.values()}, told
    assert world.notes == [Note.READY], told
    if words[-1] == "reload":
        assert {*generations.values()} == {world.supervisor.target}, told
    world.events.append("death")
    for process in world.processes.values():
        process.exits_at, process.code = world.now, 1
    world.advance(world.now + 120.0)
    assert world.serving().keys() == slots, told
    assert not world.broken & {*world.serving().values()}, told


def test_a_worker_that_retires_already_is_not_ordered_again_when_the_end_begins() -> None:
    supervisor = Supervisor(1, DRAIN)
    old, new = Start(0, 0), Start(0, 1)
    supervisor.add(1, old, 0.0)
    supervisor.come_up(1, 0.0)
    supervisor.reload()
    supervisor.add(2, new, 1.0)

    assert supervisor.come_up(2, 1.0)[0] == Send(1, Order.DRAIN)
    assert supervisor.end(2.0) == [Note.STOPPING, Send(2, Order.DRAIN)]
    assert supervisor.end(3.0) == [Send(1, Order.STOP), Send(2, Order.STOP)]


def test_two_broken_restarts_in_a_row_leave_the_generation_that_serves() -> None:
    world = played(2, 3.0, ["reload broken", "reload broken"], [0.0])

    assert world.supervisor.target == 0
    assert world.events.count("restart_abandoned") == 1


def test_a_broken_restart_does_not_end_the_good_one_behind_it() -> None:
    world = played(2, 3.0, ["reload broken", "reload"], [0.05])

    assert world.serving() == {0: 2, 1: 2}
    assert "restart_abandoned" not in world.events


def test_a_broken_restart_before_all_workers_are_up_is_abandoned() -> None:
    world = played(3, 0.4, ["reload broken"], [])

    assert world.serving() == {0: 0, 1: 0, 2: 0}
    assert world.events.count("restart_abandoned") == 1
    assert world.notes == [Note.READY]


@pytest.mark.parametrize(("code", "ends"), [(2, 2), (-9, 1), (0, 1)])
def test_a_worker_that_cannot_start_ends_what_never_served(code: int, ends: int) -> None:
    supervisor = Supervisor(2, DRAIN)
    supervisor.add(1, Start(0, 0), 0.0)
    actions = supervisor.remove(1, code, 0.1)

    assert actions[1:] == [Note.STOPPING]
    assert (supervisor.is_over, supervisor.code) == (True, ends)


def test_a_worker_that_does_not_come_up_in_time_is_killed() -> None:
    supervisor = Supervisor(1, DRAIN)
    (start,) = supervisor.advance(0.0)
    assert isinstance(start, Start)
    supervisor.add(1, start, 0.0)

    assert supervisor.advance(START_SECONDS) == []
    killed = supervisor.advance(START_SECONDS + 1)
    assert killed == [Report("error", "worker_killed", {"pid": 1, "slot": 0}), Send(1, Order.KILL)]
    assert supervisor.next_time() == math.inf


def test_a_worker_that_ends_again_and_again_is_replaced_ever_later() -> None:
    world = World(Supervisor(1, DRAIN))
    pauses: list[float] = []
    for _ in range(len(BACK_OFF) + 1):
        world.advance(world.now + 1.0)
        world.do("death")
        world.step()
        pauses.append(round(world.supervisor.next_time() - world.now, 3))
        world.advance(world.now + pauses[-1])
        world.step()

    assert pauses == [*BACK_OFF, BACK_OFF[-1]]


def test_what_is_forked_from_is_kept_as_long_as_it_may_be_needed() -> None:
    assert played(2, 3.0, ["reload"], []).supervisor.generations == {1}
    assert played(2, 3.0, ["reload broken"], []).supervisor.generations == {0}


@pytest.mark.parametrize("orders", [ALONE_ORDERS, WORKER_ORDERS], ids=["alone", "worker"])
def test_every_signal_has_its_order_in_both_states(orders: dict[tuple[int, bool], Obey]) -> None:
    numbers = {number for number, _ in orders}

    assert orders.keys() == {*itertools.product(numbers, (False, True))}


def test_what_serves_alone_stops_at_the_second_order_to_end_only() -> None:
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    for numbers in itertools.product(signals, repeat=4):
        done: list[Obey] = []
        draining = False
        for number in numbers:
            done.append(ALONE_ORDERS[number, draining])
            draining = draining or done[-1] is Obey.DRAIN
        ends = sum(number != signal.SIGHUP for number in numbers)

        assert done.count(Obey.DRAIN) == min(ends, 1)
        assert done.count(Obey.STOP) == max(ends - 1, 0)


def test_a_worker_stops_at_the_order_of_its_parent_alone() -> None:
    stops = {number for (number, _), done in WORKER_ORDERS.items() if done is Obey.STOP}

    assert stops == {STOP_SIGNAL}
