"""The inbox, on the tables that the catalogue builds.

How the statements behave together, in every order, is in `tests/frontends/test_inbox_protocol`.
"""

from __future__ import annotations

import pytest
from attrs import evolve

from legation.store.inbox import (
    INBOX,
    AttachRun,
    ClaimedMessage,
    CompleteMessage,
    FailMessage,
    KeepMessage,
    NewMessage,
    PutMessages,
)
from legation.store.leased_queue import (
    ClaimedItems,
    ClaimItems,
    CountItems,
    ForgetItems,
    ItemKey,
    ListItems,
    ListLeases,
    NextDue,
    QueueDepth,
    ReleaseLeases,
)
from legation.store.leases import FOREVER
from legation.store.letters import Retried, RetryDeadMessage
from legation.store.outbox import NewReply
from legation.store.units import Dialect

from ...one_database import Database


@pytest.fixture
def database() -> Database:
    """A database with two nodes, whose clock stands at the start."""
    made = Database()
    made.clock_us = 0
    made.enter("n1", "n2")
    return made


def put(database: Database, *ids: str, sender: str = "ada", now: int = 0) -> tuple[str, ...]:
    messages = tuple(NewMessage(i, sender, f"text of {i}") for i in ids)
    database.clock_us = now
    return database.run(PutMessages("c", messages, now))


def claim(
    database: Database, now: int, node: str = "n1", limit: int = 9
) -> ClaimedItems[ClaimedMessage]:
    database.clock_us = now
    return database.run(ClaimItems(INBOX, node, limit, 20))


def one(database: Database, now: int, node: str = "n1") -> ClaimedMessage:
    (message,) = claim(database, now, node).items
    return message


def retry(database: Database, message_id: str, now: int) -> bool:
    database.clock_us = now
    retried = database.run(RetryDeadMessage("c", message_id))
    return isinstance(retried, Retried) and retried.message


def test_every_message_of_a_delivery_is_stored_once(database: Database) -> None:
    assert put(database, "a", "b", "a") == ("a", "b")
    assert put(database, "b", "c", now=5) == ("c",)
    assert database.ask("select message_id, received_us, position from inbox order by 1") == [
        ("a", 0, 0),
        ("b", 0, 1),
        ("c", 5, 1),
    ]


def test_the_same_id_in_another_channel_is_another_message(database: Database) -> None:
    put(database, "a")

    assert database.run(PutMessages("d", (NewMessage("a", "ada", ""),), 0)) == ("a",)


def test_a_claim_brings_the_message_and_its_lease(database: Database) -> None:
    put(database, "a")

    message = one(database, 7)

    assert message.lease.key == ItemKey("c", "a")
    assert (message.lease.node, message.lease.attempts) == ("n1", 1)
    assert (message.sender, message.payload, message.run_id) == ("ada", "text of a", None)
    assert claim(database, 8) == ClaimedItems()


def test_a_claim_takes_the_oldest_of_each_sender_up_to_its_limit(database: Database) -> None:
    put(database, "a1", "a2")
    put(database, "b1", "b2", sender="bob", now=1)
    put(database, "e1", sender="eve", now=2)

    first = claim(database, 5, limit=2)
    second = claim(database, 5, "n2")

    assert [m.lease.key.item_id for m in first.items] == ["a1", "b1"]
    assert [m.lease.key.item_id for m in second.items] == ["e1"]


def test_the_next_of_a_sender_comes_when_the_one_before_is_done(database: Database) -> None:
    put(database, "a1", "a2")
    lease = one(database, 5).lease

    assert database.run(CompleteMessage(lease, 6))
    assert one(database, 6).lease.key.item_id == "a2"


def test_completion_and_answer_are_one(database: Database) -> None:
    put(database, "a")
    lease = one(database, 5).lease
    replies = (NewReply("reply-a", "ada", "1"), NewReply("reply-a-2", "ada", "2"))

    assert database.run(AttachRun(lease, "run-1"))
    assert database.run(CompleteMessage(lease, 6, replies))
    assert database.ask("select state, done_us, run_id, lease_by, lease_us from inbox") == [
        ("done", 5, "run-1", None, None)
    ]
    assert database.ask(
        "select channel, idempotency_key, recipient, payload, created_us, ready_us from outbox"
    ) == [("c", "reply-a", "ada", "1", 6, 5), ("c", "reply-a-2", "ada", "2", 7, 5)]


