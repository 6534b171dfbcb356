"""A crash at every effect of a team whose models have prices: what it costs is counted once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from legation import Agent, ModelPrice, Platform, PlatformLimits, Prices, Team
from legation.models.conversation import Prompt, Usage
from legation.store.failures import CommitLost
from legation.store.run_steering import ContinueRun
from legation.store.runs import AppendEvents, FinishRun
from legation.store.usage import FetchUsage
from legation.tools import tool
from legation_testing import Client, Says, ScriptedModel, call, crash_everywhere, fail_everywhere

from ..core.runs.test_budgets_of_runs import read
from ..two_databases import IN_MEMORY
from .cluster_kit import NIGHTLY

pytestmark = pytest.mark.enumeration

PATH: Final = "/teams/desk/runs"
LIMIT: Final = 1_000_000_000
NANO: Final = 1_000
"""The cost of a token."""
USED: Final = {None: 0, "PAUSED": 1 + 2 + 8, "COMPLETED": 1 + 2 + 4 + 8 + 16}
"""The tokens of a run by its state: each answer has a number of its own."""


@tool(again="safe")
def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


@tool(requires_confirmation=True, again="safe")
def book(what: str) -> str:
    """Book."""
    return f"booked {what}"


def think(prompt: Prompt) -> Any:
    """Look, for 1 token, book, for 2, and answer, for 4."""
    match sum(message.role == "tool" for message in prompt.messages):
        case 0:
            return Says("Let me look.", [call("look", what="x")], usage=Usage(1))
        case 1:
            return Says("", [call("book", what="x")], usage=Usage(2))
        case _:
            return Says("Done.", usage=Usage(4))


def lead(prompt: Prompt) -> Any:
    """Ask the clerk, for 8 tokens, and answer, for 16."""
    if any(message.role == "tool" for message in prompt.messages):
        return Says("All is done.", usage=Usage(16))
    task = call("delegate_task_to_member", member_id="clerk", task="look")
    return Says("", [task], usage=Usage(8))


def platform() -> Platform:
    clerk, leader = ScriptedModel([think] * 20, id="clerk"), ScriptedModel([lead] * 20, id="lead")
    price = ModelPrice(input="1", output="1")
    return Platform(
        databases=IN_MEMORY,
        agents=(
            Agent(id="clerk", model=clerk, tools=[look, book]),
            Agent(id="other", model=ScriptedModel(["x"] * 9, id="lead"), database="second"),
        ),
        teams=(Team(id="desk", members=("clerk",), model=leader),),
        limits=PlatformLimits(cost_per_day="1"),
        prices=Prices(models={"clerk": price, "lead": price}),
    )


def cost_of(client: Client, database: str = "main", user: str = "ada") -> int:
    cost: int = read(client, FetchUsage(user, user, client.clock.now_us), database).cost_nano
    return cost


def find(client: Client) -> dict[str, Any] | None:
    """Return the run of ada, if it is stored."""
    runs = client.get(f"{PATH}?session_id=s&user_id=ada").json()
    return runs[0] if runs else None


class Scenario:
    """A team whose member looks, pauses, and goes on when a person has answered."""

    def make(self) -> Client:
        return Client(platform)

    def act(self, client: Client) -> None:
        form = {"message": "go", "session_id": "s", "stream": False, "user_id": "ada"}
        self.go_on(client, client.post(PATH, form=form).json())

    def go_on(self, client: Client, run: dict[str, Any]) -> None:
        """Answer what `run` waits for."""
        client.post(
            f"{PATH}/{run['run_id']}/continue",
            form={
                "requirements": json.dumps(
                    [
                        {**one, "tool_execution": {**one["tool_execution"], "confirmed": True}}
                        for one in run["requirements"]
                    ]
                ),
                "stream": False,
            },
        )

    def check(self, client: Client) -> None:
        """Look what is counted: as it is, and when the run is over."""
        client.advance(60)
        run = find(client)
        self.check_counts(client, run)
        if run is not None and run["status"] == "PAUSED":
            self.go_on(client, client.get(f"{PATH}/{run['run_id']}").json())
            self.check_counts(client, find(client))
        assert cost_of(client, "second") == cost_of(client, "main", "eve") == 0

    def check_counts(self, client: Client, run: dict[str, Any] | None) -> None:
        cost = NANO * USED[None if run is None else run["status"]]
        assert cost_of(client) == cost
        if run is not None:
            assert run["metrics"]["cost"] == cost / 10**9
        made: Any = client.platform
        expenses = made.context.shares.expenses
        spending = expenses.enter("main", "ada", LIMIT, client.clock.now_us, 0)
        expenses.leave(spending)
        assert spending.count_left(client.clock.now_us) in (LIMIT, LIMIT - cost)


def test_whatever_crashes_a_cost_is_counted_once(figures: Callable[[str], None]) -> None:
    scenario = Scenario()
    tried = crash_everywhere(scenario.make, scenario.act, scenario.check, every=1 if NIGHTLY else 3)

    figures(f"costs: crashed at {tried.points} effects, all is counted once")
    assert tried.points > 15


@pytest.mark.parametrize("unit", [AppendEvents, FinishRun, ContinueRun])
def test_whichever_commit_is_lost_a_cost_is_counted_once(unit: type[Any]) -> None:
    scenario = Scenario()
    tried = fail_everywhere(
        scenario.make, scenario.act, scenario.check,
        which=unit, outcome=CommitLost(), after=True,
    )  # fmt: skip

    assert tried.points > 0
