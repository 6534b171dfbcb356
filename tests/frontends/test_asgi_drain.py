"""Streams at the shut-down of ASGI servers, each a process of its own that gets SIGTERM."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from ..ports import free_port
from ..transcripts import ROOT
from .drain_kit import Outcome, ask_run

APP: Final = "tests.providers.piecewise:app"
SECONDS: Final = 2.0
"""Of each run."""

LONG: Final = {
    "uvicorn": ("--port", "{port}", APP),
    "hypercorn": ("--graceful-timeout", "20", "--bind", "127.0.0.1:{port}", APP),
    "granian": ("--interface", "asgi", "--no-ws", "--port", "{port}", APP),
}
SHORT: Final = {
    "uvicorn": ("--timeout-graceful-shutdown", "1", *LONG["uvicorn"]),
    # On asyncio it waits for its connections first, from Python 3.12 on.
    "hypercorn": ("--worker-class", "trio", "--graceful-timeout", "1", *LONG["hypercorn"][2:]),
}


@contextmanager
def serving(folder: Path, module: str, options: tuple[str, ...]) -> Generator[tuple[int, Stop]]:
    """Run an ASGI server; give its port, and what sends SIGTERM and waits for the end."""
    port = free_port()
    env = {
        **os.environ,
        "PIECEWISE_URL": f"sqlite:///{folder}/main.db",
        "PIECEWISE_SECONDS": str(SECONDS),
        "PYTHONPATH": str(ROOT),
    }
    words = [sys.executable, "-m", module, *(word.format(port=port) for word in options)]
    process = subprocess.Popen(
        words, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        due = time.monotonic() + 60.0
        while not listens(port):
            assert process.poll() is None, "the server has ended"
            assert time.monotonic() < due, "the server does not listen"
            time.sleep(0.05)
        yield port, Stop(process)
    finally:
        process.kill()
        process.wait()


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


class Stop:
    """Ends a server as an operator does."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def __call__(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def streamed(folder: Path, module: str, options: tuple[str, ...]) -> Outcome:
    """Return what a client gets of a run that is under way at SIGTERM."""
    outcome = Outcome()
    with serving(folder, module, options) as (port, stop):
        reader = threading.Thread(target=ask_run, args=(port, outcome), kwargs={"message": "go"})
        reader.start()
        due = time.monotonic() + 60.0
        while "RunContent" not in outcome.names:
            assert time.monotonic() < due, outcome
            time.sleep(0.01)
        stop()
        reader.join(20)
    return outcome


def statuses(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "main.db")) as database:
        return [status for (status,) in database.execute("select status from runs")]


@pytest.mark.parametrize("module", LONG)
def test_a_server_that_waits_lets_a_stream_come_to_its_end(tmp_path: Path, module: str) -> None:
    outcome = streamed(tmp_path, module, LONG[module])

    assert (outcome.names[-1], outcome.whole) == ("RunCompleted", True)
    assert statuses(tmp_path) == ["COMPLETED"]


@pytest.mark.parametrize("module", SHORT)
def test_a_server_that_does_not_cuts_the_stream_and_the_run_goes_on(
    tmp_path: Path, module: str
) -> None:
    outcome = streamed(tmp_path, module, SHORT[module])

    assert not outcome.whole
    assert statuses(tmp_path) == ["COMPLETED"]
