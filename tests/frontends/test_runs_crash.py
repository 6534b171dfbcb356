"""A crash at every effect of a run: what was acknowledged is there, and nothing runs for ever.

CI tries every third effect, a night tries each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from legation import Platform
from legation.config import Agent, Model
from legation_testing import Client, Exchange, crash_everywhere

from ..two_databases import IN_MEMORY
from .cluster_kit import NIGHTLY

pytestmark = pytest.mark.enumeration

FINAL = {"COMPLETED", "CANCELLED", "ERROR"}


def platform() -> Platform:
    return Platform(
        databases=IN_MEMORY,
        models=(Model("slow", "echo", delay_seconds=2.0),),
        agents=(Agent(id="a", model="slow"),),
    )


class Scenario:
    """What clients did and were told until the crash."""

    def __init__(self, forms: tuple[dict[str, Any], ...]) -> None:
        self.forms = forms
        self.told: list[str] = []
        self.seen: set[str | None] = set()

    def make(self) -> Client:
        self.told.clear()
        self.seen.clear()
        return Client(platform)

    def act(self, client: Client) -> None:
        exchanges: list[Exchange] = []
        for form in self.forms:
            full = {"message": "one two", "session_id": "s", **form}
            exchanges.append(client.begin("POST", "/agents/a/runs", form=full))
        try:
            for exchange in exchanges:
                answer = exchange.response()
                if answer.header("content-type") == "application/json":
                    self.told.append(answer.json()["run_id"])
        finally:
            self.seen = {event.id for exchange in exchanges for event in exchange.events()}

    def check(self, client: Client) -> None:
        client.advance(45)
        runs = client.get("/agents/a/runs?session_id=s").json()
        assert {run["status"] for run in runs} <= FINAL
        assert set(self.told) <= {run["run_id"] for run in runs}
        stored: set[str | None] = set()
        for run in runs:
            events = client.get(f"/agents/a/runs/{run['run_id']}/events").events()
            names = [event.name for event in events]
            assert names.count("RunStarted") <= 1, "executed twice"
            assert names[-1] in ("RunCompleted", "RunError")
            stored |= {event.id for event in events}
        assert self.seen <= stored
        assert client.run("a", "next", session_id="s")["status"] == "COMPLETED"


@pytest.mark.parametrize(
    "forms",
    [
        ({"stream": False},),
        ({"stream": True},),
        ({"background": True},),
        ({"stream": False}, {"stream": True}),
    ],
    ids=["joined", "streamed", "in the background", "one waits for the other"],
)
def test_a_crash_anywhere_leaves_no_run_behind(
    forms: tuple[dict[str, Any], ...], figures: Callable[[str], None]
) -> None:
    scenario = Scenario(forms)
    tried = crash_everywhere(scenario.make, scenario.act, scenario.check, every=1 if NIGHTLY else 3)

    figures(f"runs: crashed at {tried.points} effects of {len(forms)} run(s)")
    assert tried.points > 20
