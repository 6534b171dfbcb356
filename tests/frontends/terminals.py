"""Commands at a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["PLATFORM", "SECONDS", "read_rest", "start"]

SECONDS: Final = 30
PLATFORM: Final = '[databases.main]\nurl = "sqlite:///main.db"\n'


def start(
    folder: Path, *words: str, environ: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a command at a terminal; return it, and the file that reads the screen."""
    (folder / "platform.toml").write_text(PLATFORM)
    screen, theirs = pty.openpty()
    base = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    started = subprocess.Popen(
        [sys.executable, "-m", "legation_cli", *words],
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**base, "TERM": "xterm", "COLUMNS": "120", **(environ or {})},
    )
    os.close(theirs)
    return started, screen


def read_rest(started: subprocess.Popen[bytes], screen: int) -> str:
    """Return the output of a command until it ends."""
    shown = b""
    with suppress(OSError):  # what a terminal says when nobody is there any more
        while piece := os.read(screen, 1 << 16):
            shown += piece
    os.close(screen)
    started.wait(SECONDS)
    return shown.decode()
