"""Serving across versions: no statement meets a schema that it was not written for.

A node reads the ledger of each database at its start and every few seconds.  While a database is
behind, drifted, or ahead of code that may not serve it, whatever needs its schema fails with
`NotServed` before a statement is sent; everything else, and every other database, goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from attrs import define, evolve, field

from .effects import (
    Concurrently,
    Effect,
    Interruptible,
    Job,
    Log,
    Program,
    Sleep,
    Spawn,
    ThisNode,
    Transact,
)
from .migrations.catalogue import CATALOGUE, Catalogue
from .migrations.ledger import Behind, EmptyDatabase, ReadLedger, Standing, standing
from .migrations.migrate import (
    Attempt,
    Migrated,
    MigrationBusy,
    MigrationFailed,
    MigrationUnknown,
    migrate,
)
from .store.failures import NotServed, StoreFailure, WrongSchema
from .values import frozen

__all__ = ["Served", "Serving", "WatchSchema", "WatchSchemas"]

R = TypeVar("R")

LOOK_SECONDS: Final = 5.0

_GUARDED: Final = frozenset({Transact, Spawn, Interruptible, Concurrently})
"""The effects that touch a database, and those with programs in them that may."""

# How long the start of a node waits for the locks of a database: nobody is answered meanwhile.
# What is left to do then is done by `WatchSchema`.
START_PATIENCE_US: Final = 3_000_000


@define(eq=False)
class Serving:
    """Why a database is not served, by its id; nothing stands here for one that is.

    Attributes:
        catalogue: The schema that this code is written for.
        due: The databases that this node is to migrate by itself, and has not yet.  Once it has,
            or has found one served, it never does so again: whoever takes a database down to an
            older version finds it left there.
    """

    databases: Sequence[str]
    catalogue: Catalogue = CATALOGUE
    reasons: dict[str, str] = field(factory=dict[str, str], init=False)
    due: set[str] = field(factory=set[str], init=False)

    def begin(self, name: str, *, migrate: bool) -> Program[None]:
        """Look at `name` as the process starts; with `migrate`, bring it to the newest schema."""
        self.reasons[name] = f"The database {name!r} is not served: it has not answered yet"
        if migrate:
            self.due.add(name)
        yield from self.look(name)

    def look(self, name: str) -> Program[None]:
        """Read the ledger of `name`, and migrate it where that is due.

        A database that does not answer keeps its standing.
        """
        stands = yield from self._read(name)
        if stands is not None and name in self.due:
            if not stands.may_serve:
                yield from self._migrate(name)
                yield from self._read(name)
            else:
                self.due.discard(name)

    def _read(self, name: str) -> Program[Standing | None]:
        try:
            reading = yield from Transact(name, ReadLedger())
        except StoreFailure:
            return None
        latest = self.catalogue.latest
        stands = standing(reading.state, self.catalogue, reading.dialect, latest)
        if stands.may_serve:
            self.reasons.pop(name, None)
        else:
            self.reasons[name] = f"The database {name!r} is not served: {_told(name, stands)}"
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
            yield from Log("error", "database not migrated", fields)
        elif outcome.moves:
            version = ("version", str(outcome.to_version))
            yield from Log("info", "database migrated", (("database", name), version))

    def guard(self, program: Program[R]) -> Program[R]:
        """Run `program`, keeping from it what it must not touch.

        A statement that finds no table or column, and a migration that was tried, are reasons to
        look at the ledger again at once.
        """
        reply: object = None
        trouble: Exception | None = None
        try:
            while True:
                effect = program.send(reply) if trouble is None else program.throw(trouble)
                reply, trouble = None, None
                if type(effect) in _GUARDED:
                    effect = self._within(effect)
                    trouble = self._refusal(effect)
                if trouble is None:
                    try:
                        reply = yield effect
                    except Exception as error:  # noqa: BLE001 (handed on to whom it is for)
                        trouble = error
                if isinstance(effect, Transact) and _tells(effect, trouble):
                    yield from self._read(effect.database)
                    trouble = self._refusal(effect) or trouble
        except StopIteration as done:
            result: R = done.value
            return result
        finally:
            program.close()

    def _within(self, effect: Effect) -> Effect:
        """Return `effect`; what programs there are in it are guarded as well."""
        if isinstance(effect, Spawn):
            return Spawn(Served(self, effect.job))
        if isinstance(effect, Interruptible):
            return evolve(effect, program=self.guard(effect.program))
        if isinstance(effect, Concurrently):
            return Concurrently(tuple(self.guard(program) for program in effect.programs))
        return effect

    def _refusal(self, effect: Effect) -> NotServed | None:
        if not isinstance(effect, Transact) or not effect.unit.needs_schema:
            return None
        reason = self.reasons.get(effect.database)
        return None if reason is None else NotServed(reason)


def _told(name: str, stands: Standing) -> str:
    """Say where a database stands, and to whom it falls to do something, what."""
    if isinstance(stands, Behind | EmptyDatabase):
        way = f"`legation migrate {name}` or POST /databases/{name}/migrate does it"
        return f"{stands.detail} ({way})"
    return stands.detail


def _tells(effect: Transact[object], trouble: Exception | None) -> bool:
    """Whether what became of `effect` says that the schema may be another one now."""
    return isinstance(trouble, WrongSchema) or isinstance(effect.unit, Attempt)


@frozen
class Served(Job):
    """A job under the guard, as is whatever it spawns."""

    serving: Serving
    job: Job

    def program(self) -> Program[None]:
        """Run the job."""
        return self.serving.guard(self.job.program())


@frozen
class WatchSchema(Job):
    """Look at the ledger of one database now and then, as long as the process lives."""

    serving: Serving
    name: str

    def program(self) -> Program[None]:
        """Go round."""
        name, reasons = self.name, self.serving.reasons
        while True:
            yield from Sleep(LOOK_SECONDS)
            before = reasons.get(name)
            yield from self.serving.look(name)
            after = reasons.get(name)
            if after != before:
                told = after or f"The database {name!r} is served"
                yield from Log("warning" if after else "info", told, (("database", name),))


@frozen
class WatchSchemas(Job):
    """Watch every database by itself, so that one which does not answer delays no other."""

    serving: Serving

    def program(self) -> Program[None]:
        """Start the watches."""
        for name in self.serving.databases:
            yield from Spawn(WatchSchema(self.serving, name))
