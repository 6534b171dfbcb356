"""A migration: one unit of work that does all of it or nothing, and the program that insists.

One attempt takes the lock, makes the ledger and the tables of the audit trail if they are missing,
reads the ledger, plans, takes every step and writes its row, in one transaction on both engines.
Whatever goes wrong, the old version stands, with one exception: a COMMIT whose answer was lost is
neither success nor failure.  Then the program takes the lock again (which a transaction still under
way would hold) and looks for its own row.

An attempt never waits for a lock: not for another migration, nor (longer than the host's lock
time-out) for a reader of a table.  It gets out of the way with `Busy`, and the program comes
back until its patience is used up.
"""

from __future__ import annotations

from typing import ClassVar, Final, TypeAlias, TypeVar

from ..backoff import Backoff
from ..effects import Now, Program, RandomBytes, Transact
from ..store.audit import AppendAudit
from ..store.audit_tables import create_trail
from ..store.failures import Busy, CommitLost, StoreFailure, Unavailable
from ..store.units import Dialect, Statements, Undo, Unit
from ..values import frozen
from .catalogue import Catalogue
from .ledger import Corrupt, Entry, State, add_entry, create_ledger, find_attempt, read_state
from .plan import Drift, Move, Plan, PlanRefusal, moves_between, plan
from .schema_version import Version

__all__ = [
    "Attempt",
    "CheckRefused",
    "FindAttempt",
    "Migrated",
    "MigrationBusy",
    "MigrationFailed",
    "MigrationOutcome",
    "MigrationRefused",
    "MigrationUnknown",
    "migrate",
]

R = TypeVar("R")

_BACKOFF: Final = Backoff(0.05, 0.4)
_ATTEMPT_BYTES: Final = 16


# --- outcomes ---------------------------------------------------------------------------------


@frozen
class Migrated:
    """The database is at `to_version`; without moves, it was there before.

    With `rehearsed`, all of it was done and then undone: the database is at `from_version`.
    """

    from_version: Version
    to_version: Version
    moves: tuple[Move, ...]
    rehearsed: bool = False

    @property
    def detail(self) -> str:
        """One sentence for the caller."""
        if self.rehearsed:
            return f"Migration from {self.from_version} to {self.to_version} rehearsed and undone"
        return f"Database migrated successfully to version {self.to_version}"


@frozen
class CheckRefused:
    """A check on the way found rows that must not be there; nothing was changed."""

    version: Version
    title: str
    number: int
    message: str

    @property
    def detail(self) -> str:
        """One sentence for the caller."""
        return f"Version {self.version} ({self.title}), step {self.number}: {self.message}"


@frozen
class MigrationFailed:
    """It was tried and failed: the old version stands.  `reason` is the name of the failure."""

    reason: str
    detail: str


@frozen
class MigrationBusy:
    """Another migration, or the users of a table, left no gap within the patience asked for."""

    patience_us: int

    @property
    def detail(self) -> str:
        """One sentence for the caller."""
        return (
            f"The database was busy for {self.patience_us / 1_000_000:g} s; nothing was changed,"
            " and the migration may be tried again"
        )


@frozen
class MigrationUnknown:
    """COMMIT got no answer, and the database could not be asked since: it did or it did not."""

    detail: str = (
        "The database did not say whether the migration was kept;"
        " its list of migrations will show it"
    )


MigrationRefused: TypeAlias = PlanRefusal | CheckRefused
"""Planned and refused: nothing was changed, and asking again will be refused again."""

MigrationOutcome: TypeAlias = (
    Migrated | MigrationRefused | MigrationFailed | MigrationBusy | MigrationUnknown
)
"""Everything that may come of a migration.  Each has a `detail` of one sentence."""


# --- units of work ----------------------------------------------------------------------------

_Verdict: TypeAlias = Migrated | MigrationRefused


@frozen
class Attempt(Unit[_Verdict]):
    """One try at a whole migration; a refusal, a rehearsal and an empty plan leave no trace.

    `attempt` is random, `at_us` is when it was asked for; both end up in the ledger.  `record` is
    appended to the audit trail of the database, whose tables no migration touches.
    """

    exclusive: ClassVar[bool] = True
    needs_schema: ClassVar[bool] = False

    catalogue: Catalogue
    target: Version | None
    allow_data_loss: bool
    rehearse: bool
    actor: str
    node: str
    request_id: str
    attempt: str
    at_us: int
    record: AppendAudit | None = None

    def statements(self, dialect: Dialect) -> Statements[_Verdict | Undo[_Verdict]]:
        """Read, plan, take every step, write the row."""
        yield from create_ledger()
        yield from create_trail()
        state = yield from read_state()
        if isinstance(state, Corrupt):
            return Undo(Drift(state.detail))
        way = plan(
            self.catalogue, state, self.target, dialect, allow_data_loss=self.allow_data_loss
        )
        if not isinstance(way, Plan):
            return Undo(way)
        refused = yield from _take(way, dialect)
        if refused is not None:
            return Undo(refused)
        migrated = Migrated(way.from_version, way.to_version, way.moves, self.rehearse)
        if self.rehearse or not way.moves:
            return Undo(migrated)
        yield from add_entry(self._entry(state, way, dialect))
        if self.record is not None:
            yield from self.record.statements(dialect)
        return migrated

    def _entry(self, state: State, way: Plan, dialect: Dialect) -> Entry:
        return Entry(
            seq=state.seq + 1,
            from_version=way.from_version,
            to_version=way.to_version,
            seal=self.catalogue.seal(way.to_version, dialect),
            serves=self.catalogue.serves(way.to_version),
            actor=self.actor,
            node=self.node,
            request_id=self.request_id,
            attempt=self.attempt,
            at_us=self.at_us,
        )


