"""A database as the driver of programs sees it, and the choice of one by its URL."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, cast
from urllib.parse import quote, unquote, urlsplit

import anyio

from legation.store.health import Inspection
from legation.store.units import Dialect, Unit

from .commit_lock import WAIT_SECONDS as LOCK_SECONDS
from .commit_lock import CommitLock, open_commit_lock
from .errors import BadDatabaseUrl, Misuse, UnusableDatabase
from .logs import Write, quiet
from .names import Names
from .sqlite import SqliteDatabase
from .sqlite_connection import MEMORY, connect, run_unit

if TYPE_CHECKING:
    from .postgres import PostgresDatabase

__all__ = [
    "Database",
    "Databases",
    "RunUnit",
    "as_server",
    "check_files",
    "check_url",
    "dialect_of",
    "find_missing",
    "find_path",
    "in_memory",
    "open_database",
    "open_reader",
    "open_writer",
    "renew_urls",
    "sqlite_path",
    "sqlite_url",
]

R = TypeVar("R")

_POSTGRES: Final = ("postgresql", "postgres")
_ANOTHER: Final = "databases.{}.url: another database takes a restart"
EXAMPLES: Final = (
    "sqlite:///relative.db, sqlite:////absolute.db, sqlite:// (in memory) or "
    "postgresql://user@host/name"
)


class Database(Protocol):
    """One database: units in, results or a `StoreFailure` out."""

    @property
    def name(self) -> str:
        """The name that programs and the log use."""
        ...

    @property
    def dialect(self) -> Dialect:
        """The SQL it speaks."""
        ...

    @property
    def names(self) -> Names:
        """The names that this process holds for the others that use it."""
        ...

    def inline(self, unit: Unit[R]) -> Callable[[Unit[R]], R] | None:
        """Return what runs `unit` at once, on the thread of the event loop; None to use `run`."""
        ...

    async def run(self, unit: Unit[R]) -> R:
        """Run `unit` in a transaction of its own."""
        ...

    async def inspect(self) -> Inspection:
        """Return how it looks from outside, within a few seconds."""
        ...

    def expire(self, now: float) -> None:
        """End what has been under way for too long; `now` is `time.monotonic`."""
        ...

    def usage(self) -> Mapping[str, float]:
        """Return how its connections or its writer are used, see `observer.database_gauges`."""
        ...

    async def aclose(self) -> None:
        """Finish what was begun and let go of every connection."""
        ...


class Databases(dict[str, Database]):
    """The databases of a host, by the names that programs use."""

    def __missing__(self, name: str) -> Database:
        """Name those that there are.

        Raises:
            Misuse: Always.
        """
        known = ", ".join(self) or "none"
        raise Misuse(f"a program asks for database {name!r}; there is {known}")


def open_database(name: str, url: str, write: Write = quiet) -> Database:
    """Open the database at `url`; `name` is what programs and the log call it.

    Raises:
        HostError: In words for the operator.
    """
    if dialect_of(url) is Dialect.POSTGRESQL:
        database: Database = _postgres().PostgresDatabase(name, url, write)
        return database
    return SqliteDatabase(name, sqlite_path(name, url), write)


def renew_urls(
    databases: Mapping[str, Database],
    before: Mapping[str, str],
    now: Mapping[str, str],
    write: Write,
) -> None:
    """Let new connections be made by the URLs of `now`, where those are others than `before`.

    Where a URL names another place the open database stays, and the log says so.
    """
    for name, url in now.items():
        if url != before.get(name):
            try:
                _renew(databases[name], url)
            except BadDatabaseUrl as error:
                write("error", "database_url_kept", {"database": name, "reason": str(error)})
            else:
                write("info", "database_url_renewed", {"database": name})


def _renew(database: Database, url: str) -> None:
    server = as_server(database)
    if server is None or dialect_of(url) is not Dialect.POSTGRESQL:
        raise BadDatabaseUrl(_ANOTHER.format(database.name))
    server.renew(url)


RunUnit: TypeAlias = Callable[[Unit[Any]], Any]
"""Runs a unit in a transaction of its own, on the thread that calls."""


@contextmanager
def open_writer(
    name: str, url: str, *, read_only: bool = False, write: Write = quiet
) -> Generator[RunUnit]:
    """Open the database at `url` beside whoever serves it, as another process does.

    Raises:
        HostError: In words for the operator.
    """
    if dialect_of(url) is Dialect.POSTGRESQL:
        with _open_server(name, url, write) as run:
            yield run
        return
    path = sqlite_path(name, url)
    if read_only and (reason := _find_unreadable(path)) is not None:
        raise UnusableDatabase(f"databases.{name}.url: {reason}")
    with closing(connect(path, read_only=read_only)) as connection:
        run = partial(run_unit, connection, database=name)
        lock = None if read_only or path == MEMORY else open_commit_lock(path, name)
        if lock is None:
            yield run
            return
        with closing(lock):
            yield partial(_run_locked, lock, run)


def _run_locked(lock: CommitLock, run: RunUnit, unit: Unit[Any]) -> Any:
    """Run `unit` apart from the commits of other processes."""
    if not unit.writes and not unit.exclusive:
        return run(unit)
    with lock.held(0.0 if unit.exclusive else LOCK_SECONDS):
        return run(unit)


open_reader = partial(open_writer, read_only=True)
"""Opens the database at a URL to read from it, beside whoever serves it; creates nothing."""


@contextmanager
def _open_server(name: str, url: str, write: Write) -> Generator[RunUnit]:
    database: PostgresDatabase = _postgres().PostgresDatabase(name, url, write)
    try:
        yield database.run_unit
    finally:
        anyio.run(database.aclose)


def _postgres() -> Any:
    """Return the module for PostgreSQL, which SQLite does not need."""
    return import_module(".postgres", __package__)


def as_server(database: Database) -> PostgresDatabase | None:
    """Return `database` if it is on PostgreSQL; None if it is a file."""
    on_server = database.dialect is Dialect.POSTGRESQL
    return cast("PostgresDatabase", database) if on_server else None


def find_path(name: str, url: str) -> str | None:
    """Return the path of the SQLite file at `url`; None on a server, and in memory."""
    if dialect_of(url) is Dialect.POSTGRESQL:
        return None
    path = sqlite_path(name, url)
    return None if path == MEMORY else path


def find_missing(name: str, url: str) -> str | None:
    """Return the path of the SQLite file at `url` where nothing was stored yet.

    That is where there is no file, and `:memory:` for a database in memory.
    """
    if dialect_of(url) is Dialect.POSTGRESQL:
        return None
    path = sqlite_path(name, url)
    return None if Path(path).exists() else path


def _find_unreadable(path: str) -> str | None:
    """Return why nobody but its server could read the database at `path`."""
    if path == MEMORY:
        return "it is in memory: only its server can read it"
    return None if Path(path).is_file() else f"there is no file {path} yet"


def dialect_of(url: str) -> Dialect:
    """Return the SQL of the database at `url`."""
    return Dialect.POSTGRESQL if _scheme(url) in _POSTGRES else Dialect.SQLITE


def _scheme(url: str) -> str:
    try:
        return urlsplit(url).scheme
    except ValueError:
        return ""


def check_url(name: str, url: str) -> None:
    """Raise `BadDatabaseUrl` where no database can be at `url`; open nothing."""
    if _scheme(url) not in _POSTGRES:
        sqlite_path(name, url)


def check_files(urls: Mapping[str, str]) -> None:
    """Raise `BadDatabaseUrl` where two of the databases are one file, by whatever links.

    `urls` are by the ids of the databases.  Those that are no path are passed over.
    """
    seen: dict[Path, str] = {}
    for name, url in urls.items():
        if _scheme(url) != "sqlite" or in_memory(url):
            continue
        path = Path(sqlite_path(name, url)).resolve()
        same = (other for other in seen if other == path or _is_one(other, path))
        if (other := next(same, None)) is not None:
            reason = f"{path} is the file of databases.{seen[other]}"
            raise BadDatabaseUrl(f"databases.{name}.url: {reason}")
        seen[path] = name


def _is_one(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def sqlite_url(path: Path) -> str:
    """Return the URL of the SQLite file at `path`, whatever characters it has."""
    return f"sqlite:///{quote(str(path.absolute()))}"


def in_memory(url: str) -> bool:
    """Tell whether the database at `url` lives in its process alone."""
    return _scheme(url) == "sqlite" and sqlite_path("", url) == MEMORY


def sqlite_path(name: str, url: str) -> str:
    """Return the path in `sqlite:///path`: relative after three slashes, absolute after four."""
    if _scheme(url) != "sqlite":
        raise BadDatabaseUrl(f"databases.{name}.url: not a database URL; write {EXAMPLES}")
    parts = urlsplit(url)
    if parts.netloc or parts.query or parts.fragment or not url[7:].startswith("//"):
        raise BadDatabaseUrl(f"databases.{name}.url: not a path; write {EXAMPLES}")
    path = unquote(parts.path)
    if path in ("", "/:memory:"):
        return MEMORY
    if path == "/" or "\0" in path:
        raise BadDatabaseUrl(f"databases.{name}.url: the path is empty; write {EXAMPLES}")
    return path[1:]
