"""The database of an AgentOS, read beside whoever serves it: nothing is written there.

One session is in memory at a time, and one that is larger than it may be is not read.  Sessions are
found by pages of their ids, each in a transaction of its own, so that nobody waits for a reader.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import unquote, urlsplit

from attrs import define, field, frozen

from legation.agentos.report import LeftOut, Reason
from legation.agentos.sessions import ForeignSession

from .failing import CannotGoOn

__all__ = ["Source", "Tables", "open_source"]

_PAGE: Final = 200
_TEXTS: Final = ("session_data", "metadata", "summary", "runs")
_PLAIN: Final = ("session_id", "session_type", "agent_id", "team_id", "user_id")
_TIMES: Final = ("created_at", "updated_at")
_NEEDED: Final = frozenset({"session_id", "session_type", "session_data", "created_at"})
_SCHEMES: Final = {"sqlite": "sqlite", "postgresql": "postgresql", "postgres": "postgresql"}
_PREFIX: Final = "agno_"
_OF_SESSIONS: Final = "schema_versions"
_NO_TABLE: Final = "there is no table {} of sessions there{}; name yours with --sessions-table"
_OLD: Final = (
    "{} is a table of agno 1, or no table of sessions: migrate that database with agno first, as"
    " its page on version 2 says"
)
_URL: Final = "write the URL as sqlite:///agno.db or postgresql://user@host:5432/name"

Row = Sequence[Any]


@frozen
class Tables:
    """The names of the tables, and the schema of PostgreSQL that they are in.

    `runs` is None for the name that agno would give it.
    """

    sessions: str = "agno_sessions"
    runs: str | None = None
    schema: str = "ai"

    @property
    def of_runs(self) -> str:
        """The name of the table of runs, by the rule of agno 3."""
        if self.runs is not None:
            return self.runs
        return "agno_runs" if self.sessions == "agno_sessions" else f"{self.sessions}_runs"


@define(eq=False)
class Source(ABC):
    """An open database of an AgentOS.

    Attributes:
        most: How many bytes the stored runs of a session may have.
    """

    text: ClassVar[str]
    """The expression for a document as text."""
    octets: ClassVar[str]
    """The expression for its length in bytes."""
    mark: ClassVar[str]
    """The mark of a parameter."""

    tables: Tables
    most: int
    _sessions: frozenset[str] = field(default=frozenset(), init=False)
    _runs: frozenset[str] = field(default=frozenset(), init=False)

    @abstractmethod
    def ask(self, query: str, *parameters: object) -> list[Row]:
        """Return the rows of a query."""

    @abstractmethod
    def columns(self, table: str) -> frozenset[str]:
        """Return the columns of a table; none where there is no such table."""

    @abstractmethod
    def list_tables(self) -> list[str]:
        """Return the names of the tables that may be those of agno."""

    @abstractmethod
    def quote(self, table: str) -> str:
        """Return the name of a table as a query has it."""

    def check(self) -> None:
        """Look for the tables.

        Raises:
            CannotGoOn: There is none of sessions.
        """
        self._sessions = self.columns(self.tables.sessions)
        if not self._sessions:
            there = ", ".join(self.list_tables()[:20])
            raise CannotGoOn(
                _NO_TABLE.format(self.tables.sessions, f" (there are: {there})" if there else "")
            )
        if not self._sessions >= _NEEDED:
            raise CannotGoOn(_OLD.format(self.tables.sessions))
        self._runs = self.columns(self.tables.of_runs)

    def count(self) -> int:
        """Return how many sessions there are."""
        ((count,),) = self.ask(f"select count(*) from {self.quote(self.tables.sessions)}")
        return int(count)

    def count_others(self) -> dict[str, int]:
        """Return how many rows the other tables of agno have, those that are empty left out."""
        own = {self.tables.sessions, self.tables.of_runs}
        counts: dict[str, int] = {}
        for table in self.list_tables():
            if table not in own and not table.endswith(_OF_SESSIONS):
                ((count,),) = self.ask(f"select count(*) from {self.quote(table)}")
                counts[table] = int(count)
        return {table: count for table, count in counts.items() if count}

    def sessions(self) -> Iterator[ForeignSession | LeftOut]:
        """Yield the sessions in the order of their ids; one is in memory at a time."""
        table = self.quote(self.tables.sessions)
        page = (
            f"select session_id from {table} where session_id {{}}"
            f" order by session_id limit {_PAGE}"
        )
        ids = self.ask(page.format("is not null"))
        while ids:
            for (session_id,) in ids:
                yield from self._read(table, session_id)
            more = len(ids) == _PAGE
            ids = self.ask(page.format(f"> {self.mark}"), ids[-1][0]) if more else []

    def _read(self, table: str, session_id: str) -> Iterator[ForeignSession | LeftOut]:
        """Yield the session, unless it is gone."""
        if self._size(table, session_id) > self.most:
            yield LeftOut(Reason.SESSION_TOO_LARGE, str(session_id))
            return
        texts = [name for name in _TEXTS if name in self._sessions]
        plain = [name for name in (*_PLAIN, *_TIMES) if name in self._sessions]
        selected = ", ".join((*plain, *(self.text.format(name) for name in texts)))
        query = f"select {selected} from {table} where session_id = {self.mark}"
        for row in self.ask(query, session_id):
            values: Mapping[str, Any] = dict(zip((*plain, *texts), row, strict=True))
            yield ForeignSession(**values, rows=self._rows(session_id))

    def _size(self, table: str, session_id: str) -> int:
        names = [name for name in _TEXTS if name in self._sessions]
        sizes = " + ".join(f"coalesce({self.octets.format(name)}, 0)" for name in names)
        query = f"select {sizes} from {table} where session_id = {self.mark}"
        total = sum(int(size) for (size,) in self.ask(query, session_id))
        if self._runs:
            runs, data = self.quote(self.tables.of_runs), self.octets.format("run_data")
            query = f"select coalesce(sum({data}), 0) from {runs} where session_id = {self.mark}"
            total += sum(int(size) for (size,) in self.ask(query, session_id))
        return total

    def _rows(self, session_id: str) -> tuple[str | None, ...]:
        if not self._runs:
            return ()
        runs, data = self.quote(self.tables.of_runs), self.text.format("run_data")
        query = (
            f"select {data} from {runs} where session_id = {self.mark}"
            " order by run_index, created_at, run_id"
        )
        return tuple(text for (text,) in self.ask(query, session_id))


@contextmanager
def open_source(url: str, tables: Tables, most: int) -> Generator[Source]:
    """Open the database at `url`, and look for the tables.

    Raises:
        CannotGoOn: It cannot be read, or is none of an AgentOS.
    """
    scheme, _, rest = url.partition("://")
    engine = _SCHEMES.get(scheme.partition("+")[0])
    if engine is None:
        raise CannotGoOn(_URL)
    opened = _open_sqlite(url) if engine == "sqlite" else _connect(f"{engine}://{rest}")
    with closing(opened) as connection:
        kind = _SqliteSource if engine == "sqlite" else _PostgresSource
        source = kind(tables, most, connection)
        source.check()
        yield source


# --- SQLite ------------------------------------------------------------------------------------


def _decode(stored: bytes) -> str:
    return stored.decode("utf-8", "replace")


def _open_sqlite(url: str) -> sqlite3.Connection:
    path = Path(unquote(urlsplit(url).path).removeprefix("/"))
    if not path.is_file():
        raise CannotGoOn(f"{path}: there is no such file")
    # Not `immutable`: its AgentOS may write meanwhile.
    place = path.absolute().as_uri()
    connection = sqlite3.connect(f"{place}?mode=ro", uri=True, isolation_level=None)
    connection.text_factory = _decode
    return connection


@define(eq=False)
class _SqliteSource(Source):
    text = "cast({} as text)"
    octets = "length(cast({} as blob))"
    mark = "?"

    connection: sqlite3.Connection

    def ask(self, query: str, *parameters: object) -> list[Row]:
        try:
            return self.connection.execute(query, parameters).fetchall()
        except sqlite3.Error as error:
            raise CannotGoOn(f"the database cannot be read: {error}") from None

    def columns(self, table: str) -> frozenset[str]:
        return frozenset(
            name for (name,) in self.ask("select name from pragma_table_info(?)", table)
        )

    def list_tables(self) -> list[str]:
        query = "select name from sqlite_master where type = 'table' and name like ? order by name"
        return [name for (name,) in self.ask(query, f"{_PREFIX}%")]

    def quote(self, table: str) -> str:
        return '"{}"'.format(table.replace('"', '""'))


# --- PostgreSQL --------------------------------------------------------------------------------


def _connect(url: str) -> Any:
    """Return a connection that cannot write."""
    try:
        import psycopg  # an extra, as for databases of our own
    except ImportError:
        raise CannotGoOn(
            "a postgresql:// database needs psycopg: pip install 'legation[postgres]'"
        ) from None
    try:
        connection = psycopg.connect(url, autocommit=True, connect_timeout=10)
        connection.execute("set default_transaction_read_only = on")
    except psycopg.Error as error:
        # What libpq says of a URL may have the password in it.
        raise CannotGoOn(f"the database does not answer ({type(error).__name__})") from None
    return connection


@define(eq=False)
class _PostgresSource(Source):
    text = "cast({} as text)"
    octets = "octet_length(cast({} as text))"
    mark = "%s"

    connection: Any

    def ask(self, query: str, *parameters: object) -> list[Row]:
        import psycopg

        try:
            rows: list[Row] = self.connection.execute(query, parameters).fetchall()
        except psycopg.Error as error:
            reason = error.diag.message_primary or type(error).__name__
            raise CannotGoOn(f"the database cannot be read: {reason}") from None
        return rows

    def columns(self, table: str) -> frozenset[str]:
        query = """select column_name from information_schema.columns
            where table_schema = %s and table_name = %s"""
        return frozenset(name for (name,) in self.ask(query, self.tables.schema, table))

    def list_tables(self) -> list[str]:
        query = """select table_name from information_schema.tables
            where table_schema = %s and table_name like %s order by table_name"""
        return [name for (name,) in self.ask(query, self.tables.schema, f"{_PREFIX}%")]

    def quote(self, table: str) -> str:
        names = (self.tables.schema, table)
        return ".".join('"{}"'.format(name.replace('"', '""').replace("%", "%%")) for name in names)
