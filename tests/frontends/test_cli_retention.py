"""`legation retention`: one sweep now, or how much it would delete."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from legation.store.nodes import Beat
from legation.store.run_rows import DAY_US
from legation_cli import main

from ..drivers import SqliteDriver
from ..old_data import NODE, store_run
from ..trail_pages import ALL_DATA, entries_of_data

PLATFORM = """
[retention]
runs_days = 30
trail_days = 30

[databases.main]
url = "sqlite:///main.db"

[databases.other]
url = "sqlite:///other.db"

[databases.other.retention]
runs_days = 300

[[agents]]
id = "desk"
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    Path("platform.toml").write_text(PLATFORM)
    path = list(sys.path)
    yield
    sys.path[:] = path


def typed(*words: str) -> Result:
    return CliRunner().invoke(main, ["retention", *words], catch_exceptions=False)


def fill(name: str, days: int) -> None:
    """Make a database with one run that ended so many days ago, and one of now."""
    assert CliRunner().invoke(main, ["migrate", name]).exit_code == 0
    now_us = time.time_ns() // 1_000
    with closing(SqliteDriver(Path(f"{name}.db"))) as driver:
        driver.run(
            Beat(NODE, 1, 0, (), "", session_lock=False, code_version="1", schema_version="1")
        )
        store_run(driver.run, "old", now_us - days * DAY_US)
        store_run(driver.run, "new", now_us)


def runs(name: str) -> list[Any]:
    with closing(SqliteDriver(Path(f"{name}.db"))) as driver:
        return [run_id for (run_id,) in driver.ask("select run_id from runs order by run_id")]


@pytest.fixture
def databases() -> None:
    for name in ("main", "other"):
        fill(name, 100)


@pytest.mark.usefixtures("databases")
def test_a_dry_run_says_what_would_go_and_deletes_nothing() -> None:
    result = typed("--dry-run")

    assert result.stdout == "main: would delete: runs 1\nother: nothing is old\n"
    assert (runs("main"), runs("other")) == (["new", "old"], ["new", "old"])


@pytest.mark.usefixtures("databases")
def test_a_sweep_deletes_it_and_the_next_one_finds_nothing() -> None:
    assert typed().stdout == "main: deleted: runs 1\nother: nothing is old\n"
    assert (runs("main"), runs("other")) == (["new"], ["new", "old"])
    assert typed("main").stdout == "main: nothing is old\n"

    with closing(SqliteDriver(Path("main.db"))) as driver:
        (entry,) = entries_of_data(driver.ask(ALL_DATA))
    assert (entry.operation, entry.resource) == ("retention.sweep", "runs/1")


@pytest.mark.usefixtures("databases")
def test_one_database_is_swept_where_it_is_named() -> None:
    assert typed("platform.toml", "other").stdout == "other: nothing is old\n"
    assert runs("main") == ["new", "old"]


@pytest.mark.usefixtures("databases")
def test_with_json_there_are_the_days_and_the_rows() -> None:
    first, second = json.loads(typed("--dry-run", "--json").stdout)

    assert first == {
        "database": "main",
        "dry_run": True,
        "days": {"runs": 30, "trail": 30},
        "rows": {"runs": 1, "trail": 0},
    }
    assert second["days"] == {"runs": 300, "trail": 30}
    assert json.loads(typed("main", "--json").stdout)[0]["rows"] == {"runs": 1, "trail": 0}


def test_without_periods_nothing_is_opened() -> None:
    Path("platform.toml").write_text('[[agents]]\nid = "desk"\n')
    for words in ((), ("--dry-run",)):
        assert typed(*words).stdout == "main: no period is set for it in [retention]\n"
    assert json.loads(typed("--json").stdout) == [
        {"database": "main", "dry_run": False, "days": {}, "rows": {}}
    ]
    assert not Path("legation.db").exists()


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_a_database_without_a_file_is_an_error(words: tuple[str, ...]) -> None:
    result = typed("main", *words)

    assert result.exit_code == 2
    assert result.stderr == "Error: databases.main.url: there is no file main.db yet\n"


@pytest.mark.parametrize(("words", "what"), [((), "swept"), (("--dry-run",), "read")])
def test_a_schema_that_is_not_ours_is_an_error(words: tuple[str, ...], what: str) -> None:
    assert CliRunner().invoke(main, ["migrate", "main", "--to", "2.5.6"]).exit_code == 0
    result = typed("main", *words)

    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: the database 'main' cannot be {what}: ")


def test_check_says_what_grows_in_each_database() -> None:
    result = CliRunner().invoke(main, ["check"], catch_exceptions=False)
    grows = [line for line in result.stdout.splitlines() if line.startswith("grows")]

    assert grows == [
        f"grows  databases.{name}: sessions with their runs, events and steps grow without a"
        " bound; sessions_days in [retention] would bound them"
        for name in ("main", "other")
    ]
    said = json.loads(CliRunner().invoke(main, ["check", "--json"]).stdout)
    assert [one["path"] for one in said["grows"]] == ["databases.main", "databases.other"]
