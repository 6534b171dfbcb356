"""`legation runs`: listed, shown, cancelled and followed beside the server that executes them."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import psycopg
import pytest
from click.testing import CliRunner, Result

from legation_cli import main

from ..trail_pages import ALL_DATA, entries_of_data
from .command_kit import running

PLATFORM: Final = """
[databases.main]
url = "{url}"
auto_migrate = true

[databases.other]
url = "sqlite:///other.db"

[models.slow]
provider = "echo"
id = "slow"
delay_seconds = {delay}

[[agents]]
id = "quick"

[[agents]]
id = "sloth"
model = "slow"

[[agents]]
id = "far"
database = "other"

[[teams]]
id = "crew"
members = ["sloth"]
mode = "collaborate"
model = "echo"
"""
PATIENCE: Final = 120.0


class World:
    """A server, and the runs that it was asked for."""

    def __init__(self, url: str, address: str) -> None:
        self.url, self.address = url, address

    def ask(self, path: str, message: str = "hi", user: str = "ada", session: str = "s") -> str:
        """Begin a run in the background; return its id."""
        form = {"message": message, "user_id": user, "session_id": session, "background": "true"}
        data = urlencode({**form, "stream": "false"}).encode()
        with urllib.request.urlopen(f"{self.address}{path}", data, timeout=PATIENCE) as answer:
            run_id: str = json.load(answer)["run_id"]
        return run_id

    def wait(self, run_id: str, status: str) -> None:
        """Wait until a run has this status."""
        deadline = time.monotonic() + PATIENCE
        while shown(run_id)["status"] != status:
            assert time.monotonic() < deadline, shown(run_id)
            time.sleep(0.05)


def typed(*words: str) -> Result:
    runner = CliRunner(env={**os.environ, "COLUMNS": "300"})
    return runner.invoke(main, ["runs", *words], catch_exceptions=False)


def shown(run_id: str, *words: str) -> dict[str, Any]:
    done = typed("show", run_id, *words, "--json")
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def listed(*words: str) -> list[str]:
    done = typed("list", *words, "--json")
    assert done.exit_code == 0, done.stderr
    return [run["run_id"] for run in json.loads(done.stdout)["runs"]]


@pytest.fixture
def delay() -> float:
    return 600.0


@pytest.fixture(params=["sqlite", "postgresql"])
def world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delay: float
) -> Generator[World]:
    monkeypatch.chdir(tmp_path)
    sqlite = request.param == "sqlite"
    url = "sqlite:///main.db" if sqlite else request.getfixturevalue("postgres")
    Path("platform.toml").write_text(PLATFORM.format(url=url, delay=delay))
    path = list(sys.path)
    # A process of its own: what one closes of a file takes the locks of the whole process.
    with running("platform.toml", "--port", "0") as server:
        yield World(url, server.until_served())
    sys.path[:] = path


def entries(world: World) -> list[tuple[str, str]]:
    """Return the operations and resources in the trail that are the local user's."""
    if world.url.startswith("postgres"):
        with psycopg.connect(world.url) as there:
            rows = there.execute(ALL_DATA.encode()).fetchall()
    else:
        with closing(sqlite3.connect("main.db")) as here:
            rows = here.execute(ALL_DATA).fetchall()
    made = [one for one in entries_of_data(rows) if (one.subject or "").startswith("local:")]
    return [(entry.operation, entry.resource) for entry in made]


