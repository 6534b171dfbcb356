"""What a token says reaches the runs of its bearer, and nobody overwrites it."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any, Final

import pytest

from legation import Agent, Platform, Team
from legation.config import AuthorizationConfig
from legation.tools import tool
from legation_testing import Client, Exchange, ScriptedModel, call

from ...callers import Issuer

ISSUER: Final = Issuer()
EVERY: Final = ("agents:run", "agents:read", "teams:run", "sessions:read", "sessions:write")
CLAIMS: Final[dict[str, Any]] = {
    "scopes_claim": "scope",
    "dependencies_claims": ["tenant", "/plan/seats"],
    "session_state_claims": ["plan", "tenant"],
}
PLAN: Final = {"name": "large", "seats": 3}


def given_what(dependencies: Any, session_state: Any) -> dict[str, Any]:
    """Return what the function was given."""
    return {"dependencies": dependencies, "session_state": session_state}


@tool(requires_confirmation=True)
def sign(paper: str) -> str:
    """Sign a paper."""
    return f"{paper} is signed"


def platform(authorization: AuthorizationConfig | None) -> Platform:
    model = ScriptedModel((call("sign", paper="lease"), "Signed."))
    asking = ScriptedModel((call("delegate_task_to_member", member_id="clerk", task="t"), "Done."))
    return Platform(
        authorization=authorization is not None,
        authorization_config=authorization or AuthorizationConfig(**CLAIMS),
        agents=[
            Agent(id="clerk", run=given_what),
            Agent(id="notary", model=model, tools=[sign]),
            Agent(id="slow", model="echo"),
        ],
        teams=[Team(id="office", model=asking, members=["clerk"])],
    )


def token(*scopes: str, **claims: Any) -> str:
    return ISSUER.token(**{"scope": " ".join(scopes or EVERY), "scopes": None, **claims})


@pytest.fixture
def client() -> Generator[Client]:
    with Client(platform(ISSUER.authorization(**CLAIMS))) as client:
        client.token = token(tenant="acme", plan=PLAN)
        yield client


def given(client: Client, **form: Any) -> Any:
    """Return what a run of the function was given."""
    sent = {name: json.dumps(value) for name, value in form.items()}
    sent.update(session_id="s", stream="false", message="m")
    answer = client.post("/agents/clerk/runs", form=sent)
    assert answer.status == 200
    return answer.json()["content"]


def test_claims_reach_the_run_by_their_names(client: Client) -> None:
    assert given(client) == {
        "dependencies": {"tenant": "acme", "/plan/seats": 3},
        "session_state": {"tenant": "acme", "plan": PLAN},
    }


def test_a_caller_adds_to_what_the_token_says_and_overwrites_nothing(client: Client) -> None:
    found = given(
        client,
        dependencies={"tenant": "eve", "/plan/seats": 999, "language": "de"},
        session_state={"tenant": "eve", "plan": {"seats": 999, "extra": 1}, "step": 2},
    )

    assert found == {
        "dependencies": {"tenant": "acme", "/plan/seats": 3, "language": "de"},
        "session_state": {"tenant": "acme", "plan": PLAN, "step": 2},
    }


def test_what_the_token_does_not_say_the_caller_cannot_say_instead(client: Client) -> None:
    client.token = token()
    forged = {"tenant": "eve", "plan": PLAN, "/plan/seats": 9}
    found = given(client, dependencies=forged, session_state=forged)

    assert found == {
        "dependencies": {"plan": PLAN},
        "session_state": {"/plan/seats": 9},
    }


def test_the_state_of_a_session_changed_elsewhere_overwrites_nothing(client: Client) -> None:
    forged = {"tenant": "eve", "plan": {"extra": 1}, "step": 2}
    client.post("/sessions", json={"session_id": "s", "session_state": forged}).json()
    assert given(client)["session_state"] == {"tenant": "acme", "plan": PLAN, "step": 2}

    client.patch("/sessions/s", json={"session_state": forged}).json()
    client.token = token()
    assert given(client)["session_state"] == {"step": 2}


def test_a_run_that_waited_has_the_claims_of_its_own_token(client: Client) -> None:
    pending: list[Exchange] = []
    for tenant in ("one", "two", "three"):
        form = {"message": "m", "stream": "false", "session_id": "s"}
        client.token = token(tenant=tenant)
        pending.append(client.begin("POST", "/agents/clerk/runs", form=form))

    said = [exchange.response().json()["content"] for exchange in pending]
    assert [one["session_state"]["tenant"] for one in said] == ["one", "two", "three"]
    assert [one["dependencies"]["tenant"] for one in said] == ["one", "two", "three"]


def test_a_run_that_goes_on_has_the_claims_that_it_began_with(client: Client) -> None:
    form = {"message": "m", "stream": "false", "session_id": "s"}
    run = client.post("/agents/notary/runs", form=form).json()
    assert run["status"] == "PAUSED"
    client.patch("/sessions/s", json={"session_state": {"tenant": "eve"}})
    ended = client.go_on(run, confirmed=True)

    assert ended["status"] == "COMPLETED"
    assert ended["session_state"] == {"tenant": "acme", "plan": PLAN}


def test_a_member_of_a_team_has_the_state_of_the_run(client: Client) -> None:
    form = {"message": "m", "stream": "false", "session_id": "s"}
    form["session_state"] = json.dumps({"tenant": "eve", "step": 2})
    run = client.post("/teams/office/runs", form=form).json()

    (member,) = run["member_responses"]
    state = {"tenant": "acme", "plan": PLAN, "step": 2}
    assert member["content"]["session_state"] == run["session_state"] == state


def test_an_administrator_is_given_the_claims_of_the_own_token(client: Client) -> None:
    client.token = token("platform:admin", tenant="root")

    found = given(client, dependencies={"tenant": "eve"}, session_state={"tenant": "eve"})
    assert found["dependencies"] == {"tenant": "root"}
    assert found["session_state"] == {"tenant": "root"}


def test_a_token_of_one_session_hands_its_claims_to_that_session(client: Client) -> None:
    client.token = token(session_id="own", tenant="acme")
    form = {"message": "m", "stream": "false", "session_id": "other"}
    run = client.post("/agents/clerk/runs", form=form).json()

    assert run["session_id"] == "own"
    assert run["content"]["session_state"] == {"tenant": "acme"}
    assert client.get("/sessions/other").status == 404
    client.token = token(session_id=["own"])
    assert client.get("/sessions/own").status == 401


def test_without_authorization_the_word_of_the_caller_counts() -> None:
    with Client(platform(None)) as client:
        sent = {"tenant": "eve", "step": 2}
        found = given(client, dependencies=sent, session_state=sent)

    assert found == {"dependencies": sent, "session_state": sent}


def test_without_a_token_nobody_says_what_a_token_would() -> None:
    options = {**CLAIMS, "excluded_routes": ["/agents/{agent_id}/runs"]}
    with Client(platform(ISSUER.authorization(**options))) as client:
        sent = {"tenant": "eve", "step": 2}
        found = given(client, dependencies=sent, session_state=sent)

    assert found == {"dependencies": {"step": 2}, "session_state": {"step": 2}}


@pytest.mark.parametrize(
    "options",
    [{"session_state_claims": ["tenant"]}, {"dependencies_claims": ["tenant"]}],
    ids=["state alone", "dependencies alone"],
)
def test_either_may_be_named_alone(options: dict[str, Any]) -> None:
    with Client(platform(ISSUER.authorization(**options))) as client:
        client.token = ISSUER.token("agents:run", tenant="acme")
        found = given(client, dependencies={"tenant": "eve"}, session_state={"tenant": "eve"})

    said = {name: value["tenant"] for name, value in found.items()}
    named = next(iter(options)).removesuffix("_claims")
    assert said == {"dependencies": "eve", "session_state": "eve", named: "acme"}


def test_two_issuers_have_two_users_of_one_name() -> None:
    issuers = ["https://a.test", "https://b.test"]
    with Client(platform(ISSUER.authorization(issuer=issuers, **CLAIMS))) as client:
        for iss in issuers:
            client.token = token(iss=iss, tenant=iss)
            given(client)
        listed: list[tuple[str, str]] = []
        for iss in issuers:
            client.token = token(iss=iss)
            [session] = client.get("/sessions").json()["data"]
            listed.append((session["session_state"]["tenant"], client.get("/me").json()["sub"]))

    assert listed == [(issuers[0], "ada"), (issuers[1], f"{issuers[1]}#ada")]


@pytest.mark.parametrize("value", [7, True, None, ["a", 1], {"agents:run": True}], ids=repr)
def test_a_claim_of_the_wrong_type_is_401_with_its_reason_in_the_log(
    client: Client, value: object
) -> None:
    client.token = ISSUER.token(scope=[value] if value is None else value)
    answer = client.get("/agents")

    assert answer.status == 401
    assert answer.json() == {"detail": "Invalid token", "error_code": "UNAUTHENTICATED"}
    assert any("scope " in str(dict(log.fields)) for log in client.logs)
