"""Programs run for real but for time, chance and the network.

The transactions are those of a real SQLite; the clock is virtual, random bytes come from a seed,
and what is fetched is answered by the test.  Everything happens in one thread, so that the same
seeds give the same effects in the same order, to the byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Self, TypedDict, TypeVar, Unpack

from legation.effects import CallFunction, Effect, Job, Log, Program

from .awaits import AwaitWatch
from .clock import NEW_YEAR_2026, Clock
from .databases import MEMORY, Databases
from .faults import Crashed, Performed, PlannedFault
from .matching import Expected
from .misuse import Misuse, check_program
from .node import Node
from .performing import Fetcher, World, WriteAudit, perform, refuse_connections
from .points import Point
from .scheduling import Scheduler, Task, Throw
from .surprises import find_surprises

__all__ = ["FaultOptions", "ProgramOptions", "Simulation"]

R = TypeVar("R")


class FaultOptions(TypedDict, total=False):
    """The options of a planned failure.

    Attributes:
        after: Perform the effect, and lose its answer alone.
        skip: How many of those meant succeed before.
        times: How many fail, 1 if it is not given; all that follow if None.
    """

    after: bool
    skip: int
    times: int | None


class ProgramOptions(TypedDict, total=False):
    """The options of a program: its request's body, None for a job; and its node."""

    body: bytes | None
    node: Node | None


