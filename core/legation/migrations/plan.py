"""The planner: from where a database stands to where it is wanted, or why not.

Pure, and before anything is touched: every pair of versions is planned in a test without a
database.  Each refusal says in one sentence what the caller can do about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TypeAlias

from ..store.units import Dialect, Statement
from ..values import frozen
from .catalogue import Catalogue, Migration, Step
from .ledger import State, drift
from .schema_version import Version

__all__ = [
    "Ahead",
    "Direction",
    "Drift",
    "Irreversible",
    "LosesData",
    "Move",
    "Plan",
    "PlanRefusal",
    "PlannedStep",
    "UnknownVersion",
    "moves_between",
    "plan",
]


class Direction(Enum):
    """The direction of a move, which chooses the steps of its migration."""

    UP = "up"
    DOWN = "down"


@frozen
class Move:
    """One migration, taken in one direction."""

    direction: Direction
    migration: Migration

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of this move, in order."""
        up = self.direction is Direction.UP
        return self.migration.up if up else self.migration.down or ()

    @property
    def loses(self) -> tuple[str, ...]:
        """The data that this move throws away, in words for people."""
        return () if self.direction is Direction.UP else self.migration.loses


@frozen
class PlannedStep:
    """A step as it is about to be taken; `number` counts from 1 within its move."""

    move: Move
    number: int
    step: Step
    statement: Statement


@frozen
class Plan:
    """The way from one version to another; without moves when they are the same."""

    from_version: Version
    to_version: Version
    moves: tuple[Move, ...]

    @property
    def loses(self) -> tuple[str, ...]:
        """Everything that would be thrown away."""
        return tuple(loss for move in self.moves for loss in move.loses)

    def steps(self, dialect: Dialect) -> Iterator[PlannedStep]:
        """Yield every step that `dialect` has to take, in order."""
        for move in self.moves:
            for number, step in enumerate(move.steps, start=1):
                statement = step.statement(dialect)
                if statement is not None:
                    yield PlannedStep(move, number, step, statement)


# --- refusals ---------------------------------------------------------------------------------


@frozen
class UnknownVersion:
    """The target is a version, and no version of this schema."""

    target: Version
    known: tuple[Version, ...]

    @property
    def detail(self) -> str:
        """One sentence for the caller."""
        return f"There is no version {self.target}; known are {', '.join(map(str, self.known))}"


@frozen
class Ahead:
    """The database was migrated by newer code, which alone knows the way back."""

    version: Version
    latest: Version

    @property
    def detail(self) -> str:
        """One sentence for the caller."""
        return f"The database is at {self.version}; this server knows versions up to {self.latest}"


@frozen
class Drift:
    """The history of the database is not the one that this code knows."""

    reason: str

    @property
    def detail(self) -> str:
        """One sentence for the caller."""
        return self.reason


@frozen
class LosesData:
    """Going down would discard data, and that was not asked for."""

    target: Version
    loses: tuple[str, ...]

    @property
    def detail(self) -> str:
        """One sentence for the caller."""
        return (
            f"Going down to {self.target} discards {'; '.join(self.loses)}: "
            "allow_data_loss=true accepts that"
        )


@frozen
class Irreversible:
    """A migration on the way down has no way back."""

    version: Version
    title: str

    @property
    def detail(self) -> str:
        """One sentence for the caller."""
        return f"Version {self.version} ({self.title}) cannot be undone"


PlanRefusal: TypeAlias = UnknownVersion | Ahead | Drift | LosesData | Irreversible
"""Why there is no plan.  Nothing was touched."""


# --- planning ---------------------------------------------------------------------------------


def plan(
    catalogue: Catalogue,
    state: State,
    target: Version | None,
    dialect: Dialect,
    *,
    allow_data_loss: bool = False,
) -> Plan | PlanRefusal:
    """Return the way from `state` to `target`, or to the latest version when that is None."""
    if state.version > catalogue.latest:
        return Ahead(state.version, catalogue.latest)
    if (reason := drift(state, catalogue, dialect)) is not None:
        return Drift(reason)
    to = catalogue.latest if target is None else target
    if to not in catalogue.versions:
        return UnknownVersion(to, catalogue.versions)
    way = Plan(state.version, to, moves_between(catalogue, state.version, to))
    return _find_refusal(way, allow_data_loss=allow_data_loss) or way


def moves_between(catalogue: Catalogue, from_: Version, to: Version) -> tuple[Move, ...]:
    """Return the moves from one version of the catalogue to another, in order."""
    if from_ == to:
        return ()
    low, high = min(from_, to), max(from_, to)
    between = tuple(m for m in catalogue.migrations if low < m.version <= high)
    if from_ < to:
        return tuple(Move(Direction.UP, migration) for migration in between)
    return tuple(Move(Direction.DOWN, migration) for migration in reversed(between))


def _find_refusal(way: Plan, *, allow_data_loss: bool) -> Irreversible | LosesData | None:
    for move in way.moves:
        if move.direction is Direction.DOWN and move.migration.down is None:
            return Irreversible(move.migration.version, move.migration.title)
    if way.loses and not allow_data_loss:
        return LosesData(way.to_version, way.loses)
    return None
