"""`legation migrate` as a person and a script meet it: processes, their output, their exit code."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import chdir, closing
from pathlib import Path
from typing import Final

import pytest
from attrs import frozen
from click.testing import CliRunner

from legation.migrations.catalogue import CATALOGUE
from legation.migrations.schema_version import Version
from legation_cli import main

from .migrating import LATEST, run

CONFIGURATION: Final = """
[databases.main]
url = "sqlite:///{folder}/main.db"

[databases.gone]
url = "postgresql://nobody:hunter2@127.0.0.1:1/none"
"""


class Terminal:
    """A folder with a platform.toml, and commands typed in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "platform.toml").write_text(CONFIGURATION.format(folder=folder))
        self.url = f"sqlite:///{folder}/main.db"
        self.runner = CliRunner(env={"LEGATION_DATA": str(folder / "data"), "COLUMNS": "100"})

    def type(self, *words: str, folder: Path | None = None) -> Typed:
        """Run `legation migrate` with these words in this process, which is quick."""
        with chdir(folder or self.folder):
            done = self.runner.invoke(main, ["migrate", *words])
        assert isinstance(done.exception, SystemExit | None), done.exception
        return Typed(done.exit_code, done.stdout, done.stderr)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start it as a process of its own."""
        command = [sys.executable, "-m", "legation_cli", "migrate", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.folder, stdout=pipe, stderr=pipe, text=True)

    def succeed(self, *words: str) -> list[str]:
        """Return the lines of a command that has to succeed and to complain of nothing."""
        done = self.type(*words)
        assert (done.code, done.stderr) == (0, "")
        return done.stdout.splitlines()

    def version(self) -> str:
        """Return where the database stands, by its own ledger."""
        with closing(sqlite3.connect(self.folder / "main.db")) as connection:
            rows = connection.execute("select to_version from schema_ledger order by seq desc")
            return str(rows.fetchone()[0])


@frozen
class Typed:
    """What came of a command."""

    code: int
    stdout: str
    stderr: str


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def test_the_plan_the_work_and_the_way_back(terminal: Terminal) -> None:
    missing, *planned = terminal.succeed("main", "--plan")
    done = terminal.succeed("main")
    again = terminal.succeed("platform.toml", "main")

    assert missing == f"There is no file {terminal.folder}/main.db yet."
    assert planned[0] == "Now at 0.0.0 (sqlite)."
    assert planned[1] == "  up to 2.0.0: sessions, runs and their events"
    assert planned[2].strip().endswith("statements")
    assert done == [*planned, f"Database migrated successfully to version {LATEST}"]
    assert terminal.version() == LATEST
    assert again == [
        f"Now at {LATEST} (sqlite).",
        f"Already at {LATEST}: nothing to do.",
        f"Database migrated successfully to version {LATEST}",
    ]

    refused = terminal.type("main", "--to", "2.5.0")
    assert refused.code == 2
    assert "    loses the list of nodes" in refused.stdout
    newest, *_ = CATALOGUE.migrations[-1].loses
    assert refused.stderr.startswith(f"Error: going down to 2.5.0 discards {newest}; ")
    undone = [one for one in CATALOGUE.migrations if one.version > Version(2, 5)]
    assert not [loss for one in undone for loss in one.loses if loss not in refused.stderr]
    assert refused.stderr.endswith(": --allow-data-loss accepts that\n")
    assert terminal.version() == LATEST

    down = terminal.succeed("main", "--to", "2.5.0", "--allow-data-loss")
    assert down[-1] == "Database migrated successfully to version 2.5.0"
    assert terminal.version() == "2.5.0"


def test_it_is_a_process_with_an_exit_code(terminal: Terminal) -> None:
    with terminal.start("nope") as refused, terminal.start("main", "--plan") as planned:
        said, complained = refused.communicate(timeout=60)
        shown, nothing = planned.communicate(timeout=60)

    assert (refused.returncode, said) == (2, "")
    assert complained == "Error: there is no database 'nope'; there are: main, gone\n"
    assert (planned.returncode, nothing) == (0, "")
    assert shown.partition("\n")[2].startswith("Now at 0.0.0 (sqlite).\n  up to 2.0.0: ")


def test_a_script_reads_json(terminal: Terminal) -> None:
    planned = json.loads("\n".join(terminal.succeed("main", "--plan", "--json")))
    done = json.loads("\n".join(terminal.succeed("main", "--to", "2.3", "--json")))
    down = json.loads("\n".join(terminal.succeed("main", "--to", "2.0", "--plan", "--json")))

    assert (planned["database"], planned["engine"], planned["done"]) == ("main", "sqlite", False)
    assert (planned["from_version"], planned["to_version"]) == ("0.0.0", LATEST)
    assert len(planned["moves"]) == len(CATALOGUE.migrations)
    assert (done["to_version"], done["done"], len(done["moves"])) == ("2.3.0", True, 2)
    assert done["moves"][0]["statements"][0].startswith("create table sessions (")
    assert down["loses"] == [
        "every message received, answered or not",
        "every reply, sent or not",
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nope"], "Error: there is no database 'nope'; there are: main, gone\n"),
        (
            ["main", "--to", "abc"],
            "Error: 'abc' is not a version: expected up to three numbers, as 2.5.6\n",
        ),
        (["main", "--to", "9"], "Error: There is no version 9.0.0; known are 0.0.0, 2.0.0"),
        (["none.toml", "main"], "Error: none.toml: "),
        ([], "name one database, after the platform's file if there is one"),
        (["a", "b", "c"], "name one database, after the platform's file if there is one"),
    ],
    ids=["unknown database", "no version", "unknown version", "no file", "nothing", "too much"],
)
def test_what_cannot_be_done_is_one_sentence_and_exit_code_2(
    terminal: Terminal, words: list[str], sentence: str
) -> None:
    done = terminal.type(*words)

    assert (done.code, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_database_that_does_not_answer_is_named_and_its_password_is_not(
    terminal: Terminal,
) -> None:
    done = terminal.type("gone")

    assert (done.code, done.stdout) == (2, "")
    assert "Connection refused" in done.stderr
    assert done.stderr.endswith("Error: the database 'gone' does not answer\n")
    assert "hunter2" not in done.stderr


def test_a_database_of_something_else_is_not_said_to_be_silent(terminal: Terminal) -> None:
    run(terminal.url, "create table schema_ledger (of_something_else text)")

    done = terminal.type("main")

    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.endswith(
        "Error: the ledger in 'main' is none of ours: this is the database of something else\n"
    )


def test_what_was_tried_and_failed_tells_the_reason(terminal: Terminal) -> None:
    terminal.succeed("main", "--to", "2.5.0")
    run(terminal.url, "create table background (in_the_way text)")

    done = terminal.type("main")

    assert done.code == 2
    assert "table background already exists" in done.stderr
    assert done.stderr.endswith("the old version stands\n")
    assert terminal.version() == "2.5.0"


@pytest.mark.parametrize("change", ["seal = 'another'", "to_version = 'x'"], ids=str)
def test_a_history_of_other_hands_is_not_built_upon(terminal: Terminal, change: str) -> None:
    terminal.succeed("main")
    run(terminal.url, f"update schema_ledger set {change}")

    done = terminal.type("main")

    assert (done.code, done.stderr.count("\n")) == (2, 1)


@pytest.fixture
def lock(terminal: Terminal) -> Generator[Callable[[], None]]:
    """Hold the file; what is yielded lets it go."""
    terminal.succeed("main", "--to", "2.5.0")
    with closing(sqlite3.connect(terminal.folder / "main.db", isolation_level=None)) as holder:
        holder.execute("begin immediate")
        yield holder.rollback


def test_a_wait_for_a_lock_is_told_while_it_lasts(
    terminal: Terminal, lock: Callable[[], None]
) -> None:
    with terminal.start("platform.toml", "main") as process:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or "waiting" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], "it ended without waiting"
        lock()
        rest = process.stdout.read()

    assert rest == f"Database migrated successfully to version {LATEST}\n"
    assert process.returncode == 0
    assert terminal.version() == LATEST


def test_without_a_file_the_demonstration_is_meant(terminal: Terminal, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = terminal.type("main", folder=elsewhere)

    assert done.stdout.endswith(f"Database migrated successfully to version {LATEST}\n")
    assert (tmp_path / "data" / "hotel.db").exists()


def test_the_help_teaches(terminal: Terminal) -> None:
    told = "\n".join(terminal.succeed("--help"))

    assert "[PLATFORM.TOML | MODULE:ATTRIBUTE] DATABASE" in told
    for word in ("--to VERSION", "--plan", "--allow-data-loss", "--json", "Exit code 2"):
        assert word in told
    assert "legation migrate main --plan" in told
    assert "All of it is done in one transaction, or nothing." in told