@contextmanager
def follow(*command: str) -> Generator[subprocess.Popen[str]]:
    """Run a command that follows a run; it is killed where the block fails."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def read_members(lines: Iterable[str], team: str) -> Iterator[str]:
    """Yield the runs of members, as the events of a team tell of them."""
    for line in lines:
        data = json.loads(line)["data"]
        if data.get("parent_run_id") == team:
            yield data["run_id"]


def test_runs_are_listed_with_the_filters_of_the_console(world: World) -> None:
    slow = world.ask("/agents/sloth/runs", session="t")
    far = world.ask("/agents/far/runs", user="eve")
    first = world.ask("/agents/quick/runs")
    for run_id in (far, first):
        world.wait(run_id, "COMPLETED")
    world.wait(slow, "RUNNING")

    assert set(listed()) == {first, far, slow}
    assert listed("--status", "running") == [slow]
    assert listed("--component", "agent:far") == [far]
    assert listed("--user", "eve") == listed("--database", "other") == [far]
    assert listed("--session", "t") == [slow]
    assert listed("--until", "2020-01-01") == []
    assert set(listed("--since", "2020-01-01")) == {first, far, slow}
    table = typed("list", "--limit", "2")
    assert len(table.stdout.splitlines()) == 3
    assert table.stderr == "There may be more; --limit shows more.\n"
    assert typed("list", "--status", "ERROR").stdout == "No run.\n"
    assert typed("list", "--component", "desk").exit_code == 2
    _refuse_wrong_ids(far)


def _refuse_wrong_ids(run_id: str) -> None:
    """Name a run that is nowhere, and one that two databases have."""
    for command in ("show", "cancel", "follow"):
        absent = typed(command, "no-such")
        assert (absent.exit_code, absent.stderr) == (1, "there is no run 'no-such'\n")
        assert typed(command, run_id, "--database", "main").exit_code == 1
        assert typed(command, run_id, "--database", "mian").exit_code == 2
    text = Path("platform.toml").read_text()
    Path("platform.toml").write_text(text + '\n[databases.again]\nurl = "sqlite:///again.db"\n')
    with closing(sqlite3.connect("other.db")) as other, closing(sqlite3.connect("again.db")) as to:
        other.backup(to)

    several = typed("show", run_id)
    assert several.exit_code == 2
    assert "add --database (other, again)" in several.stderr
    assert shown(run_id, "--database", "other")["status"] == "COMPLETED"


def test_a_run_under_the_lease_of_another_node_is_cancelled_by_it(world: World) -> None:
    run_id = world.ask("/agents/sloth/runs")
    world.wait(run_id, "RUNNING")
    assert shown(run_id)["node"]
    done = typed("cancel", run_id, "--wait", str(PATIENCE))
    assert (done.exit_code, done.stdout) == (0, f"{run_id} has ended: CANCELLED\n")

    again = typed("cancel", run_id, "--json")
    assert json.loads(again.stdout) == {"run_id": run_id, "db_id": "main", "status": "CANCELLED"}
    assert typed("cancel", run_id).stdout == f"{run_id} was over before: CANCELLED\n"
    assert entries(world) == [("runs.cancel", f"sloth/{run_id}")]
    _cancel_a_team(world)


def _cancel_a_team(world: World) -> None:
    """Cancel a run of a team that waits, at once; and one that is executed, with its member."""
    team = world.ask("/teams/crew/runs")
    waiting = world.ask("/teams/crew/runs")
    world.wait(team, "RUNNING")
    assert typed("cancel", waiting).stdout == f"{waiting} has ended: CANCELLED\n"
    followed = typed("follow", waiting)
    assert (followed.exit_code, followed.stderr) == (1, f"{waiting}: CANCELLED\n")

    command = [sys.executable, "-m", "legation_cli", "runs", "follow", team, "--json"]
    with follow(*command) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        member = next(read_members(process.stdout, team))
        refused = typed("cancel", member)
        assert (refused.exit_code, f"cancel {team!r} instead" in refused.stderr) == (2, True)
        ended = typed("cancel", team, "--wait", str(PATIENCE))
        assert ended.exit_code == 0, ended.stderr
        *_, last = process.stdout.readlines()
    names = [json.loads(line)["event"] for line in (first, last)]
    assert names == ["TeamRunStarted", "TeamRunCancelled"]
    assert process.returncode == 1


@pytest.mark.parametrize("delay", [1.0])
def test_a_run_is_followed_from_any_process_until_it_ends(world: World) -> None:
    run_id = world.ask("/agents/sloth/runs", "say this")
    text = typed("follow", run_id)
    assert (text.exit_code, text.stdout, text.stderr) == (0, "say this\n", "")
    events = [json.loads(line) for line in typed("follow", run_id, "--json").stdout.splitlines()]

    assert events[0]["event"] == "RunStarted"
    assert events[-1]["event"] == "RunCompleted"
    assert [one["id"] for one in events] == [f"{run_id}:{n}" for n in range(1, len(events) + 1)]
    last = typed("follow", run_id, "--after", str(len(events) - 1), "--json").stdout
    assert [json.loads(line) for line in last.splitlines()] == events[-1:]
    shown_as_text = typed("show", run_id)
    assert "say this" in shown_as_text.stdout
    assert "agent:sloth" in shown_as_text.stdout
    assert shown(run_id)["run"]["content"] == "say this"
