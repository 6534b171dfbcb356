"""Hints between the nodes of a PostgreSQL database, by LISTEN and NOTIFY.

A hint says that it is worth asking the database now, and nothing else: whoever gets one asks, and
whoever gets none asks a moment later.  So hints may be lost, doubled, late, or made up by anybody
who may connect to the database, and nothing is the worse for it.

A database has one connection of its own for both ways, beside those of its pool.  Its session holds
the name of this node by an advisory lock, which the server frees when the connection ends, however
it does: to other hosts that is a suspicion, and no more.  Hints are
gathered and sent as one NOTIFY, never within the transaction that they are about: a NOTIFY takes a
lock of the whole database until its transaction is committed.

What is told to whom is decided in `legation.node_hints`: each node listens to a channel of its own,
and to one of all nodes.  PostgreSQL up to 18 wakes every session of the database that listens to
anything for each NOTIFY, about 16 microseconds of its CPU each: what counts is how few are sent.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import anyio.to_thread
from attrs import field

from legation.backoff import Backoff
from legation.node_hints import NodeHints
from legation.observability.prometheus import Labels
from legation.observability.request_log import Gauge, Gauges
from legation.store.nodes import SESSION_LOCKS
from legation.values import define

from .databases import Database, as_server
from .hub import Hub
from .logs import Write

if TYPE_CHECKING:
    import psycopg

    from .postgres import PostgresDatabase

__all__ = ["Hints", "hint_gauges", "hints_of"]

REST_SECONDS: Final = 0.02
"""Between two NOTIFYs of a node: what comes meanwhile goes together."""

CHANNELS: Final = 64
"""So many nodes are told by one statement."""

ANSWER_SECONDS: Final = 10.0
BACKOFF: Final = Backoff(0.5, 60.0)

_ASK: Final = (
    b"select pg_backend_pid(), 'legation_' || to_hex(hashtext(coalesce(current_schema(), '')))"
)
_STAY: Final = (
    b"select set_config(name, '0', false) from pg_settings where name = 'idle_session_timeout'"
)
_NOTIFY: Final = b"""select pg_notify(told.channel, told.payload)
    from unnest($1::text[], $2::text[]) as told (channel, payload)"""
_HOLD: Final = f"select pg_try_advisory_lock({SESSION_LOCKS}, hashtext($1))".encode()
_TAKEN: Final = b"t"

Told: TypeAlias = tuple[tuple[str, str], ...]
"""Payloads, each with the address it goes to."""


class _Pooled(Exception):
    """A pooler between here and the server gives its connections to others as well."""


class _Refused(Exception):
    """The server did not do what it was asked for."""


def _array(texts: Iterable[str]) -> bytes:
    """Return a literal of PostgreSQL; no text has a character that would need to be escaped."""
    return '{{"{}"}}'.format('","'.join(texts)).encode()


def _name_channel(channel: str, address: str) -> str:
    """Return the name of the channel of an address; the empty one is that of all nodes."""
    return f"{channel}_{address}" if address else channel


class _Line:
    """A connection that listens; what is sent and heard on it never blocks the event loop."""

    def __init__(self, connection: psycopg.Connection, channel: str) -> None:
        self.connection = connection
        self.trouble: Exception | None = None
        self.names: set[str] = set()
        self._answer: bytes | None = None
        self.idle = anyio.Event()
        self.idle.set()
        self._channel = channel
        self._pgconn = connection.pgconn
        self._pgconn.nonblocking = 1

    def send(self, told: Told) -> None:
        """Hand a statement that tells each its payload to libpq, when `idle`."""
        self.idle = anyio.Event()
        channels = _array(_name_channel(self._channel, address) for address, _ in told)
        payloads = _array(payload for _, payload in told)
        self._pgconn.send_query_params(_NOTIFY, [channels, payloads])

    async def tell(self, told: Told) -> None:
        """Tell each its payload, and wait until the server has taken them."""
        self.send(told)
        await self._finish()

    async def hold(self, name: str) -> None:
        """Hold `name` by a lock of this session, unless another session has it; wait for none."""
        self.idle, self._answer = anyio.Event(), None
        self._pgconn.send_query_params(_HOLD, [name.encode("utf-8", "replace")])
        await self._finish()
        if self._was_taken():
            self.names.add(name)

    def _was_taken(self) -> bool:
        """Return whether the answer that was read last says so."""
        return self._answer == _TAKEN

    async def _finish(self) -> None:
        """Wait until the server has answered."""
        with anyio.fail_after(ANSWER_SECONDS):
            while self._pgconn.flush():
                await anyio.wait_writable(self._pgconn.socket)
            await self.idle.wait()

    async def wait(self) -> None:
        """Wait until there is something to read."""
        await anyio.wait_readable(self._pgconn.socket)

    def read(self) -> Iterator[bytes]:
        """Return the payloads that other connections sent since the last time."""
        self._pgconn.consume_input()
        while not self.idle.is_set() and not self._pgconn.is_busy():
            result = self._pgconn.get_result()
            if result is None:
                self.idle.set()
            elif result.error_message:
                raise _Refused(result.get_error_message())
            elif result.ntuples:
                self._answer = result.get_value(0, 0)
        while (notify := self._pgconn.notifies()) is not None:
            if notify.be_pid != self._pgconn.backend_pid:
                yield notify.extra

    def close(self, last: Told) -> None:
        """Close the connection; send `last` before, as far as that needs no waiting."""
        try:
            if last and self.trouble is None and self.idle.is_set():
                self.send(last)
                self._pgconn.flush()
        except Exception:  # noqa: BLE001, S110 (a hint, and nobody is left to hear of it)
            pass
        finally:
            self.connection.close()


class _Opening:
    """A connection in the making, in a thread that is left alone when nobody waits any more."""

    def __init__(self, conninfo: str, address: str) -> None:
        self._conninfo = conninfo
        self._address = address
        self._lock = threading.Lock()
        self._given_up = False
        self._made: psycopg.Connection | None = None

    async def run(self) -> tuple[psycopg.Connection, str]:
        """Return a connection that listens, and the name of the channel of all nodes.

        Raises:
            _Pooled: Somebody else may get this connection's notifications.
        """
        made = False
        try:
            found = await anyio.to_thread.run_sync(
                self._open, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
            )
            made = True
        finally:
            if not made:
                self._give_up()
        return found

    def _give_up(self) -> None:
        with self._lock:
            self._given_up = True
            if self._made is not None:
                self._made.close()

    def _open(self) -> tuple[psycopg.Connection, str]:
        driver: Any = import_module("psycopg")
        connection: psycopg.Connection = driver.connect(
            self._conninfo, autocommit=True, prepare_threshold=None
        )
        try:
            channel = self._listen(connection)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._made = connection
            if self._given_up:
                connection.close()
        return connection, channel

    def _listen(self, connection: psycopg.Connection) -> str:
        row: Any = connection.execute(_ASK).fetchone()
        pid, channel = row
        # A pooler makes up the number that it sends for this when a client connects.
        if pid != connection.info.backend_pid:
            raise _Pooled
        connection.execute(_STAY)
        for name in (channel, _name_channel(channel, self._address)):
            connection.execute(f'listen "{name}"'.encode())
        return str(channel)


@define(eq=False)
class Hints:
    """The hints of one database: sent to its other nodes and received from them by `serve`.

    Attributes:
        book: What is to be told to whom.
        sent: How many NOTIFYs were sent, one for each node that was told something.
        heard: How many words of others were understood.
    """

    database: str
    book: NodeHints
    hub: Hub
    log: Write
    _note_pooler: Callable[[], None] = field(alias="note_pooler")
    # Asked for each connection: a password may change.
    _find_conninfo: Callable[[], str | None] = field(alias="find_conninfo", repr=False)
    sent: int = 0
    heard: int = 0
    _line: _Line | None = field(default=None, init=False)
    _names: dict[str, None] = field(factory=dict[str, None], init=False)
    _unheld: dict[str, None] = field(factory=dict[str, None], init=False)
    _wanted: anyio.Event = field(factory=anyio.Event, init=False)
    _lost: bool = field(default=False, init=False)
    _failures: int = field(default=0, init=False)

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection that listens."""
        return self._line is not None

    def nudge(self, topic: str, node: str | None = None) -> None:
        """Wake those that wait under `topic` on `node`, or on every other node."""
        if self._line is not None:
            self.book.nudge(topic, node)
            self._speak_up()

    def event(self, run_id: str, seq: int) -> None:
        """Announce to the nodes that follow `run_id` that its events up to `seq` are stored."""
        if self._line is not None:
            self.book.event(run_id, seq, time.monotonic())
            self._speak_up()

    def follow(self, run_id: str, holder: str) -> None:
        """Tell `holder`, which executes the run, that this node follows it."""
        if self._line is not None:
            self.book.follow(run_id, holder, time.monotonic())
            self._speak_up()

    def _speak_up(self) -> None:
        if self.book.is_pending:
            self._wanted.set()

    def hold(self, name: str) -> bool:
        """Tell whether a session holds `name`, and let it, as soon as there is one that can."""
        self._names[name] = None
        if self._line is None:
            return False
        if name in self._line.names:
            return True
        self._unheld[name] = None
        self._wanted.set()
        return False

    async def serve(self) -> None:
        """Keep a connection, a new one whenever it breaks, until cancelled.

        Returns where there is a pooler in between: a connection that others use as well hears
        nothing reliably.
        """
        while True:
            try:
                await self._once()
            except _Pooled:
                self._note_pooler()
                return
            except Exception as error:  # noqa: BLE001 (hints are no reason to end a host)
                self._note(error)
            self._failures += 1
            await anyio.sleep(BACKOFF.seconds(self._failures, random.random()))  # noqa: S311 (jitter)

    def _note(self, error: Exception) -> None:
        """Write that hints are lost, once until they are back."""
        if not self._lost:
            words = f"{type(error).__name__}: {error}".splitlines()[0]
            self.log("warning", "hints_lost", {"database": self.database, "error": words})
        self._lost = True

    async def _once(self) -> None:
        """Connect, and talk until that is no longer possible."""
        connection, channel = await _Opening(self._find_conninfo() or "", self.book.address).run()
        line = self._line = _Line(connection, channel)
        self._unheld = dict(self._names)
        self._wanted.set()
        self._failures = 0
        if self._lost:
            self.log("info", "hints_restored", {"database": self.database})
            self._lost = False
        try:
            await self._talk(line)
        finally:
            self._line = None
            line.close(self.book.take(CHANNELS))
            self.book.clear()
        if line.trouble is not None:
            raise line.trouble

    async def _talk(self, line: _Line) -> None:
        """Speak and listen until one of the two fails; why is then in `line.trouble`."""

        async def until_trouble(part: Callable[[_Line], Awaitable[None]]) -> None:
            try:
                await part(line)
            except Exception as error:  # noqa: BLE001 (raised by whoever connected)
                line.trouble = line.trouble or error
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(until_trouble, self._speak)
            tasks.start_soon(until_trouble, self._listen)

    async def _speak(self, line: _Line) -> None:
        while True:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            while self._unheld:
                await line.hold(self._unheld.popitem()[0])
            while told := self.book.take(CHANNELS):
                self.sent += len(told)
                await line.tell(told)
                await anyio.sleep(REST_SECONDS)

    async def _listen(self, line: _Line) -> None:
        while True:
            for payload in line.read():
                words = payload.decode("ascii", "replace")
                self.heard += self.book.hear(words, self.hub, time.monotonic())
            self._speak_up()
            await line.wait()


