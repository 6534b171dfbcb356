"""PostgreSQL behind an event loop.

A unit that writes is followed by the event loop itself, which waits for the server between its
statements; one that reads, and may bring much, has a worker thread, so that it can be left alone.

Connections are few and bounded, made when first needed and made anew when they break.  Two
settings decide whether "acknowledged" means "stored" and whether a node that hangs can stop the
others: they are set by us and read back, whatever a role or a database has as its default.

A pooler in transaction mode gives one connection to several clients by turns, so that nothing of a
session holds.  It makes up the process id that a client gets when it connects, and the server knows
its own: each new connection is asked for that before anything else, and where the two differ,
settings are made in each transaction and nothing is prepared.
"""

from __future__ import annotations

import math
import random
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import anyio
import anyio.lowlevel
import anyio.to_thread
from attrs import field

from legation.backoff import Backoff
from legation.store import failures
from legation.store.failures import StoreFailure
from legation.store.health import Inspection
from legation.store.units import Dialect, Sql, Statement, Unit
from legation.values import define

from .errors import BadDatabaseUrl, MissingDriver
from .logs import Write, quiet
from .names import Names, place_of_user
from .postgres_transaction import Transaction
from .socket_waits import SocketWaits, find_socket_waits
from .units import failure
from .wakeup import Wake, waker

if TYPE_CHECKING:
    import psycopg
    from psycopg.abc import PQGen

    from .postgres_exchange import Exchange

__all__ = ["PostgresDatabase", "connection_limit", "read_conninfo"]

R = TypeVar("R")

CONNECTIONS: Final = 16

SETTINGS: Final[Mapping[str, str]] = {
    "statement_timeout": "30s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "30s",
    "default_transaction_read_only": "on",  # for what runs without a transaction of ours
}

# Weaker ones acknowledge a commit before it is on this server's disk.
DURABLE: Final = frozenset({"on", "remote_apply", "remote_write"})

# Without these a network that swallows packets holds a thread for a quarter of an hour.
NETWORK: Final[Mapping[str, str]] = {
    "connect_timeout": "5",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "application_name": "legation",
}

UNIT_SECONDS: Final = 35.0
"""For a unit, and for each statement of a migration: the server ends each of them before that."""

WAIT_SECONDS: Final = 35.0
"""For a connection to be free."""

LONG_SHARE: Final = 4
"""Long reads have one of so many connections at most."""

TRIES: Final = 8
BACKOFF: Final = Backoff(0.02, 1.28)

SERIALIZATION: Final = frozenset({"40001", "40P01"})
CHANGED_PLAN: Final = "0A000"

# Of a prepared statement: that it is there already, and that it is not there.
FOREIGN_SESSION: Final = frozenset({"42P05", "26000"})

# What tells a database from others, with the schema that `options` may name; never a password.
_IDENTITY: Final = ("service", "host", "hostaddr", "port", "dbname", "user", "options")
_ELSEWHERE: Final = (
    "databases.{}.url: only the user, the password and TLS may change while it is open; all else"
    " takes a restart"
)

_BY_STATE: Final[Mapping[str, type[StoreFailure]]] = {
    "23505": failures.Conflict,  # unique_violation
    "23P01": failures.Conflict,  # exclusion_violation
    "25006": failures.Unavailable,  # read_only_sql_transaction: a standby, after a fail-over
    "3F000": failures.WrongSchema,  # invalid_schema_name
    "40001": failures.Busy,
    "40P01": failures.Busy,
    "42703": failures.WrongSchema,  # undefined_column
    "42P01": failures.WrongSchema,  # undefined_table
    "53100": failures.DatabaseFull,  # disk_full
    "55P03": failures.Busy,  # lock_not_available
    "57014": failures.Busy,  # query_canceled: statement_timeout
}
_BY_CLASS: Final[Mapping[str, type[StoreFailure]]] = {
    "08": failures.Unavailable,  # connection exception
    "28": failures.Unavailable,  # invalid authorization
    "3D": failures.Unavailable,  # invalid catalog name
    "53": failures.Unavailable,  # insufficient resources
    "57": failures.Unavailable,  # operator intervention
    "58": failures.Unavailable,  # system error
}


def _psycopg() -> Any:
    """Return the driver, which is an extra and takes 100 ms to import."""
    try:
        return import_module("psycopg")
    except ImportError as error:
        raise MissingDriver(
            "a postgresql:// database needs psycopg: pip install 'legation[postgres]'"
        ) from error


