"""The first project of somebody new, in seconds: from `legation init` to a test and a chat.

    python -m tests.first_project

builds a wheel of this checkout and installs it in an environment of its own, with pytest.  Then it
takes the time: it types `legation init shop`, runs the tests of the project, and asks its agent for
a refund by `legation chat`, approving it.  It prints the seconds of each step, and fails where all
of them take more than 60.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from .newcomer import Laps
from .transcripts import ROOT

__all__ = ["LIMIT", "build", "main", "walk"]

LIMIT: Final = 60.0
"""Seconds that all steps may take, once Legation is installed."""

_TYPED: Final = "How much was A-17?\nRefund 20 euros of A-17\ny\n"
_ANSWERED: Final = '{"number":"A-17","euros":40}\n20 euros of order A-17 are paid back.\n'


def walk(folder: Path, wheel: Path) -> Laps:
    """Walk the way in `folder`, which is empty, with what is in `wheel`; return its seconds."""
    home = folder / "venv"
    _run(folder, sys.executable, "-m", "venv", str(home))
    there = home / "bin"
    _run(folder, f"{there}/pip", "install", "--quiet", str(wheel), "pytest")
    laps = Laps(limit=LIMIT)
    _run(folder, f"{there}/legation", "init", "shop")
    laps.end("make a project")
    tested = _run(folder / "shop", f"{there}/python", "-m", "pytest", "-q")
    assert "3 passed" in tested, tested
    laps.end("run its tests")
    answered = _run(folder / "shop", f"{there}/legation", "chat", typed=_TYPED)
    assert answered == _ANSWERED, answered
    laps.end("chat with its agent")
    return laps


def _run(folder: Path, *command: str, typed: str = "") -> str:
    """Return what a command prints, with `typed` in a pipe."""
    done = subprocess.run(
        command, cwd=folder, input=typed, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(folder: Path) -> Path:
    """Build a wheel of this checkout in `folder`; return its path."""
    _run(ROOT, sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), ".")
    (wheel,) = folder.glob("*.whl")
    return wheel


def main() -> int:
    """Walk the way, print its steps; return 1 beyond the limit."""
    with tempfile.TemporaryDirectory(prefix="legation-project-") as folder:
        built = Path(folder, "built")
        laps = walk(Path(folder), build(built))
    sys.stdout.write(f"{laps.table()}\n")
    return int(laps.total > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
