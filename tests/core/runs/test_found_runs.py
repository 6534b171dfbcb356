"""A run by its id alone: found in whatever database, cancelled, waited for, followed."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any, Final

import pytest
from attrs import evolve

from legation import Platform
from legation.config import Agent, Database, Model, Team
from legation.http.sse import Decoder, ForeignEvent
from legation.runs.executor import ExecutorContext
from legation.runs.found_runs import (
    FoundRun,
    cancel_run,
    describe_found,
    find_run,
    find_top,
    follow,
    wait_for_end,
)
from legation.runs.retry import transact
from legation.store.failures import Unavailable
from legation.store.run_reads import FetchRun
from legation_testing import Client

SLOW: Final = "/agents/sloth/runs"


def platform() -> Platform:
    return Platform(
        databases=(
            Database("main", "sqlite:///:memory:"),
            Database("other", "sqlite:///:memory:"),
        ),
        models=(Model("slow", "echo", delay_seconds=10.0),),
        agents=(
            Agent(id="sloth", model="slow"),
            Agent(id="quick"),
            Agent(id="far", database="other"),
        ),
        teams=(Team(id="crew", members=("sloth",), mode="collaborate", model="echo"),),
    )


@pytest.fixture
def client() -> Generator[Client]:
    with Client(platform) as client:
        yield client


def begin(client: Client, path: str = SLOW, session_id: str = "s") -> str:
    form = {"message": "hi", "session_id": session_id, "background": "true", "stream": "false"}
    run_id: str = client.post(path, form=form).json()["run_id"]
    client.settle()
    return run_id


def find(client: Client, run_id: str) -> FoundRun:
    (found,) = client.simulation.run(find_run(("main", "other"), run_id))
    return found


def context(client: Client) -> ExecutorContext:
    assert isinstance(client.platform, Platform)
    return client.platform.context


def watch(client: Client, found: FoundRun, after: int = 0) -> tuple[Any, list[ForeignEvent]]:
    """Follow a run; return whether it was whole, and its events."""
    task = client.simulation.start(follow(context(client), found, after))
    client.simulation.finish(task)
    return task.result(), Decoder().feed(bytes(task.received))


def cancelled(client: Client, found: FoundRun) -> str | None:
    return client.simulation.run(cancel_run(context(client), found, transact))


def test_a_run_is_found_in_whatever_database_it_is(client: Client) -> None:
    here, there = begin(client), begin(client, "/agents/far/runs")

    assert find(client, here).database == "main"
    assert find(client, there).database == "other"
    assert client.simulation.run(find_run(("main", "other"), "no-such")) == ()


def test_a_database_that_is_away_matters_where_nothing_was_found(client: Client) -> None:
    run_id = begin(client)
    client.fail_at(FetchRun, Unavailable("away"), times=None, skip=1)
    assert find(client, run_id).row.run_id == run_id

    with pytest.raises(Unavailable):
        client.simulation.run(find_run(("other",), "no-such"))


def test_two_databases_may_have_the_same_id(client: Client) -> None:
    found = find(client, begin(client))
    client.fail_at(FetchRun, found.row, times=None)

    both = client.simulation.run(find_run(("main", "other"), found.row.run_id))
    assert [one.database for one in both] == ["main", "other"]


def test_a_run_that_is_executed_is_cancelled_by_its_node(client: Client) -> None:
    found = find(client, begin(client))
    assert cancelled(client, found) == "RUNNING"
    ended = client.simulation.run(wait_for_end(found, 30.0))

    assert ended is not None
    assert (ended.is_over, ended.row.status) == (True, "CANCELLED")
    assert cancelled(client, ended) == "CANCELLED"


def test_a_run_that_waits_is_cancelled_at_once(client: Client) -> None:
    begin(client)
    found = find(client, begin(client))
    assert cancelled(client, found) == "PENDING"

    assert find(client, found.row.run_id).row.status == "CANCELLED"


def test_a_run_of_an_agent_that_is_gone_is_cancelled_under_its_id(client: Client) -> None:
    begin(client)
    found = find(client, begin(client))
    gone = FoundRun("main", evolve(found.row, component_id="gone"))

    assert cancelled(client, gone) == "PENDING"
    (event,) = watch(client, found)[1]
    assert json.loads(event.data)["agent_name"] == "gone"


def test_the_patience_for_an_end_is_bounded_and_a_run_may_be_gone(client: Client) -> None:
    found = find(client, begin(client))
    looked = client.simulation.run(wait_for_end(found, 1.0))
    assert looked is not None
    assert not looked.is_over

    client.fail_at(FetchRun, None)
    assert client.simulation.run(wait_for_end(found, 1.0)) is None


def test_a_run_is_followed_to_its_end_and_from_where_one_stopped(client: Client) -> None:
    found = find(client, begin(client))
    whole, events = watch(client, found)
    assert whole is None
    assert [event.name for event in events][:2] == ["RunStarted", "ModelRequestStarted"]
    assert events[-1].name == "RunCompleted"

    _, rest = watch(client, found, len(events) - 1)
    assert [event.name for event in rest] == ["RunCompleted"]


def test_of_a_member_its_own_events_alone_are_followed(client: Client) -> None:
    team = begin(client, "/teams/crew/runs")
    client.advance(30)
    names = [json.loads(event.data) for event in watch(client, find(client, team))[1]]
    (member,) = {one["run_id"] for one in names} - {team}
    found = find(client, member)
    _, events = watch(client, found)

    assert {json.loads(event.data)["run_id"] for event in events} == {member}
    assert found.row.parent_run_id == team


def test_a_member_whose_team_is_gone_is_over(client: Client) -> None:
    client.fail_at(FetchRun, None, skip=0)

    assert client.simulation.run(find_top("main", "ada", "r")) == "r"


def test_everything_that_is_known_of_a_run_is_described(client: Client) -> None:
    found = find(client, begin(client))
    asked = evolve(found.row, cancel_us=1_000_000)
    running = describe_found(FoundRun("main", asked))
    assert (running["status"], running["db_id"]) == ("RUNNING", "main")
    assert running["component"] == {"kind": "agent", "id": "sloth"}
    assert running["node"] == found.row.lease_by
    assert running["cancel_asked_at"] == "1970-01-01T00:00:01Z"
    assert (running["ended_at"], running["error_type"]) == (None, None)
    assert running["last_event_id"] == f"{found.row.run_id}:2"

    cancelled(client, found)
    client.advance(2)
    ended = describe_found(find(client, found.row.run_id))
    assert (ended["status"], ended["node"]) == ("CANCELLED", None)
    assert ended["ended_at"] is not None
    assert ended["run"]["status"] == "CANCELLED"
    row = evolve(found.row, status="ERROR", reason="model_failed", started_us=None, events=0)
    failed = describe_found(FoundRun("main", row))
    assert (failed["error_type"], failed["started_at"]) == ("model_failed", None)
    assert failed["last_event_id"] is None
