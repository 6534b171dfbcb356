from __future__ import annotations

import pytest

from legation.store.conversations import FetchStanding, OpenSession, OptIn, OptOut

from ...one_database import Database


@pytest.fixture
def database() -> Database:
    return Database()


def opened(database: Database, session_id: str, now: int, owner: str = "ada") -> None:
    database.run(OpenSession(owner, session_id, "agent", "concierge", now))


def current(database: Database, base: str = "chat:1", owner: str = "ada") -> str:
    return database.run(FetchStanding(owner, base, "chat", "ada")).session_id


def test_a_conversation_that_was_never_begun_anew_is_in_its_first_session(
    database: Database,
) -> None:
    assert current(database) == "chat:1"


def test_the_session_begun_last_is_the_current_one(database: Database) -> None:
    for now, session_id in enumerate(("chat:1", "chat:1#b", "chat:1#a")):
        opened(database, session_id, now)

    assert current(database) == "chat:1#a"


@pytest.mark.parametrize(
    ("owner", "session_id"), [("eve", "chat:1#x"), ("ada", "chat:12#x"), ("ada", "chat:1x")]
)
def test_the_sessions_of_others_and_of_other_conversations_do_not_count(
    database: Database, owner: str, session_id: str
) -> None:
    opened(database, session_id, 5, owner)

    assert current(database) == "chat:1"


def test_wild_cards_in_an_id_are_letters(database: Database) -> None:
    opened(database, "chat:12#x", 5)

    assert current(database, "chat:1_") == "chat:1_"
    assert current(database, "chat:%") == "chat:%"


def test_to_open_a_session_again_changes_nothing(database: Database) -> None:
    opened(database, "chat:1#a", 1)
    opened(database, "chat:1#b", 2)
    opened(database, "chat:1#a", 3)

    assert current(database) == "chat:1#b"
    assert database.ask("select runs, name from sessions") == [(0, None), (0, None)]


def test_who_opted_out_of_a_channel_is_out_of_it_alone_until_they_opt_in(
    database: Database,
) -> None:
    def outside(channel: str, person: str) -> bool:
        return database.run(FetchStanding("ada", "chat:1", channel, person)).opted_out

    for since_us in (5, 6):
        database.run(OptOut("chat", "ada", since_us))
    assert [outside("chat", "ada"), outside("chat", "eve"), outside("slack", "ada")] == [
        True,
        False,
        False,
    ]
    assert database.ask("select since_us from channel_optouts") == [(5,)]

    database.run(OptIn("chat", "ada"))
    assert not outside("chat", "ada")
