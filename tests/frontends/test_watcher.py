"""A step of a run that does not come back ends its process and its run, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from .command_kit import PATIENCE, Command, running
from .test_runs_kill import Remote

STEP_SECONDS: Final = 1.0
SUSPENDED_SECONDS: Final = 4.0
"""More than a step may take, with the time in which the watcher waits for a stack."""

STARVED_SECONDS: Final = 2.0

MODULE: Final = """
import os
import re
import signal
import time
from pathlib import Path
from legation import Agent, Database, Platform
from legation.models.conversation import Reply


class Blocking:
    id = name = provider = "blocking"

    def respond(self, prompt, listener):
        text = prompt.messages[-1].content
        if text != "hasty":
            yield from listener.settle()
        if text == "pattern":
            re.fullmatch("(?:a+)+b", "a" * 60)
        elif text in ("lock", "hasty"):
            time.sleep(600)
        elif text == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif text == "starve":
            Path("{folder}/starved").touch()
            os.sched_setaffinity(0, {0})
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            due = time.thread_time() + 0.2
            while time.thread_time() < due:
                pass
        return Reply(text)


platform = Platform(
    agents=[Agent(id="a", model=Blocking())],
    databases=[Database("main", "{url}", auto_migrate=True)],
)
"""


def serving(folder: Path, *arguments: str, url: str = "") -> Any:
    module = MODULE.replace("{url}", url or f"sqlite:///{folder}/main.db")
    (folder / "blocking.py").write_text(module.replace("{folder}", str(folder)))
    limit = ("--port", "0", "--limit", f"step_seconds={STEP_SECONDS}")
    env = {"PYTHONPATH": str(folder)}
    return running("blocking:platform", *limit, *arguments, env=env)


def start(port: int, message: str, **more: str) -> str:
    form = {"message": message, "background": "true", **more}
    with Remote(port).request("POST", "/agents/a/runs", **form) as answer:
        return str(json.loads(answer.read())["run_id"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("watched")


@pytest.fixture(scope="module")
def watched(folder: Path) -> Generator[Command]:
    """A server for those that leave it alive."""
    with serving(folder) as server:
        yield server


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def is_alive(pid: int) -> bool:
    return state_of(pid) != "Z"


def wait_until(is_so: Callable[[], bool]) -> None:
    due = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < due
        time.sleep(0.02)


def has_completed(port: int, run_id: str) -> bool:
    return bool(Remote(port).json("GET", f"/agents/a/runs/{run_id}")["status"] == "COMPLETED")


def test_a_process_that_does_not_come_back_is_killed_and_its_run_ends(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        run_id = start(server.port(), "pattern")
        server.until(lambda: server.named("blocked_run_ended"))
        assert server.ended() == -signal.SIGKILL
    (told,) = server.named("process_blocked")
    assert (told["run_id"], told["agent_id"], told["attempt"]) == (run_id, "a", 1)
    assert "in respond\n" in told["stack"]

    with serving(tmp_path) as server:
        remote = Remote(server.port())
        run = remote.json("GET", f"/agents/a/runs/{run_id}")
        assert (run["status"], "a single step" in run["content"]) == ("ERROR", True)
        with remote.request("GET", f"/agents/a/runs/{run_id}/events") as answer:
            assert b'"error_type":"blocked"' in answer.read()


def test_another_node_does_not_take_the_run_of_a_killed_process_up(
    tmp_path: Path, postgres: str
) -> None:
    with serving(tmp_path, url=postgres) as one, serving(tmp_path, url=postgres) as two:
        port = two.port()
        run_id = start(one.port(), "pattern", session_id="s")
        wait_until(lambda: bool(one.named("blocked_run_ended")))
        run = Remote(port).json("GET", f"/agents/a/runs/{run_id}")
        after = start(port, "after", session_id="s")  # begins when the run before it has ended
        wait_until(lambda: has_completed(port, after))

        assert (run["status"], "a single step" in run["content"]) == ("ERROR", True)
        assert not [line for line in two.events if run_id in json.dumps(line)]
        assert is_alive(two.popen.pid)


def test_a_process_that_is_suspended_in_a_step_is_left_alone(watched: Command) -> None:
    port, pid = watched.port(), watched.popen.pid
    run_id = start(port, "stop")
    wait_until(lambda: state_of(pid) == "T")
    time.sleep(SUSPENDED_SECONDS)
    watched.signal(signal.SIGCONT)
    wait_until(lambda: has_completed(port, run_id))

    assert not watched.named("process_blocked")


BUSY: Final = """
import os
os.sched_setaffinity(0, {0})
print("busy", flush=True)
while True:
    pass
