from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation import EchoModel, LimitOverrides, NodeLimits, PlatformLimits
from legation.config import (
    DEFAULT_EXCLUDED_ROUTES,
    Agent,
    AuthorizationConfig,
    Channel,
    ConfigurationError,
    Database,
    PlatformConfig,
    Summaries,
    Team,
    structure,
)

TOOLS: Any = ["m:f"]
"""Named, as in a file; a checker refuses that in Python."""

WHOLE: Mapping[str, Any] = {
    "platform": {
        "id": "demo",
        "name": "Demo",
        "description": "Shows all",
        "authorization": True,
        "cors_allowed_origins": ["https://app.test"],
        "on_busy": "reject",
        "run_timeout_seconds": 60,
    },
    "authorization_config": {
        "verification_keys": ["a key"],
        "jwks_file": "keys.json",
        "algorithm": "ES256",
        "verify_audience": True,
        "admin_scope": "root",
        "excluded_routes": ["/health"],
    },
    "databases": {"main": {"url": "sqlite://", "auto_migrate": False}},
    "models": {"slow": {"provider": "echo", "id": "echo-1", "delay_seconds": 1}},
    "agents": [
        {
            "id": "a",
            "name": "A",
            "model": "slow",
            "database": "main",
            "tools": ["m:f"],
            "output_schema": {"type": "object"},
            "history_runs": 0,
            "max_rounds": 2,
            "max_tokens": 100,
            "tool_timeout_seconds": 5,
            "in_doubt": "tell",
            "version": "2",
        },
        {"id": "b", "run": "m:g", "again": "safe", "limits": {"runs": 4}},
    ],
    "teams": [{"id": "t", "members": ["a"], "mode": "route", "tools": ["m:f"], "in_doubt": "end"}],
    "limits": {
        "runs": 8,
        "requests_per_second": 5,
        "node": {"runs": 100},
        "anonymous": {"runs": 1},
        "scopes": {"batch:run": {"weight": 0.5}, "agents:run": {"waiting": 3}},
        "subjects": {"ada": {"tokens_per_day": 1_000_000}},
    },
    "channels": {"chat": {"kind": "whatsapp", "agent": "a", "app_secret_env": "SECRET"}},
}


def faults(mapping: Mapping[str, Any]) -> set[str]:
    with pytest.raises(ConfigurationError) as caught:
        structure(mapping)
    assert str(caught.value).count("\n") + 1 == len(caught.value.faults)
    return {f"{fault.path}: {fault.message}" for fault in caught.value.faults}


def test_nothing_is_the_default_platform() -> None:
    assert structure({}) == PlatformConfig()
    assert PlatformConfig().authorization_config.excluded_routes == DEFAULT_EXCLUDED_ROUTES


def test_a_whole_tree_is_read() -> None:
    told: dict[str, Any] = {
        "id": "demo",
        "name": "Demo",
        "description": "Shows all",
        "authorization": True,
        "authorization_config": AuthorizationConfig(
            verification_keys=("a key",),
            jwks_file="keys.json",
            algorithm="ES256",
            verify_audience=True,
            admin_scope="root",
            excluded_routes=("/health",),
        ),
        "cors_allowed_origins": ("https://app.test",),
        "on_busy": "reject",
        "run_timeout_seconds": 60.0,
        "databases": (Database("main", "sqlite://", auto_migrate=False),),
        "models": (EchoModel("slow", "echo-1", delay_seconds=1.0),),
        "agents": (
            Agent(
                id="a",
                name="A",
                model="slow",
                database="main",
                tools=TOOLS,
                output_schema={"type": "object"},
                history_runs=0,
                max_rounds=2,
                max_tokens=100,
                tool_timeout_seconds=5.0,
                in_doubt="tell",
                version="2",
            ),
            Agent(id="b", run="m:g", again="safe", limits=LimitOverrides(runs=4)),
        ),
        "limits": PlatformLimits(
            runs=8,
            requests_per_second=5.0,
            node=NodeLimits(runs=100),
            anonymous=LimitOverrides(runs=1),
            scopes={
                "batch:run": LimitOverrides(weight=0.5),
                "agents:run": LimitOverrides(waiting=3),
            },
            subjects={"ada": LimitOverrides(tokens_per_day=1_000_000)},
        ),
        "teams": (Team(id="t", members=("a",), mode="route", tools=TOOLS, in_doubt="end"),),
        "channels": (Channel(id="chat", kind="whatsapp", agent="a", app_secret_env="SECRET"),),
    }

    config = structure(WHOLE)

    assert config == PlatformConfig(**told)
    assert [*config.limits.scopes] == ["batch:run", "agents:run"]  # the first that is held counts


