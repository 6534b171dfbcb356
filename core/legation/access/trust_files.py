"""A file that tokens are judged by, and that is read again and again: the keys, the revocations.

What a file that can be read says holds at once.  While it cannot be read, what it said last holds
for a bounded time: then nothing is accepted on its word any more, until it can be read again.

    current --cannot be read--> stale --`limit_us` later--> void
       ^                          |                          |
       +-------can be read--------+--------------------------+

Times are microseconds since the epoch, and come from whoever asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from attrs import evolve

from ..effects import Log
from ..http.refusals import Fault
from ..values import frozen

__all__ = ["NEVER", "FileState", "TrustFile", "log_changes"]

NEVER: Final = 1 << 62
"""Later than any time."""


class FileState(StrEnum):
    """The validity of what a file said last."""

    CURRENT = "current"
    STALE = "stale"
    VOID = "void"


@frozen
class TrustFile:
    """A file as it was read lately.

    Attributes:
        limit_us: How long it may be stale.
        generation: Differs whenever what it said last does.
        loaded_us: Since when that is in force; None where nobody said.
        since_us: Since when it cannot be read; None where nobody said, or it can.
        failed_us: When reading it failed last, if that is known.
        faults: Why it cannot be read.
    """

    limit_us: int
    generation: bytes = b""
    state: FileState = FileState.CURRENT
    loaded_us: int | None = None
    since_us: int | None = None
    failed_us: int | None = None
    faults: tuple[Fault, ...] = ()

    @property
    def current(self) -> bool:
        """Whether it could be read last."""
        return self.state is FileState.CURRENT

    def take(self, generation: bytes, now_us: int | None) -> TrustFile:
        """Return the file when it could be read."""
        loaded_us = self.loaded_us if generation == self.generation else now_us
        return TrustFile(self.limit_us, generation, loaded_us=loaded_us)

    def fail(self, faults: tuple[Fault, ...], now_us: int | None) -> TrustFile:
        """Return the file when it could not be read; it is stale since the first time."""
        state = FileState.STALE if self.state is FileState.CURRENT else self.state
        since_us = now_us if self.since_us is None else self.since_us
        return evolve(self, state=state, since_us=since_us, failed_us=now_us, faults=faults)

    def at(self, now_us: int) -> TrustFile:
        """Return the file as it is now: void, when it has been stale for too long."""
        if self.state is not FileState.STALE:
            return self
        since_us = now_us if self.since_us is None else self.since_us
        state = FileState.VOID if now_us - since_us >= self.limit_us else FileState.STALE
        return evolve(self, since_us=since_us, state=state)

    @property
    def next_us(self) -> int:
        """The time at which `at` is to be asked next, because the state may change by itself."""
        if self.state is not FileState.STALE:
            return NEVER
        return 0 if self.since_us is None else self.since_us + self.limit_us

    def stale_seconds(self, now_us: int) -> float:
        """Return for how long the file cannot be read."""
        return 0.0 if self.since_us is None else max(0, now_us - self.since_us) / 1_000_000


def log_changes(path: str, before: TrustFile, after: TrustFile, *, keys: bool) -> Iterator[Log]:
    """Yield a line for each thing that has become of the file at `path`.

    Args:
        path: As it is configured.
        before: The file as it was when it was asked last.
        after: The file as it is now.
        keys: It holds keys, not revocations.
    """
    where = (("path", path),)
    if before.current and not after.current:
        reason = "; ".join(f"{fault.path}: {fault.message}" for fault in after.faults)
        failed = (*where, ("reason", reason))
        yield Log("error", "keys_reload_failed" if keys else "revocations_reload_failed", failed)
    if after.state is FileState.VOID and before.state is not FileState.VOID:
        limit = (*where, ("stale_seconds", after.limit_us / 1_000_000))
        yield Log("error", "keys_void" if keys else "revocations_void", limit)
    if after.current and not before.current:
        yield Log("info", "keys_recovered" if keys else "revocations_recovered", where)
    if before.generation != after.generation:
        yield Log("info", "keys_reloaded" if keys else "revocations_reloaded", where)
