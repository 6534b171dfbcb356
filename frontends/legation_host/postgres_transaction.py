"""A unit of work as a transaction of PostgreSQL, in as few round trips as it allows.

BEGIN goes with the first statements, and COMMIT with the last: those whose rows nobody looks at,
or those behind which the unit says that it is over.  A unit so takes two round trips at least: the
first finds out whether the connection still holds, before there is anything to lose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from attrs import field

from legation.store import failures
from legation.store.units import NO_ROWS, Dialect, Rows, Sql, Statement, Undo, Unit
from legation.values import define

if TYPE_CHECKING:
    from psycopg.abc import PQGen

    from .postgres_exchange import Exchange

__all__ = ["Transaction"]

R = TypeVar("R")

_Asked: TypeAlias = Statement | tuple[Statement, ...]

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

    def run(self, unit: Unit[R]) -> PQGen[R]:
        """Run `unit` and commit, or roll back where it says so."""
        if self.settings is None and not (unit.writes or unit.exclusive or type(unit) in _LONGER):
            read = yield from self._read(unit)
            if read is not None:
                return read[0]
        self._held = [_BEGIN_WRITING if unit.writes else _BEGIN_READING]
        if self.settings is not None:
            self._held.append(self.settings)
        if unit.exclusive:
            yield from self._lock()
            result, kept = yield from _carry_out(unit, self._answer_alone)
        else:
            result, kept = yield from self._carry_out(unit)
        if self.phase != "commit":
            yield from self._end(kept=kept)
        return result

    def _read(self, unit: Unit[R]) -> PQGen[tuple[R] | None]:
        """Carry out a unit of one statement, outside of a transaction; see `units.short`."""
        asked = 0

        def once(statement: _Asked) -> PQGen[Rows]:
            nonlocal asked
            asked += 1
            if asked > 1 or isinstance(statement, tuple):
                raise _Longer
            (rows,) = yield from self.exchange.perform((statement,))
            return rows

        try:
            result, _ = yield from _carry_out(unit, once)
        except _Longer:
            _LONGER.add(type(unit))
            return None
        return (result,)

    def _carry_out(self, unit: Unit[R]) -> PQGen[tuple[R, bool]]:
        self._closing = unit.closing
        try:
            return (yield from _carry_out(unit, self._answer))
        except Exception:
            if self._held:  # the unit's own error: one of the engine would have come before it
                yield from self._flush()
            raise

    def _answer(self, asked: _Asked) -> PQGen[Any]:
        """Carry out what a unit yields, or hold it until there is a round trip to make."""
        held = self._held
        if isinstance(asked, tuple):
            held += asked
            return (yield from self._flush())[-len(asked) :]
        sql = asked.sql
        held.append(asked)
        if sql in self._closing and self.phase != "begin":
            self.phase = "commit"
            held.append(_COMMIT)
            return (yield from self._flush())[-2]
        if len(held) < MOST_HELD and self.exchange.is_silent(asked):
            return NO_ROWS
        return (yield from self._flush())[-1]

    def _answer_alone(self, asked: _Asked) -> PQGen[Any]:
        """Carry out what a unit yields, each statement with a time of its own."""
        found: list[Rows] = []
        for statement in asked if isinstance(asked, tuple) else (asked,):
            self.prolong()
            self._held.append(statement)
            found.append((yield from self._flush())[-1])
        return found if isinstance(asked, tuple) else found[0]

    def _flush(self) -> PQGen[list[Rows]]:
        """Carry out what is held, in one round trip."""
        held, self._held = self._held, []
        rows = yield from self.exchange.perform(held)
        if self.phase == "begin":
            self.phase = "statements"
        return rows

    def _lock(self) -> PQGen[None]:
        """Take the lock of migrations for this transaction, or fail at once."""
        self._held.append(_LOCK_SCHEMA(lock=MIGRATION_LOCK))
        if not (yield from self._flush())[-1][0][0]:
            raise failures.Busy("migration lock")
        self._held.append(_IMPATIENT)

    def _end(self, *, kept: bool) -> PQGen[None]:
        """Keep what was done, or drop it."""
        if kept and self.phase == "begin":
            yield from self._flush()
        self.phase = "commit" if kept else self.phase
        self._held.append(_COMMIT if kept else _ROLLBACK)
        yield from self._flush()


def _carry_out(unit: Unit[R], answer: Callable[[_Asked], PQGen[Any]]) -> PQGen[tuple[R, bool]]:
    """Run `unit` to its end, as `units.carry_out` does, where an answer is waited for."""
    work = unit.statements(Dialect.POSTGRESQL)
    try:
        asked = next(work)
        while True:
            asked = work.send((yield from answer(asked)))
    except StopIteration as stop:
        outcome: R | Undo[R] = stop.value
        if isinstance(outcome, Undo):
            return cast(Undo[R], outcome).result, False
        return outcome, True
    finally:
        work.close()


class _Longer(Exception):
    """More than one statement was yielded."""


_LONGER: Final[set[type[Unit[Any]]]] = set()
"""The reading units that have more than one statement."""
