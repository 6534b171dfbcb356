"""A command that only reads creates nothing, wherever the database is or is not."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from legation.effects import HoldName, NameHeld, Now, Program, Transact
from legation.migrations.ledger import LedgerReading, ReadLedger
from legation_cli import main
from legation_cli.reading import read_beside
from legation_host.errors import UnusableDatabase

from .commands import CALLS, every_command, write_agentos, write_key

READERS = [name for name, call in CALLS.items() if call.reads]
PLATFORM = """
[databases.main]
url = "sqlite:///main.db"

[[agents]]
id = "desk"

[channels.help]
kind = "standard"
agent = "desk"
secret_env = "HELP_KEY"
reply_url = "https://127.0.0.1/replies"
"""
NEEDS_A_FILE = (
    *("audit export", "audit refusals", "audit verify", "channels show"),
    *("replay", "users export"),
)
"""These say that there is none, with exit code 2; the others do not ask the database."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("LEGATION_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HELP_KEY", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    write_key(Path("key.pem"))
    write_agentos(Path("agno.db"))
    path = list(sys.path)
    yield tmp_path
    sys.path[:] = path


def everything(folder: Path) -> dict[str, int]:
    """Return what lies below `folder`, with its sizes."""
    found = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): path.stat().st_size for path in found}


def typed(name: str, *more: str) -> Result:
    words = (*name.split(), *CALLS[name].words(None), *more)
    return CliRunner().invoke(main, words, catch_exceptions=False)


def test_every_command_is_one_that_reads_or_one_that_writes() -> None:
    assert set(every_command()) == set(CALLS)
    assert {name for name, call in CALLS.items() if not call.reads} == {
        "audit prune",
        "backup",
        "chat",
        "dead-letters discard",
        "dead-letters retry",
        "import agentos",
        "init",
        "keys new",
        "keys rotate",
        "restore",
        "retention",
        "round",
        "runs cancel",
        "serve",
        "users erase",
    }


@pytest.mark.parametrize("name", READERS)
def test_nothing_appears_where_the_demonstration_has_never_been_served(
    folder: Path, name: str
) -> None:
    before = everything(folder)
    result = typed(name)

    assert everything(folder) == before
    assert "Traceback" not in result.output


@pytest.mark.parametrize("name", READERS)
def test_nothing_appears_where_the_file_of_the_database_does_not_exist(
    folder: Path, name: str
) -> None:
    Path("platform.toml").write_text(PLATFORM)
    before = everything(folder)
    result = typed(name)

    assert everything(folder) == before
    if name in NEEDS_A_FILE:
        assert result.stderr == "Error: databases.main.url: there is no file main.db yet\n"
        assert (result.exit_code, result.stdout) == (2, "")


def test_the_plan_for_a_file_that_does_not_exist_begins_at_the_beginning() -> None:
    Path("platform.toml").write_text(PLATFORM)
    result = typed("migrate")

    assert result.exit_code == 0
    first, second, *_ = result.stdout.splitlines()
    assert (first, second) == ("There is no file main.db yet.", "Now at 0.0.0 (sqlite).")


def test_a_migration_that_is_refused_makes_no_file(folder: Path) -> None:
    Path("platform.toml").write_text(PLATFORM)
    before = everything(folder)
    result = CliRunner().invoke(main, ["migrate", "main", "--to", "99"])

    assert result.exit_code == 2
    assert everything(folder) == before


@pytest.mark.parametrize("name", READERS)
def test_a_database_that_is_there_is_read_and_nothing_appears_beside_it(
    folder: Path, name: str
) -> None:
    Path("platform.toml").write_text(PLATFORM)
    assert CliRunner().invoke(main, ["migrate", "main"]).exit_code == 0
    shutil.rmtree("main.db-locks", ignore_errors=True)
    before = everything(folder)
    result = typed(name)

    assert everything(folder) == before
    assert "there is no file" not in result.output
    assert result.exit_code in {0, 1}, result.stderr


@pytest.mark.parametrize("name", READERS)
def test_an_empty_file_stays_empty(folder: Path, name: str) -> None:
    Path("platform.toml").write_text(PLATFORM)
    Path("main.db").touch()
    before = everything(folder)
    typed(name)

    assert everything(folder) == before


def test_nothing_is_pruned_where_there_is_no_file(folder: Path) -> None:
    Path("platform.toml").write_text(PLATFORM)
    before = everything(folder)
    result = typed("audit prune")

    assert everything(folder) == before
    assert result.stderr == "Error: databases.main.url: there is no file main.db yet\n"
    assert result.exit_code == 2


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
def test_the_demonstration_is_described_where_nothing_may_be_written(folder: Path) -> None:
    folder.chmod(0o500)
    try:
        assert typed("openapi").exit_code == 0
    finally:
        folder.chmod(0o700)


def test_a_database_in_memory_is_read_by_nobody_beside_it() -> None:
    def program() -> Program[LedgerReading]:
        return (yield from Transact("main", ReadLedger()))

    with pytest.raises(UnusableDatabase, match="it is in memory"):
        read_beside({"main": "sqlite://"}, program())


def test_the_plan_for_a_database_in_memory_begins_at_the_beginning() -> None:
    Path("platform.toml").write_text('[databases.main]\nurl = "sqlite://"\n')
    result = typed("migrate")

    assert result.exit_code == 0
    assert "Now at 0.0.0 (sqlite)." in result.stdout


def test_a_reader_performs_no_effect_that_acts() -> None:
    with closing(sqlite3.connect("main.db")):
        pass

    def program() -> Program[tuple[int, NameHeld]]:
        return (yield from Now()), (yield from HoldName("main", "n"))

    with pytest.raises(NotImplementedError):
        read_beside({"main": "sqlite:///main.db"}, program())
