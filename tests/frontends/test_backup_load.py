"""A backup under load, a server killed, a restore: what was acknowledged before is there.

The core decides nothing of it, so it is run on the newest Python alone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from legation_cli import main

from ..engines import Cluster
from .backup_kit import Acknowledged, Rows, read_rows, under_load
from .cluster_kit import NIGHTLY, await_true, begin_run, node, status_of

pytestmark = pytest.mark.newest

ROUNDS: Final = 20 if NIGHTLY else 2
MORE: Final = 20
"""So much is acknowledged between two backups."""

PLATFORM: Final = """
[platform]
id = "front-office"

[databases.main]
url = "{url}"

[[agents]]
id = "concierge"
"""


def run_json(*words: str) -> Any:
    result = CliRunner().invoke(main, [*words, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_a_backup_under_load_has_all_that_was_acknowledged_before_it(
    engine: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    figures: Callable[[str], None],
) -> None:
    if engine == "sqlite":
        url = f"sqlite:///{tmp_path}/main.db"
    else:
        cluster: Cluster = request.getfixturevalue("postgres_cluster")
        url = request.getfixturevalue("postgres_database")
        monkeypatch.setenv("PATH", f"{cluster.binaries}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "path", [*sys.path])
    platform = str(tmp_path / "platform.toml")
    Path(platform).write_text(PLATFORM.format(url=url))

    made: list[tuple[Acknowledged, Any]] = []
    with node(url) as server, under_load(server.port()) as load:
        for number in range(ROUNDS):
            before = load.more(MORE)
            output = str(tmp_path / f"backups-{number}")
            made.append((before, run_json("backup", platform, "--output", output)))
        after = load.more(MORE)
        server.signal(signal.SIGKILL)
        server.ended()

    restored = [restore(url, platform, before, backup) for before, backup in made]
    last = made[-1][0]
    assert after.count > last.count >= ROUNDS * MORE

    unfinished = restored[-1].begun - restored[-1].ended
    with node(url) as server:
        port = server.port()
        again = begin_run(port, "hello", "again")
        for run in (*unfinished, again):
            await_true(partial(is_completed, port, run))
    counts = f"{last.count} answers before the last, {len(unfinished)} runs under way"
    figures(f"restored, {engine}: {ROUNDS} of {ROUNDS} backups under load; {counts}, 0 lost")


def restore(url: str, platform: str, before: Acknowledged, backup: Any) -> Rows:
    """Restore a backup, and return what is in the database then."""
    restored = run_json("restore", backup["folder"], platform, "--replace", "--discard")
    assert restored["databases"][0]["trail"]["intact"]
    rows = read_rows(url)
    assert rows.lacks(before) == {}
    heads = ("--heads", str(Path(backup["folder"], "heads.json")))
    (verdict,) = run_json("audit", "verify", platform, *heads)
    assert verdict["intact"]
    assert verdict["rows"] == backup["databases"][0]["trail"]["rows"] > 0
    return rows


def is_completed(port: int, run: str) -> bool:
    return bool(status_of(port, run) == "COMPLETED")
