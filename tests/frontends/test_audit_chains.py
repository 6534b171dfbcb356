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
from legation.store.audit import (
    AppendAudit,
    Audited,
    AuditEntry,
    AuditRow,
    Broken,
    Intact,
    ListAudit,
    Place,
    ReadChain,
)
from legation.store.failures import StoreFailure
from legation.store.units import Dialect, Sql, Statements, Undo, Unit
from legation_host import open_host
from legation_host.databases import open_reader
from legation_host.postgres import PostgresDatabase

from ..audit_chain import verify_chain
from ..drivers import Driver, PostgresDriver, SqliteDriver, drive
from .host_units import BACKENDS, run

ENTRY: Final = AuditEntry(1, "r", "ada", None, "op", "a/1", "allow", "s", 200, "c")
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


def rows_of(url: str) -> tuple[AuditRow, ...]:
    with open_reader("main", url) as read:
        rows: tuple[AuditRow, ...] = read(ReadChain("", 0, 100_000))
        return rows


def write(database: PostgresDatabase, node: str, thread: int, kept: list[str]) -> None:
    """Make changes, every third of which undoes itself, and record reads in between."""
    for number in range(EACH):
        name = f"{node} {thread} {number}"
        entry = evolve(ENTRY, request_id=name)
        try:
            if number % 4 == 3:
                database.run_unit(AppendAudit(node, (entry, entry)))
                kept += [name, name]
            elif database.run_unit(Audited(Mark(name, number % 3 == 2), node, entry)).kept:
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

    rows = rows_of(trail)
    verdict = verify_chain(rows)
    assert isinstance(verdict, Intact), verdict
    assert sorted(row.entry.request_id for row in rows) == sorted(kept)
    assert len(verdict.heads) > len(nodes)
    figures(
        f"audit: {len(rows)} rows of 2 nodes with {THREADS} threads each on PostgreSQL, in"
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

    rows = rows_of(trail)
    assert isinstance(verify_chain(rows), Intact)
    recorded = [row.entry.request_id for row in rows]
    assert set(kept) <= set(recorded)
    with closing(PostgresDriver(trail)) as driver:
        ((marks,),) = driver.ask("select count(*) from nodes")
    assert marks == sum(int(name.split()[-1]) % 4 != 3 for name in recorded)


@BACKENDS
def test_tasks_of_a_node_on_sqlite_write_one_chain(backend: str, file: str) -> None:
    async def main() -> None:
        async with open_host({"main": file}, node="n1") as host, anyio.create_task_group() as tasks:
            for number in range(50):
                unit = Audited(Mark(str(number), number % 5 == 4), "n1", ENTRY)
                tasks.start_soon(host.databases["main"].run, unit)
                tasks.start_soon(host.databases["main"].run, AppendAudit("n1", (ENTRY,)))

    run(backend, main)

    verdict = verify_chain(rows_of(file))
    assert isinstance(verdict, Intact)
    assert (verdict.count, [head.writer for head in verdict.heads]) == (90, ["n1"])


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
                unit = AppendAudit(writer, ENTRIES)
                driver.run(unit)
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
            ):
                found += rows
                last = found[-1]
                place = Place(last.entry.at_us, last.writer, last.seq)
        listed.append([(row.writer.partition("/")[0], row.seq, row.entry) for row in found])

    assert listed[0] == listed[1]
    assert len(listed[0]) == len(set(listed[0])) > 0


@pytest.mark.parametrize("edit", ["update audit set status = 200", "delete from audit"])
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_the_program_finds_what_was_done_to_the_table(
    engine: str, edit: str, request: pytest.FixtureRequest
) -> None:
    url: str = request.getfixturevalue("file" if engine == "sqlite" else "trail")
    driver: Driver = SqliteDriver(Path(url[10:])) if engine == "sqlite" else PostgresDriver(url)
    with closing(driver):
        for first in range(0, 2400, 800):
            refused = tuple(evolve(ENTRY, at_us=first + n, status=403) for n in range(800))
            driver.run(AppendAudit("n", refused))
        assert isinstance(drive(driver, verify_trail("main")), Intact)
        driver.ask(f"{edit} where seq = 1700")
        verdict = drive(driver, verify_trail("main"))
    assert isinstance(verdict, Broken)
    assert verdict.seq in (1700, 1701)


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_a_pruned_trail_is_proven_on_both_engines(
    engine: str, request: pytest.FixtureRequest
) -> None:
    url: str = request.getfixturevalue("file" if engine == "sqlite" else "trail")
    driver: Driver = SqliteDriver(Path(url[10:])) if engine == "sqlite" else PostgresDriver(url)
    with closing(driver):
        for node in ("n", "m/1"):
            entries = tuple(evolve(ENTRY, at_us=number) for number in range(1200))
            driver.run(AppendAudit(node, entries))
        for before_us, pruned in ((1100, 2200), (1100, 0)):
            went = drive(driver, prune_trail("main", before_us, "local:ada"))
            verdict = drive(driver, verify_trail("main"))
            assert isinstance(verdict, Intact)
            assert went == pruned
        driver.ask("delete from audit where operation = 'audit.prune'")
        assert isinstance(drive(driver, verify_trail("main")), Broken)


def test_the_program_asks_for_the_next_rows_behind_the_last() -> None:
    program = verify_trail("main")

    assert next(program) == Transact("main", ReadChain("", 0, 1000))
    program.close()
