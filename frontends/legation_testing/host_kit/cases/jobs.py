"""The rules of `Spawn`: jobs that go on beside the program that asked for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import frozen

from legation.effects import (
    AwaitNudge,
    Concurrently,
    Interruptible,
    Job,
    Now,
    Nudge,
    Program,
    Sleep,
    Spawn,
    Transact,
)

from ..bench import FIRST, LONG, Bench, Case, Trace, ask_at_once, expect, require
from ..tables import Get, Put

__all__ = ["CASES", "Doing", "Following"]


@frozen
class Following(Job):
    """A job that tells that it has begun, and waits until it may go on."""

    trace: Trace
    began: str
    go: str

    def program(self) -> Program[None]:
        return self.trace.watch(self._wait())

    def _wait(self) -> Program[None]:
        yield from Nudge(self.began)
        yield from AwaitNudge(self.go, 60.0)

    def await_begin(self) -> Program[None]:
        """Wait until the job has begun; for the program that spawns it."""
        yield from ask_at_once(AwaitNudge(self.began, LONG))


@frozen
class Doing(Job):
    """A job that a case writes down; a new program at each start."""

    start: Callable[[], Program[None]]

    def program(self) -> Program[None]:
        return self.start()


def _until(what: str, holds: Callable[[], bool]) -> Program[None]:
    """Wait until `holds`, which jobs are to bring about."""
    for _ in range(200):
        if holds():
            return
        yield from Sleep(LONG / 200)
    require(holds(), what)


def _beside(bench: Bench) -> Program[None]:
    job = Following(Trace(), bench.name("began"), bench.name("go"))
    expect("`Spawn` was answered", (yield from ask_at_once(Spawn(job))), None)
    yield from job.await_begin()
    require(not job.trace.is_over(), "the job ended before it was told to")
    yield from Nudge(job.go)
    yield from _until("the job did not come to its end", job.trace.is_over)
    require(job.trace.ended, f"the job ended by {job.trace.error!r}")


def _outlives(bench: Bench) -> None:
    job = Following(Trace(), bench.name("began"), bench.name("go"))

    def spawn() -> Program[None]:
        yield from Spawn(job)
        yield from job.await_begin()

    def go_on() -> Program[None]:
        require(not job.trace.is_over(), "the job ended with the program that asked for it")
        yield from Nudge(job.go)
        yield from _until("the job did not come to its end", job.trace.is_over)
        require(job.trace.ended, f"the job ended by {job.trace.error!r}")

    bench.run(spawn())
    bench.run(go_on())


def _outlive_program(bench: Bench) -> None:
    name = bench.name("job")

    def store() -> Program[None]:
        yield from Sleep(0.0)
        yield from Transact(FIRST, Put(name, 1))

    def spawn_and_fail() -> Program[None]:
        yield from Spawn(Doing(store))
        raise _OwnError

    def look() -> Program[None]:
        for _ in range(200):
            if (yield from Transact(FIRST, Get(name))) == 1:
                return
            yield from Sleep(LONG / 200)
        require(False, "a job whose program failed after asking for it has stored nothing")

    try:
        bench.run(spawn_and_fail())
    except _OwnError:
        bench.run(look())


class _OwnError(Exception):
    """An error that a program of a case raises."""


def _fail_some(bench: Bench) -> None:
    ended: list[str] = []

    def fail() -> Program[None]:
        yield from Now()
        raise _OwnError("of a job")

    def fail_at_once() -> Program[None]:
        yield from ()
        raise _OwnError("of a job")

    def succeed() -> Program[None]:
        yield from Sleep(0.01)
        ended.append("job")

    def spawn(times: int) -> Program[None]:
        for start in (fail, fail_at_once, succeed, fail):
            yield from Spawn(Doing(start))
        sentence = "a job did not come to its end after another had failed"
        yield from _until(sentence, lambda: len(ended) == times)

    bench.run(spawn(1))
    bench.run(spawn(2))


def _many(bench: Bench) -> Program[None]:
    ended: list[int] = []

    def one(number: int) -> Callable[[], Program[None]]:
        def start() -> Program[None]:
            yield from Sleep(0.0)
            ended.append(number)

        return start

    for number in range(1_000):
        yield from Spawn(Doing(one(number)))
    yield from _until("1,000 jobs were spawned, and some did not end", lambda: len(ended) == 1_000)
    expect("jobs that ended", sorted(ended), list(range(1_000)))


def _anew(bench: Bench) -> Program[None]:
    ended: list[str] = []

    def start() -> Program[None]:
        yield from Sleep(0.0)
        ended.append("job")

    job = Doing(start)
    yield from Spawn(job)
    yield from Spawn(job)
    yield from _until("one job, spawned twice, ended once", lambda: len(ended) == 2)


def _from_everywhere(bench: Bench) -> Program[None]:
    ended: list[str] = []

    def end(word: str) -> Doing:
        def start() -> Program[None]:
            yield from Sleep(0.0)
            ended.append(word)

        return Doing(start)

    def spawn(job: Job) -> Program[None]:
        yield from Spawn(job)

    yield from Spawn(Doing(lambda: spawn(end("from a job"))))
    yield from Interruptible(spawn(end("from an inner program")), bench.name("topic"), LONG)
    yield from Concurrently((spawn(end("from one of several")),))
    yield from _until("jobs of jobs and of inner programs did not end", lambda: len(ended) == 3)


CASES: Final = (
    Case("Spawn.beside", Spawn, "A job runs beside the program that asked for it", _beside),
    Case("Spawn.outlives", Spawn, "A job outlives the program that asked for it", _outlives),
    Case(
        "Spawn.outlives_failing",
        Spawn,
        "A job goes on when the program that asked for it fails",
        _outlive_program,
    ),
    Case("Spawn.failing", Spawn, "A job that fails ends nothing but itself", _fail_some),
    Case("Spawn.many", Spawn, "Any number of jobs run", _many),
    Case("Spawn.anew", Spawn, "A job is started anew each time that it is spawned", _anew),
    Case(
        "Spawn.from_everywhere",
        Spawn,
        "Jobs and inner programs may ask for jobs, too",
        _from_everywhere,
    ),
)
