"""Messages that are gathered, on both engines: all or none, and only under the lease."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

import pytest

from legation.store.inbox import (
    INBOX,
    ClaimedMessage,
    CompleteMessage,
    GatherMessages,
    KeepMessage,
    ListWaiting,
    NewMessage,
    PostponeMessage,
    PutMessages,
    WaitingMessage,
)
from legation.store.leased_queue import ClaimItems

from ..drivers import Driver, PostgresDriver, SqliteDriver
from .migrating import with_tables

NODE = "n1"


@pytest.fixture
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Generator[Driver]:
    with closing(SqliteDriver(tmp_path_factory.mktemp("gather") / "main.db")) as driver:
        yield with_tables(driver)


@pytest.fixture
def postgresql(postgres: str) -> Generator[Driver]:
    with closing(PostgresDriver(postgres)) as driver:
        yield with_tables(driver)


@pytest.fixture(params=["sqlite", "postgresql"])
def driver(request: pytest.FixtureRequest) -> Driver:
    made: Driver = request.getfixturevalue(request.param)
    return made


def enter(driver: Driver) -> None:
    driver.ask(
        "insert into nodes (node_id, started_us, beat_us, until_us, code_version, schema_version)"
        f" values ('{NODE}', 0, 0, {1 << 62}, '', '')"
    )


def claim(driver: Driver) -> tuple[ClaimedMessage, ...]:
    return driver.run(ClaimItems(INBOX, NODE, 9, 20)).items


def put(driver: Driver, *names: str, sender: str = "ada") -> None:
    driver.run(PutMessages("c", tuple(NewMessage(n, sender, f"of {n}") for n in names), 5))


def test_what_waits_behind_a_message_is_done_with_it_and_put_off_with_it(driver: Driver) -> None:
    enter(driver)
    put(driver, "a", "b", "c", "d")
    put(driver, "e", sender="eve")
    first, other = claim(driver)
    assert driver.run(ListWaiting(first.lease, "ada", 2)) == (
        WaitingMessage("of b", 5),
        WaitingMessage("of c", 5),
    )
    assert driver.run(ListWaiting(other.lease, "eve", 9)) == ()

    assert driver.run(KeepMessage(first.lease, "learned"))
    assert driver.run(GatherMessages(first.lease, "r", "all", ("b", "c")))
    rows = driver.ask("select message_id, state, run_id, payload from inbox order by 1")
    assert rows == [
        ("a", "ready", "r", "all"),
        ("b", "done", "r", ""),  # what was said is in the run
        ("c", "done", "r", ""),
        ("d", "ready", None, "of d"),
        ("e", "ready", None, "of e"),
    ]

    assert driver.run(PostponeMessage(first.lease, 3_600_000_000))
    assert claim(driver) == ()  # `d` waits behind `a`, which waits for an hour
    assert driver.run(PostponeMessage(other.lease, 0))
    (again,) = claim(driver)
    assert (again.lease.key.item_id, again.lease.attempts) == ("e", 2)


def test_who_lost_the_lease_gathers_nothing_and_puts_nothing_off(driver: Driver) -> None:
    enter(driver)
    put(driver, "a", "b")
    (first,) = claim(driver)
    assert driver.run(PostponeMessage(first.lease, 0))
    (again,) = claim(driver)

    assert not driver.run(GatherMessages(first.lease, "r", "all", ("b",)))
    assert not driver.run(PostponeMessage(first.lease, 0))
    assert driver.run(CompleteMessage(again.lease, 9))
    assert driver.ask("select message_id, state, run_id from inbox order by 1") == [
        ("a", "done", None),
        ("b", "ready", None),
    ]
