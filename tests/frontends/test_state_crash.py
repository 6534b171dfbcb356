"""No write to the state of a session is lost, and none is seen that was not stored.

Three runs are queued in one session.  Two are of an agent that counts two keys up, side by side,
and then adds both up; one is of a function that counts a key of its own.  Whatever breaks, each
call counts once, and each time that it is called it finds what stood there before its run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest
from attrs import evolve

from legation import Agent, Platform, Run, tool
from legation.models.conversation import Prompt
from legation.store.failures import CommitLost
from legation.store.runs import AppendEvents, FinishRun
from legation_testing import (
    Client,
    Says,
    ScriptedModel,
    call,
    crash_everywhere,
    fail_everywhere,
)

from ..two_databases import IN_MEMORY
from .cluster_kit import NIGHTLY

pytestmark = pytest.mark.enumeration

QUEUED: Final = ("clerk", "teller", "clerk")
LEFT: Final[tuple[dict[str, int], ...]] = (
    {},
    {"a": 1, "b": 1, "total": 2},
    {"a": 1, "b": 1, "total": 2, "turns": 1},
    {"a": 2, "b": 2, "total": 4, "turns": 1},
)
"""The state before the first run, and as each of the three leaves it."""


def _next(asked: Prompt) -> Any:
    results = 0
    for message in reversed(asked.messages):
        if message.role == "user":
            break
        results += message.role == "tool"
    sides = [call("count", key="a"), call("count", key="b")]
    said = {0: Says("", calls=sides), 2: Says("", calls=[call("add_up")])}
    return evolve(said.get(results, Says("counted")), after_seconds=0.5)


class Scenario:
    """The three runs of one session, in each of which the calls note what they saw."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, Any]]] = []

    def platform(self) -> Platform:
        """Return the platform, whose functions may all be called again."""

        @tool(again="safe")
        def count(run: Run, key: str) -> int:
            """Count one key up."""
            self.seen.append((run.run_id, key, dict(run.state)))
            run.state[key] = run.state.get(key, 0) + 1
            return int(run.state[key])

        @tool(again="safe")
        def add_up(run: Run) -> int:
            """Add both up."""
            self.seen.append((run.run_id, "total", dict(run.state)))
            run.state["total"] = run.state["a"] + run.state["b"]
            return int(run.state["total"])

        def turn(run: Run) -> str:
            """Count the turns."""
            self.seen.append((run.run_id, "turns", dict(run.state)))
            run.state["turns"] = run.state.get("turns", 0) + 1
            return "turned"

        model = ScriptedModel([_next] * 99)
        clerk = Agent(id="clerk", model=model, tools=[count, add_up])
        teller = Agent(id="teller", run=turn, again="safe")
        return Platform(databases=IN_MEMORY[:1], agents=[clerk, teller])

    def make(self) -> Client:
        self.seen.clear()
        return Client(self.platform)

    def act(self, client: Client) -> None:
        for agent in QUEUED:
            form = {"message": "go", "session_id": "s", "background": True}
            client.post(f"/agents/{agent}/runs", form=form).expect_success()
        client.advance(4)

    def check(self, client: Client) -> None:
        client.advance(60)
        runs: list[dict[str, Any]] = []
        if client.get("/sessions/s").status == 200:
            runs = client.get("/sessions/s/runs").json()
        assert [run["agent_id"] for run in runs] == list(QUEUED[: len(runs)])
        for run, left in zip(runs, LEFT[1:], strict=False):
            assert (run["status"], run["session_state"]) == ("COMPLETED", left)
            path = f"/agents/{run['agent_id']}/runs/{run['run_id']}"
            assert client.get(path).json()["session_state"] == left
            last = client.get(f"{path}/events").events()[-1]
            assert (last.name, last.json()["session_state"]) == ("RunCompleted", left)
        if runs:
            state = client.get("/sessions/s").json()["session_state"]
            assert state == LEFT[len(runs)]
        self.check_seen([run["run_id"] for run in runs])

    def check_seen(self, runs: list[str]) -> None:
        """Each time that a call is made, it finds what stood there before its run."""
        for run_id, key, state in self.seen:
            number = runs.index(run_id)
            before, after = LEFT[number], LEFT[number + 1]
            assert state.get(key) == before.get(key)
            if key == "total":
                assert (state["a"], state["b"]) == (after["a"], after["b"])
            for other, value in state.items():
                assert value in (before.get(other), after.get(other))


def test_whatever_crashes_each_call_writes_once(figures: Callable[[str], None]) -> None:
    scenario = Scenario()
    tried = crash_everywhere(scenario.make, scenario.act, scenario.check, every=1 if NIGHTLY else 5)

    figures(f"state: crashed at {tried.points} effects, every write is there once")
    assert tried.points > 25


@pytest.mark.parametrize("after", [False, True], ids=["lost", "done"])
def test_whatever_commit_has_no_answer_each_call_writes_once(after: bool) -> None:
    scenario = Scenario()
    for which in (AppendEvents, FinishRun):
        tried = fail_everywhere(
            scenario.make,
            scenario.act,
            scenario.check,
            which=which,
            outcome=CommitLost("no answer"),
            after=after,
        )
        assert tried.points >= 3
    counted = Counter(key for _, key, _ in scenario.seen)
    assert counted == {"a": 2, "b": 2, "total": 2, "turns": 1}


@pytest.mark.parametrize("silent_after", [0.25, 0.75, 1.25])
def test_a_node_that_was_silent_writes_nothing_over_what_another_went_on_with(
    silent_after: float,
) -> None:
    """It goes on behind the other, with what it read before, and has lost the lease."""
    scenario = Scenario()
    with scenario.make() as one, one.peer() as other:
        form = {"message": "go", "session_id": "s"}
        one.begin("POST", "/agents/clerk/runs", form=form)
        one.advance(silent_after)
        one.simulation.stall(one.node)
        for agent in QUEUED[1:]:
            other.post(f"/agents/{agent}/runs", form={**form, "background": True}).expect_success()
        other.advance(60)
        scenario.check(other)
        one.simulation.go_on(one.node)
        other.advance(30)

        scenario.check(other)
        assert len(other.get("/sessions/s/runs").json()) == len(QUEUED)