class Simulation:
    """Nodes that share databases and a clock, with their programs.

    One node is there from the start.  What a program raises comes out of `run`, or, for those that
    nobody ran by name, out of `check`, which `with` calls at the end.

    Attributes:
        effects: Every effect that was asked for, in order.
        awaited: What an author's coroutine awaited, by the number of the effect that called it;
            noted where `counts_awaits` is set.
        counts_awaits: Whether that is noted; it slows down functions of the author's.
        nodes: Every process there has been, in order; some are dead.
        clock: The clock that `Now` reads.
        audit: What programs recorded.
        logs: What programs logged, and what the driver said when a unit failed.
    """

    def __init__(
        self,
        databases: Mapping[str, str] | Databases | None = None,
        *,
        start_us: int = NEW_YEAR_2026,
        seed: int = 0,
        order: int | None = None,
        fetch: Fetcher = refuse_connections,
        write_audit: WriteAudit | None = None,
        limit: int = 1_000_000,
    ) -> None:
        """Make a world at rest.

        Args:
            databases: Name to path of a SQLite file, or `:memory:`; one `main` in memory if None.
            start_us: Where the clock starts, in microseconds since the epoch.
            seed: Of the bytes that programs draw.
            order: Of the interleaving; first in, first out if None.
            fetch: Called with each `Fetch` and each `OpenStream`.
            write_audit: The program that stores what was recorded, run for each `Record`.
            limit: Of the effects in one call; who needs more never comes to an end.
        """
        self.effects: list[Performed] = []
        self.nodes: list[Node] = []
        self._faults: list[PlannedFault] = []
        self._point: Point | None = None
        self._crash_at = 0
        self.counts_awaits = False
        self.awaited: dict[int, tuple[str, ...]] = {}
        self._halted: list[AwaitWatch] = []
        clock = databases.clock if isinstance(databases, Databases) else Clock(start_us)
        ordered = None if order is None else Random(order)
        self._scheduler = Scheduler(clock, self._perform, ordered, limit)
        if isinstance(databases, Databases):
            stores = databases
        else:
            paths = {"main": MEMORY} if databases is None else databases
            stores = Databases(paths, self._keep_log, clock)
        self._owns = not isinstance(databases, Databases)
        self._world = World(
            clock, Random(seed), stores, fetch, write_audit, self._scheduler, self.nodes
        )
        self.clock, self.audit, self.logs = clock, self._world.audit, self._world.logs
        self.add_node()

    def open(self) -> None:
        """Open the databases."""
        for name in self._world.databases.names:
            self._world.databases.connection(name)

    def close(self) -> None:
        """Shut down: close every program and the databases, those in memory for good."""
        for node in self.nodes:
            self._scheduler.kill(node)
        while self._halted:
            self._halted.pop().close()
        if self._owns:
            self._world.databases.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()
        if error is None:
            self.check()

    # Programs

    def add_node(self) -> Node:
        """Start another process on the same databases."""
        node = Node(f"node-{len(self.nodes) + 1}")
        self.nodes.append(node)
        return node

    def start(
        self, program: Program[R], label: str | None = None, **options: Unpack[ProgramOptions]
    ) -> Task[R]:
        """Put `program` in the line; `body` is that of its request, None for a job.

        Its node is the first that lives, unless `node` names another.

        Raises:
            Misuse: It is no program.
        """
        check_program(program, "Simulation.start")
        name: str = getattr(program, "__name__", "program") if label is None else label
        node = options.get("node") or self._live_node()
        return self._scheduler.add(Task(name, node, program, options.get("body", b"")))

    def start_job(self, job: Job, node: Node | None = None) -> Task[object]:
        """Start `job` as `Spawn` does."""
        return self._world.start_job(job, node or self._live_node())

    def run(
        self, program: Program[R], label: str | None = None, **options: Unpack[ProgramOptions]
    ) -> R:
        """Start `program` and go on until it ends; other programs have their turns meanwhile."""
        return self.finish(self.start(program, label, **options))

    def finish(self, task: Task[R]) -> R:
        """Go on until `task` ends; return its result.

        Raises:
            Deadlock: It waits for what cannot come.
            Crashed: A planned crash came first.
        """
        self._scheduler.run(lambda: task.done)
        return task.result()

    def join(self) -> None:
        """Go on until every program has ended."""
        self._scheduler.run(lambda: all(task.done for task in self._scheduler.tasks))

    def settle(self) -> None:
        """Go on until nobody can without time passing."""
        self._scheduler.run_until(self.clock.elapsed_us)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass, with everything that falls due meanwhile."""
        self._scheduler.run_until(self.clock.elapsed_us + round(seconds * 1_000_000))

    def cancel(self, task: Task[Any]) -> None:
        """Close the program of `task` where it stands, as when its client has gone."""
        self._scheduler.drop(task)

    def find_running(self) -> tuple[Task[Any], ...]:
        """Return the programs that have not ended, in the order of their start."""
        return tuple(task for task in self._scheduler.tasks if not task.done)

    def take_failures(self) -> tuple[Exception, ...]:
        """Return what programs raised that reached no caller yet, and count it as expected."""
        failed = [t for t in self._scheduler.tasks if t.error is not None and not t.handed]
        for task in failed:
            task.handed = True
        return tuple(task.error for task in failed if task.error is not None)

    def take_errors(self) -> tuple[Exception, ...]:
        """Return what the author's code raised and callers were not told, and count it as expected.

        That is what tools, functions, models and handlers raised and no test planned.
        """
        planned = [fault.outcome for fault in self._faults]
        errors, self._world.errors[:] = self._world.errors[:], ()
        return find_surprises(errors, planned)

    def check(self) -> None:
        """Raise what programs raised that reached no caller yet."""
        failures = self.take_failures()
        if len(failures) > 1:
            raise ExceptionGroup("several programs failed", failures)
        if failures:
            raise failures[0]

    def _live_node(self) -> Node:
        for node in self.nodes:
            if node.alive:
                return node
        raise Misuse("every node was killed; restart() starts another")

    # Faults

    def fail_at(
        self,
        which: Expected | int,
        outcome: Any,
        **options: Unpack[FaultOptions],
    ) -> PlannedFault:
        """Plan that an effect is not performed and ends in `outcome`; return the plan.

        Args:
            which: What effects are meant, or a number: the n-th of all from now on.
            outcome: Thrown if it is an exception, else the answer.
            options: See `FaultOptions`.
        """
        fault = PlannedFault(_any_effect if isinstance(which, int) else which, outcome, **options)
        if isinstance(which, int):
            fault.skip += which - 1
        self._faults.append(fault)
        return fault

    def crash_at(self, point: int | Point) -> None:
        """Plan that the node which asks for an effect from now on is killed there, or stalls.

        A number is that of the effect, which is not performed.  Every program of the node is
        closed, its memory is lost, and `Crashed` comes out of the call that drove it.  Other nodes
        go on with the next call.  A `Point` says also that the effect is performed, or begun.
        """
        self._point = Point.of(point)
        self._crash_at = len(self.effects) + self._point.effect

    def forget_crash(self) -> None:
        """Plan no crash any more."""
        self._crash_at = 0

    def crash(self, node: Node | None = None) -> None:
        """Kill `node`, or all of them, now."""
        for victim in self.nodes if node is None else [node]:
            victim.alive = False
            self._scheduler.kill(victim)
        if not any(node.alive for node in self.nodes):
            self._world.databases.close_files()

    def stall(self, node: Node) -> None:
        """Give no program of `node` a turn until it may `go_on`; time passes for them as well."""
        self._scheduler.stall(node)

    def go_on(self, node: Node) -> None:
        """Let the programs of a stalled node go on where they stand."""
        self._scheduler.go_on(node)

    def restart(self, crash_at: int | Point | None = None) -> Node:
        """Start a new process: what was stored is there, what was in memory is not.

        `crash_at` is where it is killed in its turn; a crash that was planned before is forgotten.
        """
        self.forget_crash()
        if crash_at is not None:
            self.crash_at(crash_at)
        return self.add_node()

    # Effects

    def _perform(self, task: Task[Any], effect: Effect) -> Any:
        performed = Performed(task.label, task.node.name, effect)
        self.effects.append(performed)
        point = self._point if len(self.effects) == self._crash_at else None
        if point is None and not self.counts_awaits:
            return self._answer(task, effect)
        if point is not None and not point.within:
            raise self._interrupt(task, performed, point)
        answer = self._watch(task, effect, 0 if point is None else point.awaits)
        if point is not None:
            raise self._interrupt(task, performed, point)
        return answer

    def _watch(self, task: Task[Any], effect: Effect, halt_after: int) -> Any:
        """Answer `effect`; a function that it calls is halted behind so many awaits, if any."""
        if not isinstance(effect, CallFunction):
            return self._answer(task, effect)
        number, watch = len(self.effects), AwaitWatch(halt_after)
        self._world.watch = watch
        try:
            return self._answer(task, effect)
        finally:
            self._world.watch = None
            self._halted += [watch] if watch.halted else []
            self.awaited[number] = tuple(watch.names)

    def _interrupt(self, task: Task[Any], performed: Performed, point: Point) -> Crashed:
        """Kill the node of `task`, or let it stall: then it goes on with the effect."""
        number = len(self.effects)
        if point.stall_seconds:
            self._scheduler.stall_at(task, performed.effect)
        else:
            self.crash(task.node)
        return Crashed(number, performed, point, self.awaited.get(number, ()))

    def _answer(self, task: Task[Any], effect: Effect) -> Any:
        for fault in self._faults:
            if fault.strikes(effect):
                return self._fail(task, effect, fault)
        try:
            return perform(self._world, task, effect)
        except Misuse:
            self._scheduler.abandon(task)
            raise

    def _fail(self, task: Task[Any], effect: Effect, fault: PlannedFault) -> Any:
        if fault.after:
            perform(self._world, task, effect)
            self._scheduler.forget(task)
        outcome = fault.outcome
        if isinstance(outcome, BaseException):
            return Throw(outcome.with_traceback(None))
        return outcome

    def _keep_log(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        self.logs.append(Log(level, event, tuple(sorted(fields.items()))))


def _any_effect(effect: Effect) -> bool:
    return True
