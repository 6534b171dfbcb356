"""The settings as an operator sees them: all of them, where they come from, and no secret."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation import (
    Agent,
    AuthorizationConfig,
    Channel,
    Console,
    CustomChannel,
    Database,
    EchoModel,
    OpenAIModel,
    StandardChannel,
    Team,
    tool,
)
from legation.api.settings import REDACTED, Settings
from legation.config import Model, PlatformConfig
from legation.shares.limits import LimitOverrides, NodeLimits, PlatformLimits
from legation_testing import ScriptedModel

CANARY: Final = "canary-77c1"


def listed(
    config: PlatformConfig, environ: Mapping[str, str] | None = None, *hosted: Database
) -> dict[str, tuple[Any, str]]:
    lines = Settings(config, hosted or config.databases, environ).listed
    return {one["path"]: (one["value"], one["source"]) for one in lines}


@tool
def look(place: str) -> str:
    """Look at a place."""
    return place


def advise() -> str:
    return CANARY


def test_the_sign_in_of_the_console_is_a_table_of_its_own() -> None:
    console = Console(issuer="https://id.example.com/main", client_id="c")
    found = listed(PlatformConfig(console=console))

    assert found["platform.console"] == (True, "default")
    assert found["console.issuer"] == ("https://id.example.com/main", "configuration")
    assert found["console.scope"] == ("openid", "default")
    assert listed(PlatformConfig(console=False))["platform.console"] == (False, "configuration")


def test_every_key_has_its_value_and_its_source() -> None:
    config = PlatformConfig(
        id="shop",
        lease_seconds=30.0,
        cors_allowed_origins=["https://a.test"],
        limits=PlatformLimits(
            runs=3,
            node=NodeLimits(runs=9),
            scopes={"vip:use": LimitOverrides(runs=5)},
            subjects={"ann": LimitOverrides(waiting=1)},
        ),
        databases=[Database("main", "sqlite:///shop.db")],
        models=[EchoModel("quick"), OpenAIModel("big", "gpt", base_url="https://m.test/v1")],
        agents=[Agent("clerk", tools=[look], model=ScriptedModel([]), limits=LimitOverrides())],
        teams=[Team("crew", members=["clerk"])],
        channels=[
            StandardChannel(id="crm", secret_env="S", reply_url="https://c.test/in", agent="clerk")
        ],
        readers={"text/x": advise},
    )

    found = listed(config)

    assert found["platform.id"] == ("shop", "configuration")
    assert found["platform.name"] == ("Legation", "default")
    assert found["platform.lease_seconds"] == (30.0, "default")
    assert found["platform.cors_allowed_origins"] == (["https://a.test"], "configuration")
    assert found["authorization_config.algorithm"] == ("RS256", "default")
    assert found["limits.runs"] == (3, "configuration")
    assert found["limits.node.runs"] == (9, "configuration")
    assert found['limits.scopes."vip:use".runs'] == (5, "configuration")
    assert found["limits.subjects.ann.waiting"] == (1, "configuration")
    assert found["limits.anonymous.runs"] == (None, "default")
    assert found["databases.main.url"] == ("sqlite:///shop.db", "configuration")
    assert found["databases.main.auto_migrate"] == (None, "default")
    assert found["models.quick.provider"] == ("echo", "configuration")
    assert found["models.big.base_url"] == ("https://m.test/v1", "configuration")
    assert found["agents[0].tools"] == (["look"], "configuration")
    assert found["agents[0].model"] == ("ScriptedModel", "configuration")
    assert found["agents[0].limits.runs"] == (None, "default")
    assert found["teams[0].members"] == (["clerk"], "configuration")
    assert found["channels.crm.kind"] == ("standard", "configuration")
    assert found["channels.crm.secret_env"] == ("S", "configuration")
    assert found["channels.crm.reply_url"] == (f"https://c.test/{REDACTED}", "configuration")
    assert found['readers."text/x"'] == ("advise", "configuration")


def test_the_database_that_nobody_named_is_a_default() -> None:
    found = listed(PlatformConfig(), None, Database("main", "sqlite:///legation.db"))

    assert found["databases.main.url"] == ("sqlite:///legation.db", "default")


def test_what_the_environment_brings_is_said() -> None:
    config = AuthorizationConfig(verification_keys=["one", CANARY], jwks_file="/keys.json")
    environ = {"JWT_VERIFICATION_KEY": CANARY, "JWT_JWKS_FILE": "/keys.json"}
    settings = Settings(PlatformConfig(authorization_config=config), (), environ)
    found = {one["path"]: (one["value"], one["source"]) for one in settings.listed}

    where = "authorization_config"
    assert found[f"{where}.verification_keys"] == ([REDACTED, REDACTED], "environment")
    assert found[f"{where}.jwks_file"] == ("/keys.json", "environment")
    assert f"{where}.verification_keys[1]" in settings.from_environment
    other = Settings(PlatformConfig(authorization_config=config), (), {"JWT_JWKS_FILE": "/b"})
    assert not other.from_environment


URLS: Final = {
    "sqlite:///a.db?key=canary-77c1": "sqlite:///a.db",
    "postgresql://ann:canary-77c1@db:5432/shop?sslpassword=canary-77c1": (
        f"postgresql://{REDACTED}@db:5432/shop"
    ),
    "postgresql://db/shop": "postgresql://db/shop",
    "postgresql://ann:canary-77c1@[::1]/shop": f"postgresql://{REDACTED}@[::1]/shop",
    "postgresql://ann:12/canary-77c1@db/shop": REDACTED,
    "postgresql://ann:12?canary-77c1@db/shop": REDACTED,
    "postgresql://ann:12#canary-77c1@db/shop": REDACTED,
    "postgresql://ann:canary-77c1": REDACTED,
    "postgresql://[canary-77c1": REDACTED,
    "postgresql:///shop?password=canary-77c1": REDACTED,
}


@pytest.mark.parametrize("url", URLS)
def test_of_the_url_of_a_database_its_place_alone_is_shown(url: str) -> None:
    assert (
        listed(PlatformConfig(), None, Database("main", url))["databases.main.url"][0] == URLS[url]
    )


def test_no_secret_is_shown_wherever_it_stands() -> None:
    hidden = f"https://u:{CANARY}@h.test/{{}}?k={CANARY}"
    config = PlatformConfig(
        authorization_config=AuthorizationConfig(verification_keys=[CANARY]),
        databases=[Database("main", f"postgresql://u:{CANARY}@h/x")],
        models=[
            OpenAIModel("a", "gpt", base_url=hidden.format("v1")),
            Model(name="b", provider="openai", id="x", base_url=hidden.format("")),
        ],
        agents=[
            Agent("one", instructions=CANARY, model=ScriptedModel([CANARY])),
            Agent("two", instructions=advise, run=advise),
            Agent("three", output_schema={"title": "Answer", "description": "an answer"}),
        ],
        channels=[
            Channel(id="c", kind="standard", reply_url=hidden.format(CANARY), api_base_url=hidden),
            CustomChannel(id="d", kind="own", settings={"token": CANARY, "key_env": "KEY"}),
        ],
    )

    found = listed(config)

    assert CANARY not in json.dumps(found)
    assert found["channels.d.settings"][0] == {"token": REDACTED, "key_env": "KEY"}
    assert found["models.a.base_url"][0] == f"https://{REDACTED}@h.test/v1"
    assert found["channels.c.reply_url"][0] == f"https://{REDACTED}@h.test/{REDACTED}"
    assert found["agents[0].instructions"][0] == REDACTED
    assert found["agents[1].run"][0] == "advise"
    assert found["agents[2].output_schema"][0] == "dict"
    assert found["agents[2].instructions"] == (None, "default")


@given(st.text(max_size=40), st.text(max_size=40))
def test_whatever_a_url_is_nothing_before_its_last_at_is_shown(user: str, rest: str) -> None:
    url = f"postgresql://{user}{CANARY}@{rest}"

    assert CANARY not in str(listed(PlatformConfig(), None, Database("m", url)))


def test_many_agents_are_listed_once() -> None:
    agents = [Agent(f"a{number}") for number in range(1_000)]
    settings = Settings(PlatformConfig(agents=agents))

    assert settings.listed is settings.listed
    assert sum(line["path"].endswith("].id") for line in settings.listed) == 1_000
