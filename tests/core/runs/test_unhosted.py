"""Nodes with different agents and versions: each claims its own, and what is nobody's is seen."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from legation import Agent, Platform
from legation.store.failures import Unavailable
from legation.store.unhosted import FindUnhosted
from legation_testing import Client

from ...two_databases import IN_MEMORY


def node(*agents: tuple[str, str | None]) -> Platform:
    made = [
        Agent(id=f"{name}.{where}", version=version, database=where)
        for name, version in agents
        for where in ("main", "second")
    ]
    return Platform(agents=made, databases=IN_MEMORY)


def old() -> Platform:
    return node(("desk", "1"), ("porter", None))


def new() -> Platform:
    return node(("desk", "2"), ("cook", None))


def ask(client: Client, agent: str, session_id: str) -> str:
    form = {"message": "hi", "session_id": session_id, "background": "true"}
    response = client.post(f"/agents/{agent}/runs", form=form)
    assert response.status == 202, response.body
    return str(response.json()["run_id"])


def logs(client: Client, event: str) -> list[dict[str, Any]]:
    return [dict(log.fields) for log in client.logs if log.event == event]


def cluster(client: Client) -> dict[str, Any]:
    assert client.get("/ready").status == 200
    found: dict[str, Any] = client.get("/databases/main").json()["cluster"]
    return found


@pytest.mark.parametrize("turned", [False, True])
def test_of_500_queued_runs_each_is_executed_by_a_node_that_hosts_it(turned: bool) -> None:
    first, second = (new, old) if turned else (old, new)
    with Client(first) as client:
        other = client.peer(second)
        other.open()
        asked: dict[str, list[str]] = {"main": [], "second": []}
        agents = {old: ("desk", "porter"), new: ("desk", "cook")}
        for number in range(250):
            for where, ids in asked.items():
                session_id = f"s{number % 25}"
                on, of = ((client, first), (other, second))[number // 25 % 2]
                agent = agents[of][number // 50 % 2]
                ids.append(ask(on, f"{agent}.{where}", session_id))
        client.advance(120.0)

        for where, ids in asked.items():
            found: Counter[str] = Counter()
            for session in range(25):
                path = f"/sessions/s{session}/runs?type=agent&db_id={where}"
                runs = client.get(path).json()
                found.update(run["status"] for run in runs)
                assert {run["run_id"] for run in runs} <= set(ids)
            assert found == {"COMPLETED": 250}
        assert not [log for log in client.logs if log.event == "run_failed"]


def test_what_nobody_hosts_is_an_incident_until_somebody_does() -> None:
    with Client(old) as client:
        other = client.peer(new)
        other.open()
        other.begin(
            "POST",
            "/agents/cook.main/runs",
            form={"message": "hi", "session_id": "s", "background": "true"},
        )
        fault = client.fail_at(FindUnhosted, Unavailable("away"), times=1)
        other.post("/agents/desk.main/runs", form={"message": "hi", "background": "true"})
        other.crash()
        client.advance(500.0)
        assert (logs(client, "runs_unhosted"), fault.hits) == ([], 1)
        assert "unhosted" not in cluster(client)

        client.advance(300.0)
        (logged,) = logs(client, "runs_unhosted")
        assert logged["database"] == "main"
        assert set(logged["components"].split(", ")) <= {"agent:cook.main", "agent:desk.main@2"}
        shown = cluster(client)["unhosted"]
        assert [each["component"] for each in shown] == logged["components"].split(", ")
        for component in logged["components"].split(", "):
            labels = f'{{database="main",component="{component}"}}'
            assert f"legation_unhosted_runs{labels} 1" in client.get("/metrics/prometheus").text

        client.peer(new).open()
        client.advance(100.0)
        assert len(logs(client, "runs_unhosted")) == 1
        assert logs(client, "runs_hosted") == [{"database": "main"}]
        assert "unhosted" not in cluster(client)


def test_an_operator_ends_what_nobody_hosts() -> None:
    with Client(old) as client:
        other = client.peer(new)
        other.open()
        run_id = ask_and_crash(other)
        client.advance(700.0)
        assert cluster(client)["unhosted"][0]["component"] == "agent:cook.main"

        assert client.post(f"/agents/cook.main/runs/{run_id}/cancel").status == 200
        client.advance(70.0)
        assert "unhosted" not in cluster(client)


def ask_and_crash(other: Client) -> str:
    """Ask for a run and kill its node before anything has happened in it."""
    run_id = ask(other, "cook.main", "s")
    other.crash()
    return run_id
