"""Serving across versions: no statement meets a schema that it was not written for.

A node reads the ledger of each database at its start and every few seconds.  While a database is
behind, drifted, or ahead of code that may not serve it, whatever needs its schema fails with
`NotServed` before a statement is sent; everything else, and every other database, goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from attrs import define, field, frozen

from .effects import Effect, Job, Log, Program, Sleep, Spawn, Transact
from .migrations.catalogue import CATALOGUE
from .migrations.ledger import ReadLedger, standing
from .migrations.migrate import Attempt
from .store.failures import NotServed, StoreFailure, WrongSchema

__all__ = ["Served", "Serving", "WatchSchemas"]

R = TypeVar("R")

LOOK_SECONDS: Final = 5.0


@define(eq=False)
class Serving:
    """Why a database is not served, by its id; nothing stands here for one that is."""

    databases: Sequence[str]
    reasons: dict[str, str] = field(factory=dict[str, str])

    def look(self, name: str) -> Program[None]:
        """Read the ledger of `name`; a database that does not answer keeps its standing."""
        try:
            reading = yield from Transact(name, ReadLedger())
        except StoreFailure:
            return
        stands = standing(reading.state, CATALOGUE, reading.dialect, CATALOGUE.latest)
        if stands.may_serve:
            self.reasons.pop(name, None)
        else:
            self.reasons[name] = f"The database {name!r} is not served: {stands.detail}"

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
                if isinstance(effect, Spawn):
                    effect = Spawn(Served(self, effect.job))
                reply, trouble = None, self._refusal(effect)
                if trouble is None:
                    try:
                        reply = yield effect
                    except Exception as error:  # noqa: BLE001 (handed on to whom it is for)
                        trouble = error
                if isinstance(effect, Transact) and _tells(effect, trouble):
                    yield from self.look(effect.database)
                    trouble = self._refusal(effect) or trouble
        except StopIteration as done:
            result: R = done.value
            return result
        finally:
            program.close()

    def _refusal(self, effect: Effect) -> NotServed | None:
        if not isinstance(effect, Transact) or not effect.unit.needs_schema:
            return None
        reason = self.reasons.get(effect.database)
        return None if reason is None else NotServed(reason)


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
class WatchSchemas(Job):
    """Look at every ledger now and then, as long as the process lives."""

    serving: Serving

    def program(self) -> Program[None]:
        """Go round."""
        while True:
            yield from Sleep(LOOK_SECONDS)
            for name in self.serving.databases:
                before = self.serving.reasons.get(name)
                yield from self.serving.look(name)
                after = self.serving.reasons.get(name)
                if after != before:
                    told = after or f"The database {name!r} is served"
                    yield from Log("warning" if after else "info", told, (("database", name),))
