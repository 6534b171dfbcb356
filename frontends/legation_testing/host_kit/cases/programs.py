"""The rules about every program: its result, its error, its end; and the life of a host."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from attrs import frozen

from legation.effects import Now, Program, Sleep, Spawn, ThisNode, Transact

from ..bench import FIRST, Bench, Broken, Case, HostUnderTest, Trace, ask, expect, require
from ..tables import Get, Put
from .jobs import Following

__all__ = ["CASES"]


@frozen
class _Result:
    """A result that is equal to no other."""

    parts: tuple[Any, ...]


def _result(bench: Bench) -> None:
    def give(result: Any) -> Program[Any]:
        yield from Now()
        return result

    for result in (None, 0, "", (), _Result((1, b"x", None)), "x" * 1_000_000):
        expect("`run` returned", bench.run(give(result)), result)


def _ask_nothing(bench: Bench) -> None:
    def give() -> Program[str]:
        yield from ()
        return "at once"

    expect("`run` returned", bench.run(give()), "at once")


class _OwnError(Exception):
    """An error that a program of a case raises."""


def _own_error(bench: Bench) -> None:
    def fail(effects: tuple[Any, ...]) -> Program[None]:
        for effect in effects:
            yield from ask(effect)
        raise _OwnError("the reason")

    for effects in ((), (Now(),), (Sleep(0.0), Now())):
        try:
            bench.run(fail(effects))
        except _OwnError as error:
            expect("the error says", str(error), "the reason")
        else:
            raise Broken("`run` returned, and its program had raised an error")
    expect("after an error a program returned", bench.run(ask(ThisNode())) != "", True)


def _many_effects(bench: Bench) -> Program[None]:
    for number in range(10_000):
        now = yield from Now()
        require(now > 0, f"effect {number} of many was answered {now!r}")


def _one_at_a_time(bench: Bench) -> None:
    for number in range(200):
        expect("`run` returned", bench.run(_give_after_sleep(number)), number)


def _give_after_sleep(number: int) -> Program[int]:
    yield from Sleep(0.0)
    return number


@contextmanager
def _reopen(bench: Bench) -> Generator[HostUnderTest]:
    with bench.make_host(bench.setup) as host:
        yield host


def _open_twice(bench: Bench) -> None:
    name = bench.name("kept")
    nodes = [bench.run(ask(ThisNode()))]
    for number in range(2):
        with _reopen(bench) as host:
            nodes.append(bench.run(ask(ThisNode()), host=host))
            if number == 0:
                bench.run(ask(Transact(FIRST, Put(name, 7))), host=host)
            found = bench.run(ask(Transact(FIRST, Get(name))), host=host)
            expect("what the host before had stored", found, 7)
    require(len(set(nodes)) == 3, f"three starts have the names {nodes}: a name came again")


def _end_closes_jobs(bench: Bench) -> None:
    traces = [Trace(), Trace()]
    with _reopen(bench) as host:
        for trace in traces:
            job = Following(trace, bench.name("began"), bench.name("never"))
            bench.run(_spawn_and_await(job), host=host)
    closed = [trace.is_closed() for trace in traces]
    expect("the jobs were closed when the host was", closed, [True, True])


def _spawn_and_await(job: Following) -> Program[None]:
    yield from Spawn(job)
    yield from job.await_begin()


CASES: Final = (
    Case(
        "program.result",
        None,
        "`run` returns what the program returned, whatever it is",
        _result,
    ),
    Case(
        "program.nothing_asked",
        None,
        "A program that asks for nothing runs, too",
        _ask_nothing,
    ),
    Case(
        "program.own_error",
        None,
        "What a program raises comes out of `run`, and other programs go on",
        _own_error,
    ),
    Case(
        "program.many_effects",
        None,
        "A program may ask for any number of effects",
        _many_effects,
    ),
    Case(
        "program.one_after_another",
        None,
        "A host runs any number of programs, one after another",
        _one_at_a_time,
    ),
    Case(
        "host.opened_twice",
        None,
        "A host opened again has what was stored, and another name",
        _open_twice,
    ),
    Case(
        "host.end_closes_jobs",
        None,
        "The end of a host closes the jobs that are left, where they wait",
        _end_closes_jobs,
    ),
)
