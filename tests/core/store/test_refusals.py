"""The table of refusals: bounded for all processes together, and the greatest counts are in it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from attrs import astuple, evolve
from hypothesis import given
from hypothesis import strategies as st

from legation.store.refusals import (
    COUNT,
    HOUR_ROWS,
    MINUTE_ROWS,
    MOST_ROWS,
    NOWHERE,
    OTHERS,
    AddRefusals,
    ListRefusals,
    RefusalCount,
    RefusalPlace,
    choose_rows,
    shorten,
)
from legation.store.units import Dialect

from ...one_database import Database

ROW = RefusalCount(1_000, "192.0.2.1", "/me", 401, 3)
EVERY = RefusalPlace(1 << 40)
NOTHING = frozenset[tuple[int, tuple[str, str, int]]]()


def flood(minute: int, size: int, first: int = 0) -> tuple[RefusalCount, ...]:
    """Return the counts of a minute of so many clients, the later the greater."""
    return tuple(
        RefusalCount(minute, f"client {number:06}", "/me", 401, number + 1)
        for number in range(first, first + size)
    )


@pytest.fixture
def database() -> Database:
    return Database(only="refusals")


def rows(database: Database, where: str = "true") -> list[RefusalCount]:
    found = database.ask(f"select * from refusals where {where} order by 1, 2, 3, 4")
    return [RefusalCount(*row) for row in found]


def test_counts_of_several_processes_add_up(database: Database) -> None:
    other = evolve(ROW, client="192.0.2.2")
    database.run(AddRefusals((ROW, other)))
    database.run(AddRefusals((evolve(ROW, count=4), evolve(ROW, route="/teams"))))

    assert rows(database) == [evolve(ROW, count=7), evolve(ROW, route="/teams"), other]


def test_a_minute_has_a_thousand_rows_and_one_of_others(database: Database) -> None:
    database.run(AddRefusals(flood(1_000, 5_000)))

    found = rows(database)
    assert len(found) == MINUTE_ROWS + 1
    assert found[:-1] == list(flood(1_000, 1_000, first=4_000))
    assert found[-1] == RefusalCount(1_000, OTHERS, NOWHERE, 0, sum(range(4_001)))


def test_a_minute_has_no_more_rows_where_several_processes_write(database: Database) -> None:
    for process in range(5):
        database.run(AddRefusals(flood(1_000, 600, first=600 * process)))
    database.run(AddRefusals(flood(1_000, 600)))

    assert len(rows(database)) == MINUTE_ROWS + 1
    total = sum(one.count for one in rows(database))
    assert total == sum(range(3_001)) + sum(range(601))
    assert rows(database, "client = 'client 000599'")[0].count == 1_200


def test_an_hour_of_floods_has_six_thousand_rows_and_each_minute_has_fifty(
    database: Database,
) -> None:
    for minute in range(1_000, 1_130):
        database.run(AddRefusals(flood(minute, 1_200)))

    found = {
        minute: sum(1 for _ in group)
        for minute in range(1_000, 1_130)
        for group in [rows(database, f"minute = {minute} and status <> 0")]
    }
    hours = [sum(found[m] for m in range(first, first + 60)) for first in range(1_000, 1_071)]
    assert max(hours) <= HOUR_ROWS
    assert found[1_000] == MINUTE_ROWS
    assert min(found.values()) >= 50
    assert sum(one.count for one in rows(database)) == 130 * sum(range(1_201))


def test_after_a_quiet_hour_there_is_room_again(database: Database) -> None:
    for minute in (1_000, 1_001, 1_060):
        database.run(AddRefusals(flood(minute, 3_000)))

    counts = [len(rows(database, f"minute = {minute}")) - 1 for minute in (1_000, 1_001, 1_060)]
    assert counts == [1_000, 733, 822]


def test_on_postgresql_one_after_the_other_counts_the_room_and_fills_it() -> None:
    statements = AddRefusals((ROW,)).statements(Dialect.POSTGRESQL)

    assert next(statements).text(Dialect.POSTGRESQL).startswith("lock table refusals")
    assert statements.send(()).sql is COUNT
    statements.close()


def test_a_row_of_others_is_added_to_that_of_others(database: Database) -> None:
    others = RefusalCount(1_000, OTHERS, NOWHERE, 0, 5)
    database.run(AddRefusals((others, ROW)))
    database.run(AddRefusals((others,)))

    assert rows(database) == [ROW, evolve(others, count=10)]


def test_old_rows_go_only_where_it_is_asked(database: Database) -> None:
    old, young = evolve(ROW, minute=1_000), evolve(ROW, minute=1_001)
    for one in (old, young):
        database.run(AddRefusals((one,)))
    last = evolve(ROW, minute=1_001 + 30 * 24 * 60)
    database.run(AddRefusals((last,)))
    assert rows(database) == [old, young, last]
    database.run(AddRefusals((last,), forgets=True))

    assert rows(database) == [young, evolve(last, count=6)]


def test_beyond_the_most_the_oldest_go(database: Database) -> None:
    database.ask(
        f"""with recursive n (i) as (select 0 union all select i + 1 from n where i < {MOST_ROWS})
        insert into refusals select 1000 + i / 1000, 'client ' || i, '/me', 401, 1 from n"""
    )
    last = evolve(ROW, minute=1_200)
    database.run(AddRefusals((last,), forgets=True))

    found = database.ask("select count(*), min(minute), max(minute) from refusals")
    assert found == [(MOST_ROWS - 1_000 + 2, 1_001, 1_200)]


COUNTS = st.builds(
    RefusalCount,
    st.integers(0, 70),
    st.sampled_from("abcd"),
    st.sampled_from(("/", "/me")),
    st.sampled_from((401, 404)),
    st.integers(1, 9),
)


@given(
    st.lists(COUNTS, unique_by=lambda one: (one.minute, one.client, one.route, one.status)),
    st.dictionaries(st.integers(-60, 70), st.integers(0, 2_000)),
)
def test_no_count_is_lost_and_no_row_is_there_twice(
    counted: list[RefusalCount], rows: dict[int, int]
) -> None:
    chosen = choose_rows(counted, rows, NOTHING)
    keys = [astuple(one)[:4] for one in chosen]

    assert sum(one.count for one in chosen) == sum(one.count for one in counted)
    assert keys == sorted(set(keys))
    for minute in {one.minute for one in counted}:
        total = sum(one.count for one in counted if one.minute == minute)
        assert sum(one.count for one in chosen if one.minute == minute) == total


@pytest.mark.parametrize(("most", "left"), [(4, 0), (3, 0), (2, 5), (1, 9)])
def test_the_greatest_are_left_of_a_list(most: int, left: int) -> None:
    counted = tuple(evolve(ROW, minute=minute, count=minute) for minute in (2, 3, 4))
    shortened = shorten(counted, most)

    assert len(shortened) == min(most, 3)
    assert sum(one.count for one in shortened) == 9
    others = [one for one in shortened if one.client == OTHERS]
    assert others == ([] if not left else [RefusalCount(others[0].minute, OTHERS, "*", 0, left)])


# --- Reading ------------------------------------------------------------------------------------

PLACES = [
    (minute, client, route, status)
    for minute in (998, 999, 1_000)
    for client in ("", "192.0.2.1", "192.0.2.2", "É")
    for route in ("*", "/me")
    for status in (0, 401)
]


def read(
    database: Database,
    place: RefusalPlace = EVERY,
    *,
    since: int = 0,
    size: int = 1_000,
    only: str | None = None,
) -> list[RefusalCount]:
    page = database.run(ListRefusals(place, since, size, only))
    return list(page)


@pytest.fixture
def filled(database: Database) -> Database:
    database.run(AddRefusals(tuple(RefusalCount(*place, 1) for place in PLACES)))
    return database


@pytest.mark.parametrize("size", [1, 2, 5, 48])
def test_pages_hold_every_row_once_the_newest_first(filled: Database, size: int) -> None:
    found: list[RefusalCount] = []
    place = EVERY
    while page := read(filled, place, size=size):
        assert len(page) <= size
        found += page
        place = RefusalPlace(*astuple(page[-1])[:4])

    assert found == read(filled)
    assert len(found) == 3 * 4 * 2 + 3  # of status 0 there is one row for each minute
    assert all(astuple(one) > astuple(two) for one, two in pairwise(found))


def test_a_page_is_of_one_client_or_since_a_minute(filled: Database) -> None:
    assert {one.client for one in read(filled, only="192.0.2.1")} == {"192.0.2.1"}
    assert read(filled, only="192.0.2.9") == []
    assert {one.minute for one in read(filled, since=999)} == {999, 1_000}
