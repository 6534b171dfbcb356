"""Texts that are stored once: what is shortened is whole again wherever it is read."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from legation.http.messages import compact_json
from legation.migrations.catalogue import CATALOGUE
from legation.store.member_runs import Root, StartMember
from legation.store.once import (
    BEFORE_MARKS,
    LEAST,
    WORTH,
    message_of,
    shorten,
    shorten_output,
)
from legation.store.run_pages import ReadRuns
from legation.store.run_reads import (
    EVENTS_BYTES,
    FetchEvents,
    FetchRun,
    RecentRuns,
    RunsOfNumbers,
)
from legation.store.run_rows import RunLease, RunRow, StoredEvent
from legation.store.run_steering import CancelRun
from legation.store.runs import AppendEvents, FinishRun, StartRun
from legation.store.steps import FetchMembersOver
from legation.store.units import Dialect

from ...one_database import Database

LEASE: Final = RunLease("n", 1)
MARKS_SINCE: Final = [str(one.version) for one in CATALOGUE.migrations].index("2.9.0")
MARKS: Final = (r"\u001A", r"\u001B")
LONG: Final = 'Where is the "north" star?\n' * 40
ANSWER: Final = "It is\tbehind the clouds. \U0001f600 " * 40

# What stands around the texts, marks, and what they are made of, wherever a text may have them.
PIECES: Final = st.sampled_from(
    [
        *MARKS,
        *(
            r"\u001a",
            "\x1a",
            "\x1b",
            "\\",
            '"',
            "u001A",
            " ",
            "  ",
            "a",
            "\0",
            "\u00e9\u2028",
            "\U0001f600",
        ),
        *('{"message":"', '","stream":', ',"content":"', '","content_type":', "n", "\n", ",", "}"),
    ]
)
TEXTS: Final = st.lists(PIECES, max_size=12).map("".join)
# Long by repeating, so that it is within itself at many places.
LONG_TEXTS: Final = st.tuples(TEXTS, st.integers(1, 300)).map(lambda pair: repeat(*pair))


def repeat(text: str, times: int) -> str:
    return (text * times)[: 3 * LEAST]


@pytest.fixture
def database() -> Database:
    return Database()


def asked(message: str) -> str:
    return compact_json({"message": message, "stream": True, "files": [{"content": "AA=="}]})


def output_of(message: str, content: Any, **others: Any) -> str:
    """Return an output as it is rendered, with every place where both texts stand."""
    return compact_json(
        {
            "run_id": "r",
            "agent_name": message[:7],
            "content": content,
            "content_type": "str" if isinstance(content, str) else "dict",
            "messages": [
                {"content": message, "role": "user"},
                {"content": content, "role": "assistant"},
            ],
            **others,
            "input": {"input_content": message},
            "session_state": {},
        }
    )


def start(database: Database, message: str, run_id: str = "r", owner: str = "ada") -> None:
    database.run(StartRun(owner, "s", run_id, "agent", "desk", asked(message), "", "n", 1))


def finish(message: str, content: Any, /, **others: Any) -> FinishRun:
    data = (
        compact_json({"event": "RunContent", "content": content}),
        compact_json(
            {"event": "RunCompleted", "content": content, "quotes": {"a": message, "b": message}}
        ),
    )
    unit = FinishRun(
        owner="ada",
        session_id="s",
        run_id="r",
        lease=LEASE,
        node="n",
        now_us=8,
        status="COMPLETED",
        output=output_of(message, content),
        reason=None,
        usage=None,
        events=tuple(StoredEvent(seq, "e", text) for seq, text in enumerate(data, 1)),
        hosted=(),
        message=message_of(asked(message)),
    )
    return evolve(unit, **others)


def row_of(database: Database, run_id: str = "r") -> RunRow:
    row = database.run(FetchRun(run_id, None, any_owner=True))
    assert row is not None
    return row


def datas(database: Database, run_id: str = "r") -> list[str]:
    page = database.run(FetchEvents("ada", run_id, 0))
    return [event.data for event in page.events]


def stored(database: Database, text: str) -> int:
    """Count how often the JSON of `text` stands in the tables of runs and events."""
    tables = "select input || coalesce(output, '') from runs union all select data from events"
    body = compact_json(text)[1:-1]
    return sum(whole.count(body) for (whole,) in database.ask(tables))


# --- texts


TABLES: Final = Database()


@given(message=LONG_TEXTS, content=LONG_TEXTS | st.lists(TEXTS, max_size=2) | st.none())
def test_whatever_is_shortened_is_read_as_it_was(message: str, content: Any) -> None:
    database = TABLES
    database.connection.execute("savepoint example")
    start(database, message)
    unit = finish(message, content)
    database.run(unit)

    assert row_of(database).output == unit.output
    assert datas(database) == [event.data for event in unit.events]
    database.connection.execute("rollback to example")
    database.connection.execute("release example")


@given(whole=TEXTS, message=TEXTS, answer=TEXTS)
def test_a_text_never_grows_by_more_than_what_says_that_it_has_marks(
    whole: str, message: str, answer: str
) -> None:
    short = shorten(whole, message * LEAST, answer * LEAST)

    assert len(short) <= len(whole) + 2
    assert short == whole or short.startswith(" ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (asked("x" * LEAST), "x" * LEAST),
        (asked("x" * (LEAST - 1)), ""),
        (asked('"' * LEAST), r"\"" * LEAST),
        (asked('","stream":' * LEAST), r"\",\"stream\":" * LEAST),
        (json.dumps({"message": "x" * LEAST, "stream": True}), ""),
        (compact_json({"stream": True, "message": "x" * LEAST}), ""),
        ("{}", ""),
    ],
    ids=["long", "short", "of quotes", "like the end", "spaced", "in another place", "empty"],
)
def test_the_message_is_what_stands_in_the_input(text: str, message: str) -> None:
    assert message_of(text) == message


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("place", ["message", "content", "metadata"])
def test_a_text_that_has_a_mark_in_it_is_stored_whole(
    database: Database, mark: str, place: str
) -> None:
    texts = {"message": LONG, "content": ANSWER, "metadata": "{}", place: mark + LONG}
    start(database, texts["message"])
    output = output_of(texts["message"], texts["content"], metadata=texts["metadata"])
    database.run(finish(texts["message"], texts["content"], output=output))

    assert database.ask("select output from runs") == [(output,)]
    assert row_of(database).output == output


@pytest.mark.parametrize("content", [ANSWER, LONG, {"content": ANSWER, "said": LONG}, None])
def test_a_message_and_an_answer_stand_in_the_tables_once(
    database: Database, content: object
) -> None:
    start(database, LONG)
    unit = finish(LONG, content)
    database.run(unit)

    assert stored(database, LONG) == 1
    assert stored(database, ANSWER) == (1 if content == ANSWER else stored(database, ANSWER))
    assert row_of(database).output == unit.output
    assert datas(database) == [event.data for event in unit.events]


def test_all_is_stored_whole_where_not_all_nodes_know(database: Database) -> None:
    start(database, LONG)
    unit = finish(LONG, ANSWER, message=None)
    database.run(unit)

    assert database.ask("select output from runs") == [(unit.output,)]
    assert stored(database, LONG) == 1 + 2 + 2
    assert row_of(database).output == unit.output


def test_a_short_output_is_stored_as_it_is(database: Database) -> None:
    start(database, "x" * LEAST)
    unit = finish("x" * LEAST, "y" * LEAST)
    assert len(unit.output or "") < WORTH
    database.run(unit)

    assert database.ask("select output from runs") == [(unit.output,)]
    assert datas(database) == [event.data for event in unit.events]


def test_a_long_answer_to_a_short_message_stands_once(database: Database) -> None:
    start(database, "hi")
    unit = finish("hi", ANSWER * 2)
    assert unit.message == ""
    database.run(unit)

    assert stored(database, ANSWER * 2) == 1
    assert row_of(database).output == unit.output
    assert datas(database) == [event.data for event in unit.events]


def test_every_read_of_a_run_is_given_it_whole(database: Database) -> None:
    start(database, LONG)
    unit = finish(LONG, ANSWER)
    database.run(unit)

    page = database.run(ReadRuns("ada", "s", lambda row: row))
    assert page.items == (row_of(database),)
    assert database.run(RecentRuns("ada", "s", 2, 5)) == ((1, unit.output),)
    assert database.run(RunsOfNumbers("ada", "s", (1,))) == ((1, unit.output),)
    over = database.run(FetchMembersOver("ada", ("r",)))
    assert over == {"r": ("COMPLETED", unit.output)}


def test_each_run_has_its_own_message(database: Database) -> None:
    for owner, text in (("ada", LONG), ("eve", ANSWER)):
        start(database, text, owner, owner)
        unit = finish(text, text, owner=owner, run_id=owner)
        database.run(unit)

        assert row_of(database, owner).output == unit.output
    assert stored(database, LONG) == stored(database, ANSWER) == 1


def test_the_events_of_a_run_under_way_have_marks_of_the_message_alone(database: Database) -> None:
    start(database, LONG)
    unit = finish(LONG, ANSWER)
    short = message_of(asked(LONG))
    append = AppendEvents("ada", "r", LEASE, 7, unit.events[1:], 2, message=short)
    database.run(evolve(append, events=(unit.events[0],), last=1))
    database.run(append)

    assert stored(database, LONG) == 1
    assert stored(database, ANSWER) == 2
    assert datas(database) == [event.data for event in unit.events]


def test_the_events_of_a_pause_do_not_count_on_an_answer_that_will_be_another(
    database: Database,
) -> None:
    start(database, LONG)
    unit = finish(LONG, ANSWER, status="PAUSED")
    database.run(unit)
    assert row_of(database).output == unit.output
    database.ask("update runs set output = null")

    assert datas(database) == [event.data for event in unit.events]


def test_an_end_that_is_stored_again_is_the_same(database: Database) -> None:
    start(database, LONG)
    unit = finish(LONG, ANSWER)

    assert database.run(unit).kept
    assert database.run(unit).kept
    assert row_of(database).output == unit.output
    assert datas(database) == [event.data for event in unit.events]


@pytest.mark.parametrize("message", [None, message_of(asked(LONG))], ids=["whole", "once"])
def test_a_run_that_is_cancelled_where_it_paused_is_whole(
    database: Database, message: str | None
) -> None:
    start(database, LONG)
    paused = finish(LONG, ANSWER, status="PAUSED")
    database.run(paused)
    event = ("RunCancelled", "{}")
    database.run(CancelRun("ada", "s", "r", 9, "{}", event, message=message))

    assert json.loads(row_of(database).output or "") == {
        **json.loads(paused.output or ""),
        "status": "CANCELLED",
    }
    assert stored(database, LONG) == (3 if message is None else 1)


@pytest.mark.parametrize("message", [None, ""], ids=["whole", "once"])
def test_a_member_that_ends_with_its_team_is_whole(database: Database, message: str | None) -> None:
    start(database, "team")
    working = output_of(LONG, "")
    root = Root("ada", "s", "r", LEASE)
    database.run(StartMember(root, "m", "r", "agent", "ann", asked(LONG), working, 2))
    database.run(finish("team", "failed", status="ERROR", members=True, message=message))

    shown = json.loads(row_of(database, "m").output or "")
    assert shown["messages"][0]["content"] == shown["input"]["input_content"] == LONG
    assert stored(database, LONG) == (3 if message is None else 1)


def test_all_is_whole_again_on_the_way_down(database: Database) -> None:
    for owner in ("ada", "eve"):
        start(database, LONG, owner, owner)
    unit = finish(LONG, ANSWER, owner="ada", run_id="ada")
    database.run(unit)
    database.run(finish(LONG, ANSWER, owner="eve", run_id="eve", message=None))
    for migration in reversed(CATALOGUE.migrations[MARKS_SINCE:]):
        for step in migration.down or ():
            if (statement := step.statement(Dialect.SQLITE)) is not None:
                database.connection.execute(statement.text(Dialect.SQLITE))

    assert database.ask("select distinct output from runs") == [(unit.output,)]
    whole = [(event.data,) for event in unit.events] * 2
    assert database.ask("select data from events order by run_id, seq") == whole


def test_the_code_for_every_schema_before_marks_is_taken_for_one_that_knows_none() -> None:
    older = [str(migration.version) for migration in CATALOGUE.migrations[:MARKS_SINCE]]

    assert tuple(older[-len(BEFORE_MARKS) :]) == BEFORE_MARKS


def test_an_output_without_a_text_has_no_answer() -> None:
    assert shorten_output("{}", "") == ("{}", "")


def test_members_that_begin_alike_are_told_apart() -> None:
    body = "x" * LEAST
    members = {"shorter": body[1:], "longer": f"{body}y", "same": body, "other": f"{body[:-1]}y"}

    short = shorten(compact_json(members), body)

    assert short == f" {compact_json({**members, 'same': '-'})}".replace('"-"', rf'"{MARKS[0]}"')


def test_an_answer_that_is_marked_in_events_alone_is_read_whole(database: Database) -> None:
    start(database, "hi")
    output = compact_json({"run_id": "r", "content": ANSWER * 2, "content_type": "str"})
    unit = finish("hi", ANSWER * 2, output=output)
    database.run(unit)

    assert database.ask("select output from runs") == [(output,)]
    assert stored(database, ANSWER * 2) == 1
    assert datas(database) == [event.data for event in unit.events]


def test_a_page_of_events_is_bounded_by_what_they_are_when_they_are_whole(
    database: Database,
) -> None:
    message = "m" * EVENTS_BYTES
    start(database, message)
    data = compact_json({"task": message})
    events = tuple(StoredEvent(seq, "e", data) for seq in range(1, 5))
    short = message_of(asked(message))
    database.run(AppendEvents("ada", "r", LEASE, 7, events, 4, message=short))

    assert stored(database, message) == 1
    for seq in range(4):
        page = database.run(FetchEvents("ada", "r", seq))
        assert [(event.seq, event.data) for event in page.events] == [(seq + 1, data)]
