from __future__ import annotations

import json
import math
from typing import Any

import pytest
from attrs import evolve

from legation.channels import CHANNEL_KINDS
from legation.config import (
    Agent,
    Channel,
    ConfigurationError,
    Database,
    Model,
    PlatformConfig,
    Team,
)
from legation.hosted.registry import DEFAULT_DATABASE, MAX_DEPTH, Registry, build
from legation.http.refusals import Fault
from legation.kinds import AnthropicModel, OpenAIModel
from legation.models.echo import Echo
from legation.shares.limits import LimitOverrides, NodeLimits, PlatformLimits
from legation.tools import ToolError, tool

SECRETS = {"S": "a-secret", "T": "a-token", "U": "another"}


def made(**configuration: Any) -> Registry:
    return build(PlatformConfig(**configuration), SECRETS)


def faults(**configuration: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        made(**configuration)
    return [f"{fault.path}: {fault.message}" for fault in caught.value.faults]


def chat(**more: Any) -> Channel:
    settings: dict[str, Any] = {
        "id": "chat",
        "kind": "whatsapp",
        "agent": "a",
        "app_secret_env": "S",
        "verify_token_env": "T",
        "access_token_env": "U",
        "phone_number_id": "100",
        **more,
    }
    return Channel(**settings)


def test_a_channel_has_its_path_by_its_id() -> None:
    registry = made(agents=[Agent(id="a")], channels=[chat(id="front-desk")])

    assert registry.channels["front-desk"].webhook == "/front-desk/webhook"


def test_nothing_configured_has_the_default_database() -> None:
    registry = made()

    assert registry.databases == {"main": DEFAULT_DATABASE}
    assert registry.default_database == "main"
    assert not registry.agents
    assert not registry.teams
    assert not registry.channels


def test_the_first_database_is_the_default() -> None:
    databases = [Database("b", "sqlite://"), Database("a", "sqlite://")]
    registry = made(databases=databases, agents=[Agent(id="x"), Agent(id="y", database="a")])

    assert registry.default_database == "b"
    assert registry.agents["x"].database == "b"
    assert registry.agents["y"].database == "a"


def test_an_agent_is_described_without_what_it_lacks() -> None:
    registry = made(
        models=[Model("slow", "echo", delay_seconds=1.0), Model("named", "echo", "echo-2")],
        agents=[
            Agent(id="a"),
            Agent(id="b", name="B", role="R", description="D", model="slow", instructions="secret"),
            Agent(id="c", model="named"),
        ],
    )
    a, b, c = registry.agents.values()
    echo = {"name": "Echo", "model": "echo", "provider": "Legation"}

    assert json.loads(a.fragment) == {
        "id": "a",
        "name": "a",
        "db_id": "main",
        "model": echo,
        "sessions": {"session_table": "sessions"},
        "is_component": False,
    }
    assert a.admin_fragment == a.fragment
    assert json.loads(b.fragment).keys() >= {"description", "role"}
    assert b"secret" not in b.fragment
    assert json.loads(b.admin_fragment)["system_message"] == {"instructions": "secret"}
    assert b.model == Echo("slow", 1.0)
    assert c.model == Echo("echo-2")
    assert registry.components("agent") is registry.agents
    assert registry.components("team") is registry.teams


@tool(requires_confirmation=True)
def pay(amount: int) -> None:
    """Pay somebody."""


@tool(external_execution=True)
def knock() -> None: ...


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def test_tools_are_described_to_everybody() -> None:
    registry = made(agents=[Agent(id="a", tools=[add, pay, knock], instructions="secret")])
    component = registry.agents["a"]
    nothing: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}

    [told_add, told_pay, told_knock] = json.loads(component.fragment)["tools"]["tools"]
    assert told_add == {
        "name": "add",
        "description": "Add.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
    }
    assert told_pay["requires_confirmation"] is True
    assert told_knock == {
        "name": "knock",
        "description": "",
        "parameters": nothing,
        "external_execution": True,
    }
    assert component.tool("pay") is pay
    assert component.tool("nothing") is None
    keys = list(json.loads(component.fragment))
    assert keys == ["id", "name", "db_id", "model", "tools", "sessions", "is_component"]


def echo(message: str) -> str:
    return message


