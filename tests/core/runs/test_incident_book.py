"""The incidents of a process: bounded in a minute, and while no database takes them."""

from __future__ import annotations

from legation.runs.incident_book import MINUTE, WAITING, IncidentBook
from legation.store.incidents import Incident

MINUTE_US = 60_000_000


def note(book: IncidentBook, number: int, at_us: int = 0, database: str = "main") -> None:
    book.note(database, f"{number:016x}", at_us, error_type="Error")


def test_what_is_noted_is_taken_once() -> None:
    book = IncidentBook()
    book.note(
        "main",
        "a",
        5,
        error_type="E" * 1_000,
        place="p" * 1_000,
        operation="get_me",
        component="agent:a",
        request_id="r",
        run_id="run",
    )
    note(book, 1, database="second")

    (one,) = book.take("main")
    assert one == Incident("a", 5, "", "E" * 200, "p" * 200, "get_me", "agent:a", "r", "run")
    assert book.take("main") == ()
    assert len(book.take("second")) == 1


def test_of_a_minute_so_many_are_kept_and_the_rest_is_counted() -> None:
    book = IncidentBook()
    for number in range(100_000):
        note(book, number)
    note(book, 1, at_us=MINUTE_US)

    assert len(book.take("main")) == MINUTE + 1
    assert book.omitted == 100_000 - MINUTE
    assert book.take_omitted() == 100_000 - MINUTE
    assert book.take_omitted() == 0


def test_a_clock_that_is_set_back_begins_another_minute() -> None:
    book = IncidentBook()
    for number in range(MINUTE):
        note(book, number, at_us=MINUTE_US)
    note(book, 1, at_us=0)

    assert not book.omitted


def test_while_a_database_is_away_no_more_than_so_many_wait() -> None:
    book = IncidentBook()
    for number in range(WAITING + 50):
        note(book, number, at_us=number * MINUTE_US, database="gone")

    assert book.omitted == 50
    taken = book.take("gone")
    assert len(taken) == WAITING
    note(book, 1)
    book.put_back("gone", taken)
    note(book, 2)
    assert len(book.take("main")) == 1
    assert book.take("gone") == taken


def test_what_is_put_back_stands_before_what_came_meanwhile() -> None:
    book = IncidentBook()
    note(book, 1)
    taken = book.take("main")
    note(book, 2)
    book.put_back("main", taken)

    assert [one.incident_id[-1] for one in book.take("main")] == ["1", "2"]