@define(frozen=True)
class _UrlOptions:
    """The parameters of a URL that are for this host and not for libpq."""

    conninfo: str
    pgbouncer: bool = False
    connections: int = CONNECTIONS
    hints: str | None = None
    identity: str = ""
    place: str = ""

    @property
    def fixed(self) -> tuple[object, ...]:
        """The settings that stay as long as the database is open."""
        return self.place, self.pgbouncer, self.connections, self.hints is None


def _options(name: str, url: str) -> _UrlOptions:
    """Take our own parameters out of `url`: `pgbouncer`, `max_connections` and `hints`.

    Raises:
        BadDatabaseUrl: The sentence does not repeat the URL, which may hold a password.
    """
    driver = _psycopg()
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    pgbouncer = given.pop("pgbouncer", "false")
    connections = given.pop("max_connections", str(CONNECTIONS))
    hints = given.pop("hints", "true")
    for key, value in (("pgbouncer", pgbouncer), ("hints", hints)):
        if value not in ("true", "false"):
            raise BadDatabaseUrl(f"databases.{name}.url: {key} is true or false")
    if not (connections.isascii() and connections.isdigit() and 0 < int(connections) < 10_000):
        raise BadDatabaseUrl(f"databases.{name}.url: max_connections is a number from 1")
    query = urlencode(given, quote_via=quote)
    rest = urlunsplit(parts._replace(query=query))
    try:
        said = driver.conninfo.conninfo_to_dict(rest)
        conninfo = driver.conninfo.make_conninfo(
            rest, **{key: value for key, value in NETWORK.items() if key not in said}
        )
    except driver.Error:
        raise BadDatabaseUrl(
            f"databases.{name}.url: libpq does not understand it; "
            "write postgresql://user:password@host:5432/name"
        ) from None
    hearing: str | None = None
    if hints == "true" and pgbouncer == "false":
        who = said.get("application_name", NETWORK["application_name"])
        hearing = driver.conninfo.make_conninfo(conninfo, application_name=f"{who} hints")
    named = {key: f"{key}={said[key]}" for key in _IDENTITY if key in said}
    place = " ".join(text for key, text in named.items() if key != "user")
    pooled, limit, identity = pgbouncer == "true", int(connections), " ".join(named.values())
    return _UrlOptions(conninfo, pooled, limit, hearing, identity, place)


def read_conninfo(name: str, url: str) -> str:
    """Return `url` as libpq takes it, without our own parameters; it may hold a password.

    Raises:
        HostError: It cannot be read, or the driver is missing.
    """
    return _options(name, url).conninfo


def connection_limit(name: str, url: str) -> int:
    """Return how many connections a node opens to the server at `url`, the one for hints included.

    Raises:
        HostError: The URL cannot be read, or there is no driver.
    """
    options = _options(name, url)
    return options.connections + (options.hints is not None)


class _Again(Exception):
    """The transaction left nothing behind and is worth another try; `failure` if it is the last."""

    def __init__(self, failure: StoreFailure) -> None:
        self.failure = failure


