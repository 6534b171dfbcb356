"""The schema that migrations build is the one that the statements of the core are written for."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg
import pytest

from legation.migrations.catalogue import CATALOGUE, Migration
from legation.migrations.migrate import Migrated, migrate
from legation.migrations.schema_version import EMPTY, Version
from legation.store import sizes
from legation.store.run_rows import LOCK_SESSION
from legation.store.runs import ADVANCE, FINISH, TOUCH_SESSION
from legation.store.units import Dialect

from ..drivers import Driver, PostgresDriver, SqliteDriver, drive

# In a process of its own: in this one other tests have written statements, too.
LISTING: Final = """
import importlib, json, pkgutil
import legation
from legation.store.units import all_sql
for module in pkgutil.walk_packages(legation.__path__, "legation."):
    importlib.import_module(module.name)
print(json.dumps([(sql.numbered, sql.psycopg_text) for sql in all_sql()]))
"""


@pytest.fixture(scope="module")
def statements() -> list[tuple[str, str]]:
    """Every statement of the core, in the text of each engine."""
    listing = subprocess.run(
        [sys.executable, "-c", LISTING], check=True, capture_output=True, text=True
    )
    return [(sqlite, psycopg_) for sqlite, psycopg_ in json.loads(listing.stdout)]


def migrated(driver: Driver, version: Version) -> None:
    program = migrate("main", CATALOGUE, version, actor="test", request_id="r", node="n")
    assert isinstance(drive(driver, program), Migrated)


def test_sqlite_prepares_every_statement(
    statements: list[tuple[str, str]], tmp_path: Path, figures: Callable[[str], None]
) -> None:
    with closing(SqliteDriver(tmp_path / "test.db")) as driver:
        migrated(driver, CATALOGUE.latest)
        for text, _ in statements:
            assert not any("?" in literal for literal in re.findall(r"'[^']*'", text))
            numbers = re.findall(r"\?(\d+)\b", text)
            driver.connection.execute(f"explain {text}", (None,) * len(set(numbers)))
    figures(f"schema: {len(statements)} statements of the core prepared on each engine")
    assert len(statements) > 30


def test_postgresql_prepares_every_statement(
    statements: list[tuple[str, str]], postgres: str
) -> None:
    asked = [sql.psycopg_text for sql in (sizes.WHOLE, sizes.TABLES)]  # not of every SQLite
    with closing(PostgresDriver(postgres)) as driver:
        migrated(driver, CATALOGUE.latest)
        for text in (*(text for _, text in statements), *asked):
            driver.connection.execute(f"prepare x as {numbered(text)}".encode())
            driver.connection.execute(b"deallocate x")


@pytest.mark.parametrize("analyzed", [False, True])
def test_postgresql_finds_a_session_and_a_run_by_its_id_and_by_no_other_index(
    postgres: str, analyzed: bool
) -> None:
    """While tables are small, all indexes seem to cost the same; a plan is kept when they grow."""
    keys = dict.fromkeys((TOUCH_SESSION, LOCK_SESSION), "sessions_id")
    keys |= dict.fromkeys((ADVANCE, FINISH), "runs_run_id_key")
    with closing(PostgresDriver(postgres)) as driver:
        migrated(driver, CATALOGUE.latest)
        for (insert,) in driver.ask(FILL.format(rows=ROWS)):
            driver.connection.execute(insert.encode())
        settings = ("plan_cache_mode = force_generic_plan", "enable_seqscan = off")
        before = [f"set {setting}" for setting in settings] + ["analyze"] * analyzed
        for text in before:
            driver.connection.execute(text.encode())
        for sql, key in keys.items():
            text = numbered(sql.psycopg_text)
            nulls = ", ".join(["null"] * len(set(re.findall(r"\$\d+", text))))
            driver.connection.execute(f"prepare x as {text}".encode())
            plan = driver.connection.execute(f"explain execute x ({nulls})".encode()).fetchall()
            driver.connection.execute(b"deallocate x")
            assert re.findall(r"using (\w+)", str(plan)) == [key], plan


def test_postgresql_measures_every_table(postgres: str) -> None:
    with closing(PostgresDriver(postgres)) as driver:
        migrated(driver, CATALOGUE.latest)
        driver.ask("analyze cluster")

        measured = driver.run(sizes.MeasureDatabase())

        tables = {one.name: one for one in measured.tables or ()}
        assert tables.keys() == file_of_each_table(driver).keys()
        assert tables["cluster"].rows == 1
        assert tables["runs"].rows is None  # nobody has estimated it yet
        assert 0 < sum(one.size for one in tables.values()) < measured.size


def numbered(text: str) -> str:
    """Return psycopg's text with the parameters `$1`, `$2`, ... of the server."""
    names = list(dict.fromkeys(re.findall(r"%\(([a-z_]+)\)s", text)))
    for number, name in enumerate(names, start=1):
        text = text.replace(f"%({name})s", f"${number}")
    return text.replace("%%", "%")


