"""Recordings on both engines: what was stored is built into the same bytes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, Final

import psycopg

from legation import Agent, Database, Platform, Run, Team, tool
from legation.effects import Program, Transact
from legation.replay.building import encode_lines, fetch_recording
from legation.store.run_reads import FetchRun
from legation_testing import Client, ScriptedModel, call

from ..drivers import Driver, PostgresDriver, SqliteDriver, drive
from .migrating import with_tables

TABLES: Final = ("sessions", "session_states", "runs", "events", "steps", "definitions")
LONG: Final = '\u00e9\U0001f600"\\\n' * 10_000


@tool(requires_confirmation=True)
def book(run: Run[Any, Any], room: int) -> str:
    """Book a room."""
    run.state["room"] = room
    return f"{LONG}{room}"


def shout(message: str) -> str:
    return message.upper()


def ask(member: str) -> Any:
    return call("delegate_task_to_member", member_id=member, task=LONG)


def host() -> Platform:
    clerk = ScriptedModel([call("book", room=7), "Yes.", call("book", room=8), "No."])
    lead = ScriptedModel([[ask("clerk"), ask("alone")], LONG, ask("clerk"), "Bye."])
    return Platform(
        agents=[
            Agent(id="clerk", model=clerk, tools=[book]),
            Agent(id="alone", run=shout),
            Agent(id="echo", history_runs=3),
        ],
        teams=[Team(id="desk", model=lead, members=["clerk", "alone"], history_runs=2)],
        databases=[Database("main", "sqlite:///main.db")],
    )


def record(run_id: str) -> Program[bytes]:
    row = yield from Transact("main", FetchRun(run_id, None, any_owner=True))
    assert row is not None
    made: Any = yield from fetch_recording("main", row, 3)
    lines: Any = encode_lines(made)
    return b"".join(lines)


def copy(source: Driver, target: str) -> None:
    """Copy the rows of a database of SQLite into one of PostgreSQL."""
    with psycopg.connect(target) as connection:
        for table in TABLES:
            names = [name for _, name, *_ in source.ask(f"pragma table_info({table})")]
            rows = source.ask(f"select {', '.join(names)} from {table}")
            marks = ", ".join(["%s"] * len(names))
            insert = f"insert into {table} ({', '.join(names)}) values ({marks})"
            connection.cursor().executemany(insert.encode(), rows)


def test_both_engines_give_the_same_bytes(tmp_path: Path, postgres: str) -> None:
    sent: dict[str, bytes] = {}
    with Client(host(), folder=tmp_path) as client:
        for message in ("Hello", LONG):
            run = client.run("echo", message, session_id="s1", session_state={"a": 1})
            sent[f"/agents/echo/runs/{run['run_id']}"] = b""
            paused = client.run_team("desk", message, session_id="s1")
            done = client.go_on(paused, confirmed=message == "Hello")
            sent[f"/teams/desk/runs/{done['run_id']}"] = b""
        for target in sent:
            sent[target] = client.get(f"{target}/replay").expect_success().body
        client.restart()
        peer = client.peer()
        peer.open()
        for target, body in sent.items():
            assert client.get(f"{target}/replay").body == body
            assert peer.get(f"{target}/replay").body == body
        peer.close()
    with (
        closing(SqliteDriver(tmp_path / "main.db")) as sqlite,
        closing(PostgresDriver(postgres)) as postgresql,
    ):
        with_tables(postgresql)
        copy(sqlite, postgres)
        for target, body in sent.items():
            run_id = target.rpartition("/")[2]
            assert drive(sqlite, record(run_id)) == body
            assert drive(postgresql, record(run_id)) == body
    assert all(body.count(b"\n") > 3 for body in sent.values())
