"""The performers of a simulation: one for each effect."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, TypeAlias, TypeVar

from attrs import asdict, define, field, frozen

from legation import effects
from legation.effects import Effect, FetchReply, Job, Program, Unreachable
from legation.store.audit_entries import AuditEntry
from legation.store.failures import StoreFailure
from legation.store.health import Inspection
from legation_host.audit import PATIENCE
from legation_host.errors import not_an_effect

from .apart import Pieces, StepResult
from .awaits import AwaitWatch
from .clock import Clock, microseconds
from .databases import Databases
from .matching import is_audited
from .misuse import Misuse
from .node import Node
from .scheduling import Scheduler, Task, Throw
from .streams import Arriving, Chunks, call_function

__all__ = [
    "PERFORMERS",
    "Delayed",
    "Fetcher",
    "World",
    "WriteAudit",
    "perform",
    "refuse_connections",
    "store_entry",
]

S = TypeVar("S", Arriving, Pieces)

_Sent: TypeAlias = effects.Fetch | effects.OpenStream


@frozen
class Delayed:
    """An answer that takes `seconds`; the caller's own time-out may be sooner.

    Attributes:
        seconds: The time until the answer is there.
        answer: The response, or a connection that fails.
    """

    seconds: float
    answer: FetchReply | Chunks | Unreachable


Fetcher: TypeAlias = Callable[[Any], FetchReply | Chunks | Unreachable | Delayed]
"""The network, as a test answers it: called with each `Fetch` and each `OpenStream`.

Both take every answer: a reply that is streamed comes as one chunk, and chunks that are fetched
come as one reply, when the last of them is there.
"""

WriteAudit: TypeAlias = Callable[[tuple[AuditEntry, ...]], Program[None]]
"""Makes the program that stores audit entries."""


def refuse_connections(effect: _Sent) -> Unreachable:
    """Answer as a network does in which nobody is."""
    return Unreachable("connect")


@define(eq=False)
class World:
    """The world that effects act on."""

    clock: Clock
    chance: Random
    databases: Databases
    fetch: Fetcher
    write_audit: WriteAudit | None
    scheduler: Scheduler
    nodes: list[Node]
    audit: list[AuditEntry] = field(factory=list[AuditEntry])
    logs: list[effects.Log] = field(factory=list[effects.Log])
    errors: list[Exception] = field(factory=list[Exception])
    watch: AwaitWatch | None = None  # of the function that is called next

    def start_job(
        self, job: Job, node: Node, outcome: effects.Outcome[Any] | None = None
    ) -> Task[object]:
        """Start `job` beside everything else."""
        task = Task(type(job).__name__, node, job.program(), body=None, outcome=outcome)
        return self.scheduler.add(task)


def perform(world: World, task: Task[Any], effect: Effect) -> Any:
    """Act on `effect`: return the answer, a `Throw`, or `WAITS`."""
    kind = type(effect)
    if kind not in PERFORMERS:
        raise Misuse(not_an_effect(task.label, kind))
    return PERFORMERS[kind](world, task, effect)


def _now(world: World, task: Task[Any], __: effects.Now) -> int:
    return world.clock.now_us + task.node.skew_us


def _random_bytes(world: World, _: Task[Any], effect: effects.RandomBytes) -> bytes:
    return world.chance.randbytes(effect.size)


def _this_node(_: World, task: Task[Any], __: effects.ThisNode) -> str:
    return task.node.name


def _read_body(_: World, task: Task[Any], effect: effects.ReadBody) -> bytes | None:
    if task.body is None:
        raise Misuse(f"{task.label} asks for a body and answers no request")
    if task.body_was_read:
        raise Misuse(f"{task.label} asks for the body a second time")
    task.body_was_read = True
    return task.body if len(task.body) <= effect.limit else None


def _transact(world: World, task: Task[Any], effect: effects.Transact[Any]) -> Any:
    _check_database(world, task, effect.database)
    try:
        result = world.databases.run(effect.database, effect.unit)
    except Exception as error:  # noqa: BLE001  of store or unit: the program's to see
        return Throw(error)
    if is_audited(effect.unit) and result.kept:
        world.audit.append(effect.unit.entry)
    return result


def _check_database(world: World, task: Task[Any], name: str) -> None:
    if name not in world.databases.names:
        known = ", ".join(world.databases.names)
        raise Misuse(f"{task.label} asks for database {name!r}; there is {known}")


def _inspect(_: World, __: Task[Any], ___: effects.Inspect) -> Inspection:
    return Inspection()


def _hold_name(world: World, task: Task[Any], effect: effects.HoldName) -> effects.NameHeld:
    _check_database(world, task, effect.database)
    task.node.names.add((effect.database, effect.name))
    return effects.NameHeld(task.node.place)


def _find_dead(world: World, task: Task[Any], effect: effects.FindDead) -> tuple[str, ...]:
    _check_database(world, task, effect.database)
    place = task.node.place
    here = [node for node in world.nodes if place and node.place == place]
    held = {name for node in here if node.alive for name in node.names}
    freed = {name for node in here if not node.alive for name in node.names} - held
    return tuple(name for name in effect.names if (effect.database, name) in freed)


def _fetch(world: World, task: Task[Any], effect: effects.Fetch) -> Any:
    seconds, answer = _fetch_answer(world, effect)
    if isinstance(answer, Chunks):
        seconds, answer = seconds + answer.times()[-1], answer.whole()
    if isinstance(answer, FetchReply) and len(answer.body) > effect.max_bytes:
        answer = Unreachable("too-large")
    return _in_time(world, task, effect, seconds, answer)


def _fetch_answer(world: World, effect: _Sent) -> tuple[float, FetchReply | Chunks | Unreachable]:
    answer = world.fetch(effect)
    return (answer.seconds, answer.answer) if isinstance(answer, Delayed) else (0.0, answer)


def _in_time(
    world: World,
    task: Task[Any],
    effect: effects.Fetch | effects.OpenStream,
    seconds: float,
    answer: Any,
) -> Any:
    """Answer after `seconds`, unless the effect's time is over before."""
    if seconds <= 0:
        return answer
    if seconds < effect.timeout_seconds:
        return world.scheduler.wait(task, effect, seconds, answer)
    late = Unreachable("timeout")
    return world.scheduler.wait(task, effect, effect.timeout_seconds, late)