def test_lists_may_be_given_where_tuples_are_kept() -> None:
    options: dict[str, Any] = {"agents": [Agent(id="a")], "cors_allowed_origins": ["https://a"]}
    config = PlatformConfig(**options)

    assert config.agents == (Agent(id="a"),)
    assert config.cors_allowed_origins == ("https://a",)


ONE_FAULT: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "an unknown table": ({"agent": []}, "agent: unknown key"),
    "an unknown key": ({"platform": {"authorisation": True}}, "platform: unknown: authorisation"),
    "two unknown keys": ({"platform": {"b": 1, "a": 2}}, "platform: unknown: a, b"),
    "a doubt that is no text": (
        {"agents": [{"id": "a", "in_doubt": True}]},
        "agents[0].in_doubt: expected a string",
    ),
    "a second time that is no text": (
        {"agents": [{"id": "a", "again": 1}]},
        "agents[0].again: expected a string",
    ),
    "a second time of a team": (
        {"teams": [{"id": "t", "again": "safe"}]},
        "teams[0]: unknown: again",
    ),
    "no table": ({"platform": 1}, "platform: expected a table"),
    "lists of a guard that are no table": (
        {"agents": [{"id": "a", "guards": [{"kind": "tool_access", "allow": 3}]}]},
        "agents[0].guards[0].allow: expected a table",
    ),
    "a key that is missing": ({"agents": [{"name": "A"}]}, "agents[0].id: missing: id"),
    "a number for a text": ({"platform": {"id": 1}}, "platform.id: expected a string"),
    "a text for true": (
        {"platform": {"authorization": "false"}},
        "platform.authorization: expected true or false",
    ),
    "limits that are no table": ({"limits": 3}, "limits: expected a table"),
    "a limit that is unknown": ({"limits": {"rate": 3}}, "limits: unknown: rate"),
    "a text for a limit": ({"limits": {"runs": "3"}}, "limits.runs: expected an integer"),
    "a limit of nodes that they have not": (
        {"limits": {"node": {"weight": 3}}},
        "limits.node: unknown: weight",
    ),
    "limits of scopes that are no table": (
        {"limits": {"scopes": ["batch:run"]}},
        "limits.scopes: expected a table of tables",
    ),
    "a limit of a scope that is unknown": (
        {"limits": {"scopes": {"batch:run": {"rate": 1}}}},
        'limits.scopes."batch:run": unknown: rate',
    ),
    "limits of a subject that are no table": (
        {"limits": {"subjects": {"ada": 3}}},
        'limits.subjects."ada": expected a table',
    ),
    "a text for a limit of an agent": (
        {"agents": [{"id": "a", "limits": {"runs": "4"}}]},
        "agents[0].limits.runs: expected an integer",
    ),
    "a limit of an agent that is unknown": (
        {"agents": [{"id": "a", "limits": {"node": {}}}]},
        "agents[0].limits: unknown: node",
    ),
    "a number for true": (
        {"platform": {"authorization": 1}},
        "platform.authorization: expected true or false",
    ),
    "a text for a number": (
        {"models": {"m": {"provider": "echo", "delay_seconds": "1"}}},
        "models.m.delay_seconds: expected a number",
    ),
    "true for a number": (
        {"models": {"m": {"provider": "echo", "delay_seconds": True}}},
        "models.m.delay_seconds: expected a number",
    ),
    "a text for texts": (
        {"platform": {"cors_allowed_origins": "https://a"}},
        "platform.cors_allowed_origins: expected an array of strings",
    ),
    "a number for a tool": (
        {"agents": [{"id": "a", "tools": [1]}]},
        "agents[0].tools: expected an array of strings",
    ),
    "a number for a function": (
        {"agents": [{"id": "a", "run": 1}]},
        "agents[0].run: expected a string",
    ),
    "a number for a model": (
        {"agents": [{"id": "a", "model": 1}]},
        "agents[0].model: expected a string",
    ),
    "a text for a schema": (
        {"agents": [{"id": "a", "output_schema": "{}"}]},
        "agents[0].output_schema: expected a table",
    ),
    "half a round": (
        {"agents": [{"id": "a", "max_rounds": 1.5}]},
        "agents[0].max_rounds: expected an integer",
    ),
    "true for an integer": (
        {"agents": [{"id": "a", "max_tokens": True}]},
        "agents[0].max_tokens: expected an integer",
    ),
    "a number among texts": (
        {"agents": [{"id": "a"}], "teams": [{"id": "t", "members": ["a", 1]}]},
        "teams[0].members: expected an array of strings",
    ),
    "keyed as an array": ({"databases": []}, "databases: expected a table of tables"),
    "listed as a table": ({"agents": {}}, "agents: expected an array of tables"),
    "an item that is no table": (
        {"databases": {"main": "sqlite://"}},
        "databases.main: expected a table",
    ),
    "an agent that is no table": ({"agents": ["a"]}, "agents[0]: expected a table"),
    "a name told twice": (
        {"databases": {"main": {"id": "x", "url": "sqlite://"}}},
        "databases.main.id: unknown key",
    ),
    "a secret in the file": (
        {"channels": {"chat": {"kind": "whatsapp", "app_secret": "x"}}},
        "channels.chat: unknown: app_secret",
    ),
    "an algorithm that is none": (
        {"authorization_config": {"algorithm": None}},
        "authorization_config.algorithm: expected a string",
    ),
}


