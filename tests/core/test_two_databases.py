"""Requests on a platform of two databases, held against what AgentOS 2.5.6 answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from legation import Agent, Database, Platform, Team, tool
from legation.store.audit_lists import ListAudit
from legation.store.failures import NotServed, Unavailable
from legation_testing import Client, ScriptedModel, call

from ..callers import Issuer

NEEDED: Final = "The db_id query parameter is required when using multiple databases"
GHOST: Final = "No database found with id 'ghost'"
RENAME: Final = {"session_name": "n"}
GONE: Final = {"session_ids": ["gone"], "session_types": ["agent"]}

# Recorded from agno 2.5.6 with the databases `main` and `second` and a session in the second:
# without db_id, with an empty one, `main`, `second` and `ghost`.
NAMES: Final = ("", "db_id=", "db_id=main", "db_id=second", "db_id=ghost")
REFERENCE: Final[dict[str, tuple[str, Any, tuple[int, int, int, int, int]]]] = {
    "GET /sessions": ("/sessions", None, (404, 404, 200, 200, 404)),
    "GET /sessions of a component": (
        "/sessions?component_id=beta",
        None,
        (404, 404, 200, 200, 404),
    ),
    "POST /sessions": ("/sessions", {}, (400, 400, 201, 201, 404)),
    "POST /sessions of a component": ("/sessions", {"agent_id": "beta"}, (400, 400, 201, 201, 404)),
    "DELETE /sessions": ("/sessions", GONE, (400, 400, 204, 204, 404)),
    "GET /sessions/{id}": ("/sessions/there", None, (400, 400, 404, 200, 404)),
    "PATCH /sessions/{id}": ("/sessions/there", RENAME, (400, 400, 404, 200, 404)),
    "POST /sessions/{id}/rename": ("/sessions/there/rename", RENAME, (400, 400, 404, 200, 404)),
    "GET /sessions/{id}/runs": ("/sessions/there/runs", None, (400, 400, 404, 200, 404)),
    "GET /sessions/{id}/runs/{id}": ("/sessions/there/runs/r", None, (400, 400, 404, 404, 404)),
    "DELETE /sessions/{id}": ("/sessions/there", None, (400, 400, 204, 204, 404)),
    "GET /agents": ("/agents", None, (200, 200, 200, 200, 200)),
    "GET /teams": ("/teams", None, (200, 200, 200, 200, 200)),
    "GET /agents/{id}": ("/agents/beta", None, (200, 200, 200, 200, 200)),
    "GET /config": ("/config", None, (200, 200, 200, 200, 200)),
}
# What is different here, by the place in the row, and why.
HERE: Final[dict[tuple[str, int], int]] = {
    # AgentOS wraps the 400 of its own list in a 404, whose text is "400: The db_id ...".
    ("GET /sessions", 0): 400,
    ("GET /sessions", 1): 400,
    # A component names its database.
    ("GET /sessions of a component", 0): 200,
    ("GET /sessions of a component", 1): 200,
    ("POST /sessions of a component", 0): 201,
    ("POST /sessions of a component", 1): 201,
}


def platform() -> Platform:
    return Platform(
        agents=[Agent(id="alpha"), Agent(id="beta", database="second")],
        teams=[Team(id="crew", members=["alpha"], database="second")],
        databases=[Database("main", "sqlite://"), Database("second", "sqlite://")],
    )


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(platform) as client:
        client.run("beta", "hello", session_id="there")
        yield client


@pytest.mark.parametrize("place", range(5), ids=["none", "empty", "main", "second", "ghost"])
@pytest.mark.parametrize("route", REFERENCE)
def test_a_database_is_named_as_in_agentos(client: Client, route: str, place: int) -> None:
    target, body, expected = REFERENCE[route]
    query = NAMES[place]
    if query and expected == (200,) * 5:
        query = ""  # unknown parameters are refused here
    more = "" if not query else f"{'&' if '?' in target else '?'}{query}"
    answer = client.request(route.split(maxsplit=1)[0], target + more, json=body)

    assert answer.status == HERE.get((route, place), expected[place])
    if answer.status == 400:
        assert answer.json() == {"detail": NEEDED, "error_code": "BAD_REQUEST"}
    if place == 4 and answer.status == 404:
        assert answer.json()["detail"] == GHOST


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/sessions?type=agent&component_id=beta", ["there"]),
        ("/sessions?type=agent&component_id=alpha", []),
        ("/sessions?type=team&component_id=crew", []),
    ],
)
def test_the_sessions_of_a_component_are_looked_for_in_its_database(
    client: Client, path: str, found: list[str]
) -> None:
    page = client.get(path).expect_success().json()

    assert [item["session_id"] for item in page["data"]] == found


@pytest.mark.parametrize(
    "path", ["/sessions?component_id=crew", "/sessions?type=team&component_id=beta"]
)
def test_a_component_of_another_kind_names_no_database(client: Client, path: str) -> None:
    assert client.get(path).status == 400


def test_runs_are_looked_for_in_the_database_of_their_component(client: Client) -> None:
    (run,) = client.get("/agents/beta/runs?session_id=there").json()

    assert client.get(f"/agents/beta/runs/{run['run_id']}?session_id=there").status == 200
    assert client.get("/agents/alpha/runs?session_id=there").json() == []


def test_a_component_that_a_caller_may_not_know_names_no_database() -> None:
    issuer = Issuer(ed25519.Ed25519PrivateKey.generate())

    def guarded() -> Platform:
        return Platform(
            authorization=True,
            authorization_config=issuer.authorization(),
            agents=[Agent(id="beta", database="second")],
            databases=[Database("main", "sqlite://"), Database("second", "sqlite://")],
        )

    with Client(guarded) as client:
        for scope, status in (("sessions:read", 400), ("agents:beta:run", 200)):
            token = issuer.token("sessions:read", scope)
            assert client.get("/sessions?component_id=beta", token=token).status == status


def test_on_one_database_none_has_to_be_named() -> None:
    with Client(Platform(agents=[Agent(id="alpha")])) as client:
        for query in ("", "?db_id=", "?db_id=main", "?component_id=ghost"):
            assert client.get(f"/sessions{query}").status == 200
        assert client.get("/sessions?db_id=ghost").status == 404


# --- what is hosted no more ----------------------------------------------------------------------

BASES: Final = (Database("main", "sqlite://"), Database("second", "sqlite://"))


def delete(path: str) -> str:
    """Delete a file."""
    raise AssertionError(path)


def with_clerk() -> Platform:
    model = ScriptedModel([call("delete", path="/tmp/x")])
    tools = [tool(requires_confirmation=True)(delete)]
    clerk = Agent(id="clerk", model=model, tools=tools, database="second")
    return Platform(agents=[clerk], databases=BASES)


def without_clerk() -> Platform:
    return Platform(agents=[Agent(id="alpha")], databases=BASES)


@pytest.fixture
def left(tmp_path: Path) -> Iterator[tuple[Client, str]]:
    """A paused run of an agent that is hosted no more."""
    with Client(with_clerk(), folder=tmp_path) as before:
        run = before.run("clerk", "tidy up", session_id="s")
        assert run["status"] == "PAUSED"
    with Client(without_clerk(), folder=tmp_path) as client:
        yield client, f"/agents/clerk/runs/{run['run_id']}"


def test_a_paused_run_of_a_removed_agent_is_read_and_cancelled(left: tuple[Client, str]) -> None:
    client, path = left
    assert client.get(path).json()["status"] == "PAUSED"
    assert client.post(f"{path}/continue", form={"stream": False}).status == 404
    assert client.post(f"{path}/cancel", form={"session_id": "other"}).status == 404
    assert client.post(f"{path}/cancel").status == 200

    assert client.get(path).json()["status"] == "CANCELLED"
    (run,) = client.get("/sessions/s/runs?db_id=second").json()
    assert run["status"] == "CANCELLED"
    assert client.get("/sessions/s?db_id=second").json()["agent_id"] == "clerk"


@pytest.mark.parametrize(
    "other", ["/agents/alpha/runs/", "/agents/ghost/runs/", "/teams/clerk/runs/"]
)
def test_a_run_is_that_of_no_other_agent(left: tuple[Client, str], other: str) -> None:
    client, path = left
    run_id = path.rpartition("/")[2]

    assert client.get(other + run_id).status == 404
    assert client.post(f"{other}{run_id}/cancel").status == 404


def test_a_run_of_a_removed_agent_is_looked_for_although_a_database_is_away(
    left: tuple[Client, str],
) -> None:
    client, path = left
    for away, status in (("main", 200), ("second", 503)):
        client.fail_at(
            lambda effect, away=away: (
                f"database='{away}'" in str(effect) and "FetchRun" in str(effect)
            ),
            Unavailable("away"),
        )
        assert client.get(path).status == status


# --- the trail -----------------------------------------------------------------------------------


def test_the_trail_is_read_from_the_databases_that_answer(client: Client) -> None:
    client.run("alpha", "hello")
    client.settle()
    whole = client.get("/audit").expect_success().json()
    assert "absent" not in whole["meta"]
    client.fail_at(
        lambda effect: "database='second'" in str(effect) and ListAudit.__name__ in str(effect),
        NotServed("The database 'second' is not served"),
    )
    page = client.get("/audit").expect_success().json()

    assert page["meta"]["absent"] == ["second"]
    assert {row["db_id"] for row in page["data"]} == {"main"}
    assert {row["db_id"] for row in whole["data"]} == {"main", "second"}


@pytest.mark.parametrize("query", ["", "?db_id=second"])
def test_a_trail_that_no_database_can_give_is_not_available(client: Client, query: str) -> None:
    client.fail_at(lambda effect: ListAudit.__name__ in str(effect), NotServed("no"), times=2)

    assert client.get(f"/audit{query}").status == 503
