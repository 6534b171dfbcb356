"""Databases that fill up, hang, or lose their file, under a server that runs."""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, ClassVar
from urllib.error import HTTPError
from urllib.request import urlopen

import anyio
import psycopg
import pytest
import trio
from attrs import frozen

from legation import Agent, Database, Platform
from legation.http.messages import Request, Response
from legation.store.failures import CommitLost, FileReplaced, StoreFailure, Unavailable
from legation.store.units import Dialect, Sql, Statements, Unit
from legation_host import open_host
from legation_host.postgres import PostgresDatabase
from legation_host.sqlite import READ_SECONDS, SqliteDatabase
from legation_host.sqlite_connection import connect, limit_statements, run_unit

from ..engines import Cluster
from ..relay import Relay, relay
from .command_kit import running, write_platform
from .host_units import ADD, BACKENDS, PUT, All, Count, Create, Get, Lines, Put, run
from .test_runs_nodes import RUNS, Node

LATER = 1_000.0
"""Seconds after which everything is overdue."""


class Watched(Node):
    """A platform whose databases are looked at when a test says so."""

    async def look(self, name: str = "main") -> None:
        await self.host.run(self.platform.schema_guard.examine(name))

    async def ready(self) -> tuple[int, dict[str, str]]:
        """Return the status and the state of each database, within two seconds."""
        with anyio.fail_after(2):
            answer = await self.host.run(self.platform.answer(Request("GET", "/ready", ())))
        assert isinstance(answer, Response)
        told = json.loads(answer.body)["databases"]
        return answer.status, {name: one["state"] for name, one in told.items()}

    async def say(self, message: str) -> str:
        form = {"message": message, "session_id": "s", "stream": "false"}
        answer = await self.ask("POST", RUNS.format("concierge"), **form)
        status: str = answer["status"]
        return status


@asynccontextmanager
async def watched(lines: Lines, **urls: str) -> AsyncGenerator[Watched]:
    platform = Platform(
        databases=[Database(name, url, auto_migrate=True) for name, url in urls.items()],
        agents=[Agent(id="concierge"), Agent(id="second", database=list(urls)[-1])],
    )
    async with open_host(platform.databases, log=lines.write) as host:
        await host.run(platform.startup())
        yield Watched(platform, host)


def events(lines: Lines) -> list[str]:
    """Return what was written of the condition of databases."""
    return [
        f"{event} {fields.get('condition', '')}".strip()
        for _, event, fields in lines
        if event in ("database_unavailable", "database_available")
    ]


# --- the file of SQLite


def lose(way: str, path: Path) -> None:
    if way == "replaced":
        other = path.with_name("backup.db")
        connect(str(other)).close()
        other.replace(path)
    elif way == "renamed":
        path.rename(path.with_name("elsewhere.db"))
    else:
        path.unlink()


LOST = pytest.mark.parametrize("way", ["replaced", "renamed", "deleted"])


