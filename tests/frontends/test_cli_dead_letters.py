"""`legation dead-letters`: listed, retried and discarded beside whoever serves the databases."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from click.testing import CliRunner, Result

from legation.store import dead_letters as units
from legation.store.failures import Unavailable
from legation_cli import main

from ..trail_pages import ALL_DATA, entries_of_data

PLATFORM: Final = """
[databases.main]
url = "{main}"

[databases.other]
url = "sqlite:///other.db"

[[agents]]
id = "desk"

[[agents]]
id = "far"
database = "other"

[channels.help]
kind = "standard"
agent = "desk"
secret_env = "NO_SUCH_SECRET"
reply_url = "https://127.0.0.1:9/"

[channels.away]
kind = "standard"
agent = "far"
secret_env = "NO_SUCH_SECRET"
reply_url = "https://127.0.0.1:9/"
"""
MESSAGE: Final = """insert into inbox
    (channel, message_id, sender, payload, state, received_us, ready_us, attempts, error)
    values ({0}, {0}, {0}, 'canary', 'dead', {0}, 0, 8, {0})"""
REPLY: Final = """insert into outbox
    (channel, idempotency_key, recipient, payload, state, created_us, ready_us, attempts, error)
    values ({0}, {0}, {0}, 'canary', 'dead', {0}, 0, 8, {0})"""
DAY_US: Final = 86_400_000_000

Ask = Callable[[str], Sequence[Sequence[Any]]]
Row = tuple[str, str, str, int, str]


def _migrate() -> None:
    for name in ("main", "other"):
        assert CliRunner().invoke(main, ["migrate", name]).exit_code == 0


class World:
    """The two databases of an operator; `main` is of either engine."""

    def __init__(self, url: str) -> None:
        self.url = url

    def run(self, statement: str, rows: Sequence[Row] | None = None, name: str = "main") -> Any:
        """Run a statement, for each of `rows` if there are any; return what it finds."""
        if name == "main" and self.url.startswith("postgres"):
            with psycopg.connect(self.url) as there, there.cursor() as cursor:
                if rows is None:
                    cursor.execute(statement.encode())
                    return cursor.fetchall() if cursor.description else None
                cursor.executemany(statement.format("%s").encode(), rows)
                return None
        with closing(sqlite3.connect(f"{name}.db")) as here, here:
            if rows is None:
                return here.execute(statement).fetchall()
            return here.executemany(statement.format("?"), rows).fetchall()

    def put(self, rows: Sequence[Row], statement: str = MESSAGE, name: str = "main") -> None:
        """Store dead letters: channel, id, who, when, and the error."""
        self.run(statement, rows, name)

    def states(self, table: str = "inbox", name: str = "main") -> dict[str, int]:
        """Return how many there are in each state."""
        return dict(self.run(f"select state, count(*) from {table} group by state", name=name))

    def entries(self) -> list[tuple[str, str]]:
        """Return the operations and resources in the trail of the operator here."""
        made = entries_of_data(self.run(ALL_DATA))
        assert all((entry.subject or "").startswith("local:") for entry in made)
        return [(entry.operation, entry.resource) for entry in made]


@pytest.fixture(params=["sqlite", "postgresql"])
def world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[World]:
    monkeypatch.chdir(tmp_path)
    sqlite = request.param == "sqlite"
    url = "sqlite:///main.db" if sqlite else request.getfixturevalue("postgres")
    Path("platform.toml").write_text(PLATFORM.format(main=url))
    path = list(sys.path)
    _migrate()
    yield World(url)
    sys.path[:] = path


def typed(*words: str, stdin: str | None = None) -> Result:
    runner = CliRunner(env={**os.environ, "COLUMNS": "300"})
    return runner.invoke(main, ["dead-letters", *words], input=stdin, catch_exceptions=False)


def listed(*words: str) -> list[str]:
    found = typed("list", *words, "--json")
    assert found.exit_code == 0, found.stderr
    return [letter["id"] for letter in json.loads(found.stdout)["letters"]]


def fill(world: World) -> None:
    """Put three messages and a reply, one message of which is in the other database."""
    world.put([("help", "m1", "49", DAY_US, "HTTP 500"), ("help", "m2", "50", 2 * DAY_US, "no")])
    world.put([("help", "r1", "49", 3 * DAY_US, "HTTP 500: odd\x1b[2J")], REPLY)
    world.put([("away", "m1", "49", DAY_US, "HTTP 500")], name="other")


def test_they_are_listed_and_narrowed(world: World) -> None:
    fill(world)

    assert listed() == ["m1", "m2", "r1", "m1"]
    assert listed("--channel", "help", "--what", "messages") == ["m1", "m2"]
    assert listed("--database", "other") == ["m1"]
    assert listed("--reason", "HTTP 500", "--until", "1970-01-03") == ["m1", "m1"]
    assert listed("--since", "1970-01-03T00:00:00Z") == ["m2", "r1"]
    assert listed("--id", "r1", "--id", "no-such") == ["r1"]
    table = typed("list", "--limit", "3")
    assert [line.split()[:3] for line in table.stdout.splitlines()] == [
        ["CHANNEL", "WHAT", "ID"],
        ["help", "messages", "m1"],
        ["help", "messages", "m2"],
        ["help", "replies", "r1"],
    ]
    assert table.stderr == "3 of 4 are shown; --limit shows more.\n"
    assert "canary" not in table.stdout
    assert "\x1b" not in table.stdout


def test_one_is_shown_with_its_replies_and_without_its_text(world: World) -> None:
    fill(world)
    world.run("update outbox set message_id = 'm1'")
    whole = json.loads(typed("show", "m1", "--channel", "help", "--json").stdout)

    assert [reply["id"] for reply in whole[0]["replies"]] == ["r1"]
    assert (whole[0]["db_id"], whole[0]["attempts"]) == ("main", 8)
    both = typed("show", "m1")
    assert both.stdout.count("HTTP 500") == 3
    assert "canary" not in both.stdout
    assert "id" in typed("show", "r1").stdout
    absent = typed("show", "no-such")
    assert (absent.exit_code, absent.stderr) == (1, "there is no dead letter 'no-such'\n")


def test_they_are_retried_with_an_entry_in_the_trail(world: World) -> None:
    fill(world)
    counted = typed("retry", "--reason", "HTTP 500", "--dry-run")
    assert counted.stdout.splitlines() == [
        "main: messages of help: 1 would be retried",
        "main: replies of help: 1 would be retried",
        "other: messages of away: 1 would be retried",
    ]
    assert world.states() == {"dead": 2}
    done = typed("retry", "platform.toml", "--reason", "HTTP 500", "--database", "main")

    assert (done.exit_code, done.stderr) == (0, "")
    assert world.states() == {"dead": 1, "ready": 1}
    assert world.states("outbox") == {"ready": 1}
    assert world.states(name="other") == {"dead": 1}
    assert world.entries() == [
        ("dead_letters.retry", "help/messages"),
        ("dead_letters.retry", "help/replies"),
    ]


def test_ten_thousand_are_discarded_in_small_steps(world: World) -> None:
    world.put([("help", f"m{n}", f"{n}", n, "HTTP 500") for n in range(10_000)])
    asked = typed("discard", "--channel", "help", stdin="n\n")
    assert (asked.exit_code, asked.stdout) == (1, "")
    assert "Discard 10000 letters for good?" in asked.stderr
    assert world.states() == {"dead": 10_000}
    done = json.loads(typed("discard", "--channel", "help", "--yes", "--json").stdout)

    assert done == {
        "dry_run": False,
        "discarded": [
            {
                "db_id": "main",
                "channel": "help",
                "what": "messages",
                "dead": 10_000,
                "count": 10_000,
                "failed": None,
            }
        ],
        "skipped": [],
        "unknown": [],
    }
    assert world.states() == {"done": 10_000}
    assert world.entries() == [("dead_letters.discard", "help/messages")] * 50
    assert typed("discard", "--all", "--yes").stdout == "No dead letter.\n"


def test_what_was_done_is_said_where_it_ends_half_way(world: World) -> None:
    world.put([("help", f"m{n}", f"{n}", n, "no") for n in range(500)])
    retried = units.RetryLetters.statements
    calls = 0

    def fail(self: Any, dialect: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise Unavailable("it is away")
        return (yield from retried(self, dialect))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(units.RetryLetters, "statements", fail)
        broken = typed("retry", "--all")
    assert (broken.exit_code, broken.stdout) == (2, "main: messages of help: 400 retried\n")
    assert "400 of 500 retried, then: the database does not answer" in broken.stderr
    assert world.states() == {"dead": 100, "ready": 400}

    assert typed("retry", "--all").stdout == "main: messages of help: 100 retried\n"


def test_ids_have_to_be_of_one_letter_each(world: World) -> None:
    fill(world)
    several = typed("retry", "--id", "m1")
    assert several.exit_code == 2
    assert "several dead letters have the id 'm1': add --channel" in several.stderr
    some = typed("retry", "--id", "m2", "--id", "gone")

    assert (some.exit_code, some.stdout) == (1, "main: messages of help: 1 retried\n")
    assert some.stderr == "there is no dead letter 'gone'\n"
    assert typed("retry", "--id", "m1", "--database", "other").exit_code == 0


def test_of_a_channel_that_nobody_hosts_they_are_discarded_alone(world: World) -> None:
    world.put([("old", "m", "49", 1, "no")])
    retried = typed("retry", "--all")
    assert (retried.exit_code, retried.stdout) == (0, "")
    assert "main: messages of old: 1 dead; the channel is not in the config" in retried.stderr
    assert listed("--channel", "old") == ["m"]

    assert typed("discard", "--channel", "old", "--yes").exit_code == 0
    assert world.states() == {"done": 1}


@pytest.fixture
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    Path("platform.toml").write_text(PLATFORM.format(main="sqlite:///main.db"))
    path = list(sys.path)
    yield
    sys.path[:] = path


@pytest.mark.usefixtures("_folder")
def test_what_cannot_be_done_is_one_sentence() -> None:
    absent = typed("list")
    assert (absent.exit_code, absent.stdout) == (2, "")
    assert "there is no file" in absent.stderr
    Path("main.db").touch()
    Path("other.db").touch()
    bare = typed("retry", "--all")
    assert bare.exit_code == 2
    assert bare.stderr.startswith("Error: the dead letters cannot be read: ")
    _migrate()
    wrong = typed("discard", "--channel", "hlep", "--yes")
    assert wrong.exit_code == 2
    assert "no channel 'hlep' has a dead letter; configured are: help, away" in wrong.stderr
    assert typed("list", "--database", "mian").exit_code == 2
    for command in ("retry", "discard"):
        open_ended = typed(command)
        assert open_ended.exit_code == 2
        assert "say which letters: by --channel, --id" in open_ended.stderr
    assert typed("list").stdout == "No dead letter.\n"


@pytest.mark.usefixtures("_folder")
def test_a_change_without_the_key_of_the_trail_is_refused() -> None:
    _migrate()
    key = '[[audit.keys]]\nid = "k"\nsecret_env = "NO_SUCH_KEY"\n'
    Path("platform.toml").write_text(Path("platform.toml").read_text() + key)

    refused = typed("discard", "--all", "--yes")
    assert (refused.exit_code, "audit.keys" in refused.stderr) == (2, True)
    assert typed("discard", "--all", "--dry-run").exit_code == 0
