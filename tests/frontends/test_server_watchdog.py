"""The watchdog of a service manager: beats while event loops turn, none of one that is blocked."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

from legation_server import Notifier
from legation_server.supervisor import (
    LOOK_SECONDS,
    Action,
    Note,
    Order,
    Report,
    Send,
    Start,
    Supervisor,
)

from .command_kit import PATIENCE, Command, running, write_platform
from .test_runs_kill import Remote

BEAT: Final = b"WATCHDOG=1"

MODULE: Final = """
import os, socket, time
from pathlib import Path
from legation import Agent, Database, Platform
from legation.models.conversation import Reply


def tell(state):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
        speaker.connect("{folder}/notify")
        speaker.send(state)


class Blocking:
    id = name = provider = "blocking"

    def respond(self, prompt, listener):
        yield from listener.settle()
        tell(b"BLOCKED")
        time.sleep(1.5)  # three beats are due
        tell(b"FREE")
        return Reply("done")


platform = Platform(
    agents=[Agent(id="a", model=Blocking())],
    databases=[Database("main", "sqlite:///{folder}/main.db", auto_migrate=True)],
)
"""


@pytest.fixture
def manager(tmp_path: Path) -> Generator[socket.socket]:
    """A service manager's end of NOTIFY_SOCKET."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(PATIENCE)
        yield listening


def watched(folder: Path, seconds: float, target: str | Path, *more: str) -> Any:
    """Serve where a service manager waits `seconds` for a beat."""
    env = {
        "NOTIFY_SOCKET": str(folder / "notify"),
        "WATCHDOG_USEC": str(int(seconds * 1e6)),
    }
    return running(target, "--port", "0", *more, env=env, cwd=folder)


def until(manager: socket.socket, state: bytes) -> list[bytes]:
    """Return what the service manager hears before `state`."""
    heard: list[bytes] = []
    while (told := manager.recv(100)) != state:
        heard.append(told)
    return heard


def test_event_loop_that_is_blocked_sends_no_beat(tmp_path: Path, manager: socket.socket) -> None:
    (tmp_path / "blocking.py").write_text(MODULE.replace("{folder}", str(tmp_path)))
    with watched(tmp_path, 2.0, "blocking:platform") as server:
        assert set(until(manager, b"READY=1")) <= {BEAT}
        until(manager, BEAT)
        form = {"message": "hello", "background": "true"}
        with Remote(server.port()).request("POST", "/agents/a/runs", **form) as answer:
            answer.read()
        assert set(until(manager, b"BLOCKED")) <= {BEAT}
        assert until(manager, b"FREE") == []
        assert until(manager, BEAT) == []


def test_beats_go_on_until_the_drain_is_over(tmp_path: Path, manager: socket.socket) -> None:
    path = write_platform(tmp_path)
    with watched(tmp_path, 1.0, path, "--limit", "grace_seconds=1") as server:
        until(manager, b"READY=1")
        port = server.port()
        with socket.create_connection(("127.0.0.1", port)):  # the grace is for it
            server.signal(signal.SIGTERM)
            until(manager, b"STOPPING=1")
            assert until(manager, BEAT) == []
        assert server.ended() == 0


def workers_of(server: Command) -> list[int]:
    return [int(line["pid"]) for line in server.named("worker_serves")]


def test_worker_that_hangs_is_replaced_while_its_parent_beats(
    tmp_path: Path, manager: socket.socket
) -> None:
    path = write_platform(tmp_path)
    with watched(tmp_path, 5.0, path, "--workers", "2") as server:
        until(manager, b"READY=1")
        hung = workers_of(server)[0]
        os.kill(hung, signal.SIGSTOP)
        heard: set[bytes] = set()
        due = time.monotonic() + PATIENCE
        while len(workers_of(server)) < 3:
            assert time.monotonic() < due
            heard.add(manager.recv(100))
        assert heard == {BEAT}
        assert hung in {line["pid"] for line in server.named("worker_killed")}
        server.signal(signal.SIGTERM)
        assert server.ended() == 0


def test_workers_without_a_watchdog_may_hang(tmp_path: Path, manager: socket.socket) -> None:
    env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "0"}
    path = write_platform(tmp_path)
    with running(path, "--port", "0", "--workers", "2", env=env) as server:
        server.until(lambda: len(workers_of(server)) == 2)
        time.sleep(1.2)  # a tick of the parent
        server.signal(signal.SIGTERM)
        assert server.ended() == 0

    manager.settimeout(0)
    assert [manager.recv(100), manager.recv(100)] == [b"READY=1", b"STOPPING=1"]
    with pytest.raises(BlockingIOError):
        manager.recv(100)


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "1" * 40}, None),
        ({}, None),
    ],
)
def test_watchdog_that_is_meant_for_this_process_counts(
    environ: dict[str, str], seconds: float | None
) -> None:
    assert Notifier({"NOTIFY_SOCKET": "/nobody", **environ}).watchdog_seconds == seconds
    assert Notifier(environ).watchdog_seconds is None


# --- decided by the supervisor -------------------------------------------------------------------


SILENCE: Final = 10.0
KILLED: Final = (Report("error", "worker_killed", {"pid": 1, "slot": 0}), Send(1, Order.KILL))


def serving() -> Supervisor:
    """Return a supervisor whose only worker serves since 0 s."""
    supervisor = Supervisor(1, 30.0, SILENCE)
    supervisor.advance(0.0)
    supervisor.add(1, Start(0, 0), 0.0)
    assert not supervisor.answers
    assert supervisor.come_up(1, 0.0)[-1] is Note.READY
    assert supervisor.answers
    return supervisor


def advance(supervisor: Supervisor, start: float, end: float) -> list[Action]:
    """Let the parent look every second from `start` to `end`; return what is done."""
    seconds = range(int(start), int(end) + 1)
    return [action for second in seconds for action in supervisor.advance(float(second))]


def test_worker_that_is_silent_is_killed_once() -> None:
    supervisor = serving()

    assert supervisor.next_time() == SILENCE
    assert advance(supervisor, 1, 10) == []
    assert advance(supervisor, 11, 60) == [*KILLED]


def test_worker_that_is_heard_lives_on() -> None:
    supervisor = serving()
    advance(supervisor, 1, 9)
    supervisor.hear(1, 9.0)

    assert advance(supervisor, 10, 19) == []
    assert advance(supervisor, 20, 20) == [*KILLED]


def test_worker_that_drains_may_be_silent() -> None:
    supervisor = serving()
    supervisor.end(1.0)
    supervisor.hear(1, 5.0)

    assert advance(supervisor, 2, 36) == []
    assert advance(supervisor, 37, 37) == [*KILLED]
    assert supervisor.answers


def test_time_in_which_the_parent_did_not_run_is_no_silence() -> None:
    supervisor = serving()
    advance(supervisor, 1, 5)

    assert supervisor.advance(1000.0) == []
    assert supervisor.next_time() == SILENCE + 995.0 - LOOK_SECONDS
    assert advance(supervisor, 1001, 1003) == []
    assert advance(supervisor, 1004, 1010) == [*KILLED]


def test_worker_that_came_up_is_no_longer_overdue_where_nobody_waits() -> None:
    supervisor = Supervisor(1, 30.0)
    supervisor.advance(0.0)
    supervisor.add(1, Start(0, 0), 0.0)
    supervisor.hear(1, 0.0)
    supervisor.come_up(1, 0.0)

    assert advance(supervisor, 1, 10_000) == []