def test_what_was_learned_of_a_message_is_there_at_its_next_attempt(database: Database) -> None:
    put(database, "a")
    lease = one(database, 0).lease

    assert database.run(KeepMessage(lease, "learned"))
    database.bury("n1")
    assert one(database, 0, "n2").payload == "learned"


def test_who_lost_the_lease_changes_nothing(database: Database) -> None:
    put(database, "a")
    lost = one(database, 0).lease
    database.bury("n1")
    kept = one(database, 0, "n2").lease
    replies = (NewReply("reply-a", "ada", ""),)

    assert kept.attempts == 2
    assert not database.run(AttachRun(lost, "r"))
    assert not database.run(KeepMessage(lost, "learned"))
    assert not database.run(CompleteMessage(lost, 31, replies))
    assert not database.run(FailMessage(lost, "it", None, 31, replies))
    assert database.run(ReleaseLeases((lost,))) == 0
    assert database.ask("select state, lease_by, lease_us, run_id from inbox") == [
        ("ready", "n2", FOREVER, None)
    ]
    assert database.ask("select * from outbox") == []


def test_the_same_node_with_an_older_token_lost_it_too(database: Database) -> None:
    put(database, "a")
    older = one(database, 0).lease
    assert database.run(ReleaseLeases((older,))) == 1
    one(database, 0)

    assert not database.run(CompleteMessage(older, 31))


def test_a_second_attempt_knows_the_run_of_the_first(database: Database) -> None:
    put(database, "a")
    lease = one(database, 0).lease

    assert database.run(AttachRun(lease, "run-1"))
    database.bury("n1")
    again = one(database, 0, "n2")
    assert again.run_id == "run-1"
    assert database.run(CompleteMessage(again.lease, 31))
    assert database.ask("select run_id from inbox") == [("run-1",)]


def test_a_failed_message_waits_and_holds_up_its_sender_alone(database: Database) -> None:
    put(database, "a1", "a2")
    put(database, "b1", sender="bob", now=1)
    lease = one_of(claim(database, 5, limit=1), "a1").lease

    assert database.run(FailMessage(lease, "the model is away", 45, 6))
    assert database.ask("select state, ready_us, error from inbox where message_id = 'a1'") == [
        ("ready", 50, "the model is away")
    ]
    assert [m.sender for m in claim(database, 49).items] == ["bob"]
    assert one_of(claim(database, 50), "a1").lease.attempts == 2


def one_of(claimed: ClaimedItems[ClaimedMessage], message_id: str) -> ClaimedMessage:
    return next(m for m in claimed.items if m.lease.key.item_id == message_id)


def test_a_message_given_up_leaves_an_apology_and_frees_its_sender(database: Database) -> None:
    put(database, "a1", "a2")
    lease = one(database, 5).lease
    apology = (NewReply("reply-a1", "ada", "Sorry"),)

    assert database.run(FailMessage(lease, "hopeless", None, 6, apology))
    assert database.ask("select state, error, done_us from inbox where message_id = 'a1'") == [
        ("dead", "hopeless", 5)
    ]
    assert database.ask("select payload from outbox") == [("Sorry",)]
    assert one(database, 6).lease.key.item_id == "a2"


def test_what_kills_every_node_is_buried(database: Database) -> None:
    put(database, "a1", "a2")
    for node in ("n1", "n2"):
        assert database.run(ClaimItems(INBOX, node, 9, 2)).buried == ()
        database.bury(node)
    database.enter("n3")

    claimed = database.run(ClaimItems(INBOX, "n3", 9, 2))

    assert claimed.buried == (ItemKey("c", "a1"),)
    assert [m.lease.key.item_id for m in claimed.items] == ["a2"]
    assert database.ask("select done_us, lease_by from inbox where state = 'dead'") == [(0, None)]


def test_what_was_tried_too_often_is_not_buried_while_somebody_tries(database: Database) -> None:
    put(database, "a")
    for node in ("n1", "n2"):
        database.bury("n1")
        database.enter(node)
        lease = one(database, 0, node).lease

    claimed = database.run(ClaimItems(INBOX, "n1", 9, 1))

    assert claimed == ClaimedItems()
    assert database.run(CompleteMessage(lease, 6))


# --- who lives, and who does not -----------------------------------------------------------------


