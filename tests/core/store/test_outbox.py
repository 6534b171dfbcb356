"""The outbox, on the tables that the catalogue builds."""

from __future__ import annotations

from typing import Any

import pytest

from legation.store.inbox import INBOX, NewMessage, PutMessages
from legation.store.leased_queue import (
    ClaimedItems,
    ClaimItems,
    CompleteItem,
    CountItems,
    FailItem,
    ItemKey,
    ListItems,
    ListLeases,
    NextDue,
    QueueDepth,
    ReleaseLeases,
)
from legation.store.leases import FOREVER
from legation.store.letters import Retried, RetryDeadMessage
from legation.store.outbox import OUTBOX, ClaimedReply, NewReply
from legation.store.reply_outcomes import DelayReply, HoldChannel, MoveReply, Noted
from legation.store.units import Dialect

from ...one_database import Database
from ...put_replies import PutReplies


@pytest.fixture
def database() -> Database:
    """A database with two nodes, whose clock stands at the start."""
    made = Database()
    made.clock_us = 0
    made.enter("n1", "n2")
    return made


def put(database: Database, *keys: str, to: str = "ada", now: int = 0) -> tuple[str, ...]:
    database.clock_us = now
    return database.run(PutReplies("c", tuple(NewReply(k, to, f"text {k}") for k in keys), now))


def claim(
    database: Database, now: int, node: str = "n1", limit: int = 9
) -> ClaimedItems[ClaimedReply]:
    database.clock_us = now
    return database.run(ClaimItems(OUTBOX, node, limit, 20))


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
        assert database.run(CompleteItem(reply.lease))
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
    database.bury("n1")
    assert len(claim(database, 5, "n2", limit=1).items) == 1


def test_a_sent_reply_is_not_sent_again(database: Database) -> None:
    put(database, "r")
    lease = one(database, 5).lease

    assert database.run(CompleteItem(lease))
    assert claim(database, 99) == ClaimedItems()
    assert not database.run(CompleteItem(lease))
    assert database.ask("select state, sent_us, lease_by from outbox") == [("sent", 5, None)]


def test_who_lost_the_lease_changes_nothing(database: Database) -> None:
    put(database, "r")
    lost = one(database, 0).lease
    database.bury("n1")
    kept = one(database, 0, "n2").lease

    assert not database.run(CompleteItem(lost))
    assert not database.run(FailItem(lost, "it", None))
    assert database.ask("select state, lease_by, lease_us from outbox") == [
        ("ready", "n2", FOREVER)
    ]
    assert database.run(ReleaseLeases((lost, kept))) == 1
    assert database.ask("select state, lease_by, lease_us from outbox") == [("ready", None, None)]
    assert one(database, 0, "n2").lease.attempts == 3


@pytest.mark.parametrize(
    ("unit", "given"), [(DelayReply, ("down", 9)), (HoldChannel, ("401",)), (MoveReply, ("eve",))]
)
def test_who_lost_the_lease_neither_holds_nor_moves_nor_delays(
    database: Database, unit: type[Any], given: tuple[Any, ...]
) -> None:
    put(database, "r")
    lost = one(database, 0)
    database.bury("n1")
    one(database, 0, "n2")

    assert database.run(unit(lost, *given)) == Noted(kept=False)
    assert database.ask("select recipient, state, lease_by, spared from outbox") == [
        ("ada", "ready", "n2", 0)
    ]
    assert database.ask("select * from channel_states") == []
    assert database.ask("select * from channel_chats") == []


def test_a_failed_reply_waits_for_its_next_attempt(database: Database) -> None:
    put(database, "r")

    assert database.run(FailItem(one(database, 0).lease, "HTTP 503", 50))
    assert claim(database, 49).items == ()
    again = one(database, 50)
    assert again.lease.attempts == 2
    assert again.payload == "text r"


def test_a_reply_given_up_is_dead_and_frees_its_recipient(database: Database) -> None:
    put(database, "r1", "r2")

    assert database.run(FailItem(one(database, 5).lease, "HTTP 400", None))
    assert database.ask("select state, error from outbox where idempotency_key = 'r1'") == [
        ("dead", "HTTP 400")
    ]
    assert one(database, 6).lease.key.item_id == "r2"


def test_what_never_ends_is_buried(database: Database) -> None:
    put(database, "r")
    for node in ("n1", "n2"):
        assert database.run(ClaimItems(OUTBOX, node, 9, 2)).buried == ()
        database.bury(node)
    database.enter("n3")

    assert database.run(ClaimItems(OUTBOX, "n3", 9, 2)) == ClaimedItems((), (ItemKey("c", "r"),))


# --- who lives, and who does not -----------------------------------------------------------------


def test_a_lease_lasts_as_long_as_its_node_and_no_longer(database: Database) -> None:
    put(database, "r1", "r2")
    one(database, 0)

    assert claim(database, 99 * 365 * 86_400_000_000, "n2") == ClaimedItems()
    database.bury("n1")
    assert one(database, 0, "n2").lease.key.item_id == "r1"