def hints_of(databases: Iterable[Database], node: str, hub: Hub, log: Write) -> Mapping[str, Hints]:
    """Return the hints of `node` for those of `databases` that can have them, by name."""
    return {
        database.name: Hints(
            database.name,
            NodeHints(node),
            hub,
            log,
            server.note_pooler,
            partial(_conninfo_of, server),
        )
        for database in databases
        if (server := as_server(database)) is not None and server.hints is not None
    }


def _conninfo_of(database: PostgresDatabase) -> str | None:
    return database.hints


def hint_gauges(hints: Mapping[str, Hints]) -> Gauges:
    """Return the gauges of hints: whether each line is up, and how many went each way."""
    connected: dict[Labels, float] = {}
    sent: dict[Labels, float] = {}
    heard: dict[Labels, float] = {}
    for name, one in hints.items():
        labels = (("database", name),)
        connected[labels], sent[labels], heard[labels] = (
            float(one.is_connected),
            one.sent,
            one.heard,
        )
    return {
        "legation_hints_connected": Gauge("gauge", _CONNECTED, connected, "min"),
        "legation_hints_sent_total": Gauge("counter", _SENT, sent),
        "legation_hints_heard_total": Gauge("counter", _HEARD, heard),
    }


_CONNECTED: Final = "1 while hints of other nodes are listened for."
_SENT: Final = "NOTIFYs sent to other nodes, each to one and with several hints."
_HEARD: Final = "Hints of other nodes."