def test_a_lease_lasts_as_long_as_its_node_and_no_longer(database: Database) -> None:
    put(database, "a")
    one(database, 0)

    assert claim(database, 99 * 365 * 86_400_000_000, "n2") == ClaimedItems()
    database.bury("n1")
    assert one(database, 0, "n2").lease.attempts == 2


def test_a_node_that_is_not_there_claims_nothing_and_does_when_it_is_again(
    database: Database,
) -> None:
    put(database, "a")
    database.bury("n1")

    assert claim(database, 0, "n1") == claim(database, 0, "stranger") == ClaimedItems()
    database.enter("n1")
    assert one(database, 0, "n1").lease.attempts == 1


def test_the_lease_of_a_node_that_enters_again_is_its_own_where_nobody_took_it(
    database: Database,
) -> None:
    put(database, "a")
    put(database, "b", sender="bob")
    first, second = (m.lease for m in claim(database, 0).items)
    database.bury("n1")
    assert [m.lease.key for m in claim(database, 0, "n2", limit=1).items] == [first.key]
    database.enter("n1")

    assert claim(database, 0, "n2") == ClaimedItems()
    assert not database.run(CompleteMessage(first, 6))
    assert database.run(CompleteMessage(second, 6))


def test_a_lane_is_free_when_the_node_of_its_lease_is_gone(database: Database) -> None:
    """The oldest is a letter that was revived, so that the lease is not on the head of the lane."""
    put(database, "a1", "a2")
    database.run(FailMessage(one(database, 5).lease, "it", None, 6))
    assert one(database, 7).lease.key.item_id == "a2"
    assert retry(database, "a1", 8)

    assert claim(database, 9, "n2").items == ()
    database.bury("n1")
    assert one(database, 9, "n2").lease.key.item_id == "a1"


def test_a_lease_with_an_end_is_one_of_a_node_of_the_release_before(database: Database) -> None:
    """Nobody finds that node among the others; its lease goes by the clock of the database."""
    put(database, "a1", "a2")
    database.ask(
        "update inbox set lease_by = 'old', lease_us = 30, attempts = 1 where position = 0"
    )

    assert claim(database, 29) == ClaimedItems()
    assert database.run(CountItems(INBOX)) == (QueueDepth("c", 2, 1, 0, 0),)
    assert database.run(NextDue(INBOX)) == 30
    assert one(database, 30).lease.attempts == 2


def test_a_lease_with_an_end_is_buried_by_the_clock_of_the_database(database: Database) -> None:
    put(database, "a")
    database.ask("update inbox set lease_by = 'old', lease_us = 30, attempts = 20")

    assert claim(database, 29).buried == ()
    assert claim(database, 30).buried == (ItemKey("c", "a"),)


def test_messages_are_due_by_the_clock_of_the_database_whatever_nodes_take_for_the_time(
    database: Database,
) -> None:
    """Of two nodes one is 90 s ahead, the other as far behind; what they take in is due at once."""
    ahead, behind, clock_us = 90_000_000, -90_000_000, 1_000_000_000
    database.clock_us = clock_us
    for name, skew_us in (("a", ahead), ("b", behind)):
        message = NewMessage(name, name, "")
        database.run(PutMessages("c", (message,), clock_us + skew_us))

    claimed = [database.run(ClaimItems(INBOX, node, 1, 20)).items for node in ("n1", "n2")]

    assert sorted(m.lease.key.item_id for (m,) in claimed) == ["a", "b"]
    (first,), _ = claimed
    assert database.run(FailMessage(first.lease, "it", 10, clock_us + behind))
    assert database.run(NextDue(INBOX)) == clock_us + 10


def test_the_leases_of_a_node_are_listed(database: Database) -> None:
    put(database, "a", "b")
    put(database, "e", sender="eve")
    put(database, "f", sender="fay")
    mine = tuple(m.lease for m in claim(database, 0, limit=2).items)
    claim(database, 0, "n2")

    assert database.run(ListLeases((INBOX,), "n1")) == mine
    assert database.run(ListLeases((), "n1")) == ()
    database.run(CompleteMessage(mine[0], 6))
    assert database.run(ListLeases((INBOX,), "n1")) == mine[1:]
    assert database.run(ListLeases((INBOX,), "n3")) == ()


