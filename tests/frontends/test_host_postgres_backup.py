"""The programs of PostgreSQL as processes: what starts one has it, and ends it.

Backups and restores as a whole are in `test_cli_backup_postgres`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from legation_host.postgres_backup import Programs

PROGRAMS: Final = Programs("main", "", dict(os.environ))
STARTS: Final = ("fork_exec", "posix_spawn")
"""The functions by which `subprocess` starts a program: which of them, the version decides."""


@pytest.fixture
def interruptible() -> Iterator[None]:
    """An interrupt is raised, also where the runner of the tests ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def children() -> set[int]:
    listed = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()
    return {int(process) for process in listed.split()}


def interrupt_at_start(frame: FrameType, event: str, arg: Any) -> None:
    """Interrupt this process when a program has started, before anything else is executed."""
    if event == "c_return" and arg.__name__ in STARTS:
        sys.setprofile(None)
        signal.raise_signal(signal.SIGINT)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are listed in /proc")
def test_an_interrupt_in_the_instant_of_its_start_ends_the_program(interruptible: None) -> None:
    before = children()
    profile = sys.getprofile()
    sys.setprofile(interrupt_at_start)
    try:
        with pytest.raises(KeyboardInterrupt):
            PROGRAMS.call(["sleep", "600"])
    finally:
        sys.setprofile(profile)
    left = children() - before
    for process in left:
        os.kill(process, signal.SIGKILL)

    assert left == set()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_program_is_started_where_no_interrupt_can_come() -> None:
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(PROGRAMS.call(["echo", "of a thread"])))
    thread.start()
    thread.join()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        said.append(PROGRAMS.call(["sh", "-c", "kill -INT $$ && echo ignored"]))
    finally:
        signal.signal(signal.SIGINT, before)

    assert said == ["of a thread\n", "ignored\n"]
