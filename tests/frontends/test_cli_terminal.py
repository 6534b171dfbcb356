"""The commands at a terminal: colours where they are welcome, and a sign of life."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

SECONDS: Final = 30
PLATFORM: Final = '[databases.main]\nurl = "sqlite:///main.db"\n'


def start(
    folder: Path, *words: str, environ: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a command at a terminal; return it, and what reads the screen."""
    (folder / "platform.toml").write_text(PLATFORM)
    screen, theirs = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    command = [sys.executable, "-m", "legation_cli", *words]
    started = subprocess.Popen(
        command,
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**kept, **(environ or {})},
    )
    os.close(theirs)
    return started, screen


def rest(started: subprocess.Popen[bytes], screen: int) -> str:
    """Return what a command shows until it ends."""
    shown = b""
    with suppress(OSError):  # what a terminal says when nobody is there any more
        while piece := os.read(screen, 1 << 16):
            shown += piece
    os.close(screen)
    started.wait(SECONDS)
    return shown.decode()


@pytest.mark.parametrize("environ", [{}, {"NO_COLOR": ""}, {"NO_COLOR": "1"}])
def test_colours_are_left_out_for_who_wants_none(tmp_path: Path, environ: dict[str, str]) -> None:
    shown = rest(*start(tmp_path, "check", environ=environ))

    assert "unsafe  platform.authorization" in shown
    assert ("\x1b[" in shown) is not bool(environ.get("NO_COLOR"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("words", ["check", "openapi", "migrate main", "serve --limits"])
def test_a_full_disk_is_one_sentence_and_not_the_answer_no(tmp_path: Path, words: str) -> None:
    (tmp_path / "platform.toml").write_text(PLATFORM)
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "legation_cli", *words.split()],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=SECONDS,
            check=False,
        )

    assert (done.returncode, done.stderr) == (2, b"Error: No space left on device\n")


@pytest.mark.parametrize(
    ("words", "code"), [("explain - GET /agents", 0), ("audit verify --heads -", 2)]
)
def test_a_closed_standard_input_is_an_empty_one(tmp_path: Path, words: str, code: int) -> None:
    (tmp_path / "platform.toml").write_text(PLATFORM)
    typed = f"{shlex.quote(sys.executable)} -m legation_cli {words} <&-"
    done = subprocess.run(
        ["sh", "-c", typed], cwd=tmp_path, capture_output=True, timeout=SECONDS, check=False
    )

    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr


def test_the_log_of_a_server_has_no_colours_either(tmp_path: Path) -> None:
    folder = {"LEGATION_DATA": str(tmp_path), "NO_COLOR": "1"}
    started, screen = start(tmp_path, "serve", "--port", "0", environ=folder)
    shown, deadline = "", time.monotonic() + SECONDS
    while "database_migrated" not in shown:
        assert time.monotonic() < deadline, shown
        shown += os.read(screen, 1 << 16).decode()
    started.terminate()

    assert "\x1b[" not in shown + rest(started, screen)
