"""The export of a person: all that is stored of a user, in every database, line by line.

A line is one JSON object: `{"db": …, "table": …, "row": …}`, where the row has the values as they
are stored.  The last one is `{"end": …}` with the number of rows of each table; an export without
it is not whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, TypeVar

from attrs import field

from ..effects import Emit, Program
from ..hosted.registry import Registry
from ..http.messages import Unfinished, compact_json
from ..runs.retry import FEW, with_retry
from ..store.erasure import FindPeople, LettersOf
from ..store.failures import StoreFailure
from ..store.person_export import LETTERS, TABLES, ReadLetters, ReadTable
from ..store.run_reads import FetchEvents
from ..store.units import Unit
from ..values import define
from .people import letters_of, owners_of

__all__ = ["export_person"]

R = TypeVar("R")

_PIECE: Final = 64 << 10


def export_person(registry: Registry, name: str) -> Program[Unfinished | None]:
    """Emit all that is stored of the user `name`; where a database fails, it is not whole."""
    writer = _Writer()
    try:
        for database in registry.databases:
            letters = dict[LettersOf, None]()
            for owner in owners_of(name):
                seen = yield from _run(database, FindPeople(owner, name))
                letters |= dict.fromkeys(letters_of(registry, database, name, seen))
                yield from _write_rows(writer, database, owner)
            for one in letters:
                for table in LETTERS:
                    yield from _write_letters(writer, database, table, one)
    except StoreFailure:
        return Unfinished()
    yield from _emit(compact_json({"end": dict(writer.counts)}))
    return None


@define
class _Writer:
    """The lines of one export, counted by their tables."""

    counts: Counter[str] = field(factory=Counter[str])

    def write(self, database: str, table: str, rows: Iterable[str]) -> Program[None]:
        """Emit rows, each as a line."""
        head = compact_json({"db": database, "table": table})[:-1]
        for row in rows:
            self.counts[table] += 1
            yield from _emit(f'{head},"row":{row}}}')


def _write_rows(writer: _Writer, database: str, owner: str) -> Program[None]:
    for table in TABLES:
        after: tuple[Any, ...] | None = None
        while True:
            page = yield from _run(database, ReadTable(table, owner, after))
            yield from writer.write(database, table, page.rows)
            if table == "runs":
                for run_id in page.ids:
                    yield from _write_events(writer, database, owner, run_id)
                    yield from _write_steps(writer, database, owner, run_id)
            if page.last is None:
                break
            after = page.last


def _write_events(writer: _Writer, database: str, owner: str, run_id: str) -> Program[None]:
    place, last = compact_json({"run_id": run_id})[:-1], 0
    while page := (yield from _run(database, FetchEvents(owner, run_id, last))).events:
        rows = (f'{place},"seq":{event.seq},"data":{event.data}}}' for event in page)
        yield from writer.write(database, "events", rows)
        last = page[-1].seq


def _write_steps(writer: _Writer, database: str, owner: str, run_id: str) -> Program[None]:
    place, after = compact_json({"run_id": run_id})[:-1], None
    while True:
        page = yield from _run(database, ReadTable("steps", owner, after, run_id))
        rows = (f"{place},{row[1:]}" for row in page.rows)
        yield from writer.write(database, "steps", rows)
        if page.last is None:
            return
        after = page.last


def _write_letters(writer: _Writer, database: str, table: str, letters: LettersOf) -> Program[None]:
    after: tuple[Any, ...] | None = None
    while True:
        page = yield from _run(database, ReadLetters(table, letters, after))
        yield from writer.write(database, table, page.rows)
        if page.last is None:
            return
        after = page.last


def _run(database: str, unit: Unit[R]) -> Program[R]:
    return (yield from with_retry(database, unit, FEW))


def _emit(line: str) -> Program[None]:
    text = f"{line}\n".encode()
    for start in range(0, len(text), _PIECE):
        yield Emit(text[start : start + _PIECE])
