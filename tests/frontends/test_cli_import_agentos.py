"""`legation import agentos`: databases that agno 2.5.6 and 3.1.10 wrote, on both engines.

The recorded ones have eight sessions: two runs with metadata, a tool, a team with a member, files,
nobody's, a failure and an end, a pause, and a team whose member calls a tool.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import psycopg
import pytest

from legation import Agent, Database, Platform, Request, Response
from legation.models.conversation import Prompt
from legation_cli.agentos_source import Tables, open_source
from legation_cli.failing import CannotGoOn
from legation_host.hosting import open_platform
from legation_testing import ScriptedModel

from ..clients.agentos_differences import DIFFERENCES, OF_VERSION_3
from ..engines import Cluster
from ..trail_pages import ALL_DATA, entries_of_data
from .operators import Operator

RECORDED: Final = Path(__file__).parents[1] / "agentos"
VERSIONS: Final = ("2.5.6", "3.1.10")
PLATFORM: Final = """
[databases.main]
url = "{url}"

[databases.second]
url = "sqlite:///second.db"

[[agents]]
id = "clerk"
name = "Clerk"
"""
JSON_COLUMNS: Final = frozenset(
    """session_data agent_data team_data workflow_data metadata runs summary run_data""".split()
)


def write_source(version: str, path: Path = Path("agno.db")) -> str:
    """Make the database of a version; return its URL."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((RECORDED / f"{version}.sql").read_text("utf-8"))
    return f"sqlite:///{path}"


def copy_to_postgres(path: Path, url: str, schema: str = "ai") -> None:
    """Copy the tables into a schema, their JSON as documents, as agno has them there."""
    with closing(sqlite3.connect(path)) as source, psycopg.connect(url) as target:
        target.execute(f"create schema {schema}".encode())
        names = source.execute("select name from sqlite_master where type = 'table'").fetchall()
        for (table,) in names:
            rows = source.execute(f"select * from {table}")
            columns = [name for name, *_ in rows.description]
            kinds = ("jsonb" if name in JSON_COLUMNS else "text" for name in columns)
            made = ", ".join(f"{name} {kind}" for name, kind in zip(columns, kinds, strict=True))
            target.execute(f"create table {schema}.{table} ({made})".encode())
            marks = ", ".join(["%s"] * len(columns))
            for row in rows:
                values = [
                    _decode(value) if name in JSON_COLUMNS else value
                    for name, value in zip(columns, row, strict=True)
                ]
                target.execute(f"insert into {schema}.{table} values ({marks})".encode(), values)
        for table, column in (("sessions", "created_at"), ("sessions", "updated_at")):
            changed = f"alter table {schema}.agno_{table} alter column {column}"
            target.execute(f"{changed} type bigint using {column}::bigint".encode())


def _decode(text: str | None) -> str | None:
    value: Any = text
    while isinstance(value, str):
        value = json.loads(value)
    return None if value is None else json.dumps(value)


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """An operator whose platform has two empty databases."""
    monkeypatch.chdir(tmp_path)
    return at_platform(tmp_path, "sqlite:///main.db")


def at_platform(folder: Path, url: str) -> Operator:
    operator = Operator(folder, {})
    Path("platform.toml").write_text(PLATFORM.format(url=url))
    for name in ("main", "second"):
        assert operator.run("migrate", name).exit_code == 0
    return operator


