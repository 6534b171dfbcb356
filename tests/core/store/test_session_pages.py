"""Pages of sessions: bounded in rows and bytes, and together the whole list."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

import pytest

from legation.store.run_pages import PAGE_BYTES
from legation.store.session_pages import COUNT, LIST, ListSessions, SessionsPage
from legation.store.units import Dialect

from ...one_database import Database

HALF: Final = PAGE_BYTES // 2


def put(database: Database, number: int, size: int = 2, **columns: Any) -> None:
    row = {
        "owner": "ada",
        "session_id": f"s{number}",
        "kind": "agent",
        "component_id": "desk",
        "state": '{"a":"' + "x" * (size - 8) + '"}' if size > 8 else "{}",
        "created_us": number,
        "updated_us": 100 - number,
        **columns,
    }
    names, places = ", ".join(row), ", ".join(f":{name}" for name in row)
    database.connection.execute(f"insert into sessions ({names}) values ({places})", row)


def read(database: Database, owner: str | None = "ada", **asked: Any) -> list[SessionsPage[str]]:
    """Read a list to its end; return its pages."""
    pages = [database.run(ListSessions(owner, "agent", attrgetter("session_id"), **asked))]
    while (following := pages[-1].following) is not None:
        pages.append(database.run(following))
    return pages


def ids(pages: list[SessionsPage[str]]) -> list[str]:
    return [one for page in pages for one in page.items]


def test_without_sessions_there_is_one_page_without_items() -> None:
    assert read(Database()) == [SessionsPage((), None)]


def test_sessions_of_a_mebibyte_come_one_by_one() -> None:
    database = Database()
    for number in range(1, 4):
        put(database, number, PAGE_BYTES)

    pages = read(database)

    assert [page.items for page in pages] == [("s3",), ("s2",), ("s1",)]
    assert (pages[0].total, pages[0].last, pages[0].more) == (3, (1, "s1", "ada"), False)


def test_state_metadata_and_summary_count_in_bytes() -> None:
    database = Database()
    document = '"' + "\u20ac" * (HALF // 3 + 1) + '"'
    for number, name in enumerate(("state", "metadata", "summary"), 1):
        columns: dict[str, Any] = {name: document}
        put(database, number, **columns)

    assert [page.items for page in read(database)] == [("s3",), ("s2",), ("s1",)]


@pytest.mark.parametrize("sort_by", ["created_us", "updated_us"])
@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_places_lead_through_the_whole_list(sort_by: str, order: str, size: int) -> None:
    database = Database()
    for number in range(1, 9):
        put(database, number, HALF, created_us=number // 3, updated_us=number % 2)
        put(database, number, owner="eve", created_us=number // 3, updated_us=number % 2)
    for owner, expected in (("ada", 8), (None, 16)):
        asked = {"sort_by": sort_by, "order": order, "any_owner": True}
        whole = ids(read(database, owner, size=100, **asked))
        found: list[str] = []
        pages = read(database, owner, size=size, **asked)
        while pages[0].last is not None:
            assert pages[0].total == expected
            found += ids(pages)
            assert pages[0].more == (len(found) < expected)
            pages = read(database, owner, size=size, behind=pages[0].last, **asked)
        assert found == whole
        assert len(whole) == expected
        assert ids(read(database, owner, size=3, start=2, **asked)) == whole[2:5]


def test_a_list_is_narrowed() -> None:
    database = Database()
    put(database, 1, name="My Session")
    put(database, 2, component_id="other")
    put(database, 3, kind="team")
    put(database, 4, owner="eve")

    assert ids(read(database)) == ["s2", "s1"]
    assert ids(read(database, component_id="other")) == ["s2"]
    assert ids(read(database, name="y sess")) == ["s1"]
    assert ids(read(database, only="s1")) == ["s1"]
    assert ids(read(database, None, any_owner=True)) == ["s4", "s2", "s1"]
    assert ids(read(database, None)) == []


@pytest.mark.parametrize("gone", ["s1", "s2", "s3"])
def test_sessions_that_are_deleted_meanwhile_are_passed_over(gone: str) -> None:
    database = Database()
    for number in range(1, 4):
        put(database, number, PAGE_BYTES)
    pages = [database.run(ListSessions("ada", "agent", attrgetter("session_id")))]
    database.connection.execute("delete from sessions where session_id = ?", (gone,))
    while (following := pages[-1].following) is not None:
        pages.append(database.run(following))

    assert ids(pages) == [one for one in ("s3", "s2", "s1") if one != gone or one == "s3"]


def test_many_short_sessions_are_measured_bit_by_bit() -> None:
    database = Database()
    for number in range(1, 101):
        put(database, number, session_id=f"'\"\u20ac{number:03}")
    pages = read(database, size=100, order="asc")

    assert ids(pages) == [f"'\"\u20ac{number:03}" for number in range(1, 101)]
    assert max(len(page.items) for page in pages) == 32


def test_postgresql_is_asked_for_the_same_keys() -> None:
    places = ((1, "s1", "ada"), (2, "s2", "eve"))
    unit = ListSessions(None, "agent", attrgetter("owner"), keys=places, sizes=(1, 1))
    work = unit.statements(Dialect.POSTGRESQL)

    assert next(work).parameters == {"owners": ["ada", "eve"], "ids": ["s1", "s2"]}
    work.close()


@pytest.mark.parametrize("sort_by", ["created_us", "updated_us"])
@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("component", [False, True])
def test_an_index_alone_finds_and_counts_what_an_owner_has(
    sort_by: str, order: str, *, component: bool
) -> None:
    database, narrowed = Database(), (component, False, False)
    for sql in (LIST[(*narrowed, sort_by, order)], COUNT[narrowed]):
        values = dict.fromkeys(sql.names, 1)
        rows = database.connection.execute(f"explain query plan {sql.text}", values)
        plan = " ".join(str(row[-1]) for row in rows)
        assert "SEARCH sessions USING COVERING INDEX sessions_" in plan
        assert "TEMP B-TREE" not in plan
