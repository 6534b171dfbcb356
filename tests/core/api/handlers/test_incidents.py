"""The list of incidents: every number that a caller saw, and no word of anybody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from legation import Agent, Database, tool
from legation.effects import Program, Transact
from legation.migrations.migrate import Attempt
from legation.models.conversation import ModelFailed
from legation.store.failures import StatementFailed, Unavailable
from legation.store.incidents import AddIncidents, Incident, ListIncidents
from legation.store.sessions import UpdateSession
from legation_testing import Client, Says, ScriptedModel, call

from ....callers import Issuer, demo
from ....two_databases import IN_MEMORY

ISSUER: Final = Issuer()
READER: Final = ISSUER.token("incidents:read", sub="operator")
CANARY: Final = "canary-3f7e"
NUMBER: Final = re.compile(r"[0-9a-f]{16}")


@tool
def look(place: str) -> str:
    """Look at a place."""
    raise ValueError(f"{CANARY} {place}")


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(demo(ISSUER, databases=IN_MEMORY), token=READER) as client:
        yield client


def add(client: Client, database: str, *incidents: Incident) -> None:
    def program() -> Program[None]:
        yield from Transact(database, AddIncidents(incidents, 0))

    client.simulation.run(program())


def incident(number: int, at_us: int) -> Incident:
    return Incident(f"{number:016x}", at_us, "n", "Error", "f:1")


def listed(client: Client, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        client.get("/incidents", query=query).expect_success().json()["data"]
    )
    return found


@pytest.mark.parametrize(
    ("scopes", "status"),
    [(("incidents:read",), 200), (("platform:admin",), 200), (("audit:read",), 403), ((), 403)],
    ids=str,
)
def test_it_has_a_scope_of_its_own(client: Client, scopes: tuple[str, ...], status: int) -> None:
    assert client.get("/incidents", token=ISSUER.token(*scopes)).status == status


def test_a_request_that_fails_is_listed_under_the_number_of_its_answer(client: Client) -> None:
    client.fail_at(UpdateSession, RuntimeError(CANARY))
    token = ISSUER.token("sessions:write", "sessions:read", sub="ann")
    made = client.post("/sessions?db_id=second", json={"session_id": "s1"}, token=token)
    made.expect_success()
    failed = client.post(
        "/sessions/s1/rename?db_id=second", json={"session_name": CANARY}, token=token
    )
    assert failed.status == 500
    assert listed(client) == []
    client.advance(3)

    (row,) = listed(client)
    assert NUMBER.findall(failed.text) == [row["incident"]]
    assert row["error_type"] == "RuntimeError"
    assert row["operation"] == "rename_session"
    assert row["request_id"] == failed.header("x-request-id")
    assert row["node"] == client.node.name
    assert row["db_id"] == "main"
    assert row["place"].startswith("RuntimeError in ")
    assert CANARY not in client.get("/incidents").text


def test_a_database_that_does_not_answer_is_one_once_it_is_back(client: Client) -> None:
    fault = client.fail_at(UpdateSession, Unavailable(CANARY), times=None)
    away = client.fail_at(AddIncidents, Unavailable("gone"), times=None)
    token = ISSUER.token("sessions:write", sub="ann")
    client.post("/sessions?db_id=main", json={"session_id": "s1"}, token=token).expect_success()
    answer = client.patch("/sessions/s1?db_id=main", json={"metadata": {}}, token=token)
    assert answer.status == 503
    client.advance(5)
    assert listed(client) == []
    fault.disarm()
    away.disarm()
    client.advance(5)

    assert [one["error_type"] for one in listed(client)] == ["Unavailable"]


def test_a_run_that_fails_and_a_tool_that_does_are_listed_with_the_run() -> None:
    model = ScriptedModel(
        [call("look", place=CANARY), Says(fails=ModelFailed("overloaded", CANARY))]
    )
    agents = (Agent("alpha", tools=[look], model=model), Agent("beta"))
    with Client(demo(None, agents=agents), raise_errors=False) as client:
        run = client.run("alpha", CANARY)
        client.advance(3)
        found = {one["operation"]: one for one in listed(client)}
        text = client.get("/incidents").text

    assert found.keys() == {"tool_failed", "run_failed"}
    assert {one["run_id"] for one in found.values()} == {run["run_id"]}
    assert {one["component"] for one in found.values()} == {"agent:alpha"}
    assert found["run_failed"]["incident"] == run["incident"]
    assert found["run_failed"]["error_type"] == run["error_type"]
    assert found["tool_failed"]["error_type"] == "ValueError"
    assert "look" in found["tool_failed"]["place"]
    assert CANARY not in text


def test_a_migration_that_fails_is_listed_under_the_number_of_its_answer() -> None:
    with Client(demo(None)) as client:
        client.fail_at(Attempt, StatementFailed(CANARY))
        target = "/databases/main/migrate?target_version=2.5.0&allow_data_loss=true"
        answer = client.post(target)
        assert answer.status == 500
        client.advance(3)

        (row,) = listed(client)
        assert row["incident"] in answer.text
        assert row["error_type"] == "MigrationFailed"
        assert row["operation"] == "migrate_database"


def test_pages_go_on_over_databases_in_one_order(client: Client) -> None:
    add(
        client, "main", *(incident(number, 1_000_000 * (number // 3)) for number in range(0, 40, 2))
    )
    add(
        client,
        "second",
        *(incident(number, 1_000_000 * (number // 3)) for number in range(1, 40, 2)),
    )
    everything = [one["incident"] for one in listed(client, limit=200)]
    assert len(everything) == 40

    for limit in (1, 3, 7, 40):
        seen: list[str] = []
        target: str | None = f"/incidents?limit={limit}"
        while target is not None:
            answer = client.get(target).expect_success()
            seen += [one["incident"] for one in answer.json()["data"]]
            link = answer.header("link")
            target = (
                None if link is None else f"/incidents{link.partition('<')[2].partition('>')[0]}"
            )
        assert seen == everything


def test_what_is_asked_for_narrows_the_list(client: Client) -> None:
    add(client, "main", incident(1, 10_000_000), incident(2, 20_000_000))
    add(client, "second", incident(3, 30_000_000))

    def numbers(**query: Any) -> list[int]:
        return [int(one["incident"], 16) for one in listed(client, **query)]

    assert numbers(db_id="main") == [2, 1]
    assert numbers(since=20) == [3, 2]
    assert numbers(until=20) == [1]
    first = client.get("/incidents", query={"limit": 1}).json()["meta"]["next_cursor"]
    assert numbers(cursor=first, until=15) == [1]


def test_a_database_that_is_away_is_named(client: Client) -> None:
    add(client, "main", incident(1, 1))
    fault = client.fail_at(ListIncidents, Unavailable())
    answer = client.get("/incidents").expect_success().json()
    fault.disarm()
    assert answer["meta"]["absent"] == ["main"]
    assert answer["data"] == []

    client.fail_at(ListIncidents, Unavailable(), times=None)
    assert client.get("/incidents").status == 503


@pytest.mark.parametrize(
    "query", ["db_id=no-such", "limit=0", "limit=201", "since=-1", "cursor=e30", "what=1"]
)
def test_what_is_no_page_is_refused(client: Client, query: str) -> None:
    assert client.get(f"/incidents?{query}").status == 422


def test_a_flood_of_faults_fills_no_table(client: Client) -> None:
    client.fail_at(ListIncidents, RuntimeError(CANARY), times=300)
    for _ in range(300):
        assert client.get("/incidents?db_id=main").status == 500
    client.advance(3)

    assert len(listed(client, limit=200)) == 100
    (line,) = [log for log in client.logs if log.event == "incidents_omitted"]
    assert dict(line.fields) == {"incidents": 200}


def test_both_databases_have_their_own_runs() -> None:
    agents = (
        Agent(
            "alpha",
            database="main",
            model=ScriptedModel([Says(fails=ModelFailed("overloaded", "x"))]),
        ),
        Agent(
            "beta",
            database="second",
            model=ScriptedModel([Says(fails=ModelFailed("overloaded", "x"))]),
        ),
    )
    databases = (Database("main", "sqlite://"), Database("second", "sqlite://"))
    with Client(demo(None, agents=agents, databases=databases), raise_errors=False) as client:
        for name in ("alpha", "beta"):
            client.run(name, "hi")
        client.advance(3)

        assert {(one["component"], one["db_id"]) for one in listed(client)} == {
            ("agent:alpha", "main"),
            ("agent:beta", "second"),
        }