def import_json(operator: Operator, url: str, *options: str) -> dict[str, Any]:
    done = operator.run("import", "agentos", url, *options, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@contextmanager
def main_db() -> Generator[sqlite3.Connection]:
    with closing(sqlite3.connect("main.db")) as connection:
        yield connection


def rows(query: str) -> list[Any]:
    with main_db() as connection:
        return connection.execute(query).fetchall()


COUNTS: Final = {
    "sessions": 8, "new_sessions": 8, "sessions_without_user": 1, "runs": 12, "runs_of_members": 2,
    "runs_known": 0, "files": 2, "databases": {"main": 8}, "unhosted": {"team:desk": 2},
    "tables": {},
}  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_a_recorded_database_comes_in_once(operator: Operator, version: str) -> None:
    url = write_source(version)
    digest = hashlib.sha256(Path("agno.db").read_bytes()).digest()
    dry = import_json(operator, url, "--dry-run")
    assert rows("select count(*) from sessions") == [(0,)]
    done = import_json(operator, url)
    again = import_json(operator, url)

    assert {name: done[name] for name in COUNTS} == COUNTS
    assert dry == {**done, "dry_run": True}
    assert done["left_out"]["run_unfinished"]["count"] == 1
    assert set(done["left_out"]) == {"run_unfinished", "system_message"}
    assert (again["runs"], again["runs_known"], again["new_sessions"]) == (0, 12, 0)
    assert rows("select count(*), sum(runs) from sessions") == [(8, 12)]
    assert rows("select count(*), count(distinct run_id) from runs") == [(12, 12)]
    assert hashlib.sha256(Path("agno.db").read_bytes()).digest() == digest
    with main_db() as connection:
        entries = entries_of_data(connection.execute(ALL_DATA))
    assert {entry.operation for entry in entries} == {"import.agentos"}
    assert {entry.resource for entry in entries} >= {"s-0/user_id=user-0", "s-4"}
    assert all((entry.subject or "").startswith("local:") for entry in entries)


@pytest.mark.parametrize("version", VERSIONS)
def test_postgresql_gives_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_cluster: Cluster, version: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_source(version)
    with postgres_cluster.new_database() as source, postgres_cluster.new_database() as target:
        copy_to_postgres(Path("agno.db"), source)
        operator = at_platform(tmp_path, target)
        dry = import_json(operator, source, "--dry-run")
        done = import_json(operator, source.replace("postgresql://", "postgresql+psycopg://"))
        again = import_json(operator, source)
        with psycopg.connect(target) as connection:
            stored = connection.execute(
                "select session_id, kind, component_id, name, state, runs from sessions order by 1"
            ).fetchall()
    operator = at_platform(tmp_path, "sqlite:///main.db")
    import_json(operator, "sqlite:///agno.db")

    assert {name: done[name] for name in COUNTS} == COUNTS
    assert dry == {**done, "dry_run": True}
    assert (again["runs"], again["runs_known"]) == (0, 12)
    assert stored == rows(
        "select session_id, kind, component_id, name, state, runs from sessions order by 1"
    )


def test_the_report_is_text_for_a_person(operator: Operator) -> None:
    url = write_source("3.1.10")
    with closing(sqlite3.connect("agno.db", isolation_level=None)) as connection:
        connection.execute("create table agno_memories (memory)")
        connection.execute("insert into agno_memories values (1), (2)")
    done = operator.run("import", "agentos", url, "--left-out", "left-out.ndjson")
    lines = done.stdout.splitlines()
    listed = [json.loads(line) for line in Path("left-out.ndjson").read_text().splitlines()]

    assert (
        lines[0] == "imported: 8 sessions, 8 of them new; 12 new runs with 31 messages and 2 files"
    )
    assert lines[1:3] == ["  without a user: 1 session", "  not hosted here: team:desk, 2 sessions"]
    assert lines[3].startswith("  left out: runs that are not over: import again when they are")
    assert lines[-1] == "  not imported: agno_memories, 2 rows"
    assert {line["reason"] for line in listed} == {"run_unfinished", "system_message"}
    again = operator.run("import", "agentos", url, "--dry-run").stdout.splitlines()
    assert again[:2] == [
        "would import: 8 sessions, 0 of them new; 0 new runs with 0 messages and 0 files",
        "  here before: 12 runs",
    ]


def test_what_never_ends_there_ends_here(operator: Operator) -> None:
    url = write_source("2.5.6")
    options = ("--final", "--user", "guest", "--database", "second")
    done = import_json(operator, url, *options)

    assert (done["runs"], done["databases"]) == (13, {"second": 8})
    with closing(sqlite3.connect("second.db")) as connection:
        paused = connection.execute("select status from runs where session_id = 's-6'").fetchall()
        owners = connection.execute(
            "select owner from sessions where session_id = 's-4'"
        ).fetchall()
    assert (paused, owners) == ([("CANCELLED",)], [("guest",)])
    unknown = operator.run("import", "agentos", url, "--database", "third")
    assert (unknown.exit_code, unknown.stderr) == (
        2,
        "Error: there is no database 'third'; there are: main, second\n",
    )


def test_a_session_goes_on_with_its_history(operator: Operator) -> None:
    import_json(operator, write_source("2.5.6"))
    model = ScriptedModel(["It goes on."])
    ran, listed = anyio.run(go_on, model)
    (prompt,) = model.prompts

    assert ran.status == 200
    assert describe(prompt) == [
        ("user", 'call add {"item": "tea"}', 0),
        ("assistant", "", 1),
        ("tool", "added tea", 0),
        ("assistant", "You said: added tea", 0),
        ("user", "And now?", 0),
    ]
    runs = json.loads(listed.body)
    assert [run["content"] for run in runs] == ["You said: added tea", "It goes on."]
    assert runs[-1]["session_state"] == {"items": ["tea"]}
    assert import_json(operator, "sqlite:///agno.db")["runs"] == 0
    assert rows("select runs, state from sessions where session_id = 's-1'") == [
        (2, '{"items":["tea"]}')
    ]


async def go_on(model: ScriptedModel) -> tuple[Response, Response]:
    """Run the agent in a session that was imported; return the run, and those of the session."""
    platform = Platform(
        databases=[Database("main", "sqlite:///main.db")],
        agents=[Agent(id="clerk", model=model)],
    )
    form = b"message=And+now%3F&stream=false&session_id=s-1&user_id=user-1"
    headers = ((b"host", b"localhost"), (b"content-type", b"application/x-www-form-urlencoded"))
    async with open_platform(platform, jobs=False) as host:
        asked = Request("POST", "/agents/clerk/runs", headers)
        ran = await host.run(platform.answer(asked), body=Body(form))
        listing = Request("GET", "/sessions/s-1/runs?user_id=user-1", headers[:1])
        listed = await host.run(platform.answer(listing))
    assert isinstance(ran, Response)
    assert isinstance(listed, Response)
    return ran, listed


class Body:
    """The body of a request."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def read(self, limit: int) -> bytes | None:
        return self.content if len(self.content) <= limit else None


def describe(prompt: Prompt) -> list[tuple[str, str, int]]:
    return [(one.role, one.content, len(one.calls)) for one in prompt.messages]


def test_what_is_new_there_comes_in_later(operator: Operator) -> None:
    url = write_source("3.1.10")
    import_json(operator, url)
    with closing(sqlite3.connect("agno.db", isolation_level=None)) as connection:
        connection.execute(
            "update agno_runs set run_data = json_set(run_data, '$.status', 'COMPLETED')"
        )
        connection.execute(
            """insert into agno_sessions (session_id, session_type, agent_id, created_at)
            values ('s-9', 'agent', 'clerk', 5)"""
        )
    done = import_json(operator, url)

    assert (done["new_sessions"], done["runs"], done["runs_known"]) == (1, 1, 12)
    assert rows("select run_no, status from runs where session_id = 's-6'") == [(1, "COMPLETED")]


def test_tables_of_other_names(operator: Operator) -> None:
    url = write_source("3.1.10")
    with closing(sqlite3.connect("agno.db", isolation_level=None)) as connection:
        connection.execute('alter table agno_sessions rename to "my ""sessions"')
        connection.execute('alter table agno_runs rename to "my ""sessions_runs"')
    absent = operator.run("import", "agentos", url)
    assert absent.stderr == (
        "Error: there is no table agno_sessions of sessions there"
        " (there are: agno_schema_versions); name yours with --sessions-table\n"
    )
    assert import_json(operator, url, "--sessions-table", 'my "sessions')["runs"] == 12
    other = ("--sessions-table", 'my "sessions', "--runs-table", 'my "sessions_runs')
    assert import_json(operator, url, *other)["runs_known"] == 12


def test_a_session_that_is_too_large_is_not_read(operator: Operator) -> None:
    url = write_source("3.1.10")
    with closing(sqlite3.connect("agno.db", isolation_level=None)) as connection:
        connection.execute(
            "update agno_runs set run_data = json_set(run_data, '$.content', ?)"
            " where session_id = 's-0'",
            ("x" * (1 << 20),),
        )
    done = import_json(operator, url, "--max-session-mib", "1")

    assert done["left_out"]["session_too_large"]["first"] == ["s-0"]
    assert done["sessions"] == 7


def test_hostile_rows_do_not_stop_the_rest(operator: Operator) -> None:
    url = write_source("2.5.6")
    with closing(sqlite3.connect("agno.db", isolation_level=None)) as connection:
        connection.execute("update agno_sessions set runs = '[[[' where session_id = 's-0'")
        connection.execute(
            "update agno_sessions set runs = ? where session_id = 's-1'", ("[" * 200_000,)
        )
        connection.execute(
            "update agno_sessions set metadata = cast(x'ff22' as text), created_at = 'soon'"
            " where session_id = 's-2'"
        )
        connection.executemany(
            "insert into agno_sessions (session_id, session_type, created_at) values (?, ?, ?)",
            [(b"\xff", "agent", 1), ("i" * 1_000_000, "agent", 1), ("flow", "workflow", 1),
             ("a/b", "agent", -1), ("a;b", "agent", 1)],
        )  # fmt: skip
    done = import_json(operator, url)

    counts = {reason: one["count"] for reason, one in done["left_out"].items()}
    assert counts == {
        "workflow": 1, "session_id": 3, "session_unreadable": 2, "run_unfinished": 1,
        "session_value": 1, "system_message": counts["system_message"],
    }  # fmt: skip
    assert done["sessions"] == 7
    assert rows("select session_id from sessions where session_id like 'a%'") == [("a/b",)]


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mysql://x/y", "write the URL as sqlite:///agno.db or postgresql://"),
        ("agno.db", "write the URL as sqlite:///agno.db or postgresql://"),
        ("sqlite:///none.db", "none.db: there is no such file"),
        ("sqlite:///notes.db", "the database cannot be read: file is not a database"),
        ("sqlite:///old.db", "agno_sessions is a table of agno 1, or no table of sessions"),
        ("postgresql://ada:secret@127.0.0.1:9/x", "the database does not answer"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(operator: Operator, url: str, sentence: str) -> None:
    Path("notes.db").write_text("no database" * 100)
    with closing(sqlite3.connect("old.db", isolation_level=None)) as connection:
        connection.execute("create table agno_sessions (session_id, memory)")
    done = operator.run("import", "agentos", url)

    assert done.exit_code == 2
    assert sentence in done.stderr
    assert "secret" not in done.stderr
    assert not Path("none.db").exists()


def test_a_target_that_is_not_there_is_one_sentence(operator: Operator) -> None:
    url = write_source("2.5.6")
    with main_db() as connection:
        connection.execute("drop table usage")
    broken = operator.run("import", "agentos", url)
    Path("main.db").unlink()
    absent = operator.run("import", "agentos", url)
    dry = operator.run("import", "agentos", url, "--dry-run")

    assert broken.exit_code == absent.exit_code == dry.exit_code == 2
    assert broken.stderr.startswith("Error: not all was imported: ")
    assert "`legation migrate main` makes it" in absent.stderr
    assert dry.stderr.startswith("Error: ")


def test_a_read_that_fails_midway_is_one_sentence(operator: Operator) -> None:
    write_source("3.1.10")
    with (
        open_source("sqlite:///agno.db", Tables(), 1 << 20) as source,
        closing(sqlite3.connect("agno.db", isolation_level=None)) as connection,
    ):
        connection.execute("drop table agno_runs")
        with pytest.raises(CannotGoOn, match="the database cannot be read: no such table"):
            list(source.sessions())


def test_postgresql_is_read_only_and_its_errors_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_database: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_source("3.1.10")
    copy_to_postgres(Path("agno.db"), postgres_database, "other")
    absent = open_source(postgres_database, Tables(), 1)
    with pytest.raises(CannotGoOn, match="there is no table agno_sessions"), absent:
        pass
    with open_source(postgres_database, Tables(schema="other"), 1 << 20) as source:
        assert len(list(source.sessions())) == 8
        assert source.count_others() == {}
        with pytest.raises(CannotGoOn, match="cannot execute CREATE TABLE in a read-only"):
            source.ask("create table other.t (a bigint)")


def test_the_page_has_each_difference() -> None:
    page = (Path(__file__).parents[2] / "docs/howto/agentos-import.md").read_text("utf-8")
    shown = set(
        re.findall(r"^\| (?:sessions|messages|runs|agno 3) \| (.+) \|$", page, re.MULTILINE)
    )

    assert shown >= {*DIFFERENCES.values(), *OF_VERSION_3.values()}