def test_a_node_that_is_not_there_claims_nothing(database: Database) -> None:
    put(database, "r")
    database.bury("n1")

    assert claim(database, 0, "n1") == claim(database, 0, "stranger") == ClaimedItems()
    database.enter("n1")
    assert one(database, 0, "n1").lease.attempts == 1


def test_a_lane_is_free_when_the_node_of_its_lease_is_gone(database: Database) -> None:
    put(database, "r1", "r2")
    database.run(FailItem(one(database, 5).lease, "it", None))
    assert one(database, 7).lease.key.item_id == "r2"
    database.ask("update outbox set state = 'ready' where idempotency_key = 'r1'")

    assert claim(database, 9, "n2").items == ()
    database.bury("n1")
    assert one(database, 9, "n2").lease.key.item_id == "r1"


def test_a_lease_with_an_end_is_one_of_a_node_of_the_release_before(database: Database) -> None:
    put(database, "r1", "r2")
    database.ask(
        "update outbox set lease_by = 'old', lease_us = 30, attempts = 1"
        " where idempotency_key = 'r1'"
    )

    assert claim(database, 29) == ClaimedItems()
    assert database.run(CountItems(OUTBOX)) == (QueueDepth("c", 2, 1, 0, 0),)
    assert database.run(NextDue(OUTBOX)) == 30
    assert one(database, 30).lease.attempts == 2


def test_replies_are_due_by_the_clock_of_the_database(database: Database) -> None:
    """The node that stored them is 90 s ahead, the one that sends them as far behind."""
    reply = NewReply("r", "ada", "")
    database.run(PutReplies("c", (reply,), 90_000_000))

    (claimed,) = database.run(ClaimItems(OUTBOX, "n1", 9, 20)).items
    assert claimed.created_us == 90_000_000
    assert database.run(FailItem(claimed.lease, "it", 10))
    assert database.run(NextDue(OUTBOX)) == 10


def test_the_next_is_due_when_the_lease_of_its_lane_ends_unless_the_node_beats_again(
    database: Database,
) -> None:
    assert database.run(NextDue(OUTBOX)) is None
    put(database, "r1", "r2", now=5)
    assert database.run(NextDue(OUTBOX, ("c",))) == 0
    assert database.run(NextDue(OUTBOX, ("d",))) is None
    one(database, 5)

    database.clock_us = 7
    (until_us, up_us) = database.ask(
        "select until_us, up_us from nodes, cluster where node_id = 'n1'"
    )[0]
    assert database.run(NextDue(OUTBOX)) == 7 + until_us - up_us
    database.bury("n1")
    assert database.run(NextDue(OUTBOX)) == 0


def test_the_leases_of_both_queues_are_listed(database: Database) -> None:
    put(database, "r")
    database.run(PutMessages("c", (NewMessage("m", "ada", "text"),), 0))
    (reply,) = claim(database, 0).items
    (message,) = database.run(ClaimItems(INBOX, "n1", 9, 20)).items

    assert database.run(ListLeases((INBOX, OUTBOX), "n1")) == (message.lease, reply.lease)
    assert database.run(ReleaseLeases((message.lease, reply.lease))) == 2
    assert database.run(ListLeases((INBOX, OUTBOX), "n1")) == ()


def test_an_operator_revives_a_dead_reply(database: Database) -> None:
    database.run(PutMessages("c", (NewMessage("m", "ada", "text"),), 0))
    database.run(PutReplies("c", (NewReply("r", "ada", "text", "m"),), 1))
    assert database.run(RetryDeadMessage("c", "m")) == Retried(message=False, replies=0)
    database.run(FailItem(one(database, 5).lease, "it", None))

    assert database.run(RetryDeadMessage("c", "m")) == Retried(message=False, replies=1)
    assert database.run(RetryDeadMessage("c", "m")) == Retried(message=False, replies=0)
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
            database.run(FailItem(reply.lease, "it", None))

    assert database.run(CountItems(OUTBOX)) == (QueueDepth("c", 2, 1, 1, 3),)
    assert Database().run(CountItems(OUTBOX)) == ()


def test_on_postgresql_claims_take_turns() -> None:
    unit = ClaimItems(OUTBOX, "n1", 9, 20)
    statements = unit.statements(Dialect.POSTGRESQL)

    assert next(statements).sql is OUTBOX.any_idle
    lock = statements.send([(1,)])
    assert lock.sql is OUTBOX.lock
    assert "pg_advisory_xact_lock" in lock.text(Dialect.POSTGRESQL)


def test_on_postgresql_nobody_takes_turns_for_nothing() -> None:
    statements = ClaimItems(OUTBOX, "n1", 9, 20).statements(Dialect.POSTGRESQL)
    next(statements)

    with pytest.raises(StopIteration) as ended:
        statements.send([])
    assert ended.value.value == ClaimedItems()


def test_no_text_and_no_number_shows(database: Database) -> None:
    put(database, "r", to="+1555")

    assert "555" not in repr(claim(database, 5))
    assert "text r" not in repr(NewReply("r", "+1555", "text r"))
