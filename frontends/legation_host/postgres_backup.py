"""A dump of a PostgreSQL database by its own programs, and a dump put into an empty schema.

`pg_dump` and `pg_restore` are called where they are in PATH; nothing else needs them.  The dump is
of one snapshot, which a connection of ours exports: what is read there, such as the heads of the
audit trail, is of the same moment.  A password is in the environment of the programs, and never
among their arguments, which everybody on the machine can read.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from attrs import field

from legation.store.failures import WrongSchema
from legation.store.units import Dialect, Statement, Unit
from legation.values import define, frozen

from .errors import UnusableDatabase
from .postgres import read_conninfo
from .units import carry_out

if TYPE_CHECKING:
    import psycopg

    from .postgres_exchange import Exchange

__all__ = [
    "NotEmpty",
    "Programs",
    "Snapshot",
    "drop_aside",
    "dump_database",
    "find_programs",
    "keep_aside",
    "list_dump",
    "look_at_target",
    "open_snapshot",
    "restore_dump",
    "undo_restore",
]

R = TypeVar("R")

NAME: Final = "legation backup"
_TICK_SECONDS: Final = 0.1
_MOST_SAID: Final = 300
_SECRETS: Final = {"password": "PGPASSWORD"}
_UNSENT: Final = "sslpassword"


_POOLED: Final = (
    "databases.{}.url: there is a pooler in between, and pg_dump would change the connections that"
    " others get from it: use a configuration with the URL of the server itself"
)


class NotEmpty(UnusableDatabase):
    """There are tables where a dump is to go."""


@frozen
class Programs:
    """The client programs of PostgreSQL for one database.

    Attributes:
        conninfo: How they connect, without a password.
        environ: Their environment, with it.
    """

    name: str
    conninfo: str
    environ: Mapping[str, str] = field(repr=False)

    def find(self, words: Sequence[str]) -> str:
        """Return the path of the program that `words` begin with.

        Raises:
            UnusableDatabase: It is not in PATH; the sentence has `words`, to be typed elsewhere.
        """
        if (found := shutil.which(words[0])) is None:
            raise UnusableDatabase(
                f"databases.{self.name}.url: {words[0]} is not in PATH.  Install the client"
                " programs of PostgreSQL, in the version of the server, or run it elsewhere:\n"
                f"  {_typed(words)}"
            )
        return found

    def call(self, words: Sequence[str], advance: Callable[[], object] = lambda: None) -> str:
        """Run a program to its end, and return what it wrote to standard output.

        Raises:
            UnusableDatabase: It is not in PATH, or it failed.
        """
        program = self.find(words)
        with ExitStack() as stack:
            with _delay_interrupt():
                process = stack.enter_context(self._start([program, *words[1:]]))
                stack.callback(process.kill)  # which does nothing to one that has ended
            said, complaint = _wait(process, advance)
        if process.returncode != 0:
            reason = complaint.strip() or f"ended with {process.returncode}"
            raise UnusableDatabase(
                f"databases.{self.name}.url: {words[0]} failed: {reason[:_MOST_SAID]}"
            )
        return said

    def _start(self, words: Sequence[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(  # noqa: S603 (no shell, and the words are ours)
            words,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )


@contextmanager
def _delay_interrupt() -> Generator[None]:
    """Let an interrupt (SIGINT) wait until the block has ended.

    Python raises `KeyboardInterrupt` between any two instructions of the main thread, and so also
    when a program has started and nothing refers to its process yet.
    """
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if received:
            signal.raise_signal(signal.SIGINT)


def _wait(process: subprocess.Popen[str], advance: Callable[[], object]) -> tuple[str, str]:
    while True:
        try:
            return process.communicate(timeout=_TICK_SECONDS)
        except subprocess.TimeoutExpired:
            advance()


def find_programs(name: str, url: str) -> Programs:
    """Return how the client programs of PostgreSQL reach the database at `url`.

    Raises:
        HostError: The URL cannot be read, or has a password that they cannot be given.
    """
    conninfo = import_module("psycopg.conninfo")
    said: dict[str, Any] = conninfo.conninfo_to_dict(read_conninfo(name, url))
    if said.get(_UNSENT):
        raise UnusableDatabase(
            f"databases.{name}.url: {_UNSENT} cannot be handed to pg_dump: use a key without one"
        )
    environ = dict(os.environ)
    for key, variable in _SECRETS.items():
        if secret := said.pop(key, None):
            environ[variable] = str(secret)
    said["application_name"] = NAME
    return Programs(name, conninfo.make_conninfo(**said), environ)


# --- The dump ------------------------------------------------------------------------------------


@define(eq=False)
class Snapshot:
    """A transaction that reads, and the name by which others read the same.

    Attributes:
        snapshot: The name of the snapshot, for `pg_dump`.
        namespace: The schema that our tables are in.
        version: That of the server.
        size: Bytes of the tables, without indexes.
    """

    connection: psycopg.Connection
    exchange: Exchange
    snapshot: str
    namespace: str
    version: str
    size: int

    def run(self, unit: Unit[R]) -> R:
        """Run a unit that reads, in this snapshot.

        Raises:
            WrongSchema: A table or a column is missing; the snapshot stays.
            psycopg.Error: Anything else, which ends it.
        """
        errors = import_module("psycopg.errors")
        self.connection.execute("savepoint unit")
        try:
            return carry_out(unit.statements(Dialect.POSTGRESQL), self._execute)[0]
        except (errors.UndefinedTable, errors.UndefinedColumn):
            self.connection.execute("rollback to savepoint unit")
            raise WrongSchema("not of this release") from None
        finally:
            self.connection.execute("release savepoint unit")

    def _execute(self, statement: Statement) -> Any:
        return self.connection.wait(self.exchange.perform((statement,)))[0]


_DESCRIBE: Final = """select pg_export_snapshot(), current_schema(),
    current_setting('server_version'),
    coalesce((select sum(pg_table_size(oid)) from pg_class where relkind = 'r'
        and relnamespace = to_regnamespace(quote_ident(current_schema()))), 0)::bigint"""


@contextmanager
def open_snapshot(name: str, url: str) -> Generator[Snapshot]:
    """Begin a transaction that reads the database at `url` as it is now.

    Raises:
        HostError: In words for the operator.
    """
    with _connect(name, url) as connection:
        connection.execute("begin isolation level repeatable read read only")
        (row,) = connection.execute(_DESCRIBE).fetchall()
        snapshot, namespace, version, size = row
        if namespace is None:
            raise UnusableDatabase(f"databases.{name}.url: there is no schema for its tables yet")
        exchange = import_module(".postgres_exchange", __package__)
        made = exchange.Exchange(connection, prepares=False)
        yield Snapshot(connection, made, snapshot, namespace, version, size)


@contextmanager
def _connect(name: str, url: str) -> Generator[psycopg.Connection]:
    """Open a connection that may rest for as long as a dump takes; errors become sentences."""
    conninfo = read_conninfo(name, url)
    driver = import_module("psycopg")
    try:
        with driver.connect(
            conninfo, autocommit=True, prepare_threshold=None, application_name=NAME
        ) as connection:
            (pid,) = connection.execute("select pg_backend_pid()").fetchone()
            if pid != connection.info.backend_pid:
                raise UnusableDatabase(_POOLED.format(name))
            as_text = import_module("psycopg.types.string").TextLoader
            for kind in ("json", "jsonb"):
                connection.adapters.register_loader(kind, as_text)
            connection.execute("set idle_in_transaction_session_timeout = 0")
            connection.execute("set lock_timeout = '5s'")
            yield connection
    except driver.Error as error:
        said = getattr(error, "diag", None) and error.diag.message_primary
        first = (said or str(error) or type(error).__name__).splitlines()[0]
        raise UnusableDatabase(f"databases.{name}.url: {first[:_MOST_SAID]}") from None


def dump_database(
    programs: Programs, snapshot: Snapshot, target: Path, advance: Callable[[], object]
) -> str:
    """Write a dump of the schema as `snapshot` has it to the new file `target`.

    Return the version of the program.

    Raises:
        UnusableDatabase: `pg_dump` is not there, or failed.
    """
    words = _dump_words(programs, snapshot, target)
    programs.find(words)
    version = _read_version(programs)
    if _major(version) < _major(snapshot.version):
        raise UnusableDatabase(
            f"databases.{programs.name}.url: pg_dump {version} is older than the server"
            f" ({snapshot.version}), and would refuse it.  Install the client programs of"
            f" PostgreSQL {_major(snapshot.version)}, or run them elsewhere:\n  {_typed(words)}"
        )
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    programs.call(words, advance)
    list_dump(programs, target)
    _sync_file(target)
    return version


def _dump_words(programs: Programs, snapshot: Snapshot, target: Path) -> list[str]:
    """Return the command that makes the dump."""
    namespace = snapshot.namespace.replace('"', '""')
    return [
        "pg_dump",
        "--format=custom",
        f'--schema="{namespace}"',
        f"--snapshot={snapshot.snapshot}",
        "--lock-wait-timeout=60000",
        "--no-password",
        f"--file={target}",
        f"--dbname={programs.conninfo}",
    ]


def _typed(words: Sequence[str]) -> str:
    """Return what is typed elsewhere: a snapshot lasts no longer than this process."""
    return shlex.join([word for word in words if not word.startswith("--snapshot")])


def _read_version(programs: Programs) -> str:
    said = programs.call(["pg_dump", "--version"])
    return next((word for word in said.split() if word[0].isdigit()), "0")


def _major(version: str) -> int:
    """Return the first number of a version such as `18.4` or `19beta1`."""
    return int("".join(takewhile(str.isdigit, version)) or 0)


def list_dump(programs: Programs, dump: Path) -> None:
    """Raise `UnusableDatabase` where `pg_restore` cannot read the contents of `dump`."""
    programs.call(["pg_restore", "--list", str(dump)])


def _sync_file(path: Path) -> None:
    """Have the content of `path` on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- The restore ---------------------------------------------------------------------------------