def test_no_statement_asks_for_every_column(statements: list[tuple[str, str]]) -> None:
    """A prepared `select *` breaks when a column is added; and its rows change their shape."""
    assert not [
        text for pair in statements for text in pair if re.search(r"(select|\.)\s*\*", text)
    ]


# --- what a step costs, by watching PostgreSQL take it

ROWS: Final = 500

FILL: Final = """
    select format('insert into %%I (%%s) select %%s from generate_series(1, {rows}) i', t.relname,
        string_agg(quote_ident(a.attname), ', '),
        string_agg(case when a.atttypid = 'bigint'::regtype then 'i' else '''x'' || i' end, ', '))
    from pg_class t join pg_attribute a on a.attrelid = t.oid
    where t.relkind = 'r' and t.relnamespace = current_schema()::regnamespace
    and t.relname not in ('schema_ledger', 'cluster') and a.attnum > 0 and a.attnotnull
    group by t.relname
"""
FILES: Final = """
    select relname, relfilenode from pg_class
    where relkind = 'r' and relnamespace = current_schema()::regnamespace order by relname
"""
ROWS_READ: Final = """
    select relname, pg_stat_get_xact_tuples_returned(oid) from pg_class
    where relkind = 'r' and relname = any(%s) and relnamespace = current_schema()::regnamespace
    and pg_stat_get_xact_tuples_returned(oid) > 0
"""
READ_ONCE: Final = {
    "2.9.0": [("runs", ROWS)],
    "2.10.0": [("runs", ROWS)],
    "2.11.0": [("outbox", ROWS)],
    "2.14.0": [("sessions", 2 * ROWS)],
}
"""The tables that there were, and that a version reads once for each index that it adds to them."""


@pytest.mark.parametrize("migration", CATALOGUE.migrations, ids=lambda m: str(m.version))
def test_a_move_up_rewrites_no_table_that_was_there_and_reads_one_for_an_index_alone(
    migration: Migration, postgres: str
) -> None:
    before = CATALOGUE.versions[CATALOGUE.versions.index(migration.version) - 1]
    with closing(PostgresDriver(postgres)) as driver:
        if before != EMPTY:
            migrated(driver, before)
        connection = driver.connection
        for (insert,) in driver.ask(FILL.format(rows=ROWS)):
            connection.execute(insert.encode())
        files = file_of_each_table(driver)

        driver.begin()
        take(migration, connection)
        read = connection.execute(ROWS_READ.encode(), (list(files),)).fetchall()
        files_now = file_of_each_table(driver)

        assert {name: files_now[name] for name in files} == files
        assert read == READ_ONCE.get(str(migration.version), [])


def file_of_each_table(driver: Driver) -> dict[str, int]:
    """Return the number of the file that holds a table: a table rewritten has a new one."""
    return {name: int(number) for name, number in driver.ask(FILES)}


def take(migration: Migration, connection: psycopg.Connection) -> None:
    for step in migration.up:
        statement = step.statement(Dialect.POSTGRESQL)
        if statement is not None:
            connection.execute(statement.text(Dialect.POSTGRESQL).encode())


def test_the_watch_sees_a_table_read_and_a_table_rewritten(postgres: str) -> None:
    with closing(PostgresDriver(postgres)) as driver:
        migrated(driver, CATALOGUE.versions[1])
        for (insert,) in driver.ask(FILL.format(rows=ROWS)):
            driver.connection.execute(insert.encode())
        files = file_of_each_table(driver)

        driver.begin()
        driver.ask("alter table runs alter column attempt type numeric")
        read = driver.connection.execute(ROWS_READ.encode(), (["runs"],)).fetchall()

        assert file_of_each_table(driver) != files
        assert [name for name, number in read if number >= ROWS] == ["runs"]
