"""Dead letters, many at once: which are chosen, what becomes of them, and how many are left."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pytest

from legation.store.dead_letters import (
    ChooseLetters,
    Chosen,
    CountChosen,
    DiscardLetters,
    FetchReply,
    ListChosen,
    RetryLetters,
)
from legation.store.inbox import INBOX, NewMessage, PutMessages
from legation.store.leased_queue import ClaimItems, FailItem, LeasedQueue
from legation.store.outbox import OUTBOX, NewReply, PutReply
from legation.store.units import Dialect, Undo

from ...one_database import Database

QUEUES: Final[dict[str, LeasedQueue[Any, Any]]] = {"inbox": INBOX, "outbox": OUTBOX}


def kill(database: Database, error: str = "no") -> None:
    for queue in QUEUES.values():
        while items := database.run(ClaimItems(queue, "n", 99, 20)).items:
            for item in items:
                database.run(FailItem(item.lease, error, None))


def put(database: Database, names: Iterable[str], at_us: int, channel: str = "c") -> None:
    for name in names:
        database.run(PutMessages(channel, (NewMessage(name, name, "text"),), at_us))
        database.run(PutReply(channel, NewReply(name, name, "text"), at_us))


@pytest.fixture
def database() -> Database:
    """Three dead messages and three dead replies of a channel, one of each in another."""
    made = Database()
    made.clock_us = 9
    made.enter("n")
    put(made, ("a", "b"), 1)
    kill(made, "HTTP 500: 100%")
    put(made, ("c",), 5)
    put(made, ("a",), 5, "other")
    kill(made, "HTTP 400")
    return made


def states(database: Database, table: str, channel: str = "c") -> dict[str, str]:
    name = {"inbox": "message_id", "outbox": "idempotency_key"}[table]
    rows = database.ask(f"select {name}, state from {table} where channel = '{channel}'")
    return dict(rows)


def choose(table: str, limit: int = 1_000, **more: Any) -> ChooseLetters:
    return ChooseLetters("c", QUEUES[table], limit, **more)


BOTH = pytest.mark.parametrize("table", ["inbox", "outbox"])


@BOTH
@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({}, "abc"),
        ({"ids": ("b", "no-such")}, "b"),
        ({"ids": ()}, ""),
        ({"error": "500"}, "ab"),
        ({"error": "100%"}, "ab"),
        ({"error": "%"}, "ab"),
        ({"error": "_"}, ""),
        ({"since_us": 5}, "c"),
        ({"until_us": 5}, "ab"),
        ({"ids": ("a", "c"), "error": "400"}, "c"),
    ],
)
def test_letters_are_chosen_by_ids_or_by_a_filter(
    database: Database, table: str, more: dict[str, Any], found: str
) -> None:
    expected = Chosen(tuple(found), 0)

    assert database.run(RetryLetters(choose(table, **more))) == expected
    alive = {name for name, state in states(database, table).items() if state == "ready"}
    assert alive == set(found)
    assert states(database, table, "other") == {"a": "dead"}


@BOTH
def test_the_oldest_come_first_and_the_rest_is_counted(database: Database, table: str) -> None:
    assert database.run(RetryLetters(choose(table, 1))) == Chosen(("a",), 2)
    assert database.run(RetryLetters(choose(table, 1))) == Chosen(("b",), 1)
    assert database.run(DiscardLetters(choose(table, 1))) == Chosen(("c",), 0)


@BOTH
def test_they_are_listed_page_by_page_the_oldest_first(database: Database, table: str) -> None:
    queue = QUEUES[table]
    first = database.run(ListChosen(choose(table, 2)))
    rest = database.run(ListChosen(choose(table, 2), queue.place(first[-1])))

    assert [queue.place(row)[-1] for row in (*first, *rest)] == ["a", "b", "c"]
    assert [row.error for row in rest] == ["HTTP 400"]
    assert database.run(ListChosen(choose(table, 2), queue.place(rest[-1]))) == ()


@BOTH
@pytest.mark.parametrize(
    ("more", "count"), [({}, 3), ({"error": "500"}, 2), ({"ids": ("c", "x")}, 1), ({"ids": ()}, 0)]
)
def test_they_are_counted_beyond_a_page(
    database: Database, table: str, more: dict[str, Any], count: int
) -> None:
    assert database.run(CountChosen(choose(table, 1, **more))) == count
    assert len(database.run(ListChosen(choose(table, **more)))) == count


@BOTH
def test_where_nothing_is_chosen_nothing_is_kept(table: str) -> None:
    unit = RetryLetters(choose(table)).statements(Dialect.SQLITE)
    next(unit)  # asks whether the channel is held
    unit.send(())
    with pytest.raises(StopIteration) as end:
        unit.send(())

    assert end.value.value == Undo(Chosen((), 0))


def test_a_discarded_message_stays_so_that_it_does_not_come_again(database: Database) -> None:
    assert database.run(DiscardLetters(choose("inbox"))) == Chosen(("a", "b", "c"), 0)

    assert set(states(database, "inbox").values()) == {"done"}
    errors = database.ask("select distinct error, done_us from inbox where channel = 'c'")
    assert errors == [("discarded", 9)]
    assert database.run(PutMessages("c", (NewMessage("a", "a", "text"),), 9)) == ()
    assert not database.run(ClaimItems(INBOX, "n", 9, 20)).items


def test_a_discarded_reply_is_gone(database: Database) -> None:
    database.run(DiscardLetters(choose("outbox", ids=("a",))))

    assert states(database, "outbox") == {"b": "dead", "c": "dead"}
    assert database.run(FetchReply("c", "a")) is None
    assert database.run(FetchReply("c", "b")) == "dead"


@BOTH
def test_what_is_revived_is_claimed_again(database: Database, table: str) -> None:
    database.run(RetryLetters(choose(table)))
    queue: Any = INBOX if table == "inbox" else OUTBOX

    claimed = database.run(ClaimItems(queue, "n", 9, 20)).items
    assert sorted(item.lease.key.item_id for item in claimed) == ["a", "b", "c"]
    assert {item.lease.attempts for item in claimed} == {2}


def test_a_reply_is_put_once(database: Database) -> None:
    reply = NewReply("key", "49", "text")

    assert database.run(PutReply("c", reply, 1))
    assert not database.run(PutReply("c", reply, 1))
