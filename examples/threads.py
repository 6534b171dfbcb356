"""A synchronous host: threads, SQLite and the standard library.

A program runs on the thread that asks, a job on one of its own.  Whatever waits does so under one
condition, `Host.changed`, and looks there whether its program is to be closed meanwhile.
"""

from __future__ import annotations

import inspect
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Any, Final

from attrs import asdict
from outside import Incoming, Loop, Pieces

from legation import effects as e
from legation.incidents import where
from legation.node_state import NodeState
from legation.programs import Streams
from legation.store.audit import AuditEntry
from legation.store.failures import StoreFailure
from legation.store.health import Inspection
from legation_host import Misuse
from legation_host.sqlite_connection import connect, run_unit

__all__ = ["Host"]

FUNCTION_THREADS: Final = 32
GATHERED_BYTES: Final = 64 << 10


class Failed(Exception):
    """The wrapping of an error that is the waiting program's to handle, and not its host's."""


class Waiter:
    """Whoever waits under `Host.changed`, until it is woken."""

    woken = False


class Scope(Waiter):
    """The bounds of a program, which is closed when this is woken or its time is over."""

    def __init__(self, outer: Scope | None = None, seconds: float = math.inf) -> None:
        self.outer, self.due = outer, time.monotonic() + seconds

    def check(self) -> float:
        """Return the seconds that are left; `Cut` for the outermost scope that is over."""
        left = self.outer.check() if self.outer else math.inf
        if self.woken or time.monotonic() >= self.due:
            raise Cut(self)
        return min(left, self.due - time.monotonic())


class Cut(BaseException):
    """The end of a program that is to be closed, because its only argument is over."""


class Call(Waiter):
    """A function in a thread of its own, which goes on alone when nobody waits any more."""

    def __init__(self, host: Host, function: Callable[[], Any]) -> None:
        self.result: Any = None
        self.thread = threading.Thread(target=self._run, args=(host, function), daemon=True)
        self.thread.start()

    def _run(self, host: Host, function: Callable[[], Any]) -> None:
        self.result = function()
        host.wake((self,))


class Turn:
    """A program while it is driven: where it belongs, and what it has open."""

    def __init__(self, host: Host, scope: Scope, body: Any = None, emit: Any = None) -> None:
        self.host, self.scope, self.body, self.emit = host, scope, body, emit
        self.born, self.seen = host.state.sequence, dict[str, int]()
        self.streams, self.gathered = Streams[Any](), list[bytes]()

    def flush(self) -> None:
        """Send what was emitted, as one."""
        data = b"".join(self.gathered)
        self.gathered.clear()
        if data:
            self.emit(data)

    def since(self, topic: str) -> int:
        """Return up to which nudge the program knows of `topic`."""
        return self.seen.get(topic, self.born)

    def wait(self, waiter: Waiter, seconds: float) -> bool:
        """Wait for `waiter` to be woken; False when the time passed, `Cut` when the scope ended."""
        due = time.monotonic() + seconds
        with self.host.changed:
            try:
                while not waiter.woken:
                    left = min(self.scope.check(), due - time.monotonic(), 3600.0)
                    if left <= 0:
                        return False
                    self.host.changed.wait(left)
            finally:
                self.host.state.leave(waiter)
        return True

    def call(self, function: Callable[[], Any], seconds: float, late: Any) -> Any:
        """Return the result of `function`, called in a thread, or `late`."""
        call = Call(self.host, function)
        return call.result if self.wait(call, seconds) else late

    def on_loop(self, awaitable: Any, seconds: float) -> Any:
        """Await on the event loop; return `Returned`, `Raised` or `TimedOut`."""
        waiter, future = Waiter(), self.host.loop.start(awaitable)
        future.add_done_callback(lambda _: self.host.wake((waiter,)))
        try:
            outcome = future.result() if self.wait(waiter, seconds) else e.TimedOut()
        finally:
            future.cancel()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def find(self, number: int, kind: type[Any]) -> Any:
        """Return the open stream of this number, None when it is closed."""
        try:
            return self.streams.find(number, kind)
        except (KeyError, TypeError) as error:
            raise Misuse(error.args[0]) from None

    def close(self, *numbers: int) -> None:
        """Close these streams, or all."""
        for stream in self.streams.take(*numbers):
            stream.close()