_TARGET: Final = """select current_schema(), (
    select count(*) from pg_class where relkind in ('r', 'p', 'v', 'm', 'S')
    and relnamespace = to_regnamespace(quote_ident(current_schema())))"""
_OTHERS: Final = """select count(*) from pg_stat_activity where datname = current_database()
    and pid <> pg_backend_pid() and application_name like 'legation%'"""


def look_at_target(name: str, url: str, namespace: str, *, replace: bool) -> None:
    """Raise where a dump of the schema `namespace` cannot go into the database at `url`.

    Raises:
        NotEmpty: There are tables, and they are not to be replaced.
        UnusableDatabase: Another schema is the first on the search path, or nodes are connected.
    """
    with _connect(name, url) as connection:
        found, tables = _look(connection)
        where = f"databases.{name}.url"
        if found not in (None, namespace):
            raise UnusableDatabase(
                f"{where}: the backup is of the schema {namespace!r}, and this leads to {found!r}"
            )
        if not tables:
            return
        if not replace:
            raise NotEmpty(
                f"{where}: there are {tables} tables, views and sequences in the schema"
                f" {namespace!r}: restore into an empty database, or move them aside by --replace"
            )
        ((others,),) = connection.execute(_OTHERS).fetchall()
        if others:
            plural = "connections of nodes are" if others > 1 else "connection of a node is"
            raise UnusableDatabase(f"{where}: {others} {plural} open: stop the nodes first")


