"""The register of what a node works on: runs, messages and replies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

from attrs import define, field

__all__ = ["InFlight", "Key"]

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
