"""A server says when it began to serve, and why it stopped."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from legation import __version__
from legation_cli.milestones import Milestones

from .command_kit import PATIENCE, running, write_platform


class Log(list[tuple[str, str, Mapping[str, Any]]]):
    """A log in memory."""

    def write(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        self.append((level, event, fields))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_log_has_the_start_and_the_reason_of_the_end(
    tmp_path: Path, workers: int, number: signal.Signals
) -> None:
    path = write_platform(tmp_path)
    with running(path, "--port", "0", "--workers", str(workers)) as command:
        url = command.until_served()
        command.until(lambda: bool(command.named("server_started")))
        command.popen.send_signal(number)
        assert command.popen.wait(PATIENCE) == 0
        command.until(lambda: bool(command.named("server_stopped")))

    (started,) = command.named("server_started")
    assert (started["version"], started["address"]) == (__version__, url)
    assert (started["platform"], started["workers"]) == ("legation", workers)
    assert [line["reason"] for line in command.named("server_stopping")] == [number.name]
    (stopped,) = command.named("server_stopped")
    assert (stopped["level"], stopped["reason"]) == ("info", number.name)
    assert command.events[-1] == stopped


@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_signal_is_the_reason_where_it_broke_something_off(
    tmp_path: Path, workers: int
) -> None:
    path = write_platform(tmp_path)
    with running(path, "--port", "0", "--workers", str(workers)) as command:
        command.until_served()
        head = b"POST /agents/concierge/runs HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"
        with closing(socket.create_connection(("127.0.0.1", command.port()), 5)) as client:
            client.sendall(head)
            time.sleep(0.3)
            command.popen.send_signal(signal.SIGTERM)
            command.until(lambda: bool(command.named("server_stopping")))
            command.popen.send_signal(signal.SIGINT)
            command.popen.wait(PATIENCE)
            command.until(lambda: bool(command.named("server_stopped")))

    reasons = [line["reason"] for line in command.named("server_stopping")]
    assert reasons == ["SIGTERM", "a second SIGINT"]
    assert command.named("server_stopped")[0]["reason"] == "a second SIGINT"


def test_at_a_terminal_the_end_is_one_sentence(tmp_path: Path) -> None:
    screen, theirs = pty.openpty()
    words = ["serve", str(write_platform(tmp_path)), "--port", "0"]
    server = subprocess.Popen(
        [sys.executable, "-m", "legation_cli", *words], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + PATIENCE
    while b"server_started" not in shown:
        assert time.monotonic() < deadline, shown
        shown += os.read(screen, 1 << 16)
    server.terminate()
    with suppress(OSError):  # the terminal is left by everybody
        while piece := os.read(screen, 1 << 16):
            shown += piece
    os.close(screen)

    assert server.wait(PATIENCE) == 0
    assert shown.splitlines()[-1].startswith(b"Stopped by SIGTERM after ")
    assert b"server_stopped" not in shown


def test_a_server_that_never_served_has_no_milestones(tmp_path: Path) -> None:
    path = write_platform(tmp_path)
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        with running(path, "--port", port) as command:
            assert command.popen.wait(PATIENCE) == 2

    assert not [line for line in command.events if str(line["event"]).startswith("server_")]


def test_what_broke_the_server_is_the_reason_and_an_error() -> None:
    log = Log()
    milestones = Milestones(log.write, for_eyes=False)
    milestones.note_end(MemoryError("before it began"))
    assert log == []

    milestones.note_start("http://127.0.0.1:7777", "office", 1)
    milestones.note_end(MemoryError("secret text"))
    level, event, fields = log[-1]
    assert (level, event) == ("error", "server_stopped")
    assert fields == {"reason": "MemoryError", "seconds": 0}


def test_the_sentence_names_the_reason_and_the_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    milestones = Milestones(Log().write, for_eyes=True)
    milestones.note_start("http://127.0.0.1:7777", "office", 1)
    milestones.note_stop("SIGTERM")
    milestones.note_end()

    assert capsys.readouterr().err == "Stopped by SIGTERM after 0 s.\n"
