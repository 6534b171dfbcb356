from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar
from urllib.parse import urlsplit

import anyio
import psycopg
import pytest
from attrs import frozen

from legation.store.failures import (
    Busy,
    CommitLost,
    Conflict,
    DatabaseFull,
    StatementFailed,
    StoreFailure,
    Unavailable,
    WrongSchema,
)
from legation.store.units import Dialect, Sql, Statements, Unit
from legation_host.postgres import SETTINGS, PostgresDatabase, _classify

from .host_units import (
    BACKENDS,
    Add,
    All,
    Count,
    Create,
    Exclusive,
    Fault,
    Get,
    KeepBytes,
    KeepJson,
    Lines,
    Missing,
    Move,
    Put,
    ReadThatWrites,
    run,
)


@contextmanager
def opened(url: str, *units: Unit[Any], **more: Any) -> Generator[PostgresDatabase]:
    """Yield a database on this thread, with accounts."""
    database = PostgresDatabase("main", url, **more)
    try:
        for unit in units:
            database.run_unit(unit)
        yield database
    finally:
        database._closed = True
        database._discard_idle()


ACCOUNTS = (Create(), Put("ada", 10), Put("bob"))


@frozen
class Ask(Unit[Any]):
    """One value, by a statement written for the test."""

    writes: ClassVar[bool] = False
    text: str

    def statements(self, dialect: Dialect) -> Statements[Any]:
        rows = yield Sql(self.text)()
        return rows[0][0] if rows else None


@frozen
class Do(Ask):
    writes: ClassVar[bool] = True


@pytest.mark.parametrize("more", ["", "&pgbouncer=true"], ids=["direct", "through a pooler"])
@pytest.mark.parametrize("name", [*SETTINGS, "synchronous_commit"])
def test_settings_hold_in_every_transaction(postgres: str, name: str, more: str) -> None:
    weak = "%20-csynchronous_commit%3Doff%20-cstatement_timeout%3D0"
    with opened(postgres + weak + more) as database:
        for kind in (Ask, Do):
            value = database.run_unit(kind(f"select current_setting('{name}')"))
            assert value == SETTINGS.get(name, "on")


def test_a_stronger_commit_is_left_as_it_is(postgres: str) -> None:
    with opened(postgres + "%20-csynchronous_commit%3Dremote_apply") as database:
        assert database.run_unit(Do("select current_setting('synchronous_commit')")) == (
            "remote_apply"
        )


@pytest.mark.parametrize("more", ["", "&pgbouncer=true"], ids=["direct", "through a pooler"])
def test_units_answer_as_they_do_on_sqlite(postgres: str, more: str) -> None:
    with opened(postgres + more, *ACCOUNTS) as database:
        perform = database.run_unit
        assert perform(Add("ada", 5)) == 15
        assert perform(Add("nobody", 5)) is None
        assert perform(Move("ada", "bob", 5)) == "moved"
        assert perform(Move("ada", "nobody", 5)) == "nobody there"
        assert perform(All()) == (("ada", 10), ("bob", 5))
        for number in range(20):  # often enough to be prepared
            assert perform(Get("bob")) == 5, number


def test_nothing_is_prepared_behind_a_pooler(postgres: str) -> None:
    with opened(postgres + "&pgbouncer=true", *ACCOUNTS) as database:
        for _ in range(20):
            database.run_unit(Get("bob"))
        assert database.run_unit(Ask("select count(*) from pg_prepared_statements")) == 0


def test_bytes_stay_bytes_and_json_stays_text(postgres: str) -> None:
    with opened(postgres, *ACCOUNTS) as database:
        assert database.run_unit(KeepBytes("ada", b"\0\xff")) == b"\0\xff"
        assert type(database.run_unit(KeepBytes("ada", b""))) is bytes
        assert database.run_unit(KeepJson("ada", '{"a": [1, "é"]}')) == '{"a": [1, "é"]}'


