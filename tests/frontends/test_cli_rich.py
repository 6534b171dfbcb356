"""Tables and progress bars at a terminal, with rich and without."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from .terminals import SECONDS, read_rest, start


def show(folder: Path, *words: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the output of a command at a terminal."""
    return read_rest(*start(folder, *words, environ=environ))


def hide_rich(folder: Path) -> Mapping[str, str]:
    """Return the environment in which rich is not installed."""
    (folder / "hidden").mkdir()
    (folder / "hidden/sitecustomize.py").write_text(
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, package=None: (\n"
        "    None if name == 'rich' else find(name, package))\n"
        "sys.modules['rich'] = None\n"
    )
    return {"PYTHONPATH": str(folder / "hidden")}


@pytest.mark.parametrize(
    ("words", "head", "cell"),
    [
        ("check", "method", "/agents/{agent_id}/runs"),
        ("serve --limits", "default", "connections"),
    ],
)
def test_a_table_has_a_head_where_rich_is_installed(
    tmp_path: Path, words: str, head: str, cell: str
) -> None:
    shown = show(tmp_path, *words.split())
    plain = show(tmp_path, *words.split(), environ=hide_rich(tmp_path))

    assert head in shown
    assert "─" in shown
    assert cell in shown
    assert "─" not in plain
    assert cell in plain


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"NO_COLOR": "1"}], ids=str)
def test_a_table_has_no_colours_for_who_wants_none(tmp_path: Path, environ: dict[str, str]) -> None:
    assert "\x1b[" not in show(tmp_path, "serve", "--limits", environ=environ)


def test_a_narrow_terminal_cuts_no_name(tmp_path: Path) -> None:
    shown = show(tmp_path, "serve", "--limits", environ={"NO_COLOR": "1", "COLUMNS": "30"})
    plain = show(tmp_path, "serve", "--limits", "--json")

    assert "…" not in shown
    names = "".join(line.split()[0] for line in shown.splitlines() if line.strip())
    assert all(name in names for name in json.loads(plain))


def test_a_pipe_gets_the_plain_table(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "legation_cli", "serve", "--limits"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)

    assert "─" not in done.stdout
    assert done.stdout.startswith("header_seconds ")


@pytest.mark.parametrize("rich", [True, False], ids=["rich", "plain"])
def test_a_long_migration_shows_its_progress_and_wipes_it(tmp_path: Path, *, rich: bool) -> None:
    environ: Mapping[str, str] = {} if rich else hide_rich(tmp_path)
    with closing(sqlite3.connect(tmp_path / "main.db", isolation_level=None)) as other:
        other.execute("pragma journal_mode = wal")
        other.execute("begin immediate")
        started, screen = start(tmp_path, "migrate", "main", environ=environ)
        shown, deadline = "", time.monotonic() + SECONDS
        while "Migrating, all or nothing" not in shown:
            assert time.monotonic() < deadline, shown
            shown += os.read(screen, 1 << 16).decode(errors="replace")
        other.execute("rollback")
    shown += read_rest(started, screen)

    assert shown.index("waiting, out of everybody's way") < shown.index("Migrating, all or nothing")
    assert ("\x1b[2K" in shown) is rich
    assert "Database migrated successfully to version" in shown
    assert started.returncode == 0


def test_work_of_less_than_two_seconds_shows_no_progress(tmp_path: Path) -> None:
    shown = show(tmp_path, "migrate", "main")

    assert "all or nothing" not in shown
    assert "Reading" not in show(tmp_path, "audit", "verify")


def test_help_does_not_load_rich() -> None:
    code = "import sys; sys.argv = ['legation', '--help']; import legation_cli\n"
    code += "try:\n    legation_cli.main()\nexcept SystemExit:\n    pass\n"
    code += "assert 'rich' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=SECONDS)
