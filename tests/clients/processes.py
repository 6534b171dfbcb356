"""Processes that a test starts and looks at: servers, models and gateways."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar
from urllib.request import urlopen

__all__ = ["started", "until", "until_alive"]

R = TypeVar("R")

_ROOT: Final = Path(__file__).parents[2]


@contextmanager
def started(folder: Path, name: str, *arguments: object) -> Generator[Path]:
    """Run Python with `arguments` in `folder`; yield the file of what it says."""
    said = folder / f"{name}.log"
    command = [sys.executable, *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(_ROOT)}
    with (
        said.open("w") as out,
        subprocess.Popen(command, stdout=out, stderr=out, cwd=folder, env=env) as process,
    ):
        try:
            yield said
        finally:
            process.terminate()


def until(look: Callable[[], R | None], said: Path) -> R:
    """Return what `look` finds, within half a minute."""
    for _ in range(300):
        if found := look():
            return found
        time.sleep(0.1)
    raise AssertionError(said.read_text())


def until_alive(url: str, said: Path) -> None:
    """Wait for the server at `url`."""
    until(lambda: _alive(url), said)


def _alive(url: str) -> bool:
    try:
        with urlopen(f"{url}/health") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
