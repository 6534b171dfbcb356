"""Writing incidents: soon, each to its database, again where it failed, and at the end."""

from __future__ import annotations

import pytest
from attrs import evolve

from legation.effects import Log, Now, Program, Sleep, ThisNode, Transact
from legation.lifecycle.incidents import WriteIncidents
from legation.runs.incident_book import IncidentBook
from legation.store.failures import CommitLost, StoreFailure, Unavailable
from legation.store.incidents import AddIncidents, Incident, IncidentPlace, ListIncidents
from legation_testing import Client, close_at_every_effect, play

from ...callers import demo
from ...two_databases import IN_MEMORY

HOUR = 3_600_000_000
ONE = Incident("a", 5, "", "Error", "")


def job(*noted: str, database: str = "main") -> WriteIncidents:
    made = WriteIncidents(IncidentBook(), database)
    for name in noted:
        made.book.note(name, "a", 5, error_type="Error")
    return made


def added(database: str = "main", now_us: int = 9, *, forgets: bool = True) -> Transact[None]:
    return Transact(database, AddIncidents((evolve(ONE, node="n"),), now_us, forgets))


def asked(now_us: int = 9) -> list[tuple[ThisNode | Now, str | int]]:
    return [(ThisNode(), "n"), (Now(), now_us)]


def test_where_nothing_happened_nothing_is_asked() -> None:
    assert play(job().round(), []) is False
    assert play(job().end(), []) is None
    assert job().pause == job().after_trouble == Sleep(2.0)
    assert job().log_trouble("warning", ()) == Log("warning", "incidents_failed", ())


def test_a_database_gets_its_own() -> None:
    made = job("main", "second")
    other = WriteIncidents(made.book, "second")

    assert play(made.round(), [*asked(), (added(), None)]) is False
    assert play(made.round(), []) is False
    assert play(other.round(), [*asked(), (added("second"), None)]) is False


def test_the_table_is_made_to_forget_once_an_hour() -> None:
    made = job()
    for hour, forgets in ((0.0, True), (0.5, False), (1.0, True), (1.9, False)):
        now_us = round(hour * HOUR)
        made.book.note("main", "a", 5, error_type="Error")
        play(made.round(), [*asked(now_us), (added(now_us=now_us, forgets=forgets), None)])


@pytest.mark.parametrize("failure", [Unavailable("gone"), CommitLost("lost")], ids=str)
def test_what_could_not_be_written_is_written_at_the_next_round(failure: StoreFailure) -> None:
    made = job("main")
    with pytest.raises(type(failure)):
        play(made.round(), [*asked(), (added(), failure)])

    assert play(made.round(), [*asked(), (added(), None)]) is False
    assert play(made.round(), []) is False


def test_what_has_no_room_is_said_once() -> None:
    made = job()
    made.book.omitted = 3
    line = Log("warning", "incidents_omitted", (("incidents", 3),))

    play(made.round(), [(line, None)])
    play(made.round(), [])


def test_at_the_end_a_database_that_is_gone_is_not_waited_for() -> None:
    made = job("main")
    assert play(made.end(), [*asked(), (added(), Unavailable("gone"))]) is None
    assert play(made.end(), [*asked(), (added(), None)]) is None


def test_a_round_that_is_broken_off_loses_nothing() -> None:
    made: list[WriteIncidents] = []

    def begin() -> Program[bool]:
        made.append(job("main"))
        return made[-1].round()

    close_at_every_effect(begin, [*asked(), (added(), None)])
    *broken, whole = [bool(one.book.take("main")) for one in made]
    assert all(broken)
    assert not whole


def test_the_job_writes_while_a_platform_runs_and_what_is_left_at_its_end() -> None:
    platform = demo(None, databases=IN_MEMORY)
    with Client(platform) as client:
        book = platform.context.cluster.incidents
        for database in ("main", "second"):
            book.note(database, f"of-{database}", client.clock.now_us, error_type="Error")
        client.advance(3)

        everything = ListIncidents(IncidentPlace(1 << 60), 0, 10)
        for database in ("main", "second"):
            (row,) = client.simulation.run(iter(Transact(database, everything)))
            assert (row.incident_id, row.node) == (f"of-{database}", client.node.name)
        assert not book.take("main")
