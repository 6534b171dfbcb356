"""The order of models, as it is configured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from legation import Agent, ConfigurationError, Platform, Team, tool
from legation.config import PlatformConfig, structure
from legation.hosted.fallback import MAX_FALLBACK
from legation.hosted.registry import build
from legation.models.echo import Echo
from legation_testing import Client, ScriptedModel


@tool
def look(what: str) -> str:
    """Look."""
    return what


def answer(message: str) -> str:
    return message


class Plain(ScriptedModel):
    takes_tools = False
    takes_schema = False


def faults(**members: Any) -> list[str]:
    """Return what is wrong with an agent, as its author reads it."""
    with pytest.raises(ConfigurationError) as caught:
        build(PlatformConfig(agents=[Agent(id="a", **members)]), {})
    return str(caught.value).splitlines()


def test_file_names_the_models() -> None:
    config = structure(
        {
            "models": {
                "fast": {"provider": "echo", "id": "f"},
                "slow": {"provider": "echo", "id": "s"},
            },
            "agents": [{"id": "a", "model": "fast", "fallback": ["slow", "echo"]}],
            "teams": [{"id": "t", "members": ["a"], "model": "slow", "fallback": ["fast"]}],
        }
    )
    registry = build(config, {})

    assert [one.id for one in registry.agents["a"].fallback] == ["s", "echo"]
    assert [one.id for one in registry.teams["t"].fallback] == ["f"]


@pytest.mark.parametrize("given", ["fast", [7], {"first": "fast"}])
def test_file_with_another_type_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        structure({"agents": [{"id": "a", "fallback": given}]})

    assert str(caught.value) == "agents[0].fallback: expected an array of strings"


def test_program_with_another_type_is_refused() -> None:
    mistaken: Any = "echo"
    with pytest.raises(ConfigurationError) as caught:
        Platform(agents=[Agent(id="a", fallback=mistaken)])

    assert str(caught.value) == "agents[0].fallback: expected a list, not str"


def test_every_fault_is_reported_at_once() -> None:
    one = ScriptedModel(id="one")
    mistaken: Any = object()

    assert faults(model=one, fallback=["echo", "none", mistaken, one, "echo"]) == [
        "agents[0].fallback[1]: no model 'none'; there are: echo",
        "agents[0].fallback[2]: object is no model: it has no id, name, provider, respond",
        "agents[0].fallback[3]: one is in the order already",
        "agents[0].fallback[4]: 'echo' is in the order already",
    ]


def test_fault_of_the_first_model_is_no_other_fault() -> None:
    assert faults(model="none", fallback=["echo"]) == [
        "agents[0].model: no model 'none'; there are: echo"
    ]


def test_two_models_that_are_equal_may_both_be_asked() -> None:
    order = [Echo("same"), Echo("same")]
    registry = build(PlatformConfig(agents=[Agent(id="a", fallback=order)]), {})

    assert len(registry.agents["a"].fallback) == 2


def test_order_has_an_end() -> None:
    models = [ScriptedModel(id=f"m{n}") for n in range(MAX_FALLBACK + 1)]

    assert faults(fallback=models) == ["agents[0].fallback: has 9 models, and may have 8 at most"]
    build(PlatformConfig(agents=[Agent(id="a", fallback=models[:MAX_FALLBACK])]), {})


def test_function_has_none() -> None:
    assert faults(run=answer, fallback=[ScriptedModel()]) == [
        "agents[0].fallback: is not allowed together with `run`"
    ]


def test_ability_that_every_run_needs_is_missing() -> None:
    plain = Plain(id="plain")

    assert faults(fallback=[plain], tools=[look], output_schema={"type": "object"}) == [
        "agents[0].fallback[0]: plain takes no tools, and a has some",
        "agents[0].fallback[0]: plain takes no schema, and a has an output_schema",
    ]
    with pytest.raises(ConfigurationError, match="plain takes no tools, and t has some"):
        Platform(agents=[Agent(id="a")], teams=[Team(id="t", members=["a"], model=plain)])
    Platform(agents=[Agent(id="a", model=plain)], teams=[Team(id="t", model=plain)])


def make(*fallback: Any) -> Platform:
    return Platform(agents=[Agent(id="a", model=ScriptedModel(id="one"), fallback=fallback)])


def test_models_of_the_platform_are_listed_with_those_of_the_fallback() -> None:
    with Client(make(ScriptedModel(id="two"), "echo")) as client:
        listed = [model["id"] for model in client.get("/models").json()]

    assert listed == ["one", "two", "echo"]


def test_agent_is_described_as_before() -> None:
    shown: Callable[[Platform], Any] = lambda platform: (  # noqa: E731
        platform.registry.agents["a"].describe(admin=True)
    )

    assert shown(make("echo")) == shown(make())


def test_definition_names_the_fallback_where_there_is_one() -> None:
    plain, more = (make(*one).registry.agents["a"].definition for one in ((), ("echo",)))

    assert "fallback" not in plain.document
    assert '"fallback":[{"id":"echo","provider":"Legation"}]' in more.document
    assert plain.digest != more.digest
