"""The commands at a terminal: colours where they are welcome, and a sign of life."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .terminals import PLATFORM, SECONDS, read_rest, start


@pytest.mark.parametrize("environ", [{}, {"NO_COLOR": ""}, {"NO_COLOR": "1"}])
def test_colours_are_left_out_for_who_wants_none(tmp_path: Path, environ: dict[str, str]) -> None:
    shown = read_rest(*start(tmp_path, "check", environ=environ))

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

    assert "\x1b[" not in shown + read_rest(started, screen)
