"""The units of work of the kit, on tables of its own: accounts, and what they are kept with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

from attrs import frozen

from legation.store.units import Dialect, Sql, Statements, Undo, Unit, Work

__all__ = [
    "ADD",
    "ALL",
    "COUNT",
    "CREATE",
    "DROP",
    "GET",
    "KEEP",
    "KEPT",
    "LIKE",
    "MISSING",
    "NAMED",
    "NUMBERED",
    "OWE",
    "PUT",
    "Add",
    "Count",
    "Get",
    "Prepare",
    "Put",
    "Scripted",
    "ScriptedExclusive",
    "ScriptedRead",
    "StoreEntries",
]

R = TypeVar("R")

_ACCOUNTS: Final = "legation_host_kit"
_DEBTS: Final = "legation_host_kit_debts"


def _sql(text: str, postgresql: str | None = None) -> Sql:
    """Return a statement on the tables of the kit, which are no part of the schema."""
    named = (each and each.format(accounts=_ACCOUNTS, debts=_DEBTS) for each in (text, postgresql))
    sqlite_text, postgresql_text = named
    return Sql(sqlite_text or "", postgresql_text, registered=False)


DROP: Final = (_sql("drop table if exists {debts}"), _sql("drop table if exists {accounts}"))
CREATE: Final = (
    _sql(
        "create table {accounts} (name text primary key,"
        " amount integer not null check (amount >= 0), note text, data blob)",
        "create table {accounts} (name text primary key,"
        " amount bigint not null check (amount >= 0), note jsonb, data bytea)",
    ),
    # Whether there is an account of that name is asked at the commit.
    _sql(
        "create table {debts} (name text not null"
        " references {accounts} (name) deferrable initially deferred)"
    ),
)
PUT: Final = _sql("insert into {accounts} (name, amount) values (:name, :amount)")
ADD: Final = _sql(
    "update {accounts} set amount = amount + :amount where name = :name returning amount"
)
GET: Final = _sql("select amount from {accounts} where name = :name")
ALL: Final = _sql("select name, amount from {accounts} where name like :pattern order by amount")
COUNT: Final = _sql("select count(*) from {accounts} where name like :pattern")
KEEP: Final = _sql(
    "insert into {accounts} (name, amount, note, data) values (:name, :amount, :note, :data)"
)
KEPT: Final = _sql("select name, amount, note, data from {accounts} where name = :name")
LIKE: Final = _sql(
    "select '100 %', '12:30', amount from {accounts} where name like '%' and name = :name",
    "select '100 %'::text, '12:30'::text, amount from {accounts}"
    " where name like '%' and name = :name",
)
MISSING: Final = _sql("select amount from legation_host_kit_nowhere")
NAMED: Final = _sql(
    "select name from {accounts} where name in (select value from json_each(:names)) order by name",
    "select name from {accounts} where name = any(:names) order by name",
)
NUMBERED: Final = _sql("select ?2, ?1, ?3")
OWE: Final = _sql("insert into {debts} (name) values (:name)")


@frozen
class Prepare(Unit[None]):
    """Removes the tables, and makes them anew where they are `wanted`."""

    wanted: bool

    def statements(self, dialect: Dialect) -> Statements[None]:
        for sql in (*DROP, *(CREATE if self.wanted else ())):
            yield sql()


@frozen
class Put(Unit[None]):
    """Opens an account."""

    name: str
    amount: int = 1

    def statements(self, dialect: Dialect) -> Statements[None]:
        yield PUT(name=self.name, amount=self.amount)


@frozen
class Add(Unit[int | None]):
    """Adds to an account and returns what is on it; None where there is none."""

    name: str
    amount: int

    def statements(self, dialect: Dialect) -> Statements[int | None]:
        rows = yield ADD(name=self.name, amount=self.amount)
        return int(rows[0][0]) if rows else None


@frozen
class Get(Unit[int | None]):
    """Reads an account; None where there is none."""

    writes: ClassVar[bool] = False

    name: str

    def statements(self, dialect: Dialect) -> Statements[int | None]:
        rows = yield GET(name=self.name)
        return int(rows[0][0]) if rows else None


@frozen
class Count(Unit[int]):
    """Counts the accounts whose names begin with `prefix`."""

    writes: ClassVar[bool] = False

    prefix: str

    def statements(self, dialect: Dialect) -> Statements[int]:
        rows = yield COUNT(pattern=f"{self.prefix}%")
        return int(rows[0][0])


@frozen
class StoreEntries(Unit[None]):
    """Counts each of these names once more, whether or not it is there yet."""

    names: tuple[str, ...]

    def statements(self, dialect: Dialect) -> Statements[None]:
        for name in self.names:
            rows = yield ADD(name=name, amount=1)
            if not rows:
                yield PUT(name=name, amount=1)


Script: TypeAlias = Callable[[Dialect], Work[R | Undo[R]]]


@frozen
class Scripted(Unit[Any], Generic[R]):
    """A unit of which a case writes the statements."""

    script: Script[R]

    def statements(self, dialect: Dialect) -> Work[Any]:
        return self.script(dialect)


@frozen
class ScriptedRead(Scripted[R]):
    """One that only reads."""

    writes: ClassVar[bool] = False


@frozen
class ScriptedExclusive(Scripted[R]):
    """One that holds the migration lock."""

    exclusive: ClassVar[bool] = True
