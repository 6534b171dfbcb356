"""Units of work on a table of accounts, for the tests of the host alone."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar, Final, TypeVar

import anyio
import pytest
from attrs import frozen

from legation.store.units import Dialect, Sql, Statements, Undo, Unit

__all__ = [
    "BACKENDS",
    "Add",
    "All",
    "Count",
    "Create",
    "Exclusive",
    "Fault",
    "Get",
    "KeepBytes",
    "KeepJson",
    "Lines",
    "Missing",
    "Move",
    "Put",
    "ReadThatWrites",
    "run",
]

R = TypeVar("R")

BACKENDS: Final = pytest.mark.parametrize("backend", ["trio", "asyncio"])


class Lines(list[tuple[str, str, Mapping[str, Any]]]):
    """A log that keeps its lines."""

    def write(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        self.append((level, event, fields))


def run(backend: str, body: Callable[[], Coroutine[Any, Any, R]]) -> R:
    """Run `body` in an event loop of `backend`; a test that hangs fails."""

    async def bounded() -> R:
        with anyio.fail_after(30):
            return await body()

    return anyio.run(bounded, backend=backend)


CREATE: Final = Sql(
    "create table accounts (name text primary key, amount integer not null check (amount >= 0),"
    " note text, blob blob)",
    postgresql="create table accounts (name text primary key,"
    " amount bigint not null check (amount >= 0), note jsonb, blob bytea)",
    registered=False,
)
PUT: Final = Sql("insert into accounts (name, amount) values (:name, :amount)")
ADD: Final = Sql(
    "update accounts set amount = amount + :amount where name = :name returning amount"
)
GET: Final = Sql("select amount from accounts where name = :name")
ALL: Final = Sql("select name, amount from accounts order by name")
COUNT: Final = Sql("select count(*) from accounts")
MISSING: Final = Sql("select amount from nowhere")
NOTE: Final = Sql("update accounts set note = :value where name = :name returning note")
BLOB: Final = Sql("update accounts set blob = :value where name = :name returning blob")


@frozen
class Create(Unit[None]):
    def statements(self, dialect: Dialect) -> Statements[None]:
        yield CREATE()


@frozen
class Put(Unit[None]):
    name: str
    amount: int = 0

    def statements(self, dialect: Dialect) -> Statements[None]:
        yield PUT(name=self.name, amount=self.amount)


@frozen
class Add(Unit[int | None]):
    name: str
    amount: int

    def statements(self, dialect: Dialect) -> Statements[int | None]:
        rows = yield ADD(name=self.name, amount=self.amount)
        return rows[0][0] if rows else None


@frozen
class Move(Unit[str]):
    """Takes first and looks afterwards, so that refusing has something to undo."""

    source: str
    target: str
    amount: int

    def statements(self, dialect: Dialect) -> Statements[str | Undo[str]]:
        rows = yield GET(name=self.source)
        if not rows or rows[0][0] < self.amount:
            return Undo("too little")
        yield ADD(name=self.source, amount=-self.amount)
        rows = yield ADD(name=self.target, amount=self.amount)
        return "moved" if rows else Undo("nobody there")


@frozen
class Get(Unit[int | None]):
    writes: ClassVar[bool] = False
    name: str

    def statements(self, dialect: Dialect) -> Statements[int | None]:
        rows = yield GET(name=self.name)
        return rows[0][0] if rows else None


@frozen
class All(Unit[tuple[tuple[str, int], ...]]):
    writes: ClassVar[bool] = False

    def statements(self, dialect: Dialect) -> Statements[tuple[tuple[str, int], ...]]:
        rows = yield ALL()
        return tuple((name, amount) for name, amount in rows)


@frozen
class Count(Unit[int]):
    writes: ClassVar[bool] = False

    def statements(self, dialect: Dialect) -> Statements[int]:
        rows = yield COUNT()
        return int(rows[0][0])


@frozen
class ReadThatWrites(Unit[None]):
    writes: ClassVar[bool] = False

    def statements(self, dialect: Dialect) -> Statements[None]:
        yield PUT(name="smuggled", amount=1)


@frozen
class Exclusive(Unit[int]):
    exclusive: ClassVar[bool] = True

    def statements(self, dialect: Dialect) -> Statements[int]:
        rows = yield COUNT()
        return int(rows[0][0])


@frozen
class Missing(Unit[None]):
    def statements(self, dialect: Dialect) -> Statements[None]:
        yield MISSING()


@frozen
class Fault(Unit[None]):
    """Writes, and then shows to be wrong."""

    name: str

    def statements(self, dialect: Dialect) -> Statements[None]:
        yield PUT(name=self.name, amount=1)
        raise ZeroDivisionError


@frozen
class KeepJson(Unit[str]):
    name: str
    value: str

    def statements(self, dialect: Dialect) -> Statements[str]:
        rows = yield NOTE(name=self.name, value=self.value)
        return str(rows[0][0])


@frozen
class KeepBytes(Unit[bytes]):
    name: str
    value: bytes

    def statements(self, dialect: Dialect) -> Statements[bytes]:
        rows = yield BLOB(name=self.name, value=self.value)
        blob: bytes = rows[0][0]
        return blob