"""


@contextmanager
def busy_cpu() -> Generator[None]:
    """Have a process use the first CPU until the block ends."""
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.kill()


def feed(pid: int) -> None:
    """Have a process run as any other does: this machine may have other things to do."""
    os.sched_setaffinity(pid, os.sched_getaffinity(0))
    os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))


def test_a_process_that_gets_no_cpu_is_left_alone(watched: Command, folder: Path) -> None:
    """The busy one is 300 times as important on the one CPU that both may use."""
    port = watched.port()
    with busy_cpu():
        run_id = start(port, "starve")
        wait_until((folder / "starved").exists)
        time.sleep(STARVED_SECONDS)
        assert not watched.named("process_blocked")
    feed(watched.popen.pid)
    wait_until(lambda: has_completed(port, run_id))


def test_another_worker_goes_on_and_the_one_that_was_killed_is_replaced(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as server:
        port = server.port()
        run_id = start(port, "lock")
        server.until(lambda: server.named("blocked_run_ended"))
        (blocked,) = server.named("process_blocked")
        killed = blocked["pid"]
        server.until(lambda: len(server.named("worker_serves")) == 3)

        assert "in respond\n" in blocked["stack"]
        assert killed not in server.workers
        assert server.named("worker_ended")[0]["code"] == -signal.SIGKILL
        assert Remote(port).json("GET", f"/agents/a/runs/{run_id}")["status"] == "ERROR"


def watcher_of(server: Command) -> int:
    (watcher,) = server.workers
    return watcher


def test_no_other_worker_takes_up_a_run_that_hangs_before_its_first_event(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as server:
        port = server.port()
        run_id = start(port, "hasty", session_id="s")
        server.until(lambda: server.named("blocked_run_ended"))
        after = start(port, "after", session_id="s")
        wait_until(lambda: has_completed(port, after))

        assert Remote(port).json("GET", f"/agents/a/runs/{run_id}")["status"] == "ERROR"
        assert len(server.named("process_blocked")) == 1


def test_a_watcher_goes_with_its_process_and_is_deaf_to_the_group(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.port()
        watcher = watcher_of(server)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(watcher, number)
        assert is_alive(watcher)
        server.signal(signal.SIGTERM)
        assert server.ended() == 0
        assert not is_alive(watcher)

    with serving(tmp_path) as server:
        server.port()
        watcher = watcher_of(server)
        server.signal(signal.SIGKILL)
        server.ended()  # its log ends with the watcher
        wait_until(lambda: not is_alive(watcher))


ORPHANED: Final = """
import os
import signal
import time
from legation_server.watcher import watch

def end_parent():
    parent = os.getppid()
    os.kill(parent, signal.SIGKILL)
    while os.getppid() == parent:
        time.sleep(0.01)

os.register_at_fork(after_in_child=end_parent)
with watch(60.0, print, print):
    time.sleep(60)
"""


def test_a_watcher_whose_process_ends_at_once_does_not_stay() -> None:
    command = [sys.executable, "-c", ORPHANED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watched:
        output, _ = watched.communicate(timeout=PATIENCE)  # until nobody can write to it

    assert (output, watched.returncode) == ("", -signal.SIGKILL)


def test_a_watcher_has_no_socket(watched: Command) -> None:
    watched.port()
    folder = Path(f"/proc/{watcher_of(watched)}/fd")

    assert not [each for each in folder.iterdir() if "socket:" in str(each.readlink())]
