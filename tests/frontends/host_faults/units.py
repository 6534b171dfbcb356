"""Faults in how units of work are carried out."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

from attrs import define, evolve, frozen

from legation.effects import Concurrently, Inspect, Program, Sleep, Transact
from legation.programs import Handlers
from legation.store.failures import StatementFailed, StoreFailure
from legation.store.units import Dialect, Rows, Sql, Statement, Statements, Undo, Unit, Work
from legation_testing import HostUnderTest
from legation_testing.host_kit.tables import Add, Get

from ...statements import one_by_one
from .planting import KEPT, Changed, Emitter, Fault, ask, change, effects_of, running, units_of

__all__ = ["FAULTS"]

R = TypeVar("R")


LOSE: Final = Sql("delete from legation_host_kit where name like 'beside%/_%7'", registered=False)


class _Out(BaseException):
    """An error that no program catches."""


@frozen
class Nothing(Unit[None]):
    def statements(self, dialect: Dialect) -> Statements[None]:
        yield from ()


@frozen
class _One(Unit[Any]):
    """A single statement, in a transaction of its own."""

    statement: Statement

    def statements(self, dialect: Dialect) -> Statements[Rows]:
        return (yield self.statement)


def _one_by_one(effect: Transact[Any]) -> Program[Any]:
    """Carry out each statement of a unit in a transaction of its own."""
    statements = one_by_one(effect.unit.statements(Dialect.SQLITE))
    rows: Any = None
    while True:
        try:
            statement = statements.send(rows)
        except StopIteration as stop:
            return _without_undo(stop.value)
        rows = yield Transact(effect.database, _One(statement))


def _without_undo(outcome: Any) -> Any:
    return outcome.result if outcome.__class__ is Undo else outcome


def _same(value: Any) -> Any:
    return value


def through(
    statements: Statements[Any],
    after: Callable[[Any], Any] = _same,
    before: Callable[[Statement], Statement] = _same,
) -> Statements[Any]:
    """Carry out `statements`, each changed before, and its rows after."""
    rows: Any = None
    while True:
        try:
            statement = statements.send(rows)
        except StopIteration as stop:
            return stop.value
        rows = after((yield before(statement)))


@units_of("Transact.undo")
def undo_commits(statements: Statements[Any]) -> Statements[Any]:
    result = yield from statements
    return _without_undo(result)


@units_of("Transact.undo")
def undo_handed_over(statements: Statements[Any]) -> Statements[Any]:
    result = yield from statements
    return Undo(cast(Any, result)) if isinstance(result, Undo) else result


@effects_of("Transact.undo_of_others", "Transact.unit_error_of_others")
def units_of_a_group_fail_together() -> Handlers:
    """The units of one moment share a transaction, and what one of them rolls back takes others."""

    def lose_some(_: Statements[Any]) -> Statements[None]:
        yield LOSE()

    def concurrently(effect: Concurrently[Any]) -> Program[Any]:
        answers = yield effect
        yield Transact("first", Changed(Nothing(), lose_some))
        return answers

    return {Concurrently: concurrently}


@effects_of("Transact.unit_error")
def unit_error_swallowed() -> Handlers:
    def transact(effect: Transact[Any]) -> Program[Any]:
        try:
            return (yield effect)
        except StoreFailure:
            raise
        except Exception:  # noqa: BLE001  the fault
            return None

    return {Transact: transact}


@effects_of("Transact.unit_error")
def unit_error_ends_the_program() -> Handlers:
    def transact(effect: Transact[Any]) -> Program[Any]:
        try:
            return (yield effect)
        except StoreFailure:
            raise
        except Exception as error:
            raise _Out from error

    return {Transact: transact}


@effects_of("Transact.unit_error")
def unit_error_commits() -> Handlers:
    def keep(statements: Statements[Any]) -> Statements[Any]:
        try:
            return (yield from statements)
        except Exception as error:  # noqa: BLE001  the fault
            return error

    def transact(effect: Transact[Any]) -> Program[Any]:
        result = yield Transact(effect.database, change(effect.unit, keep))
        if isinstance(result, Exception):
            raise result
        return result

    return {Transact: transact}


@effects_of("Transact.failures")
def failure_ends_the_program() -> Handlers:
    def transact(effect: Transact[Any]) -> Program[Any]:
        try:
            return (yield effect)
        except StoreFailure as failure:
            raise _Out from failure

    return {Transact: transact}


@effects_of("Transact.failures")
def failure_as_an_answer() -> Handlers:
    def transact(effect: Transact[Any]) -> Program[Any]:
        try:
            return (yield effect)
        except StoreFailure as failure:
            return failure

    return {Transact: transact}


@effects_of("Transact.failures")
def failures_all_of_one_kind() -> Handlers:
    def transact(effect: Transact[Any]) -> Program[Any]:
        try:
            return (yield effect)
        except StoreFailure as failure:
            raise StatementFailed(str(failure)) from failure

    return {Transact: transact}


@units_of("Transact.failures")
def nul_cut_off(statements: Statements[Any]) -> Statements[Any]:
    rows: Any = None
    while True:
        try:
            statement = statements.send(rows)
        except StopIteration as stop:
            return stop.value
        given = statement.parameters
        if isinstance(given, dict):
            given = {k: v.split("\0")[0] if type(v) is str else v for k, v in given.items()}
        rows = yield Statement(statement.sql, given)


@units_of("Transact.failure_ends_the_unit")
def engine_error_thrown_into_the_unit(statements: Statements[Any]) -> Statements[Any]:
    rows: Any = None
    while True:
        try:
            statement = statements.send(rows)
        except StopIteration as stop:
            return stop.value
        try:
            rows = yield statement
        except GeneratorExit:
            with suppress(StatementFailed, StopIteration):
                statements.throw(StatementFailed())
            raise


@units_of("Transact.failure_ends_the_unit")
def statements_not_closed(statements: Statements[Any]) -> Statements[Any]:
    KEPT.append(statements)
    rows: Any = None
    while True:
        try:
            statement = statements.send(rows)
        except StopIteration as stop:
            return stop.value
        rows = yield statement


@effects_of("Transact.all_or_nothing")
def each_statement_commits() -> Handlers:
    return {Transact: _one_by_one}


@effects_of("Transact.snapshot")
def each_statement_its_snapshot() -> Handlers:
    return {Transact: _one_by_one}


@effects_of("Transact.read_only")
def reads_may_write() -> Handlers:
    def transact(effect: Transact[Any]) -> Program[Any]:
        return (yield Transact(effect.database, Changed(effect.unit, lambda s: s)))

    return {Transact: transact}


@effects_of("Transact.exclusive", host="postgresql")
def exclusive_is_not() -> Handlers:
    def transact(effect: Transact[Any]) -> Program[Any]:
        return (yield Transact(effect.database, Changed(effect.unit, lambda s: s)))

    return {Transact: transact}


@effects_of("Transact.busy", host="postgresql")
def busy_unnoticed() -> Handlers:
    def transact(effect: Transact[Any]) -> Program[Any]:
        return (yield Transact(effect.database, Changed(effect.unit, lambda s: s)))

    return {Transact: transact}


@effects_of("Transact.apart")
def databases_mixed() -> Handlers:
    return {Transact: lambda effect: ask(Transact("first", effect.unit))}


@effects_of("Transact.unknown_database")
def unknown_database_is_another() -> Handlers:
    def transact(effect: Transact[Any]) -> Program[Any]:
        known = effect.database if effect.database == "second" else "first"
        return (yield Transact(known, effect.unit))

    return {Transact: transact}


@units_of("Transact.values")
def json_decoded(statements: Statements[Any]) -> Statements[Any]:
    def decode(value: Any) -> Any:
        return json.loads(value) if type(value) is str and value[:1] == "{" else value

    return (yield from through(statements, lambda rows: [tuple(map(decode, r)) for r in rows]))


@units_of("Transact.nulls")
def null_as_empty_text(statements: Statements[Any]) -> Statements[Any]:
    def fill(row: Any) -> tuple[Any, ...]:
        return tuple("" if value is None else value for value in row)

    return (yield from through(statements, lambda rows: list(map(fill, rows))))


@units_of("Transact.many_statements")
def hundred_statements_at_most(statements: Statements[Any]) -> Statements[Any]:
    seen: list[Any] = []

    def count(rows: Any) -> Any:
        seen.append(rows)
        return rows if len(seen) <= 100 else []

    return (yield from through(statements, count))


@units_of("Transact.long_values")
def long_texts_cut(statements: Statements[Any]) -> Statements[Any]:
    def cut(row: Any) -> tuple[Any, ...]:
        return tuple(value[:65_535] if type(value) is str else value for value in row)

    return (yield from through(statements, lambda rows: list(map(cut, rows))))


@units_of("Transact.nothing_stated")
def first_statement_awaited(statements: Statements[Any]) -> Statements[Any]:
    try:
        rows = yield next(statements)
    except StopIteration as stop:
        raise RuntimeError("generator raised StopIteration") from stop
    while True:
        try:
            rows = yield statements.send(rows)
        except StopIteration as stop:
            return stop.value


@units_of("Transact.numbered")
def numbers_taken_for_names(statements: Statements[Any]) -> Statements[Any]:
    def rename(statement: Statement) -> Statement:
        given = {f"p{name}": value for name, value in statement.parameters.items()}
        return Statement(statement.sql, given)

    return (yield from through(statements, before=rename))


@define
class _Whole(Changed):
    """A unit that is changed with what it yields at once as it is."""

    def statements(self, dialect: Dialect) -> Work[Any]:
        work = self.unit.statements(dialect)
        rows: Any = None
        while True:
            try:
                asked = work.send(rows)
            except StopIteration as stop:
                return stop.value
            rows = yield asked
            if isinstance(asked, tuple):
                rows = self.through(rows)


def _with_rows(change_rows: Callable[[Any], Any]) -> Handlers:
    def transact(effect: Transact[Any]) -> Program[Any]:
        if effect.unit.exclusive or not effect.unit.writes:
            return (yield effect)
        return (yield Transact(effect.database, _Whole(effect.unit, change_rows)))

    return {Transact: transact}


@effects_of("Transact.together")
def rows_of_each_for_another() -> Handlers:
    return _with_rows(lambda rows: [*rows[1:], rows[0]])


@effects_of("Transact.together")
def rows_of_the_last_alone() -> Handlers:
    return _with_rows(lambda rows: rows[-1])


@units_of("Transact.lists")
def lists_unquoted(statements: Statements[Any]) -> Statements[Any]:
    def unquote(statement: Statement) -> Statement:
        given = statement.parameters
        if "names" not in given:
            return statement
        return Statement(statement.sql, {"names": str(given["names"]).replace('"', "")})

    return (yield from through(statements, before=unquote))


@units_of("Transact.literals")
def percent_taken_for_a_parameter(statements: Statements[Any]) -> Statements[Any]:
    def double(row: Any) -> tuple[Any, ...]:
        return tuple(value.replace("%", "%%") if type(value) is str else value for value in row)

    return (yield from through(statements, lambda rows: list(map(double, rows))))


@running("Transact.not_caught")
def failure_not_caught_is_none(
    host: HostUnderTest, program: Program[R], body: bytes, emit: Emitter
) -> R:
    try:
        return host.run(program, body=body, emit=emit)
    except StoreFailure:
        return cast(R, None)


@effects_of("Transact.refused_commit")
def refused_commit_unnoticed() -> Handlers:
    def transact(effect: Transact[Any]) -> Program[Any]:
        try:
            return (yield effect)
        except StatementFailed:
            return None

    return {Transact: transact}


@effects_of("Transact.one_by_one")
def read_and_written_apart() -> Handlers:
    def transact(effect: Transact[Any]) -> Program[Any]:
        if not isinstance(effect.unit, Add):
            return (yield effect)
        found = yield Transact(effect.database, Get(effect.unit.name))
        yield Sleep(0.0)
        now = yield Transact(effect.database, Get(effect.unit.name))
        yield Transact(effect.database, evolve(effect.unit, amount=found + 1 - now))
        return found + effect.unit.amount

    return {Transact: transact}


@effects_of("Transact.stores")
def result_of_a_unit_lost() -> Handlers:
    def transact(effect: Transact[Any]) -> Program[None]:
        yield effect

    return {Transact: transact}


@effects_of("Transact.reads_what_others_store")
def reads_from_a_cache() -> Handlers:
    cache: dict[Any, Any] = {}

    def transact(effect: Transact[Any]) -> Program[Any]:
        if effect.unit.writes:
            cache.clear()
            return (yield effect)
        if effect not in cache:
            cache[effect] = yield effect
        return cache[effect]

    return {Transact: transact}


@effects_of("Transact.dialect")
def one_dialect_for_all() -> Handlers:
    def transact(effect: Transact[Any]) -> Program[Any]:
        statements = one_by_one(effect.unit.statements(Dialect.POSTGRESQL))
        return (yield Transact(effect.database, change(Nothing(), lambda _: statements)))

    return {Transact: transact}


@effects_of("Inspect.works")
def inspects_another_file() -> Handlers:
    def look(effect: Inspect) -> Program[Any]:
        return evolve((yield effect), replaced=True)

    return {Inspect: look}


FAULTS: Final = tuple(value for value in tuple(globals().values()) if isinstance(value, Fault))
