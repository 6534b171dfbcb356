from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import anyio
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
from legation_host.sqlite import GROUP, JOIN_SECONDS, SqliteDatabase
from legation_host.sqlite_connection import MEMORY, connect

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
    Missing,
    Move,
    Put,
    ReadThatWrites,
    run,
)


@pytest.fixture(params=["file", "memory"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "a.db") if request.param == "file" else MEMORY


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "a.db")


async def perform(database: SqliteDatabase, unit: Unit[Any]) -> Any:
    """Return what becomes of `unit`: its result, or the type of what it raises."""
    try:
        read = database.inline(unit)
        return read(unit) if read else await database.run(unit)
    except (StoreFailure, ZeroDivisionError) as error:
        return type(error)


async def at_once(database: SqliteDatabase, *units: Unit[Any]) -> list[Any]:
    """Perform `units` at once and return the outcome of each."""
    outcomes: list[Any] = [None] * len(units)

    async def one(index: int, unit: Unit[Any]) -> None:
        outcomes[index] = await perform(database, unit)

    async with anyio.create_task_group() as tasks:
        for index, unit in enumerate(units):
            tasks.start_soon(one, index, unit)
    return outcomes


class Gate:
    """Holds the writer's thread, so that what follows queues up and shares a commit."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()

    async def shut(self, database: SqliteDatabase, tasks: anyio.abc.TaskGroup) -> None:
        tasks.start_soon(database.run, Held(self))
        await anyio.to_thread.run_sync(self.entered.wait)


@frozen(eq=False)
class Held(Unit[None]):
    exclusive: ClassVar[bool] = True  # nothing that follows joins it

    gate: Gate

    def statements(self, dialect: Dialect) -> Statements[None]:
        self.gate.entered.set()
        assert self.gate.opened.wait(20)
        yield Sql("select 1")()


@frozen(eq=False)
class Joined(Held):
    exclusive: ClassVar[bool] = False


async def grouped(database: SqliteDatabase, *units: Unit[Any]) -> list[Any]:
    """Perform `units` in one group and return the outcome of each, in no promised order."""
    gate = Gate()
    outcomes: list[Any] = []
    async with anyio.create_task_group() as tasks:
        await gate.shut(database, tasks)
        async with anyio.create_task_group() as inner:

            async def one(index: int, unit: Unit[Any]) -> None:
                outcomes.append((index, await perform(database, unit)))

            for index, unit in enumerate(units):
                inner.start_soon(one, index, unit)
            await anyio.wait_all_tasks_blocked()
            gate.opened.set()
    return [outcome for _, outcome in sorted(outcomes, key=lambda pair: pair[0])]


def opened(
    backend: str, path: str, body: Callable[[SqliteDatabase], Any], *units: Unit[Any]
) -> None:
    """Run `body` with a database that has accounts."""

    async def main() -> None:
        database = SqliteDatabase("main", path)
        try:
            for unit in (Create(), Put("ada", 10), Put("bob"), *units):
                await database.run(unit)
            await body(database)
        finally:
            await database.aclose()

    run(backend, main)


@BACKENDS
def test_each_unit_of_a_group_has_its_own_outcome(backend: str, path: str) -> None:
    async def body(database: SqliteDatabase) -> None:
        outcomes = await grouped(
            database,
            Put("cleo", 1),
            Put("ada"),
            Missing(),
            Fault("eve"),
            Put("nul \0"),
            Put("dora", 2),
        )

        assert outcomes == [None, Conflict, WrongSchema, ZeroDivisionError, StatementFailed, None]
        assert await perform(database, All()) == (
            ("ada", 10),
            ("bob", 0),
            ("cleo", 1),
            ("dora", 2),
        )

    opened(backend, path, body)


@BACKENDS
def test_undo_in_a_group_leaves_nothing_and_disturbs_nobody(backend: str, path: str) -> None:
    async def body(database: SqliteDatabase) -> None:
        outcomes = await grouped(
            database, Move("ada", "nobody", 5), Move("ada", "bob", 3), Move("bob", "ada", 99)
        )

        assert sorted(outcomes) == ["moved", "nobody there", "too little"]
        assert await perform(database, All()) == (("ada", 7), ("bob", 3))

    opened(backend, path, body)


@BACKENDS
@pytest.mark.parametrize("tasks", [1, 16, 64, 200])
def test_what_was_acknowledged_is_read_by_whoever_asks_next(
    backend: str, path: str, tasks: int
) -> None:
    async def body(database: SqliteDatabase) -> None:
        async def account(name: str) -> None:
            await database.run(Put(name, 1))
            for amount in range(2, 5):
                assert await database.run(Add(name, 1)) == amount
                assert await perform(database, Get(name)) == amount

        async with anyio.create_task_group() as group:
            for number in range(tasks):
                group.start_soon(account, f"account {number}")
        assert await perform(database, Count()) == tasks + 2

    opened(backend, path, body)


def test_a_group_is_one_commit(file: str) -> None:
    commits: list[str] = []

    async def body(database: SqliteDatabase) -> None:
        database._writer.set_trace_callback(commits.append)
        await grouped(database, *(Put(f"account {number}") for number in range(GROUP)))
        database._writer.set_trace_callback(None)

    opened("trio", file, body)

    assert [line.lower() for line in commits].count("commit") == 2  # the gate's, and the group's


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_queued_while_a_group_is_performed_joins_it(file: str, *, fails: bool) -> None:
    lines: list[str] = []
    before, within = Gate(), Gate()
    late = Fault("eve") if fails else Put("late")

    async def body(database: SqliteDatabase) -> None:
        outcomes: list[Any] = []
        async with anyio.create_task_group() as tasks:
            await before.shut(database, tasks)
            tasks.start_soon(database.run, Put("x"))
            tasks.start_soon(database.run, Joined(within))
            await anyio.wait_all_tasks_blocked()
            database._writer.set_trace_callback(lines.append)
            before.opened.set()
            await anyio.to_thread.run_sync(within.entered.wait)
            async with anyio.create_task_group() as inner:

                async def join() -> None:
                    outcomes.extend(await at_once(database, late, Put("y")))

                inner.start_soon(join)
                await anyio.wait_all_tasks_blocked()
                within.opened.set()
        database._writer.set_trace_callback(None)
        assert outcomes == [ZeroDivisionError if fails else None, None]
        assert await perform(database, Count()) == (4 if fails else 5)

    opened("trio", file, body)

    assert [line.lower() for line in lines].count("commit") == 2  # the gate's, and the group's
    assert lines.count("savepoint unit") == (4 if fails else 0)


@pytest.mark.parametrize(("seconds", "commits"), [(0.0, 1), (JOIN_SECONDS, 2)])
def test_what_is_queued_while_a_unit_is_performed_shares_its_commit_unless_that_is_slow(
    file: str, seconds: float, commits: int
) -> None:
    lines: list[str] = []
    gate = Gate()

    async def body(database: SqliteDatabase) -> None:
        database._writer.set_trace_callback(lines.append)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(database.run, Joined(gate))
            await anyio.to_thread.run_sync(gate.entered.wait)
            tasks.start_soon(database.run, Put("late"))
            await anyio.wait_all_tasks_blocked()
            await anyio.sleep(seconds)
            gate.opened.set()
        database._writer.set_trace_callback(None)
        assert await perform(database, Count()) == 3

    opened("trio", file, body)

    assert [line.lower() for line in lines].count("commit") == commits


def test_only_a_group_in_which_a_unit_fails_has_savepoints(file: str) -> None:
    async def body(database: SqliteDatabase) -> None:
        told: list[str] = []
        database._writer.set_trace_callback(told.append)
        await grouped(database, *(Add("ada", 1) for _ in range(5)))
        assert not [line for line in told if "savepoint" in line]
        told.clear()
        await grouped(database, Add("ada", 1), Fault("eve"), Add("ada", 1))
        assert told.count("savepoint unit") == 3
        assert await perform(database, Get("ada")) == 17

    opened("trio", file, body)


def test_more_than_a_group_is_several_commits_and_all_are_told(file: str) -> None:
    async def body(database: SqliteDatabase) -> None:
        outcomes = await grouped(database, *(Put(f"account {n}") for n in range(3 * GROUP)))

        assert outcomes == [None] * (3 * GROUP)

    opened("trio", file, body)


@BACKENDS
def test_an_exclusive_unit_runs_alone_between_the_others(backend: str, path: str) -> None:
    async def body(database: SqliteDatabase) -> None:
        outcomes = await grouped(database, Put("x"), Exclusive(), Put("y"))

        assert outcomes[1] in (2, 3, 4)
        assert await perform(database, Count()) == 4

    opened(backend, path, body)


def test_an_exclusive_unit_shares_no_transaction(file: str) -> None:
    lines: list[str] = []

    async def body(database: SqliteDatabase) -> None:
        database._writer.set_trace_callback(lines.append)
        await grouped(database, Exclusive(), Put("x"), Exclusive(), Put("y"))
        database._writer.set_trace_callback(None)

    opened("trio", file, body)

    looked = next(n for n, line in enumerate(lines) if "count(*)" in line)
    assert lines[looked - 1].lower() == "begin immediate"
    assert lines[looked + 1].lower() == "commit"


def test_an_exclusive_unit_is_busy_while_another_process_writes(file: str) -> None:
    async def body(database: SqliteDatabase) -> None:
        other = connect(file)
        other.execute("begin immediate")
        assert await perform(database, Exclusive()) is Busy
        other.execute("rollback")
        other.close()
        assert await perform(database, Exclusive()) == 2

    opened("trio", file, body)


@BACKENDS
def test_a_read_writes_nothing(backend: str, path: str) -> None:
    async def body(database: SqliteDatabase) -> None:
        assert await perform(database, ReadThatWrites()) is StatementFailed
        assert await perform(database, Count()) == 2
        assert await perform(database, Put("after")) is None

    opened(backend, path, body)


def test_reads_of_a_file_are_inline_and_those_in_memory_are_not(file: str) -> None:
    async def body(database: SqliteDatabase) -> None:
        assert (database.inline(Get("ada")) is None) is (database.path == MEMORY)
        assert database.inline(Put("x")) is None
        assert database.inline(Exclusive()) is None

    opened("trio", file, body)
    opened("trio", MEMORY, body)


def test_a_unit_that_fills_the_database_does_not_disturb_its_group(file: str) -> None:
    async def body(database: SqliteDatabase) -> None:
        pages = database._writer.execute("pragma page_count").fetchone()[0]
        database._writer.execute(f"pragma max_page_count = {pages + 4}")
        outcomes = await grouped(
            database, Put("x"), KeepBytes("ada", bytes(1 << 20)), Put("y"), Add("bob", 1)
        )

        assert outcomes == [None, DatabaseFull, None, 1]
        assert await perform(database, Get("bob")) == 1

    opened("trio", file, body)


@frozen
class Strict(Unit[None]):
    def statements(self, dialect: Dialect) -> Statements[None]:
        yield Sql(
            "create table children (parent text references accounts (name)"
            " deferrable initially deferred)"
        )()


@frozen
class Adopt(Unit[None]):
    parent: str

    def statements(self, dialect: Dialect) -> Statements[None]:
        yield Sql("insert into children (parent) values (:parent)")(parent=self.parent)


def test_a_constraint_broken_at_commit_concerns_who_broke_it(file: str) -> None:
    async def body(database: SqliteDatabase) -> None:
        outcomes = await grouped(database, Adopt("ada"), Adopt("nobody"), Adopt("bob"))

        assert outcomes == [None, StatementFailed, None]
        assert not database._writer.in_transaction

    opened("trio", file, body, Strict())


def test_a_commit_that_fails_is_told_to_the_whole_group(file: str) -> None:
    async def body(database: SqliteDatabase) -> None:
        # The pages of a group reach the WAL at COMMIT, which may not grow any more.
        size = Path(f"{file}-wal").stat().st_size
        with file_size_limit(size):
            outcomes = await grouped(database, Put("x"), Put("ada"), Put("y"))
        assert outcomes == [CommitLost, Conflict, CommitLost]

        assert await perform(database, Count()) == 2
        assert await perform(database, Put("x")) is None

    opened("trio", file, body)


@contextmanager
def file_size_limit(size: int) -> Generator[None]:
    """Refuse every write behind `size` bytes of a file, in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@BACKENDS
