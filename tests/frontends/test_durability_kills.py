"""Processes killed under writes: what was acknowledged before is there after, and whole."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Final

import psycopg
import pytest
from attrs import define, field, frozen

from legation.store.failures import StoreFailure
from legation.store.units import Dialect, Rows, Sql, Statement, Statements, Unit
from legation_host.postgres import PostgresDatabase
from legation_host.units import carry_out

from ..engines import Cluster, NoPostgres, cluster
from .migrating import Server, serving

WRITERS: Final = 4

# --- the server, on SQLite

ROUNDS: Final = 4

CONFIGURATION: Final = """
[databases.main]
url = "sqlite:///{folder}/main.db"

[[agents]]
id = "concierge"
"""


@define
class Talkers:
    """Clients that run an agent again and again, each in a session of its own."""

    server: Server
    told: list[str] = field(factory=list[str])
    _threads: list[threading.Thread] = field(factory=list[threading.Thread], init=False)

    def start(self) -> None:
        for number in range(WRITERS):
            thread = threading.Thread(target=self._talk, args=(number,))
            self._threads.append(thread)
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(30)

    def _talk(self, number: int) -> None:
        body = b'{"message": "hi", "stream": false, "session_id": "s%d"}' % number
        with suppress(OSError, HTTPException, ValueError):  # the server is gone
            while True:
                reply = self.server.ask("POST", "/agents/concierge/runs", body=body)
                assert reply.status == 200
                self.told.append(reply.json["run_id"])


def test_a_server_killed_under_writes_has_kept_every_run_that_it_answered(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    chance = random.Random(0)
    told: set[str] = set()
    for _ in range(ROUNDS):
        with serving(tmp_path, CONFIGURATION.format(folder=tmp_path)) as server:
            talkers = Talkers(server)
            talkers.start()
            time.sleep(0.4 + 0.4 * chance.random())
            server.process.kill()
            talkers.join()
        told |= set(talkers.told)
        with closing(sqlite3.connect(tmp_path / "main.db")) as connection:
            assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
            kept = connection.execute("select run_id from runs where status = 'COMPLETED'")
            assert told <= {run_id for (run_id,) in kept.fetchall()}
            assert connection.execute(UNEVEN).fetchall() == []
    figures(f"kill -9, sqlite: {ROUNDS} servers under writes: {len(told)} runs answered, 0 lost")
    assert len(told) > 40


# Runs that count other events than they have, and sessions that count other runs.
UNEVEN: Final = """
    select run_id from runs
    where events <> (select count(*) from events where events.run_id = runs.run_id)
    union all
    select session_id from sessions where runs <> (select count(*) from runs as r
    where r.owner = sessions.owner and r.session_id = sessions.session_id)
