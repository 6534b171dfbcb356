"""A schema as text, the same however it was reached: tables and what is in them, by name."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

import psycopg

from .drivers import Driver, PostgresDriver, SqliteDriver

__all__ = ["LEDGER", "dump"]

LEDGER: Final = frozenset({"schema_ledger", "trail", "trail_kept", "trail_subjects"})
"""The ledger, and the audit trail beside it."""


def dump(driver: Driver, *, ledger: bool = False) -> str:
    """Return the schema of a database; the ledger, which stays for ever, only if asked for."""
    match driver:
        case SqliteDriver():
            tables = _sqlite(driver.connection)
        case PostgresDriver():
            tables = _postgres(driver.connection)
        case _:
            raise NotImplementedError(type(driver))
    kept = (lines for name, lines in tables.items() if ledger or name not in LEDGER)
    return "".join(f"{line}\n" for lines in kept for line in lines)


def _sqlite(connection: sqlite3.Connection) -> dict[str, list[str]]:
    rows = connection.execute("select name from sqlite_master where type = 'table' order by name")
    return {name: list(_sqlite_table(connection, name)) for (name,) in rows.fetchall()}


def _sqlite_table(connection: sqlite3.Connection, table: str) -> Iterator[str]:
    yield f"table {table}"
    rows = connection.execute("select * from pragma_table_xinfo(?)", (table,)).fetchall()
    for _, name, kind, not_null, default, _, _ in rows:
        # SQLite has its own spelling of its standard types, since 3.37
        yield f"  {name} {kind.lower()}{' not null' * not_null}{_default(default)}"
    indexes = connection.execute(
        "select i.name, i.origin, group_concat(c.name, ', '), m.sql from pragma_index_list(?) i"
        " join pragma_index_info(i.name) c left join sqlite_master m on m.name = i.name"
        " group by i.name order by i.origin desc, i.name",
        (table,),
    ).fetchall()
    kinds = {"pk": "primary key", "u": "unique"}
    for _, origin, columns, sql in indexes:
        yield f"  {sql}" if sql else f"  {kinds[origin]} ({columns})"
    triggers = connection.execute(
        "select sql from sqlite_master where type = 'trigger' and tbl_name = ? order by name",
        (table,),
    ).fetchall()
    for (sql,) in triggers:
        yield f"  {' '.join(sql.split())}"


_POSTGRES_TABLES: Final = """
    select c.relname, coalesce(' with (' || array_to_string(c.reloptions, ', ') || ')', '')
    from pg_class c where c.relkind = 'r' and c.relnamespace = current_schema()::regnamespace
    order by c.relname collate "C"
"""
_POSTGRES_COLUMNS: Final = """
    select t.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
        pg_get_expr(d.adbin, d.adrelid)
    from pg_class t join pg_attribute a on a.attrelid = t.oid
    left join pg_attrdef d on d.adrelid = t.oid and d.adnum = a.attnum
    where t.relkind = 'r' and t.relnamespace = current_schema()::regnamespace
    and a.attnum > 0 and not a.attisdropped order by a.attnum
"""
# Since PostgreSQL 18 NOT NULL is a constraint with a name, too ('n').
_POSTGRES_CONSTRAINTS: Final = """
    select t.relname, pg_get_constraintdef(k.oid)
    from pg_class t join pg_constraint k on k.conrelid = t.oid
    where t.relnamespace = current_schema()::regnamespace and k.contype not in ('n', 't')
    order by k.contype, k.conname collate "C"
"""
_POSTGRES_INDEXES: Final = """
    select t.relname, replace(pg_get_indexdef(c.oid), quote_ident(current_schema()) || '.', '')
    from pg_class t join pg_index i on i.indrelid = t.oid join pg_class c on c.oid = i.indexrelid
    where t.relnamespace = current_schema()::regnamespace and i.indisvalid
    and not exists (select from pg_constraint k where k.conindid = c.oid)
    order by c.relname collate "C"
"""
_POSTGRES_TRIGGERS: Final = """
    select t.relname, replace(pg_get_triggerdef(g.oid), quote_ident(current_schema()) || '.', '')
        || ' as ' || p.prosrc
    from pg_class t join pg_trigger g on g.tgrelid = t.oid join pg_proc p on p.oid = g.tgfoid
    where t.relnamespace = current_schema()::regnamespace and not g.tgisinternal
    order by g.tgname collate "C"
"""


def _postgres(connection: psycopg.Connection) -> dict[str, list[str]]:
    """Return the lines of each table; a few statements for all of them, as tests ask often."""
    tables = {
        name: [f"table {name}{options}"] for name, options in connection.execute(_POSTGRES_TABLES)
    }
    for table, name, kind, not_null, default in connection.execute(_POSTGRES_COLUMNS):
        tables[table].append(f"  {name} {kind}{' not null' * not_null}{_default(default)}")
    for query in (_POSTGRES_CONSTRAINTS, _POSTGRES_INDEXES, _POSTGRES_TRIGGERS):
        for table, text in connection.execute(query):
            tables[table].append(f"  {' '.join(text.split())}")
    return tables


def _default(expression: str | None) -> str:
    return "" if expression is None else f" default {expression}"
