"""Round trips to PostgreSQL: statements that are sent together, and what came of each.

Of several that are sent together the server carries out none behind one that fails, so that a
COMMIT among them keeps all of what stands before it, or nothing.

psycopg's own pipeline writes each statement to the socket by itself, and may raise the error of one
while the next is written.  Here they are written at once, by the functions of libpq that psycopg
makes known, and their answers are read until the one that says there are no more.

What waits for the server are generators of the driver's kind: they yield whether they wait until
the socket can be read or written, so that a thread or an event loop may do the waiting.

This module is imported when there is a connection, since psycopg is an extra.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, Final, TypeAlias

from attrs import field
from psycopg import Connection, Pipeline, abc, generators
from psycopg.abc import PQGen
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import DataError, Error, OperationalError, error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from legation.store.units import NO_ROWS, Rows, Sql, Statement
from legation.values import define, frozen

__all__ = ["Exchange"]

PREPARE_AFTER: Final = 5
"""How often a statement is sent before it is prepared."""

PREPARED: Final = 100
"""How many are, on a connection: the one that was not used for longest gives way."""

_WITH_ROWS: Final = ExecStatus.TUPLES_OK

_PLACE: Final = re.compile(r"%(?:%|\(([a-z_]+)\)s)")

_Key: TypeAlias = tuple[Sql, tuple[int, ...]]
_Message: TypeAlias = tuple[_Key, bytes, list[Any], list[Any]]
"""A statement with the types of its parameters, its text, and the parameters as they are sent with
the format of each; an older driver takes lists alone."""


@frozen
class _Text:
    """The text of a statement as libpq takes it: `$1` and up, by the order of `names`."""

    text: bytes
    names: tuple[str, ...]
    formats: list[PyFormat]
    silent: bool


@lru_cache(maxsize=1024)
def _text_of(sql: Sql) -> _Text:
    names: dict[str, int] = {}

    def place(found: re.Match[str]) -> str:
        name = found[1]
        return "%" if name is None else f"${names.setdefault(name, len(names) + 1)}"

    text = _PLACE.sub(place, sql.psycopg_text).encode()
    return _Text(text, tuple(names), [PyFormat.AUTO] * len(names), sql.silent)


@define(eq=False)
class Exchange:
    """The exchanges with the server over one connection, for one thread at a time.

    Attributes:
        connection: In autocommit mode, and with its loaders.
        prepares: Whether statements that come often are prepared.
        pipelines: Whether several are sent at once, which libpq does from 14 on.
    """

    connection: Connection
    prepares: bool
    pipelines: bool = field(factory=Pipeline.is_supported)
    _adapter: abc.Transformer = field(init=False)
    _uses: Counter[_Key] = field(factory=Counter[_Key], init=False)
    _names: OrderedDict[_Key, bytes] = field(factory=OrderedDict[_Key, bytes], init=False)
    _numbers: Iterator[int] = field(factory=count, init=False)

    def __attrs_post_init__(self) -> None:
        self._adapter = Transformer(self.connection)

    def perform(self, statements: Sequence[Statement]) -> PQGen[list[Rows]]:
        """Carry out `statements` in their order, in one round trip; return the rows of each.

        Raises:
            psycopg.Error: That of the first that failed; no later one was carried out.  Where the
                connection is closed then, nobody knows which of them were.
        """
        messages = [self._dump(statement) for statement in statements]
        if not self.pipelines:
            return (yield from self._perform_one_by_one(messages))
        wire = self.connection.pgconn
        try:
            wire.enter_pipeline_mode()
            expected = self._send(messages)
            wire.pipeline_sync()
            results, error = yield from self._collect(expected)
            wire.exit_pipeline_mode()
        except BaseException:
            self.connection.close()  # nobody knows what it is at
            raise
        if error is not None:
            raise error
        return [self._load(one) if one.status == _WITH_ROWS else NO_ROWS for one in results]

    def is_at_rest(self) -> bool:
        """Return whether the connection is open, and in no transaction."""
        return self.connection.pgconn.transaction_status == TransactionStatus.IDLE

    def roll_back(self) -> PQGen[None]:
        """End the transaction that a failure has left open."""
        wire = self.connection.pgconn
        wire.send_query(b"rollback")
        yield from generators.execute(wire)

    def is_silent(self, statement: Statement) -> bool:
        """Return whether nobody looks at the rows of `statement`."""
        return _text_of(statement.sql).silent

    def _perform_one_by_one(self, messages: Sequence[_Message]) -> PQGen[list[Rows]]:
        """Do without a pipeline; to prepare statements would be a round trip more for each."""
        wire, found = self.connection.pgconn, list[Rows]()
        for (_, types), text, values, formats in messages:
            wire.send_query_params(text, values, [*types], formats)
            result = (yield from generators.execute(wire))[-1]
            if result.status == ExecStatus.FATAL_ERROR:
                raise error_from_result(result)
            found.append(self._load(result) if result.status == _WITH_ROWS else NO_ROWS)
        return found

    def _dump(self, statement: Statement) -> _Message:
        text, parameters = _text_of(statement.sql), statement.parameters
        if not text.names:
            return (statement.sql, ()), text.text, [], []
        adapter = self._adapter
        try:
            values = adapter.dump_sequence([parameters[name] for name in text.names], text.formats)
        except UnicodeError as error:  # the driver's; the same from a unit would be its bug
            raise DataError("a text that cannot be encoded") from error
        formats = [*(adapter.formats or ())]
        return (statement.sql, tuple(adapter.types or ())), text.text, [*values], formats

    def _send(self, messages: Sequence[_Message]) -> list[_Key | bool]:
        """Hand `messages` to libpq, each behind what prepares it, where that is due.

        Return what each answer is of: True of a statement, and its key of what prepares it.
        """
        wire, expected = self.connection.pgconn, list[_Key | bool]()
        for key, text, values, formats in messages:
            name = self._names.get(key)
            if name is not None:
                self._names.move_to_end(key)
            elif self._is_due(key):
                name = b"legation_%d" % next(self._numbers)
                if len(self._names) >= PREPARED:
                    _, old = self._names.popitem(last=False)
                    wire.send_query_params(b"deallocate " + old, [])
                    expected.append(False)
                wire.send_prepare(name, text, [*key[1]])
                self._names[key] = name
                expected.append(key)
            if name is None:
                wire.send_query_params(text, values, [*key[1]], formats)
            else:
                wire.send_query_prepared(name, values, formats)
            expected.append(True)
        return expected

    def _is_due(self, key: _Key) -> bool:
        """Count a use of a statement that is not prepared; return whether it is to be."""
        if not self.prepares:
            return False
        if len(self._uses) > 10 * PREPARED:
            self._uses.clear()
        self._uses[key] += 1
        return self._uses[key] > PREPARE_AFTER

    def _collect(
        self, expected: Sequence[_Key | bool]
    ) -> PQGen[tuple[list[PGresult], Error | None]]:
        """Wait for what comes of each statement; return that, and the first error."""
        wire = self.connection.pgconn
        yield from generators.send(wire)
        found: list[PGresult] = []
        error: Error | None = None
        try:
            for one in expected:
                results = yield from generators.fetch_many(wire)
                result = results[-1]
                if one is True:
                    found.append(result)
                elif one and result.status != ExecStatus.COMMAND_OK:
                    self._names.pop(one, None)
                if result.status == ExecStatus.FATAL_ERROR and error is None:
                    error = error_from_result(result, encoding=self.connection.info.encoding)
            yield from generators.fetch_many(wire)  # the end of the round trip
        except OperationalError:
            if error is None:
                raise
            raise error from None
        return found, error

    def _load(self, result: PGresult) -> Rows:
        self._adapter.set_pgresult(result)
        return self._adapter.load_rows(0, result.ntuples, tuple)