@LOST
@BACKENDS
def test_nothing_is_acknowledged_that_stands_in_a_file_nobody_will_open(
    backend: str, way: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.db"
    refused: list[type[StoreFailure]] = []

    async def main() -> None:
        database = SqliteDatabase("main", str(path))
        await database.run(Create())
        await database.run(Put("before", 1))
        lose(way, path)

        async def put(name: str) -> None:
            try:
                await database.run(Put(name, 1))
            except StoreFailure as failure:
                refused.append(type(failure))

        await put("alone")
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(put, f"n{number}")
        assert (await database.inspect()).replaced
        await database.aclose()

    run(backend, main)
    assert refused == [FileReplaced] * 21


@LOST
def test_a_lost_file_is_found_by_looking_and_refuses_everything(way: str, tmp_path: Path) -> None:
    path, lines = tmp_path / "a.db", Lines()

    async def main() -> None:
        async with watched(lines, main=f"sqlite:///{path}") as node:
            assert await node.say("hello") == "COMPLETED"
            await node.look()
            assert await node.ready() == (200, {"main": "current"})
            lose(way, path)
            await node.look()
            assert await node.ready() == (503, {"main": "replaced"})
            with pytest.raises(AssertionError, match="deleted or replaced"):
                await node.say("into the void")
            await node.look()
        if way == "renamed":
            path.with_name("elsewhere.db").rename(path)
        async with watched(Lines(), main=f"sqlite:///{path}") as node:
            assert await node.ready() == (200, {"main": "current"})
            assert await node.say("after the restart") == "COMPLETED"

    trio.run(main)
    assert events(lines) == ["database_unavailable replaced"]


def test_a_write_finds_a_lost_file_before_any_look(tmp_path: Path) -> None:
    path, lines = tmp_path / "a.db", Lines()

    async def main() -> None:
        async with watched(lines, main=f"sqlite:///{path}") as node:
            lose("replaced", path)
            with pytest.raises(AssertionError):
                await node.say("into the void")
            assert await node.ready() == (503, {"main": "replaced"})

    trio.run(main)
    assert events(lines) == ["database_unavailable replaced"]
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("select count(*) from sqlite_master").fetchone()
    assert tables == (0,)


# --- a writer that hangs


@frozen
class Held(Unit[None]):
    """Stays in the writer until it is let go."""

    begun: threading.Event
    gate: threading.Event

    def statements(self, dialect: Dialect) -> Statements[None]:
        yield from Put("held", 1).statements(dialect)
        self.begun.set()
        self.gate.wait(30)


@BACKENDS
def test_who_waits_for_a_writer_that_hangs_is_told_what_is_known(
    backend: str, tmp_path: Path
) -> None:
    begun, gate = threading.Event(), threading.Event()
    failed: dict[str, type[Exception]] = {}

    async def main() -> None:
        database = SqliteDatabase("main", str(tmp_path / "a.db"))
        await database.run(Create())

        async def put(name: str, unit: Unit[None]) -> None:
            try:
                await database.run(unit)
            except StoreFailure as failure:
                failed[name] = type(failure)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(put, "in work", Held(begun, gate))
            await anyio.to_thread.run_sync(begun.wait, 30)
            tasks.start_soon(put, "queued", Put("queued", 1))
            await anyio.wait_all_tasks_blocked()
            database.expire(time.monotonic())
            assert failed == {}
            assert (await database.inspect()).waiting_seconds > 0
            database.expire(time.monotonic() + LATER)
        gate.set()
        assert await database.run(All()) == (("held", 1),)
        await database.aclose()

    run(backend, main)
    assert failed == {"in work": CommitLost, "queued": Unavailable}


def test_a_statement_that_does_not_end_is_interrupted(tmp_path: Path) -> None:
    @frozen
    class Endless(Unit[Any]):
        writes: ClassVar[bool] = False

        def statements(self, dialect: Dialect) -> Statements[Any]:
            text = "with recursive n(x) as (select 1 union all select x + 1 from n)"
            return (yield Sql(f"{text} select count(*) from n", registered=False)())

    connection = connect(str(tmp_path / "a.db"))
    limit_statements(connection, lambda: True)
    with pytest.raises(Unavailable):
        run_unit(connection, Endless())
    connection.close()


def test_a_read_on_the_event_loop_has_its_limit(tmp_path: Path) -> None:
    async def main() -> None:
        database = SqliteDatabase("main", str(tmp_path / "a.db"))
        await database.run(Create())
        database.read(All())
        left = database._reading.due - time.monotonic()
        await database.aclose()
        assert 0 < left <= READ_SECONDS

    trio.run(main)


# --- a server that hangs


@frozen
class Pause(Unit[Any]):
    """A write, then silence on the way to the server, then one more statement or the commit."""

    way: Relay
    more: bool

    def statements(self, dialect: Dialect) -> Statements[Any]:
        yield from self._put("paused")
        self.way.silence()
        if self.more:
            yield from self._put("more")

    def _put(self, name: str) -> Statements[None]:
        yield PUT(name=name, amount=1)
        yield ADD(name=name, amount=1)  # what came before is sent with what has rows


@BACKENDS
@pytest.mark.parametrize("more", [True, False], ids=["in a statement", "in the commit"])
def test_a_unit_that_is_overdue_loses_its_connection_and_says_what_is_known(
    backend: str, more: bool, postgres: str, postgres_cluster: Cluster
) -> None:
    failed: list[type[StoreFailure]] = []

    async def main() -> None:
        with relay(postgres_cluster.port) as way:
            url = postgres.replace(f":{postgres_cluster.port}/", f":{way.port}/")
            database = PostgresDatabase("main", url)
            await database.run(Create())

            async def pause() -> None:
                try:
                    await database.run(Pause(way, more))
                except StoreFailure as failure:
                    failed.append(type(failure))

            with anyio.fail_after(20):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(pause)
                    await anyio.sleep(0.3)
                    database.expire(time.monotonic())
                    await anyio.sleep(0.1)
                    assert failed == []
                    database.expire(time.monotonic() + LATER)
                way.speak()
                rows = await database.run(All())
            assert "more" not in dict(rows)
            assert database.usage()["connections_used"] == 0
            await database.aclose()

    run(backend, main)
    assert failed == [Unavailable if more else CommitLost]


@BACKENDS
def test_who_reads_may_leave_a_server_that_hangs_and_keeps_a_place_until_it_answers(
    backend: str, postgres: str, postgres_cluster: Cluster
) -> None:
    async def main() -> None:
        with relay(postgres_cluster.port) as way:
            url = postgres.replace(f":{postgres_cluster.port}/", f":{way.port}/")
            database = PostgresDatabase("main", url + "&max_connections=1")
            await database.run(Create())
            way.silence()
            with anyio.fail_after(5):
                with anyio.move_on_after(0.1) as left:
                    await database.run(Count())
                assert left.cancelled_caught
                assert database.usage()["connections_used"] == 1
                with anyio.move_on_after(0.1) as left:
                    await database.run(Get("ada"))
                assert left.cancelled_caught
            way.speak()
            with anyio.fail_after(20):
                assert await database.run(Count()) == 0
            assert database.usage()["connections_used"] == 0
            await database.aclose()

    run(backend, main)


def test_one_database_hangs_and_the_other_goes_on(
    tmp_path: Path, postgres: str, postgres_cluster: Cluster
) -> None:
    lines = Lines()

    async def main() -> None:
        with relay(postgres_cluster.port) as way:
            url = postgres.replace(f":{postgres_cluster.port}/", f":{way.port}/")
            other = f"sqlite:///{tmp_path}/a.db"
            async with watched(lines, main=other, second=url) as node:
                assert await node.ready() == (200, {"main": "current", "second": "current"})
                way.silence()
                with anyio.fail_after(10):
                    await node.look("second")
                assert await node.ready() == (503, {"main": "current", "second": "silent"})
                with anyio.fail_after(10):
                    assert await node.say("still here") == "COMPLETED"
                way.speak()
                with anyio.fail_after(30):
                    await node.look("second")
                assert await node.ready() == (200, {"main": "current", "second": "current"})

    trio.run(main)
    assert events(lines) == ["database_unavailable silent", "database_available"]


def test_backends_that_were_stopped_are_left_for_new_ones(postgres_database: str) -> None:
    async def main() -> None:
        async with watched(Lines(), main=postgres_database) as node:
            with psycopg.connect(postgres_database, autocommit=True) as admin:
                rows = admin.execute(
                    "select pid from pg_stat_activity where application_name = 'legation'"
                    " and datname = current_database()"
                ).fetchall()
            stopped = [pid for (pid,) in rows]
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            try:
                with anyio.fail_after(10):
                    await node.look()
                assert await node.ready() == (503, {"main": "silent"})
                node.host.databases["main"].expire(time.monotonic() + LATER)
                with anyio.fail_after(20):
                    await node.look()
                    assert await node.say("on a new connection") == "COMPLETED"
                assert await node.ready() == (200, {"main": "current"})
            finally:
                for pid in stopped:
                    os.kill(pid, signal.SIGCONT)

    trio.run(main)


# --- a disk that is full


def answered(port: int, target: str, form: bytes | None = None) -> int:
    """Return the status of an answer."""
    url = f"http://127.0.0.1:{port}{target}"
    try:
        with urlopen(url, form, timeout=10) as reply:
            return int(reply.status)
    except HTTPError as refused:
        refused.close()
        return refused.code


def test_a_full_disk_is_not_ready_until_there_is_room(tmp_path: Path) -> None:
    """The system lets no file of the process grow, and refuses as it does when a disk is full."""
    with running(write_platform(tmp_path), "--port", "0", cwd=tmp_path) as command:
        port = command.port()
        assert answered(port, "/ready") == 200
        runs, form = "/agents/concierge/runs", b"message=hello&stream=false&session_id=s"
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(command.popen.pid, resource.RLIMIT_FSIZE, (4096, hard))
        assert answered(port, runs, form) == 503
        command.until(lambda: answered(port, "/ready") == 503)
        assert answered(port, "/health") == 200
        command.until(lambda: command.named("database_unavailable"))
        (line,) = command.named("database_unavailable")
        assert (line["condition"], line["level"]) == ("full", "error")

        resource.prlimit(command.popen.pid, resource.RLIMIT_FSIZE, (hard, hard))
        command.until(lambda: answered(port, "/ready") == 200)
        assert answered(port, runs, form) == 200
        command.until(lambda: command.named("database_available"))
        assert len(command.named("database_available")) == 1
