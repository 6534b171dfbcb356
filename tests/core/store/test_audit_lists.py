"""Lists of the trail: by time and by subject, with filters, out of pages and old rows, bounded."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from legation.store import audit_lists
from legation.store.audit import AppendAudit
from legation.store.audit_entries import AuditEntry
from legation.store.audit_lists import AuditRow, ListAudit, ListedRows, Place
from legation.store.audit_moving import MoveOldRows
from legation.store.audit_pages import SPAN_US, SigningKey
from legation.store.units import Dialect

from ...old_audit import put_old_rows
from ...one_database import Database

ENTRY: Final = AuditEntry(
    1_000_000, "r1", "ada", "k1", "get_agent", "concierge", "allow", "agents:read", 200, "127.0.0.1"
)
KEY: Final = SigningKey("2026", bytes(range(32)))
EVERYTHING: Final[dict[str, Any]] = {"since_us": 0, "until_us": 1 << 60}


def listed(database: Database, between: Callable[[], None] = lambda: None, **query: Any) -> Any:
    """Read list after list, doing something else in between, and return all rows."""
    newest_first = query["newest_first"]
    place = Place(1 << 60 if newest_first else 0)
    found: list[AuditRow] = []
    while True:
        some = database.run(ListAudit(place=place, **{**EVERYTHING, **query}))
        found += some.rows
        if some.reached_us is not None:
            place = Place(some.reached_us + newest_first)
        elif len(some.rows) < query["size"]:
            return found
        else:
            last = some.rows[-1]
            place = Place(last.entry.at_us, last.writer, last.seq)
        between()


def everything(database: Database, *, newest_first: bool = False) -> list[AuditRow]:
    rows: list[AuditRow] = listed(database, newest_first=newest_first, size=100_000)
    return rows


def test_a_row_has_its_place_and_the_seal_of_its_page() -> None:
    database = Database()
    database.run(AppendAudit("n", (ENTRY,), KEY))
    database.run(AppendAudit("n", (ENTRY, evolve(ENTRY, request_id="r2")), KEY))

    hashes = [row[0] for row in database.ask("select hash from trail order by last")]
    first, second, third = everything(database)
    assert first == AuditRow("signed/n", 1, "", hashes[0], ENTRY, "2026")
    assert (second.seq, third.seq) == (2, 3)
    assert (second.previous, second.hash) == (third.previous, third.hash) == tuple(hashes)
    assert third.entry.request_id == "r2"


def test_a_row_of_a_chain_without_a_key_says_so() -> None:
    database = Database()
    database.run(AppendAudit("n", (ENTRY,), None))

    assert everything(database)[0].signed_by is None


@pytest.mark.parametrize("newest_first", [True, False], ids=["newest first", "oldest first"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_lists_are_disjoint_and_complete_while_others_append(size: int, newest_first: bool) -> None:
    database, chance = Database(), Random(size)

    def append() -> None:
        times = [chance.randrange(4 * SPAN_US) for _ in range(chance.randrange(1, 4))]
        entries = tuple(evolve(ENTRY, at_us=at_us // 9 * 9) for at_us in times)
        database.run(AppendAudit(chance.choice("abc"), entries, None))

    for _ in range(20):
        append()
    before = set(everything(database))
    budget = iter(range(40))
    found = listed(
        database,
        lambda: append() if next(budget, None) is not None else None,
        newest_first=newest_first,
        size=size,
    )

    assert len(found) == len(set(found))
    assert before <= set(found) <= set(everything(database))
    order = [(row.entry.at_us, row.writer, row.seq) for row in found]
    assert order == sorted(order, reverse=newest_first)


FILTERS: Final = st.fixed_dictionaries(
    {},
    optional={
        "subject": st.sampled_from(["ada", "bob"]),
        "operation": st.sampled_from(["get", "run"]),
        "resource": st.sampled_from(["a", "a/b", "a_", "%", '"', "é"]),
        "decision": st.sampled_from(["allow", "deny"]),
        "request_id": st.sampled_from(["r", "s"]),
        "since_us": st.integers(0, 4).map(lambda at: at * 700_000),
        "until_us": st.integers(0, 4).map(lambda at: at * 700_000),
    },
)
FEW: Final = st.builds(
    AuditEntry,
    at_us=st.integers(0, 4).map(lambda at: at * 700_000),
    request_id=st.sampled_from(["r", "s"]),
    subject=st.sampled_from([None, "ada", "bob"]),
    key_id=st.none(),
    operation=st.sampled_from(["get", "run"]),
    resource=st.sampled_from(["", "a", "a/b", "a/b/c", "ab", "a_/b", "%", '"/x', "é/1"]),
    decision=st.sampled_from(["allow", "deny"]),
    scope=st.just(""),
    status=st.integers(1, 10**9),
    client=st.just(""),
)


@given(
    st.lists(st.lists(FEW, min_size=1, max_size=4), max_size=5),
    st.lists(FEW, max_size=4),
    st.integers(0, 4),
    FILTERS,
    st.booleans(),
)
def test_filters_find_what_they_say(
    batches: list[list[AuditEntry]],
    old: list[AuditEntry],
    moved: int,
    filters: dict[str, Any],
    newest_first: bool,
) -> None:
    database = Database(only="audit")
    for batch in batches:
        database.run(AppendAudit("n", tuple(batch), None))
    put_old_rows(database.connection, "w", old)
    database.run(MoveOldRows(0, None, size=moved))

    found = listed(database, newest_first=newest_first, size=5, **filters)
    wanted = [
        entry
        for entry in (*(one for batch in batches for one in batch), *old)
        if is_wanted(entry, **{**EVERYTHING, **filters})
    ]
    assert sorted(map(repr, wanted)) == sorted(repr(row.entry) for row in found)


def is_wanted(entry: AuditEntry, since_us: int, until_us: int, **filters: str) -> bool:
    for name, value in filters.items():
        held = getattr(entry, name)
        beneath = name == "resource" and held.startswith(f"{value}/")
        if held != value and not beneath:
            return False
    return since_us <= entry.at_us < until_us


@pytest.mark.parametrize("newest_first", [True, False], ids=["newest first", "oldest first"])
def test_old_rows_keep_their_place_when_they_are_moved(newest_first: bool) -> None:
    database = Database()
    put_old_rows(database.connection, "w", [evolve(ENTRY, at_us=at) for at in range(9)])
    before = everything(database, newest_first=newest_first)

    def move() -> None:
        database.run(MoveOldRows(0, KEY, size=2))

    found = listed(
        database,
        move,
        newest_first=newest_first,
        size=2,
    )

    assert [evolve(row, signed_by=None) for row in found] == before
    assert {row.writer for row in found} == {"w"}


@pytest.mark.parametrize("newest_first", [True, False], ids=["newest first", "oldest first"])
def test_one_list_reads_a_bounded_number_of_pages(newest_first: bool) -> None:
    database = Database()
    count = audit_lists.BUDGET + audit_lists.CHUNK + 1
    entries = tuple(
        evolve(
            ENTRY,
            at_us=number * 2 * SPAN_US,
            operation="rare" if number in (0, count - 1) else "get",
        )
        for number in range(count)
    )
    database.run(AppendAudit("n", entries, None))  # a page for each
    place = Place(1 << 60 if newest_first else 0)
    unit = ListAudit(
        place=place, newest_first=newest_first, size=10, operation="rare", **EVERYTHING
    )

    first = database.run(unit)
    assert [row.entry.operation for row in first.rows] == ["rare"]
    assert first.reached_us is not None
    rows = listed(database, newest_first=newest_first, size=10, operation="rare")
    assert [row.seq for row in rows] == ([count, 1] if newest_first else [1, count])


@pytest.mark.parametrize("newest_first", [True, False], ids=["newest first", "oldest first"])
def test_a_list_gets_on_however_much_a_second_has(newest_first: bool) -> None:
    database = Database()
    count = audit_lists.BUDGET + 2 * audit_lists.CHUNK
    for number in range(count):
        entry = evolve(ENTRY, at_us=5 * SPAN_US + number, operation="get")
        database.run(AppendAudit("n", (entry,), None))
    far = evolve(ENTRY, at_us=SPAN_US if newest_first else 9 * SPAN_US, operation="rare")
    database.run(AppendAudit("n", (far,), None))
    place = Place(5 * SPAN_US + (count if newest_first else 0))
    query: dict[str, Any] = {"newest_first": newest_first, "size": 10, "operation": "rare"}

    some = database.run(ListAudit(place=place, **query, **EVERYTHING))
    for _ in range(2):
        if some.reached_us is None:
            break
        assert Place(some.reached_us + newest_first) != place
        place = Place(some.reached_us + newest_first)
        some = database.run(ListAudit(place=place, **query, **EVERYTHING))
    assert [row.entry for row in some.rows] == [far]


def test_a_page_that_was_spoiled_is_left_out() -> None:
    database = Database()
    database.run(AppendAudit("n", (ENTRY,), None))
    database.ask("update trail set data = 'x'")

    assert everything(database) == []


def test_an_empty_trail_has_no_rows() -> None:
    unit = ListAudit(place=Place(9), newest_first=True, size=5, **EVERYTHING)

    assert Database().run(unit) == ListedRows(())


@pytest.mark.parametrize("newest_first", [True, False], ids=["newest first", "oldest first"])
@pytest.mark.parametrize(
    ("filters", "indexes"),
    [({}, {"trail_at"}), ({"subject": "ada"}, {"trail_subject_at", "PRIMARY KEY"})],
    ids=["all", "of a subject"],
)
def test_pages_are_found_by_an_index(
    filters: dict[str, Any], indexes: set[str], newest_first: bool
) -> None:
    database = Database()
    unit = ListAudit(place=Place(5), newest_first=newest_first, size=5, **EVERYTHING, **filters)
    statements = unit.statements(Dialect.SQLITE)
    next(statements)
    statement = statements.send(())
    text = f"explain query plan {statement.text(Dialect.SQLITE)}"
    rows = database.connection.execute(text, dict(statement.parameters)).fetchall()

    plan = [row[-1] for row in rows]
    scanned = {line.split()[1] for line in plan if line.startswith("SCAN ")}
    assert scanned <= {"found", "alone", "among"}, plan
    for index in indexes:
        assert any(index in line and "SEARCH" in line for line in plan), plan
