"""Rounds: the work of a node that is done again and again, or once by a process that is frozen.

A job of a node is its round, repeated as long as the process lives.  `Platform.round` attempts
each of them once, or a few times: what a round does is decided in one place.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from ..effects import AwaitNudge, Job, Log, Program, Sleep
from ..incidents import where
from ..store.failures import StoreFailure
from ..values import frozen

__all__ = ["Attempt", "Pause", "RoundJob", "Rounds", "attempt", "pause_us", "repeat"]

Pause: TypeAlias = AwaitNudge | Sleep


class Rounds(Protocol):
    """Work on one database that is done in rounds."""

    @property
    def database(self) -> str:
        """The id of the database."""
        ...

    @property
    def pause(self) -> Pause:
        """The pause between two rounds."""
        ...

    @property
    def after_trouble(self) -> Pause:
        """The pause after a round that failed."""
        ...

    def round(self) -> Program[bool]:
        """Do what is due now; return whether there is more of it at once."""
        ...

    def log_trouble(self, level: str, fields: tuple[tuple[str, Any], ...]) -> Log:
        """Return the line of the log for a round that failed."""
        ...


@frozen
class Attempt:
    """The outcome of a round: its trouble, else nothing; and whether there is more at once."""

    trouble: str
    more: bool


def attempt(rounds: Rounds, logged: str = "") -> Program[Attempt]:
    """Do one round, whatever goes wrong; trouble is logged unless it is `logged` already."""
    trouble: Exception | None = None
    more = False
    try:
        more = yield from rounds.round()
    except Exception as error:  # noqa: BLE001 (a bug in one round must not end all of them)
        trouble = error
    found = "" if trouble is None else where(trouble)
    if found not in ("", logged):
        severity = "warning" if isinstance(trouble, StoreFailure) else "error"
        yield from rounds.log_trouble(severity, (("database", rounds.database), ("error", found)))
    return Attempt(found, more)


def repeat(rounds: Rounds) -> Program[None]:
    """Go round for ever; the same trouble is logged once."""
    logged = ""
    while True:
        done = yield from attempt(rounds, logged)
        logged = done.trouble
        if not done.more:
            yield from rounds.after_trouble if logged else rounds.pause


class RoundJob(Job):
    """Base of the jobs that go round for ever: what all of them do alike."""

    __slots__ = ()

    @property
    def after_trouble(self: Rounds) -> Pause:
        """Wait no longer than otherwise."""
        return self.pause

    def program(self: Rounds) -> Program[None]:
        """Go round, whatever goes wrong."""
        return repeat(self)


def pause_us(rounds: Rounds) -> int:
    """Return the pause between two rounds in microseconds; a nudge may end it sooner."""
    pause = rounds.pause
    seconds = pause.seconds if isinstance(pause, Sleep) else pause.timeout_seconds
    return round(seconds * 1_000_000)
