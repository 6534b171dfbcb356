"""The planting of faults: what one is, and a host with one in it.

A fault is one thing that a host does wrong.  Most stand between a program and a host that is right,
and are a program themselves: what is done instead of an effect, here and in every program within.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from attrs import define, evolve, frozen

from legation.effects import Concurrently, Interruptible, Job, Program, Spawn, Transact
from legation.programs import Handlers, intercept
from legation.store.units import Dialect, Statements, Unit, Work
from legation_testing import HostSetup, HostUnderTest, MakeHost

from ...statements import one_by_one

__all__ = [
    "KEPT",
    "Changed",
    "Emitter",
    "Fault",
    "ask",
    "change",
    "effects_of",
    "jobs_of",
    "leave_open",
    "plant",
    "running",
    "units_of",
]

R = TypeVar("R")

Emitter: TypeAlias = Callable[[bytes], object]
Run: TypeAlias = Callable[[HostUnderTest, Program[Any], bytes, Emitter], Any]
RunJob: TypeAlias = Callable[[Program[object]], Program[object]]
Change: TypeAlias = Callable[[Statements[Any]], Statements[Any]]


def _run(host: HostUnderTest, program: Program[R], body: bytes, emit: Emitter) -> R:
    return host.run(program, body=body, emit=emit)


def _run_job(program: Program[object]) -> Program[object]:
    return program


@frozen
class Fault:
    """One thing that a host does wrong.

    Attributes:
        rules: The names of the cases that have to see it.
        host: The host in which it is planted.
        handlers: Made anew for each host: by the kind of an effect, what is done instead.
        run: Done instead of `run`.
        job: Done instead of the program of a job.
    """

    name: str
    rules: tuple[str, ...]
    host: str = "simulation"
    handlers: Callable[[], Handlers] = dict
    run: Run = _run
    job: RunJob = _run_job


def effects_of(*rules: str, host: str = "simulation") -> Callable[[Callable[[], Handlers]], Fault]:
    """Make a fault in the effects that a function names."""
    return lambda handlers: Fault(handlers.__name__, rules, host, handlers)


def running(*rules: str, host: str = "simulation") -> Callable[[Run], Fault]:
    """Make a fault in how programs are run."""
    return lambda run: Fault(run.__name__, rules, host, run=run)


def jobs_of(*rules: str, host: str = "simulation") -> Callable[[RunJob], Fault]:
    """Make a fault in how jobs are run."""
    return lambda job: Fault(job.__name__, rules, host, job=job)


def units_of(*rules: str, host: str = "simulation") -> Callable[[Change], Fault]:
    """Make a fault in how units are carried out."""

    def make(through: Change) -> Fault:
        def transact(effect: Transact[Any]) -> Program[Any]:
            return (yield Transact(effect.database, change(effect.unit, through)))

        return Fault(through.__name__, rules, host, lambda: {Transact: transact})

    return make


def plant(fault: Fault, make_host: MakeHost) -> MakeHost:
    """Return what opens the host with the fault in it."""

    @contextmanager
    def make(setup: HostSetup) -> Generator[HostUnderTest]:
        with make_host(setup) as host:
            yield _FaultyHost(host, fault, fault.handlers())

    return make


@frozen
class _FaultyHost:
    host: HostUnderTest
    fault: Fault
    handlers: Handlers

    def run(self, program: Program[R], *, body: bytes, emit: Emitter) -> R:
        result: R = self.fault.run(self.host, self.follow(program), body, emit)
        return result

    def follow(self, program: Program[R]) -> Program[R]:
        """Return `program` as a host with this fault drives it, with all that is within."""
        nested: Handlers = dict.fromkeys((Interruptible, Concurrently, Spawn), ask)
        handlers = {**nested, **self.handlers}
        return intercept(program, {kind: self._enter(handlers[kind]) for kind in handlers})

    def _enter(self, handle: Callable[[Any], Program[Any]]) -> Callable[[Any], Program[Any]]:
        """Let `handle` be given programs that have the fault, too."""

        def follow_and_handle(effect: Any) -> Program[Any]:
            kind = effect.__class__
            if kind is Interruptible:
                effect = evolve(effect, program=self.follow(effect.program))
            elif kind is Concurrently:
                effect = Concurrently[Any](tuple(map(self.follow, effect.programs)))
            elif kind is Spawn:
                effect = Spawn(_FaultyJob(self, effect.job), effect.outcome)
            return handle(effect)

        return follow_and_handle


@frozen
class _FaultyJob(Job):
    host: _FaultyHost
    job: Job

    def program(self) -> Program[object]:
        return self.host.fault.job(self.host.follow(self.job.program()))


# What faults are made of


def ask(effect: Any) -> Program[Any]:
    """Ask for `effect`, and return the answer."""
    return (yield effect)


KEPT: Final[list[Any]] = []
"""What a host with a fault never closes: it must not be closed by its collection either."""


def leave_open(program: Program[R]) -> Program[R]:
    """Run `program`, but do not close it where this is closed."""
    KEPT.append(program)
    answer: Any = None
    trouble: Exception | None = None
    while True:
        try:
            effect = program.send(answer) if trouble is None else program.throw(trouble)
        except StopIteration as stop:
            result: R = stop.value
            return result
        answer, trouble = None, None
        try:
            answer = yield effect
        except Exception as error:  # noqa: BLE001  thrown into whom it is for
            trouble = error


@define
class Changed(Unit[Any]):
    """A unit whose statements pass through something on their way."""

    unit: Unit[Any]
    through: Change

    def statements(self, dialect: Dialect) -> Work[Any]:
        return self.through(one_by_one(self.unit.statements(dialect)))


@define
class _ChangedRead(Changed):
    writes: ClassVar[bool] = False


@define
class _ChangedExclusive(Changed):
    exclusive: ClassVar[bool] = True


def change(unit: Unit[Any], through: Change) -> Unit[Any]:
    """Return `unit`, of the same kind, with its statements changed."""
    kind = _ChangedExclusive if unit.exclusive else Changed if unit.writes else _ChangedRead
    return kind(unit, through)
