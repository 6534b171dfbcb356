"""Signals in pairs and triples: what is under way ends as after a single SIGTERM."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from .command_kit import Command, running
from .drain_kit import Clients, write_slow_platform

NIGHTLY: Final = "LEGATION_NIGHTLY" in os.environ
"""Whether every sequence is tried with processes; the values of the machine are in any case."""

SLOW: Final = 1.2
"""Seconds that each run takes."""

HUP, TERM, INT = signal.SIGHUP, signal.SIGTERM, signal.SIGINT

FEW: Final = [
    (2, (HUP, TERM), (0.15,)),
    (2, (HUP, INT), (0.6,)),
    (2, (HUP, HUP, TERM), (0.05, 0.5)),
    (2, (TERM, HUP), (0.1,)),
    (1, (HUP, TERM, HUP), (0.05, 0.1)),
]
GAPS: Final = (0.0, 0.05, 0.5, 2.0)
EVERY: Final = [
    (workers, numbers, gaps)
    for workers in (1, 2)
    for length in (1, 2, 3)
    for numbers in itertools.product((HUP, TERM, INT), repeat=length)
    if sum(number != HUP for number in numbers) == 1
    for gaps in itertools.product(GAPS, repeat=length - 1)
]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="slots are spread on Linux")


def name(case: tuple[int, Sequence[signal.Signals], Sequence[float]]) -> str:
    workers, numbers, gaps = case
    steps = [f"{number.name[3:]}-{gap}" for number, gap in zip(numbers, (*gaps, 0), strict=True)]
    return "-".join((f"{workers}", *steps))


def served(folder: Path, workers: int) -> tuple[str | Path, ...]:
    return (write_slow_platform(folder, SLOW), "--port", "0", "--workers", str(workers))


def check_kept(folder: Path, clients: Clients) -> None:
    """Check that each of the three runs came to its own end, and whoever asked has heard it."""
    clients.finish()
    with closing(sqlite3.connect(folder / "legation.db")) as database:
        ends = database.execute("select status, reason from runs").fetchall()
    assert ends == [("COMPLETED", None)] * 3
    assert (clients.stream.names[-1], clients.stream.whole) == ("RunCompleted", True)
    assert (clients.waiting.status, clients.answer["status"]) == (200, "COMPLETED")


@pytest.mark.parametrize("case", EVERY if NIGHTLY else FEW, ids=name)
def test_no_run_is_lost_whatever_comes_before_or_behind_a_sigterm(
    tmp_path: Path, case: tuple[int, Sequence[signal.Signals], Sequence[float]]
) -> None:
    workers, numbers, gaps = case
    with running(*served(tmp_path, workers)) as command:
        clients = Clients(command.port())
        clients.begin()
        for number, gap in zip(numbers, (*gaps, 0.0), strict=True):
            if command.popen.poll() is None:
                command.signal(number)
            time.sleep(gap)
        check_kept(tmp_path, clients)
        assert command.ended() == 0


def test_a_sigterm_that_comes_to_the_whole_group_drains(tmp_path: Path) -> None:
    """A service manager ends each process of a service, and the parent ends its workers."""
    with running(*served(tmp_path, 2), start_new_session=True) as command:
        clients = Clients(command.port())
        clients.begin()
        os.killpg(command.popen.pid, TERM)
        check_kept(tmp_path, clients)
        assert command.ended() == 0


def test_a_second_sigterm_of_the_operator_ends_workers_at_once(tmp_path: Path) -> None:
    path = write_slow_platform(tmp_path, 60.0)
    with running(path, "--port", "0", "--workers", "2") as command:
        clients = Clients(command.port())
        clients.begin()
        command.signal(HUP)
        command.until(lambda: len(command.named("worker_serves")) == 4)
        began = time.monotonic()
        for _ in range(2):
            command.signal(TERM)
            time.sleep(0.2)
        assert command.ended() == 0
        assert time.monotonic() - began < 15.0
        clients.finish()

    assert not clients.stream.whole


def broken(path: Path) -> None:
    """Let the platform's file load, and no worker come up with it."""
    path.write_text(path.read_text().replace("legation.db", "no/such/folder/legation.db"))


def serves_more(command: Command, than: int) -> bool:
    return len(command.named("worker_serves")) > than


def check_replaced(command: Command, port: int) -> None:
    """Kill each worker, and check that another serves in its place."""
    for pid in command.workers:
        serving = len(command.named("worker_serves"))
        os.kill(pid, signal.SIGKILL)
        command.until(partial(serves_more, command, serving))
    clients = Clients(port)
    clients.begin()
    clients.finish()
    assert clients.answer["status"] == "COMPLETED"


@pytest.mark.parametrize("gap", [0.0, 0.01])
def test_two_restarts_with_a_broken_file_leave_workers_that_are_replaced(
    tmp_path: Path, gap: float
) -> None:
    arguments = served(tmp_path, 2)
    with running(*arguments) as command:
        port = command.port()
        broken(Path(arguments[0]))
        for _ in range(2):
            command.signal(HUP)
            time.sleep(gap)
        command.until(lambda: command.named("restart_abandoned"))
        time.sleep(0.3)
        check_replaced(command, port)


def test_a_broken_file_before_all_workers_are_up_does_not_end_the_server(tmp_path: Path) -> None:
    arguments = served(tmp_path, 3)
    with running(*arguments) as command:
        command.until(lambda: command.named("worker_serves"))
        broken(Path(arguments[0]))
        command.signal(HUP)
        port = command.port()

        assert len(command.named("restart_abandoned")) == 1
        check_replaced(command, port)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_sighup_before_anybody_obeys_it_waits(tmp_path: Path, workers: int) -> None:
    """By default the signal would end the process."""
    path = tmp_path / "slow_module.py"
    path.write_text(MODULE.format(folder=tmp_path))
    target = "slow_module:platform"
    with running(target, "--port", "0", "--workers", str(workers), cwd=tmp_path) as command:
        command.until((tmp_path / "loading").exists)
        command.signal(HUP)
        command.port()
        command.until(lambda: workers == 1 or command.named("workers_restarting"))
        assert command.popen.poll() is None


MODULE: Final = """
import time
from pathlib import Path
from legation import Agent, Database, Platform

folder = Path("{folder}")
(folder / "loading").touch()
time.sleep(0.5)
platform = Platform(
    databases=[Database("main", f"sqlite:///{{folder}}/main.db")], agents=[Agent(id="a")]
)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_sighup_ends_no_process_that_has_drained_and_is_not_gone_yet(
    tmp_path: Path, workers: int
) -> None:
    with running(*served(tmp_path, workers)) as command:
        command.port()
        command.signal(TERM)
        while command.popen.poll() is None:
            command.signal(HUP)
            time.sleep(0.0005)

        assert command.ended() == 0
