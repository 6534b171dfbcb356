"""A copy beside a writer: of one moment, in steps, and nobody waits for it."""

from __future__ import annotations

import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from legation_host.errors import UnusableDatabase
from legation_host.sqlite import SqliteDatabase
from legation_host.sqlite_backup import STEP_PAGES, check_database, copy_database, put_in_place
from legation_host.sqlite_connection import BUSY_MS, connect

from .host_units import BACKENDS, Create, Put, run

PAGES = 3 * STEP_PAGES


def make(path: Path) -> sqlite3.Connection:
    """Make a database of some steps, and return the connection that writes to it."""
    live = connect(str(path))
    live.execute("create table t (a integer, b blob)")
    live.execute(
        f"""with recursive n (a) as (select 1 union all select a + 1 from n where a < {PAGES})
        insert into t select a, zeroblob(3000) from n"""
    )
    return live


def test_a_copy_is_of_one_moment_however_much_is_written_meanwhile(tmp_path: Path) -> None:
    steps, sizes = list[int](), list[int]()
    with closing(make(tmp_path / "main.db")) as live:

        def advance() -> None:
            steps.append(len(steps))
            live.execute("insert into t select a, zeroblob(3000) from t where a < 100")

        copy_database(str(tmp_path / "main.db"), tmp_path / "copy.db", advance, sizes.append)
        (after,) = live.execute("select count(*) from t").fetchone()

    copy = tmp_path / "copy.db"
    with closing(sqlite3.connect(copy)) as opened:
        assert opened.execute("select count(*) from t").fetchone() == (PAGES,)
        assert opened.execute("pragma journal_mode").fetchone() == ("delete",)
    assert after > PAGES
    assert sizes == [copy.stat().st_size]
    assert len(steps) == -(-sizes[0] // 4096 // STEP_PAGES)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.glob("copy*")) == ["copy.db"]


def test_a_copy_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    make(tmp_path / "main.db").close()
    path = str(tmp_path / "main.db")

    def refuse(_: int) -> None:
        raise UnusableDatabase("no room")

    with pytest.raises(UnusableDatabase, match="no room"):
        copy_database(path, tmp_path / "a.db", lambda: None, refuse)
    assert not (tmp_path / "a.db").exists()
    (tmp_path / "b.db").touch()
    with pytest.raises(FileExistsError):
        copy_database(path, tmp_path / "b.db", lambda: None, lambda _: None)
    (tmp_path / "main.db").write_bytes(b"garbage" * 1000)
    with pytest.raises(UnusableDatabase):
        copy_database(path, tmp_path / "c.db", lambda: None, lambda _: None)
    with pytest.raises(UnusableDatabase, match="damaged: file is not a database"):
        check_database(tmp_path / "main.db")


def test_a_file_takes_the_place_of_none(tmp_path: Path) -> None:
    make(tmp_path / "new.db").close()
    (tmp_path / "main.db-wal").write_bytes(b"left")
    assert not put_in_place(tmp_path / "new.db", tmp_path / "main.db", tmp_path / "aside.db")
    assert (tmp_path / "aside.db-wal").read_bytes() == b"left"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["aside.db-wal", "main.db"]

    (tmp_path / "folder").mkdir()
    with pytest.raises(UnusableDatabase, match="is not a file"):
        put_in_place(tmp_path / "main.db", tmp_path / "folder", tmp_path / "aside.db")


@BACKENDS
def test_the_writer_does_not_wait_for_who_copies(backend: str, tmp_path: Path) -> None:
    """At rest it brings the WAL home; a reader of an old snapshot would hold it for seconds."""
    said: list[str] = []

    def watched(path: str, **options: Any) -> sqlite3.Connection:
        connection = connect(path, **options)
        if not options:
            connection.set_trace_callback(said.append)
        return connection

    async def write_beside_a_reader() -> None:
        path = str(tmp_path / "main.db")
        database = SqliteDatabase("main", path, connect=watched)
        try:
            await database.run(Create())
            with closing(connect(path, read_only=True)) as reader:
                reader.execute("begin")
                reader.execute("select * from sqlite_master").fetchall()
                said.clear()
                await database.run(Put("a", 1))
                due = time.monotonic() + 60
                while said[-1:] != [f"pragma busy_timeout = {BUSY_MS}"]:
                    assert time.monotonic() < due, said
                    await anyio.sleep(0.05)
                await database.run(Put("b", 1))
        finally:
            await database.aclose()

    run(backend, write_beside_a_reader)
    place = said.index("pragma wal_checkpoint(truncate)")
    assert said[place - 1] == "pragma busy_timeout = 0"
    assert said[place + 1] == f"pragma busy_timeout = {BUSY_MS}"