def test_limits_are_those_of_the_configuration() -> None:
    options: dict[str, Any] = {
        "history_runs": 0,
        "max_rounds": 1,
        "max_tokens": 5,
        "tool_timeout_seconds": 2.5,
        "in_doubt": "tell",
        "output_schema": {"type": "object"},
    }
    registry = made(
        agents=[Agent(id="a", **options), Agent(id="b"), Agent(id="c", run=echo, again="safe")],
        teams=[Team(id="t", tools=[add], **options)],
    )

    for component in (registry.agents["a"], registry.teams["t"]):
        assert {key: getattr(component, key) for key in options} == options
    assert [t.name for t in registry.teams["t"].tools] == ["add"]
    assert registry.agents["b"].max_rounds == 10
    assert registry.agents["b"].run is None
    assert [one.again for one in registry.agents.values()] == ["never", "never", "safe"]
    assert "in_doubt" not in registry.agents["a"].admin_fragment.decode()
    hosted = registry.agents["c"].run
    assert hosted is not None
    assert hosted.takes == ("message",)


def test_fault_about_a_doubt_has_its_path() -> None:
    wait: Any = "wait"
    key: Any = "key"
    with pytest.raises(ConfigurationError) as caught:
        made(
            agents=[Agent(id="a"), Agent(id="b", in_doubt=wait, again=key)],
            teams=[Team(id="t", in_doubt=wait)],
        )

    assert caught.value.faults == (
        Fault("agents[1].in_doubt", "'wait' is none of: ask, tell, end"),
        Fault("agents[1].again", "'key' is none of: never, safe"),
        Fault("teams[0].in_doubt", "'wait' is none of: ask, tell, end"),
    )


def test_what_is_hosted_is_named_with_its_version() -> None:
    registry = made(
        agents=[Agent(id="b", version="2026-11~1"), Agent(id="a")],
        teams=[Team(id="a", version="2", members=["a"])],
    )

    assert registry.hosted == ("agent:a", "agent:b", "agent:b@2026-11~1", "team:a", "team:a@2")
    assert registry.agents["a"].version is None
    assert (registry.agents["b"].version, registry.teams["a"].version) == ("2026-11~1", "2")


@pytest.mark.parametrize("version", ["", "a b", "a@b", "a:b", "x" * 129, "é", "1\n"])
def test_what_cannot_be_an_id_cannot_be_a_version(version: str) -> None:
    sentence = f"{version!r} is not a version: [A-Za-z0-9._~-]{{1,128}}"
    with pytest.raises(ConfigurationError) as caught:
        made(agents=[Agent(id="a", version=version)], teams=[Team(id="t", version=version)])

    assert caught.value.faults == (
        Fault("agents[0].version", sentence),
        Fault("teams[0].version", sentence),
    )


def test_a_model_may_be_an_object() -> None:
    mine = Echo("mine", 0.0)

    assert made(agents=[Agent(id="a", model=mine)]).agents["a"].model is mine


def test_an_object_that_is_no_model_is_refused() -> None:
    wrong: Any = ToolError("x")

    assert faults(agents=[Agent(id="a", model=wrong)]) == [
        "agents[0].model: ToolError is no model: it has no id, name, provider, respond"
    ]


def test_two_models_of_one_name_are_refused() -> None:
    models = [Model("m", "echo"), Model("m", "echo", "echo-2"), Model("echo", "echo")]

    assert faults(models=models) == ["models.m: there are two of this name"]


@pytest.mark.parametrize("seconds", [-1, math.inf, math.nan, "1", True])
def test_a_delay_that_cannot_be_is_refused(seconds: Any) -> None:
    assert faults(models=[Model("m", "echo", delay_seconds=seconds)]) == [
        "models.m.delay_seconds: must be a finite number of at least 0"
    ]


def test_teams_may_lead_teams_in_any_order() -> None:
    registry = made(
        agents=[Agent(id="a", instructions="secret")],
        teams=[Team(id="top", members=("low", "a")), Team(id="low", members=("a",), mode="route")],
    )
    top = registry.teams["top"]

    assert list(registry.teams) == ["top", "low"]
    assert [member.id for member in top.members] == ["low", "a"]
    assert [m["id"] for m in top.describe(admin=False)["members"]] == ["low", "a"]
    assert b"secret" not in top.fragment
    assert b"secret" in top.admin_fragment


