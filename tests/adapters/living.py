"""Runs of hosted frameworks, through pauses and crashes to their end, and what they called."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from attrs import define, field

from legation import Agent, Platform
from legation_testing import Client, Trials, crash_everywhere

from ..frontends.cluster_kit import NIGHTLY
from ..frontends.served import HOSTS
from ..two_databases import IN_MEMORY

__all__ = ["EVERY", "Calls", "cancel_on", "crash", "finish", "run_of"]

EVERY: Final = 1 if NIGHTLY else 67
"""A run has some hundred effects; at each so many further on there is a crash."""

BY_HAND: Final = "done by hand"
SECONDS: Final = 30
FINAL: Final = ("COMPLETED", "ERROR", "CANCELLED")


@define(eq=False)
class Calls:
    """The calls of tools that count twice, by name and argument; a crash forgets none."""

    made: Counter[str] = field(factory=Counter[str])

    def make(self, name: str, what: Any) -> str:
        """Make a call."""
        self.made[f"{name} {what}"] += 1
        return f"{name} {what}"


def run_of(client: Client, agent: str) -> Any:
    """Return the run of the session `s`, or None."""
    found = client.get(f"/agents/{agent}/runs?session_id=s")
    runs: list[Any] = found.json() if found.status == 200 else []
    return runs[0] if runs else None


def finish(client: Client, agent: str, message: str) -> Any:
    """Take a run of the session `s` to its end, from wherever it is; people agree to all."""
    for _ in range(200):
        run = run_of(client, agent)
        path = f"/agents/{agent}/runs"
        if run is None:
            form: Any = {"message": message, "session_id": "s", "stream": False}
            client.post(path, form=form)
        elif run["status"] == "PAUSED":
            whole = client.get(f"{path}/{run['run_id']}?session_id=s").json()
            tools = [_reply(needed["tool_execution"]) for needed in whole["requirements"]]
            form = {"tools": json.dumps(tools), "stream": False}
            client.post(f"{path}/{run['run_id']}/continue", form=form)
        elif run["status"] in FINAL:
            return client.get(f"{path}/{run['run_id']}?session_id=s").json()
        else:
            client.advance(1)
    raise AssertionError("the run has no end")


def _reply(execution: dict[str, Any]) -> dict[str, Any]:
    if execution.get("in_doubt"):
        return {**execution, "result": BY_HAND}
    return {**execution, "confirmed": True}


def cancel_on(host: str, agent: Agent, began: threading.Event) -> str:
    """Cancel a run on a real host as soon as it began; return its status at the end."""
    form = ((b"content-type", b"application/x-www-form-urlencoded"),)
    path = f"/agents/{agent.id}/runs"
    with HOSTS[host](Platform(databases=IN_MEMORY, agents=[agent])) as served:
        started = served.send("POST", path, form, b"message=go&background=true&session_id=s")
        run_id = json.loads(started.body)["run_id"]
        assert began.wait(SECONDS)
        served.send("POST", f"{path}/{run_id}/cancel")
        for _ in range(20 * SECONDS):
            run = json.loads(served.send("GET", f"{path}/{run_id}?session_id=s").body)
            if run["status"] in FINAL:
                return str(run["status"])
            time.sleep(0.05)
    raise AssertionError("the run has no end")


def crash(
    make: Callable[[Calls], Agent],
    answer: Any,
    *,
    every: int = 1,
) -> Trials:
    """Crash a run at every effect: it goes on to `answer`, if not None, and makes no call twice."""
    agent_id = make(Calls()).id
    world: list[Calls] = []

    def client() -> Client:
        calls = Calls()
        world[:] = [calls]
        return Client(lambda: Platform(databases=IN_MEMORY, agents=[make(calls)]))

    def act(client: Client) -> None:
        finish(client, agent_id, "go")

    def check(client: Client) -> None:
        run = finish(client, agent_id, "go")
        by_hand = answer is None and BY_HAND in json.dumps(run["tools"])
        assert run["status"] == "COMPLETED", run
        assert by_hand or answer in (None, run["content"]), run
        assert max(world[0].made.values()) == 1, world[0].made
        done = [tool for tool in run["tools"] if tool["result"] != BY_HAND]
        assert len({tool["tool_call_id"] for tool in done}) == len(done)

    return crash_everywhere(client, act, check, every=every)