def test_who_is_cancelled_leaves_and_the_others_are_served(backend: str, path: str) -> None:
    async def body(database: SqliteDatabase) -> None:
        gate = Gate()
        async with anyio.create_task_group() as tasks:
            await gate.shut(database, tasks)
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as inner:
                    inner.start_soon(database.run, Put("cancelled"))
                    await anyio.wait_all_tasks_blocked()
                    scope.cancel()
            tasks.start_soon(database.run, Put("served"))
            await anyio.wait_all_tasks_blocked()
            gate.opened.set()
        assert await perform(database, Get("cancelled")) is None
        assert await perform(database, Get("served")) == 0

    opened(backend, path, body)


@BACKENDS
def test_closing_finishes_what_is_queued_and_brings_the_wal_home(
    backend: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "a.db")

    async def main() -> None:
        database = SqliteDatabase("main", path)
        await database.run(Create())
        gate = Gate()
        async with anyio.create_task_group() as tasks:
            await gate.shut(database, tasks)
            for number in range(10):
                tasks.start_soon(database.run, Put(f"account {number}"))
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(database.aclose)
            await anyio.wait_all_tasks_blocked()
            gate.opened.set()
        await database.aclose()
        with pytest.raises(Unavailable):
            await database.run(Put("late"))
        with pytest.raises(Unavailable):
            database.read(Get("late"))

    run(backend, main)

    assert not Path(f"{path}-wal").exists()
    connection = connect(path)
    assert connection.execute("select count(*) from accounts").fetchone() == (10,)
    connection.close()


def test_an_idle_writer_brings_the_wal_home(file: str) -> None:
    async def body(database: SqliteDatabase) -> None:
        wal = Path(f"{file}-wal")
        assert wal.stat().st_size > 0
        with anyio.fail_after(5):
            while wal.stat().st_size:
                await anyio.sleep(0.05)
        assert await perform(database, Put("after")) is None

    opened("trio", file, body)


def test_a_read_sees_one_snapshot_however_often_it_is_run(file: str) -> None:
    @frozen
    class Twice(Unit[tuple[int, int]]):
        writes: ClassVar[bool] = False

        def statements(self, dialect: Dialect) -> Statements[tuple[int, int]]:
            ((before,),) = yield Sql("select count(*) from accounts")()
            other = connect(file)
            other.execute("insert into accounts (name, amount) values (?, 0)", (f"n{before}",))
            other.close()
            ((after,),) = yield Sql("select count(*) from accounts")()
            return before, after

    async def body(database: SqliteDatabase) -> None:
        for _ in range(3):
            before, after = database.read(Twice())
            assert before == after
        assert database.read(Count()) > 2

    opened("trio", file, body)