def test_a_channel_has_its_secrets_from_the_environment() -> None:
    registry = made(agents=[Agent(id="a")], channels=[chat(apology="Sorry")])
    channel = registry.channels["chat"]

    assert channel.id == "chat"
    assert channel.component is registry.agents["a"]
    assert channel.apology == "Sorry"
    assert "a-secret" not in repr(channel.codec)


def test_a_team_answers_a_channel_with_the_usual_apology() -> None:
    teams = [Team(id="t", members=("a",))]
    registry = made(agents=[Agent(id="a")], teams=teams, channels=[chat(agent=None, team="t")])

    assert registry.channels["chat"].component is registry.teams["t"]
    assert registry.channels["chat"].apology


@pytest.mark.parametrize(
    ("name", "models", "sentence"),
    [
        ("ears", [], "no model 'ears': name one of the provider openai; there is none"),
        ("echo", [], "'echo' transcribes nothing: name one of the provider openai; there is none"),
        (
            "claude",
            [
                AnthropicModel("claude", "c", api_key_env="S"),
                OpenAIModel("ears", "w", base_url="http://e/v1"),
            ],
            "'claude' transcribes nothing: name one of the provider openai; there are: ears",
        ),
    ],
)
def test_what_transcribes_nothing_is_refused(name: str, models: list[Any], sentence: str) -> None:
    told = faults(agents=[Agent(id="a")], channels=[chat(transcribe=name)], models=models)

    assert told == [f"channels.chat.transcribe: {sentence}"]


def test_a_channel_hears_by_a_model_of_the_configuration() -> None:
    ears = OpenAIModel("ears", "whisper-1", base_url="http://127.0.0.1:9/v1")
    registry = made(agents=[Agent(id="a")], channels=[chat(transcribe="ears")], models=[ears])
    transcriber = registry.channels["chat"].options.transcribe

    assert transcriber is not None
    assert transcriber.model.id == "whisper-1"


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a/b", "*", "ä", "x" * 129, "a\n"])
def test_an_id_that_no_scope_could_name_is_refused(name: str) -> None:
    told = [f"agents[0].id: {name!r} is not an id: [A-Za-z0-9._~-]{{1,128}}"]

    assert faults(agents=[Agent(id=name)]) == told


@pytest.mark.parametrize("name", [".", ".."])
def test_an_id_that_no_path_could_name_is_refused(name: str) -> None:
    told = [f"agents[0].id: {name!r} has another meaning in the paths"]

    assert faults(agents=[Agent(id=name)]) == told


def test_an_id_is_one_things_name() -> None:
    agents = [Agent(id="a"), Agent(id="a")]
    assert faults(agents=agents) == ["agents[1].id: 'a' is taken"]
    databases = [Database("d", "sqlite://"), Database("d", "sqlite://")]
    assert "databases[1].id: 'd' is taken" in faults(databases=databases)


def test_an_id_that_is_a_path_of_another_route_is_refused() -> None:
    databases = [Database("all", "sqlite://")]
    assert faults(databases=databases) == [
        "databases[0].id: 'all' has another meaning in the paths"
    ]
    for name in ("agents", "databases", "me"):
        told = faults(agents=[Agent(id="a")], channels=[chat(id=name)])
        assert told == [f"channels[0].id: {name!r} has another meaning in the paths"]


def test_what_is_named_must_be_there() -> None:
    chaos: Any = "chaos"
    assert faults(
        agents=[Agent(id="a", model="m", database="d")],
        teams=[Team(id="t", members=("a", "b"), mode=chaos)],
    ) == [
        "agents[0].model: no model 'm'; there are: echo",
        "agents[0].database: no database 'd'; there are: main",
        "teams[0].members[1]: no agent or team 'b'",
        "teams[0].mode: 'chaos' is none of: coordinate, route, collaborate",
    ]


def test_a_team_that_leads_itself_is_refused() -> None:
    assert faults(
        teams=[Team(id="t", members=("u",)), Team(id="u", members=("t",)), Team(id="v")]
    ) == [
        "teams[0].members: a team cannot be its own member",
        "teams[1].members: a team cannot be its own member",
    ]


def test_a_member_is_named_once() -> None:
    assert faults(agents=[Agent(id="a")], teams=[Team(id="t", members=("a", "a"))]) == [
        "teams[0].members[1]: 'a' is a member already"
    ]


