"""Names of nodes that sessions of PostgreSQL hold: a suspicion, and no more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any, Final

import anyio
import anyio.to_thread
import psycopg
import pytest

from legation import Platform
from legation.config import Agent, Database
from legation.effects import HoldName, NameHeld, Program
from legation.store.nodes import BEATS, SESSION_LOCKS, Beat, Bury
from legation_host.hosting import open_platform
from legation_host.postgres import PostgresDatabase

from ..engines import Cluster
from .host_units import BACKENDS, Lines, run
from .test_hints import Talking, kill, until

LEASE_US: Final = 30_000_000
BEAT_US: Final = LEASE_US // BEATS

COUNT: Final = """select count(*) from pg_locks where locktype = 'advisory' and classid = %s
    and database = (select oid from pg_database where datname = current_database())"""


def held_in(url: str) -> int:
    """Count the names that sessions hold in the database of `url`."""
    with psycopg.connect(url) as connection:
        row = connection.execute(COUNT, (SESSION_LOCKS,)).fetchone()
    assert row is not None
    return int(row[0])


@contextlib.contextmanager
def session(url: str, *names: str) -> Generator[None]:
    """A session that holds names, as a node on another host does."""
    with psycopg.connect(url, autocommit=True) as connection:
        for name in names:
            statement = "select pg_try_advisory_lock(%s, hashtext(%s))"
            assert connection.execute(statement, (SESSION_LOCKS, name)).fetchone() == (True,)
        yield


# --- Sessions


@BACKENDS
def test_a_name_is_held_soon_and_again_after_the_connection_was_killed(
    backend: str, postgres_database: str
) -> None:
    one = Talking(postgres_database, 1)

    async def main() -> None:
        (hints,) = one.hints
        assert not hints.hold("node")  # there is no connection yet
        async with one.connected():
            await until(lambda: hints.hold("node"))
            assert held_in(postgres_database) == 1
            await anyio.to_thread.run_sync(kill, postgres_database)
            await until(lambda: not hints.hold("node"))
            await until(lambda: hints.hold("node"))
            assert held_in(postgres_database) == 1
            assert one.log.events == ["hints_lost", "hints_restored"]
        await until(lambda: held_in(postgres_database) == 0)
        assert not hints.hold("node")

    run(backend, main)


def test_a_name_that_another_session_holds_is_taken_when_that_has_ended(
    postgres_database: str,
) -> None:
    one = Talking(postgres_database, 1)

    async def main() -> None:
        async with one.connected() as (hints,):
            with session(postgres_database, "node"):
                for _ in range(20):
                    assert not hints.hold("node")
                    await anyio.sleep(0.01)
                await until(lambda: hints.hold("another"))
            await until(lambda: hints.hold("node"))
            assert one.log == []

    run("trio", main)


def test_hints_go_on_while_names_are_held(postgres_database: str) -> None:
    two = Talking(postgres_database, 2)

    async def main() -> None:
        async with two.connected() as (one, other):
            for number in range(50):
                one.hold(f"node {number}")
                one.nudge(f"topic {number}")
            await until(lambda: other.heard == 50)
            await until(lambda: all(one.hold(f"node {number}") for number in range(50)))
            assert held_in(postgres_database) == 50

    run("trio", main)


def test_a_name_that_no_database_can_store_ends_nothing(postgres_database: str) -> None:
    one = Talking(postgres_database, 1)

    async def main() -> None:
        async with one.connected() as (hints,):
            for name in ("\udcff", "", "é\U0001f600", "x" * 5_000):
                hints.hold(name)
            await until(lambda: hints.hold("node"))
            assert one.log == []

    run("trio", main)


def ask(name: str) -> Program[NameHeld]:
    return (yield from HoldName("main", name))


@pytest.mark.parametrize("parameter", ["", "?hints=false"], ids=["with hints", "without"])
def test_a_host_says_whether_a_session_holds_its_name(
    postgres_database: str, parameter: str
) -> None:
    platform = Platform(
        databases=(Database("main", postgres_database + parameter, auto_migrate=True),),
        agents=(Agent(id="echo"),),
    )

    async def main() -> None:
        async with open_platform(platform, jobs=False) as host:
            found = await host.run(ask("node"))
            if parameter:
                assert not found.session
                assert not (await host.run(ask("node"))).session
                return
            with anyio.fail_after(20):
                while not found.session:
                    await anyio.sleep(0.01)
                    again = await host.run(ask("node"))
                    assert again.place == found.place != ""
                    found = again

    run("trio", main)


# --- Who is taken for dead


@pytest.fixture
def nodes(postgres_database: str) -> Generator[Callable[[Any], Any]]:
    """Runs a unit in a database with the schema, whose up-time is far from its start."""
    platform = Platform(databases=(Database("main", postgres_database, auto_migrate=True),))

    async def migrate() -> None:
        async with open_platform(platform, jobs=False):
            pass

    anyio.run(migrate)
    with psycopg.connect(postgres_database) as connection:
        connection.execute("update cluster set up_us = 1000000000")
        connection.execute("delete from nodes")
    database = PostgresDatabase("main", postgres_database, Lines().write)
    yield database.run_unit
    anyio.run(database.aclose)


def beat(node: str, *, session_lock: bool) -> Beat:
    return Beat(node, LEASE_US, 0, (), "", session_lock, "0", "0")


AGES: Final = {"fresh": 0, "one beat": 1, "two beats": 2}


@pytest.mark.parametrize("age", AGES)
@pytest.mark.parametrize("lock", ["held", "free", "in another database", "of another name", "none"])
def test_a_free_lock_is_a_death_only_after_two_beats_without_one(
    nodes: Callable[[Any], Any],
    postgres_cluster: Cluster,
    postgres_database: str,
    lock: str,
    age: str,
) -> None:
    with contextlib.ExitStack() as stack:
        if lock == "held":
            stack.enter_context(session(postgres_database, "a"))
        elif lock == "in another database":
            stack.enter_context(session(postgres_cluster.url(), "a"))
        elif lock == "of another name":
            stack.enter_context(session(postgres_database, "b", "A", "a "))
        nodes(beat("a", session_lock=lock != "none"))
        with psycopg.connect(postgres_database) as connection:
            passed = AGES[age] * BEAT_US + 1
            connection.execute("update nodes set beat_us = beat_us - %s", (passed,))

        beaten = nodes(beat("looks", session_lock=False))

        dead = lock not in ("held", "none") and AGES[age] >= 2
        assert beaten.buried == (("a",) if dead else ())
        assert [node.name for node in beaten.others] == ([] if dead else ["a"])


def test_who_has_yet_to_beat_after_an_outage_is_not_suspected_for_a_session_that_ended_in_it(
    nodes: Callable[[Any], Any], postgres_database: str
) -> None:
    for name in ("slow", "looks"):
        nodes(beat(name, session_lock=True))
    with psycopg.connect(postgres_database) as connection:
        connection.execute("update nodes set beat_us = beat_us - %s", (BEAT_US,))
        connection.execute("update cluster set seen_us = seen_us - 3600000000")

    back = nodes(beat("looks", session_lock=True))
    with psycopg.connect(postgres_database) as connection:
        connection.execute("update cluster set up_us = up_us + 3 * %s", (BEAT_US,))
    later = nodes(beat("looks", session_lock=True))

    assert (back.gap, back.buried, later.gap, later.buried) == (True, (), False, ())
    nodes(beat("slow", session_lock=True))
    with psycopg.connect(postgres_database) as connection:
        connection.execute("update cluster set up_us = up_us + 3 * %s", (BEAT_US,))
    assert nodes(beat("looks", session_lock=True)).buried == ("slow",)


def test_a_session_that_holds_the_name_does_not_save_who_is_silent_for_a_lease(
    nodes: Callable[[Any], Any], postgres_database: str
) -> None:
    with session(postgres_database, "a"):
        nodes(beat("a", session_lock=True))
        with psycopg.connect(postgres_database) as connection:
            connection.execute("update nodes set until_us = until_us - %s", (LEASE_US + 1,))
        assert nodes(beat("looks", session_lock=False)).buried == ("a",)


def test_names_with_hashes_of_either_sign_are_found(
    nodes: Callable[[Any], Any], postgres_database: str
) -> None:
    names = [f"node-{number}" for number in range(40)]
    with psycopg.connect(postgres_database) as connection:
        row = connection.execute(
            "select count(*) filter (where hashtext(n) < 0) from unnest(%s::text[]) n", (names,)
        ).fetchone()
    assert row is not None
    assert 0 < row[0] < 40
    with session(postgres_database, *names[:20]):
        for name in names:
            nodes(beat(name, session_lock=True))
        with psycopg.connect(postgres_database) as connection:
            connection.execute("update nodes set beat_us = beat_us - %s", (3 * BEAT_US,))
        buried = nodes(beat("looks", session_lock=False)).buried
        assert sorted(buried) == sorted(names[20:])
        assert nodes(Bury(("looks",))) == ("looks",)
