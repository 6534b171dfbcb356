"""The sentence for a value of the wrong type, in a configuration that was made in Python."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import pytest
from attrs import fields
from hypothesis import given
from hypothesis import strategies as st

from legation import Agent, AuthorizationConfig, Channel, Database, Model, Platform, Team, tool
from legation.config import ConfigurationError, PlatformConfig, structure
from legation.hosted.argument_types import type_faults
from legation.shares.limits import LimitOverrides, PlatformLimits


@tool
def look(what: str) -> str:
    """Look."""
    return what


def say(**fields: Any) -> list[str]:
    """Return the faults of a platform with these fields."""
    return [f"{fault.path}: {fault.message}" for fault in type_faults(PlatformConfig(**fields))]


WRONG: Final[Mapping[str, tuple[Mapping[str, Any], str]]] = {
    "a number for an id": ({"id": 3}, "platform.id: expected a string, not int"),
    "a text for a switch": ({"docs": "no"}, "platform.docs: expected True or False, not str"),
    "a number for a switch": ({"docs": 0}, "platform.docs: expected True or False, not int"),
    "none for a word": ({"on_busy": None}, "platform.on_busy: expected a string, not NoneType"),
    "a switch for a number": (
        {"lease_seconds": True},
        "platform.lease_seconds: expected a number, not bool",
    ),
    "one origin": (
        {"cors_allowed_origins": "https://a.test"},
        "platform.cors_allowed_origins: expected a list, not str",
    ),
    "one key, all of whose letters would be keys": (
        {"authorization_config": AuthorizationConfig("PEM")},
        "authorization_config.verification_keys: expected a list, not str",
    ),
    "another's authorization": (
        {"authorization_config": {"algorithm": "ES256"}},
        "authorization_config: expected AuthorizationConfig(…), not dict",
    ),
    "an audience that is no text": (
        {"authorization_config": AuthorizationConfig(audience=[3])},  # type: ignore[list-item]
        "authorization_config.audience[0]: expected a string, not int",
    ),
    "an agent alone": ({"agents": Agent("a")}, "agents: expected a list, not Agent"),
    "agents by name": ({"agents": {"a": Agent("a")}}, "agents: expected a list, not dict"),
    "no list at all": ({"teams": 3}, "teams: expected a list, not int"),
    "an id for an agent": ({"agents": ["a"]}, "agents[0]: expected Agent(…), not str"),
    "a reader alone": ({"readers": "m:f"}, "readers: expected a mapping, not str"),
    "a number for the limits of a subject": (
        {"limits": PlatformLimits(subjects={"ada": 3})},  # type: ignore[dict-item]
        'limits.subjects."ada": expected LimitOverrides(…), not int',
    ),
    "a text for a limit of a scope": (
        {"limits": PlatformLimits(scopes={"batch:run": LimitOverrides(runs="4")})},  # type: ignore[arg-type]
        'limits.scopes."batch:run".runs: expected an integer, not str',
    ),
    "a number for the name of a subject": (
        {"limits": PlatformLimits(subjects={3: LimitOverrides()})},  # type: ignore[dict-item]
        "limits.subjects: expected strings as keys, not int",
    ),
    "one table for all subjects": (
        {"limits": PlatformLimits(subjects=LimitOverrides())},  # type: ignore[arg-type]
        "limits.subjects: expected a mapping, not LimitOverrides",
    ),
    "a team for an agent": (
        {"agents": [Agent("a"), Team("t")]},
        "agents[1]: expected Agent(…), not Team",
    ),
    "a URL for a database, which may hold a password": (
        {"databases": ["sqlite:///x.db"]},
        "databases[0]: expected Database(…), not str",
    ),
    "half a round": (
        {"agents": [Agent("a", max_rounds=1.5)]},  # type: ignore[arg-type]
        "agents[0].max_rounds: expected an integer, not float",
    ),
    "a tool alone": (
        {"agents": [Agent("a", tools=look)]},  # type: ignore[arg-type]
        "agents[0].tools: expected a list, not Tool",
    ),
    "a name for a tool, all of whose letters would be tools": (
        {"agents": [Agent("a", tools="os:getcwd")]},  # type: ignore[arg-type]
        "agents[0].tools: expected a list, not str",
    ),
    "a number for instructions": (
        {"agents": [Agent("a", instructions=3)]},  # type: ignore[arg-type]
        "agents[0].instructions: expected a string or a function, not int",
    ),
    "an instance for a class": (
        {"agents": [Agent("a", output_schema=look)]},  # type: ignore[arg-type]
        "agents[0].output_schema: expected a mapping or a class, not Tool",
    ),
    "one member": (
        {"teams": [Team("t", members="ab")]},
        "teams[0].members: expected a list, not str",
    ),
    "a text for a temperature": (
        {"models": [Model("fast", "openai", "gpt", temperature="hot")]},  # type: ignore[arg-type]
        "models.fast.temperature: expected a number, not str",
    ),
    "a model without a name": (
        {"models": [Model(3, "echo")]},  # type: ignore[arg-type]
        "models[0].name: expected a string, not int",
    ),
    "a database without a URL": (
        {"databases": [Database("main", None)]},  # type: ignore[arg-type]
        "databases.main.url: expected a string, not NoneType",
    ),
    "a text for settings": (
        {"channels": [Channel("help", kind="mine", settings="x")]},  # type: ignore[arg-type]
        "channels.help.settings: expected a mapping, not str",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_type_is_one_sentence(name: str) -> None:
    fields, sentence = WRONG[name]

    assert say(**fields) == [sentence]
    with pytest.raises(ConfigurationError) as caught:
        Platform(**fields)
    assert [f"{fault.path}: {fault.message}" for fault in caught.value.faults] == [sentence]


def test_every_wrong_type_is_said_at_once() -> None:
    agents: Any = [Agent("a", name=1), "b"]  # type: ignore[arg-type]

    assert say(id=1, agents=agents, databases=[Database("main", b"")]) == [  # type: ignore[arg-type]
        "platform.id: expected a string, not int",
        "databases.main.url: expected a string, not bytes",
        "agents[0].name: expected a string, not int",
        "agents[1]: expected Agent(…), not str",
    ]


def test_value_that_is_wrong_is_not_shown() -> None:
    (fault,) = say(databases=["postgresql://u:hunter2@h"])

    assert "hunter2" not in fault


def test_words_and_ranges_are_left_to_the_registry() -> None:
    wrong: Any = "quue"

    assert say(on_busy=wrong, lease_seconds=-1, agents=[Agent("a", model="none")]) == []
    with pytest.raises(ConfigurationError, match="'quue' is none of: queue, reject"):
        Platform(on_busy=wrong)


def test_whole_configuration_has_no_fault() -> None:
    def answer(message: str) -> str:
        return message

    assert (
        say(
            description="d",
            authorization_config=AuthorizationConfig(["PEM"], audience="a", scopes_claim=["s"]),
            cors_allowed_origins=iter(["https://a.test"]),
            lease_seconds=30,
            databases=[Database("main", "sqlite://")],
            models=[Model("fast", "openai", "gpt", temperature=1)],
            agents=(
                Agent("a", tools=(look, answer), output_schema={"type": "object"}, in_doubt="ask"),
                Agent(id="b", run=answer, again="safe", max_tokens=5),
            ),
            teams=[Team("t", members={"a", "b"}, mode="route")],
            channels=[Channel("c", kind="mine", agent="a", settings={"x": 1})],
        )
        == []
    )


def test_model_in_the_place_of_its_name_is_refused_with_its_name() -> None:
    model: Any = Model("fast", "echo")
    with pytest.raises(ConfigurationError) as caught:
        Platform(agents=[Agent("a", model=model)], models=[model])

    assert str(caught.value) == (
        "agents[0].model: expected a name: list it in Platform(models=[…]), write model='fast'"
    )


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.lists(st.integers() | st.text(max_size=2), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.just(look),
    st.just(Agent("a")),
    st.just(Agent),
)
MADE: Final[Mapping[str, tuple[type[Any], str, Mapping[str, Any]]]] = {
    "authorization": (AuthorizationConfig, "authorization_config", {}),
    "agent": (Agent, "agents", {"id": "a"}),
    "team": (Team, "teams", {"id": "t"}),
    "model": (Model, "models", {"name": "m", "provider": "echo"}),
    "database": (Database, "databases", {"id": "main", "url": "sqlite://"}),
    "channel": (Channel, "channels", {"id": "c", "kind": "standard"}),
}


@given(st.data())
def test_any_value_anywhere_is_a_platform_or_a_fault_and_nothing_else(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["platform", *MADE]))
    given: dict[str, Any] = {}
    if kind == "platform":
        given[data.draw(st.sampled_from([a.name for a in fields(PlatformConfig)]))] = data.draw(
            VALUES
        )
    else:
        cls, place, least = MADE[kind]
        name = data.draw(st.sampled_from([a.name for a in fields(cls)]))
        made = cls(**{**least, name: data.draw(VALUES)})
        given[place] = made if kind == "authorization" else [made]
    with suppress(ConfigurationError):
        Platform(**given, environ={"A": "b"})


def test_what_a_file_says_has_no_fault() -> None:
    assert type_faults(structure({})) == ()
    assert type_faults(structure({"agents": [{"id": "a", "tools": ["m:f"]}]})) == ()
