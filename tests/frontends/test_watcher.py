"""A step of a run that does not come back ends its process and its run, and nothing else."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, Final

import pytest

from .command_kit import Command, running
from .test_runs_kill import Remote

MODULE: Final = """
import re
import time
from legation import Agent, Database, Platform
from legation.models.conversation import Reply


class Blocking:
    id = name = provider = "blocking"

    def respond(self, prompt, listener):
        yield from listener.settle()
        text = prompt.messages[-1].content
        if text == "pattern":
            re.fullmatch("(?:a+)+b", "a" * 60)
        elif text == "lock":
            time.sleep(600)
        return Reply(text)


platform = Platform(
    agents=[Agent(id="a", model=Blocking())],
    databases=[Database("main", "sqlite:///{folder}/main.db")],
)
"""


def serving(folder: Path, *arguments: str) -> Any:
    (folder / "blocking.py").write_text(MODULE.replace("{folder}", str(folder)))
    limit = ("--port", "0", "--limit", "step_seconds=4")
    env = {"PYTHONPATH": str(folder)}
    return running("blocking:platform", *limit, *arguments, env=env)


def start(port: int, message: str) -> str:
    form = {"message": message, "background": "true"}
    with Remote(port).request("POST", "/agents/a/runs", **form) as answer:
        return str(json.loads(answer.read())["run_id"])


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("message", ["pattern", "lock"])
def test_a_process_that_does_not_come_back_is_killed_and_its_run_ends(
    tmp_path: Path, message: str
) -> None:
    with serving(tmp_path) as server:
        run_id = start(server.port(), message)
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


def test_another_worker_goes_on_and_the_one_that_was_killed_is_replaced(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as server:
        port = server.port()
        run_id = start(port, "lock")
        server.until(lambda: server.named("blocked_run_ended"))
        killed = server.named("process_blocked")[0]["pid"]
        server.until(lambda: len(server.named("worker_serves")) == 3)

        assert killed not in server.workers
        assert server.named("worker_ended")[0]["code"] == -signal.SIGKILL
        assert Remote(port).json("GET", f"/agents/a/runs/{run_id}")["status"] == "ERROR"


def watcher_of(server: Command) -> int:
    (watcher,) = server.workers
    return watcher


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
        assert not is_alive(watcher)


def test_a_watcher_has_no_socket(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.port()
        folder = Path(f"/proc/{watcher_of(server)}/fd")

        assert not [each for each in folder.iterdir() if "socket:" in str(each.readlink())]
