"""The driver of programs: looks at each effect, performs it, sends the answer back.

An immediate effect is performed without leaving the turn: no await, no checkpoint, no object of
the scheduler, because those cost ten to a hundred times what the effect itself does.  The rest is
awaited, but for a `Transact` whose database reads on the thread of the event loop.

At each `Transact` the guard of the schemas is asked, and at nothing else.

The other half of this contract is `legation.effects`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

import anyio
import anyio.lowlevel

from legation.effects import (
    Asks,
    AwaitNudge,
    AwaitOutcome,
    CallFunction,
    CloseStream,
    Concurrently,
    Effect,
    Emit,
    Fetch,
    FetchReply,
    FindDead,
    HoldName,
    Inspect,
    Interrupted,
    Interruptible,
    Job,
    Log,
    NameHeld,
    NextChunk,
    NextEvents,
    NextPiece,
    Now,
    Nudge,
    OpenStream,
    Outcome,
    Piece,
    Program,
    Publish,
    Raised,
    RandomBytes,
    ReadBody,
    Record,
    Returned,
    Sleep,
    Spawn,
    Streaming,
    ThisNode,
    TimedOut,
    Transact,
    Unreachable,
    Yielding,
)
from legation.incidents import where
from legation.programs import Streams
from legation.store.failures import NotServed
from legation.store.health import Inspection
from legation.store.run_rows import StoredEvent

from .errors import Misuse, not_an_effect
from .functions import Pieces
from .native import Scope
from .pace import Blocked, place
from .read_ahead import ReadAhead
from .resources import Resources

if TYPE_CHECKING:
    from legation.migrations.schema_guard import SchemaGuard

__all__ = ["PERFORMERS", "BodySource", "Sink", "drive", "spawn"]

R = TypeVar("R")
S = TypeVar("S", ReadAhead, Pieces)

Stream: TypeAlias = ReadAhead | Pieces

GATHERED_BYTES: Final = 64 << 10
"""What is emitted is sent when it reaches this size, although the program waits for nothing."""

TURN: Final = 128
"""After so many effects the others have a turn, whether or not one of them waited."""


class BodySource(Protocol):
    """The body of a request that has not been read yet."""

    async def read(self, limit: int) -> bytes | None:
        """Return the body, whole; None when it is longer than `limit` bytes."""
        ...


class Sink(Protocol):
    """The sink of a streamed body."""

    async def send(self, data: bytes) -> None:
        """Send `data`, never empty; raise when nobody is there any more."""
        ...


# Made for every program.  Written out, because three factories of containers would cost as much
# as three effects.
class _Turn:
    """The state of one program while it is driven."""

    __slots__ = (
        "body",
        "gathered",
        "interruption",
        "label",
        "left",
        "nudged",
        "opened",
        "resources",
        "seen",
        "sink",
        "size",
    )

    def __init__(
        self,
        resources: Resources,
        body: BodySource | None,
        sink: Sink | None,
        label: str,
        interruption: _Interruption | None,
    ) -> None:
        self.resources = resources
        self.interruption = interruption  # until the program waits for the first time
        self.label = label
        self.body = body
        self.sink = sink
        self.nudged = resources.hub.state.sequence
        self.left = TURN
        self.size: int = 0
        self.gathered: list[bytes] = []
        self.seen: dict[str, int] = {}
        self.opened: Streams[Stream] | None = None

    @property
    def streams(self) -> Streams[Stream]:
        """The streams that the program has open; most programs open none."""
        if self.opened is None:
            self.opened = Streams()
        return self.opened

    async def close(self, *numbers: int) -> None:
        """Close these streams, or all, at the same time; each has its own bound."""
        streams = self.streams.take(*numbers)
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as closing:
                for stream in streams:
                    closing.start_soon(stream.aclose)

    def begin_waiting(self) -> None:
        """Let what is awaited from now on be interrupted, where the program can be."""
        if self.interruption is not None:
            self.interruption.begin()
            self.interruption = None

    async def flush(self) -> None:
        """Send what was gathered, as one."""
        self.begin_waiting()
        if self.sink is None:
            raise Misuse("a program emits, and there is no stream to emit to")
        data = b"".join(self.gathered)
        self.gathered.clear()
        self.size = 0
        if data:
            await self.sink.send(data)

    async def breathe(self) -> None:
        """Let the others have their turn."""
        self.begin_waiting()
        if self.size >= GATHERED_BYTES:
            await self.flush()
        self.left = TURN
        await anyio.lowlevel.checkpoint()


async def drive(
    resources: Resources,
    program: Program[R],
    body: BodySource | None = None,
    sink: Sink | None = None,
    label: str = "",
    *,
    inner: bool = False,
    interruption: _Interruption | None = None,
) -> R:
    """Run `program` to its end and return its result.

    A program that ends in another way, by cancellation or by an error of its own or of `sink`, is
    closed before this returns, as is every stream that it left open.  Thrown into it is what a unit
    of work raises, and an `inner` program that it waits for.  With a `label` steps are measured.
    Its waits, if any, are under `interruption`.
    """
    turn = _Turn(resources, body, sink, label, interruption)
    clock, entropy = resources.clock, resources.entropy
    send = resources.pace.measure(label, program) if label else program.send
    resume: Callable[[Any], Effect] = send
    value: Any = None
    try:
        while True:
            try:
                effect = resume(value)
            except StopIteration as stop:
                if turn.gathered:
                    await turn.flush()
                result: R = stop.value
                return result
            except Exception as error:
                if inner and not isinstance(error, Blocked):
                    raise _Thrown(error) from None
                raise
            kind: type[Any] = type(effect)
            if turn.left <= 0:
                await turn.breathe()
            turn.left -= 1
            resume = send
            try:
                if kind is Now:
                    value = clock()
                elif isinstance(effect, RandomBytes):
                    value = entropy(effect.size)
                elif kind in _IMMEDIATE:
                    value = _IMMEDIATE[kind](turn, effect)
                else:
                    if turn.interruption is not None:
                        turn.begin_waiting()
                    if turn.gathered and kind is not Transact:  # which may wait for nothing
                        await turn.flush()
                    if kind not in _AWAITED:
                        raise Misuse(not_an_effect(place(program), kind))
                    value = await _AWAITED[kind](turn, effect)
            except _Thrown as thrown:
                resume, value = program.throw, thrown.error
    finally:
        try:
            program.close()
        finally:
            if turn.opened:
                await turn.close()


class _Thrown(Exception):
    """The wrapping of an error that is the asking program's to handle, and not its host's."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def _find_stream(turn: _Turn, number: int, kind: type[S]) -> S | None:
    """Return the stream of this number, None when it is closed."""
    try:
        return turn.streams.find(number, kind)
    except (KeyError, TypeError) as error:
        raise Misuse(error.args[0]) from None


