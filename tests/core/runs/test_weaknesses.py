"""What AgentOS 2.5.6 was seen to do wrong with runs and sessions, and what happens here."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from legation import Platform
from legation.config import Agent, Model
from legation.effects import Transact
from legation.store.failures import Busy, DatabaseFull
from legation.store.runs import StartRun
from legation_testing import Client


def platform() -> Platform:
    return Platform(
        models=(Model("slow", "echo", delay_seconds=8.0),),
        agents=(Agent(id="quick"), Agent(id="sloth", model="slow")),
    )


@pytest.fixture
def client() -> Generator[Client]:
    with Client(platform) as client:
        yield client


def stored(client: Client, session_id: str = "s") -> list[Any]:
    runs: list[Any] = client.get(f"/sessions/{session_id}/runs").json()
    return runs


def test_8_six_concurrent_runs_of_a_session_are_six_stored_runs(client: Client) -> None:
    form = {"message": "x", "session_id": "s", "stream": False}
    exchanges = [client.begin("POST", "/agents/quick/runs", form=form) for _ in range(6)]
    for exchange in exchanges:
        assert exchange.response().json()["status"] == "COMPLETED"

    assert len(stored(client)) == 6


def test_9_a_database_that_fails_loses_no_run_and_claims_none(client: Client) -> None:
    for _ in range(2):
        client.run("quick", "x", session_id="s")
    client.fail_at(Transact, Busy("locked"))
    client.post("/agents/quick/runs", form={"message": "x", "session_id": "s"})
    client.fail_at(StartRun, DatabaseFull("full"), times=None)

    form = {"message": "x", "session_id": "s"}
    assert client.post("/agents/quick/runs", form=form).status == 503
    assert len(stored(client)) >= 2


def test_11_a_run_in_the_background_does_not_stay_running_after_a_crash(client: Client) -> None:
    form = {"message": "x", "session_id": "s", "background": True}
    client.post("/agents/sloth/runs", form=form)
    client.settle()
    client.restart()
    client.advance(40)

    assert [run["status"] for run in stored(client)] == ["COMPLETED"]


def test_13_a_run_costs_as_much_in_a_long_session_as_in_a_new_one(client: Client) -> None:
    def cost() -> int:
        before = len(client.effects)
        client.run("quick", "x", session_id="s")
        client.settle()
        return len(client.effects) - before

    cost()  # what began with the process has had its turn
    first = cost()
    for _ in range(40):
        client.run("quick", "x", session_id="s")

    assert cost() == first


def test_19_a_run_says_when_it_was_asked_for(client: Client) -> None:
    client.advance(1000)

    assert client.run("quick", "x")["created_at"] == client.clock.now_s


def test_24_cancelling_an_unknown_run_is_not_found_and_remembered_nowhere(client: Client) -> None:
    assert client.post("/agents/quick/runs/later/cancel").status == 404
    assert client.run("quick", "x")["status"] == "COMPLETED"


def test_27_pages_are_bounded_and_unknown_orders_refused(client: Client) -> None:
    for query in ("page=0", "limit=100000", "sort_by=nothing"):
        assert client.get(f"/sessions?{query}").status == 422
    assert client.get("/sessions?db_id=nope").json()["detail"] == (
        "No database found with id 'nope'"
    )


def test_30_events_are_there_after_a_restart(client: Client) -> None:
    run = client.run("quick", "x")
    path = f"/agents/quick/runs/{run['run_id']}/events"
    before = client.get(path).events()
    client.restart()

    assert client.get(path).events() == before != ()
