"""Pages of open runs; that both engines give the same is in `tests/frontends`."""

from __future__ import annotations

from typing import Final

import pytest

from legation.store.open_runs import (
    ANY_ACTIVE,
    ANY_PAUSED,
    OpenPlace,
    OpenRun,
    ReadOpenRuns,
)
from legation.store.run_rows import RunLease, StoredEvent
from legation.store.runs import AppendEvents, StartRun
from legation.store.steps import Records, Step, StepKind

from ...one_database import Database

STATES: Final = ("PENDING", "RUNNING", "PAUSED", "COMPLETED", "ERROR", "CANCELLED")
MODEL: Final = Step("1", StepKind.MODEL, "m", 1, 2, '{"f":1}', 1)


def start(database: Database, number: int, status: str, text: str = "{}") -> None:
    owner, run_id = f"o{number % 7}", f"r{number:02}"
    started = StartRun(owner, run_id, run_id, "agent", "desk", text, "", "n", number % 5)
    assert database.run(started).claim
    set_status(database, run_id, status)


def set_status(database: Database, run_id: str, status: str) -> None:
    database.connection.execute("update runs set status = ? where run_id = ?", (status, run_id))


def read(database: Database, size: int = 200, most_bytes: int = 1 << 20) -> list[list[OpenRun]]:
    """Return all pages."""
    pages: list[list[OpenRun]] = []
    place: OpenPlace | None = OpenPlace()
    while place is not None:
        page = database.run(ReadOpenRuns(place, size, most_bytes))
        pages.append(list(page.runs))
        place = page.following
    return pages


@pytest.mark.parametrize("size", [1, 2, 3, 10, 200])
def test_each_open_run_is_on_one_page(size: int) -> None:
    database = Database()
    for number in range(30):
        start(database, number, STATES[number % 6])
    pages = read(database, size)

    found = [run.row.run_id for page in pages for run in page]
    assert sorted(found) == [f"r{number:02}" for number in range(30) if number % 6 < 3]
    assert len(found) == len(set(found))
    assert max(map(len, pages)) <= size
    assert [run.row.status == "PAUSED" for page in pages for run in page] == [False] * 10 + [
        True
    ] * 5


def test_a_run_comes_with_its_steps_and_without_its_output() -> None:
    database = Database()
    start(database, 1, "RUNNING", '{"message":"x"}')
    start(database, 2, "RUNNING")
    event, steps = (StoredEvent(1, "e", "{}"),), (MODEL, Step("1.1", StepKind.CALL, "book", 3))
    append = AppendEvents("o1", "r01", RunLease("n", 1), 7, event, 1, Records(steps))
    assert database.run(append) is False
    database.connection.execute("update runs set output = '{}', version = '2' where run_no = 1")
    ((first, second), _) = read(database)

    assert (first.asked_of, first.row.input, first.row.output) == (
        "agent:desk@2",
        '{"message":"x"}',
        None,
    )
    assert sorted(step.place for step in first.steps) == ["1", "1.1"]
    assert MODEL in first.steps
    assert second.steps == ()


def test_a_page_ends_before_it_is_too_long_but_has_a_run() -> None:
    database = Database()
    for number, size in enumerate([10, 10, 500, 10]):
        start(database, number, "RUNNING", f'"{"é" * size}"')

    found = [[run.row.run_id for run in page] for page in read(database, most_bytes=100)]
    assert found == [["r00", "r01"], ["r02"], ["r03"], []]


def test_the_outcomes_of_steps_count_for_the_length_of_a_page() -> None:
    database = Database()
    for number in range(2):
        start(database, number, "RUNNING")
        step = Step("1", StepKind.MODEL, "m", 1, 2, "x" * 90)
        records, event = Records((step,)), (StoredEvent(1, "e", "{}"),)
        lease = RunLease("n", 1)
        database.run(AppendEvents(f"o{number}", f"r0{number}", lease, 7, event, 1, records))

    assert [len(page) for page in read(database, most_bytes=100)] == [1, 1, 0]


def test_members_of_teams_are_no_runs_of_their_own() -> None:
    database = Database()
    start(database, 1, "RUNNING")
    database.connection.execute("update runs set parent_run_id = 'top'")

    assert read(database) == [[], []]


def test_pages_are_found_by_the_indexes() -> None:
    database = Database()
    plans = [
        database.connection.execute(
            f"explain query plan {sql.sqlite_text}", dict.fromkeys(sql.names, 1)
        ).fetchall()
        for sql in (ANY_ACTIVE, ANY_PAUSED)
    ]

    active, paused = (" ".join(str(row[-1]) for row in plan) for plan in plans)
    assert "runs_active ((owner,session_id)>" in active
    assert "runs_listed (status=?" in paused
    assert "TEMP B-TREE" not in active + paused
