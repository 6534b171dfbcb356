"""The contexts of runs, as the functions of an author see them through the interface."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attrs import define, field, frozen

from legation import Agent, Platform, Run, Team, tool
from legation.config import AuthorizationConfig
from legation_testing import Client, ScriptedModel, call

from ...callers import Issuer

ISSUER = Issuer()
CLAIMS: dict[str, Any] = {
    "dependencies_claims": ["tenant"],
    "session_state_claims": ["plan"],
}


@frozen
class Shop:
    """The shop of a request."""

    tenant: str
    language: str = "en"


@define
class Cart:
    """The cart of a session."""

    plan: str = ""
    items: list[str] = field(factory=list[str])


@define(eq=False)
class Shown:
    """What the functions of a platform were given."""

    runs: list[Run[Any, Any]]

    def look(self, run: Run) -> str:
        """Look."""
        self.runs.append(run)
        return "seen"

    async def look_typed(self, ctx: Run[Shop, Cart]) -> str:
        """Look, as an author with classes."""
        self.runs.append(ctx)
        return "seen"

    def answer(self, message: str, run: Run[Shop]) -> str:
        """Answer without a model."""
        self.runs.append(run)
        return message


@pytest.fixture
def shown() -> Shown:
    return Shown([])


@pytest.fixture
def client(shown: Shown) -> Iterator[Client]:
    tools: list[Callable[..., Any]] = [shown.look, shown.look_typed]
    model = ScriptedModel([[call("look"), call("look_typed")], "done"] * 2)
    leader = ScriptedModel(
        [
            [
                call("look"),
                call("delegate_task_to_member", member_id="clerk", task="t"),
                call("delegate_task_to_member", member_id="plain", task="t"),
            ],
            "done",
        ]
    )
    platform = Platform(
        authorization=True,
        authorization_config=ISSUER.authorization(**CLAIMS),
        agents=[
            Agent(id="clerk", model=model, tools=tools),
            Agent(id="plain", run=shown.answer),
        ],
        teams=[Team(id="desk", model=leader, members=["clerk", "plain"], tools=[shown.look])],
    )
    with Client(platform, raise_errors=False) as client:
        client.token = token(tenant="acme", plan="large")
        yield client


def token(**claims: Any) -> str:
    scopes = ["agents:run", "agents:read", "teams:run", "sessions:write", "sessions:read"]
    return ISSUER.token(sub="ada", scopes=scopes, **claims)


SENT: dict[str, Any] = {
    "session_id": "s",
    "dependencies": {"tenant": "eve", "language": "de", "more": 1},
    "metadata": {"m": 3},
    "session_state": {"items": ["tea"], "other": 2},
}


def test_tools_of_an_agent_know_who_asks(client: Client, shown: Shown) -> None:
    run = client.run("clerk", "hello", **SENT)

    plain, typed = shown.runs
    for one in shown.runs:
        assert (one.user_id, one.session_id, one.run_id) == ("ada", "s", run["run_id"])
        assert one.agent == "clerk"
        assert one.metadata == {"m": 3}
        assert one.claims == {"tenant": "acme", "plan": "large"}
    assert plain.dependencies == {"tenant": "acme", "language": "de", "more": 1}
    assert plain.state == {"items": ["tea"], "other": 2, "plan": "large"}
    assert typed.dependencies == Shop("acme", "de")
    assert typed.state == Cart("large", ["tea"])
    assert plain.now <= typed.now


def test_members_of_a_team_are_given_what_the_team_was(client: Client, shown: Shown) -> None:
    run = client.run_team("desk", "hello", **SENT)

    assert [one.agent for one in shown.runs].count("clerk") == 2
    assert {one.agent for one in shown.runs} == {"desk", "clerk", "plain"}
    for one in shown.runs:
        assert (one.user_id, one.session_id) == ("ada", "s")
        assert (one.run_id == run["run_id"]) == (one.agent == "desk")
        assert one.claims == {"tenant": "acme", "plan": "large"}
        assert one.metadata == {"m": 3}
        tenant = one.dependencies["tenant"] if one.agent == "desk" else None
        assert tenant in ("acme", None)


@pytest.mark.parametrize("language", [17, None, ["de"]])
def test_what_does_not_fit_fails_the_call_and_says_where_in_the_log(
    client: Client, shown: Shown, language: Any
) -> None:
    dependencies = {"tenant": "acme", "language": language}
    run = client.run("clerk", "hello", dependencies=dependencies)

    plain, typed = run["tools"]
    assert run["status"] == "COMPLETED"
    assert plain["result"] == "seen"
    assert typed["tool_call_error"]
    assert typed["result"] == ("The tool failed (what it is given with the run does not fit)")
    (line,) = [record for record in client.logs if record.event == "context_refused"]
    assert dict(line.fields) == {
        "run_id": run["run_id"],
        "component": "clerk",
        "error": "dependencies.language must be a string",
    }
    assert len(shown.runs) == 1


def test_function_that_is_an_agent_ends_with_what_does_not_fit(client: Client) -> None:
    run = client.run("plain", "hello", dependencies={"language": 17})

    assert run["status"] == "ERROR"
    assert "incident" in run["content"]
    assert [r.event for r in client.logs if r.level == "error"] == ["context_refused", "run_failed"]


def test_a_trusted_caller_has_no_claims(shown: Shown) -> None:
    agent = Agent(id="a", model=ScriptedModel([call("look"), "done"]), tools=[tool(shown.look)])
    with Client(
        Platform(agents=[agent], authorization_config=AuthorizationConfig(**CLAIMS))
    ) as client:
        client.run("a", "hello", dependencies={"tenant": "sent"})

    assert shown.runs[0].claims == {}
    assert shown.runs[0].dependencies == {"tenant": "sent"}
    assert json.dumps(shown.runs[0].state) == "{}"
