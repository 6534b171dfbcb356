"""Teams, and agents that are functions, on real hosts: SQLite and PostgreSQL, trio and asyncio."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from legation import Agent, Database, Platform, Team, tool
from legation_host.hosting import open_platform
from legation_testing import ScriptedModel, call

from .test_runs_nodes import Node

LOOPS = ["asyncio", "trio"]


def ask(member: str) -> Any:
    return call("delegate_task_to_member", member_id=member, task="Do it")


def repeat(prompt: Any) -> str:
    return " | ".join(m.content for m in prompt.messages if m.role == "tool")


@tool(requires_confirmation=True)
def book(room: int) -> str:
    return f"room {room} is booked"


def crew(url: str) -> Platform:
    says = ScriptedModel([call("book", room=7), repeat, call("book", room=8)])
    leader = ScriptedModel([[ask("ann"), ask("bob")], repeat, ask("ann")])
    return Platform(
        databases=[Database("main", url, auto_migrate=True)],
        agents=[Agent(id="ann", model=says, tools=[book]), Agent(id="bob", run=shout)],
        teams=[Team(id="desk", members=["ann", "bob"], model=leader)],
    )


async def shout(message: str) -> AsyncIterator[str]:
    for word in message.split():
        await anyio.lowlevel.checkpoint()
        yield word.upper()


@pytest.mark.parametrize("loop", LOOPS)
def test_team_pauses_goes_on_and_is_cancelled(url: str, loop: str) -> None:
    async def main() -> None:
        platform = crew(url)
        async with open_platform(platform) as host:
            node = Node(platform, host)
            form = {"message": "x", "session_id": "s", "stream": "no"}
            paused = await node.ask("POST", "/teams/desk/runs", **form)
            tools = [{**r["tool_execution"], "confirmed": True} for r in paused["requirements"]]
            path = f"/teams/desk/runs/{paused['run_id']}/continue"
            run = await node.ask("POST", path, tools=json.dumps(tools), stream="no")
            assert run["content"] == "room 7 is booked | DOIT"
            assert [r["status"] for r in run["member_responses"]] == ["COMPLETED"] * 2

            again = await node.ask("POST", "/teams/desk/runs", **form)
            await node.ask("POST", f"/teams/desk/runs/{again['run_id']}/cancel")
            members = await node.ask("GET", "/agents/ann/runs?session_id=s")
            assert [member["status"] for member in members] == ["COMPLETED", "CANCELLED"]
            rows = await node.ask("GET", "/sessions/s/runs?type=team")
            assert [row["status"] for row in rows] == ["COMPLETED", "CANCELLED"]

    anyio.run(main, backend=loop)


# --- functions -----------------------------------------------------------------------------------


class Slow:
    """Functions that say when they begin and when they have cleaned up."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.closed = threading.Event()
        self.held = threading.Event()

    async def pieces(self, message: str) -> AsyncIterator[str]:
        try:
            yield message
            self.begun.set()
            await anyio.sleep(60)
        finally:
            self.closed.set()

    async def whole(self) -> str:
        try:
            self.begun.set()
            await anyio.sleep(60)
        finally:
            self.closed.set()
        raise AssertionError

    def thread(self) -> str:
        self.begun.set()
        self.held.wait(60)
        self.closed.set()
        return "too late"


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("how", ["cancel", "time-out"])
@pytest.mark.parametrize("which", ["pieces", "whole", "thread"])
def test_function_is_given_up(tmp_path: Path, loop: str, how: str, which: str) -> None:
    slow = Slow()
    platform = Platform(
        databases=[Database("main", f"sqlite:///{tmp_path}/main.db")],
        agents=[Agent(id="slow", run=getattr(slow, which))],
        run_timeout_seconds=60.0 if how == "cancel" else 0.5,
    )

    async def main() -> None:
        async with open_platform(platform) as host:
            node = Node(platform, host)
            form = {"message": "x", "background": "yes", "session_id": "s"}
            run = await node.ask("POST", "/agents/slow/runs", **form)
            path = f"/agents/slow/runs/{run['run_id']}"
            with anyio.fail_after(20):
                while not slow.begun.is_set():
                    await anyio.sleep(0.01)
                if how == "cancel":
                    await node.ask("POST", f"{path}/cancel")
                over = await node.ask("GET", f"{path}/events")
                assert over[-1]["event"] == ("RunCancelled" if how == "cancel" else "RunError")
                told = await node.ask("GET", path)
                slow.held.set()  # a thread cannot be stopped; nobody waits for it
                while not slow.closed.is_set():
                    await anyio.sleep(0.01)
            assert told["status"] == ("CANCELLED" if how == "cancel" else "ERROR")

    anyio.run(main, backend=loop)
