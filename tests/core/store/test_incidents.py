"""Incidents in the database: each once, listed by time and id, and not more than enough."""

from __future__ import annotations

from attrs import evolve

from legation.store.incidents import (
    MOST_ROWS,
    AddIncidents,
    Incident,
    IncidentPlace,
    ListIncidents,
)

from ...one_database import Database

DAY_US = 24 * 3_600_000_000
END = IncidentPlace(1 << 60)


def incident(number: int, at_us: int = 0) -> Incident:
    return Incident(f"{number:016x}", at_us, "n", "Error", "f:1", "get_me", "agent:a", "r", "run")


def add(database: Database, *incidents: Incident, now_us: int = 0, forgets: bool = False) -> None:
    database.run(AddIncidents(incidents, now_us, forgets))


def listed(
    database: Database, place: IncidentPlace = END, since_us: int = 0, size: int = 10
) -> list[str]:
    found = database.run(ListIncidents(place, since_us, size))
    return [one.incident_id[-2:].lstrip("0") for one in found]


def test_what_is_added_is_read_as_it_was() -> None:
    database = Database(only="incidents")
    bare = Incident("b", 2, "n", "Error", "")
    add(database, incident(1, 1), bare)

    assert database.run(ListIncidents(END, 0, 10)) == (bare, incident(1, 1))


def test_an_incident_is_stored_once() -> None:
    database = Database(only="incidents")
    for _ in range(2):
        add(database, incident(1), incident(2))

    assert listed(database) == ["2", "1"]


def test_a_page_begins_behind_a_place_and_ends_at_a_time() -> None:
    database = Database(only="incidents")
    add(database, *(incident(number, number // 2) for number in range(1, 8)))

    assert listed(database, size=3) == ["7", "6", "5"]
    assert listed(database, IncidentPlace(2, f"{5:016x}")) == ["4", "3", "2", "1"]
    assert listed(database, IncidentPlace(2), since_us=1) == ["3", "2"]
    assert listed(database, IncidentPlace(0)) == []


def test_what_is_old_is_forgotten() -> None:
    database = Database(only="incidents")
    add(database, incident(1, 0), incident(2, DAY_US))
    add(database, incident(3, 30 * DAY_US), now_us=30 * DAY_US + 1)
    assert listed(database) == ["3", "2", "1"]

    add(database, incident(4, 31 * DAY_US), now_us=30 * DAY_US + 1, forgets=True)
    assert listed(database) == ["4", "3", "2"]


def test_no_more_are_kept_than_the_newest() -> None:
    database = Database(only="incidents")
    many = [evolve(incident(number), at_us=number) for number in range(MOST_ROWS + 500)]
    add(database, *many, forgets=True)

    assert len(database.run(ListIncidents(END, 0, 1 << 20))) == MOST_ROWS