@pytest.mark.parametrize(
    ("unit", "failure"),
    [
        (Put("ada"), Conflict),
        (Missing(), WrongSchema),
        (Do("select nothing from accounts"), WrongSchema),
        (Add("ada", -99), StatementFailed),
        (Add("ada", 1 << 70), StatementFailed),
        (Put("surrogate \udc80"), StatementFailed),
        (Put("nul \0"), StatementFailed),
        (Get("nul \0"), StatementFailed),
        (ReadThatWrites(), StatementFailed),
    ],
    ids=ascii,
)
def test_a_failed_unit_names_its_failure_and_leaves_nothing(
    postgres: str, unit: Unit[Any], failure: type[StoreFailure]
) -> None:
    lines = Lines()
    with opened(postgres, *ACCOUNTS, write=lines.write) as database:
        with pytest.raises(failure, match=r"^incident [0-9a-f]{8}$"):
            database.run_unit(unit)
        assert database.run_unit(All()) == (("ada", 10), ("bob", 0))
    assert [line[2]["failure"] for line in lines] == [failure.__name__]


def test_the_log_quotes_no_row(postgres: str) -> None:
    lines = Lines()
    with opened(postgres, *ACCOUNTS, write=lines.write) as database:
        database.run_unit(KeepJson("ada", '"a private message"'))
        with pytest.raises(StatementFailed):
            database.run_unit(Add("ada", -99))
        with pytest.raises(Conflict):
            database.run_unit(Put("ada"))

    assert "accounts" in str(lines)
    assert "private" not in str(lines)
    assert "(ada)" not in str(lines)


def test_a_fault_of_the_unit_is_raised_as_it_is_and_leaves_nothing(postgres: str) -> None:
    with opened(postgres, *ACCOUNTS) as database:
        with pytest.raises(ZeroDivisionError):
            database.run_unit(Fault("eve"))
        assert database.run_unit(Get("eve")) is None
        assert len(database._idle) == 1


@pytest.mark.parametrize(
    ("state", "failure"),
    [
        ("53100", DatabaseFull),
        ("53300", Unavailable),
        ("57P03", Unavailable),
        ("57014", Busy),
        ("55P03", Busy),
        ("08006", Unavailable),
        ("23505", Conflict),
        ("23503", StatementFailed),
        ("42601", StatementFailed),
        ("", StatementFailed),
    ],
)
def test_states_have_their_failure(state: str, failure: type[StoreFailure]) -> None:
    assert _classify(state) is failure


@pytest.mark.parametrize("more", ["", "&pgbouncer=true"], ids=["direct", "through a pooler"])
def test_a_read_sees_one_snapshot_however_often_it_is_run(postgres: str, more: str) -> None:
    @frozen
    class Twice(Unit[tuple[int, int]]):
        writes: ClassVar[bool] = False

        def statements(self, dialect: Dialect) -> Statements[tuple[int, int]]:
            ((before,),) = yield Sql("select count(*) from accounts")()
            with psycopg.connect(postgres) as other:
                other.execute("insert into accounts (name, amount) values (%s, 0)", (f"n{before}",))
            ((after,),) = yield Sql("select count(*) from accounts")()
            return before, after

    with opened(postgres + more, *ACCOUNTS) as database:
        for _ in range(3):
            before, after = database.run_unit(Twice())
            assert before == after
        assert database.run_unit(Count()) > 2


def test_an_exclusive_unit_is_busy_while_another_runs_and_only_then(postgres: str) -> None:
    @frozen
    class Nested(Unit[type[Exception] | None]):
        exclusive: ClassVar[bool] = True

        def statements(self, dialect: Dialect) -> Statements[type[Exception] | None]:
            yield Sql("select 1")()
            with opened(postgres) as other:
                try:
                    other.run_unit(Exclusive())
                except StoreFailure as failure:
                    return type(failure)
            return None

    with opened(postgres, *ACCOUNTS) as database:
        assert database.run_unit(Nested()) is Busy
        assert database.run_unit(Exclusive()) == 2


