"""A crash at every effect of runs with budgets: what they used and stored is counted once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from legation import Agent, Platform, PlatformLimits
from legation.models.conversation import Prompt, Usage
from legation.store.failures import CommitLost
from legation.store.run_steering import ContinueRun
from legation.store.runs import AppendEvents, FinishRun, StartRun
from legation.store.usage import FetchUsage, SubjectUsage
from legation.tools import tool
from legation_testing import Client, Says, ScriptedModel, call, crash_everywhere, fail_everywhere

from ..core.runs.test_budgets_of_runs import Measure, read
from ..two_databases import IN_MEMORY
from .cluster_kit import NIGHTLY

pytestmark = pytest.mark.enumeration

PATH: Final = "/agents/clerk/runs"
LIMIT: Final = 1_000
USED: Final = {"PAUSED": 30, "COMPLETED": 70}
"""The tokens of a run by its state."""
SLACK: Final = 150
"""Fewer bytes than any batch has."""


@tool(again="safe")
def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


@tool(requires_confirmation=True, again="safe")
def book(what: str) -> str:
    """Book."""
    return f"booked {what}"


def think(prompt: Prompt) -> Any:
    """Look, for 10 tokens, book, for 20, and answer, for 40."""
    match sum(message.role == "tool" for message in prompt.messages):
        case 0:
            return Says("Let me look.", [call("look", what="x")], usage=Usage(5, 5))
        case 1:
            return Says("", [call("book", what="x")], usage=Usage(10, 10))
        case _:
            return Says("Done.", usage=Usage(20, 20))


def platform() -> Platform:
    return Platform(
        databases=IN_MEMORY,
        agents=(
            Agent(id="clerk", model=ScriptedModel([think] * 20), tools=[look, book]),
            Agent(id="other", model=ScriptedModel(["x"] * 9), database="second"),
        ),
        limits=PlatformLimits(tokens_per_day=LIMIT, stored_bytes=10**6),
    )


def usage_of(client: Client, database: str = "main", user: str = "ada") -> SubjectUsage:
    found: SubjectUsage = read(client, FetchUsage(user, user, client.clock.now_us), database)
    return found


def find(client: Client) -> dict[str, Any] | None:
    """Return the run of ada, if it is stored."""
    runs = client.get("/agents/clerk/runs?session_id=s&user_id=ada").json()
    return runs[0] if runs else None


class Scenario:
    """A run that looks, pauses, and goes on when a person has answered."""

    def make(self) -> Client:
        return Client(platform)

    def act(self, client: Client) -> None:
        form = {"message": "go", "session_id": "s", "stream": False, "user_id": "ada"}
        run = client.post(PATH, form=form).json()
        self.go_on(client, run)

    def go_on(self, client: Client, run: dict[str, Any]) -> None:
        """Answer what `run` waits for."""
        tools = [{**one["tool_execution"], "confirmed": True} for one in run["requirements"]]
        form = {"tools": json.dumps(tools), "stream": False}
        client.post(f"{PATH}/{run['run_id']}/continue", form=form)

    def check(self, client: Client) -> None:
        """Look what is counted: as it is, when the run is over, and when it is deleted."""
        client.advance(60)
        run = find(client)
        self.check_counts(client, run)
        if run is not None and run["status"] == "PAUSED":
            self.go_on(client, client.get(f"{PATH}/{run['run_id']}").json())
            self.check_counts(client, find(client))
        if run is not None:
            assert client.delete("/sessions/s?user_id=ada&db_id=main").status == 204
            assert usage_of(client) == SubjectUsage(0, 0, 0, USED["COMPLETED"])
        assert usage_of(client, "second") == usage_of(client, "main", "eve")
        assert usage_of(client, "second") == SubjectUsage(0, 0, 0, 0)

    def check_counts(self, client: Client, run: dict[str, Any] | None) -> None:
        counted, stored = read(client, Measure("ada"))
        used = 0 if run is None else USED[run["status"]]
        assert usage_of(client) == SubjectUsage(0, 0, counted, used)
        # Of what is begun twice the length changes a little; a batch has more than that.
        assert abs(counted - stored) <= SLACK
        made: Any = client.platform
        budgets = made.context.shares.budgets
        spending = budgets.enter("main", "ada", LIMIT, client.clock.now_us, 0)
        budgets.leave(spending)
        assert spending.count_left(client.clock.now_us) == LIMIT


def test_whatever_crashes_tokens_and_bytes_are_counted_once(
    figures: Callable[[str], None],
) -> None:
    scenario = Scenario()
    tried = crash_everywhere(scenario.make, scenario.act, scenario.check, every=1 if NIGHTLY else 3)

    figures(f"budgets: crashed at {tried.points} effects, all is counted once")
    assert tried.points > 15


@pytest.mark.parametrize("unit", [StartRun, AppendEvents, FinishRun, ContinueRun])
def test_whichever_commit_is_lost_tokens_and_bytes_are_counted_once(unit: type[Any]) -> None:
    scenario = Scenario()
    tried = fail_everywhere(
        scenario.make, scenario.act, scenario.check,
        which=unit, outcome=CommitLost(), after=True,
    )  # fmt: skip

    assert tried.points > 0