def _open_stream(world: World, task: Task[Any], effect: effects.OpenStream) -> Any:
    seconds, answer = _fetch_answer(world, effect)
    if isinstance(answer, FetchReply):
        chunks = (answer.body,) if answer.body else ()
        answer = Chunks(answer.status, answer.headers, chunks)
    if isinstance(answer, Chunks) and (seconds <= 0 or seconds < effect.timeout_seconds):
        opened_us = world.clock.elapsed_us + microseconds(seconds)
        number = task.streams.keep(Arriving(answer, int(opened_us)))
        return _in_time(
            world, task, effect, seconds, effects.Streaming(number, answer.status, answer.headers)
        )
    return _in_time(world, task, effect, seconds, answer)


def _next_chunk(world: World, task: Task[Any], effect: effects.NextChunk) -> Any:
    body = _stream(task, effect.stream, Arriving)
    if body is None:
        return b""
    took = body.next(world.clock.elapsed_us, effect.timeout_seconds, effect.rest_seconds)
    if not took.outcome or isinstance(took.outcome, Unreachable):
        task.close_streams(effect.stream)
    return _after(world, task, effect, took)


def _call_function(world: World, task: Task[Any], effect: effects.CallFunction) -> Any:
    took = call_function(effect, world.watch)
    if isinstance(took.outcome, Pieces):
        took = StepResult(effects.Yielding(task.streams.keep(took.outcome)), took.seconds)
    return _after(world, task, effect, took)


def _next_piece(world: World, task: Task[Any], effect: effects.NextPiece) -> Any:
    pieces = _stream(task, effect.stream, Pieces)
    if pieces is None:
        return None
    took = pieces.next(effect.timeout_seconds)
    if not isinstance(took.outcome, effects.Piece):
        task.close_streams(effect.stream)
    return _after(world, task, effect, took)


def _after(world: World, task: Task[Any], effect: Effect, took: StepResult) -> Any:
    """Answer when the time that it took has passed."""
    if took.seconds <= 0:
        return took.outcome
    return world.scheduler.wait(task, effect, took.seconds, took.outcome)


def _close_stream(_: World, task: Task[Any], effect: effects.CloseStream) -> None:
    task.close_streams(effect.stream)


def _stream(task: Task[Any], number: int, kind: type[S]) -> S | None:
    """Return the stream of this number, None when it is closed."""
    try:
        return task.streams.find(number, kind)
    except (KeyError, TypeError) as error:
        raise Misuse(f"{task.label}: {error.args[0]}") from None


def _sleep(world: World, task: Task[Any], effect: effects.Sleep) -> object:
    return world.scheduler.wait(task, effect, effect.seconds, None)


def _spawn(world: World, task: Task[Any], effect: effects.Spawn) -> None:
    world.start_job(effect.job, task.node, effect.outcome)


