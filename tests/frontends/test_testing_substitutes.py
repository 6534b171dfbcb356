"""A real platform under test, with other models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from legation import Agent, Platform, Team
from legation.models.chat_completions import ChatCompletions
from legation.models.conversation import ModelFailed
from legation_testing import Client, Misuse, ScriptedModel, call

MEMBER = call("delegate_task_to_member", member_id="clerk", task="Look.")


def function(message: str) -> str:
    return message


def make() -> Platform:
    real = ChatCompletions(id="gpt-5-mini", base_url="http://127.0.0.1:9/v1", retries=0)
    return Platform(
        agents=[
            Agent(id="clerk", model=real),
            Agent(id="other", model=real),
            Agent(id="f", run=function),
        ],
        teams=[Team(id="desk", model=real, members=["clerk"])],
    )


PLATFORM = make()


def contents(client: Client) -> Mapping[str, object]:
    agents = {name: client.run(name, "hi")["content"] for name in ("clerk", "other")}
    return {**agents, "desk": client.run_team("desk", "hi")["content"]}


AWAY = "The model cannot be reached at the moment"


def test_one_agent_has_another_model_until_the_block_is_left() -> None:
    with Client(PLATFORM) as client:
        before = client.get("/agents/clerk").json()
        with client.override(model=ScriptedModel(["Yes."]), agent="clerk"):
            assert contents(client) == {"clerk": "Yes.", "other": AWAY, "desk": AWAY}
            assert client.get("/agents/clerk").json() == before

        assert contents(client) == dict.fromkeys(("clerk", "other", "desk"), AWAY)


def test_script_answers_for_the_fallback_as_well() -> None:
    never = ChatCompletions(id="gpt-5-mini", api_key="secret")
    agent = Agent(id="clerk", model=never, fallback=[ChatCompletions(id="gpt-5", api_key="secret")])
    script = ScriptedModel([ModelFailed("rate_limited", "Later"), "Yes."])
    with Client(Platform(agents=[agent])) as client, client.override(model=script):
        asked = [e.json() for e in client.stream("clerk", "hi") if "ModelRequest" in e.name]

    assert [one["model"] for one in asked] == ["gpt-5-mini", "gpt-5", "gpt-5"]


def test_all_have_it_and_one_has_its_own() -> None:
    team = ScriptedModel([MEMBER, "The clerk says so."])
    with Client(PLATFORM) as client, client.override(model=ScriptedModel(["One.", "Two."])):
        with client.override(model=team, team="desk"):
            run = client.run_team("desk", "hi")
        assert client.run("other", "hi")["content"] == "Two."

    assert run["content"] == "The clerk says so."
    assert run["member_responses"][0]["content"] == "One."
    assert run["model"] == "gpt-5-mini"


def test_the_last_is_asked_first_and_a_failing_block_restores_it() -> None:
    with Client(PLATFORM) as client, client.override(model=ScriptedModel(["first"])):
        with pytest.raises(ZeroDivisionError):  # noqa: SIM117
            with client.override(model=ScriptedModel(["second"]), agent="clerk"):
                assert client.run("clerk", "hi")["content"] == "second"
                raise ZeroDivisionError

        assert client.run("clerk", "hi")["content"] == "first"


def test_platform_is_what_it_was_for_the_next_test() -> None:
    with Client(PLATFORM) as client:
        assert client.run("clerk", "hi")["content"] == AWAY


def test_platform_that_is_made_again_after_a_crash_has_it_too() -> None:
    with Client(make) as client, client.override(model=ScriptedModel(["Yes."])):
        client.restart()

        assert client.run("clerk", "hi")["content"] == "Yes."


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ({"agent": "nobody"}, "there is no agent 'nobody'; there are: clerk, f, other"),
        ({"team": "clerk"}, "there is no team 'clerk'; there are: desk"),
        ({"agent": "f"}, "the agent 'f' is a function, and asks no model"),
        ({"agent": "clerk", "team": "desk"}, "an agent or a team, not both"),
    ],
)
def test_mistake_is_a_sentence(names: dict[str, str], sentence: str) -> None:
    with Client(PLATFORM) as client:
        override = client.override(model=ScriptedModel(), **names)
        with pytest.raises(Misuse, match=sentence), override:
            raise AssertionError


def test_responder_of_a_test_has_no_models() -> None:
    class Responder:
        def answer(self, request: object) -> object:
            raise AssertionError

    responder: Any = Responder()
    with Client(responder) as client:
        override = client.override(model=ScriptedModel())
        with pytest.raises(Misuse, match="this client has none"), override:
            raise AssertionError


def test_all_else_that_the_configured_model_says_of_itself_stays() -> None:
    with Client(PLATFORM) as client, client.override(model=ScriptedModel()):
        model: Any = PLATFORM.context.registry.agents["clerk"].model

        assert (model.id, model.provider, model.retries) == ("gpt-5-mini", "OpenAI", 0)