"""

# --- a backend of PostgreSQL

CRASHES: Final = 3

CREATE: Final = (
    "create table written (writer bigint, number bigint, primary key (writer, number))",
    "create table counted (writer bigint primary key, number bigint not null)",
    f"insert into counted select writer, 0 from generate_series(1, {WRITERS}) writer",
)
COUNT: Final = Sql(
    "update counted set number = number + 1 where writer = :writer returning number",
    registered=False,
)
WRITE: Final = Sql(
    "insert into written (writer, number) values (:writer, :number)", registered=False
)


@frozen
class Book(Unit[int]):
    """A row and its number, which another row counts."""

    writer: int

    def statements(self, dialect: Dialect) -> Statements[int]:
        ((number,),) = yield COUNT(writer=self.writer)
        yield WRITE(writer=self.writer, number=number)
        return int(number)


@pytest.fixture(scope="module")
def own_cluster() -> Generator[Cluster]:
    """A cluster of this module alone, for a killed backend takes all others with it.

    Whoever does not wait for the disk waits for nothing here: its commits stay in memory.
    """
    with ExitStack() as stack:
        try:
            running = stack.enter_context(cluster())
        except NoPostgres as reason:
            pytest.skip(str(reason))
        for setting in ("wal_writer_delay = '10s'", "wal_buffers = '64MB'"):
            running.run(f"alter system set {setting}")
        running.run("alter system set synchronous_commit = off")
        running.run("select pg_reload_conf()")
        yield running


Perform = Callable[[Unit[int]], int]


@contextmanager
def as_the_host_does(url: str) -> Generator[Perform]:
    database = PostgresDatabase("main", url)
    try:
        yield database.run_unit
    finally:
        database._discard_idle()


@contextmanager
def without_waiting(url: str) -> Generator[Perform]:
    """Yield what runs a unit as the default of this cluster has it."""
    connections: dict[int, psycopg.Connection] = {}

    def perform(unit: Unit[int]) -> int:
        thread = threading.get_ident()
        if thread not in connections:
            connections[thread] = psycopg.connect(url)
        connection = connections[thread]
        cursor = connection.cursor()

        def execute(statement: Statement) -> Rows:
            cursor.execute(statement.sql.psycopg_text.encode(), dict(statement.parameters))
            return cursor.fetchall() if cursor.description else ()

        with connection.transaction():
            number, _ = carry_out(unit.statements(Dialect.POSTGRESQL), execute)
        return number

    yield perform
    for connection in connections.values():
        connection.close()


def crash_under_writes(url: str, perform: Perform) -> set[tuple[int, int]]:
    """Write, kill a backend in the midst of it, and return what was acknowledged before."""
    told: set[tuple[int, int]] = set()
    done = threading.Event()

    def write(writer: int) -> None:
        while not done.is_set():
            try:
                number = perform(Book(writer))
            except (StoreFailure, psycopg.Error):
                time.sleep(0.02)
                continue
            if not done.is_set():
                told.add((writer, number))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(1, WRITERS + 1)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    victim = random.choice(backends(url))
    done.set()  # what is answered from now on is not counted
    os.kill(victim, signal.SIGKILL)
    for thread in threads:
        thread.join(30)
    return told


def backends(url: str) -> list[int]:
    """Return the process of every connection to the database of `url` but this one."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "select pid from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        ).fetchall()
    return [pid for (pid,) in rows]


def kept(url: str) -> set[tuple[int, int]]:
    """Return what is there once the cluster has recovered; every unit has to be whole."""
    deadline = time.monotonic() + 20
    while True:
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                rows = connection.execute("select writer, number from written").fetchall()
                counts = connection.execute("select writer, number from counted").fetchall()
                break
        except psycopg.Error:
            assert time.monotonic() < deadline, "the cluster does not come back"
            time.sleep(0.1)
    found = {(int(writer), int(number)) for writer, number in rows}
    assert found == {(w, n) for w, last in counts for n in range(1, last + 1)}
    return found


def test_a_backend_killed_under_writes_loses_nothing_that_was_acknowledged(
    own_cluster: Cluster, figures: Callable[[str], None]
) -> None:
    """Although the default of the cluster is not to wait: the host says otherwise."""
    told: set[tuple[int, int]] = set()
    with own_cluster.new_database() as url:
        for statement in CREATE:
            run(url, statement)
        with as_the_host_does(url) as perform:
            for _ in range(CRASHES):
                told |= crash_under_writes(url, perform)
                assert told <= kept(url)
    figures(f"kill -9, postgresql: {CRASHES} backends under writes: {len(told)} units, 0 lost")
    assert len(told) > 100


def test_the_same_kill_shows_what_a_weaker_setting_loses(
    own_cluster: Cluster, figures: Callable[[str], None]
) -> None:
    with own_cluster.new_database() as url:
        for statement in CREATE:
            run(url, statement)
        with without_waiting(url) as perform:
            told = crash_under_writes(url, perform)
            lost = told - kept(url)
    figures(f"kill -9, postgresql, synchronous_commit=off: {len(lost)} of {len(told)} units lost")
    assert lost


def run(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(b"set synchronous_commit = on")
        connection.execute(statement.encode())