def _publish(world: World, task: Task[Any], effect: effects.Publish) -> None:
    state = task.node.state
    for waiting in state.publish(effect.run_id, effect.events, world.clock.elapsed):
        events = state.held_events(effect.run_id, waiting.waits_for.after)
        world.scheduler.wake(waiting, events or ())


def _next_events(world: World, task: Task[Any], effect: effects.NextEvents) -> Any:
    events = task.node.state.next_events(effect.run_id, effect.after, task)
    if events is not None:
        return events
    return world.scheduler.wait(task, effect, effect.timeout_seconds, None)


def _nudge(world: World, task: Task[Any], effect: effects.Nudge) -> None:
    for waiting in task.node.state.nudge(effect.topic):
        if isinstance(waiting.waits_for, effects.Interruptible):
            world.scheduler.wake(waiting, effects.Interrupted("nudge"))
        else:
            waiting.catch_up(effect.topic)
            world.scheduler.wake(waiting, None)


def _await_nudge(world: World, task: Task[Any], effect: effects.AwaitNudge) -> object:
    nudged = task.node.state.await_nudge(effect.topic, task.since(effect.topic), task)
    task.catch_up(effect.topic)
    if nudged:
        return None
    return world.scheduler.wait(task, effect, effect.timeout_seconds, None)


def _await_outcome(world: World, task: Task[Any], effect: effects.AwaitOutcome[Any]) -> Any:
    if effect.outcome.over:
        return effect.outcome.result
    effect.outcome.waiter = task
    return world.scheduler.wait(task, effect, math.inf, None)


def _interruptible(world: World, task: Task[Any], effect: effects.Interruptible[Any]) -> object:
    """Run the inner program as a task of its own, whose end is the answer.

    What ends the wait otherwise, the scheduler takes for a reason to close it.
    """
    if task.node.state.await_interruption(effect.topic, task.since(effect.topic), task):
        effect.program.close()
        return effects.Interrupted("nudge")
    world.scheduler.enter(task, effect.program)
    return world.scheduler.wait(
        task, effect, effect.timeout_seconds, effects.Interrupted("timeout")
    )


def _concurrently(world: World, task: Task[Any], effect: effects.Concurrently[Any]) -> object:
    """Run each program as a task of its own; the last to end, or the first to fail, answers."""
    if not effect.programs:
        return ()
    world.scheduler.enter_each(task, effect.programs)
    return world.scheduler.wait(task, effect, math.inf, None)


def _emit(_: World, task: Task[Any], effect: effects.Emit) -> None:
    if task.body is None:
        raise Misuse(f"{task.label} emits and answers no request")
    task.received += effect.data


def _record(world: World, task: Task[Any], effect: effects.Record) -> None:
    world.audit.append(effect.entry)
    if world.write_audit is not None:
        program = store_entry(world.write_audit, effect.entry)
        world.scheduler.add(Task("audit", task.node, program, body=None))


def store_entry(write_audit: WriteAudit, entry: AuditEntry) -> Program[None]:
    """Store `entry` as the host does: with some patience, and in the log if all else fails."""
    for pause in PATIENCE:
        try:
            yield from write_audit((entry,))
        except StoreFailure:
            yield from effects.Sleep(pause)
        else:
            return
    yield from effects.Log("warning", "audit", tuple(asdict(entry).items()))


def _log(world: World, _: Task[Any], effect: effects.Log) -> None:
    world.logs.append(effect)
    if effect.error is not None:
        world.errors.append(effect.error)


PERFORMERS: Final[Mapping[type[Any], Callable[[World, Task[Any], Any], Any]]] = {
    effects.Now: _now,
    effects.RandomBytes: _random_bytes,
    effects.ThisNode: _this_node,
    effects.ReadBody: _read_body,
    effects.Transact: _transact,
    effects.Inspect: _inspect,
    effects.HoldName: _hold_name,
    effects.FindDead: _find_dead,
    effects.Fetch: _fetch,
    effects.OpenStream: _open_stream,
    effects.NextChunk: _next_chunk,
    effects.CallFunction: _call_function,
    effects.NextPiece: _next_piece,
    effects.CloseStream: _close_stream,
    effects.Sleep: _sleep,
    effects.Spawn: _spawn,
    effects.Publish: _publish,
    effects.NextEvents: _next_events,
    effects.Nudge: _nudge,
    effects.AwaitNudge: _await_nudge,
    effects.AwaitOutcome: _await_outcome,
    effects.Interruptible: _interruptible,
    effects.Concurrently: _concurrently,
    effects.Emit: _emit,
    effects.Record: _record,
    effects.Log: _log,
}
"""A row for every member of the union."""
