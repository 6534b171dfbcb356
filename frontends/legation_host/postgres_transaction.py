"""A unit of work as a transaction of PostgreSQL, in as few round trips as it allows.

BEGIN goes with the first statements, and COMMIT with the last: those whose rows nobody looks at,
or those behind which the unit says that it is over.  A unit so takes two round trips at least: the
first finds out whether the connection still holds, before there is anything to lose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from attrs import field

from legation.store import failures
from legation.store.units import NO_ROWS, Dialect, Rows, Sql, Statement, Unit
from legation.values import define

from .units import carry_out, short

if TYPE_CHECKING:
    from .postgres_exchange import Exchange

__all__ = ["Transaction"]

R = TypeVar("R")

MIGRATION_LOCK: Final = 0x6C656761  # "lega": names the advisory lock beside the schema's own hash

MOST_HELD: Final = 32
"""How many statements wait at most for one whose rows are looked at."""


def _control(text: str) -> Statement:
    return Statement(Sql(text, registered=False))


_BEGIN_WRITING: Final = _control("begin isolation level read committed read write")
_BEGIN_READING: Final = _control("begin isolation level repeatable read read only")
_COMMIT: Final = _control("commit")
_ROLLBACK: Final = _control("rollback")
_LOCK_SCHEMA: Final = Sql(
    "select pg_try_advisory_xact_lock(:lock, hashtext(coalesce(current_schema(), '')))",
    registered=False,
)
_IMPATIENT: Final = _control("set local lock_timeout = '200ms'")


@define(eq=False)
class Transaction:
    """One transaction on one connection.

    Attributes:
        exchange: That of the connection.
        settings: What makes the settings of a transaction, where the connection keeps none.
        prolong: Called before each statement of a unit that is exclusive, which has a time of its
            own.
        phase: How far it came: `begin`, `statements` or `commit`, each from when it is sent.
    """

    exchange: Exchange
    settings: Statement | None
    prolong: Callable[[], None]
    phase: str = field(default="begin", init=False)
    _held: list[Statement] = field(factory=list[Statement], init=False)
    _closing: frozenset[Sql] = field(default=frozenset(), init=False)

    def run(self, unit: Unit[R]) -> R:
        """Run `unit` and commit, or roll back where it says so."""
        if self.settings is None:
            read = short(unit, Dialect.POSTGRESQL, self._read)
            if read is not None:
                return read[0]
        self._held = [_BEGIN_WRITING if unit.writes else _BEGIN_READING]
        if self.settings is not None:
            self._held.append(self.settings)
        if unit.exclusive:
            self._lock()
            result, kept = carry_out(unit.statements(Dialect.POSTGRESQL), self._execute_alone)
        else:
            result, kept = self._carry_out(unit)
        if self.phase != "commit":
            self._end(kept=kept)
        return result

    def _carry_out(self, unit: Unit[R]) -> tuple[R, bool]:
        self._closing = unit.closing
        try:
            return carry_out(unit.statements(Dialect.POSTGRESQL), self._execute, self._execute_all)
        except Exception:
            if self._held:  # the unit's own error: one of the engine would have come before it
                self._flush()
            raise

    def _read(self, statement: Statement) -> Rows:
        """Carry out the only statement of a unit, outside of a transaction."""
        (rows,) = self.exchange.perform((statement,))
        return rows

    def _execute(self, statement: Statement) -> Rows:
        sql, held = statement.sql, self._held
        held.append(statement)
        if sql in self._closing and self.phase != "begin":
            self.phase = "commit"
            held.append(_COMMIT)
            return self._flush()[-2]
        if len(held) < MOST_HELD and self.exchange.is_silent(statement):
            return NO_ROWS
        return self._flush()[-1]

    def _execute_all(self, statements: tuple[Statement, ...]) -> list[Rows]:
        self._held += statements
        return self._flush()[-len(statements) :]

    def _execute_alone(self, statement: Statement) -> Rows:
        self.prolong()
        self._held.append(statement)
        return self._flush()[-1]

    def _flush(self) -> list[Rows]:
        """Carry out what is held, in one round trip."""
        held, self._held = self._held, []
        rows = self.exchange.perform(held)
        if self.phase == "begin":
            self.phase = "statements"
        return rows

    def _lock(self) -> None:
        """Take the lock of migrations for this transaction, or fail at once."""
        self._held.append(_LOCK_SCHEMA(lock=MIGRATION_LOCK))
        if not self._flush()[-1][0][0]:
            raise failures.Busy("migration lock")
        self._held.append(_IMPATIENT)

    def _end(self, *, kept: bool) -> None:
        """Keep what was done, or drop it."""
        if kept and self.phase == "begin":
            self._flush()
        self.phase = "commit" if kept else self.phase
        self._held.append(_COMMIT if kept else _ROLLBACK)
        self._flush()