class Host:
    """Performs the effects of programs, of as many threads as call `run`."""

    def __init__(self, databases: Mapping[str, str], *, log: Any, write_audit: Any) -> None:
        """Open `databases`, by their URLs; `write_audit` makes the program that stores entries."""
        self.node = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(6)}"
        self.changed, self.state = threading.Condition(), NodeState[Waiter]()
        self.root, self.loop = Scope(), Loop()
        self.places = threading.Semaphore(FUNCTION_THREADS)
        self.log, self.write_audit = log, write_audit
        self.entries, self.jobs = list[AuditEntry](), list[Call]()
        paths = {name: url.removeprefix("sqlite:///") for name, url in databases.items()}
        self.databases = {
            name: (threading.Lock(), connect(":memory:" if path == "sqlite://" else path))
            for name, path in paths.items()
        }

    def run(self, program: e.Program[Any], *, body: Any = None, emit: Any = None) -> Any:
        """Run `program` to its end; `body` reads the request's up to a limit, `emit` sends."""
        try:
            return self.drive(program, Turn(self, self.root, body, emit))
        except Failed as failed:
            raise failed.args[0] from None
        except Cut:
            raise RuntimeError("the host is closed") from None

    def drive(self, program: e.Program[Any], turn: Turn) -> Any:
        """Run `program`; an error of its own is raised as `Failed`, one of this host as it is."""
        resume: Callable[[Any], Any] = program.send
        value: Any = None
        try:
            while True:
                try:
                    effect = resume(value)
                except StopIteration as stop:
                    turn.flush()
                    return stop.value
                except Exception as error:  # noqa: BLE001 (the program's)
                    raise Failed(error) from None
                resume = program.send
                try:
                    value = self.perform(turn, effect)
                except Failed as failed:
                    resume, value = program.throw, failed.args[0]
        finally:
            program.close()
            turn.close()

    def perform(self, turn: Turn, effect: Any) -> Any:
        """Perform one effect; raise as `Failed` what is to be thrown into the program."""
        kind = effect.__class__
        perform = PERFORMERS.get(kind)
        if perform is None:
            raise Misuse(f"a program yields {kind.__name__}, which is not an effect")
        if not effect.immediate:
            turn.flush()
            turn.scope.check()
        return perform(self, turn, effect)

    def spawn(self, job: e.Job, outcome: e.Outcome[Any] | None = None) -> None:
        """Start `job` beside everything else."""
        self.jobs = [call for call in self.jobs if call.thread.is_alive()]
        self.jobs.append(Call(self, partial(self._run_job, job, outcome)))

    def _run_job(self, job: e.Job, outcome: e.Outcome[Any] | None) -> None:
        result = None
        try:
            result = self.drive(job.program(), Turn(self, self.root))
        except Cut:
            pass
        except Exception as error:  # noqa: BLE001 (the boundary of the job)
            reason = error.args[0] if isinstance(error, Failed) else error
            fields = {"job": type(job).__name__, "error": where(reason)}
            self.log("error", "job_failed", {**fields, "incident": secrets.token_hex(4)})
        finally:
            if outcome is not None:
                with self.changed:
                    waiter = outcome.tell(result)
                self.wake(() if waiter is None else (waiter,))

    def wake(self, waiters: tuple[Waiter, ...]) -> None:
        """Wake who waits."""
        with self.changed:
            for waiter in waiters:
                waiter.woken = True
            self.changed.notify_all()

    def store_soon(self) -> None:
        """Gather for a tenth of a second, and store."""
        time.sleep(0.1)
        self.store_entries()

    def store_entries(self, pauses: tuple[float, ...] = (0.1, 0.5, 2.0)) -> None:
        """Store what was recorded; what cannot be stored goes to the log."""
        with self.changed:
            batch, self.entries = tuple(self.entries), []
        for pause in (*pauses, 0.0) if batch else ():
            try:
                self.drive(self.write_audit(batch), Turn(self, Scope()))
            except Failed as failed:
                if not isinstance(failed.args[0], StoreFailure):
                    break
                time.sleep(pause)
            else:
                return
        for entry in batch:
            self.log("warning", "audit", asdict(entry))

    def close(self) -> None:
        """Close every program, store what is left of the audit trail, and close the databases."""
        self.wake((self.root,))
        for call in self.jobs:
            call.thread.join(5.0)
        self.store_entries()
        self.loop.close()
        for lock, connection in self.databases.values():
            with lock:
                connection.close()

    # The effects that wait

    def transact(self, turn: Turn, effect: e.Transact[Any]) -> Any:
        lock, connection = self.find(effect.database)
        with lock:
            writing = effect.unit.writes or effect.unit.exclusive
            connection.execute(f"pragma query_only = {int(not writing)}")
            try:
                return run_unit(connection, effect.unit, database=effect.database, write=self.log)
            except Exception as error:  # noqa: BLE001 (of the database or of the unit)
                raise Failed(error) from None

    def find(self, name: str) -> Any:
        """Return the database of this name."""
        if name not in self.databases:
            known = ", ".join(self.databases) or "none"
            raise Misuse(f"a program asks for database {name!r}; there is {known}")
        return self.databases[name]

    def fetch(self, turn: Turn, effect: e.Fetch) -> Any:
        with closing(Incoming(effect)) as incoming:
            exchange = partial(incoming.exchange, effect.max_bytes)
            return turn.call(exchange, effect.timeout_seconds, e.Unreachable("timeout"))

    def open_stream(self, turn: Turn, effect: e.OpenStream) -> Any:
        incoming, failure = Incoming(effect), e.Unreachable("timeout")
        try:
            failure = turn.call(incoming.open, effect.timeout_seconds, failure)
        finally:
            if failure is not None:
                incoming.close()
        if failure is not None:
            return failure
        return e.Streaming(turn.streams.keep(incoming), incoming.response.status, incoming.headers)

    def next_chunk(self, turn: Turn, effect: e.NextChunk) -> Any:
        incoming = turn.find(effect.stream, Incoming)
        if incoming is None:
            return b""
        chunk = turn.call(incoming.read, effect.timeout_seconds, e.Unreachable("timeout"))
        if not chunk or isinstance(chunk, e.Unreachable):
            turn.close(effect.stream)
        return chunk

    def call_function(self, turn: Turn, effect: e.CallFunction) -> Any:
        due = time.monotonic() + effect.timeout_seconds
        if effect.timeout_seconds <= 0:
            return e.TimedOut()
        if returns_awaitable(effect.function):
            outcome = call_now(effect)
        else:
            left = threading.Event()
            try:
                work = partial(self.call_in_place, effect, left)
                outcome = turn.call(work, effect.timeout_seconds, e.TimedOut())
            finally:
                left.set()
        if isinstance(outcome, e.Returned) and inspect.isawaitable(outcome.value):
            outcome = turn.on_loop(outcome.value, due - time.monotonic())
        given: Any = outcome.value if isinstance(outcome, e.Returned) else None
        if hasattr(given, "__aiter__"):
            return e.Yielding(turn.streams.keep(Pieces(self.loop, given.__aiter__())))
        return outcome

    def call_in_place(self, effect: e.CallFunction, left: threading.Event) -> Any:
        """Call the function in this thread, when there is a place, unless nobody waits then."""
        with self.places:
            outcome = e.TimedOut() if left.is_set() else call_now(effect)
        if left.is_set() and isinstance(outcome, e.Returned) and inspect.iscoroutine(outcome.value):
            outcome.value.close()
        return outcome

    def next_piece(self, turn: Turn, effect: e.NextPiece) -> Any:
        pieces = turn.find(effect.stream, Pieces)
        piece = pieces and pieces.next(turn.on_loop, effect.timeout_seconds)
        if pieces and not isinstance(piece, e.Piece):
            turn.close(effect.stream)
        return piece

    def sleep(self, turn: Turn, effect: e.Sleep) -> None:
        turn.wait(Waiter(), effect.seconds)

    def next_events(self, turn: Turn, effect: e.NextEvents) -> Any:
        waiter = Waiter()
        with self.changed:
            events = self.state.next_events(effect.run_id, effect.after, waiter)
        if events is None and turn.wait(waiter, effect.timeout_seconds):
            events = self.state.held_events(effect.run_id, effect.after) or ()
        return events

    def await_nudge(self, turn: Turn, effect: e.AwaitNudge) -> None:
        waiter, since = Waiter(), turn.since(effect.topic)
        with self.changed:
            nudged = self.state.await_nudge(effect.topic, since, waiter)
        if not nudged:
            turn.wait(waiter, effect.timeout_seconds)
        turn.seen[effect.topic] = self.state.sequence

    def await_outcome(self, turn: Turn, effect: e.AwaitOutcome[Any]) -> Any:
        waiter = Waiter()
        with self.changed:
            effect.outcome.waiter, waiter.woken = waiter, effect.outcome.over
        turn.wait(waiter, math.inf)
        return effect.outcome.result

    def interruptible(self, turn: Turn, effect: e.Interruptible[Any]) -> Any:
        scope = Scope(turn.scope, effect.timeout_seconds)
        with self.changed:
            since = turn.since(effect.topic)
            scope.woken = self.state.await_interruption(effect.topic, since, scope)
        try:
            return self.drive(effect.program, Turn(self, scope, turn.body, turn.emit))
        except Cut as cut:
            if cut.args[0] is not scope:
                raise
            return e.Interrupted("nudge" if scope.woken else "timeout")
        finally:
            with self.changed:
                self.state.leave(scope)

    def concurrently(self, turn: Turn, effect: e.Concurrently[Any]) -> Any:
        scope, errors = Scope(turn.scope), list[BaseException]()

        def drive(program: e.Program[Any]) -> Any:
            try:
                return self.drive(program, Turn(self, scope))
            except BaseException as error:  # noqa: BLE001 (raised below)
                errors.append(error)
                self.wake((scope,))  # closes the others

        calls = [Call(self, partial(drive, program)) for program in effect.programs]
        try:
            for call in calls:
                turn.wait(call, math.inf)
        finally:
            self.wake((scope,))
            for call in calls:
                call.thread.join()
        if errors:
            raise errors[0]
        return tuple(call.result for call in calls)

    # Those that do not

    def publish(self, _: Turn, effect: e.Publish) -> None:
        with self.changed:
            self.wake(self.state.publish(effect.run_id, effect.events, time.monotonic()))

    def nudge(self, _: Turn, effect: e.Nudge) -> None:
        with self.changed:
            self.wake(self.state.nudge(effect.topic))

    def emit(self, turn: Turn, effect: e.Emit) -> None:
        if turn.emit is None:
            raise Misuse("a program emits, and there is no stream to emit to")
        turn.gathered.append(effect.data)
        if sum(map(len, turn.gathered)) >= GATHERED_BYTES:
            turn.flush()

    def record(self, _: Turn, effect: e.Record) -> None:
        with self.changed:
            self.entries.append(effect.entry)
            if len(self.entries) == 1:
                self.jobs.append(Call(self, self.store_soon))