def test_the_next_is_due_when_the_lease_of_its_lane_ends_unless_the_node_beats_again(
    database: Database,
) -> None:
    assert database.run(NextDue(INBOX)) is None
    put(database, "a1", "a2", now=5)
    assert database.run(NextDue(INBOX)) == 0
    assert database.run(NextDue(INBOX, ("c",))) == 0
    assert database.run(NextDue(INBOX, ("d",))) is None
    one(database, 5)

    database.clock_us = 7
    (until_us, up_us) = database.ask(
        "select until_us, up_us from nodes, cluster where node_id = 'n1'"
    )[0]
    assert database.run(NextDue(INBOX)) == 7 + until_us - up_us
    database.bury("n1")
    assert database.run(NextDue(INBOX)) == 0


def test_an_operator_revives_a_dead_message_for_one_attempt(database: Database) -> None:
    put(database, "a")
    lease = one(database, 5).lease
    assert not retry(database, "a", 6)
    database.run(FailMessage(lease, "it", None, 6))

    assert retry(database, "a", 7)
    assert not retry(database, "a", 8)
    assert one(database, 8).lease.attempts == 2


def test_no_second_message_of_a_sender_beside_a_revived_one(database: Database) -> None:
    put(database, "a1", "a2")
    database.run(FailMessage(one(database, 5).lease, "it", None, 6))
    younger = one(database, 7).lease
    assert retry(database, "a1", 8)

    assert claim(database, 9, "n2").items == ()
    database.run(CompleteMessage(younger, 10))
    assert one(database, 11).lease.key.item_id == "a1"


def test_messages_are_listed_newest_first_page_by_page(database: Database) -> None:
    put(database, "a", "b", "c", sender="ada")
    put(database, "d", sender="bob", now=4)
    database.run(PutMessages("other", (NewMessage("e", "ada", ""),), 9))

    first = database.run(ListItems(INBOX, "c", "ready", 2))
    last = first[-1]
    place = (last.received_us, last.position, last.message_id)
    rest = database.run(ListItems(INBOX, "c", "ready", 9, place))

    assert [row.message_id for row in first] == ["d", "c"]
    assert [row.message_id for row in rest] == ["b", "a"]
    assert database.run(ListItems(INBOX, "c", "dead", 9)) == ()
    assert (last.sender, last.state, last.attempts, last.error) == ("ada", "ready", 0, None)
    assert "ada" not in repr(last)


def test_what_waits_is_counted_by_channel(database: Database) -> None:
    put(database, "a1", "a2", now=3)
    put(database, "b1", sender="bob", now=4)
    put(database, "e1", sender="eve", now=1)
    for message in claim(database, 5).items:
        if message.sender == "eve":
            database.run(FailMessage(message.lease, "it", None, 5))
        if message.sender == "bob":
            database.run(CompleteMessage(message.lease, 5))

    assert database.run(CountItems(INBOX)) == (QueueDepth("c", 2, 1, 1, 3),)
    database.bury("n1")
    assert database.run(CountItems(INBOX)) == (QueueDepth("c", 2, 0, 1, 3),)
    assert Database().run(CountItems(INBOX)) == ()


def test_only_what_was_done_long_ago_is_forgotten(database: Database) -> None:
    put(database, "a1", "a2", "a3")
    for now in (5, 6):
        database.run(CompleteMessage(one(database, now).lease, now))

    for now, forgotten in ((10, 0), (11, 1), (12, 1), (99, 0)):
        database.clock_us = now
        assert database.run(ForgetItems(INBOX, 5, 9)) == forgotten
    assert put(database, "a1", "a3", now=50) == ("a1",)


def test_on_postgresql_claims_take_turns() -> None:
    unit = ClaimItems(INBOX, "n1", 9, 20)
    statements = unit.statements(Dialect.POSTGRESQL)

    assert next(statements).sql is INBOX.any_idle
    lock = statements.send([(1,)])
    assert lock.sql is INBOX.lock
    assert next(unit.statements(Dialect.SQLITE)).sql is not INBOX.lock
    assert "pg_advisory_xact_lock" in lock.text(Dialect.POSTGRESQL)


def test_on_postgresql_nobody_takes_turns_for_nothing() -> None:
    statements = ClaimItems(INBOX, "n1", 9, 20).statements(Dialect.POSTGRESQL)
    next(statements)

    with pytest.raises(StopIteration) as ended:
        statements.send([])
    assert ended.value.value == ClaimedItems()


def test_units_are_equal_by_value() -> None:
    unit = ClaimItems(INBOX, "n1", 9, 20)

    assert evolve(unit) == unit
    assert unit.writes
    assert not CountItems(INBOX).writes
