"""Reads that may be long: beside the event loop, one at a time, and given up with their caller."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import anyio
import pytest
from attrs import field, frozen

from legation.store.failures import Unavailable, WrongSchema
from legation.store.units import Dialect, ReadUnit, Sql, Statements
from legation_host import long_reads
from legation_host.errors import UnusableDatabase
from legation_host.long_reads import LongReads
from legation_host.postgres import PostgresDatabase
from legation_host.sqlite import SqliteDatabase
from legation_host.sqlite_connection import MEMORY, connect

from .host_units import BACKENDS, Count, Create, Get, Lines, Put, run

ENDLESS = Sql(
    "with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) from n",
    registered=False,
)
COUNT = Sql("select count(*) from accounts")
MISSING = Sql("select amount from nowhere")


class Parcel(list[int]):
    """A list that can be referred to weakly."""


@frozen
class LongCount(ReadUnit[tuple[int, int]]):
    """The number of accounts, and the thread that counted them."""

    long: ClassVar[bool] = True

    def statements(self, dialect: Dialect) -> Statements[tuple[int, int]]:
        ((number,),) = yield COUNT()
        return number, threading.get_ident()


@frozen
class Endless(ReadUnit[int]):
    long: ClassVar[bool] = True

    def statements(self, dialect: Dialect) -> Statements[int]:
        ((number,),) = yield ENDLESS()
        return number  # type: ignore[no-any-return]


@frozen
class Large(ReadUnit[Parcel]):
    long: ClassVar[bool] = True

    def statements(self, dialect: Dialect) -> Statements[Parcel]:
        rows = yield COUNT()
        return Parcel(rows[0])


@frozen
class Wrong(ReadUnit[None]):
    long: ClassVar[bool] = True

    def statements(self, dialect: Dialect) -> Statements[None]:
        yield MISSING()
        raise AssertionError


@frozen(eq=False)
class Stuck(ReadUnit[int]):
    """A read that goes on when it is let go; it counts itself among those under way."""

    long: ClassVar[bool] = True
    under_way: list[int]
    gate: threading.Event

    def statements(self, dialect: Dialect) -> Statements[int]:
        self.under_way.append(1)
        most = len(self.under_way)
        assert self.gate.wait(20)
        yield COUNT()
        self.under_way.pop()
        return most


def opened(
    backend: str, path: str, body: Callable[[SqliteDatabase], Any], lines: Lines | None = None
) -> None:
    async def main() -> None:
        write = (Lines() if lines is None else lines).write
        database = SqliteDatabase("main", path, write)
        try:
            for unit in (Create(), Put("ada", 10)):
                await database.run(unit)
            await body(database)
        finally:
            await database.aclose()

    run(backend, main)


@BACKENDS
def test_a_long_read_is_performed_beside_the_event_loop(backend: str, tmp_path: Path) -> None:
    async def body(database: SqliteDatabase) -> None:
        assert database.inline(LongCount()) is None
        number, thread = await database.run(LongCount())

        assert number == 1
        assert thread != threading.get_ident()
        assert database.inline(Count()) is not None
        await database.run(Put("bob"))
        assert (await database.run(LongCount()))[0] == 2  # it sees what was acknowledged

    opened(backend, str(tmp_path / "a.db"), body)


@BACKENDS
def test_in_memory_there_is_one_connection_for_all(backend: str) -> None:
    async def body(database: SqliteDatabase) -> None:
        assert (await database.run(LongCount()))[0] == 1

    opened(backend, MEMORY, body)


@BACKENDS
def test_one_reads_at_a_time_and_the_others_go_on(backend: str, tmp_path: Path) -> None:
    under_way: list[int] = []
    gate = threading.Event()
    found: list[int] = []

    async def body(database: SqliteDatabase) -> None:
        async def one() -> None:
            found.append(await database.run(Stuck(under_way, gate)))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(one)
            while not under_way:
                await anyio.sleep(0.001)
            await database.run(Put("bob", 5))
            read = database.inline(Get("bob"))
            assert read is not None
            assert read(Get("bob")) == 5
            gate.set()

    opened(backend, str(tmp_path / "a.db"), body)

    assert found == [1, 1, 1]


@frozen
class CountOf(ReadUnit[str]):
    """A read of an owner, as it comes to its turn."""

    long: ClassVar[bool] = True
    owner: str
    order: list[str] = field(eq=False)

    def statements(self, dialect: Dialect) -> Statements[str]:
        self.order.append(self.owner)
        yield COUNT()
        return self.owner


@BACKENDS
def test_owners_take_turns(backend: str, tmp_path: Path) -> None:
    order: list[str] = []
    gate = threading.Event()

    async def body(database: SqliteDatabase) -> None:
        async with anyio.create_task_group() as tasks:
            under_way: list[int] = []
            tasks.start_soon(database.run, Stuck(under_way, gate))
            while not under_way:
                await anyio.sleep(0.001)
            for owner in ("ada", "ada", "ada", "ada", "eve", "eve", "bob"):
                tasks.start_soon(database.run, CountOf(owner, order))
                await anyio.wait_all_tasks_blocked()
            gate.set()

    opened(backend, str(tmp_path / "a.db"), body)

    assert order == ["ada", "eve", "bob", "ada", "eve", "ada", "ada"]


@BACKENDS
def test_a_caller_that_goes_takes_its_read_with_it(backend: str, tmp_path: Path) -> None:
    lines = Lines()

    async def body(database: SqliteDatabase) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):  # some of them never begin
                tasks.start_soon(database.run, Endless())
            await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()
        assert (await database.run(LongCount()))[0] == 1

    opened(backend, str(tmp_path / "a.db"), body, lines)

    assert lines == []  # nothing failed


@BACKENDS
def test_a_read_that_takes_too_long_fails_alone(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_reads, "READ_SECONDS", 0.05)

    async def body(database: SqliteDatabase) -> None:
        with pytest.raises(Unavailable):
            await database.run(Endless())
        assert (await database.run(LongCount()))[0] == 1

    opened(backend, str(tmp_path / "a.db"), body)


@BACKENDS
def test_who_waits_for_too_long_is_told(backend: str, tmp_path: Path) -> None:
    gate = threading.Event()
    told: list[str] = []

    async def body(database: SqliteDatabase) -> None:
        async def one() -> None:
            try:
                await database.run(Stuck([], gate))
            except Unavailable as failure:
                told.append(str(failure))

        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(one)
            await anyio.wait_all_tasks_blocked()
            database.expire(0.0)
            await anyio.wait_all_tasks_blocked()
            assert told == []
            database.expire(float("inf"))
        gate.set()
        assert (await database.run(LongCount()))[0] == 1

    opened(backend, str(tmp_path / "a.db"), body)

    assert told == ["overdue"] * 2


@BACKENDS
def test_an_error_of_a_read_is_its_callers(backend: str, tmp_path: Path) -> None:
    async def body(database: SqliteDatabase) -> None:
        with pytest.raises(WrongSchema, match="incident"):
            await database.run(Wrong())
        assert (await database.run(LongCount()))[0] == 1

    opened(backend, str(tmp_path / "a.db"), body)


@BACKENDS
def test_a_file_that_was_replaced_is_not_read(backend: str, tmp_path: Path) -> None:
    file = tmp_path / "a.db"

    async def body(database: SqliteDatabase) -> None:
        file.unlink()
        connect(str(file)).close()
        with pytest.raises(Unavailable, match="replaced"):
            await database.run(LongCount())

    opened(backend, str(file), body)


def test_a_connection_that_cannot_be_opened_is_logged(tmp_path: Path) -> None:
    lines = Lines()
    tries: list[int] = []

    def open_second_time() -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise UnusableDatabase("no")
        return connect(str(tmp_path / "a.db"), read_only=True)

    async def main() -> None:
        writer = connect(str(tmp_path / "a.db"))
        writer.execute("create table accounts (name text)")
        reads = LongReads("main", open_second_time, lines.write)
        with pytest.raises(Unavailable):
            await reads.run(LongCount())
        assert (await reads.run(LongCount()))[0] == 0
        reads.close()
        writer.close()

    run("trio", main)

    assert [(level, event) for level, event, _ in lines] == [("error", "store_failed")]


def test_a_reader_keeps_nothing_of_what_it_read(tmp_path: Path) -> None:
    async def body(database: SqliteDatabase) -> None:
        parcel = weakref.ref(await database.run(Large()))
        for _ in range(100):
            gc.collect()
            if parcel() is None:
                return
            await anyio.sleep(0.01)
        raise AssertionError("something holds the result")

    opened("trio", str(tmp_path / "a.db"), body)


@BACKENDS
def test_long_reads_have_a_part_of_the_connections_to_a_server(backend: str, postgres: str) -> None:
    under_way: list[int] = []
    gate = threading.Event()
    found: list[int] = []

    async def main() -> None:
        database = PostgresDatabase("main", f"{postgres}&max_connections=4")
        try:
            await database.run(Create())

            async def one() -> None:
                found.append(await database.run(Stuck(under_way, gate)))

            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(one)
                while not under_way:
                    await anyio.sleep(0.001)
                await database.run(Put("bob", 5))
                assert await database.run(Get("bob")) == 5
                gate.set()
        finally:
            await database.aclose()

    run(backend, main)

    assert found == [1, 1, 1]
