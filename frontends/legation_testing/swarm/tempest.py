"""The tempest: nodes, their databases and the outside, under the faults that were decided on.

It is a simulation whose effects pass through the faults that are under way.  What goes on outside
of the nodes (clients, faults, hints on their way) are programs as well, on a node of their own that
nothing befalls; so they meet the programs of the nodes at every effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

from attrs import define

from legation import Platform
from legation.effects import (
    CallFunction,
    Effect,
    Log,
    Nudge,
    Program,
    Publish,
    Raised,
    Record,
    Sleep,
    TimedOut,
    Transact,
)
from legation.node_state import digest
from legation.store.failures import Busy, CommitLost, StoreFailure, Unavailable
from legation.store.run_keeping import ClaimWaiting, ExpireRuns, ReleaseRun
from legation.store.run_rows import ClaimedRun
from legation.store.run_steering import ContinueRun
from legation.store.runs import AppendEvents, FinishRun, StartRun

from ..faults import Performed
from ..matching import show
from ..node import Node
from ..performing import World, perform, store_entry
from ..scheduling import WAITS, Scheduler, Task, Throw
from .arena import Arena
from .decisions import (
    Away,
    Chance,
    Decision,
    Drain,
    Fail,
    Hints,
    Kill,
    Misbehave,
    Notify,
    PowerCut,
    SetClock,
    SetDatabaseClock,
    Stall,
    Start,
)
from .invariants import BY_UNIT
from .promises import Broken
from .scene import Scene, Script
from .sometimes import Sightings, unit_of

__all__ = ["Machine", "Tempest"]

_LIMIT: Final = 100_000
"""So many effects are more than any storm has that comes to its end."""

_LATE_SECONDS: Final = 1.5
_HANG_SECONDS: Final = 9.0
"""So long takes what hangs and may take any time."""

_THEFT: Final = "a run is taken only from a node that may be dead"
_POISON: Final = Kill(0.0, 0)
_FRESH: Final = (StartRun, ContinueRun)
"""The claims of what has not been tried."""

_FAILURES: Final[dict[str, type[StoreFailure]]] = {
    "busy": Busy,
    "unavailable": Unavailable,
    "lost": CommitLost,
    "undone": CommitLost,
}


@define(eq=False)
class Machine:
    """A place for a node, with a clock of its own: processes come and go on it."""

    number: int
    place: str
    skew_us: int
    node: Node | None = None
    platform: Platform | None = None
    serving: bool = False
    draining: bool = False


@define(eq=False)
class _Armed:
    """A fault that strikes one of the next effects: `kill` a node, or `fail` a unit of work."""

    decision: Kill | PowerCut | Fail
    left: int


class Tempest:
    """The world of one storm.

    Attributes:
        effects: Every effect that the nodes asked for, in order.
        broken: The invariants that were broken.
        executors: The nodes that stored something of a run, by its id.
        tried: How often each run was taken up since it last came further.
        tries: How often that was, at most.
        doubted: The nodes that others may take for dead, by their names.
        quiet: The time behind which nothing is decided any more, in seconds.
        sightings: The states that were reached.
    """

    def __init__(self, arena: Arena, decisions: Iterable[Decision], lease_seconds: float) -> None:
        """Make a world at rest."""
        self.decisions = tuple(decisions)
        self.lease_seconds = lease_seconds
        seeds = [one.seed for one in self.decisions if isinstance(one, Chance)]
        databases = arena.databases
        databases.rewind()
        self.clock = databases.clock
        self.scene = Scene(self.clock)
        self.nodes: list[Node] = []
        self.effects: list[Performed] = []
        self.logs: list[Log] = []
        self.outside = Node("outside", place="")
        order = Random(seeds[0]) if seeds else None
        self.scheduler = Scheduler(self.clock, self._perform, order, _LIMIT)
        chance = Random(seeds[0] if seeds else 0)
        self.world = World(
            self.clock, chance, databases, self.scene.fetch, None, self.scheduler, self.nodes
        )
        self.sightings = Sightings(self.nodes)
        self.broken: list[Broken] = []
        self.executors: dict[str, set[str]] = {}
        self.tries: dict[str, int] = {}
        self.tried: dict[str, int] = {}
        self.doubted: set[str] = set()
        self._at_work: set[tuple[str, int]] = set()
        starts = [one for one in self.decisions if isinstance(one, Start)]
        self.machines = {
            one.node: Machine(one.node, one.place, round(one.skew * 1_000_000)) for one in starts
        }
        self._notifies = any(isinstance(one, Notify) for one in self.decisions)
        self._armed: list[_Armed] = []
        self._away: list[Away] = []
        self._hints: list[str] = []
        self._handlers: dict[type[Any], Callable[[Task[Any], Any], Any]] = {
            Transact: self._transact,
            CallFunction: self._call_function,
            Publish: self._publish,
            Nudge: self._nudge,
            Record: self._record,
            Log: self._log,
        }

    # --- Programs outside of the nodes ----------------------------------------------------------

    def begin(self) -> None:
        """Start the nodes, and whatever was decided to befall them."""
        for machine in self.machines.values():
            self.boot(machine)
        for decision in self.decisions:
            fault = self._fault(decision)
            if fault is not None:
                self.spawn(type(decision).__name__, fault)

    def spawn(self, label: str, program: Program[Any]) -> Task[Any]:
        """Start a program outside of the nodes."""
        return self.scheduler.add(Task(label, self.outside, program, body=None))

    def pass_time(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self.scheduler.run_until(self.clock.elapsed_us + round(seconds * 1_000_000))

    def end(self) -> None:
        """Close every program."""
        for node in (*self.nodes, self.outside):
            self.scheduler.kill(node)

    def is_behind(self) -> bool:
        """Tell whether messages or replies wait."""
        connection = self.world.databases.connection("main")
        return any(
            connection.execute(f"select 1 from {table} where state = 'ready' limit 1").fetchone()
            for table in ("inbox", "outbox")
        )

    def take_failures(self) -> tuple[Exception, ...]:
        """Return what programs raised that reached no caller."""
        tasks = (task for task in self.scheduler.tasks if not task.handed)
        return tuple(task.error for task in tasks if task.error is not None)

    # --- Nodes ----------------------------------------------------------------------------------

    def boot(self, machine: Machine) -> None:
        """Start a process on `machine`."""
        node = Node(f"node-{len(self.nodes) + 1}", place=machine.place, skew_us=machine.skew_us)
        self.nodes.append(node)
        machine.node, machine.serving, machine.draining = node, False, False
        machine.platform = platform = self.scene.platform(self.lease_seconds)
        self.scheduler.add(Task("startup", node, self._serve(machine, platform), body=None))

    def _serve(self, machine: Machine, platform: Platform) -> Program[None]:
        node = machine.node
        yield from platform.startup()
        if node is not None:
            for job in platform.jobs():
                self.world.start_job(job, node)
            machine.serving = True

    def kill(self, machine: Machine) -> None:
        """Kill the process on `machine`, if there is one."""
        node = machine.node
        if node is not None:
            self.doubted.add(node.name)
            node.alive = False
            self.scheduler.kill(node)
        machine.node, machine.platform, machine.serving = None, None, False

    def boot_later(self, machine: Machine, seconds: float) -> None:
        """Start a process on `machine` later, if there is none then."""

        def program() -> Program[None]:
            yield from Sleep(seconds)
            if machine.node is None:
                self.boot(machine)

        self.spawn("boot", program())

    # --- Faults ---------------------------------------------------------------------------------

    def _fault(self, decision: Decision) -> Program[None] | None:
        """Return the program of a fault; None of what is none."""
        match decision:
            case Kill() | PowerCut() | Fail():
                return self._arm(decision)
            case Drain():
                return self._drain(decision)
            case Stall():
                return self._stall(decision)
            case SetClock():
                return self._set_clock(decision)
            case SetDatabaseClock():
                return self._set_database_clock(decision)
            case Away():
                return self._cut_off(decision)
            case Hints():
                return self._disturb_hints(decision)
            case Misbehave():
                return self._misbehave(decision)
            case _:
                return None

    def _arm(self, decision: Kill | PowerCut | Fail) -> Program[None]:
        yield from Sleep(decision.at)
        times = decision.times if isinstance(decision, Fail) else 1
        self._armed += [_Armed(decision, decision.skip) for _ in range(times)]

    def _drain(self, decision: Drain) -> Program[None]:
        yield from Sleep(decision.at)
        machine = self.machines.get(decision.node)
        if machine is None or machine.platform is None or not machine.serving:
            return
        node, platform = machine.node, machine.platform
        machine.draining = True
        if platform.context.followers:
            self.sightings.note("drain met a stream")
        if platform.context.executing:
            self.sightings.note("drain met a run")

        def program() -> Program[None]:
            yield from platform.shutdown(decision.patience, min(1.0, decision.patience))
            self.spawn("exit", self._exit(machine, node, decision.down))

        if node is not None:
            self.doubted.add(node.name)
            self.scheduler.add(Task("shutdown", node, program(), body=None))

    def _exit(self, machine: Machine, node: Node | None, down: float) -> Program[None]:
        yield from Sleep(0.0)
        if machine.node is node:
            self.kill(machine)
            self.boot_later(machine, down)

    def _stall(self, decision: Stall) -> Program[None]:
        yield from Sleep(decision.at)
        machine = self.machines.get(decision.node)
        node = None if machine is None else machine.node
        if node is None or node.stalled:
            return
        if decision.seconds >= self._patience:
            self.doubted.add(node.name)
        self.scheduler.stall(node)
        yield from Sleep(decision.seconds)
        self.scheduler.go_on(node)

    def _set_clock(self, decision: SetClock) -> Program[None]:
        yield from Sleep(decision.at)
        machine = self.machines.get(decision.node)
        if machine is not None:
            machine.skew_us += round(decision.seconds * 1_000_000)
            if machine.node is not None:
                machine.node.skew_us = machine.skew_us

    def _set_database_clock(self, decision: SetDatabaseClock) -> Program[None]:
        yield from Sleep(decision.at)
        skew_us = self.world.databases.skew_us
        skew_us[decision.database] += round(decision.seconds * 1_000_000)

    def _cut_off(self, decision: Away) -> Program[None]:
        yield from Sleep(decision.at)
        machine = None if decision.node is None else self.machines.get(decision.node)
        if machine is not None and machine.node is not None and self._lasts(decision):
            self.doubted.add(machine.node.name)
        self._away.append(decision)
        yield from Sleep(decision.seconds)
        self._away.remove(decision)

    def _lasts(self, decision: Away) -> bool:
        return decision.seconds + decision.hangs >= self._patience

    @property
    def _patience(self) -> float:
        """For how long a node that is not heard of is never taken for dead, in seconds."""
        return self.lease_seconds / 2

    def _disturb_hints(self, decision: Hints) -> Program[None]:
        yield from Sleep(decision.at)
        self._hints.append(decision.kind)
        yield from Sleep(decision.seconds)
        self._hints.remove(decision.kind)

    def _misbehave(self, decision: Misbehave) -> Program[None]:
        yield from Sleep(decision.at)
        waiting = self.scene.troubles.setdefault(decision.who, [])
        waiting += [decision.kind] * decision.times

    def calm(self) -> None:
        """End every fault that is under way; who is dead starts again."""
        self._armed.clear()
        self.scene.troubles.clear()
        for machine in self.machines.values():
            if machine.node is None:
                self.boot(machine)

    # --- Effects --------------------------------------------------------------------------------

    def _perform(self, task: Task[Any], effect: Effect) -> Any:
        node = task.node
        if node is self.outside:
            return perform(self.world, task, effect)
        self.effects.append(Performed(task.label, node.name, effect))
        if self._armed and not effect.immediate and self._strikes(task, effect):
            return WAITS
        handle = self._handlers.get(type(effect))
        return perform(self.world, task, effect) if handle is None else handle(task, effect)

    def _strikes(self, task: Task[Any], effect: Effect) -> bool:
        """Tell whether the node of `task` was killed at this effect."""
        for armed in self._armed:
            decision = armed.decision
            if isinstance(decision, Fail) or not self._means(decision, task.node):
                continue
            armed.left -= 1
            if armed.left < 0:
                self._armed.remove(armed)
                if isinstance(decision, Kill) and decision.after:
                    self._go(task, effect)
                    self.sightings.note("died with the answer unheard")
                if isinstance(decision, PowerCut):
                    self.sightings.note("all nodes died at once")
                self._fell(task.node, decision)
                return True
        return False

    def _go(self, task: Task[Any], effect: Effect) -> None:
        """Perform `effect`, of which nobody hears the answer."""
        handle = self._handlers.get(type(effect))
        if handle is None:
            perform(self.world, task, effect)
        else:
            handle(task, effect)

    def _fell(self, node: Node, decision: Kill | PowerCut) -> None:
        for machine in self.machines.values():
            if machine.node is node or isinstance(decision, PowerCut):
                if machine.node is not None:
                    self.boot_later(machine, decision.down)
                self.kill(machine)

    def _means(self, decision: Kill | PowerCut | Fail, node: Node) -> bool:
        """Tell whether `decision` is about `node`."""
        number = None if isinstance(decision, PowerCut) else decision.node
        if number is None:
            return True
        machine = self.machines.get(number)
        return machine is not None and machine.node is node

    def _transact(self, task: Task[Any], effect: Transact[Any]) -> Any:
        if self._away:
            for away in self._away:
                if away.database == effect.database and self._is_cut_off(away, task.node):
                    return self._answer_late(task, effect, away)
        failure, answer = self._failure(task.node, effect) if self._armed else "", None
        if failure in ("", "lost"):
            answer = perform(self.world, task, effect)
            if not isinstance(answer, Throw):
                self._look(task.node, effect, answer)
        if failure:
            if failure == "lost" and isinstance(unit_of(effect), FinishRun):
                self.sightings.note("commit lost at the end of a run")
            return Throw(_FAILURES[failure]("storm"))
        return answer

    def _is_cut_off(self, away: Away, node: Node) -> bool:
        machine = None if away.node is None else self.machines.get(away.node)
        return away.node is None or (machine is not None and machine.node is node)

    def _answer_late(self, task: Task[Any], effect: Transact[Any], away: Away) -> Any:
        if isinstance(unit_of(effect), FinishRun):
            self.sightings.note("database away while a run ended")
        answer = Throw(Unavailable("storm"))
        if not away.hangs:
            return answer
        return self.scheduler.wait(task, effect, away.hangs, answer)

    def _failure(self, node: Node, effect: Transact[Any]) -> str:
        """Return how the unit fails, empty where it does not."""
        for armed in self._armed:
            decision = armed.decision
            if not isinstance(decision, Fail) or not self._means(decision, node):
                continue
            armed.left -= 1
            if armed.left < 0:
                self._armed.remove(armed)
                silent = decision.kind in ("lost", "undone") and not effect.unit.writes
                return "unavailable" if silent else decision.kind
        return ""

    def _look(self, node: Node, effect: Transact[Any], answer: Any) -> None:
        """Remember what the unit did, and look for what it broke."""
        unit: Any = unit_of(effect)
        kind: Any = unit.__class__
        if kind is AppendEvents or kind is FinishRun:
            self.executors.setdefault(unit.run_id, set()).add(unit.lease.node)
        if unit is not effect.unit:
            answer = answer.result
        self.sightings.look(node, kind, unit, answer)
        self._count_tries(kind, unit, answer)
        self._look_for_theft(kind, unit, answer)
        for invariant in BY_UNIT.get(kind, ()):
            parameters = invariant.parameters(unit, answer)
            connection = self.world.databases.connection(effect.database)
            if parameters and (rows := connection.execute(invariant.select, parameters).fetchall()):
                found = f"{effect.database}, behind {show(unit)}: {[row for (row,) in rows]}"
                self.broken.append(Broken(invariant.promise, found))

    def _look_for_theft(self, kind: Any, unit: Any, answer: Any) -> None:
        """Look whether a run is taken from a node that lives and executes it."""
        if kind is AppendEvents and answer is not None:
            self._at_work.add((unit.run_id, unit.lease.attempt))
        elif kind is ExpireRuns:
            self._at_work -= {(run_id, attempt) for run_id, attempt in unit.runs}
        elif kind is ReleaseRun and answer and unit.lapsed:
            lives = unit.lease.node not in self.doubted
            if lives and (unit.run_id, unit.lease.attempt) in self._at_work:
                found = f"run {unit.run_id} was taken from {unit.lease.node}, who lived"
                self.broken.append(Broken(_THEFT, found))

    def _count_tries(self, kind: Any, unit: Any, answer: Any) -> None:
        """Count how often a run is taken up before a step of it ends."""
        if claim := _claim_of(kind, answer):
            before = 0 if kind in _FRESH else self.tried.get(claim.run_id, 0)
            self.tried[claim.run_id] = before + 1
            self.tries[claim.run_id] = max(before + 1, self.tries.get(claim.run_id, 0))
        elif kind is ContinueRun and answer.kept:  # it waits, and begins anew when it is claimed
            self.tried[unit.run_id] = 0
        elif kind is ReleaseRun and answer and not unit.tried:
            self.tried[unit.run_id] -= 1
        elif kind is AppendEvents and answer is not None and unit.records.progress:
            self.tried[unit.run_id] = 1

    def _call_function(self, task: Task[Any], effect: CallFunction) -> Any:
        seconds = _seconds_of(effect)
        answer = perform(self.world, task, effect)
        match self.scene.take_trouble("tool"):
            case "fails":
                answer = Raised(RuntimeError("storm"))
            case "hangs":
                seconds = min(effect.timeout_seconds, _HANG_SECONDS)
            case "kills":
                self.sightings.note("tool killed its node")
                self._fell(task.node, _POISON)
                return WAITS
            case _:
                pass
        if seconds >= effect.timeout_seconds:
            self.sightings.note("tool took too long")
            seconds, answer = effect.timeout_seconds, TimedOut()
        return self.scheduler.wait(task, effect, seconds, answer) if seconds > 0 else answer

    def _record(self, task: Task[Any], effect: Record) -> None:
        for machine in self.machines.values():
            if machine.node is task.node and machine.platform is not None:
                program = store_entry(machine.platform.write_audit, effect.entry)
                self.scheduler.add(Task("audit", task.node, program, body=None))

    def _log(self, _: Task[Any], effect: Log) -> None:
        self.logs.append(effect)

    # --- Hints ----------------------------------------------------------------------------------

    def _publish(self, task: Task[Any], effect: Publish) -> None:
        if effect.events:
            self._tell(task, effect, self._hear_event)
        else:  # who follows the run on this node is to look for itself
            perform(self.world, task, effect)

    def _nudge(self, task: Task[Any], effect: Nudge) -> None:
        self._tell(task, effect, self._hear_nudge)

    def _tell(self, task: Task[Any], effect: Any, hear: Callable[[Node, Any], None]) -> None:
        """Let this node and others know, as the faults under way have it."""
        kind = self._hints[-1] if self._hints else ""
        if kind == "lost":
            return
        times, later = (2 if kind == "doubled" else 1), _LATE_SECONDS if kind == "late" else 0.0
        if later:
            self.spawn("hint", self._hint(task, effect, later))
        for _ in range(0 if later else times):
            perform(self.world, task, effect)
        if self._notifies and effect.database is not None:
            for _ in range(times):
                self.spawn("notify", self._tell_others(task.node, effect, hear, later))

    def _hint(self, task: Task[Any], effect: Any, seconds: float) -> Program[None]:
        yield from Sleep(seconds)
        if task.node.alive:
            perform(self.world, task, effect)

    def _tell_others(
        self, node: Node, effect: Any, hear: Callable[[Node, Any], None], seconds: float
    ) -> Program[None]:
        yield from Sleep(seconds)
        for other in self.nodes:
            if other.alive and other is not node:
                hear(other, effect)

    def _hear_event(self, node: Node, effect: Publish) -> None:
        for waiting in node.state.hear_event(digest(effect.run_id), effect.events[-1].seq):
            events = node.state.held_events(effect.run_id, waiting.waits_for.after)
            self.scheduler.wake(waiting, events or ())

    def _hear_nudge(self, node: Node, effect: Nudge) -> None:
        if effect.node not in (None, node.name):
            return
        for waiting in node.state.hear_nudge(digest(effect.topic)):
            waiting.catch_up(effect.topic)
            self.scheduler.wake(waiting, None)


def _claim_of(kind: Any, answer: Any) -> ClaimedRun | None:
    """Return the run that a unit claimed, if it did."""
    claim: ClaimedRun | None = None
    if kind is ClaimWaiting:
        claim = answer
    elif kind is FinishRun:
        claim = answer.following
    elif kind is StartRun or kind is ContinueRun:
        claim = answer.claim
    return claim


def _seconds_of(effect: CallFunction) -> float:
    """Return how long a tool takes, or an agent that is a function."""
    if "seconds" in effect.arguments:
        return float(effect.arguments["seconds"])
    return Script.of(effect.arguments["message"]).seconds
