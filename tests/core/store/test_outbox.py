"""The outbox, on the tables that the catalogue builds."""

from __future__ import annotations

import pytest

from legation.store.inbox import NewMessage, PutMessages
from legation.store.leased_queue import (
    ClaimedItems,
    ClaimItems,
    CompleteItem,
    CountItems,
    ExtendLeases,
    FailItem,
    ItemKey,
    ListItems,
    QueueDepth,
)
from legation.store.letters import Retried, RetryDeadMessage
from legation.store.outbox import OUTBOX, ClaimedReply, NewReply
from legation.store.units import Dialect

from ...one_database import Database
from ...put_replies import PutReplies


@pytest.fixture
def database() -> Database:
    return Database()


def put(database: Database, *keys: str, to: str = "ada", now: int = 0) -> tuple[str, ...]:
    return database.run(PutReplies("c", tuple(NewReply(k, to, f"text {k}") for k in keys), now))


def claim(
    database: Database, now: int, node: str = "n1", limit: int = 9
) -> ClaimedItems[ClaimedReply]:
    return database.run(ClaimItems(OUTBOX, node, now, now + 30, limit, 20))


def one(database: Database, now: int, node: str = "n1") -> ClaimedReply:
    (reply,) = claim(database, now, node).items
    return reply


def test_a_key_is_stored_once(database: Database) -> None:
    assert put(database, "r1", "r2", "r1") == ("r1", "r2")
    assert put(database, "r2", now=5) == ()
    assert database.ask("select idempotency_key, payload from outbox") == [
        ("r1", "text r1"),
        ("r2", "text r2"),
    ]


def test_the_parts_of_an_answer_are_sent_in_order(database: Database) -> None:
    keys = tuple(f"reply-a-{part}" for part in range(1, 13))
    put(database, *keys)
    sent: list[str] = []
    for now in range(20, 32):
        reply = one(database, now)
        assert claim(database, now, "n2").items == ()
        assert database.run(CompleteItem(reply.lease, now))
        sent.append(reply.lease.key.item_id)

    assert tuple(sent) == keys


def test_recipients_do_not_wait_for_each_other(database: Database) -> None:
    put(database, "a1", "a2", to="ada")
    put(database, "b1", to="bob", now=1)

    replies = claim(database, 5).items

    assert [(r.recipient, r.payload, r.created_us) for r in replies] == [
        ("ada", "text a1", 0),
        ("bob", "text b1", 1),
    ]
    assert len(claim(database, 36, limit=1).items) == 1


def test_a_sent_reply_is_not_sent_again(database: Database) -> None:
    put(database, "r")
    lease = one(database, 5).lease

    assert database.run(CompleteItem(lease, 6))
    assert claim(database, 99) == ClaimedItems()
    assert not database.run(CompleteItem(lease, 7))
    assert database.ask("select state, sent_us, lease_by from outbox") == [("sent", 6, None)]


def test_who_lost_the_lease_changes_nothing(database: Database) -> None:
    put(database, "r")
    lost = one(database, 0).lease
    kept = one(database, 30, "n2").lease

    assert not database.run(CompleteItem(lost, 31))
    assert not database.run(FailItem(lost, "it", None, 31))
    assert database.run(ExtendLeases((lost, kept), 31, 99)) == (kept,)
    assert database.run(ExtendLeases((kept,), 99, 120)) == ()
    assert database.ask("select state, lease_by, lease_us from outbox") == [("ready", "n2", 99)]


def test_a_failed_reply_waits_for_its_next_attempt(database: Database) -> None:
    put(database, "r")

    assert database.run(FailItem(one(database, 0).lease, "HTTP 503", 50, 6))
    assert claim(database, 49).items == ()
    again = one(database, 50)
    assert again.lease.attempts == 2
    assert again.payload == "text r"


def test_a_reply_given_up_is_dead_and_frees_its_recipient(database: Database) -> None:
    put(database, "r1", "r2")

    assert database.run(FailItem(one(database, 5).lease, "HTTP 400", None, 6))
    assert database.ask("select state, error from outbox where idempotency_key = 'r1'") == [
        ("dead", "HTTP 400")
    ]
    assert one(database, 6).lease.key.item_id == "r2"


def test_what_never_ends_is_buried(database: Database) -> None:
    put(database, "r")
    for now in (0, 30):
        database.run(ClaimItems(OUTBOX, "n1", now, now + 30, 9, 2))

    assert database.run(ClaimItems(OUTBOX, "n2", 60, 90, 9, 2)) == ClaimedItems(
        (), (ItemKey("c", "r"),)
    )


def test_an_operator_revives_a_dead_reply(database: Database) -> None:
    database.run(PutMessages("c", (NewMessage("m", "ada", "text"),), 0))
    put(database, "r")
    assert database.run(RetryDeadMessage("c", "m", ("r",), 1)) == Retried(message=False, replies=0)
    database.run(FailItem(one(database, 5).lease, "it", None, 6))

    assert database.run(RetryDeadMessage("c", "m", ("r",), 7)) == Retried(message=False, replies=1)
    assert database.run(RetryDeadMessage("c", "m", ("r",), 8)) == Retried(message=False, replies=0)
    assert one(database, 8).lease.attempts == 2


def test_replies_are_listed_newest_first_page_by_page(database: Database) -> None:
    put(database, "a", "b", "c")

    first = database.run(ListItems(OUTBOX, "c", "ready", 2))
    place = (first[-1].created_us, first[-1].idempotency_key)
    rest = database.run(ListItems(OUTBOX, "c", "ready", 9, place))

    assert [row.idempotency_key for row in (*first, *rest)] == ["c", "b", "a"]
    assert database.run(ListItems(OUTBOX, "c", "sent", 9)) == ()
    assert "ada" not in repr(rest)


def test_what_waits_is_counted_by_channel(database: Database) -> None:
    put(database, "a1", "a2", now=3)
    put(database, "b1", to="bob", now=1)
    for reply in claim(database, 5).items:
        if reply.recipient == "bob":
            database.run(FailItem(reply.lease, "it", None, 5))

    assert database.run(CountItems(OUTBOX, 6)) == (QueueDepth("c", 2, 1, 1, 3),)
    assert Database().run(CountItems(OUTBOX, 0)) == ()


def test_on_postgresql_claims_take_turns() -> None:
    unit = ClaimItems(OUTBOX, "n1", 0, 30, 9, 20)
    first = next(unit.statements(Dialect.POSTGRESQL))

    assert first.sql is OUTBOX.lock
    assert "pg_advisory_xact_lock" in first.text(Dialect.POSTGRESQL)


def test_no_text_and_no_number_shows(database: Database) -> None:
    put(database, "r", to="+1555")

    assert "555" not in repr(claim(database, 5))
    assert "text r" not in repr(NewReply("r", "+1555", "text r"))
