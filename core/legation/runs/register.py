"""The register of the runs that this node executes, by database.

The id of a run means nothing without its database: whoever asks a database about a run of another
is told that there is no such run.  So the register has no way to read the ids of all databases
together.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field

__all__ = ["ExecutingRuns"]


@define(eq=False)
class ExecutingRuns:
    """Runs under execution, each with the number of the try.

    Somebody may go on with a run that paused before whoever stored the pause has learned that it
    is stored: so only the try that entered a run takes it out again.
    """

    _attempts: dict[tuple[str, str], int] = field(factory=dict[tuple[str, str], int], init=False)

    def __len__(self) -> int:
        return len(self._attempts)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Iterate over database and id of each run, sorted."""
        return iter(sorted(self._attempts))

    def __contains__(self, key: tuple[str, str]) -> bool:
        """Whether a run, of a database and with an id, is executed."""
        return key in self._attempts

    def enter(self, database: str, run_id: str, attempt: int) -> None:
        """Note that the try `attempt` of a run begins."""
        self._attempts[database, run_id] = attempt

    def leave(self, database: str, run_id: str, attempt: int) -> None:
        """Note that this try is over."""
        if self._attempts.get((database, run_id)) == attempt:
            del self._attempts[database, run_id]

    def ids(self, database: str) -> tuple[str, ...]:
        """Return the ids of the runs of `database`, sorted."""
        return tuple(sorted(run_id for name, run_id in self._attempts if name == database))