def test_the_lock_of_migrations_is_the_schemas_own(postgres_cluster: Any, postgres: str) -> None:
    @frozen
    class Elsewhere(Unit[int]):
        exclusive: ClassVar[bool] = True

        def statements(self, dialect: Dialect) -> Statements[int]:
            yield Sql("select 1")()
            with postgres_cluster.new_schema() as url, opened(url, Create()) as other:
                return other.run_unit(Exclusive())

    with opened(postgres) as database:
        assert database.run_unit(Elsewhere()) == 0


def test_an_exclusive_unit_does_not_queue_behind_a_reader(postgres: str) -> None:
    @frozen
    class Alter(Unit[None]):
        exclusive: ClassVar[bool] = True

        def statements(self, dialect: Dialect) -> Statements[None]:
            yield Sql("alter table accounts add column more text")()

    with opened(postgres, *ACCOUNTS) as database, psycopg.connect(postgres) as reader:
        reader.execute("select * from accounts")
        started = time.monotonic()
        with pytest.raises(Busy):
            database.run_unit(Alter())
        assert time.monotonic() - started < 1.5
        reader.rollback()
        database.run_unit(Alter())


def test_a_prepared_statement_survives_a_change_of_the_schema(postgres: str) -> None:
    with opened(postgres, *ACCOUNTS) as database:
        for _ in range(10):
            database.run_unit(Get("ada"))
        with psycopg.connect(postgres) as other:
            other.execute("alter table accounts alter column amount type integer")
        assert database.run_unit(Get("ada")) == 10


def test_a_session_that_others_use_as_well_is_found_by_its_prepared_statements(
    postgres: str,
) -> None:
    lines = Lines()
    with opened(postgres, *ACCOUNTS, write=lines.write) as database:
        for _ in range(10):
            assert database.run_unit(Get("ada")) == 10
        database.run_unit(Do("do $$ begin execute 'deallocate all'; end $$"))
        assert database.run_unit(Get("ada")) == 10
        for _ in range(10):
            assert database.run_unit(Get("ada")) == 10
        assert database.run_unit(Ask("select count(*) from pg_prepared_statements")) == 0
    assert [event for _, event, _ in lines if event != "store_failed"] == ["pooler_found"]