def _look(connection: psycopg.Connection) -> tuple[str | None, int]:
    """Return the first schema on the search path that is there, and how much is in it."""
    (row,) = connection.execute(_TARGET).fetchall()
    return row[0], row[1]


def keep_aside(name: str, url: str, namespace: str, aside: str) -> bool:
    """Have an empty schema `namespace`; one with tables gets the name `aside`.

    It is one transaction.  Return whether there was one with tables.
    """
    with _connect(name, url) as connection, connection.transaction():
        found, tables = _look(connection)
        if tables:
            _run(connection, "alter schema {} rename to {}", namespace, aside)
        if tables or found is None:
            _create(connection, namespace)
    return tables > 0


def undo_restore(name: str, url: str, namespace: str, aside: str | None) -> None:
    """Delete the schema `namespace`, and give its name to `aside` again, or to an empty one."""
    with _connect(name, url) as connection, connection.transaction():
        _run(connection, "drop schema {} cascade", namespace)
        if aside is None:
            _create(connection, namespace)
        else:
            _run(connection, "alter schema {} rename to {}", aside, namespace)


def _create(connection: psycopg.Connection, namespace: str) -> None:
    """Make a schema, with the rights that PostgreSQL gives to `public`."""
    _run(connection, "create schema {}", namespace)
    if namespace == "public":
        _run(connection, "grant usage on schema {} to public", namespace)


def _run(connection: psycopg.Connection, text: str, *names: str) -> None:
    sql = import_module("psycopg.sql")
    connection.execute(sql.SQL(text).format(*map(sql.Identifier, names)))


def restore_dump(
    programs: Programs, namespace: str, dump: Path, advance: Callable[[], object]
) -> None:
    """Put what is in `dump` into the empty schema `namespace`, all of it or nothing.

    Raises:
        UnusableDatabase: `pg_restore` is not there, or failed.
    """
    programs.call(
        [
            "pg_restore",
            "--single-transaction",
            "--exit-on-error",
            "--no-owner",
            "--no-privileges",
            f"--schema={namespace}",
            "--no-password",
            f"--dbname={programs.conninfo}",
            str(dump),
        ],
        advance,
    )


def drop_aside(name: str, url: str, aside: str) -> None:
    """Delete the schema `aside` with all that is in it."""
    with _connect(name, url) as connection, connection.transaction():
        _run(connection, "drop schema {} cascade", aside)