@define(eq=False)
class _ServerConnection:
    """A connection to the server.

    Attributes:
        pooled: Others get the server's end of it between two transactions.
        due: When the unit on it is to be over, by `time.monotonic`.
        wire: The socket, by a descriptor of our own.
    """

    driver: psycopg.Connection
    pooled: bool
    due: float = math.inf
    exchange: Exchange = field(init=False)
    wire: socket.socket = field(init=False)
    _closing: threading.Lock = field(factory=threading.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        # A descriptor of our own: libpq closes its one when it likes, and the number is reused.
        self.wire = socket.fromfd(self.driver.fileno(), socket.AF_INET, socket.SOCK_STREAM)

    def prolong(self) -> None:
        """Give the statement that comes next a time of its own."""
        self.due = time.monotonic() + UNIT_SECONDS

    def cut(self) -> None:
        """End it from another thread: whoever waits for the server gets an error at once."""
        with self._closing, suppress(OSError):
            self.wire.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        with self._closing:
            self.wire.close()
        self.driver.close()


@define(eq=False)
class _ConnectionPlace(Generic[R]):
    """A place among those that use a connection, kept until the thread has ended.

    The caller of a read that is cancelled leaves at once, and its thread goes on alone.  Whichever
    of the two comes second gives the place back, on the thread of the event loop.
    """

    database: PostgresDatabase
    unit: Unit[R]
    begun: bool = False
    ended: bool = False
    left: bool = False
    free: bool = False

    def run(self) -> R:
        """Run the unit, on a thread."""
        self.begun = True
        try:
            if self.left:
                raise failures.Unavailable("nobody waits")
            return self.database.run_unit(self.unit)
        finally:
            self.ended = True
            if self.left:
                with suppress(RuntimeError):  # the event loop is gone
                    self.database.wake(self.give_back)

    def leave(self) -> None:
        """Wait no longer, on the event loop."""
        self.left = True
        if self.ended or not self.begun:
            self.give_back()

    def give_back(self) -> None:
        """Give the place to another, once."""
        if not self.free:
            self.free = True
            self.database.places.release_on_behalf_of(self)


class PostgresDatabase:
    """A PostgreSQL database, by at most `max_connections` connections at a time.

    The URL is libpq's (its section 34.1.1.2) with three parameters of ours: `max_connections`
    (default 16); `pgbouncer=true` where a pooler in transaction mode is in between, which is
    noticed without it as well, at the cost of a question for each connection; and `hints=false`
    where nodes are to tell each other nothing, see `hints`.

    Attributes:
        names: The names that this process holds for others on this machine.

    A write in flight is not interrupted: who is cancelled gets away when PostgreSQL has answered.
    A unit that is overdue, because the server hangs or is out of reach, loses its connection.
    """

    def __init__(self, name: str, url: str, write: Write = quiet) -> None:
        self.name = name
        self.dialect = Dialect.POSTGRESQL
        self._log = write
        self._driver = _psycopg()
        self._options = _options(name, url)
        self.names = Names(name, place_of_user(self._options.identity), write)
        self.places = anyio.CapacityLimiter(self._options.connections)
        self.wake: Wake = _nobody
        self._long_places = anyio.CapacityLimiter(max(1, self._options.connections // LONG_SHARE))
        self._threads = anyio.CapacityLimiter(math.inf)  # `places` bounds them
        self._busy: set[_ServerConnection] = set()
        self._idle: deque[_ServerConnection] = deque()
        self._closed = False
        self._pooled = self._options.pgbouncer
        self._pooler_logged = self._options.pgbouncer
        self._logging = threading.Lock()
        self._waits: SocketWaits | None = None

    @property
    def hints(self) -> str | None:
        """The address of the connection for hints between nodes, beside those counted.

        None where there are to be none.  It may hold a password.
        """
        return self._options.hints

    @property
    def undeclared_pooler(self) -> bool:
        """Whether a pooler was found that the URL does not name."""
        return self._pooler_logged and not self._options.pgbouncer

    def renew(self, url: str) -> None:
        """Make new connections by `url`; those that are open go on until they end.

        Raises:
            BadDatabaseUrl: It cannot be read, or names another database: nothing changes.
        """
        options = _options(self.name, url)
        if options.fixed != self._options.fixed:
            raise BadDatabaseUrl(_ELSEWHERE.format(self.name))
        self._options = options

    def inline(self, unit: Unit[R]) -> Callable[[Unit[R]], R] | None:
        """Return nothing: whatever goes over a network would block the event loop."""
        return None

    async def run(self, unit: Unit[R]) -> R:
        """Run `unit` in one transaction; its result is durable when this returns."""
        if self._closed:
            raise failures.Unavailable("closed")
        if self.wake is _nobody:
            self.wake = waker()
        if not unit.long:
            return await self._run(unit)
        reader = object()
        await self._enter(self._long_places, reader)
        try:
            return await self._run(unit)
        finally:
            self._long_places.release_on_behalf_of(reader)

    async def _run(self, unit: Unit[R]) -> R:
        place = _ConnectionPlace(self, unit)
        await self._enter(self.places, place)
        try:
            if unit.writes and not unit.exclusive:
                return await self._run_here(unit)
            return await self._run_beside(place, left=not unit.exclusive)
        except _Again:
            return await self._run_beside(place, left=False)
        finally:
            place.leave()

    async def _run_beside(self, place: _ConnectionPlace[R], *, left: bool) -> R:
        """Run the unit on a thread; `left`: on its own, where the caller is cancelled."""
        return await anyio.to_thread.run_sync(
            place.run, abandon_on_cancel=left, limiter=self._threads
        )

    async def _run_here(self, unit: Unit[R]) -> R:
        """Run `unit` on the event loop.

        Raises:
            _Again: A thread has to, which may wait for a connection, or between two tries.
        """
        waits = self._waits
        if waits is None:
            waits = self._waits = find_socket_waits()
        await waits.leave_if_cancelled()
        connection = self._take_idle(time.monotonic() + UNIT_SECONDS)
        if connection is None:
            raise _Again(failures.Unavailable())
        return await waits.follow(self._try(unit, connection, used=True), connection.wire)

    async def _enter(self, places: anyio.CapacityLimiter, place: object) -> None:
        """Wait for one of `places`, which stand for connections, but not for ever."""
        try:
            places.acquire_on_behalf_of_nowait(place)
        except anyio.WouldBlock:
            with anyio.move_on_after(WAIT_SECONDS):
                await places.acquire_on_behalf_of(place)
                return
            raise failures.Unavailable("no connection was free in time") from None

    async def inspect(self) -> Inspection:
        """Return nothing: all that can be seen of a server is its answers."""
        await anyio.lowlevel.checkpoint()
        return Inspection()

    def expire(self, now: float) -> None:
        """Cut the connections whose unit should be over."""
        for connection in tuple(self._busy):
            if now > connection.due:
                connection.cut()

    def usage(self) -> Mapping[str, float]:
        """Return how the connections are used."""
        places = self.places.statistics()
        return {
            "connections_limit": places.total_tokens,
            "connections_used": places.borrowed_tokens,
            "connections_waiting": places.tasks_waiting,
        }

    async def aclose(self) -> None:
        """Close every connection."""
        self._closed = True
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._discard_idle)
        self.names.close()

    # From here on: worker threads, and the event loop where it follows a unit that writes.

    def run_unit(self, unit: Unit[R]) -> R:
        """Run `unit` on this thread, again where the engine asks for that."""
        tries, due = 1, time.monotonic() + UNIT_SECONDS
        while True:
            connection, used = self._take(due)
            try:
                return connection.driver.wait(self._try(unit, connection, used=used))
            except _Again as again:
                if tries >= TRIES or time.monotonic() > due:
                    raise again.failure from again.__cause__
            time.sleep(BACKOFF.seconds(tries, random.random()))  # noqa: S311 (jitter)
            tries += 1

    def _try(self, unit: Unit[R], connection: _ServerConnection, *, used: bool) -> PQGen[R]:
        """Run `unit` on `connection`, and keep that for the next; `used`: it was there before."""
        settings = SETTINGS_OF_TRANSACTION if connection.pooled else None
        transaction = Transaction(connection.exchange, settings, connection.prolong)
        try:
            return (yield from transaction.run(unit))
        except self._driver.Error as error:
            raise self._judge(error, unit, connection, transaction.phase, used) from error
        finally:
            yield from self._give_back(connection)

    def _judge(
        self,
        error: Exception,
        unit: Unit[Any],
        connection: _ServerConnection,
        phase: str,
        used: bool,
    ) -> Exception:
        """Return what to raise for `error`, by its SQLSTATE and by how far the transaction was."""
        fail = partial(failure, error=error, database=self.name, write=self._log)
        state: str = getattr(error, "sqlstate", None) or ""
        broken = connection.driver.closed or (
            isinstance(error, self._driver.OperationalError) and not state
        )
        broken = broken or state[:2] == "08" or state in ("57P01", "57P02", "57P03")
        if broken:
            connection.close()
            if phase == "begin" and used and time.monotonic() < connection.due:
                # Whatever broke this one while it lay idle broke the others.
                self._discard_idle()
                return _Again(failures.Unavailable())
            lost = phase == "commit"
            return fail(failures.CommitLost if lost else failures.Unavailable)
        if state == CHANGED_PLAN and "cached plan" in str(error):
            connection.close()  # the schema changed under a prepared statement
            return _Again(fail(failures.WrongSchema))
        if state in FOREIGN_SESSION and not connection.pooled:
            # A pooler that hands on the process id of the first server connection it gives.
            connection.close()
            self._pooled = True
            self.note_pooler()
            self._discard_idle()
            return _Again(fail(failures.Unavailable))
        if state == "25006":
            # A read unit that writes is our fault; a writing one has met a standby.
            connection.close()
            return fail(failures.Unavailable if unit.writes else failures.StatementFailed)
        failed = fail(_classify(state))
        return _Again(failed) if state in SERIALIZATION else failed

    def _take(self, due: float) -> tuple[_ServerConnection, bool]:
        """Return a connection, and whether it has been used before."""
        connection = self._take_idle(due)
        if connection is not None:
            return connection, True
        try:
            return self._connect(due), False
        except self._driver.Error as error:
            raise failure(failures.Unavailable, error, self.name, self._log) from error

    def _take_idle(self, due: float) -> _ServerConnection | None:
        """Return a connection that is there; its unit is to be over when it is `due`."""
        try:
            connection = self._idle.pop()
        except IndexError:
            return None
        connection.due = due
        self._busy.add(connection)
        return connection

    def _give_back(self, connection: _ServerConnection) -> PQGen[None]:
        self._busy.discard(connection)
        rests = connection.exchange.is_at_rest()
        if not rests:
            with suppress(self._driver.Error):
                yield from connection.exchange.roll_back()
                rests = connection.exchange.is_at_rest()
        if self._closed or not rests:
            connection.close()
        else:
            self._idle.append(connection)

    def _discard_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _connect(self, due: float) -> _ServerConnection:
        driver: psycopg.Connection = self._driver.connect(
            self._options.conninfo, autocommit=True, prepare_threshold=None
        )
        connection = _ServerConnection(driver, pooled=self._pooled, due=due)
        self._busy.add(connection)
        try:
            as_text = import_module("psycopg.types.string").TextLoader
            driver.adapters.register_loader("json", as_text)
            driver.adapters.register_loader("jsonb", as_text)
            arrays = import_module(".postgres_arrays", __package__)
            driver.adapters.register_dumper(list, arrays.ListDumper)
            connection.pooled = connection.pooled or not self._is_direct(driver)
            if connection.pooled:
                self.note_pooler()
            else:
                self._settle(driver)
            # Behind the loaders, which it takes over; it imports the driver.
            exchange = import_module(".postgres_exchange", __package__)
            connection.exchange = exchange.Exchange(driver, prepares=not connection.pooled)
        except BaseException:
            self._busy.discard(connection)
            connection.close()
            raise
        return connection

    def _is_direct(self, driver: psycopg.Connection) -> bool:
        """Tell whether the process at the other end is the one that answered when we connected.

        The first that is asked of a connection: a setting made through a pooler would stay with
        whoever has the server's end of it next.
        """
        row = driver.execute("select pg_backend_pid()").fetchone()
        return row is not None and row[0] == driver.info.backend_pid

    def note_pooler(self) -> None:
        """Write once that there is a pooler where the URL names none."""
        with self._logging:
            first, self._pooler_logged = not self._pooler_logged, True
        if first:
            self._log("info", "pooler_found", {"database": self.name, "effect": POOLED})

    def _settle(self, driver: psycopg.Connection) -> None:
        """Make the settings for this session and read them back."""
        driver.execute(_settings_for("false"))
        row = driver.execute(READ_BACK).fetchone()
        for name, value in zip((*SETTINGS, "synchronous_commit"), row or (), strict=True):
            wanted = {SETTINGS[name]} if name in SETTINGS else DURABLE
            if value not in wanted:
                raise self._driver.OperationalError(
                    f"{name} is {value}, not one of {sorted(wanted)}"
                )


def _nobody(_: Callable[[], object]) -> None:
    """Stand for the event loop until there is one."""


def _settings_for(local: str) -> bytes:
    """Return the statement that makes the settings; `local` is true for this transaction only."""
    durable = ", ".join(f"'{value}'" for value in sorted(DURABLE))
    current = "current_setting('synchronous_commit')"
    kept = f"case when {current} in ({durable}) then {current} else 'on' end"
    calls = [f"set_config('synchronous_commit', {kept}, {local})"]
    calls += [f"set_config('{name}', '{value}', {local})" for name, value in SETTINGS.items()]
    return f"select {', '.join(calls)}".encode()


READ_BACK: Final = "select {}".format(
    ", ".join(f"current_setting('{name}')" for name in (*SETTINGS, "synchronous_commit"))
).encode()

SETTINGS_OF_TRANSACTION: Final = Statement(
    Sql(_settings_for("true").decode(), registered=False, unread=True)
)

POOLED: Final = "settings in each transaction, nothing prepared, no hints between nodes"


def _classify(state: str) -> type[StoreFailure]:
    """Return the kind of failure a SQLSTATE stands for (PostgreSQL manual, appendix A)."""
    return _BY_STATE.get(state) or _BY_CLASS.get(state[:2], failures.StatementFailed)
