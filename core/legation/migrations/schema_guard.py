"""The schema guard: no statement meets a schema that it was not written for.

A node reads the ledger of each database at its start and every few seconds.  While a database is
behind, drifted, or ahead of code that may not serve it, whatever needs its schema fails with
`NotServed` before a statement is sent; everything else, and every other database, goes on.

The same look tells whether the database is well (`store.health`): it answers in time, has room, and
its file is the one that was opened.  What a request learns of that counts at once.

A host asks the guard at each `Transact`: `refuse` before it, where the database stands in
`reasons`, and `lesson` behind it.  For a host that does not ask, programs are wrapped in one that
does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar, cast

from attrs import evolve, field

from ..effects import (
    Concurrently,
    Inspect,
    Interrupted,
    Interruptible,
    Job,
    Log,
    Program,
    Sleep,
    Spawn,
    ThisNode,
    Transact,
)
from ..programs import Handlers, intercept
from ..store.failures import DatabaseFull, FileReplaced, NotServed, StoreFailure, WrongSchema
from ..store.health import (
    PATIENCE_SECONDS,
    REASONS,
    Condition,
    Notice,
    ProbeWrite,
    advance,
    notice_failure,
    notice_of,
)
from ..store.units import Unit
from ..values import define, frozen
from .catalogue import CATALOGUE, Catalogue
from .ledger import Assessment, Fit, LedgerReading, ReadLedger, assess_state
from .migrate import Attempt, Migrated, MigrationBusy, MigrationFailed, MigrationUnknown, migrate

__all__ = [
    "ANSWER_SECONDS",
    "LOOK_SECONDS",
    "GuardedJob",
    "SchemaGuard",
    "WatchSchema",
    "WatchSchemas",
]

R = TypeVar("R")

LOOK_SECONDS: Final = 3.0
ANSWER_SECONDS: Final = 10.0
"""For a look that somebody waits for: at the start, and after a migration."""

_SAY_MORE: Final = (DatabaseFull, FileReplaced)
"""The failures that concern the whole database; a connection that broke may be one of many."""

_TELLING: Final = (*_SAY_MORE, WrongSchema)

# What the guard itself asks for, told from the same asked by others by being these very values.
_LEDGER: Final = ReadLedger()
_PROBE: Final = ProbeWrite()

# How long the start of a node waits for the locks of a database: nobody is answered meanwhile.
# What is left to do then is done by `WatchSchema`.
START_PATIENCE_US: Final = 3_000_000


@define(eq=False)
class SchemaGuard:
    """The guard of the schemas: `reasons` has one for each database that is not served.

    Attributes:
        catalogue: The schema that this code is written for.
        readings: What the last look at each ledger found.
        conditions: What is wrong with a database; nothing stands here for one that works.
        refused: The databases that refused to write since the last look.
        due: The databases that this node is to migrate by itself, and has not yet.  Once it has,
            or has found one served, it never does so again: whoever takes a database down to an
            older version finds it left there.
        at_host: The host that drives the programs asks at each `Transact`: no program is wrapped.
    """

    databases: Sequence[str]
    catalogue: Catalogue = CATALOGUE
    reasons: dict[str, str] = field(factory=dict[str, str], init=False)
    due: set[str] = field(factory=set[str], init=False)
    readings: dict[str, LedgerReading] = field(factory=dict[str, LedgerReading], init=False)
    conditions: dict[str, Condition] = field(factory=dict[str, Condition], init=False)
    refused: set[str] = field(factory=set[str], init=False)
    at_host: bool = field(default=False, init=False)
    _migrating: set[str] = field(factory=set[str], init=False)
    _handlers: Handlers = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        # The effects that touch a database, and those with programs in them that may.
        self._handlers = {
            Transact: self._transact,
            Spawn: self._spawn,
            Interruptible: self._interruptible,
            Concurrently: self._concurrently,
        }

    def begin(self, name: str, *, migrate: bool) -> Program[None]:
        """Look at `name` as the process starts; with `migrate`, bring it to the newest schema."""
        self.reasons[name] = f"The database {name!r} is not served: it has not answered yet"
        if migrate:
            self.due.add(name)
        yield from self.look(name)

    def look(self, name: str, seconds: float = ANSWER_SECONDS) -> Program[None]:
        """Read the ledger of `name` within `seconds`, and migrate it where that is due.

        A database that does not answer keeps its standing.
        """
        stands = yield from self._read(name, seconds)
        if stands is not None and name in self.due:
            if not stands.may_serve:
                self._migrating.add(name)
                try:
                    yield from self._migrate(name)
                finally:
                    self._migrating.discard(name)
                yield from self._read(name)
            else:
                self.due.discard(name)

    def examine(self, name: str) -> Program[None]:
        """Look at the condition of `name`, then at its ledger."""
        notice = notice_of((yield from Inspect(name)))
        if notice is not None:
            yield from self._note(name, notice)
        elif name not in self.refused and self.conditions.get(name) is Condition.FULL:
            yield from self._ask(name, _PROBE, Notice.STORED, PATIENCE_SECONDS)
        self.refused.discard(name)
        if self.conditions.get(name) is not Condition.REPLACED:
            yield from self.look(name, PATIENCE_SECONDS)

    def _ask(self, name: str, unit: Unit[R], notice: Notice, seconds: float) -> Program[R | None]:
        """Return the answer to `unit`, None where there is none in time; note either."""
        asked = Interruptible(_transact(name, unit), f"look:{name}", seconds)
        answer: Any = None
        found: Notice | None = notice
        try:
            answer = yield from asked
        except StoreFailure as failure:
            found = notice_failure(failure)
        if isinstance(answer, Interrupted):
            answer, found = None, Notice.NO_ANSWER
        if found is not None:
            yield from self._note(name, found)
        return answer  # type: ignore[no-any-return]  # of `unit`

    def _note(self, name: str, notice: Notice) -> Program[None]:
        """Draw the conclusion, and write one line when the condition is another one."""
        before = self.conditions.get(name, Condition.WORKING)
        after = advance(before, notice)
        if after is before:
            return
        self.conditions[name] = after
        database = ("database", name)
        if after is Condition.WORKING:
            del self.conditions[name]
            yield from Log("info", "database_available", (database,))
            return
        if after is Condition.REPLACED:
            self.reasons[name] = f"The database {name!r} is not served: {REASONS[after]}"
        reason = (("condition", after.value), ("reason", REASONS[after]))
        yield from Log("error", "database_unavailable", (database, *reason))

    def _read(self, name: str, seconds: float = ANSWER_SECONDS) -> Program[Assessment | None]:
        reading = yield from self._ask(name, _LEDGER, Notice.ANSWERED, seconds)
        if reading is None or self.conditions.get(name) is Condition.REPLACED:
            return None
        self.readings[name] = reading
        latest = self.catalogue.latest
        stands = assess_state(reading.state, self.catalogue, reading.dialect, latest)
        if stands.may_serve:
            self.reasons.pop(name, None)
        else:
            self.reasons[name] = (
                f"The database {name!r} is not served: {_describe_standing(name, stands)}"
            )
        return stands

    def _migrate(self, name: str) -> Program[None]:
        """Migrate `name`; what may succeed later is left to be tried again."""
        node = yield from ThisNode()
        outcome = yield from migrate(
            name,
            self.catalogue,
            None,
            actor="startup",
            request_id="",
            node=node,
            patience_us=START_PATIENCE_US,
        )
        if not isinstance(outcome, MigrationBusy | MigrationFailed | MigrationUnknown):
            self.due.discard(name)
        if not isinstance(outcome, Migrated):
            fields = (("database", name), ("reason", outcome.detail))
            yield from Log("error", "migration_failed", fields)
        elif outcome.moves:
            version = ("version", str(outcome.to_version))
            yield from Log("info", "database_migrated", (("database", name), version))

    def guard(self, program: Program[R]) -> Program[R]:
        """Keep `program`, and those within it, from databases that are not served.

        Where the host does so, that is `program` itself.
        """
        return program if self.at_host else intercept(program, self._handlers)

    def refuse(self, effect: Transact[Any]) -> None:
        """Raise `NotServed` where `effect` needs a schema that is not served."""
        reason = self.reasons.get(effect.database)
        if reason is not None and effect.unit.needs_schema:
            raise NotServed(reason)

    def lesson(self, effect: Transact[Any], trouble: BaseException | None) -> Program[None] | None:
        """Return the program to be run before who asked for `effect` hears how that ended.

        It may raise `NotServed`, which is then heard instead.  A statement that finds no table or
        column, and a migration that was tried, are reasons to look at the ledger again at once.

        Args:
            effect: What was performed.
            trouble: What it raised, if anything.

        Returns:
            None where nothing is learned, as nearly always.
        """
        unit = effect.unit
        tried = type(unit) is Attempt and effect.database not in self._migrating
        if not (tried or isinstance(trouble, _TELLING)) or unit is _LEDGER or unit is _PROBE:
            return None
        return self._learn(effect, trouble, tried)

    def _learn(
        self, effect: Transact[Any], trouble: BaseException | None, tried: bool
    ) -> Program[None]:
        name = effect.database
        notice = notice_failure(trouble) if isinstance(trouble, _SAY_MORE) else None
        if notice is not None:
            if notice is Notice.REFUSED:
                self.refused.add(name)
            yield from self._note(name, notice)
        if tried or isinstance(trouble, WrongSchema):
            yield from self._read(name)
            self.refuse(effect)

    def _transact(self, effect: Transact[R]) -> Program[R]:
        """Perform `effect` as a host does that asks."""
        self.refuse(effect)
        trouble, answer = None, cast("R", None)
        try:
            answer = yield effect
        except StoreFailure as failure:
            trouble = failure
        lesson = self.lesson(effect, trouble)
        if lesson is not None:
            yield from lesson
        if trouble is not None:
            raise trouble
        return answer

    def _spawn(self, effect: Spawn) -> Program[None]:
        yield Spawn(GuardedJob(self, effect.job), effect.outcome)

    def _interruptible(self, effect: Interruptible[Any]) -> Program[Any]:
        return (yield evolve(effect, program=self.guard(effect.program)))

    def _concurrently(self, effect: Concurrently[Any]) -> Program[Any]:
        return (yield Concurrently(tuple(map(self.guard, effect.programs))))


def _transact(name: str, unit: Unit[R]) -> Program[R]:
    return (yield from Transact(name, unit))


def _describe_standing(name: str, stands: Assessment) -> str:
    """Say where a database stands, and to whom it falls to do something, what."""
    if stands.fit in (Fit.BEHIND, Fit.EMPTY):
        way = f"`legation migrate {name}` or POST /databases/{name}/migrate does it"
        return f"{stands.detail} ({way})"
    return stands.detail


def _log_standing(name: str, reason: str | None) -> Program[None]:
    """Log that the schema of a database is served again, or the reason why it is not."""
    if reason is None:
        yield from Log("info", "schema_accepted", (("database", name),))
    else:
        yield from Log("warning", "schema_rejected", (("database", name), ("reason", reason)))


@frozen
class GuardedJob(Job):
    """A job under the guard, as is whatever it spawns."""

    guard: SchemaGuard
    job: Job

    def program(self) -> Program[object]:
        """Run the job."""
        return self.guard.guard(self.job.program())


@frozen
class WatchSchema(Job):
    """Look at one database and its ledger now and then, as long as the process lives."""

    guard: SchemaGuard
    name: str

    def program(self) -> Program[None]:
        """Go round."""
        while True:
            yield from Sleep(LOOK_SECONDS)
            yield from self.round()

    def round(self) -> Program[None]:
        """Look once, and log where the database is served again or no longer."""
        name, reasons = self.name, self.guard.reasons
        before = reasons.get(name)
        yield from self.guard.examine(name)
        after = reasons.get(name)
        if after != before and name not in self.guard.conditions:
            yield from _log_standing(name, after)


@frozen
class WatchSchemas(Job):
    """Watch every database by itself, so that one which does not answer delays no other."""

    guard: SchemaGuard

    def program(self) -> Program[None]:
        """Start the watches."""
        for watch in self._watches():
            yield from Spawn(watch)

    def round(self) -> Program[None]:
        """Look at each once."""
        yield from Concurrently(tuple(watch.round() for watch in self._watches()))

    def _watches(self) -> tuple[WatchSchema, ...]:
        return tuple(WatchSchema(self.guard, name) for name in self.guard.databases)