def spawn(resources: Resources, job: Job, outcome: Outcome[Any] | None = None) -> None:
    """Start `job` beside everything else; it ends at the latest when the host closes."""
    resources.start(_run_job, resources, job, outcome, name=type(job).__name__)


async def _run_job(resources: Resources, job: Job, outcome: Outcome[Any] | None) -> None:
    """Run one job.  Whatever it raises ends that job alone; its end is told in any case."""
    result: object = None
    try:
        result = await drive(resources, job.program())
    except Exception as error:  # noqa: BLE001 (the boundary of the job)
        fields = {
            "job": type(job).__name__,
            "incident": secrets.token_hex(4),
            "error": where(error),
        }
        resources.write("error", "job_failed", fields)
        resources.show_error("job_failed", error)
    finally:
        if outcome is not None and (wake := outcome.tell(result)) is not None:
            wake()


def _this_node(turn: _Turn, _: ThisNode) -> str:
    return turn.resources.node


def _spawn(turn: _Turn, effect: Spawn) -> None:
    spawn(turn.resources, effect.job, effect.outcome)


def _publish(turn: _Turn, effect: Publish) -> None:
    turn.resources.hub.publish(effect.run_id, effect.events)
    if effect.events and (hints := turn.resources.hints.get(effect.database or "")):
        hints.event(effect.run_id, effect.events[-1].seq)


def _nudge(turn: _Turn, effect: Nudge) -> None:
    turn.resources.hub.nudge(effect.topic)
    if hints := turn.resources.hints.get(effect.database or ""):
        hints.nudge(effect.topic, effect.node)


def _record(turn: _Turn, effect: Record) -> None:
    turn.resources.trail.record(effect.entry)


def _log(turn: _Turn, effect: Log) -> None:
    turn.resources.write(effect.level, effect.event, dict(effect.fields))
    if effect.error is not None:
        turn.resources.show_error(effect.event, effect.error)


def _emit(turn: _Turn, effect: Emit) -> None:
    turn.gathered.append(effect.data)
    turn.size += len(effect.data)
    if turn.size >= GATHERED_BYTES:
        turn.left = 0


async def _read_body(turn: _Turn, effect: ReadBody) -> bytes | None:
    return b"" if turn.body is None else await turn.body.read(effect.limit)


