"""The register of what a node works on: runs, messages and replies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeAlias, TypeVar
from weakref import ReferenceType, ref

from attrs import field

from ..effects import Program
from ..values import define

__all__ = ["InFlight", "Key", "Registers", "SharedWork"]

R = TypeVar("R")
T = TypeVar("T")

Key: TypeAlias = tuple[str, ...]
"""A place and what is unique there: the database and the id of a run, a queue and an item's key.

The id of a run means nothing without its database: whoever asks a database about a run of another
is told that there is no such run.
"""


@define(eq=False)
class InFlight(Generic[T]):
    """Work in flight, each with the token of its attempt: a number, or a lease.

    Somebody may go on with a run that paused before whoever stored the pause has learned that it
    is stored, and claim a message anew whose lease ran out: so only the attempt that entered takes
    it out again.
    """

    _tokens: dict[Key, T] = field(factory=dict[Key, T], init=False)

    def __len__(self) -> int:
        return len(self._tokens)

    def __iter__(self) -> Iterator[Key]:
        """Iterate over the keys, sorted."""
        return iter(sorted(self._tokens))

    def __contains__(self, key: Key) -> bool:
        """Whether somebody works on `key`."""
        return key in self._tokens

    def holds(self, key: Key, token: T) -> bool:
        """Return whether somebody works on `key` under `token`."""
        return self._tokens.get(key) == token

    def enter(self, key: Key, token: T) -> None:
        """Note that work on `key` begins."""
        self._tokens[key] = token

    def leave(self, key: Key, token: T) -> None:
        """Note that the work under `token` is over."""
        if self._tokens.get(key) == token:
            del self._tokens[key]

    def at(self, place: str) -> dict[Key, T]:
        """Return the work at `place`, sorted."""
        return {key: self._tokens[key] for key in self if key[0] == place}


@define(eq=False)
class Registers(Generic[T]):
    """The registers of this process and of its rounds, each as long as somebody works with it.

    Every run walks through them, and a `WeakSet` makes six calls for that.
    """

    _kept: tuple[ReferenceType[InFlight[T]], ...] = field(default=(), init=False)

    def __iter__(self) -> Iterator[InFlight[T]]:
        """Iterate over those that are left, in the order in which they were added."""
        return iter([register for kept in self._kept if (register := kept()) is not None])

    def add(self, register: InFlight[T]) -> None:
        """Add `register`, and forget it with its last user."""
        self._kept = (*self._kept, ref(register, self._forget))

    def _forget(self, gone: ReferenceType[InFlight[T]]) -> None:
        self._kept = tuple([kept for kept in self._kept if kept is not gone])


@define(eq=False)
class SharedWork(Generic[T]):
    """The work of this process in one database, with that of its rounds.

    Attributes:
        registers: Those of the work in flight.
        begun: How many claims have been sent to the database.
        claims: Those of them, by their number, that have not been answered.
        idle: The leases of this node that nobody works under, each with when that was first seen,
            and how many claims had been sent then.
    """

    registers: Registers[T] = field(factory=Registers[T])
    begun: int = 0
    claims: set[int] = field(factory=set[int])
    idle: dict[T, tuple[int, int]] = field(factory=dict[T, tuple[int, int]])

    def holds(self, key: Key, token: T) -> bool:
        """Return whether somebody works on `key` under `token`."""
        return any(register.holds(key, token) for register in self.registers)

    def claim(self, program: Program[R]) -> Program[R]:
        """Run `program`, which claims and enters what it got, as one claim."""
        self.begun = number = self.begun + 1
        self.claims.add(number)
        try:
            return (yield from program)
        finally:
            self.claims.remove(number)

    def find_orphans(self, idle: Iterable[T], now_us: int, pause_us: int) -> tuple[T, ...]:
        """Return what was idle at two looks, at least `pause_us` apart; `idle` is so now.

        One look is not enough: a claim may stand in the database whose answer is on its way.  While
        one is that was so at the first look, there is no second.
        """
        now = (now_us, self.begun)
        self.idle = {lease: self.idle.get(lease, now) for lease in idle}
        first = min(self.claims, default=self.begun + 1)
        orphans = tuple(
            lease
            for lease, (since_us, begun) in self.idle.items()
            if not 0 <= now_us - since_us < pause_us and begun < first
        )
        for lease in orphans:
            del self.idle[lease]
        return orphans