def test_a_serialization_failure_is_run_again(postgres: str) -> None:
    """Two units that lock each other's rows: one is struck down, and both are done in the end."""
    meet = threading.Barrier(2)
    attempts: list[str] = []

    @frozen
    class Cross(Unit[None]):
        first: str
        second: str

        def statements(self, dialect: Dialect) -> Statements[None]:
            attempts.append(self.first)
            yield from _add(self.first)
            if len(attempts) <= 2:
                meet.wait(10)
            yield from _add(self.second)

    def _add(name: str) -> Generator[Any, Any, None]:
        yield from Add(name, 1).statements(Dialect.POSTGRESQL)

    with opened(postgres, *ACCOUNTS) as database:
        threads = [
            threading.Thread(target=database.run_unit, args=(unit,))
            for unit in (Cross("ada", "bob"), Cross("bob", "ada"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert len(attempts) == 3
        assert database.run_unit(All()) == (("ada", 12), ("bob", 2))


def terminate_all(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where pid <> pg_backend_pid() and application_name = 'legation'"
        )


def test_connections_broken_while_idle_are_made_anew(postgres: str) -> None:
    with opened(postgres, *ACCOUNTS) as database:
        terminate_all(postgres)
        assert database.run_unit(Get("ada")) == 10
        terminate_all(postgres)
        assert database.run_unit(Add("ada", 1)) == 11


def test_a_connection_broken_before_commit_is_unavailable(postgres: str) -> None:
    @frozen
    class Cut(Unit[None]):
        def statements(self, dialect: Dialect) -> Statements[None]:
            yield from Put("cut").statements(dialect)
            terminate_all(postgres)
            yield from Put("never").statements(dialect)

    with opened(postgres, *ACCOUNTS) as database:
        with pytest.raises(Unavailable):
            database.run_unit(Cut())
        assert database.run_unit(Count()) == 2


def test_nobody_there_is_unavailable() -> None:
    with (
        opened("postgresql://u:hunter2@127.0.0.1:1/none") as database,
        pytest.raises(Unavailable) as raised,
    ):
        database.run_unit(Count())
    assert "hunter2" not in str(raised.value)


class Wire:
    """A wire to PostgreSQL that breaks at the next COMMIT, before or after it arrived.

    That is the next one once it is armed, which it also is when `mark` comes by.
    """

    def __init__(self, url: str, after: bool, mark: bytes | None = None) -> None:
        port = urlsplit(url).port
        assert port is not None
        self.target = ("127.0.0.1", port)
        self.after = after
        self.mark = mark
        self.armed = False
        self.silent = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = url.replace(f":{port}/", f":{self.listener.getsockname()[1]}/")
        self.ends: list[socket.socket] = [self.listener]
        self.threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, target: Any, *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(self.target)
                self.ends += (client, server)
                self._start(self._out, client, server)
                self._start(self._back, server, client)

    def _out(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self.mark is not None and self.mark in data:
                    self.armed, self.mark = True, None
                if self.armed and b"commit\0" in data:
                    self.armed = False
                    if self.after:
                        self.silent = True  # the answer is lost on its way
                        server.sendall(data)
                        time.sleep(0.3)
                        self.silent = False
                    break
                server.sendall(data)
        self._break(client, server)

    def _back(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if not self.silent:
                    client.sendall(data)
        self._break(client, server)

    def _break(self, *ends: socket.socket) -> None:
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._break(*self.ends)
        for thread in self.threads:
            thread.join(10)
        for end in self.ends:
            end.close()


@pytest.mark.parametrize("after", [False, True], ids=["before it arrived", "after it arrived"])
def test_a_commit_without_an_answer_is_lost_and_the_row_tells(postgres: str, after: bool) -> None:
    wire = Wire(postgres, after)
    try:
        with opened(wire.url, *ACCOUNTS) as database:
            wire.armed = True
            with pytest.raises(CommitLost):
                database.run_unit(Put("cleo", 1))
            assert database.run_unit(Get("cleo")) == (1 if after else None)
    finally:
        wire.close()


@BACKENDS
def test_a_hundred_tasks_share_few_connections(backend: str, postgres: str) -> None:
    most = 0

    async def main() -> None:
        nonlocal most
        database = PostgresDatabase("main", postgres + "&max_connections=4")
        try:
            for unit in ACCOUNTS:
                await database.run(unit)

            async def one() -> None:
                nonlocal most
                await database.run(Add("ada", 1))
                most = max(most, len(database._idle))

            async with anyio.create_task_group() as tasks:
                for _ in range(100):
                    tasks.start_soon(one)
            assert await database.run(Get("ada")) == 110
            count = Ask(
                "select count(*) from pg_stat_activity where application_name = 'legation'"
                " and query like '%accounts%' or query = 'commit'"
            )
            assert await database.run(count) <= 4 * 2  # another test's may be closing
        finally:
            await database.aclose()
        assert not database._idle
        with pytest.raises(Unavailable):
            await database.run(Count())

    run(backend, main)

    assert most <= 4


@BACKENDS
def test_who_is_cancelled_leaves_the_connection_usable(backend: str, postgres: str) -> None:
    async def main() -> None:
        database = PostgresDatabase("main", postgres + "&max_connections=1")
        with anyio.move_on_after(0.05):
            await database.run(Ask("select pg_sleep(0.3)"))
        assert await database.run(Ask("select 7")) == 7
        await database.aclose()

    run(backend, main)


def test_no_read_is_inline(postgres: str) -> None:
    with opened(postgres) as database:
        assert database.inline(Count()) is None


def test_without_the_driver_the_extra_is_named() -> None:
    program = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'psycopg':\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from legation_host import MissingDriver, open_database\n"
        "try:\n"
        "    open_database('main', 'postgresql://host/name')\n"
        "except MissingDriver as error:\n"
        "    sys.exit(0 if 'legation[postgres]' in str(error) else 1)\n"
        "sys.exit(2)\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)

    assert done.returncode == 0, done.stderr
