"""A message with its replies, on the tables that the catalogue builds."""

from __future__ import annotations

import pytest

from legation.channels.replies import reply_key
from legation.store.inbox import INBOX, CompleteMessage, FailMessage, NewMessage, PutMessages
from legation.store.leased_queue import ClaimItems, FailItem
from legation.store.letters import FetchMessageRecord, Retried, RetryDeadMessage
from legation.store.outbox import OUTBOX, NewReply

from ...one_database import Database


@pytest.fixture
def database() -> Database:
    """A message `m` that was answered in two parts, beside one with an id that looks alike."""
    made = Database()
    made.clock_us = 9
    made.enter("n")
    for name in ("m", "2-m"):
        made.run(PutMessages("c", (NewMessage(name, name, "text"),), 1))
    for message in made.run(ClaimItems(INBOX, "n", 9, 20)).items:
        name = message.lease.key.item_id
        keys = (reply_key(name), reply_key(name, 2))
        replies = tuple(NewReply(key, name, "text", name) for key in keys)
        made.run(CompleteMessage(message.lease, 3, replies))
    return made


def kill_replies(database: Database) -> None:
    """Make the first of the two replies dead."""
    for reply in database.run(ClaimItems(OUTBOX, "n", 9, 20)).items:
        database.run(FailItem(reply.lease, "no", None))


def test_a_message_comes_with_its_own_replies_in_their_order(database: Database) -> None:
    letter = database.run(FetchMessageRecord("c", "m"))

    assert letter is not None
    assert (letter.message.message_id, letter.message.state) == ("m", "done")
    assert [reply.idempotency_key for reply in letter.replies] == ["reply-m", "reply.2-m"]


def retry(database: Database, message_id: str) -> object:
    return database.run(RetryDeadMessage("c", message_id))


def test_no_message_is_no_letter(database: Database) -> None:
    assert database.run(FetchMessageRecord("c", "x")) is None
    assert database.run(FetchMessageRecord("d", "m")) is None
    assert retry(database, "x") is None


def test_what_is_not_dead_is_not_revived(database: Database) -> None:
    nothing = Retried(message=False, replies=0)
    assert retry(database, "m") == nothing


def test_the_dead_replies_to_one_message_are_revived_and_no_others(database: Database) -> None:
    kill_replies(database)

    assert database.run(RetryDeadMessage("c", "m")) == Retried(message=False, replies=1)
    states = database.ask("select idempotency_key, state from outbox order by idempotency_key")
    assert dict(states) == {
        "reply-2-m": "dead",
        "reply-m": "ready",
        "reply.2-2-m": "ready",
        "reply.2-m": "ready",
    }


def test_a_dead_message_is_revived() -> None:
    database = Database()
    database.clock_us = 9
    database.enter("n")
    database.run(PutMessages("c", (NewMessage("m", "ada", "text"),), 1))
    (message,) = database.run(ClaimItems(INBOX, "n", 9, 20)).items
    database.run(FailMessage(message.lease, "no", None, 3))

    assert database.run(RetryDeadMessage("c", "m")) == Retried(message=True, replies=0)
    assert database.ask("select state, ready_us, done_us, attempts from inbox") == [
        ("ready", 9, None, 1)
    ]
