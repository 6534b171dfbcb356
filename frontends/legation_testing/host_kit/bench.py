"""The bench of the kit: the host under test, its databases, the server it fetches from.

A case is a rule of the contract with a program that finds out whether the rule holds.  The program
looks from inside: at what it is answered, in which order, and after how long by the clock of the
host.  So a case runs on every host alike, also where time is virtual.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import count
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from attrs import define, field, frozen

from legation.effects import Asks, Now, Program
from legation.store.units import Dialect
from legation_host import Write

from ..matching import show
from ..performing import Fetcher, WriteAudit
from .outside import Outside
from .peer import Peer

__all__ = [
    "FIRST",
    "LONG",
    "SECOND",
    "SHORT",
    "Bench",
    "Broken",
    "Case",
    "HostSetup",
    "HostUnderTest",
    "MakeHost",
    "Trace",
    "ask",
    "ask_at_once",
    "ask_in_vain",
    "expect",
    "require",
    "time_program",
]

R = TypeVar("R")

FIRST: Final = "first"
SECOND: Final = "second"
"""The names of the two databases."""

SHORT: Final = 0.03
"""Seconds: a wait that is to come to its end."""

LONG: Final = 5.0
"""Seconds: a wait that is to be ended by something else, and is over all the same."""

PROMPT: Final = 4.0
"""Seconds: what takes less did not wait for `LONG`."""


class Broken(AssertionError):
    """A rule of the contract is broken."""


def require(holds: object, sentence: str) -> None:
    """Raise `Broken` with `sentence` unless `holds`."""
    if not holds:
        raise Broken(sentence)


def expect(what: str, found: object, expected: object) -> None:
    """Raise `Broken` unless `found` is equal to `expected`, and of its type."""
    if found != expected or type(found) is not type(expected):
        raise Broken(f"{what}: {show(found)}, not {show(expected)}")


class HostUnderTest(Protocol):
    """A host as the kit asks it, from one thread; one for asyncio or trio gets a `portal_host`."""

    def run(self, program: Program[R], *, body: bytes, emit: Callable[[bytes], object]) -> R:
        """Run `program` to its end and return its result, or raise what it raised.

        Args:
            program: Closed before this returns, however it ends.
            body: That of the request being answered, for `ReadBody`.
            emit: Takes what the program emits; raises when nobody is there any more.
        """
        ...


@frozen
class HostSetup:
    """The surroundings that a host is opened in.

    Attributes:
        databases: Two of them: the URL of each, by the name that programs use.
        log: Takes the level, the event and the fields of each `Log`.
        write_audit: Makes the program that stores what was recorded; it may be asked again for
            the same entries.
        fetch: Answers as the server of the kit does: for a host that has no network.  All others
            reach the server itself, at the URLs that the programs name.
    """

    databases: Mapping[str, str]
    log: Write
    write_audit: WriteAudit
    fetch: Fetcher


MakeHost: TypeAlias = Callable[[HostSetup], AbstractContextManager[HostUnderTest]]
"""Opens a host; leaving the block ends its jobs and closes what it has open."""


@define(eq=False)
class Trace:
    """The fate of one program: how it ended, and whether it was closed.

    Attributes:
        ended: It returned.
        error: What left it instead; `GeneratorExit` where it was closed.
    """

    ended: bool = False
    result: Any = None
    error: BaseException | None = None
    _program: Generator[Any, Any, Any] | None = None

    def watch(self, program: Program[R]) -> Program[R]:
        """Return `program` as it is to be run; to be called once."""
        self._program = self._watch(program)
        return self._program

    def _watch(self, program: Program[R]) -> Program[R]:
        try:
            self.result = yield from program
        except BaseException as error:
            self.error = error
            raise
        self.ended = True
        result: R = self.result
        return result

    def is_over(self) -> bool:
        """Tell whether nothing of the program is left, whether or not it ever began."""
        program = self._program
        return program is not None and inspect.getgeneratorstate(program) == inspect.GEN_CLOSED

    def is_closed(self) -> bool:
        """Tell whether it was closed before its end."""
        return self.is_over() and not self.ended and isinstance(self.error, GeneratorExit | None)


@define(eq=False)
class Bench:
    """The host under test and all that its cases need.

    Attributes:
        setup: What the host was opened with, and is opened with again.
        outside: Another process that uses the same databases, by name.
        lines: What the host has logged.
    """

    setup: HostSetup
    make_host: MakeHost
    host: HostUnderTest
    peer: Peer
    outside: Mapping[str, Outside]
    lines: Sequence[tuple[str, str, Mapping[str, Any]]]
    _numbers: Any = field(factory=lambda: count(1), init=False)

    def run(
        self,
        program: Program[R],
        *,
        body: bytes = b"",
        emit: Callable[[bytes], object] | None = None,
        host: HostUnderTest | None = None,
    ) -> R:
        """Let the host run `program`, and hold it to what it owes to every program.

        Raises:
            Broken: The program was not closed, or its outcome is not that of `run`.
        """
        trace = Trace()
        watched = trace.watch(program)
        try:
            result = (host or self.host).run(watched, body=body, emit=emit or _ignore)
        except BaseException as error:
            if isinstance(trace.error, Broken) and error is not trace.error:
                raise trace.error from error
            require(trace.is_over(), f"`run` raised {show(error)}, and the program is not closed")
            raise
        if trace.error is not None:
            if isinstance(trace.error, Broken):
                raise trace.error
            raise Broken(f"`run` returned {show(result)}; the program raised {show(trace.error)}")
        require(trace.ended, f"`run` returned {show(result)} before the end of the program")
        if result is not trace.result:
            expect("`run` returned what its program did not", result, trace.result)
        return result

    def name(self, word: str) -> str:
        """Return a name that no other case uses."""
        return f"{word}-{next(self._numbers)}"

    def dialect(self, database: str) -> Dialect:
        """Return the SQL that `database` speaks."""
        return self.outside[database].dialect


def _ignore(_: bytes) -> None:
    """Take what nobody asks for."""


@frozen
class Case:
    """A rule, and how to find out whether it holds.

    Attributes:
        name: The effect and the rule, in short: how a report and `only` call it.
        effect: What the rule is about; None where it is about all programs.
        rule: The sentence that is broken.
        act: Returns the program that finds out, or finds out itself, with programs of its own; what
            it raises is what is wrong.
        dialect: The only engine that the rule is about, of the two.
        real_time: It lets a thread take its time, which a host with virtual time cannot see.
    """

    name: str
    effect: type[Asks[Any]] | None
    rule: str
    act: Callable[[Bench], Program[None] | None]
    dialect: Dialect | None = None
    real_time: bool = False


# What programs of cases are made of


def ask(effect: Any) -> Program[Any]:
    """Ask for `effect` and return the answer."""
    return (yield effect)


def time_program(program: Program[R]) -> Program[tuple[R, float]]:
    """Return what `program` returned, and the seconds that it took by the clock of the host."""
    before = yield from Now()
    result = yield from program
    after = yield from Now()
    return result, (after - before) / 1_000_000


def ask_at_once(effect: Any) -> Program[Any]:
    """Ask for `effect`, whose answer is not to take `LONG`."""
    answer, seconds = yield from time_program(ask(effect))
    kind = type(effect).__name__
    require(seconds < PROMPT, f"{kind} was answered after {seconds:.2f} s: {show(answer)}")
    return answer


def ask_in_vain(effect: Any, seconds: float = SHORT) -> Program[Any]:
    """Ask for `effect`, whose answer is not to come before `seconds`, nor much later."""
    answer, took = yield from time_program(ask(effect))
    kind = type(effect).__name__
    # Clocks and timers of a machine may disagree by a few milliseconds.
    require(
        took > seconds * 0.8 and took < seconds + PROMPT,
        f"{kind} was answered after {took:.3f} s, not {seconds} s: {show(answer)}",
    )
    return answer