def nested(levels: int) -> list[Team]:
    below = [Team(id=f"t{n}", members=(f"t{n - 1}",)) for n in range(1, levels)]
    return [Team(id="t0", members=("a",)), *below]


def test_teams_may_be_members_of_teams_but_not_without_end() -> None:
    assert made(agents=[Agent(id="a")], teams=nested(MAX_DEPTH)).teams["t3"].depth == MAX_DEPTH
    assert faults(agents=[Agent(id="a")], teams=nested(MAX_DEPTH + 1)) == [
        "teams[4].members: teams are nested deeper than 4 levels"
    ]


def test_a_provider_that_is_not_known_is_refused() -> None:
    nobody: Any = "nobody"
    told = faults(models=[Model("m", nobody)])

    assert len(told) == 1
    assert told[0].startswith("models.m.provider: 'nobody' is none of: ")


CHANNELS: dict[str, tuple[dict[str, Any], str]] = {
    "nobody answers": (
        {"agent": None},
        "channels.chat: name either an agent or a team that answers",
    ),
    "two answer": ({"team": "t"}, "channels.chat: name either an agent or a team that answers"),
    "who answers is not there": ({"agent": "b"}, "channels.chat.agent: no agent 'b'"),
    "no such team": ({"agent": None, "team": "b"}, "channels.chat.team: no team 'b'"),
    "a secret that is not set": (
        {"app_secret_env": "NOT_SET"},
        "channels.chat.app_secret_env: the environment variable NOT_SET is not set",
    ),
    "no secret": ({"app_secret_env": None}, "channels.chat.app_secret_env: missing"),
    "no number": ({"phone_number_id": None}, "channels.chat.phone_number_id: missing"),
    "a setting of another kind": (
        {"signing_secret_env": "S"},
        "channels.chat.signing_secret_env: is not allowed together with the kind whatsapp",
    ),
    "a setting that cannot be": (
        {"phone_number_id": "a/b"},
        "channels.chat: phone_number_id must be of letters, digits, '_' and '-'",
    ),
}


@pytest.mark.parametrize("name", CHANNELS)
def test_a_channel_that_cannot_be_served_is_refused(name: str) -> None:
    settings, told = CHANNELS[name]
    teams = [Team(id="t", members=("a",))]

    assert faults(agents=[Agent(id="a")], teams=teams, channels=[chat(**settings)]) == [told]


def test_a_kind_of_channel_that_is_not_known_is_refused() -> None:
    told = faults(agents=[Agent(id="a")], channels=[chat(kind="carrier-pigeon")])

    assert len(told) == 1
    assert told[0].startswith("channels.chat.kind: 'carrier-pigeon' is none of: ")


def test_an_empty_secret_is_no_secret() -> None:
    options: dict[str, Any] = {"agents": (Agent(id="a"),), "channels": (chat(),)}
    config = PlatformConfig(**options)
    with pytest.raises(ConfigurationError, match="S is not set"):
        build(config, {**SECRETS, "S": ""})


@pytest.mark.parametrize(
    ("option", "path"),
    [
        ({"id": ""}, "platform.id"),
        ({"id": "a b"}, "platform.id"),
        ({"on_busy": "never"}, "platform.on_busy"),
        ({"run_timeout_seconds": 0.0}, "platform.run_timeout_seconds"),
        ({"run_timeout_seconds": float("nan")}, "platform.run_timeout_seconds"),
        ({"run_timeout_seconds": float("inf")}, "platform.run_timeout_seconds"),
        ({"run_timeout_seconds": "60"}, "platform.run_timeout_seconds"),
        ({"lease_seconds": 4.9}, "platform.lease_seconds"),
        ({"lease_seconds": 3601}, "platform.lease_seconds"),
        ({"lease_seconds": float("nan")}, "platform.lease_seconds"),
        ({"lease_seconds": "30"}, "platform.lease_seconds"),
        ({"unhosted_minutes": 0.9}, "platform.unhosted_minutes"),
        ({"unhosted_minutes": 10_081}, "platform.unhosted_minutes"),
        ({"unhosted_minutes": float("inf")}, "platform.unhosted_minutes"),
        ({"unhosted_minutes": "10"}, "platform.unhosted_minutes"),
        ({"limits": PlatformLimits(runs=0)}, "limits.runs"),
        ({"limits": PlatformLimits(node=NodeLimits(body_bytes=1))}, "limits.node.body_bytes"),
        ({"limits": PlatformLimits(anonymous=LimitOverrides(weight=0))}, "limits.anonymous.weight"),
        (
            {"limits": PlatformLimits(scopes={"batch:run": LimitOverrides(streams=0)})},
            'limits.scopes."batch:run".streams',
        ),
        (
            {"limits": PlatformLimits(subjects={"ada": LimitOverrides(waiting=-1)})},
            'limits.subjects."ada".waiting',
        ),
        ({"agents": [Agent("a", limits=LimitOverrides(runs=0))]}, "agents[0].limits.runs"),
        (
            {
                "agents": [Agent("a")],
                "teams": [Team("t", members=["a"], limits=LimitOverrides(runs=0))],
            },
            "teams[0].limits.runs",
        ),
    ],
)
def test_an_option_that_cannot_be_is_refused(option: dict[str, Any], path: str) -> None:
    [told] = faults(**option)

    assert told.startswith(f"{path}: ")


