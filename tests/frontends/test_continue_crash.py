"""A crash at every effect of a run with tools, and of its going on: no tool is called twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from legation import Platform
from legation.config import Agent, Model
from legation.models.conversation import Prompt
from legation.tools import tool
from legation_testing import Client, Exchange, ScriptedModel, call, crash_everywhere

from ..two_databases import IN_MEMORY
from .cluster_kit import NIGHTLY

pytestmark = pytest.mark.enumeration

PATH = "/agents/clerk/runs"
FINAL = {"COMPLETED", "CANCELLED", "ERROR"}


def _next(prompt: Prompt) -> Any:
    """Return what the model wants, which depends on nothing but what it was told."""
    match sum(message.role == "tool" for message in prompt.messages):
        case 0:
            return [call("look", path="/a"), call("look", path="/b")]
        case 2:
            waiting = [call("delete", path="/x"), call("delete", path="/y")]
            return [call("look", path="/c"), *waiting]
        case _:
            return "Done."


class Scenario:
    """A run that calls tools, waits for a person, and goes on, once or asked twice."""

    def __init__(self, *, stream: bool, asked: int, busy: bool) -> None:
        self.stream = stream
        self.asked = asked
        self.busy = busy
        self.called: Counter[str] = Counter()
        self.answered = 0

    def platform(self) -> Platform:
        def look(path: str) -> str:
            """Look at a file."""
            self.called[f"look {path}"] += 1
            return "full"

        @tool(requires_confirmation=True)
        def delete(path: str) -> str:
            """Delete a file."""
            self.called[f"delete {path}"] += 1
            return "gone"

        model = ScriptedModel([_next] * 9)
        slow = Model("slow", "echo", delay_seconds=2.0)
        clerk = Agent(id="clerk", model=model, tools=[look, delete], in_doubt="tell")
        agents = (clerk, Agent(id="a", model="slow"))
        return Platform(databases=IN_MEMORY, models=(slow,), agents=agents)

    def make(self) -> Client:
        self.called.clear()
        self.answered = 0
        return Client(self.platform)

    def act(self, client: Client) -> None:
        form = {"message": "tidy up", "session_id": "s", "stream": self.stream}
        run_id = client.begin("POST", PATH, form=form)
        run_id.response()
        run = client.get(f"{PATH}?session_id=s").json()[0]
        if self.busy:
            other = {"message": "x", "session_id": "s", "background": True}
            client.post("/agents/a/runs", form=other)
            client.settle()
        tools = [{**one["tool_execution"], "confirmed": True} for one in run["requirements"]]
        answer = {"tools": json.dumps(tools), "stream": self.stream}
        path = f"{PATH}/{run['run_id']}/continue"
        going: list[Exchange] = [client.begin("POST", path, form=answer) for _ in range(self.asked)]
        statuses = sorted(exchange.response().status for exchange in going)
        assert statuses == [200, *[409] * (self.asked - 1)]
        self.answered = 1

    def check(self, client: Client) -> None:
        client.advance(60)
        for agent in ("clerk", "a"):
            for run in client.get(f"/agents/{agent}/runs?session_id=s").json():
                self.check_run(client, run)
        assert max(self.called.values(), default=0) <= 1, self.called
        if self.answered:
            assert len(self.called) == 5
        assert client.run("a", "next", session_id="s")["status"] == "COMPLETED"

    def check_run(self, client: Client, run: dict[str, Any]) -> None:
        agent = run["agent_id"]
        events = client.get(f"/agents/{agent}/runs/{run['run_id']}/events").events()
        names = [event.name for event in events]
        ids = [event.id for event in events]
        assert ids == [f"{run['run_id']}:{n}" for n in range(1, len(ids) + 1)]
        assert names.count("RunStarted") <= 1
        assert names.count("RunContinued") <= 2  # by a person, and after the crash
        if run["status"] == "PAUSED":
            assert (names[-1], self.answered) == ("RunPaused", 0)
            waits = client.get(f"/agents/{agent}/runs/{run['run_id']}").json()["requirements"]
            assert [one["tool_execution"]["tool_args"] for one in waits] == [
                {"path": "/x"},
                {"path": "/y"},
            ]
        else:
            assert run["status"] in FINAL
            assert names[-1] in ("RunCompleted", "RunError", "RunCancelled")


@pytest.mark.parametrize(
    ("stream", "asked", "busy"),
    [(False, 1, False), (True, 1, False), (False, 2, False), (False, 1, True)],
    ids=["joined", "streamed", "asked twice", "after another run"],
)
def test_a_crash_anywhere_has_no_tool_called_twice(
    stream: bool, asked: int, busy: bool, figures: Callable[[str], None]
) -> None:
    scenario = Scenario(stream=stream, asked=asked, busy=busy)
    every = 3 if (stream or busy) and not NIGHTLY else 1
    tried = crash_everywhere(scenario.make, scenario.act, scenario.check, every=every)

    figures(f"continue: crashed at {tried.points} effects, no tool called twice")
    assert every > 1 or tried.by_effect["CallFunction"] == 5
    assert tried.points > 60 // every
