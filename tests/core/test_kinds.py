"""The kinds of models and channels: each class has the settings that its codec takes."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from attrs import NOTHING, asdict, fields

from legation import (
    Agent,
    AnthropicModel,
    Channel,
    CustomChannel,
    EchoModel,
    Model,
    OpenAIModel,
    Platform,
    SlackChannel,
    StandardChannel,
    WhatsAppChannel,
)
from legation.channels import CHANNEL_KINDS
from legation.config import AnyChannel, AnyModel, ConfigurationError, Provider, structure
from legation.hosted.channel_kinds import settings_of
from legation.hosted.channel_options import ChannelOptions
from legation.kinds import CHANNELS, MODELS
from legation.models.anthropic import AnthropicMessages
from legation.models.chat_completions import ChatCompletions

KEYS = {"OPENAI_API_KEY": "sk-1", "ANTHROPIC_API_KEY": "sk-2", "S": "a-secret", "T": "a-token"}
OF_ALL = {"id", "agent", "team", "agents", "apology", *(a.name for a in fields(ChannelOptions))}


def required(cls: type[Any]) -> dict[str, bool]:
    return {a.name: a.default is NOTHING for a in fields(cls)}


@pytest.mark.parametrize("kind", CHANNEL_KINDS)
def test_channel_takes_the_settings_of_its_codec(kind: str) -> None:
    taken: dict[str, bool] = {}
    for one in settings_of(CHANNEL_KINDS[kind]):
        # A secret has its variable or its file, and the registry says where it has none.
        taken |= {key: one.required and not one.secret for key in (one.key, one.file_key) if key}
    own = {key: value for key, value in required(CHANNELS[kind]).items() if key not in OF_ALL}

    assert own == taken


@pytest.mark.parametrize(
    ("kind", "codec"), [(OpenAIModel, ChatCompletions), (AnthropicModel, AnthropicMessages)]
)
def test_model_takes_the_settings_of_its_codec_with_the_same_defaults(
    kind: type[Any], codec: type[Any]
) -> None:
    ours = {a.name: a.default for a in fields(kind)}
    theirs = {a.name: a.default for a in fields(codec)}

    named = {"name", "api_key_env", "api_key_file"}
    assert ours.keys() - named == theirs.keys() - {"api_key", "max_bytes"}
    assert all(ours[name] in (None, theirs[name]) for name in ours.keys() & theirs.keys())


def test_there_is_a_class_for_every_kind() -> None:
    assert CHANNELS.keys() == CHANNEL_KINDS.keys()
    assert MODELS.keys() == {*get_args(Provider)}
    assert {*get_args(AnyModel)} == {*MODELS.values(), Model}
    assert {*get_args(AnyChannel)} == {*CHANNELS.values(), CustomChannel, Channel}


SAME: list[tuple[AnyModel, AnyModel]] = [
    (EchoModel("m"), Model("m", "echo")),
    (EchoModel("m", "e", delay_seconds=2.0), Model("m", "echo", "e", 2.0)),
    (OpenAIModel("m", "gpt", temperature=1.0), Model("m", "openai", "gpt", temperature=1.0)),
    (
        OpenAIModel("m", "gpt", base_url="https://m.test/v1", retries=0),
        Model("m", "openai", "gpt", base_url="https://m.test/v1", retries=0),
    ),
    (AnthropicModel("m", "claude"), Model("m", "anthropic", "claude")),
]


@pytest.mark.parametrize(("one", "general"), SAME)
def test_model_by_its_class_is_the_one_by_the_class_of_any(
    one: AnyModel, general: AnyModel
) -> None:
    made = [
        Platform(models=[model], agents=[Agent("a", model="m")], environ=KEYS)
        .registry.agents["a"]
        .model
        for model in (one, general)
    ]

    assert made[0] == made[1]


def test_channel_by_its_class_is_the_one_by_the_class_of_any() -> None:
    settings: dict[str, Any] = {"agent": "a", "secret_env": "S", "reply_url": "https://r.test/"}
    channels = StandardChannel("c", **settings), Channel("c", kind="standard", **settings)
    made = [
        Platform(agents=[Agent("a")], channels=[one], environ={"S": "c2VjcmV0" * 6})
        .registry.channels["c"]
        .codec
        for one in channels
    ]

    assert made[0] == made[1]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"models": [OpenAIModel("m", "")]}, "models.m.id: missing: how the provider calls the model"),
    (
        {"models": [EchoModel("m", delay_seconds=-1.0)]},
        "models.m.delay_seconds: must be a finite number of at least 0",
    ),
    (
        {"models": [AnthropicModel("m", "c", api_key_env="NONE")]},
        "models.m.api_key_env: the environment variable NONE is not set",
    ),
    (
        {"models": [OpenAIModel("m", "gpt", retries="2")]},  # type: ignore[arg-type]
        "models.m.retries: expected an integer, not str",
    ),
    (
        {"channels": [SlackChannel("c", agent="a", signing_secret_env="S", bot_token_env="NONE")]},
        "channels.c.bot_token_env: the environment variable NONE is not set",
    ),
    (
        {"channels": [CustomChannel("c", agent="a", kind="slak")]},
        "channels.c.kind: 'slak' is none of: whatsapp, telegram, slack, standard",
    ),
    (
        {"models": ["gpt"]},
        "models[0]: expected EchoModel(…), OpenAIModel(…), AnthropicModel(…) or Model(…), not str",
    ),
]


@pytest.mark.parametrize(("given", "sentence"), WRONG)
def test_fault_of_a_kind_is_one_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Platform(agents=[Agent("a")], environ=KEYS, **given)

    assert str(caught.value) == sentence


def test_setting_of_another_kind_is_no_argument() -> None:
    with pytest.raises(TypeError, match="temperature"):
        EchoModel("m", temperature=1.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="phone_number_id"):
        WhatsAppChannel("c", app_secret_env="S", verify_token_env="T", access_token_env="U")  # type: ignore[call-arg]


FILE: dict[str, Any] = {
    "models": {
        "slow": {"provider": "echo", "delay_seconds": 1},
        "fast": {"provider": "openai", "id": "gpt", "temperature": 0},
        "wise": {"provider": "anthropic", "id": "claude"},
    },
    "channels": {
        "help": {"kind": "standard", "agent": "a", "secret_env": "S", "reply_url": "https://r/"},
        "mine": {"kind": "pager", "agent": "a", "settings": {"line": 1}},
    },
}


def test_file_is_read_by_the_key_that_says_the_kind() -> None:
    config = structure(FILE)

    assert config.models == (
        EchoModel("slow", delay_seconds=1.0),
        OpenAIModel("fast", "gpt", temperature=0.0),
        AnthropicModel("wise", "claude"),
    )
    assert config.channels == (
        StandardChannel("help", agent="a", secret_env="S", reply_url="https://r/"),
        Channel("mine", kind="pager", agent="a", settings={"line": 1}),
    )


@pytest.mark.parametrize("said", ["image/png", ["image/png"]])
def test_file_names_one_media_type_or_several(said: Any) -> None:
    table = {"provider": "openai", "id": "gpt", "accepts": said}

    assert structure({"models": {"m": table}}).models == (
        OpenAIModel("m", "gpt", accepts="image/png"),
    )


def test_media_type_that_is_no_text_is_a_fault() -> None:
    with pytest.raises(ConfigurationError, match="expected a string or an array of strings"):
        structure({"models": {"m": {"provider": "openai", "id": "gpt", "accepts": 3}}})


MISFITS: list[dict[str, Any]] = [
    {"provider": "echo", "temperature": 1},  # a setting of another
    {"provider": "openai"},  # without what it needs
    {"provider": "opneai", "id": "gpt"},
]


@pytest.mark.parametrize("table", MISFITS)
def test_table_that_fits_no_kind_is_told_what_is_wrong_beside_all_else(
    table: dict[str, Any],
) -> None:
    config = structure({"models": {"m": table}, "agents": [{"id": "a", "model": "none"}]})

    assert asdict(config.models[0])["provider"] == table["provider"]
    with pytest.raises(ConfigurationError) as caught:
        Platform.from_config(config)
    places = {fault.path.partition(".")[0] for fault in caught.value.faults}
    assert places == {"models", "agents[0]"}


def test_tag_that_is_no_text_is_a_fault_of_its_own() -> None:
    for table in ({"provider": 1}, {"provider": ["echo"]}):
        with pytest.raises(ConfigurationError) as caught:
            structure({"models": {"m": table}})
        assert [fault.path for fault in caught.value.faults] == ["models.m.provider"]