def returns_awaitable(function: Any) -> bool:
    """Tell whether calling it only makes what is then awaited or iterated."""
    asked = (function, getattr(function, "__call__", None))  # noqa: B004 (an object's own)
    return any(inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f) for f in asked)


def call_now(effect: e.CallFunction) -> e.Returned | e.Raised:
    """Call the function, here."""
    try:
        return e.Returned(effect.function(**effect.arguments))
    except BaseException as error:  # noqa: BLE001 (a value for the program)
        return e.Raised.by(error)


PERFORMERS: Final[Mapping[type[Any], Callable[[Host, Turn, Any], Any]]] = {
    e.Now: lambda _, __, ___: time.time_ns() // 1_000,
    e.RandomBytes: lambda _, __, effect: secrets.token_bytes(effect.size),
    e.ThisNode: lambda host, _, __: host.node,
    e.ReadBody: lambda _, turn, effect: turn.body(effect.limit) if turn.body else b"",
    e.Transact: Host.transact,
    e.Inspect: lambda host, _, effect: host.find(effect.database) and Inspection(),
    # It holds no names: who is to know that this process ended has to wait for its silence.
    e.HoldName: lambda host, _, effect: host.find(effect.database) and e.NameHeld(),
    e.FindDead: lambda host, _, effect: host.find(effect.database) and (),
    e.Fetch: Host.fetch,
    e.OpenStream: Host.open_stream,
    e.NextChunk: Host.next_chunk,
    e.CallFunction: Host.call_function,
    e.NextPiece: Host.next_piece,
    e.CloseStream: lambda _, turn, effect: turn.close(effect.stream),
    e.Sleep: Host.sleep,
    e.Spawn: lambda host, _, effect: host.spawn(effect.job, effect.outcome),
    e.Publish: Host.publish,
    e.NextEvents: Host.next_events,
    e.Nudge: Host.nudge,
    e.AwaitNudge: Host.await_nudge,
    e.AwaitOutcome: Host.await_outcome,
    e.Interruptible: Host.interruptible,
    e.Concurrently: Host.concurrently,
    e.Emit: Host.emit,
    e.Record: Host.record,
    e.Log: lambda host, _, effect: host.log(effect.level, effect.event, dict(effect.fields)),
}
