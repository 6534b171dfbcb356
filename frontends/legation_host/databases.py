"""A database as the driver of programs sees it, and the choice of one by its URL."""

from __future__ import annotations

from typing import Any, Final, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from legation.store.units import Dialect, Unit

from .errors import BadDatabaseUrl
from .group_commit import SqliteDatabase
from .postgres import PostgresDatabase
from .sqlite import MEMORY
from .units import Write, quiet

__all__ = ["Database", "open_database"]

R = TypeVar("R")

EXAMPLES: Final = (
    "sqlite:///relative.db, sqlite:////absolute.db, sqlite:// (in memory) or "
    "postgresql://user@host/name"
)


class Database(Protocol):
    """One database: units in, results or a `StoreFailure` out."""

    @property
    def name(self) -> str:
        """What programs and the log call it."""
        ...

    @property
    def dialect(self) -> Dialect:
        """The SQL it speaks."""
        ...

    def inline(self, unit: Unit[Any]) -> bool:
        """Tell whether `unit` is to be run by `read`, on the thread of the event loop."""
        ...

    def read(self, unit: Unit[R]) -> R:
        """Run a unit that `inline` allows, without waiting."""
        ...

    async def run(self, unit: Unit[R]) -> R:
        """Run `unit` in a transaction of its own."""
        ...

    async def aclose(self) -> None:
        """Finish what was begun and let go of every connection."""
        ...


def open_database(name: str, url: str, write: Write = quiet) -> Database:
    """Open the database at `url`; `name` is what programs and the log call it.

    Raises:
        HostError: In words for the operator.
    """
    try:
        scheme = urlsplit(url).scheme
    except ValueError:
        scheme = ""
    if scheme == "sqlite":
        return SqliteDatabase(name, _sqlite_path(name, url), write)
    if scheme in ("postgresql", "postgres"):
        return PostgresDatabase(name, url, write)
    raise BadDatabaseUrl(f"databases.{name}.url: not a database URL; write {EXAMPLES}")


def _sqlite_path(name: str, url: str) -> str:
    """Return the path in `sqlite:///path`: relative after three slashes, absolute after four."""
    parts = urlsplit(url)
    if parts.netloc or parts.query or parts.fragment or not url[7:].startswith("//"):
        raise BadDatabaseUrl(f"databases.{name}.url: not a path; write {EXAMPLES}")
    path = unquote(parts.path)
    if path in ("", "/:memory:"):
        return MEMORY
    if path == "/" or "\0" in path:
        raise BadDatabaseUrl(f"databases.{name}.url: the path is empty; write {EXAMPLES}")
    return path[1:]
