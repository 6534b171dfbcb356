"""Chains of the audit trail, written by many at once, on both engines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Final

import anyio
import psycopg
import pytest
from attrs import evolve, frozen

from legation.api.handlers.audit import prune_trail, verify_trail
from legation.effects import Transact
from legation.migrations.catalogue import CATALOGUE
from legation.migrations.migrate import Migrated, migrate
from legation.store.audit import AppendAudit, Audited, OldPlace, ReadOldRows, ReadPages
from legation.store.audit_entries import AuditEntry
from legation.store.audit_lists import AuditRow, ListAudit, Place
from legation.store.audit_moving import MoveOldRows
from legation.store.audit_pages import KeyRing, Page, SigningKey
from legation.store.audit_verify import Broken, Intact
from legation.store.failures import StoreFailure
from legation.store.units import Dialect, Sql, Statements, Undo, Unit
from legation_host import open_host
from legation_host.databases import open_reader
from legation_host.postgres import PostgresDatabase

from ..drivers import Driver, PostgresDriver, SqliteDriver, drive
from ..old_audit import put_old_rows
from ..trail_pages import entries_in, verify_pages
from .host_units import BACKENDS, run

ENTRY: Final = AuditEntry(1, "r", "ada", None, "op", "a/1", "allow", "s", 200, "c")
KEY: Final = SigningKey("2026", bytes(range(32)))
RING: Final = KeyRing((KEY,))
THREADS: Final = 8
EACH: Final = 40
MARK: Final = Sql(
    "insert into nodes (node_id, started_us, beat_us, code_version, schema_version)"
    " values (:name, 0, 0, '', '')",
    registered=False,
)
MARKS: Final = Sql("select count(*) from nodes", registered=False)


@frozen
class Mark(Unit[str]):
    name: str
    undone: bool

    def statements(self, dialect: Dialect) -> Statements[str | Undo[str]]:
        yield MARK(name=self.name)
        return Undo("undone") if self.undone else "done"


def prepared(driver: Driver) -> None:
    with closing(driver):
        program = migrate("main", CATALOGUE, None, actor="test", request_id="r", node="n")
        assert isinstance(drive(driver, program), Migrated)


@pytest.fixture
def trail(postgres: str) -> str:
    """The URL of a migrated schema of PostgreSQL."""
    prepared(PostgresDriver(postgres))
    return postgres


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The URL of a migrated SQLite file."""
    prepared(SqliteDriver(tmp_path / "t.db"))
    return f"sqlite:///{tmp_path / 't.db'}"


def pages_of(url: str) -> tuple[Page, ...]:
    with open_reader("main", url) as read:
        pages: tuple[Page, ...] = read(ReadPages("", 0, 100_000))
        return pages


def write(database: PostgresDatabase, node: str, thread: int, kept: list[str]) -> None:
    """Make changes, every third of which undoes itself, and record reads in between."""
    for number in range(EACH):
        name = f"{node} {thread} {number}"
        entry = evolve(ENTRY, request_id=name)
        try:
            if number % 4 == 3:
                database.run_unit(AppendAudit(node, (entry, entry), KEY))
                kept += [name, name]
            elif database.run_unit(Audited(Mark(name, number % 3 == 2), node, entry, KEY)).kept:
                kept.append(name)
        except StoreFailure:
            pass  # cut off: neither the change nor its record, or both


