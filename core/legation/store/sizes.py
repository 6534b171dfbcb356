"""The size of a database, table by table, as far as that can be told in bounded time.

PostgreSQL keeps both numbers: rows as it last estimated them, and bytes.  SQLite keeps neither: it
counts them page by page, which it is asked to do of a file that is not large, and where it can.
"""

from __future__ import annotations

from typing import ClassVar, Final

from ..values import frozen
from .units import Dialect, ReadUnit, Sql, Statements

__all__ = ["COUNTED_BYTES", "DatabaseSize", "MeasureDatabase", "TableSize"]

COUNTED_BYTES: Final = 256 << 20
"""A file of SQLite that is larger is not read for it."""

# None is prepared against the schema: they ask the engine, which may have been built without them.
WHOLE: Final = Sql(
    """select page_count * page_size, exists (
        select 1 from pragma_module_list where name = 'dbstat')
    from pragma_page_count, pragma_page_size""",
    "select pg_database_size(current_database()), 1",
    registered=False,
)
TABLES: Final = Sql(
    """select tbl_name, sum(iif(type = 'table' and pagetype = 'leaf', ncell, 0)), sum(pgsize)
    from dbstat join sqlite_master using (name)
    where tbl_name not like 'sqlite\\_%' escape '\\' group by tbl_name""",
    """select relname, case when reltuples < 0 then null else cast(reltuples as bigint) end,
        pg_total_relation_size(oid)
    from pg_class where relkind = 'r'
    and relnamespace = (select relnamespace from pg_class where oid = to_regclass('sessions'))""",
    registered=False,
)


@frozen
class TableSize:
    """One table with its indexes; `rows` is an estimate, None where there is none yet."""

    name: str
    rows: int | None
    size: int


@frozen
class DatabaseSize:
    """The bytes of a database, and its tables, the largest first; None where nobody counts them."""

    size: int
    tables: tuple[TableSize, ...] | None


@frozen
class MeasureDatabase(ReadUnit[DatabaseSize]):
    """The size of a database; reads the whole of a small file."""

    long: ClassVar[bool] = True

    def statements(self, dialect: Dialect) -> Statements[DatabaseSize]:
        """Yield the size of the whole, and the tables unless that takes too long."""
        ((size, counts),) = yield WHOLE()
        if not counts or (dialect is Dialect.SQLITE and size > COUNTED_BYTES):
            return DatabaseSize(size, None)
        tables = [TableSize(*row) for row in (yield TABLES())]
        return DatabaseSize(size, tuple(sorted(tables, key=lambda one: (-one.size, one.name))))
