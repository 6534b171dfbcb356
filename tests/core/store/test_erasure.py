"""The deletion of a person, a session and a run, table by table of the whole catalogue."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import pytest

from legation.channels.deliveries import IncomingMessage, encode_message
from legation.store.copies import ERASED
from legation.store.erasure import (
    CountLetters,
    CountPerson,
    DeletedRun,
    DeleteRun,
    EndErasure,
    EraseLetters,
    EraseNotices,
    EraseRuns,
    EraseSession,
    FindPeople,
    ForgetPerson,
    LettersOf,
    ListActive,
    ListOwned,
    PersonSeen,
    Tally,
)
from legation.store.sessions import DeleteSessions
from legation.store.units import Dialect

from ...one_database import Database
from ...people_rows import (
    ADA,
    EVE,
    fill,
    put,
    put_answer,
    put_message,
    put_reply,
    put_run,
    put_session,
    put_summary,
    reply_to,
)


def person(database: Database) -> None:
    letters = LettersOf("chat", ("1",), ("1",))
    for unit in (EraseLetters(letters, 9), EraseSession(ADA, "chat:1", 2), ForgetPerson(ADA, ADA)):
        database.run(unit)


def session(database: Database) -> None:
    database.run(DeleteSessions(((ADA, "chat:1", None),), None, 2))


def run(database: Database) -> None:
    database.run(DeleteRun(ADA, "chat:1", "ada-a", 2))


KEPT: Final = (0, 0, 0)
# How many rows of ada go by the deletion of the person, of the session and of one of its two runs.
# A message becomes a tombstone: its row stays, and nothing of what it said.
EFFECTS: Final[dict[str, tuple[int, int, int]]] = {
    "sessions": (1, 1, 0),
    "session_states": (1, 1, 1),
    "session_summaries": (1, 1, 1),
    "session_counts": (1, 1, 0),
    "runs": (2, 2, 1),
    "events": (2, 2, 1),
    "steps": (2, 2, 1),
    "outbox": (2, 2, 1),
    "idempotency": (2, 2, 1),
    "usage": (2, 0, 0),
    "inbox": KEPT,  # as tombstones
    "channel_optouts": KEPT,  # the wish not to be written to
    "audit": KEPT,  # until its own retention ends; it has no content
    "trail": KEPT,
    "trail_subjects": KEPT,
    "trail_kept": KEPT,
    "incidents": KEPT,  # ids alone, for 30 days
    "refusals": KEPT,  # counts by address, for 30 days
    "channel_states": KEPT,  # from here on nobody's
    "channel_chats": KEPT,
    "background": KEPT,
    "nodes": KEPT,
    "cluster": KEPT,
    "definitions": KEPT,
}


def sizes(database: Database) -> dict[str, int]:
    tables = database.ask("select name from sqlite_master where type = 'table'")
    return {table: database.ask(f"select count(*) from {table}")[0][0] for (table,) in tables}


@pytest.mark.parametrize("number", range(3), ids=["person", "session", "run"])
def test_every_table_of_the_catalogue_has_an_effect_of_each_deletion(number: int) -> None:
    delete: Callable[[Database], None] = (person, session, run)[number]
    database = fill()
    before = sizes(database)
    assert set(before) == set(EFFECTS)
    assert [table for table, rows in before.items() if not rows] == []
    delete(database)

    after = sizes(database)
    assert {table: before[table] - after[table] for table in before} == {
        table: effects[number] for table, effects in EFFECTS.items()
    }
    everything = " ".join(
        str(row)
        for table in ("sessions", "runs", "idempotency", "outbox")
        for row in database.ask(f"select * from {table}")
    )
    assert "eve" in everything


@pytest.mark.parametrize("number", range(3), ids=["person", "session", "run"])
def test_a_message_leaves_its_id_alone(number: int) -> None:
    database = fill()
    (person, session, run)[number](database)

    left = database.ask("select message_id, sender, payload, state, run_id, error from inbox")
    emptied = {"m-ada-a"} if number == 2 else {"m-ada-a", "m-ada-b"}
    assert {name for name, *_ in left} == {"m-ada-a", "m-ada-b", "m-eve-a", "m-eve-b"}
    for name, *rest in left:
        assert (rest == ["", "", "done", None, ERASED]) == (name in emptied)


# --- one run -----------------------------------------------------------------------------------


def test_a_run_goes_with_those_of_its_members() -> None:
    database = Database()
    put_session(database, ADA, "s")
    for name, parent in (("top", None), ("member", "top"), ("deeper", "member"), ("other", None)):
        put_run(database, ADA, "s", name, parent_run_id=parent, status="RUNNING")

    deleted = database.run(DeleteRun(ADA, "s", "top", 2))

    assert deleted == DeletedRun(("deeper", "member", "top"), ("top", "member", "deeper"))
    assert database.ask("select run_id from runs") == [("other",)]
    assert database.ask("select run_id from events") == [("other",)]


@pytest.mark.parametrize(
    ("owner", "session_id", "run_id"),
    [(EVE, "chat:1", "ada-a"), (ADA, "s", "ada-a"), (ADA, "chat:1", "eve-a"), (ADA, "chat:1", "x")],
)
def test_a_run_of_somebody_else_or_elsewhere_is_not_deleted(
    owner: str, session_id: str, run_id: str
) -> None:
    database = fill()

    assert database.run(DeleteRun(owner, session_id, run_id, 2)) == DeletedRun((), ())
    assert sizes(database) == sizes(fill())


def test_the_bytes_of_a_run_are_given_back_and_never_more() -> None:
    database = Database()
    put_session(database, ADA, "s", bytes=40)
    put(database, "usage", subject=ADA, bytes=40)
    put_run(database, ADA, "s", "one", input="i" * 10, output="o" * 10)
    put_run(database, ADA, "s", "two", input="i" * 500)
    database.run(DeleteRun(ADA, "s", "one", 2))

    assert database.ask("select bytes from sessions") == [(13,)]
    assert database.ask("select bytes from usage") == [(13,)]
    database.run(DeleteRun(ADA, "s", "two", 2))
    assert database.ask("select bytes from sessions") == [(0,)]
    assert database.ask("select bytes from usage") == [(0,)]


def test_a_summary_goes_with_a_run_that_it_covers_and_no_other_does() -> None:
    database = Database()
    for owner, session_id in ((ADA, "s"), (ADA, "t"), (EVE, "s")):
        put_session(database, owner, session_id, bytes=100)
        for number in (1, 2, 3):
            put_summary(database, owner, session_id, number)
    put(database, "usage", subject=ADA, bytes=200)
    put_run(database, ADA, "s", "one", run_no=2)
    database.run(DeleteRun(ADA, "s", "one", 2))

    left = "select owner, session_id, run_no from session_summaries order by 1, 2, 3"
    whole = [(owner, s, n) for owner, s in ((ADA, "t"), (EVE, "s")) for n in (1, 2, 3)]
    assert database.ask(left) == [(ADA, "s", 1), *whole]
    freed = len("{}") + len('{"x":1}') + 2 * len("about ada")
    assert database.ask("select bytes from usage") == [(200 - freed,)]


# --- a person ----------------------------------------------------------------------------------


def test_a_person_is_counted_as_it_is_erased() -> None:
    database = fill()
    put_answer(database, EVE, "other", b'{"user_id":"ada","session_id":"chat:1"}')
    letters = LettersOf("chat", ("1",), ("1",))
    counted = database.run(CountPerson(ADA, ADA)) + database.run(CountLetters(letters))

    erased = database.run(ForgetPerson(ADA, ADA, counters=False))
    erased += database.run(EraseLetters(letters, 9))
    while (tally := database.run(EraseRuns(ADA, "chat:1", 1))) != Tally():
        erased += tally
    erased += database.run(EraseSession(ADA, "chat:1", 2)) + database.run(ForgetPerson(ADA, ADA))
    assert erased == counted
    assert erased == Tally(1, 2, 2, 2, 1, 2, 2, 3, 2, 1)
    assert database.run(CountPerson(ADA, ADA)) == Tally()


def test_letters_are_erased_a_few_at_a_time() -> None:
    database = fill()
    put_reply(database, "first", "1")
    letters = LettersOf("chat", ("1",), ("1",))

    tallies = [database.run(EraseLetters(letters, 2)) for _ in range(4)]
    assert [(one.messages, one.replies) for one in tallies] == [(0, 2), (2, 1), (0, 0), (0, 0)]


@pytest.mark.parametrize("name", ["ada", "zoë", 'a"b\\c'])
def test_notices_name_their_user(name: str) -> None:
    database = Database()
    for ascii_alone in (True, False):
        inner = json.dumps({"user_id": name}, separators=(",", ":"), ensure_ascii=ascii_alone)
        payload = json.dumps({"text": inner}, ensure_ascii=False)
        put_reply(database, f"notify-{ascii_alone}", "r", payload=payload)
    put_reply(database, "reply-x", "r", payload=json.dumps({"text": f'{{"user_id":"{name}"}}'}))

    assert database.run(CountPerson(name, name)).replies == 2
    erased = Tally()
    while (tally := database.run(EraseNotices(name, 1))) != Tally():
        erased += tally
    assert erased.replies == 2


def test_people_are_found_by_runs_and_by_messages_that_wait() -> None:
    database = fill()
    known = encode_message(IncomingMessage("m", "7", subject="ada"))
    put_message(database, "m-known", "7", None, "ready")
    database.ask("update inbox set payload = ? where message_id = 'm-known'", known)
    put_session(database, ADA, "plain")
    put_run(database, ADA, "plain", "forged", input=reply_to("m-eve-a", "2"))

    assert database.run(FindPeople(ADA, ADA)) == (
        PersonSeen("chat", "1", "1", "chat:1"),
        PersonSeen("chat", "7"),
    )


def test_sessions_and_active_runs_are_listed() -> None:
    database = fill()
    put_run(database, ADA, "chat:1", "now", status="RUNNING", lease_us=1)
    put_run(database, ADA, "chat:1", "later", status="PENDING")

    assert database.run(ListOwned(ADA, 9)) == ("chat:1",)
    active, executed = database.run(ListActive(ADA, 9))
    assert {run_id for _, run_id in active} == {"now", "later"}
    assert executed == 1


def test_a_session_without_bytes_makes_no_counter() -> None:
    database = Database()
    put_session(database, ADA, "s", bytes=0)

    assert database.run(EraseSession(ADA, "s", 2)) == Tally(sessions=1, states=1)
    assert database.ask("select count(*) from usage") == [(0,)]


def test_a_session_that_is_gone_is_erased_already() -> None:
    database = fill()

    assert database.run(EraseSession(ADA, "none", 2)) == Tally()
    assert database.run(EraseRuns(ADA, "none", 2)) == Tally()


def test_the_end_of_an_erasure_asks_the_host_to_clear_the_log() -> None:
    assert EndErasure.erases
    assert Database().run(EndErasure()) is None
    assert [one.sql.text for one in EndErasure().statements(Dialect.POSTGRESQL)] == ["select 1"]
