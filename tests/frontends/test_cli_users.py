"""`legation users`: a person is erased and exported beside whoever serves the databases."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from legation.migrations.catalogue import CATALOGUE
from legation.migrations.migrate import Migrated, migrate

from ..drivers import SqliteDriver, drive
from ..trail_pages import ALL_DATA, entries_of_data
from .operators import Operator

SESSION = """insert into sessions
    (owner, session_id, kind, component_id, name, created_us, updated_us)
    values (?, 's', 'agent', 'a', 'words of ' || ?, 1, 1)"""


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """An operator whose database has a session of ada, and one of eve."""
    monkeypatch.chdir(tmp_path)
    operator = Operator(tmp_path, {})
    operator.keys()
    with closing(SqliteDriver(tmp_path / "front-office.db")) as driver:
        program = migrate("main", CATALOGUE, None, actor="test", request_id="r", node="n")
        assert isinstance(drive(driver, program), Migrated)
    with closing(sqlite3.connect("front-office.db", isolation_level=None)) as connection:
        for owner in ("ada|1", "eve"):
            connection.execute(SESSION, (owner, owner))
    return operator


def owners() -> list[str]:
    with closing(sqlite3.connect("front-office.db")) as connection:
        return [owner for (owner,) in connection.execute("select owner from sessions")]


def test_a_person_is_counted_then_erased_and_the_trail_says_by_whom(operator: Operator) -> None:
    counted = operator.run("users", "erase", "ada|1", "--dry-run")
    assert (counted.exit_code, counted.stdout) == (0, "main: 1 session would be deleted\n")
    assert owners() == ["ada|1", "eve"]
    done = operator.run("users", "erase", "ada|1", "platform.toml")

    assert (done.exit_code, done.stdout) == (0, "main: 1 session deleted\n")
    assert owners() == ["eve"]
    with closing(sqlite3.connect("front-office.db")) as connection:
        (entry,) = entries_of_data(connection.execute(ALL_DATA))
    assert (entry.subject or "").startswith("local:")
    assert (entry.operation, entry.resource) == ("users.erase", "ada|1")
    again = operator.run("users", "erase", "ada|1")
    assert again.stdout == "main: nothing deleted\n"


def test_the_receipt_is_json(operator: Operator) -> None:
    receipt = json.loads(operator.run("users", "erase", "ada|1", "--json").stdout)

    assert receipt["counts"]["sessions"] == 1
    assert receipt["erased_by"].startswith("local:")


def test_a_person_is_exported(operator: Operator) -> None:
    done = operator.run("users", "export", "ada|1")
    lines = [json.loads(line) for line in done.stdout.splitlines()]

    assert done.exit_code == 0
    assert [line["row"]["name"] for line in lines[:-1]] == ["words of ada|1"]
    assert lines[-1] == {"end": {"sessions": 1}}
    to_a_file = operator.run("users", "export", "ada|1", "--output", "ada.ndjson")
    assert to_a_file.exit_code == 0
    assert Path("ada.ndjson").read_text() == done.stdout


@pytest.mark.parametrize("command", ["erase", "export"])
def test_what_cannot_be_done_is_one_sentence(operator: Operator, command: str) -> None:
    reserved = operator.run("users", command, "~channel:x:1")
    assert reserved.exit_code == 2
    assert "no user" in reserved.stderr
    with closing(sqlite3.connect("front-office.db")) as connection:
        connection.execute("drop table usage")
    failed = operator.run("users", command, "ada|1")
    assert failed.exit_code == 2
    assert failed.stderr.startswith("Error: ")
    Path("front-office.db").unlink()
    absent = operator.run("users", command, "ada|1")
    assert absent.exit_code == 2
    assert "there is no file" in absent.stderr
