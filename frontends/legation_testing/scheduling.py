"""A deterministic, single-threaded scheduler of programs in virtual time.

A program has its *turn* until it asks for something that takes time in a real host; then it goes
to the end of the line: once before that is performed and once before it hears the answer, for in
a real host others may come between at both places.  When every program waits, the clock jumps to
the next moment at which one of them is due (trio's `MockClock` calls this autojump).  The order of
the line is first in, first out, or drawn from a seed: one seed is one interleaving.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from random import Random
from typing import Any, Final, Generic, Protocol, TypeVar

from attrs import define, field, frozen

from legation.effects import AwaitOutcome, Concurrently, Effect, Outcome, Program
from legation.programs import Streams

from .clock import Clock, microseconds
from .matching import show
from .node import Node
from .unwinding import unwind

__all__ = ["WAITS", "Deadlock", "Endless", "NoResult", "Scheduler", "Stream", "Task", "Throw"]

R = TypeVar("R")

WAITS: Final = object()
"""What performing an effect returns when the answer comes later."""


class Deadlock(AssertionError):
    """Every program waits, and nothing that they wait for can come."""


class Endless(AssertionError):
    """The programs went on beyond the limit of effects."""


class NoResult(AssertionError):
    """A result was asked of a program that has none, or was killed."""


@frozen
class Throw:
    """An answer that is thrown into the program."""

    error: BaseException


class Stream(Protocol):
    """A stream that a program has open: a body, or an iterator."""

    def close(self) -> None:
        """Let go of what it holds."""
        ...


@define(eq=False)
class Task(Generic[R]):
    """A program that was started.  `received` is what it emitted so far.

    Attributes:
        label: Its name in errors and in the list of effects.
        node: The node that runs it.
        program: The program.
        body: The body of its request; None if it has none.
        received: The bytes that it emitted so far.
        asks_for: The effect that is not performed yet.
        waits_for: The effect that is performed, with an answer to come.
        done: Whether the program has ended.
        error: The exception that ended it.
        handed: Whether its caller has got the error.
        body_was_read: Whether the program asked for the body.
        outer: The task that waits for its end.
        inner: The tasks that it waits for.
        streams: The streams that it has open.
        outcome: Where its end is told, if it is that of a job.
        answer: The answer that it is sent next.
        ticket: The number of its current wait.
    """

    label: str
    node: Node
    program: Program[R] = field(repr=False)
    body: bytes | None = field(default=b"", repr=False)  # of its request; None: it has none
    received: bytearray = field(factory=bytearray, repr=False)
    asks_for: Effect | None = None  # not performed yet
    waits_for: Effect | None = None  # performed, and the answer comes later
    done: bool = False
    error: Exception | None = None
    handed: bool = False  # the error has reached the caller
    body_was_read: bool = False
    outer: Task[Any] | None = field(default=None, repr=False)  # waits for the end of this one
    inner: tuple[Task[Any], ...] = field(default=(), repr=False)  # whose ends it waits for
    streams: Streams[Stream] = field(factory=Streams[Stream], repr=False)
    _value: list[R] = field(factory=list[R])
    outcome: Outcome[Any] | None = field(default=None, repr=False)
    answer: Any = None  # what the program is sent next
    ticket: int = 0  # of the wait that counts, among those in the heap
    _born: int = 0
    _seen: dict[str, int] = field(factory=dict[str, int])

    def __attrs_post_init__(self) -> None:
        self._born = self.node.state.sequence

    def result(self) -> R:
        """Return what the program returned, or raise what it raised."""
        if self.error is not None:
            self.handed = True
            raise self.error
        if not self._value:
            raise NoResult(self.state())
        return self._value[0]

    def find_value(self) -> R | None:
        """Return what the program returned, None where it did not come to its end."""
        return self._value[0] if self._value else None

    def state(self) -> str:
        """Return one line: who it is and what it is doing."""
        return f"{self.label} on {self.node.name}: {self._doing()}"

    def _doing(self) -> str:
        if self.done:
            return "ended"
        if self.asks_for is not None:
            return f"asks for {show(self.asks_for)}"
        return "ready" if self.waits_for is None else f"waits for {show(self.waits_for)}"

    def matters(self) -> bool:
        """Tell whether it can still go on, or has failed with an error that no caller has seen."""
        return not self.done or (self.error is not None and not self.handed)

    def since(self, topic: str) -> int:
        """Return up to which nudge this knows of `topic`: the last it waited for, or the start."""
        return self._seen.get(topic, self._born)

    def catch_up(self, topic: str) -> None:
        """Note that this has waited for a nudge under `topic`."""
        self._seen[topic] = self.node.state.sequence

    def advance(self) -> Effect | None:
        """Give the program its answer; return what it asks for next, None when it ended."""
        answer, self.answer = self.answer, None
        try:
            if isinstance(answer, Throw):
                return self.program.throw(answer.error)
            return self.program.send(answer)
        except StopIteration as stop:
            self._value.append(stop.value)
        except Exception as error:  # noqa: BLE001  kept for who asks for the result
            self.error = error
        self.done = True
        self.close_streams()
        return None

    def close_streams(self, *numbers: int) -> None:
        """Close these streams, or all."""
        for stream in self.streams.take(*numbers):
            stream.close()

    def kill(self) -> None:
        """Close the program where it stands; what it does wrong meanwhile becomes its error."""
        where = self.state()
        self.done = True
        self.waits_for = None
        try:
            unwind(self.program, f"while {where}")
        except Exception as error:  # noqa: BLE001  as above
            self.error = error
        self.close_streams()


@define(eq=False)
class Scheduler:
    """The line of programs that can go on, and the heap of those that are due later.

    `perform` acts on an effect: it returns the answer, a `Throw`, or `WAITS` after `wait`.
    """

    clock: Clock
    perform: Callable[[Task[Any], Effect], Any]
    order: Random | None = None
    limit: int = 1_000_000  # effects in one call
    tasks: list[Task[Any]] = field(factory=list[Task[Any]], init=False)
    _ready: list[Task[Any]] = field(factory=list[Task[Any]], init=False)
    _due: list[tuple[float, int, Task[Any], Any]] = field(factory=list[Any], init=False)
    _tickets: Iterator[int] = field(factory=lambda: count(1), init=False)
    _names: Counter[str] = field(factory=Counter[str], init=False)
    _left: int = field(default=0, init=False)

    def add(self, task: Task[R]) -> Task[R]:
        """Put a new program at the end of the line; a second of the same name gets a number."""
        self._names[task.label] += 1
        if self._names[task.label] > 1:
            task.label += f" #{self._names[task.label]}"
        self.tasks = [known for known in self.tasks if known.matters()]
        self.tasks.append(task)
        self._ready.append(task)
        return task

    def enter(self, outer: Task[Any], program: Program[Any]) -> None:
        """Let `outer` wait for the end of `program`, which runs under its name.

        It answers the same request: what it emits is part of the same response.
        """
        inner = Task(outer.label, outer.node, program, outer.body, outer.received, outer=outer)
        self._enter(outer, (inner,))

    def enter_each(self, outer: Task[Any], programs: Iterable[Program[Any]]) -> None:
        """Let `outer` wait for the ends of `programs`, which have no request."""
        self._enter(
            outer,
            tuple(
                Task(f"{outer.label}[{index}]", outer.node, program, None, outer=outer)
                for index, program in enumerate(programs)
            ),
        )

    def _enter(self, outer: Task[Any], inner: tuple[Task[Any], ...]) -> None:
        outer.inner = inner
        self.tasks.extend(inner)
        self._ready.extend(inner)

    def _leave(self, inner: Task[Any], outer: Task[Any]) -> None:
        """Hand the outcome of `inner` to `outer`, which may wait for others as well."""
        inner.handed = True
        if inner.error is not None:
            self.wake(outer, Throw(inner.error))
        elif not isinstance(outer.waits_for, Concurrently):
            self.wake(outer, inner.result())
        elif all(task.done for task in outer.inner):
            self.wake(outer, tuple(task.result() for task in outer.inner))

    def wait(self, task: Task[Any], effect: Effect, seconds: float, answer: Any) -> object:
        """Let `task` wait until it is woken, or gets `answer` after `seconds`."""
        task.ticket = next(self._tickets)
        task.waits_for = effect
        due = self.clock.elapsed_us + microseconds(seconds)
        if math.isfinite(due):
            heapq.heappush(self._due, (due, task.ticket, task, answer))
        return WAITS

    def wake(self, task: Task[Any], answer: Any) -> None:
        """End the wait of `task`; the programs that it was waiting for are closed."""
        self.forget(task)
        task.answer = answer
        self._ready.append(task)

    def forget(self, task: Task[Any]) -> None:
        """Undo `wait`: `task` goes on as who holds it decides."""
        task.waits_for = None
        task.ticket = 0
        task.node.state.leave(task)
        self._drop_inner(task)

    def _drop_inner(self, task: Task[Any]) -> None:
        inner, task.inner = task.inner, ()
        for one in inner:
            if not one.done:
                self.drop(one)

    def kill(self, node: Node) -> None:
        """Close every program of `node` and forget them, but for what they did wrong."""
        for task in self.tasks:
            if task.node is node and not task.done:
                self.drop(task)

    def stall(self, node: Node) -> None:
        """Give no program of `node` a turn until it may `go_on`; time passes for them as well."""
        node.stalled = True

    def stall_at(self, task: Task[Any], effect: Effect) -> None:
        """Let the node of `task` stall before it performs `effect`, with which it goes on."""
        task.asks_for = effect
        self.stall(task.node)
        task.node.parked.append(task)

    def go_on(self, node: Node) -> None:
        """Let the programs of a stalled node go on where they stand."""
        node.stalled = False
        parked, node.parked = node.parked, []
        self._ready.extend(parked)

    def drop(self, task: Task[Any]) -> None:
        """Close one program, after those whose ends it waits for."""
        self._drop_inner(task)
        task.kill()
        self.forget(task)
        for line in (self._ready, task.node.parked):
            if task in line:
                line.remove(task)
        self._tell(task)

    def _tell(self, task: Task[Any]) -> None:
        """Tell the end of a job to whoever waits for it."""
        if task.outcome is None or task.outcome.over:
            return
        waiter: Task[Any] | None = task.outcome.tell(task.find_value())
        asked = None if waiter is None else waiter.waits_for
        if waiter is not None and isinstance(asked, AwaitOutcome) and asked.outcome is task.outcome:
            self.wake(waiter, task.outcome.result)

    def abandon(self, task: Task[Any]) -> None:
        """Close one program, and every program that waits for its end."""
        while task.outer is not None:
            task = task.outer
        self.drop(task)

    def run(self, done: Callable[[], bool]) -> None:
        """Go on, and let time pass, until `done()`.

        Raises:
            Deadlock: Nobody can go on.
        """
        self._left = self.limit
        while not done():
            if not self._advance(math.inf):
                raise Deadlock(self._who_waits("nothing is due, and every program waits"))

    def run_until(self, elapsed_us: float) -> None:
        """Go on until nobody can before the clock passes `elapsed_us`; leave it there."""
        self._left = self.limit
        while self._advance(elapsed_us):
            pass
        self.clock.pass_to(elapsed_us)

    def _advance(self, horizon_us: float) -> bool:
        """Give one program its turn, or pass time; False when neither can be by `horizon_us`."""
        if self._ready:
            at = int(self.order.random() * len(self._ready)) if self.order else 0
            task = self._ready.pop(at)
            if task.node.stalled:
                task.node.parked.append(task)
            else:
                self._turn(task)
            return True
        while self._due and self._due[0][1] != self._due[0][2].ticket:
            heapq.heappop(self._due)  # woken before its time
        if not self._due or self._due[0][0] > horizon_us:
            return False
        self.clock.pass_to(self._due[0][0])
        self._wake_due()
        return True

    def _wake_due(self) -> None:
        while self._due and self._due[0][0] <= self.clock.elapsed_us:
            _, ticket, task, answer = heapq.heappop(self._due)
            if task.ticket == ticket:
                self.wake(task, answer)

    def _turn(self, task: Task[Any]) -> None:
        """Perform what the program asked for, or let it go on to what it asks for next."""
        asked, task.asks_for = task.asks_for, None
        if asked is not None:
            if self._perform(task, asked):
                self._ready.append(task)
            return
        while True:
            effect: Any = task.advance()  # an effect, or what a faulty program yields
            if task.done:
                break
            if not getattr(effect, "immediate", True):
                task.asks_for = effect
                self._ready.append(task)
                return
            self._perform(task, effect)
        if task.outer is not None:
            self._leave(task, task.outer)
        self._tell(task)

    def _perform(self, task: Task[Any], effect: Effect) -> bool:
        """Perform `effect`; tell whether the program can go on at once."""
        self._spend(task, effect)
        answer = self.perform(task, effect)
        if answer is not WAITS:
            task.answer = answer
        return answer is not WAITS

    def _spend(self, task: Task[Any], effect: Effect) -> None:
        self._left -= 1
        if self._left < 0:
            head = f"more than {self.limit} effects; {task.label} asks for {show(effect)}"
            raise Endless(self._who_waits(head))

    def _who_waits(self, head: str) -> str:
        alive = (f"  {task.state()}" for task in self.tasks if not task.done)
        return "\n".join([f"{head}:", *alive])