class Answering:
    def __call__(self, message: str) -> str:
        return message


def test_function_that_answers_is_shown_in_place_of_a_model() -> None:
    def weather(message: str) -> str:
        return message

    agents = made(agents=[Agent(id="a", run=weather), Agent(id="b", run=Answering())]).agents

    shown = [agents[name].describe(admin=False)["model"] for name in ("a", "b")]
    assert shown == [
        {"name": "Function", "model": "weather", "provider": "Function"},
        {"name": "Function", "model": "Answering", "provider": "Function"},
    ]


# --- two of one ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("sqlite:///a.db", "sqlite:///a.db"),
        ("sqlite:///a.db", "sqlite:///./a.db"),
        ("sqlite:///a.db", "sqlite:///x/../a.db"),
        ("sqlite:///a.db", "sqlite:///%61.db"),
        ("sqlite:////var//a.db", "sqlite:////var/x/.././a.db"),
        ("sqlite:///../a.db", "sqlite:///x/../../a.db"),
        ("postgresql://u:1@host/a", "postgres://u:2@HOST:5432/a"),
        ("postgresql://u@h/a?b=1&c=2", "postgresql://u@h/a?c=2&b=1"),
        ("postgresql://u@h:1,i:2/a", "postgresql://u@h:1,i:2/a"),
    ],
)
def test_two_databases_that_are_one_are_found(one: str, other: str) -> None:
    config = PlatformConfig(databases=[Database("a", one), Database("b", other)])
    with pytest.raises(ConfigurationError) as caught:
        build(config, {})

    assert caught.value.faults == (Fault("databases.b.url", "is the database of databases.a"),)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("sqlite://", "sqlite://"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("sqlite:///a.db", "sqlite:////a.db"),
        ("sqlite:///a.db", "sqlite:///../a.db"),
        ("sqlite:///a.db", "sqlite:///A.db"),
        ("postgresql://u@h/a", "postgresql://v@h/a"),
        ("postgresql://u@h/a", "postgresql://u@h/a?options=-csearch_path%3Db"),
        ("postgresql://u@h/a", "postgresql://u@h:5433/a"),
    ],
)
def test_databases_in_two_places_are_two(one: str, other: str) -> None:
    build(PlatformConfig(databases=[Database("a", one), Database("b", other)]), {})


SENDERS: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "whatsapp": (
        "phone_number_id and the app_secret",
        {"app_secret_env": "S", "verify_token_env": "T", "access_token_env": "T"},
        {"phone_number_id": "1"},
    ),
    "telegram": (
        "bot_token and the secret_token",
        {"secret_token_env": "T", "bot_token_env": "BOT"},
        {},
    ),
    "slack": (
        "bot_token and the signing_secret",
        {"signing_secret_env": "S", "bot_token_env": "T"},
        {},
    ),
}
STANDARD: dict[str, str] = {"secret_env": "WHSEC", "reply_url": "https://example.com"}
GIVEN = {"S": "a secret", "T": "token", "BOT": "1:" + "A" * 35, "WHSEC": "whsec_" + "A" * 32}


