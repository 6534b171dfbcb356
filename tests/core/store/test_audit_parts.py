"""Parts of chains by their time: from the first page of it to the last one."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from legation.store.audit import AppendAudit
from legation.store.audit_entries import AuditEntry
from legation.store.audit_pages import Head
from legation.store.audit_parts import ChainPart, ReadParts

from ...one_database import Database

SECOND = 1_000_000
ENTRY = AuditEntry(5, "r", "ada", None, "op", "a/b", "allow", "", 200, "")


def parts(since: int, until: int, after: str = "", size: int = 10) -> list[tuple[str, int, int]]:
    """Return parts of two chains, with a page each ten seconds, and one whose clock was wrong."""
    database = Database()
    for name, times in (("a", (0, 10, 20, 30)), ("b", (15,)), ("c", (10, 90, 12, 91))):
        for at in times:
            entry = evolve(ENTRY, at_us=at * SECOND)
            database.run(AppendAudit(name, (entry,), None))
    found: Any = database.run(ReadParts(since * SECOND, until * SECOND, after, size))
    return [(one.writer.removeprefix("chained/"), one.first, one.last) for one in found]


@pytest.mark.parametrize(
    ("since", "until", "found"),
    [
        (0, 100, [("a", 1, 4), ("b", 1, 1), ("c", 1, 4)]),
        (10, 20, [("a", 2, 2), ("b", 1, 1), ("c", 1, 3)]),
        (10, 21, [("a", 2, 3), ("b", 1, 1), ("c", 1, 3)]),
        (31, 90, []),
        (30, 30, []),
    ],
    ids=str,
)
def test_a_part_goes_from_the_first_page_of_the_time_to_the_last(
    since: int, until: int, found: list[tuple[str, int, int]]
) -> None:
    assert parts(since, until) == found


def test_a_page_that_begins_before_the_time_is_of_it_where_it_ends_within() -> None:
    database = Database()
    entries = (evolve(ENTRY, at_us=SECOND - 1), evolve(ENTRY, at_us=SECOND + 1))
    database.run(AppendAudit("a", entries, None))

    found: Any = database.run(ReadParts(SECOND, 2 * SECOND, "", 10))
    assert found == (ChainPart("chained/a", 2, 2),)


def test_a_few_chains_at_a_time_are_all_of_them() -> None:
    assert parts(0, 100, size=2) == [("a", 1, 4), ("b", 1, 1)]
    assert parts(0, 100, after="chained/b") == [("c", 1, 4)]


def test_a_part_holds_its_pages_alone() -> None:
    part = ChainPart("a", 3, 7)

    assert part.start == Head("a", 2, "")
    held = [number for number in range(10) if part.holds(Head("a", number, ""))]
    assert held == [3, 4, 5, 6, 7]
    assert not part.holds(Head("b", 5, ""))
