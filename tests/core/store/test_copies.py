from __future__ import annotations

from typing import Final

import pytest

from legation.store.erasure import DeleteRun
from legation.store.sessions import DeleteSessions

from ...one_database import Database
from ...people_rows import (
    ADA,
    EVE,
    fill,
    put_answer,
    put_message,
    put_run,
    put_session,
    reply_to,
)

DELETION: Final = DeleteSessions(((ADA, "chat:1", None),), None, 2)


def test_a_message_under_work_is_left_to_who_works_on_it_empty() -> None:
    database = fill()
    put_message(database, "m-now", "1", "ada-a", "ready")
    database.ask("update inbox set lease_by = 'n', lease_us = 1 where message_id = 'm-now'")
    database.run(DELETION)

    ((state, payload),) = database.ask(
        "select state, payload from inbox where message_id = 'm-now'"
    )
    assert state == "ready"
    assert "words" not in payload


def test_messages_that_decide_or_were_answered_together_go_with_the_run() -> None:
    database = fill()
    put_message(database, "m-words", "1", "ada-a.6", "dead")
    put_message(database, "m-press", "press 1", None, "ready")
    database.ask(
        """update inbox set payload = '{"press":{"approval":"ada-a.6"}}'
        where message_id = 'm-press'"""
    )
    database.run(DeleteRun(ADA, "chat:1", "ada-a", 2))

    left = database.ask("select message_id from inbox where error = 'erased' order by message_id")
    assert [name for (name,) in left] == ["m-ada-a", "m-press", "m-words"]


def test_a_fork_does_not_take_the_letters_of_what_it_was_made_of() -> None:
    database = fill()
    put_session(database, ADA, "chat-fork")
    put_run(database, ADA, "chat-fork", "copy", input=reply_to("m-ada-a", "1"))
    put_session(database, EVE, "desk:fork")
    put_run(database, EVE, "desk:fork", "copy-2", input=reply_to("m-ada-a", "1"))
    database.run(DeleteSessions(((ADA, "chat-fork", None), (EVE, "desk:fork", None)), None, 2))

    assert database.ask("select count(*) from outbox where message_id = 'm-ada-a'") == [(1,)]
    assert database.ask("select sender from inbox where message_id = 'm-ada-a'") == [("1",)]


# --- kept answers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "goes"),
    [
        (b'{"session_id":"s\\u00e9"}', True),
        ('{"session_id":"sé"}'.encode(), True),
        ('{"agent_session_id": "sé", "x": 1}'.encode(), True),
        ('{"session_id":"sé2"}'.encode(), False),
        ('{"text":"session_id\\":\\"sé"}'.encode(), False),
        (None, False),
    ],
)
def test_a_kept_answer_goes_with_the_session_that_it_names(body: bytes | None, goes: bool) -> None:
    database = Database()
    put_session(database, ADA, "sé")
    put_answer(database, ADA, "k", body)
    database.run(DeleteSessions(((ADA, "sé", None),), None, 2))

    assert database.ask("select count(*) from idempotency") == [(0 if goes else 1,)]


@pytest.mark.parametrize(
    ("user", "goes"),
    [(f'"{ADA}"', True), (f' "{ADA}"', True), (f'"{EVE}"', False), ("null", False)],
)
@pytest.mark.parametrize("asked_by", [EVE, ""])
def test_an_answer_to_another_goes_where_it_names_the_owner_of_the_session(
    user: str, goes: bool, asked_by: str
) -> None:
    database = Database()
    for owner in (ADA, EVE):
        put_session(database, owner, "s")
    put_answer(database, asked_by, "k", f'{{"session_id":"s","user_id":{user}}}'.encode())
    database.run(DeleteSessions(((ADA, "s", None),), None, 2))

    assert database.ask("select count(*) from idempotency") == [(0 if goes else 1,)]


@pytest.mark.parametrize(("asked_by", "goes"), [("", True), (EVE, False)])
def test_an_answer_to_nobody_goes_with_the_session_of_nobody(asked_by: str, *, goes: bool) -> None:
    database = Database()
    put_session(database, "~nobody:s", "s")
    put_answer(database, asked_by, "k", b'{"session_id":"s","user_id":null}')
    database.run(DeleteSessions((("~nobody:s", "s", None),), None, 2))

    assert database.ask("select count(*) from idempotency") == [(0 if goes else 1,)]
