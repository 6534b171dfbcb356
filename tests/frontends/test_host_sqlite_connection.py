from __future__ import annotations

import errno
import sqlite3
import stat
import threading
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

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
from legation_host.errors import UnusableDatabase
from legation_host.logs import quiet
from legation_host.sqlite_connection import (
    IN_FILES,
    IN_MEMORY,
    MEMORY,
    classify,
    connect,
    run_unit,
    set_journal_mode,
    translate,
)

from .host_units import (
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
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a.db")


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"pragma {name}").fetchone()[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("journal_mode", "wal"),
        ("synchronous", 2),
        ("foreign_keys", 1),
        ("temp_store", IN_MEMORY),
        ("busy_timeout", 5_000),
        ("wal_autocheckpoint", 1_000),
        ("journal_size_limit", 64 << 20),
        ("auto_vacuum", 2),
        ("fullfsync", 1),
    ],
)
def test_a_writing_connection_holds_its_pragmas(path: str, name: str, value: object) -> None:
    connection = connect(path)

    assert pragma(connection, name) == value
    connection.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [("query_only", 1), ("wal_autocheckpoint", 0), ("busy_timeout", 50), ("temp_store", 0)],
)
def test_a_reading_connection_holds_its_pragmas(path: str, name: str, value: object) -> None:
    connect(path).close()
    connection = connect(path, read_only=True)

    assert pragma(connection, name) == value
    connection.close()


def test_a_database_of_another_layout_is_opened_as_it_is(path: str) -> None:
    before = sqlite3.connect(path)
    before.execute("create table old (x)")
    before.close()

    connection = connect(path)

    assert pragma(connection, "auto_vacuum") == 0
    assert pragma(connection, "journal_mode") == "wal"
    connection.close()


def test_the_file_is_the_owners_alone(path: str) -> None:
    connection = connect(path)
    run_unit(connection, Create())

    for name in (path, f"{path}-wal", f"{path}-shm"):
        assert stat.S_IMODE(Path(name).stat().st_mode) == 0o600
    connection.close()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnusableDatabase, match="nowhere"):
        connect(str(tmp_path / "nowhere" / "a.db"))


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"no database" * 200)

    with pytest.raises(UnusableDatabase, match=r"a\.txt"):
        connect(str(path))