async def _transact(turn: _Turn, effect: Transact[Any]) -> Any:
    """Run a unit; one that the database reads on this thread waits for nothing."""
    guard, unit, answer, trouble = turn.resources.guard, effect.unit, None, None
    if guard is not None and effect.database in guard.reasons:
        _refuse(guard, effect)
    database = turn.resources.databases[effect.database]
    read = None if unit.writes else database.inline(unit)
    if read is None and turn.gathered:
        await turn.flush()
    try:
        answer = await database.run(unit) if read is None else read(unit)
    except Exception as error:  # noqa: BLE001 (thrown into the program)
        trouble = error
    if trouble is not None or unit.exclusive:  # as a migration is, of which the guard learns
        await _learn(turn.resources, effect, trouble)
    return answer


def _refuse(guard: SchemaGuard, effect: Transact[Any]) -> None:
    """Throw the refusal of `guard` into the program, where there is one."""
    try:
        guard.refuse(effect)
    except NotServed as refused:
        raise _Thrown(refused) from None


async def _learn(resources: Resources, effect: Transact[Any], error: Exception | None) -> None:
    """Let the guard learn how `effect` ended, then throw `error` into the program.

    What the guard raises is thrown instead.
    """
    lesson = None if resources.guard is None else resources.guard.lesson(effect, error)
    if lesson is not None:
        await drive(resources, lesson, inner=True)
    if error is not None:
        raise _Thrown(error) from None


async def _inspect(turn: _Turn, effect: Inspect) -> Inspection:
    return await turn.resources.databases[effect.database].inspect()


async def _hold_name(turn: _Turn, effect: HoldName) -> NameHeld:
    place = await turn.resources.databases[effect.database].names.hold(effect.name)
    hints = turn.resources.hints.get(effect.database)
    return NameHeld(place, hints is not None and hints.hold(effect.name))


async def _find_dead(turn: _Turn, effect: FindDead) -> tuple[str, ...]:
    return await turn.resources.databases[effect.database].names.find_dead(effect.names)


async def _fetch(turn: _Turn, effect: Fetch) -> FetchReply | Unreachable:
    return await turn.resources.fetcher.fetch(effect)


async def _open_stream(turn: _Turn, effect: OpenStream) -> Streaming | Unreachable:
    body = await turn.resources.fetcher.open(effect)
    if isinstance(body, Unreachable):
        return body
    stream = ReadAhead(body, turn.resources.native)
    turn.resources.start(stream.pump)
    return Streaming(turn.streams.keep(stream), body.status, body.headers)


async def _next_chunk(turn: _Turn, effect: NextChunk) -> bytes | Unreachable:
    body = _find_stream(turn, effect.stream, ReadAhead)
    if body is None:
        await anyio.lowlevel.checkpoint()
        return b""
    chunk = await body.next(effect.timeout_seconds, effect.rest_seconds)
    if not chunk or isinstance(chunk, Unreachable):
        await turn.close(effect.stream)
    return chunk


async def _call_function(
    turn: _Turn, effect: CallFunction
) -> Returned | Yielding | Raised | TimedOut:
    outcome = await turn.resources.functions.call(effect)
    return Yielding(turn.streams.keep(outcome)) if isinstance(outcome, Pieces) else outcome


async def _next_piece(turn: _Turn, effect: NextPiece) -> Piece | Raised | TimedOut | None:
    pieces = _find_stream(turn, effect.stream, Pieces)
    if pieces is None:
        await anyio.lowlevel.checkpoint()
        return None
    piece = await pieces.next(effect.timeout_seconds)
    if not isinstance(piece, Piece):
        await turn.close(effect.stream)
    return piece


async def _close_stream(turn: _Turn, effect: CloseStream) -> None:
    await anyio.lowlevel.checkpoint()
    await turn.close(effect.stream)


async def _sleep(_: _Turn, effect: Sleep) -> None:
    await anyio.sleep(max(0.0, effect.seconds))


async def _next_events(turn: _Turn, effect: NextEvents) -> tuple[StoredEvent, ...] | None:
    if effect.holder and (hints := turn.resources.hints.get(effect.database or "")):
        hints.follow(effect.run_id, effect.holder)
    return await turn.resources.hub.next_events(effect.run_id, effect.after, effect.timeout_seconds)


async def _await_nudge(turn: _Turn, effect: AwaitNudge) -> None:
    since = turn.seen.get(effect.topic, turn.nudged)
    await turn.resources.hub.await_nudge(effect.topic, since, effect.timeout_seconds)
    turn.seen[effect.topic] = turn.resources.hub.state.sequence