def together(databases: dict[str, PostgresDatabase]) -> list[str]:
    kept: list[str] = []
    threads = [
        threading.Thread(target=write, args=(database, node, number, kept))
        for node, database in databases.items()
        for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return kept


@pytest.fixture
def nodes(trail: str) -> Generator[dict[str, PostgresDatabase]]:
    """Two nodes on one database."""
    databases = {name: PostgresDatabase("main", trail) for name in ("n1", "n2")}
    yield databases
    for database in databases.values():
        anyio.run(database.aclose)


def test_connections_of_two_nodes_write_chains_that_hold(
    trail: str, nodes: dict[str, PostgresDatabase], figures: Callable[[str], None]
) -> None:
    kept = together(nodes)

    pages = pages_of(trail)
    verdict = verify_pages(pages, keys=RING)
    assert isinstance(verdict, Intact), verdict
    assert verdict.proven
    entries = entries_in(pages)
    assert sorted(entry.request_id for entry in entries) == sorted(kept)
    assert len(verdict.heads) > len(nodes)
    figures(
        f"audit: {len(entries)} entries of 2 nodes with {THREADS} threads each on PostgreSQL, in"
        f" {len(verdict.heads)} chains, all intact"
    )


def test_connections_cut_off_at_any_moment_leave_chains_that_hold(
    trail: str, nodes: dict[str, PostgresDatabase]
) -> None:
    done = threading.Event()

    def cut() -> None:
        mine = "select pg_terminate_backend(pid) from pg_stat_activity where pid <> "
        ours = "pg_backend_pid() and application_name = 'legation' order by random() limit 1"
        with psycopg.connect(trail, autocommit=True) as connection:
            while not done.wait(0.005):
                connection.execute((mine + ours).encode())

    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        kept = together(nodes)
    finally:
        done.set()
        cutter.join(10)

    pages = pages_of(trail)
    verdict = verify_pages(pages, keys=RING)
    assert isinstance(verdict, Intact)
    assert verdict.proven
    recorded = [entry.request_id for entry in entries_in(pages)]
    assert set(kept) <= set(recorded)
    with closing(PostgresDriver(trail)) as driver:
        ((marks,),) = driver.ask("select count(*) from nodes")
    assert marks == sum(int(name.split()[-1]) % 4 != 3 for name in recorded)


@BACKENDS
def test_tasks_of_a_node_on_sqlite_write_one_chain(backend: str, file: str) -> None:
    async def main() -> None:
        async with open_host({"main": file}, node="n1") as host, anyio.create_task_group() as tasks:
            for number in range(50):
                unit = Audited(Mark(str(number), number % 5 == 4), "n1", ENTRY, KEY)
                tasks.start_soon(host.databases["main"].run, unit)
                tasks.start_soon(host.databases["main"].run, AppendAudit("n1", (ENTRY,), KEY))

    run(backend, main)

    verdict = verify_pages(pages_of(file), keys=RING)
    assert isinstance(verdict, Intact)
    assert verdict.proven
    assert (verdict.entries, [head.writer for head in verdict.heads]) == (90, ["signed/n1"])


ENTRIES: Final = tuple(
    AuditEntry(
        at_us=number % 5,
        request_id="ⓡ\n\x1b[31m😀",
        subject=("ada", None, "Ädа")[number % 3],
        key_id=None,
        operation=("get", "run")[number % 2],
        resource=("a", "a/b", "ab", "%", "")[number % 5],
        decision="allow",
        scope="",
        status=200,
        client="",
    )
    for number in range(23)
)


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize(
    "filters",
    [{}, {"subject": "Ädа"}, {"resource": "a"}, {"resource": "%"}, {"operation": "run"}],
    ids=str,
)
def test_both_engines_list_alike(
    trail: str, file: str, filters: dict[str, str], newest_first: bool
) -> None:
    listed: list[list[object]] = []
    for url in (trail, file):
        driver: Driver = PostgresDriver(url) if url == trail else SqliteDriver(Path(url[10:]))
        with closing(driver):
            for writer in ("ä", "Z", "a"):
                driver.run(AppendAudit(writer, ENTRIES, None))
        found: list[AuditRow] = []
        place = Place(1 << 60 if newest_first else 0)
        with open_reader("main", url) as read:
            while rows := read(
                ListAudit(
                    place=place,
                    newest_first=newest_first,
                    size=4,
                    since_us=1,
                    until_us=4,
                    **filters,
                )
            ).rows:
                found += rows
                last = found[-1]
                place = Place(last.entry.at_us, last.writer, last.seq)
        listed.append([(row.writer.split("/")[1], row.seq, row.entry) for row in found])

    assert listed[0] == listed[1]
    assert len(listed[0]) == len(set(listed[0])) > 0


@pytest.mark.parametrize("edit", ["update trail set to_us = 9", "delete from trail"])
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_the_program_finds_what_was_done_to_the_table(
    engine: str, edit: str, request: pytest.FixtureRequest
) -> None:
    url: str = request.getfixturevalue("file" if engine == "sqlite" else "trail")
    driver: Driver = SqliteDriver(Path(url[10:])) if engine == "sqlite" else PostgresDriver(url)
    with closing(driver):
        for first in range(0, 2400, 800):
            refused = tuple(evolve(ENTRY, at_us=first + n, status=403) for n in range(800))
            driver.run(AppendAudit("n", refused, KEY))
        assert isinstance(drive(driver, verify_trail("main", (), RING)), Intact)
        driver.ask(f"{edit} where last = 1312")  # 800, and two full pages
        verdict = drive(driver, verify_trail("main", (), RING))
    assert isinstance(verdict, Broken)
    assert verdict.seq in (1312, 1568)


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_a_pruned_trail_is_proven_on_both_engines(
    engine: str, request: pytest.FixtureRequest
) -> None:
    url: str = request.getfixturevalue("file" if engine == "sqlite" else "trail")
    driver: Driver = SqliteDriver(Path(url[10:])) if engine == "sqlite" else PostgresDriver(url)
    with closing(driver):
        for node in ("n", "m/1"):
            entries = tuple(
                evolve(ENTRY, at_us=number * 10_000, subject=("ada", "bob")[number % 2])
                for number in range(1200)
            )
            driver.run(AppendAudit(node, entries, KEY))
        before = drive(driver, verify_trail("main", (), RING))
        assert isinstance(before, Intact)
        for pruned in (2 * 1010, 0):
            went = drive(driver, prune_trail("main", 11_000_000, "local:ada", RING))
            verdict = drive(driver, verify_trail("main", before.heads, RING))
            assert isinstance(verdict, Intact)
            assert verdict.proven
            assert went == pruned  # whole pages, of a second
        filed = driver.ask("select count(*) from trail_subjects")
        assert filed == driver.ask("select count(*) * 2 from trail where subject is null")
        cut = "select writer, max(last) from trail where writer like '%%/m/1%%' group by writer"
        ((writer, last),) = driver.ask(cut)
        driver.ask(f"delete from trail where writer = '{writer}' and last < {last}")
        assert isinstance(drive(driver, verify_trail("main", (), RING)), Broken)


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_old_rows_are_moved_on_both_engines(engine: str, request: pytest.FixtureRequest) -> None:
    url: str = request.getfixturevalue("file" if engine == "sqlite" else "trail")
    subjects = ("ada", None, "Ädа")
    old = [evolve(ENTRY, at_us=number, subject=subjects[number % 3]) for number in range(7)]
    driver: Driver = SqliteDriver(Path(url[10:])) if engine == "sqlite" else PostgresDriver(url)
    mark = "?" if engine == "sqlite" else "%s"
    with closing(driver):
        connection = getattr(driver, "connection", None)
        rows = put_old_rows(connection, "n/1", old, mark=mark)
        rows += put_old_rows(connection, "m", old, kept=1, mark=mark)
        assert [row.seq for row in driver.run(ReadOldRows(OldPlace(), 3)).rows] == [1, 2, 3]
        while driver.run(MoveOldRows(1 << 50, KEY, 4)):
            verdict = drive(driver, verify_trail("main", (), RING))
            assert isinstance(verdict, Intact)
            assert verdict.proven
            assert verdict.old_rows == len(rows)
        assert driver.ask("select count(*) from audit") == [(0,)]
        assert driver.ask("select count(*) from trail_kept") == [(0,)]


def test_two_movers_at_once_move_each_row_once(
    trail: str, nodes: dict[str, PostgresDatabase]
) -> None:
    with psycopg.connect(trail, autocommit=True) as connection:
        for writer in ("v/1", "w/2"):
            put_old_rows(connection, writer, [ENTRY] * 60, mark="%s")

    def move(database: PostgresDatabase) -> None:
        idle = 0
        while idle < 3:
            try:
                idle = 0 if database.run_unit(MoveOldRows(1 << 50, KEY, 7)) else idle + 1
            except StoreFailure:
                pass  # somebody else was faster

    threads = [
        threading.Thread(target=move, args=(database,))
        for database in nodes.values()
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    verdict = verify_pages(pages_of(trail), keys=RING)
    assert isinstance(verdict, Intact), verdict
    assert verdict.proven
    assert verdict.old_rows == 120


def test_the_program_reads_rows_that_were_not_moved_before_pages() -> None:
    program = verify_trail("main")

    assert next(program) == Transact("main", ReadOldRows(OldPlace(), 1000))
    program.close()
