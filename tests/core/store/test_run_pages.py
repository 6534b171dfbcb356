"""Pages of runs: bounded in rows and bytes, and together the whole list."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from legation.store.run_pages import PAGE_BYTES, ReadRuns, RunsPage, count_fitting
from legation.store.run_reads import (
    EVENTS_BYTES,
    HISTORY_AT_ONCE,
    HISTORY_BYTES,
    FetchEvents,
    LongRecentRuns,
    RecentRuns,
)
from legation.store.run_rows import RunRow

from ...one_database import Database

KIB: Final = 1 << 10


def put(database: Database, number: int, size: int = 2, **columns: Any) -> None:
    row = {
        "owner": "ada",
        "session_id": "s",
        "run_no": number,
        "run_id": f"{columns.get('owner', '')}r{number}",
        "kind": "agent",
        "component_id": "desk",
        "status": "COMPLETED",
        "input": "x" * size,
        "created_us": number,
        **columns,
    }
    names, places = ", ".join(row), ", ".join(f":{name}" for name in row)
    database.connection.execute(f"insert into runs ({names}) values ({places})", row)


def read(database: Database, **asked: Any) -> list[RunsPage[int]]:
    """Read a list to its end; return its pages."""
    number = attrgetter("run_no")
    pages = [database.run(ReadRuns("ada", "s", number, **asked))]
    while (following := pages[-1].following) is not None:
        pages.append(database.run(following))
    return pages


def numbers(pages: Sequence[RunsPage[int]]) -> list[int]:
    return [number for page in pages for number in page.items]


@given(st.lists(st.integers(0, 50)), st.integers(0, 60))
def test_what_fits_is_as_much_as_there_is_room_for_and_at_least_one(
    sizes: list[int], most: int
) -> None:
    count = count_fitting(sizes, most)

    assert count <= len(sizes)
    assert count <= 1 or sum(sizes[:count]) <= most
    assert count == len(sizes) or (count >= 1 and sum(sizes[: count + 1]) > most)


def test_a_session_without_runs_has_one_page_without_items() -> None:
    assert read(Database()) == [RunsPage((), None)]


def test_a_short_list_is_one_page() -> None:
    database = Database()
    for number in range(1, 4):
        put(database, number)

    (page,) = read(database)

    assert (page.items, page.last, page.more) == ((1, 2, 3), 3, False)


def test_runs_of_a_mebibyte_come_one_by_one() -> None:
    database = Database()
    for number in range(1, 4):
        put(database, number, PAGE_BYTES)

    assert [page.items for page in read(database)] == [(1,), (2,), (3,)]


def test_input_output_and_state_count_in_bytes() -> None:
    database = Database()
    half, state = "\u20ac" * (PAGE_BYTES // 6), "d"
    document = "\u20ac" * (PAGE_BYTES // 6)
    database.connection.execute(
        "insert into session_states (owner, session_id, digest, document, first_us)"
        " values ('ada', 's', 'd', ?, 1)",
        (document,),
    )
    for number in range(1, 3):
        put(database, number, 0, output=half, state=state)
    for number in range(3, 6):
        put(database, number, 0, output=half)

    assert [page.items for page in read(database)] == [(1,), (2,), (3, 4), (5,)]


@pytest.mark.parametrize("runs", [31, 32, 33, 64, 100])
def test_a_long_list_of_short_runs_is_measured_bit_by_bit(runs: int) -> None:
    database = Database()
    for number in range(1, runs + 1):
        put(database, number, 10 * KIB)

    pages = read(database)

    assert numbers(pages) == list(range(1, runs + 1))
    assert all(len(page.items) <= 32 for page in pages)


def test_a_list_ends_where_was_asked_and_says_whether_there_is_more() -> None:
    database = Database()
    for number in range(1, 8):
        put(database, number, PAGE_BYTES // 2)

    first = read(database, size=3)
    behind = read(database, size=3, after=first[0].last)
    third = read(database, size=3, start=6)

    assert (numbers(first), first[0].last, first[0].more) == ([1, 2, 3], 3, True)
    assert (numbers(behind), behind[0].last, behind[0].more) == ([4, 5, 6], 6, True)
    assert (numbers(third), third[0].more) == ([7], False)
    assert numbers(read(database, size=4, start=3)) == [4, 5, 6, 7]
    assert read(database, size=7)[0].more is False


def test_the_newest_come_in_the_order_they_were_asked_for() -> None:
    database = Database()
    for number in range(1, 8):
        put(database, number, PAGE_BYTES // 2)

    assert numbers(read(database, size=3, newest=True)) == [5, 6, 7]


def test_a_list_is_narrowed() -> None:
    database = Database()
    put(database, 1, status="ERROR")
    put(database, 2, kind="team")
    put(database, 3, component_id="other")
    put(database, 4, parent_run_id="r1")
    put(database, 1, owner="eve")
    put(database, 5, session_id="t")

    assert numbers(read(database)) == [1, 2, 3]
    assert numbers(read(database, members=True)) == [1, 2, 3, 4]
    assert numbers(read(database, status="ERROR")) == [1]
    assert numbers(read(database, kind="agent", component_id="desk")) == [1]
    assert numbers(read(database, created_from_us=2, created_to_us=2)) == [2]


@pytest.mark.parametrize("gone", [(2,), (2, 3), (3, 4), (4,)])
def test_runs_that_are_deleted_meanwhile_are_passed_over(gone: tuple[int, ...]) -> None:
    database = Database()
    for number in range(1, 5):
        put(database, number, PAGE_BYTES)
    page = database.run(ReadRuns("ada", "s", attrgetter("run_no")))
    for number in gone:
        database.connection.execute("delete from runs where run_no = ?", (number,))
    pages = [page]
    while (following := pages[-1].following) is not None:
        pages.append(database.run(following))

    assert numbers(pages) == [number for number in range(1, 5) if number not in gone]


def test_a_session_that_is_deleted_meanwhile_comes_to_its_end() -> None:
    database = Database()
    for number in range(1, 100):
        put(database, number, PAGE_BYTES // 64)
    page = database.run(ReadRuns("ada", "s", attrgetter("run_no")))
    database.connection.execute("delete from runs")
    assert page.following is not None
    left = [database.run(evolve(page.following, sizes=()))]
    while (following := left[-1].following) is not None:
        left.append(database.run(following))

    assert numbers(left) == []


def test_a_run_is_rendered_where_it_is_read() -> None:
    database = Database()
    put(database, 1, output='{"content":"x","session_state":{}}')
    rows: list[RunRow] = []

    database.run(ReadRuns("ada", "s", rows.append))

    assert [row.shown for row in rows] == ['{"content":"x","session_state":{}}']


# --- The history of a run -----------------------------------------------------------------------


def recent(unit: RecentRuns, sizes: Sequence[int]) -> list[int] | None:
    """Return which runs a run is told behind those whose outputs have `sizes`."""
    database = Database()
    for number, size in enumerate(sizes, 1):
        put(database, number, 0, output="x" * size)
    put(database, 99, 0, status="RUNNING")
    told = database.run(unit)
    return None if told is None else [number for number, _ in told]


@pytest.mark.parametrize(
    ("sizes", "at_once", "apart"),
    [
        ((), [], []),
        ((1, 1, 1, 1), [2, 3, 4], [2, 3, 4]),
        ((HISTORY_AT_ONCE + 1,), [1], [1]),
        ((1, HISTORY_AT_ONCE - 1, 0), [1, 2, 3], [1, 2, 3]),
        ((1, HISTORY_AT_ONCE, 0), None, [1, 2, 3]),
        ((1, HISTORY_BYTES - 1), None, [1, 2]),
        ((1, HISTORY_BYTES), None, [2]),
        ((1, HISTORY_BYTES // 2, HISTORY_BYTES // 2), None, [2, 3]),
    ],
)
def test_a_history_is_bounded_in_bytes(
    sizes: tuple[int, ...], at_once: list[int] | None, apart: list[int]
) -> None:
    assert recent(RecentRuns("ada", "s", 99, 3), sizes) == at_once
    assert recent(LongRecentRuns("ada", "s", 99, 3), sizes) == apart


def test_a_long_history_is_read_beside_the_event_loop() -> None:
    assert not RecentRuns.long
    assert LongRecentRuns.long


def test_a_history_has_completed_runs_of_clients_before_the_run() -> None:
    database = Database()
    put(database, 1, output="{}")
    put(database, 2, status="ERROR", output="{}")
    put(database, 3, parent_run_id="r1", output="{}")
    put(database, 5, output="{}")
    put(database, 1, owner="eve", output="{}")

    assert database.run(RecentRuns("ada", "s", 5, 9)) == ((1, "{}"),)


# --- The events of a run ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "pages"),
    [
        ((), []),
        ((1, 1, 1), [[1, 2, 3]]),
        ((EVENTS_BYTES, 1, 1), [[1], [2, 3]]),
        ((1, EVENTS_BYTES, EVENTS_BYTES + 1, 1), [[1, 2], [3], [4]]),
        ((1,) * 300, [list(range(1, 257)), list(range(257, 301))]),
    ],
)
def test_events_come_as_far_as_they_are_short_enough(
    sizes: tuple[int, ...], pages: list[list[int]]
) -> None:
    database = Database()
    put(database, 1, run_id="r", events=len(sizes))
    database.connection.executemany(
        "insert into events (run_id, seq, at_us, name, data) values ('r', ?, 1, 'e', ?)",
        [(seq, "x" * size) for seq, size in enumerate(sizes, 1)],
    )
    found: list[list[int]] = []
    after = 0
    while (page := database.run(FetchEvents("ada", "r", after))).events:
        found.append([event.seq for event in page.events])
        after = found[-1][-1]

    assert found == pages
    assert page.last == len(sizes)
    assert database.run(FetchEvents("eve", "r", 0)).events == ()