async def _await_outcome(turn: _Turn, effect: AwaitOutcome[R]) -> R | None:
    """Wait for the end of a job in another task; to be cancelled here is nothing to that."""
    outcome = effect.outcome
    if outcome.over:
        await anyio.lowlevel.checkpoint()
    else:
        event = turn.resources.native.make_event()
        outcome.waiter = event.set
        await event.wait()
    return outcome.result


class _Interruption:
    """The scope of a program's waits, which a nudge cancels, or the time.

    It is entered when the program waits for the first time, since one that waits for nothing
    cannot be interrupted.  No task stands by for the nudge: it calls the scope.
    """

    __slots__ = ("_asked", "_effect", "_resources", "_scope", "_since", "nudged")

    def __init__(self, resources: Resources, effect: Interruptible[Any], since: int) -> None:
        self._resources = resources
        self._effect = effect
        self._since = since  # nudges later than this one count
        self._asked = monotonic()
        self._scope: Scope | None = None
        self.nudged = False

    def begin(self) -> None:
        """Enter the scope, for what is left of the time."""
        resources, effect = self._resources, self._effect
        scope = resources.native.limit(effect.timeout_seconds - (monotonic() - self._asked))
        self._scope = scope.__enter__()
        if resources.hub.state.await_interruption(effect.topic, self._since, self._interrupt):
            self._interrupt()

    def _interrupt(self) -> None:
        self.nudged = True
        if self._scope is not None:
            self._scope.cancel()

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        if self._scope is None:
            return None
        self._resources.hub.state.leave(self._interrupt)
        return self._scope.__exit__(kind, error, traceback)


async def _interruptible(turn: _Turn, effect: Interruptible[R]) -> R | Interrupted:
    """Drive the inner program, whose waits can be interrupted."""
    resources, label = turn.resources, effect.label or turn.label
    since = turn.seen.get(effect.topic, turn.nudged)
    interruption = _Interruption(resources, effect, since)
    with interruption:
        try:
            return await drive(
                resources,
                effect.program,
                turn.body,
                turn.sink,
                label,
                inner=True,
                interruption=interruption,
            )
        except Blocked:
            return Interrupted("blocked")
    return Interrupted("nudge" if interruption.nudged else "timeout")


async def _concurrently(turn: _Turn, effect: Concurrently[R]) -> tuple[R, ...]:
    """Drive each program in a task of its own.  The first error closes the others.

    It is raised as it is, and not in a group with what that brought about.
    """
    results: dict[int, R] = {}
    errors: list[BaseException] = []

    async def drive_one(index: int, program: Program[R]) -> None:
        try:
            results[index] = await drive(turn.resources, program, label=turn.label, inner=True)
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001 (raised below)
            errors.append(error)
            tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            for index, program in enumerate(effect.programs):
                tasks.start_soon(drive_one, index, program)
    finally:
        for program in effect.programs:
            program.close()  # one whose task was cancelled before it began
    if errors:
        raise errors[0]
    return tuple(results[index] for index in range(len(effect.programs)))


Perform: TypeAlias = Callable[[_Turn, Any], Any]

PERFORMERS: Final[Mapping[type[Asks[Any]], Perform | None]] = {
    Now: None,
    RandomBytes: None,
    ThisNode: _this_node,
    ReadBody: _read_body,
    Transact: _transact,
    Inspect: _inspect,
    HoldName: _hold_name,
    FindDead: _find_dead,
    Fetch: _fetch,
    OpenStream: _open_stream,
    NextChunk: _next_chunk,
    CallFunction: _call_function,
    NextPiece: _next_piece,
    CloseStream: _close_stream,
    Sleep: _sleep,
    Spawn: _spawn,
    Publish: _publish,
    NextEvents: _next_events,
    Nudge: _nudge,
    AwaitNudge: _await_nudge,
    AwaitOutcome: _await_outcome,
    Interruptible: _interruptible,
    Concurrently: _concurrently,
    Emit: _emit,
    Record: _record,
    Log: _log,
}
"""A row for every member of `legation.effects.Effect`; a coroutine for what is not immediate.

None is for what is asked for most, of which `drive` knows the answer without a performer.
"""

_IMMEDIATE: Final[Mapping[type[Asks[Any]], Perform]] = {
    kind: perform for kind, perform in PERFORMERS.items() if perform and kind.immediate
}
_AWAITED: Final[Mapping[type[Asks[Any]], Perform]] = {
    kind: perform for kind, perform in PERFORMERS.items() if perform and not kind.immediate
}
