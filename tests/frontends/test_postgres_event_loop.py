"""Units that write on PostgreSQL are followed by the event loop, which waits for the server."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import psycopg
import pytest
from attrs import frozen

from legation.store.failures import Conflict, Unavailable
from legation.store.units import Dialect, Sql, Statements, Unit
from legation_host.postgres import PostgresDatabase

from .host_units import ADD, BACKENDS, PUT, Add, All, Count, Create, Fault, Get, KeepBytes, Put, run

NAP: Final = Sql("select cast(pg_sleep(0.3) as text)", registered=False)


@asynccontextmanager
async def opened(url: str, more: str = "") -> AsyncGenerator[PostgresDatabase]:
    database = PostgresDatabase("main", f"{url}{more}")
    try:
        for unit in (Create(), Put("ada", 10)):
            await database.run(unit)
        yield database
    finally:
        await database.aclose()


@frozen
class Slow(Unit[int]):
    """Takes a while, and then writes."""

    def statements(self, dialect: Dialect) -> Statements[int]:
        yield NAP()
        ((amount,),) = yield ADD(name="ada", amount=1)
        return int(amount)


@BACKENDS
def test_no_thread_runs_a_unit_that_writes(backend: str, postgres: str) -> None:
    threads: set[threading.Thread] = set()

    @frozen
    class Look(Unit[None]):
        def statements(self, dialect: Dialect) -> Statements[None]:
            threads.add(threading.current_thread())
            yield ADD(name="ada", amount=1)
            threads.add(threading.current_thread())

    async def main() -> None:
        async with opened(postgres) as database:
            await database.run(Look())

    run(backend, main)
    assert threads == {threading.current_thread()}


@BACKENDS
def test_others_go_on_meanwhile(backend: str, postgres: str) -> None:
    """The event loop is free while the server works."""
    ticks = 0

    async def main() -> None:
        nonlocal ticks

        async def tick() -> None:
            nonlocal ticks
            while True:
                await anyio.sleep(0.01)
                ticks += 1

        async with opened(postgres) as database, anyio.create_task_group() as clock:
            clock.start_soon(tick)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(database.run, Slow())
                tasks.start_soon(database.run, Slow())
            clock.cancel_scope.cancel()
            assert await database.run(Get("ada")) == 12

    run(backend, main)
    assert ticks >= 5


@BACKENDS
def test_who_is_cancelled_while_it_writes_gets_the_result(backend: str, postgres: str) -> None:
    results: list[int] = []

    async def main() -> None:
        async with opened(postgres, "&max_connections=1") as database:
            with anyio.move_on_after(0.05) as scope:
                results.append(await database.run(Slow()))
                await anyio.sleep(30)
            assert scope.cancelled_caught
            assert await database.run(Get("ada")) == 11
            assert len(database._idle) == 1

    run(backend, main)
    assert results == [11]


@BACKENDS
def test_who_is_cancelled_before_it_writes_writes_nothing(backend: str, postgres: str) -> None:
    async def main() -> None:
        async with opened(postgres) as database:
            with anyio.CancelScope() as scope:
                scope.cancel()
                await database.run(Put("eve"))
            assert await database.run(Count()) == 1
            assert database.usage()["connections_used"] == 0

    run(backend, main)


@BACKENDS
def test_a_parameter_may_be_larger_than_the_network_takes_at_once(
    backend: str, postgres: str
) -> None:
    large = b"\0\xff" * 16_000_000

    async def main() -> None:
        async with opened(postgres) as database:
            assert await database.run(KeepBytes("ada", large)) == large

    run(backend, main)


def terminate_all(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where pid <> pg_backend_pid() and application_name = 'legation'"
        )


@BACKENDS
def test_connections_broken_while_idle_are_made_anew(backend: str, postgres: str) -> None:
    async def main() -> None:
        async with opened(postgres) as database:
            terminate_all(postgres)
            assert await database.run(Add("ada", 1)) == 11

    run(backend, main)


@BACKENDS
def test_nobody_there_is_unavailable(backend: str) -> None:
    async def main() -> None:
        database = PostgresDatabase("main", "postgresql://u:hunter2@127.0.0.1:1/none")
        with pytest.raises(Unavailable) as raised:
            await database.run(Put("ada"))
        assert "hunter2" not in str(raised.value)
        assert database.usage()["connections_used"] == 0

    run(backend, main)


@BACKENDS
@pytest.mark.parametrize(
    ("unit", "expected"), [(Put("ada"), Conflict), (Fault("eve"), ZeroDivisionError)]
)
def test_of_a_unit_that_fails_nothing_is_kept(
    backend: str, unit: Unit[Any], expected: type[Exception], postgres: str
) -> None:
    async def main() -> None:
        async with opened(postgres) as database:
            with pytest.raises(expected):
                await database.run(unit)
            assert await database.run(All()) == (("ada", 10),)
            assert len(database._idle) == 1

    run(backend, main)


@BACKENDS
def test_a_serialization_failure_is_run_again(backend: str, postgres: str) -> None:
    fail = Sql(
        "do $$ begin raise exception 'again' using errcode = '40001'; end $$", registered=False
    )
    tries: list[int] = []

    @frozen
    class Unlucky(Unit[None]):
        def statements(self, dialect: Dialect) -> Statements[None]:
            yield PUT(name="eve", amount=1)
            tries.append(len(tries))
            if len(tries) < 3:
                yield fail()

    async def main() -> None:
        async with opened(postgres) as database:
            await database.run(Unlucky())
            assert await database.run(Get("eve")) == 1
            assert len(database._idle) == 1

    run(backend, main)
    assert tries == [0, 1, 2]
