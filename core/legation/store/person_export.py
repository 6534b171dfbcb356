"""Units of work that read all that is stored of a person, table by table and page by page.

A row is given as JSON with the values that it has, and with the texts in their places that are
stored once.  Each page goes on behind the place where the one before ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from ..values import frozen
from .erasure import COUNTERS, FROM_SENDERS, TO_RECIPIENTS, LettersOf, for_both_engines
from .once import whole_output
from .session_state import encode_value
from .units import Dialect, ReadUnit, Sql, Statements

__all__ = ["LETTERS", "STEPS", "TABLES", "ReadLetters", "ReadTable", "TablePage"]


@frozen
class TablePage:
    """A page of rows, each as JSON, and the place of the last; `ids` are those of runs."""

    rows: tuple[str, ...]
    last: tuple[Any, ...] | None
    ids: tuple[str, ...] = ()


@frozen
class _Table:
    """The columns of a table as they are exported.

    Attributes:
        columns: By their names, each with the text that reads it.
        json: Those that hold JSON.
        start: The place before the first row, by the columns that name a place.
        size: How many rows are read at once, by how long one may be.
        source: From where, and of whom.
    """

    columns: Mapping[str, str]
    json: frozenset[str]
    start: Mapping[str, Any]
    size: int
    source: str
    postgresql: str | None = None

    def statement(self) -> Sql:
        """Return what reads a page."""
        shown = ", ".join(
            name if text == name else f"{text} as {name}" for name, text in self.columns.items()
        )
        keys = ", ".join(self.columns[name] for name in self.start)
        places = ", ".join(f":after_{name}" for name in self.start)
        texts = [
            f"""select {shown} from {source}
    and ({keys}) > ({places}) order by {keys} limit :size"""
            for source in (self.source, self.postgresql or self.source)
        ]
        return Sql(*texts)


def _table(
    columns: str,
    *,
    source: str,
    start: Mapping[str, Any],
    size: int,
    json: str = "",
    named: Mapping[str, str] | None = None,
    postgresql: str | None = None,
) -> _Table:
    """Return a table; `named` are columns that are read by another text."""
    names = dict.fromkeys(columns.split(), "") | dict(named or {})
    columns_by_name = {name: text or name for name, text in names.items()}
    return _Table(columns_by_name, frozenset(json.split()), start, size, source, postgresql)


TABLES: Final[Mapping[str, _Table]] = {
    "sessions": _table(
        "session_id kind component_id name state metadata summary runs bytes created_us updated_us",
        json="state metadata summary",
        source="sessions where owner = :owner",
        start={"session_id": ""},
        size=10,
    ),
    "session_states": _table(
        "session_id digest document first_us",
        json="document",
        source="session_states where owner = :owner",
        start={"session_id": "", "digest": ""},
        size=10,
    ),
    "session_summaries": _table(
        "session_id run_no summary run_id model usage at_us",
        json="usage",
        source="session_summaries where owner = :owner",
        start={"session_id": "", "run_no": 0},
        size=50,
    ),
    "runs": _table(
        "session_id run_no run_id parent_run_id kind component_id version model status input"
        " reason error incident subject usage resolved_us resolved_by resolution"
        " created_us started_us ended_us cancel_us",
        named={"output": whole_output(), "session_state": "state"},
        json="input output usage",
        source="runs where owner = :owner",
        start={"session_id": "", "run_no": 0},
        size=1,
    ),
    "idempotency": _table(
        "route key status headers body created_us expires_us",
        json="headers",
        source="idempotency where owner = :owner",
        start={"route": "", "key": ""},
        size=10,
    ),
    "usage": _table(
        "subject bytes day tokens cost_nano",
        source=f"({COUNTERS}) as counters where true",
        start={"subject": ""},
        size=100,
    ),
}
"""The tables that name an owner; what belongs to a run stands behind that."""

STEPS: Final = _table(
    "place begun_us",
    named={name: f"s.{name}" for name in ("kind", "asked", "attempt", "ended_us", "outcome")},
    json="outcome",
    source="steps s join runs r on r.run_id = s.run_id where r.owner = :owner and s.run_id = :id",
    start={"place": ""},
    size=10,
)
_INBOX: Final = f"inbox where {FROM_SENDERS}"
_OUTBOX: Final = f"outbox o where {TO_RECIPIENTS}"
_OPTED_OUT: Final = "channel_optouts where channel = :channel and person {recipients}"
_SOURCES: Final = {
    "inbox": for_both_engines(_INBOX),
    "outbox": for_both_engines(_OUTBOX),
    "channel_optouts": for_both_engines(_OPTED_OUT),
}
LETTERS: Final[Mapping[str, _Table]] = {
    "inbox": _table(
        "channel message_id sender payload state received_us attempts error run_id done_us",
        json="payload",
        source=_SOURCES["inbox"][0],
        postgresql=_SOURCES["inbox"][1],
        start={"message_id": ""},
        size=50,
    ),
    "outbox": _table(
        "channel idempotency_key recipient payload state created_us attempts error message_id"
        " provider_id sent_us",
        json="payload",
        source=_SOURCES["outbox"][0],
        postgresql=_SOURCES["outbox"][1],
        start={"idempotency_key": ""},
        size=50,
    ),
    "channel_optouts": _table(
        "channel person since_us",
        source=_SOURCES["channel_optouts"][0],
        postgresql=_SOURCES["channel_optouts"][1],
        start={"person": ""},
        size=50,
    ),
}
"""The tables of letters, by the people of one channel."""

READ: Final[Mapping[str, Sql]] = {name: table.statement() for name, table in TABLES.items()}
READ_LETTERS: Final[Mapping[str, Sql]] = {
    name: table.statement() for name, table in LETTERS.items()
}
READ_STEPS: Final = STEPS.statement()


def _read_page(
    table: _Table, sql: Sql, parameters: Mapping[str, Any], after: tuple[Any, ...] | None
) -> Statements[TablePage]:
    places = after or tuple(table.start.values())
    place = {f"after_{name}": one for name, one in zip(table.start, places, strict=True)}
    rows = yield sql(**parameters, **place, size=table.size)
    names = tuple(table.columns)
    dicts = [dict(zip(names, row, strict=True)) for row in rows]
    last = tuple(dicts[-1][name] for name in table.start) if len(rows) == table.size else None
    written = tuple(_write(one, table.json) for one in dicts)
    return TablePage(written, last, tuple(one["run_id"] for one in dicts if one.get("run_id")))


def _write(row: Mapping[str, Any], documents: frozenset[str]) -> str:
    """Return a row as a JSON object, in which documents stand as they are."""
    members: list[str] = []
    for name, value in row.items():
        shown = value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
        whole = name in documents and isinstance(shown, str) and shown
        members.append(f'"{name}":{shown if whole else encode_value(shown)}')
    return f"{{{','.join(members)}}}"


@frozen
class ReadTable(ReadUnit[TablePage]):
    """A page of the rows of `owner` in `table`; `id` is the run whose steps are read."""

    long: ClassVar[bool] = True

    table: str
    owner: str
    after: tuple[Any, ...] | None = None
    id: str = ""

    def statements(self, dialect: Dialect) -> Statements[TablePage]:
        """Yield one read."""
        owner = {"owner": self.owner}
        if self.id:
            return (yield from _read_page(STEPS, READ_STEPS, owner | {"id": self.id}, self.after))
        return (yield from _read_page(TABLES[self.table], READ[self.table], owner, self.after))


@frozen
class ReadLetters(ReadUnit[TablePage]):
    """A page of the letters of a person in `table`."""

    long: ClassVar[bool] = True

    table: str
    letters: LettersOf
    after: tuple[Any, ...] | None = None

    def statements(self, dialect: Dialect) -> Statements[TablePage]:
        """Yield one read."""
        table, sql = LETTERS[self.table], READ_LETTERS[self.table]
        return (yield from _read_page(table, sql, self.letters.parameters(dialect), self.after))
