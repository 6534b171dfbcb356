"""A schema as text, the same however it was reached: tables and what is in them, by name."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

import psycopg

from .drivers import Driver, PostgresDriver, SqliteDriver

__all__ = ["LEDGER", "dump"]

LEDGER: Final = "schema_ledger"


def dump(driver: Driver, *, ledger: bool = False) -> str:
    """Return the schema of a database; the ledger, which stays for ever, only if asked for."""
    match driver:
        case SqliteDriver():
            tables = _sqlite_tables(driver.connection)
            lines = [_sqlite_table(driver.connection, t) for t in tables if ledger or t != LEDGER]
        case PostgresDriver():
            tables = _postgres_tables(driver.connection)
            lines = [_postgres_table(driver.connection, t) for t in tables if ledger or t != LEDGER]
        case _:
            raise NotImplementedError(type(driver))
    return "".join(f"{line}\n" for table in lines for line in table)


def _sqlite_tables(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("select name from sqlite_master where type = 'table' order by name")
    return [name for (name,) in rows]


def _sqlite_table(connection: sqlite3.Connection, table: str) -> Iterator[str]:
    yield f"table {table}"
    rows = connection.execute("select * from pragma_table_xinfo(?)", (table,)).fetchall()
    for _, name, kind, not_null, default, _, _ in rows:
        yield f"  {name} {kind}{' not null' * not_null}{_default(default)}"
    indexes = connection.execute(
        "select i.name, i.origin, group_concat(c.name, ', '), m.sql from pragma_index_list(?) i"
        " join pragma_index_info(i.name) c left join sqlite_master m on m.name = i.name"
        " group by i.name order by i.origin desc, i.name",
        (table,),
    ).fetchall()
    kinds = {"pk": "primary key", "u": "unique"}
    for _, origin, columns, sql in indexes:
        yield f"  {sql}" if sql else f"  {kinds[origin]} ({columns})"


_POSTGRES_COLUMNS: Final = """
    select a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
        pg_get_expr(d.adbin, d.adrelid)
    from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    where a.attrelid = %s::regclass and a.attnum > 0 and not a.attisdropped order by a.attnum
"""
# Since PostgreSQL 18 NOT NULL is a constraint with a name, too ('n').
_POSTGRES_CONSTRAINTS: Final = """
    select pg_get_constraintdef(oid) from pg_constraint
    where conrelid = %s::regclass and contype <> 'n' order by contype, conname
"""
_POSTGRES_INDEXES: Final = """
    select replace(pg_get_indexdef(i.indexrelid), quote_ident(current_schema()) || '.', '')
    from pg_index i join pg_class c on c.oid = i.indexrelid
    where i.indrelid = %s::regclass and i.indisvalid
    and not exists (select from pg_constraint k where k.conindid = i.indexrelid)
    order by c.relname
"""


def _postgres_tables(connection: psycopg.Connection) -> list[str]:
    rows = connection.execute(
        "select relname from pg_class where relkind = 'r'"
        ' and relnamespace = current_schema()::regnamespace order by relname collate "C"'
    )
    return [name for (name,) in rows]


def _postgres_table(connection: psycopg.Connection, table: str) -> Iterator[str]:
    options = connection.execute(
        "select array_to_string(reloptions, ', ') from pg_class where oid = %s::regclass", (table,)
    ).fetchone()
    yield f"table {table}{f' with ({options[0]})' if options and options[0] else ''}"
    for name, kind, not_null, default in connection.execute(_POSTGRES_COLUMNS, (table,)):
        yield f"  {name} {kind}{' not null' * not_null}{_default(default)}"
    for query in (_POSTGRES_CONSTRAINTS, _POSTGRES_INDEXES):
        for (text,) in connection.execute(query, (table,)):
            yield f"  {text}"


def _default(expression: str | None) -> str:
    return "" if expression is None else f" default {expression}"
