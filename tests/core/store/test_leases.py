"""Leases: held as long as the node is there, or until their end where an older release wrote it."""

from __future__ import annotations

from contextlib import closing
from sqlite3 import connect
from typing import Any

import pytest

from legation.store.inbox import INBOX, NewMessage, PutMessages
from legation.store.leased_queue import ClaimItems, LeasedQueue, NextDue
from legation.store.leases import FOREVER, LONGEST_WAIT_US, end_of_lease, has_lapsed, is_held
from legation.store.outbox import OUTBOX
from legation.store.run_keeping import ANY_EXPIRY
from legation.store.units import Dialect

from ...one_database import Database

NOW = 1_767_225_600_000_000


def ask(lease_by: str | None, lease_us: int | None) -> tuple[int, int, int]:
    """Return whether a row is held, whether its lease has lapsed, and when it is over."""
    with closing(connect(":memory:")) as connection:
        connection.execute("create table nodes (node_id, until_us)")
        connection.execute("insert into nodes values ('alive', 700)")
        connection.execute("create table cluster (up_us)")
        connection.execute("insert into cluster values (500)")
        connection.execute("create table work (lease_by, lease_us)")
        connection.execute("insert into work values (?, ?)", (lease_by, lease_us))
        found = connection.execute(
            f"""select coalesce({is_held("w")}, 0), coalesce({has_lapsed("w")}, 0),
            {end_of_lease("w")} from work w""".replace("$CLOCK", str(NOW))
        )
        ((held, lapsed, end_us),) = found
    return held, lapsed, end_us


@pytest.mark.parametrize(
    ("lease_by", "lease_us", "held"),
    [
        ("alive", FOREVER, True),
        ("dead", FOREVER, False),
        ("ALIVE", FOREVER, False),
        ("of the release before", NOW + 1_000_000, True),
        ("of the release before", NOW - 1_000_000, False),
        ("alive", 0, False),
    ],
)
def test_a_lease_is_held_or_has_lapsed_and_never_both(
    lease_by: str, lease_us: int, held: bool
) -> None:
    assert ask(lease_by, lease_us)[:2] == (held, not held)


def test_what_has_no_lease_is_neither_held_nor_lapsed() -> None:
    assert ask(None, None)[:2] == (0, 0)


def test_a_lease_ends_when_its_node_has_not_beaten_again() -> None:
    assert ask("alive", FOREVER)[2] == NOW + 200
    assert ask("dead", FOREVER)[2] == 0
    assert ask("of the release before", 77)[2] == 77


def test_each_engine_is_asked_for_its_own_clock() -> None:
    statement = ANY_EXPIRY()

    assert "julianday" in statement.text(Dialect.SQLITE)
    assert "clock_timestamp()" in statement.text(Dialect.POSTGRESQL)


HOUR_US = 3600 * 1_000_000
CLOCK = "cast((julianday('now') - 2440587.5) * 86400000000 as integer)"


def database_with(table: str, attempts: int, wait_us: int) -> Database:
    """Return a database in which one item waits for so long from now on."""
    database = Database()
    database.connection.execute(
        """insert into nodes (node_id, started_us, beat_us, code_version, schema_version)
        values ('n', 0, 0, '', '')"""
    )
    if table == "inbox":
        database.run(PutMessages("c", (NewMessage("m", "ada", "{}"),), 1))
    else:
        database.connection.execute(
            """insert into outbox (channel, idempotency_key, recipient, payload, created_us,
            ready_us) values ('c', 'k', 'ada', '{}', 1, 1)"""
        )
    database.connection.execute(
        f"update {table} set attempts = {attempts}, ready_us = {CLOCK} + {wait_us}"
    )
    return database


@pytest.mark.parametrize("queue", [INBOX, OUTBOX], ids=repr)
@pytest.mark.parametrize(
    ("attempts", "wait_us", "due"),
    [
        (0, -HOUR_US, True),
        (0, HOUR_US, True),
        (0, 400 * LONGEST_WAIT_US, True),
        (1, -400 * LONGEST_WAIT_US, True),
        (1, -HOUR_US, True),
        (1, HOUR_US, False),
        (1, LONGEST_WAIT_US - HOUR_US, False),
        (1, LONGEST_WAIT_US + HOUR_US, True),
        (1, 400 * LONGEST_WAIT_US, True),
    ],
)
def test_clock_that_is_set_back_makes_nothing_wait_longer_than_there_is_to_wait(
    queue: LeasedQueue[Any, Any], attempts: int, wait_us: int, due: bool
) -> None:
    database = database_with(queue.table, attempts, wait_us)

    assert (database.run(NextDue(queue)) == 0) is due
    assert len(database.run(ClaimItems(queue, "n", 9, 20)).items) == due