def _take(way: Plan, dialect: Dialect) -> Statements[CheckRefused | None]:
    """Take every step of `way`; stop at a check that finds rows."""
    for planned in way.steps(dialect):
        rows = yield planned.statement
        message = planned.step.refuse_if
        if message is not None and rows:
            migration = planned.move.migration
            return CheckRefused(migration.version, migration.title, planned.number, message)
    return None


@frozen
class FindAttempt(Unit[Entry | None]):
    """The row that `attempt` left in the ledger, or None.

    Under the lock, because the transaction that lost its client may not have ended yet.
    """

    exclusive: ClassVar[bool] = True
    needs_schema: ClassVar[bool] = False

    attempt: str

    def statements(self, dialect: Dialect) -> Statements[Undo[Entry | None]]:
        """Look for the row; the ledger itself is missing if the very first move was not kept."""
        return Undo((yield from find_attempt(self.attempt)))


# --- the program ------------------------------------------------------------------------------


def migrate(  # noqa: PLR0913  every one is named at the call
    database: str,
    catalogue: Catalogue,
    target: Version | None,
    *,
    actor: str,
    request_id: str,
    node: str,
    allow_data_loss: bool = False,
    rehearse: bool = False,
    record: AppendAudit | None = None,
    patience_us: int = 10_000_000,
) -> Program[MigrationOutcome]:
    """Bring `database` to `target`, to the latest version when that is None; return what came.

    With `rehearse` everything is done and then undone, which takes the same locks.  `record` goes
    to the audit trail in the transaction of the migration.  `patience_us` bounds the wait for
    locks, in microseconds.
    """
    unit = Attempt(
        catalogue,
        target,
        allow_data_loss,
        rehearse,
        actor=actor,
        node=node,
        request_id=request_id,
        attempt=(yield from RandomBytes(_ATTEMPT_BYTES)).hex(),
        at_us=(yield from Now()),
        record=record,
    )
    outcome = yield from _insist(database, unit, (Busy,), patience_us)
    match outcome:
        case Busy():
            return MigrationBusy(patience_us)
        case CommitLost():
            return (yield from _find_outcome(database, catalogue, unit.attempt, patience_us))
        case StoreFailure():
            return _failure_outcome(outcome)
        case _:
            return outcome


def _find_outcome(
    database: str, catalogue: Catalogue, attempt: str, patience_us: int
) -> Program[Migrated | MigrationFailed | MigrationUnknown]:
    """Return the outcome of the commit of `attempt`, which got no answer."""
    again = (Busy, Unavailable)
    entry = yield from _insist(database, FindAttempt(attempt), again, patience_us)
    if entry is None:
        return _failure_outcome(CommitLost())
    if isinstance(entry, StoreFailure):
        return MigrationUnknown()
    moves = moves_between(catalogue, entry.from_version, entry.to_version)
    return Migrated(entry.from_version, entry.to_version, moves)


def _insist(
    database: str, unit: Unit[R], again: tuple[type[StoreFailure], ...], patience_us: int
) -> Program[R | StoreFailure]:
    """Run `unit` until it fails otherwise than with `again`, or the patience is used up.

    Returns its result or its last failure.  A clock set back ends the patience, too.
    """
    start = yield from Now()
    attempt = 1
    while True:
        outcome = yield from _transact(database, unit)
        now = yield from Now()
        if not isinstance(outcome, again) or not start <= now < start + patience_us:
            return outcome
        yield from _BACKOFF.wait(attempt)
        attempt += 1


def _transact(database: str, unit: Unit[R]) -> Program[R | StoreFailure]:
    """Run `unit` once; its failure becomes a value."""
    try:
        return (yield from Transact(database, unit))
    except StoreFailure as failure:
        return failure


def _failure_outcome(failure: StoreFailure) -> MigrationFailed:
    reason = type(failure).__name__
    return MigrationFailed(reason, f"The migration failed ({reason}): the old version stands")