@pytest.mark.parametrize("name", ONE_FAULT)
def test_a_fault_has_its_place(name: str) -> None:
    mapping, told = ONE_FAULT[name]

    assert faults(mapping) == {told}


def test_readers_are_named_by_the_type_that_they_read() -> None:
    config = structure({"readers": {"application/pdf": "m:f"}})

    assert config.readers == {"application/pdf": "m:f"}
    assert faults({"readers": []}) == {"readers: expected a table"}
    assert faults({"readers": {"a": 1, "b": "m:f"}}) == {"readers.a: expected a string"}


def test_subjects_are_a_table_or_the_name_of_a_function() -> None:
    telegram = {"kind": "telegram", "agent": "a", "secret_token_env": "S", "bot_token_env": "B"}
    subjects: Any
    for subjects in ({"7": "ada"}, "m:f"):
        channel = {**telegram, "subjects": subjects, "router": "m:g"}
        (made,) = structure({"channels": {"bot": channel}}).channels
        assert (made.subjects, made.router) == (subjects, "m:g")
    said = "expected a table of strings, or the name of a function"
    wrong: Any
    for wrong in (3, {"7": 3}, ["m:f"]):
        assert faults({"channels": {"bot": {**telegram, "subjects": wrong}}}) == {
            f"channels.bot.subjects: {said}"
        }
    unnamed = {"channels": {"bot": {**telegram, "router": 3}}}
    assert faults(unnamed) == {"channels.bot.router: expected a string"}


def test_every_fault_is_told_at_once() -> None:
    broken: dict[str, Any] = {
        "platfrom": {},
        "platform": {"id": 1, "authorization": "yes"},
        "databases": {"main": {"url": 3}},
        "agents": [{"id": "a"}, {"idd": "b"}],
    }

    assert faults(broken) == {
        "platfrom: unknown key",
        "platform.id: expected a string",
        "platform.authorization: expected true or false",
        "databases.main.url: expected a string",
        "agents[1].id: missing: id",
        "agents[1]: unknown: idd",
    }


def test_what_is_secret_does_not_show() -> None:
    shown = repr((AuthorizationConfig(["hunter2"]), Database("main", "postgresql://u:hunter2@h")))

    assert "hunter2" not in shown


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*WHOLE, "x"]), JSON))
def test_any_tree_is_a_configuration_or_faults(tree: dict[str, Any]) -> None:
    try:
        found: object = structure(tree)
    except ConfigurationError as error:
        found = error.faults
    assert isinstance(found, PlatformConfig) or (isinstance(found, tuple) and found)


def test_what_a_page_is_made_of_is_excluded_with_the_page() -> None:
    assert AuthorizationConfig().excludes("/docs/assets/{name}")
    assert AuthorizationConfig(excluded_routes=["/redoc"]).excludes("/docs/assets/{name}")
    assert not AuthorizationConfig(excluded_routes=["/"]).excludes("/docs/assets/{name}")
    assert not AuthorizationConfig().excludes("/agents")


def test_summaries_are_a_table_of_an_agent_or_a_team() -> None:
    agent = {"id": "a", "history_tokens": 4_000, "summaries": {"after_runs": 9, "model": "small"}}
    config = structure({"agents": [agent], "teams": [{"id": "t", "summaries": {}}]})

    assert config.agents[0].history_tokens == 4_000
    assert config.agents[0].summaries == Summaries(after_runs=9, model="small")
    assert config.teams[0].summaries == Summaries()
    with pytest.raises(ConfigurationError, match=r"agents\[0\].summaries: expected a table"):
        structure({"agents": [{"id": "a", "summaries": 3}]})
