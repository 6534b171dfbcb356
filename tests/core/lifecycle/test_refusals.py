"""Writing counts of refusals: once a minute, again where it failed, and at the end of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attrs import evolve

from legation import Database, Platform
from legation.effects import Log, Now, Program, Sleep, Transact
from legation.lifecycle.refusals import WriteRefusals
from legation.shares.refusal_counter import RefusalCounter
from legation.store.failures import CommitLost, Unavailable
from legation.store.refusals import AddRefusals, ListRefusals, RefusalCount, RefusalPlace
from legation_testing import Client, close_at_every_effect, play

from ...callers import Issuer, demo

MINUTE = 60_000_000
ISSUER = Issuer()
DATABASES = (Database("main", "sqlite://"), Database("second", "sqlite://"))
ONE = RefusalCount(1, "192.0.2.1", "/me", 401, 1)


def counting(*minutes: int) -> WriteRefusals:
    """Return what writes a refusal of each of `minutes`."""
    counter = RefusalCounter()
    for minute in minutes:
        counter.count(minute * MINUTE, "192.0.2.1", "/me", 401)
    return WriteRefusals(counter, "main")


def added(*counted: RefusalCount, forgets: bool = True) -> Transact[None]:
    return Transact("main", AddRefusals(counted, forgets))


# --- The rounds --------------------------------------------------------------------------------


def test_where_nothing_was_counted_nothing_is_asked() -> None:
    assert play(counting().round(), []) is False


def test_what_was_counted_in_a_minute_is_written_once_it_is_over() -> None:
    job = counting(1, 2)
    play(job.round(), [(Now(), 2 * MINUTE + 9), (added(ONE), None)])
    play(job.round(), [(Now(), 2 * MINUTE + 19)])
    play(job.round(), [(Now(), 3 * MINUTE), (added(evolve(ONE, minute=2), forgets=False), None)])

    assert play(job.round(), []) is False


def test_the_table_is_made_to_forget_once_an_hour() -> None:
    job = counting()
    for minute, forgets in ((1, True), (29, False), (58, False), (60, True), (61, False)):
        job.counter.count(minute * MINUTE, "192.0.2.1", "/me", 401)
        unit = added(evolve(ONE, minute=minute), forgets=forgets)
        play(job.round(), [(Now(), (minute + 1) * MINUTE), (unit, None)])


@pytest.mark.parametrize("failure", [Unavailable("gone"), CommitLost("lost")], ids=str)
def test_what_could_not_be_written_is_written_at_the_next_round(failure: Exception) -> None:
    job = counting(1)
    with pytest.raises(type(failure)):
        play(job.round(), [(Now(), 2 * MINUTE), (added(ONE), failure)])
    job.counter.count(MINUTE, "192.0.2.1", "/me", 401)

    play(job.round(), [(Now(), 2 * MINUTE), (added(evolve(ONE, count=2)), None)])


def test_what_is_under_way_when_a_round_is_closed_is_kept() -> None:
    job = counting(1)
    script = [(Now(), 2 * MINUTE), (added(ONE), None)]
    assert close_at_every_effect(counting(1).round, script) == 2
    cut = job.round()
    assert [next(cut), cut.send(2 * MINUTE)] == [effect for effect, _ in script]
    cut.close()

    assert job.counter.take() == (ONE,)


def test_two_do_not_write_at_once() -> None:
    job = counting(1)
    first = job.round()
    assert next(first) == Now()
    assert first.send(2 * MINUTE) == added(ONE)
    job.counter.count(0, "192.0.2.1", "/me", 401)

    assert play(job.round(), []) is False
    first.close()


def test_lines_that_the_log_does_not_have_are_told_once() -> None:
    job = counting(1)
    for _ in range(150):
        job.counter.may_log(0)
    told = Log("warning", "refusals_unlogged", (("lines", 50),))
    play(job.round(), [(Now(), MINUTE), (told, None)])

    play(job.round(), [(Now(), MINUTE)])


def test_a_round_that_fails_is_logged_and_the_next_one_is_soon() -> None:
    job = counting()

    assert job.pause == job.after_trouble == Sleep(10.0)
    assert job.log_trouble("warning", ()) == Log("warning", "refusals_failed", ())


# --- The end -----------------------------------------------------------------------------------


def test_at_the_end_all_is_written() -> None:
    job = counting(1, 2)
    script = [(Now(), 2 * MINUTE), (added(ONE, evolve(ONE, minute=2)), None)]
    play(job.end(), script)

    play(job.end(), [])


def test_what_cannot_be_written_at_the_end_is_logged_the_greatest_first() -> None:
    job = counting(1, 2, 2)
    fields = (("minute", 2), ("client", "192.0.2.1"), ("route", "/me"), ("status", 401))
    two = evolve(ONE, minute=2, count=2)
    script = [
        (Now(), 2 * MINUTE),
        (added(ONE, two), Unavailable("gone")),
        (Log("warning", "refusals_unwritten", (*fields, ("count", 2))), None),
        (Log, None),
    ]
    play(job.end(), script)

    assert not job.counter


def test_the_log_of_a_flood_at_the_end_is_short() -> None:
    job = counting()
    for number in range(5_000):
        job.counter.count(0, f"client {number}", "/me", 401)
    script = [(Now(), 0), (Transact, Unavailable("gone")), *[(Log, None)] * 100]

    play(job.end(), script)


@pytest.mark.parametrize("done", [True, False])
def test_the_end_waits_for_who_is_writing(done: bool) -> None:
    job = counting(1)
    first = job.round()
    assert next(first) == Now()
    first.send(2 * MINUTE)
    end = job.end()
    assert next(end) == Sleep(0.05)
    if done:
        first.close()
        assert end.send(None) == Now()
        assert end.send(2 * MINUTE) == added(ONE)
        end.close()
    else:
        play(end, [(Sleep(0.05), None)] * 19)


# --- On a platform -----------------------------------------------------------------------------


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(lambda: demo(ISSUER, databases=DATABASES)) as client:
        yield client


def stored(client: Client, database: str = "main") -> list[tuple[str, int, int]]:
    unit = ListRefusals(RefusalPlace(1 << 40), 0, 100)

    def read() -> Program[tuple[RefusalCount, ...]]:
        return (yield from Transact(database, unit))

    rows = client.simulation.run(read())
    return [(row.route, row.status, row.count) for row in rows]


def test_refusals_are_in_the_first_database_a_minute_later(client: Client) -> None:
    for target in ("/agents", "/agents", "/nowhere"):
        client.get(target)
    assert stored(client) == []
    client.advance(75.0)

    assert stored(client) == [("/agents", 401, 2), ("*", 401, 1)]
    assert stored(client, "second") == []


def test_two_nodes_add_up(client: Client) -> None:
    with client.peer(lambda: demo(ISSUER, databases=DATABASES)) as other:
        client.get("/agents")
        other.get("/agents")
        client.advance(75.0)
        other.advance(1.0)

        assert stored(client) == [("/agents", 401, 2)]


def test_a_process_that_ends_has_written_its_refusals(client: Client) -> None:
    client.get("/agents")
    assert isinstance(client.platform, Platform)
    client.simulation.run(client.platform.shutdown(0.0), node=client.node)

    assert stored(client) == [("/agents", 401, 1)]


def test_a_process_that_is_killed_loses_its_last_minute_alone(client: Client) -> None:
    client.get("/agents")
    client.advance(75.0)
    client.get("/agents")
    client.restart()
    client.advance(75.0)

    assert stored(client) == [("/agents", 401, 1)]


def test_a_bounded_round_writes_them_too(client: Client) -> None:
    with Client(lambda: demo(ISSUER), jobs=False) as frozen:
        frozen.get("/agents")
        frozen.advance(60.0)
        assert isinstance(frozen.platform, Platform)
        frozen.simulation.run(frozen.platform.round())

        assert stored(frozen) == [("/agents", 401, 1)]