def test_a_lock_on_a_new_file_is_waited_for_although_sqlite_would_not(path: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("begin exclusive")
        with closing(sqlite3.connect(path, timeout=0)) as connection:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                set_journal_mode(connection, "wal", 0)
            later = threading.Timer(0.2, other.execute, ["rollback"])
            later.start()
            assert set_journal_mode(connection, "wal", 20_000) == "wal"
            later.join()


def test_all_that_open_a_new_file_at_once_get_it(tmp_path: Path) -> None:
    for turn in range(10):
        barrier, opened = threading.Barrier(8), list[str]()

        def open_it(name: str, barrier: threading.Barrier, opened: list[str]) -> None:
            barrier.wait()
            connect(name).close()
            opened.append(name)

        name = str(tmp_path / f"{turn}.db")
        threads = [threading.Thread(target=open_it, args=(name, barrier, opened)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(opened) == 8


def test_a_journal_that_cannot_be_wal_is_refused(path: str) -> None:
    # Another connection in exclusive mode keeps the journal as it is.
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("create table old (x)")
    other.execute("begin exclusive")

    with pytest.raises(UnusableDatabase):
        connect(path, busy_ms=0)
    other.close()


@pytest.fixture
def accounts() -> Generator[sqlite3.Connection]:
    connection = connect(MEMORY)
    run_unit(connection, Create())
    run_unit(connection, Put("ada", 10))
    run_unit(connection, Put("bob", 0))
    yield connection
    connection.close()


def test_a_unit_returns_what_its_generator_returns(accounts: sqlite3.Connection) -> None:
    assert run_unit(accounts, Add("ada", 5)) == 15
    assert run_unit(accounts, Get("ada")) == 15


def test_a_unit_that_says_undo_leaves_nothing(accounts: sqlite3.Connection) -> None:
    assert run_unit(accounts, Move("ada", "nobody", 5)) == "nobody there"
    assert run_unit(accounts, All()) == (("ada", 10), ("bob", 0))


@pytest.mark.parametrize(
    ("unit", "failure"),
    [
        (Put("ada"), Conflict),
        (Missing(), WrongSchema),
        (Add("ada", -99), StatementFailed),  # a check constraint
        (Add("ada", 1 << 70), StatementFailed),  # no integer of SQLite
        (Put("surrogate \udc80"), StatementFailed),
        (Put("nul \0"), StatementFailed),
        (Get("nul \0"), StatementFailed),
    ],
    ids=repr,
)
def test_a_failed_unit_names_its_failure_and_leaves_nothing(
    accounts: sqlite3.Connection, unit: Put, failure: type[StoreFailure]
) -> None:
    lines = Lines()
    with pytest.raises(failure, match=r"^incident [0-9a-f]{8}$") as raised:
        run_unit(accounts, unit, write=lines.write)

    assert str(raised.value).split()[1] in str(lines[0])
    assert not accounts.in_transaction
    assert run_unit(accounts, All()) == (("ada", 10), ("bob", 0))


def test_a_fault_of_the_unit_is_raised_as_it_is_and_leaves_nothing(
    accounts: sqlite3.Connection,
) -> None:
    with pytest.raises(ZeroDivisionError):
        run_unit(accounts, Fault("eve"))

    assert not accounts.in_transaction
    assert run_unit(accounts, Get("eve")) is None


def test_a_reading_connection_writes_nothing(path: str) -> None:
    writer = connect(path)
    run_unit(writer, Create())
    reader = connect(path, read_only=True)

    with pytest.raises(StatementFailed):
        run_unit(reader, ReadThatWrites())
    assert run_unit(writer, Count()) == 0
    reader.close()
    writer.close()


def test_an_exclusive_unit_does_not_wait_and_then_waits_no_less_than_before(path: str) -> None:
    one, other = connect(path), connect(path)
    run_unit(one, Create())
    other.execute("begin immediate")

    started = time.monotonic()
    with pytest.raises(Busy):
        run_unit(one, Exclusive())
    assert time.monotonic() - started < 1.0
    assert pragma(one, "busy_timeout") == 5_000

    other.execute("rollback")
    assert run_unit(one, Exclusive()) == 0
    one.close()
    other.close()


def test_an_exclusive_unit_sorts_in_files_since_an_index_may_have_any_size(path: str) -> None:
    connection = connect(path)
    run_unit(connection, Create())
    heard: list[str] = []
    connection.set_trace_callback(heard.append)

    assert run_unit(connection, Exclusive()) == 0

    begin = heard.index("begin immediate")
    assert f"pragma temp_store = {IN_FILES}" in heard[:begin]
    assert pragma(connection, "temp_store") == IN_MEMORY
    connection.close()


def test_text_bytes_and_json_come_back_as_they_were(accounts: sqlite3.Connection) -> None:
    assert run_unit(accounts, KeepBytes("ada", b"\0\xff")) == b"\0\xff"
    assert run_unit(accounts, KeepJson("ada", '{"a": [1, "é"]}')) == '{"a": [1, "é"]}'


def test_a_full_database_says_so(path: str) -> None:
    connection = connect(path)
    run_unit(connection, Create())
    run_unit(connection, Put("ada"))
    pages = pragma(connection, "page_count")
    connection.execute(f"pragma max_page_count = {pages}")

    with pytest.raises(DatabaseFull):
        run_unit(connection, KeepBytes("ada", bytes(1 << 20)))
    assert run_unit(connection, Get("ada")) == 0
    connection.close()


def error_with(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("as SQLite says it")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (sqlite3.SQLITE_BUSY_SNAPSHOT, Busy),
        (sqlite3.SQLITE_LOCKED, Busy),
        (sqlite3.SQLITE_FULL, DatabaseFull),
        (sqlite3.SQLITE_IOERR_WRITE, DatabaseFull),
        (sqlite3.SQLITE_IOERR_READ, Unavailable),
        (sqlite3.SQLITE_CANTOPEN, Unavailable),
        (sqlite3.SQLITE_CORRUPT, Unavailable),
        (sqlite3.SQLITE_NOTADB, Unavailable),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, Conflict),
        (sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, Conflict),
        (sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY, StatementFailed),
        (sqlite3.SQLITE_CONSTRAINT_NOTNULL, StatementFailed),
        (sqlite3.SQLITE_ERROR, StatementFailed),
        (sqlite3.SQLITE_READONLY, StatementFailed),
    ],
)
def test_result_codes_have_their_failure(code: int, failure: type[StoreFailure]) -> None:
    assert classify(error_with(code)) is failure


def test_a_commit_whose_sync_failed_is_neither_success_nor_failure() -> None:
    error = error_with(sqlite3.SQLITE_IOERR_FSYNC)

    assert type(translate(error, "main", quiet, at_commit=True)) is CommitLost
    assert type(translate(error, "main", quiet)) is DatabaseFull


def test_what_the_driver_said_goes_to_the_log_alone() -> None:
    lines = Lines()
    failure = translate(
        OSError(errno.EIO, "the words of the driver"),
        "main",
        lines.write,
    )

    assert "words" not in str(failure)
    assert "the words of the driver" in str(lines)
    assert "main" in str(lines)


def test_an_empty_file_beside_a_wal_is_refused_and_the_wal_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(connect(str(path))) as writer:
        writer.execute("create table t (x)")
        log = (tmp_path / "a.db-wal").read_bytes()
    path.write_bytes(b"")
    kept = tmp_path / "a.db-wal"
    kept.write_bytes(log)

    with pytest.raises(UnusableDatabase, match=r"a\.db: the file is empty, .* restore it"):
        connect(str(path))
    assert kept.read_bytes() == log
    kept.unlink()
    connect(str(path)).close()