def two_channels(kind: str, **other: str) -> PlatformConfig:
    _, secrets, more = SENDERS.get(kind, ("", STANDARD, {}))
    one: dict[str, Any] = {"kind": kind, "agent": "a", **secrets, **more}
    two: dict[str, Any] = {**one, **other}
    return PlatformConfig(
        agents=[Agent(id="a")],
        channels=[Channel(id="one", **one), Channel(id="two", **two)],
    )


@pytest.mark.parametrize("kind", SENDERS)
def test_two_channels_of_one_sender_and_secret_are_found(kind: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build(two_channels(kind), GIVEN)

    told = f"has the {SENDERS[kind][0]} of channels.one: both would answer"
    assert caught.value.faults == (Fault("channels.two", told),)


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        ("whatsapp", {"phone_number_id": "2"}),
        ("whatsapp", {"app_secret_env": "T"}),
        ("telegram", {"bot_token_env": "BOT2"}),
        ("slack", {"bot_token_env": "S2"}),
        ("standard", {}),
    ],
)
def test_two_channels_may_have_one_secret_or_one_number(kind: str, other: dict[str, str]) -> None:
    secrets = {**GIVEN, "BOT2": "2:" + "A" * 35, "S2": "another"}

    assert len(build(two_channels(kind, **other), secrets).channels) == 2


def test_every_kind_of_channel_has_a_sender() -> None:
    assert {*SENDERS, "standard"} == set(CHANNEL_KINDS)


def test_a_variable_that_was_never_read_is_said_to_be_so() -> None:
    model = Model(name="m", provider="openai", id="x", api_key_env="KEY")
    for environ, told in (
        ({}, "the environment variable {} was not read: pass environ=os.environ"),
        ({"OTHER": "x"}, "the environment variable {} is not set"),
    ):
        config = evolve(two_channels("slack", bot_token_env="S2"), models=(model,))
        with pytest.raises(ConfigurationError) as caught:
            build(config, environ)
        said = {fault.message for fault in caught.value.faults}
        assert {told.format("KEY"), told.format("S")} <= said


def test_a_reader_is_a_function_for_documents() -> None:
    readers: dict[str, Any] = {"application/pdf": str}
    registry = made(agents=[Agent(id="a")], teams=[Team(id="t", members=["a"])], readers=readers)

    assert registry.agents["a"].readers == registry.teams["t"].readers == readers
    wrong: dict[str, Any] = {"text/csv": str, "audio/ogg": str, "x": str, "application/pdf": 7}
    word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    no_use = f"has no use: a reader is for application/pdf or {word}"
    assert faults(readers=wrong) == [
        *(f"readers.{name}: {no_use}" for name in ("text/csv", "audio/ogg", "x")),
        "readers.application/pdf: expected a function, not int",
    ]
    (told,) = faults(readers={"application/pdf": "m:f"})
    assert told.startswith("readers.application/pdf: 'm:f' is imported from a configuration file")


def test_models_are_replaced_wherever_a_component_is_and_nothing_else_is() -> None:
    registry = made(
        agents=(Agent("a"), Agent("b")),
        teams=(Team("inner", members=("a",)), Team("outer", members=("inner", "b"))),
        channels=(chat(agent="a"),),
    )
    other = Echo()
    changed = registry.with_models(lambda each: other if each.id == "a" else each.model)
    team = changed.teams["outer"]

    assert changed.agents["a"].model is other
    assert team.members[0].members[0].model is other
    assert changed.channels["chat"].component.model is other
    assert changed.agents["b"].model is team.members[1].model is registry.agents["b"].model
    assert changed.hosted == registry.hosted
    assert registry.agents["a"].model is not other


def test_the_limits_of_a_platform_are_ready_to_be_looked_up() -> None:
    limits = PlatformLimits(
        runs=9,
        anonymous=LimitOverrides(runs=1),
        subjects={"ada": LimitOverrides(runs=8), "~eve": LimitOverrides(runs=7)},
    )
    agent = Agent("a", limits=LimitOverrides(runs=2))
    table = made(agents=[agent, Agent("b")], limits=limits).limits

    own, other = ("agent", "a"), ("agent", "b")
    assert [table.find(owner).runs for owner in ("bob", "ada", "~~eve", None)] == [9, 8, 7, 1]
    assert table.account("ada", component=own).limits.runs == 2
    assert table.account("ada", component=other).limits.runs == 8
