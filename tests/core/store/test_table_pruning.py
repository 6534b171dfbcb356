"""Tables without sessions are read along their keys, and what is old in them goes."""

from __future__ import annotations

from typing import Final

import pytest

from legation.store import table_pruning
from legation.store.periods import Kind, Periods
from legation.store.retention import CountOld
from legation.store.run_rows import DAY_US
from legation.store.usage import FetchUsage

from ...old_data import NODE, NOW_US, OLD_US, YOUNG_US, plant, sweep
from ...one_database import Database

KINDS: Final = tuple(Kind)[4:-1]
GONE: Final = {
    Kind.MESSAGES: {"inbox": 1, "outbox": 0},
    Kind.DEAD_LETTERS: {"outbox": 1},
    Kind.ANSWERS: {"idempotency": 1},
    Kind.INCIDENTS: {"incidents": 1},
    Kind.COUNTERS: {"refusals": 1},
}
TABLES: Final = ("inbox", "outbox", "idempotency", "incidents", "refusals", "usage")


@pytest.fixture
def database() -> Database:
    made = Database()
    for at_us, name in ((OLD_US, "old"), (YOUNG_US, "young")):
        made.clock_us = at_us
        made.enter(NODE)
        plant(made.run, at_us, name)
    made.clock_us = NOW_US
    return made


def count(database: Database) -> dict[str, int]:
    return {t: database.ask(f"select count(*) from {t}")[0][0] for t in TABLES}


@pytest.mark.parametrize("size", [1, 2, 1_000])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_old_goes_and_nothing_else(
    database: Database, kind: Kind, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_pruning, "BITE_ROWS", size)
    periods, before = Periods(**{kind.value: 30}), count(database)

    expected = sum(GONE[kind].values())
    assert database.run(CountOld(kind, periods, NOW_US)) == expected
    assert sweep(database.run, periods) == {kind.value: expected}
    after = count(database)
    assert {t: before[t] - after[t] for t in TABLES if before[t] != after[t]} == {
        table: number for table, number in GONE[kind].items() if number
    }
    assert database.run(CountOld(kind, periods, NOW_US)) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_one_after_the_other_all_goes_that_is_old(database: Database, kind: Kind) -> None:
    # Whoever asked under a key has removed the answer of the first one before.
    twice = 1 if kind is Kind.ANSWERS else 2

    assert sweep(database.run, Periods(**{kind.value: 5})) == {
        kind.value: twice * sum(GONE[kind].values())
    }


def test_what_was_sent_goes_and_what_waits_stays(database: Database) -> None:
    database.ask("update outbox set state = 'sent', sent_us = created_us")
    database.ask("update outbox set state = 'ready' where recipient = 'young'")

    assert sweep(database.run, Periods(messages=5, dead_letters=5)) == {"messages": 2}
    assert database.ask("select recipient from outbox") == [("young",)]
    assert database.ask("select sender from inbox") == [("young",)]  # its reply waits


def test_a_message_that_was_given_up_is_a_dead_letter(database: Database) -> None:
    database.ask("update inbox set state = 'dead'")

    assert sweep(database.run, Periods(messages=30)) == {}
    assert sweep(database.run, Periods(dead_letters=30), NOW_US + DAY_US) == {"dead_letters": 2}


def test_a_message_that_waits_is_never_old(database: Database) -> None:
    database.ask("update inbox set state = 'ready', done_us = null")

    assert sweep(database.run, Periods(messages=7, dead_letters=7)) == {"dead_letters": 2}
    assert count(database)["inbox"] == 2


def test_the_counter_of_who_keeps_nothing_goes_after_its_day(database: Database) -> None:
    database.ask("insert into usage (subject, bytes, day, tokens) values ('eve', 0, 1, 7)")
    database.ask(f"insert into usage (subject, bytes, day) values ('zoe', 0, {NOW_US // DAY_US})")

    assert sweep(database.run, Periods(counters=30)) == {"counters": 2}
    assert database.ask("select subject from usage order by 1") == [("ada",), ("zoe",)]
    assert database.run(FetchUsage("eve", "eve", NOW_US)).tokens == 0
