"""The facts about a copy of a database: the version of its schema, and its audit trail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from legation import Platform
from legation.api.handlers.audit import verify_trail
from legation.effects import Program, Transact
from legation.migrations.ledger import Corrupt, LedgerReading, ReadLedger, State
from legation.migrations.schema_version import EMPTY
from legation.store.audit_pages import Head
from legation.store.audit_verify import Broken, Intact, Verdict
from legation.store.failures import WrongSchema
from legation.values import frozen
from legation_host.databases import RunUnit

from .audit_verdicts import describe_verdict, verdict_as_json
from .failing import CannotGoOn
from .reading import read_beside
from .terminal import Advance

__all__ = ["Trail", "read_state", "read_trail"]


@frozen
class Trail:
    """The verdict on the audit trail of a database; None where this release cannot read it."""

    database: str
    verdict: Verdict | None

    @property
    def intact(self) -> bool | None:
        """Whether nothing contradicts it."""
        return None if self.verdict is None else isinstance(self.verdict, Intact)

    @property
    def rows(self) -> int:
        """The number of its rows, as far as that is known."""
        return self.verdict.entries if isinstance(self.verdict, Intact) else 0

    @property
    def reason(self) -> str:
        """Why it is broken; empty where it is not."""
        found = self.verdict
        if not isinstance(found, Broken):
            return ""
        return f"broken at number {found.seq} of {found.writer}: {found.reason}"

    @property
    def as_json(self) -> dict[str, Any]:
        """The verdict, as `legation audit verify --json` prints it."""
        if self.verdict is None:
            return {"database": self.database, "intact": False, "proven": False}
        return verdict_as_json(self.database, self.verdict)

    def describe(self) -> str:
        """Return the verdict for people, without the heads, which are in a file."""
        if self.verdict is None:
            return "the audit trail is of an older schema, and was not verified"
        said = describe_verdict("the audit trail", self.verdict).splitlines()
        return said[0]


def read_state(name: str, run: RunUnit) -> State:
    """Return the version of the schema of a database.

    Raises:
        CannotGoOn: There is none, or its ledger contradicts itself.
        StoreFailure: It cannot be read.
    """
    reading = read_beside({}, _read_ledger(name), opened={name: run})
    if isinstance(reading.state, Corrupt):
        raise CannotGoOn(f"databases.{name}: {reading.state.detail}")
    if reading.state.version == EMPTY:
        raise CannotGoOn(f"databases.{name}: it has no schema yet, and nothing is stored in it")
    return reading.state


def _read_ledger(name: str) -> Program[LedgerReading]:
    return (yield from Transact(name, ReadLedger()))


def read_trail(
    platform: Platform, name: str, run: RunUnit, heads: Iterable[Head], advance: Advance
) -> Trail:
    """Verify the audit trail of a database against `heads`, with the keys of `platform`.

    Raises:
        StoreFailure: It cannot be read.
    """
    program = verify_trail(name, heads, platform.context.cluster.trail_keys)
    try:
        return Trail(name, read_beside({}, program, advance=advance, opened={name: run}))
    except WrongSchema:
        return Trail(name, None)
