"""The size of a database: counted where that is quick, and else of the whole alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from legation.store.inbox import NewMessage, PutMessages
from legation.store.sizes import COUNTED_BYTES, DatabaseSize, MeasureDatabase, TableSize
from legation.store.units import Dialect

from ...one_database import Database


def measure(dialect: Dialect, *answers: Sequence[tuple[Any, ...]]) -> DatabaseSize:
    unit = MeasureDatabase().statements(dialect)
    next(unit)
    *before, last = answers
    for answer in before:
        unit.send(answer)
    with pytest.raises(StopIteration) as end:
        unit.send(last)
    size: DatabaseSize = end.value.value
    return size


def test_a_small_file_is_counted_table_by_table() -> None:
    database = Database()
    messages = tuple(NewMessage(f"m{number}", "a", "x" * 500) for number in range(300))
    database.run(PutMessages("c", messages, 1))
    found = database.run(MeasureDatabase())

    assert found.tables is not None
    by_name = {table.name: table for table in found.tables}
    assert found.tables[0] == by_name["inbox"]
    assert by_name["inbox"].rows == 300
    assert by_name["inbox"].size > 150_000
    assert by_name["runs"].rows == 0
    assert {"sessions", "events", "audit", "outbox", "incidents"} <= by_name.keys()
    assert not any(name.startswith("sqlite_") for name in by_name)
    assert sum(table.size for table in found.tables) <= found.size


@pytest.mark.parametrize(
    ("size", "counts"), [(COUNTED_BYTES + 1, 1), (4096, 0)], ids=["large", "cannot count"]
)
def test_what_cannot_be_counted_quickly_is_told_of_the_whole(size: int, counts: int) -> None:
    assert measure(Dialect.SQLITE, [(size, counts)]) == DatabaseSize(size, None)


def test_postgresql_knows_of_a_database_of_any_size() -> None:
    rows = [("runs", 5, 10), ("new", None, 10), ("events", 7, 99)]

    assert measure(Dialect.POSTGRESQL, [(1 << 50, 1)], rows) == DatabaseSize(
        1 << 50,
        (TableSize("events", 7, 99), TableSize("new", None, 10), TableSize("runs", 5, 10)),
    )
