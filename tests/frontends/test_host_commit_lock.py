"""Processes that write to one SQLite file keep apart where SQLite has the WAL-reset bug."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from legation.store.failures import Busy, CommitLost, Unavailable
from legation_host import commit_lock as commit_lock_module
from legation_host import sqlite as sqlite_module
from legation_host.commit_lock import CommitLock, has_wal_reset_bug, open_commit_lock
from legation_host.databases import open_writer
from legation_host.sqlite import WAIT_SECONDS, SqliteDatabase
from legation_host.sqlite_connection import MEMORY, connect, run_unit

from .host_units import BACKENDS, All, Count, Create, Exclusive, Get, Lines, Put, run

WRITER: Final = Path(__file__).with_name("commit_writer.py")
AFFECTED: Final = (3, 40, 1)
FIXED: Final = (3, 51, 3)


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ((3, 6, 23), False),
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 0), True),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 52, 0), False),
    ],
)
def test_versions_that_may_corrupt_a_wal_are_known(
    version: tuple[int, int, int], affected: bool
) -> None:
    assert has_wal_reset_bug(version) is affected


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = str(tmp_path / "a.db")
    with closing(connect(path)) as connection:
        run_unit(connection, Create())
    return path


@pytest.fixture
def other(file: str) -> Generator[CommitLock]:
    """The lock as another process has it."""
    lock = open_commit_lock(file, "main", version=AFFECTED)
    assert lock is not None
    yield lock
    lock.close()


def opened(backend: str, file: str, body: Callable[[SqliteDatabase], Any]) -> None:
    async def main() -> None:
        database = SqliteDatabase("main", file, version=AFFECTED)
        try:
            await body(database)
        finally:
            await database.aclose()

    run(backend, main)


# --- Real processes


def count_overlaps(processes: list[list[list[int]]]) -> int:
    """Count the intervals that begin before one of another process has ended."""
    spans = sorted((begin, end, number) for number, of in enumerate(processes) for begin, end in of)
    overlaps, last = 0, [0] * len(processes)
    for begin, end, number in spans:
        overlaps += any(begin < until for other, until in enumerate(last) if other != number)
        last[number] = max(last[number], end)
    return overlaps


def write_at_once(file: str, version: tuple[int, int, int], each: int) -> list[list[list[int]]]:
    """Let three processes write at the same time; return the intervals of each."""
    command = [sys.executable, str(WRITER), file, str(each), json.dumps(version)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(3)]
    printed = [process.communicate(timeout=60)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    return [json.loads(one) for one in printed]


def test_no_two_processes_meet_in_a_commit_or_a_checkpoint(
    file: str, figures: Callable[[str], None]
) -> None:
    together = write_at_once(file, AFFECTED, 200)
    seconds = sum(end - begin for one in together for begin, end in one) / 1e9

    assert all(len(one) > 200 for one in together)
    assert count_overlaps(together) == 0
    with closing(connect(file)) as connection:
        assert run_unit(connection, Count()) == 600
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    figures(f"three processes wrote to one SQLite file for {seconds:.2f} s, never two at once")


def test_without_the_lock_they_meet(file: str, figures: Callable[[str], None]) -> None:
    """So the test above can fail: SQLite itself lets a checkpoint stand beside a commit."""
    met = 0
    for _ in range(10):
        met += count_overlaps(write_at_once(file, FIXED, 100))
        if met:
            break

    figures(f"without the lock of commits they met {met} times")
    assert met > 0


def test_overlaps_are_counted() -> None:
    assert count_overlaps([[[0, 10], [20, 30]], [[10, 20], [30, 40]], []]) == 0
    assert count_overlaps([[[0, 10]], [[9, 20]]]) == 1
    assert count_overlaps([[[0, 100], [200, 201]], [[10, 11], [20, 21]]]) == 2


HOLD: Final = """
import sys
from legation_host.commit_lock import open_commit_lock
lock = open_commit_lock(sys.argv[1], "main", version=(3, 40, 1))
assert lock.take()
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_process(file: str) -> Generator[subprocess.Popen[str]]:
    """A process that holds the lock."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, file],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder
        holder.kill()


def test_a_holder_that_is_stopped_makes_units_busy_and_a_killed_one_nothing(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "LOCK_SECONDS", 0.2)

    async def body(database: SqliteDatabase) -> None:
        with another_process(file) as holder:
            holder.send_signal(signal.SIGSTOP)
            with pytest.raises(Busy):
                await database.run(Put("a"))
            holder.kill()
            holder.wait()
            await database.run(Put("a"))

    opened("trio", file, body)


# --- One process


@BACKENDS
def test_a_unit_waits_for_the_lock_and_the_event_loop_does_not(
    backend: str, file: str, other: CommitLock
) -> None:
    done: list[str] = []

    async def body(database: SqliteDatabase) -> None:
        async def put(name: str) -> None:
            await database.run(Put(name))
            done.append(name)

        assert other.take()
        turns = 0
        async with anyio.create_task_group() as tasks:
            for name in ("a", "b"):
                tasks.start_soon(put, name)
            while turns < 100:
                await anyio.sleep(0.001)
                turns += 1
            assert done == []
            assert database.read(All()) == ()  # who reads waits for nobody
            other.free()
        assert sorted(done) == ["a", "b"]

    opened(backend, file, body)


@BACKENDS
def test_each_unit_of_a_group_is_busy_when_the_lock_is_not_to_be_had(
    backend: str, file: str, other: CommitLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "LOCK_SECONDS", 0.1)
    raised: list[Busy] = []

    async def body(database: SqliteDatabase) -> None:
        async def put(name: str) -> None:
            try:
                await database.run(Put(name))
            except Busy as busy:
                raised.append(busy)

        assert other.take()
        async with anyio.create_task_group() as tasks:
            for name in "abcdef":
                tasks.start_soon(put, name)
        other.free()
        assert len({id(busy) for busy in raised}) == 6
        await database.run(Put("a"))

    opened(backend, file, body)


def test_an_exclusive_unit_does_not_wait(file: str, other: CommitLock) -> None:
    async def body(database: SqliteDatabase) -> None:
        assert other.take()
        began = time.monotonic()
        with pytest.raises(Busy):
            await database.run(Exclusive())
        assert time.monotonic() - began < commit_lock_module.WAIT_SECONDS
        other.free()
        assert await database.run(Exclusive()) == 0

    opened("trio", file, body)


def test_a_unit_that_waits_for_the_lock_is_overdue_in_time(file: str, other: CommitLock) -> None:
    async def body(database: SqliteDatabase) -> None:
        assert other.take()
        async with anyio.create_task_group() as tasks:

            async def put() -> None:
                with pytest.raises((CommitLost, Unavailable), match="overdue"):
                    await database.run(Put("a"))

            tasks.start_soon(put)
            await anyio.sleep(0.05)
            database.expire(time.monotonic() + WAIT_SECONDS + 1)
        other.free()

    opened("trio", file, body)


def test_the_lock_is_free_after_every_outcome(file: str, other: CommitLock) -> None:
    async def body(database: SqliteDatabase) -> None:
        await database.run(Put("a"))
        with pytest.raises(Exception, match="incident"):
            await database.run(Put("a"))
        assert await database.run(Get("a")) == 0
        await anyio.to_thread.run_sync(database._checkpoint)
        assert other.take(0.0)
        other.free()

    opened("trio", file, body)
    assert other.take(0.0)


def test_a_checkpoint_is_left_to_who_holds_the_lock(
    file: str, other: CommitLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    wal = Path(f"{file}-wal")
    with closing(connect(file)):  # not the last: then the WAL would go

        async def body(database: SqliteDatabase) -> None:
            await database.run(Put("a"))
            assert other.take()
            monkeypatch.setattr(sqlite_module, "LOCK_SECONDS", 0.1)
            await anyio.to_thread.run_sync(database._checkpoint)
            assert wal.stat().st_size > 0
            other.free()
            await anyio.to_thread.run_sync(database._checkpoint)
            assert wal.stat().st_size == 0

        opened("trio", file, body)


def test_a_writer_beside_the_server_waits_too(file: str, other: CommitLock) -> None:
    with open_writer("main", f"sqlite:///{file}") as run_beside:
        if has_wal_reset_bug(sqlite3.sqlite_version_info):
            assert other.take()
            with pytest.raises(Busy):
                run_beside(Exclusive())
            assert run_beside(Count()) == 0  # it reads
            other.free()
        run_beside(Put("a"))
        assert run_beside(Exclusive()) == 1
        assert other.take(0.0)
    with open_writer("main", f"sqlite:///{file}", read_only=True) as read_beside:
        assert read_beside(Count()) == 1


def test_no_lock_is_made_where_none_is_needed(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")

    async def main() -> None:
        for where, version in ((path, FIXED), (MEMORY, AFFECTED)):
            database = SqliteDatabase("main", where, version=version)
            await database.run(Create())
            await database.aclose()

    run("trio", main)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.db"]


def test_where_there_can_be_no_lock_a_second_process_is_warned_of(file: str) -> None:
    Path(f"{file}-locks").touch()
    lines = Lines()

    async def main() -> None:
        database = SqliteDatabase("main", file, lines.write, version=AFFECTED)
        await database.run(Put("a"))
        await database.aclose()

    run("trio", main)
    ((level, event, fields),) = lines
    assert (level, event, fields["database"]) == ("warning", "sqlite_wal_reset_bug", "main")
    assert "not a folder" in fields["error"]
    assert "no second process" in fields["advice"]


def test_nothing_is_said_where_there_is_a_lock(file: str) -> None:
    lines = Lines()

    async def main() -> None:
        await SqliteDatabase("main", file, lines.write, version=AFFECTED).aclose()

    run("trio", main)
    assert lines == []


def test_a_lock_that_fails_makes_the_database_unavailable(file: str) -> None:
    lines = Lines()

    async def main() -> None:
        database = SqliteDatabase("main", file, lines.write, version=AFFECTED)
        await database.run(Put("a"))
        assert database._lock is not None
        database._lock.close()
        with pytest.raises(Unavailable):
            await database.run(Put("b"))
        await database.aclose()

    run("trio", main)
    assert [event for _, event, _ in lines] == ["store_failed"] * 2
