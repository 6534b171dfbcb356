"""Programs of units give the same answers on SQLite, on PostgreSQL and in a dict."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from legation.store.failures import Conflict, StatementFailed, StoreFailure, WrongSchema
from legation.store.units import Dialect, Sql, Statements, Unit
from legation_host.postgres import PostgresDatabase
from legation_host.sqlite_connection import MEMORY, connect, run_unit

from .host_units import Add, All, Count, Create, Fault, Get, Missing, Move, Put

Outcome: TypeAlias = Any  # a result, or the type of what was raised


class Empty(Unit[None]):
    def statements(self, dialect: Dialect) -> Statements[None]:
        yield EMPTY()


EMPTY = Sql("delete from accounts")


class Model:
    """What the units mean, in a dict."""

    def __init__(self) -> None:
        self.accounts: dict[str, int] = {}

    def perform(self, unit: Unit[Any]) -> Outcome:
        accounts = self.accounts
        match unit:
            case Put(name, amount):
                if "\0" in name or amount < 0:
                    return StatementFailed
                if name in accounts:
                    return Conflict
                accounts[name] = amount
                return None
            case Add(name, amount):
                if "\0" in name:
                    return StatementFailed
                if name not in accounts:
                    return None
                if accounts[name] + amount < 0:
                    return StatementFailed
                accounts[name] += amount
                return accounts[name]
            case Get(name):
                return StatementFailed if "\0" in name else accounts.get(name)
            case Move():
                return self._move(unit)
            case All():
                return tuple(sorted(accounts.items(), key=lambda item: item[0].encode()))
            case Count():
                return len(accounts)
            case Missing():
                return WrongSchema
            case Fault(name):
                if "\0" in name:
                    return StatementFailed
                return Conflict if name in accounts else ZeroDivisionError
            case _:
                raise AssertionError(unit)

    def _move(self, unit: Move) -> Outcome:
        accounts = self.accounts
        if "\0" in unit.source:
            return StatementFailed
        if unit.source not in accounts or accounts[unit.source] < unit.amount:
            return "too little"
        if "\0" in unit.target:
            return StatementFailed
        if unit.target not in accounts:
            return "nobody there"
        if unit.source != unit.target and accounts[unit.target] + unit.amount < 0:
            return StatementFailed
        accounts[unit.source] -= unit.amount
        accounts[unit.target] += unit.amount
        return "moved"


def outcome(perform: Callable[[Unit[Any]], Any], unit: Unit[Any]) -> Outcome:
    try:
        return perform(unit)
    except (StoreFailure, ZeroDivisionError) as error:
        return type(error)


NAMES = st.sampled_from(["ada", "bob", "Bob", "é", "e\u0301", "", " ", "%s", ":name", "nul\0", "'"])
AMOUNTS = st.integers(0, 9)
UNITS: st.SearchStrategy[Unit[Any]] = st.one_of(
    st.builds(Put, NAMES, st.integers(-1, 9)),
    st.builds(Add, NAMES, st.integers(-9, 9)),
    st.builds(Move, NAMES, NAMES, AMOUNTS),
    st.builds(Get, NAMES),
    st.builds(Fault, NAMES),
    st.just(All()),
    st.just(Count()),
    st.just(Missing()),
)
PROGRAMS = st.lists(UNITS, max_size=25)


@settings(max_examples=150)
@given(PROGRAMS)
def test_sqlite_agrees_with_the_model(program: list[Unit[Any]]) -> None:
    connection = connect(MEMORY)
    run_unit(connection, Create())
    model = Model()
    for unit in program:
        got = outcome(lambda unit: run_unit(connection, unit), unit)
        assert got == model.perform(unit), unit
    connection.close()


@pytest.fixture
def database(postgres: str) -> Generator[PostgresDatabase]:
    database = PostgresDatabase("main", postgres)
    database.run_unit(Create())
    yield database
    database._closed = True
    database._discard_idle()


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=PROGRAMS)
def test_postgresql_agrees_with_the_model(
    database: PostgresDatabase, program: list[Unit[Any]]
) -> None:
    database.run_unit(Empty())
    model = Model()
    for unit in program:
        assert outcome(database.run_unit, unit) == model.perform(unit), unit
