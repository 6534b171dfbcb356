"""Secrets come from variables and files, each once; what is typed in their place is not shown."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import pytest
from attrs import evolve

from legation import (
    Agent,
    AnthropicModel,
    AuthorizationConfig,
    Channel,
    ConfigurationError,
    Database,
    Model,
    Notify,
    OpenAIModel,
    Platform,
    SlackChannel,
    StandardChannel,
    TelegramChannel,
    WhatsAppChannel,
)
from legation.channels import CHANNEL_KINDS
from legation.config import PlatformConfig, structure
from legation.hosted.channel_kinds import settings_of
from legation.hosted.secret_sources import (
    MAX_SECRET_BYTES,
    NoSecret,
    secret_paths,
    with_secret_paths,
)
from legation_testing import play

from ...providers.loopback import Loopback

STANDARD: Final = base64.b64encode(bytes(range(32))).decode()
OTHER: Final = base64.b64encode(bytes(range(100, 132))).decode()
CANARY: Final = "xoxb-a-secret-that-somebody-typed-here"
VALUES: Final = {"phone_number_id": "1", "reply_url": "https://crm.example/in"}
LOOP: Final = {"line": "one", "endpoint": "https://loop.example"}


def faults(files: dict[str, Any] | None = None, **configuration: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        Platform(
            agents=[Agent("a")],
            environ={"HELP_SECRET": STANDARD},
            secret_files=files,
            **configuration,
        )
    return [f"{fault.path}: {fault.message}" for fault in caught.value.faults]


def standard(**keys: Any) -> StandardChannel:
    return StandardChannel("crm", agent="a", reply_url="https://crm.example/in", **keys)


# --- files beside variables ----------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
@pytest.mark.parametrize("kind", CHANNEL_KINDS)
def test_every_secret_of_a_channel_may_be_a_file(kind: str, ending: str) -> None:
    wanted = settings_of(CHANNEL_KINDS[kind])
    secrets: dict[str, Any] = {one.file_key: f"/run/{one.name}" for one in wanted if one.secret}
    plain: dict[str, Any] = {one.key: VALUES[one.key] for one in wanted if one.key in VALUES}
    values = {"secret": STANDARD, "previous_secret": STANDARD, "bot_token": "1:aBc"}
    held = {one.name: values.get(one.name, "s3cret-Word") for one in wanted if one.secret}
    files = {f"/run/{name}": (value + ending).encode() for name, value in held.items()}
    channel = Channel(id="c", kind=kind, agent="a", **secrets, **plain)

    platform = Platform(agents=[Agent("a")], channels=[channel], secret_files=files)

    codec = platform.registry.channels["c"].codec
    assert {name: getattr(codec, name) for name in held} == held
    assert {*platform.secret_paths} == {*files}


def test_the_secret_of_a_kind_of_ones_own_may_be_a_file() -> None:
    channel = Channel(
        id="l", kind="loopback", agent="a", settings={**LOOP, "secret_file": "/run/loop"}
    )
    files = {"/run/loop": b"a secret"}

    platform = Platform(
        agents=[Agent("a")], channels=[channel], channel_kinds=[Loopback], secret_files=files
    )

    assert platform.registry.channels["l"].codec == Loopback(
        "l", "one", "https://loop.example", "a secret"
    )


@pytest.mark.parametrize("cls", [OpenAIModel, AnthropicModel])
def test_the_key_of_a_model_may_be_a_file(cls: type[Any]) -> None:
    model = cls("m", "large", api_key_file="/run/key")
    platform = Platform(
        models=[model], agents=[Agent("a", model="m")], secret_files={"/run/key": b"sk-1\n"}
    )

    assert getattr(platform.registry.agents["a"].model, "api_key", None) == "sk-1"


def test_the_secret_of_notifications_may_be_a_file() -> None:
    notify = Notify(url="https://h.test", secret_file="/new", previous_secret_file="/old")
    files = {"/new": STANDARD.encode(), "/old": OTHER.encode()}
    platform = Platform(agents=[Agent("a")], notify=notify, secret_files=files)

    assert len(platform.registry.channels["notify"].codec.secrets) == 2


@pytest.mark.parametrize("key", ["url_env", "url_file"])
def test_the_url_of_a_database_may_be_a_secret(key: str) -> None:
    named: dict[str, Any] = {key: "DB_URL"}
    database = Database("main", **named)
    url = "postgresql://me:canary@db/legation"
    platform = Platform(
        databases=[database], environ={"DB_URL": url}, secret_files={"DB_URL": url.encode()}
    )

    assert platform.databases == {"main": url}
    assert "canary" not in repr(platform.registry)


def test_two_databases_of_one_url_are_found_behind_their_secrets() -> None:
    databases = [Database("one", url_env="ONE"), Database("two", url_env="TWO")]
    with pytest.raises(ConfigurationError, match=r"databases\.two\.url: is the database of"):
        Platform(databases=databases, environ={"ONE": "sqlite:///a.db", "TWO": "sqlite:///./a.db"})


@pytest.mark.parametrize(
    ("database", "fault"),
    [
        (Database("d"), "databases.d.url: missing: the URL, or url_env or url_file"),
        (Database("d", url_file="/no"), "databases.d.url_file: the file was not read: pass"),
        (
            Database("d", url_env="NO_URL"),
            "databases.d.url_env: the environment variable NO_URL is not set",
        ),
        (
            Database("d", "sqlite://", url_env="NO_URL"),
            "databases.d.url_env: is not allowed together with url",
        ),
        (
            Database("d", "sqlite://", url_file="/no"),
            "databases.d.url_file: is not allowed together with url",
        ),
    ],
)
def test_a_database_has_one_url(database: Database, fault: str) -> None:
    (found,) = faults(databases=[database])

    assert found.startswith(fault)


# --- faults, each with its path, none with a secret ----------------------------------------------


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (NoSecret("the file cannot be read: Permission denied"), "Permission denied"),
        (b"", "the file is empty"),
        (b"\n", "the file is empty"),
        (b"\xff\xfe", "the file is not UTF-8"),
        (b"x" * (MAX_SECRET_BYTES + 1), "the file is longer than 65536 bytes"),
    ],
    ids=["unreadable", "empty", "line feed", "not text", "huge"],
)
def test_a_file_that_is_no_secret_is_a_fault_of_its_key(content: Any, why: str) -> None:
    (fault,) = faults({"/run/help": content}, channels=[standard(secret_file="/run/help")])

    assert fault.startswith("channels.crm.secret_file: ")
    assert why in fault


def test_a_secret_is_named_once() -> None:
    twice: dict[str, Any] = {"secret_env": "HELP_SECRET", "secret_file": "/run/help"}
    said = "is not allowed together with secret_env: name the secret once"

    assert faults(channels=[standard(**twice)]) == [f"channels.crm.secret_file: {said}"]
    assert faults(notify=Notify(url="https://h.test", **twice)) == [f"notify.secret_file: {said}"]
    key: dict[str, Any] = {"api_key_env": "HELP_SECRET", "api_key_file": "/run/key"}
    assert faults(models=[OpenAIModel("m", "gpt", **key)]) == [
        "models.m.api_key_file: is not allowed together with api_key_env: name the secret once"
    ]


@pytest.mark.parametrize("key", ["secret_env", "secret_file", "previous_secret_env"])
@pytest.mark.parametrize("typed", [CANARY, STANDARD, "deadbeef" * 4, "A1B2C3D4E5F6", "s3cr3t_Word"])
def test_a_secret_that_was_typed_for_its_name_is_not_shown(key: str, typed: str) -> None:
    keys: dict[str, Any] = {"secret_env": "HELP_SECRET", key: typed}
    if key == "secret_file":
        del keys["secret_env"]
    of_model: dict[str, Any] = {f"api_key_{key.rpartition('_')[2]}": typed}
    told = [
        *faults(channels=[standard(**keys)]),
        *faults(notify=Notify(url="https://h.test", **keys)),
        *faults(models=[OpenAIModel("m", "gpt", **of_model)]),
    ]

    assert len(told) == 3
    assert typed not in json.dumps(told)


def test_a_variable_is_named_that_can_be_no_secret() -> None:
    (fault,) = faults(channels=[standard(secret_env="CRM_SIGNING_SECRET")])

    assert fault == (
        "channels.crm.secret_env: the environment variable CRM_SIGNING_SECRET is not set"
    )


def test_a_wrong_secret_of_a_file_is_a_fault_of_the_file() -> None:
    notify = Notify(url="https://h.test", secret_file="/run/hook")
    (fault,) = faults({"/run/hook": b"c2hvcnQ="}, notify=notify)

    assert fault == "notify.secret_file: a secret of Standard Webhooks has 24 to 64 bytes"


# --- without the secrets -------------------------------------------------------------------------

EVERYTHING: Final = PlatformConfig(
    databases=[Database("main", url_env="DB_URL")],
    models=[OpenAIModel("m", "gpt"), Model("w", "anthropic", "c", api_key_file="/run/w")],
    agents=[Agent("a", model="m")],
    channels=[
        standard(secret_env="CRM_SECRET"),
        TelegramChannel("t1", agent="a", secret_token_env="ONE", bot_token_env="BOT_ONE"),
        TelegramChannel("t2", agent="a", secret_token_env="TWO", bot_token_env="BOT_TWO"),
        SlackChannel("s", agent="a", signing_secret_file="/run/s", bot_token_file="/run/b"),
        WhatsAppChannel(
            "w",
            agent="a",
            phone_number_id="1",
            app_secret_env="APP_SECRET",
            verify_token_env="VERIFY",
            access_token_env="ACCESS",
            previous_app_secret_env="OLD",
        ),
    ],
    notify=Notify(url="https://h.test", secret_env="HOOK"),
    authorization=True,
)


def test_a_platform_that_is_not_served_needs_no_secret() -> None:
    platform = Platform.from_config(EVERYTHING, needs_secrets=False)

    assert [*platform.registry.channels] == ["crm", "t1", "t2", "s", "w", "notify"]
    assert [fault.path for fault in platform.missing] == [
        "databases.main.url_env",
        "models.m.api_key_env",
        "models.w.api_key_file",
        "channels.crm.secret_env",
        "channels.t1.secret_token_env",
        "channels.t1.bot_token_env",
        "channels.t2.secret_token_env",
        "channels.t2.bot_token_env",
        "channels.s.signing_secret_file",
        "channels.s.bot_token_file",
        "channels.w.app_secret_env",
        "channels.w.verify_token_env",
        "channels.w.access_token_env",
        "channels.w.previous_app_secret_env",
        "notify.secret_env",
        "authorization_config.verification_keys",
    ]
    assert platform.databases == {}
    assert platform.registry.weak == ()


def test_a_platform_without_its_secrets_is_not_served() -> None:
    platform = Platform.from_config(EVERYTHING, needs_secrets=False)

    with pytest.raises(ConfigurationError, match=r"channels\.crm\.secret_env"):
        play(platform.startup(), [])


def test_a_platform_without_a_key_refuses_every_token() -> None:
    config = PlatformConfig(authorization=True)
    platform = Platform.from_config(config, needs_secrets=False)
    decision = platform.explain(b"e30.e30.AA", "GET", "/agents", 0)

    assert (decision["allowed"], decision["reason"]) == (False, "token")


def test_what_is_wrong_is_wrong_without_the_secrets_too() -> None:
    config = evolve(EVERYTHING, channels=[standard(secret_env="A_B", secret_file="/x")])
    with pytest.raises(ConfigurationError, match="name the secret once"):
        Platform.from_config(config, needs_secrets=False)
    keys = AuthorizationConfig(["no key"])
    with pytest.raises(ConfigurationError, match="is not one public key"):
        Platform.from_config(
            PlatformConfig(authorization=True, authorization_config=keys), needs_secrets=False
        )


# --- paths, and the change of a file -------------------------------------------------------------


def test_every_file_of_a_tree_is_found_and_moved() -> None:
    config = structure(
        {
            "databases": {"main": {"url_file": "db"}},
            "models": {"m": {"provider": "openai", "id": "gpt", "api_key_file": "key"}},
            "notify": {"url": "https://h.test", "secret_file": "hook"},
            "authorization_config": {"jwks_file": "keys.json"},
            "channels": {
                "s": {
                    "kind": "slack",
                    "signing_secret_file": "sign",
                    "previous_signing_secret_file": "old",
                    "bot_token_file": "sign",
                }
            },
        }
    )

    assert secret_paths(config) == ("db", "hook", "key", "old", "sign")
    moved = with_secret_paths(config, lambda path: f"/etc/{path}")
    assert secret_paths(moved) == ("/etc/db", "/etc/hook", "/etc/key", "/etc/old", "/etc/sign")
    assert moved.authorization_config == config.authorization_config
    assert with_secret_paths(PlatformConfig(), str.upper) == PlatformConfig()


def changing() -> Platform:
    return Platform(
        models=[OpenAIModel("m", "gpt", api_key_file="/key")],
        agents=[Agent("a", model="m")],
        channels=[
            standard(secret_file="/crm"),
            SlackChannel("s", agent="a", signing_secret_file="/sign", bot_token_file="/bot"),
        ],
        secret_files={
            "/key": b"sk-1", "/crm": STANDARD.encode(), "/sign": b"one", "/bot": b"xoxb-1"
        },
    )  # fmt: skip


NEW: Final = {"/key": b"sk-2", "/crm": OTHER.encode(), "/sign": b"two", "/bot": b"xoxb-2"}


def test_changed_files_bring_new_secrets_at_once() -> None:
    platform = changing()
    assert not platform.knows_secrets(NEW)

    assert platform.load_secrets(NEW) == ()

    registry = platform.context.registry
    assert platform.knows_secrets(NEW)
    assert getattr(registry.agents["a"].model, "api_key", None) == "sk-2"
    assert getattr(registry.channels["crm"].codec, "secret", None) == OTHER
    assert registry.channels["s"].codec.secrets == (b"two",)
    request = platform.identities.questions["s"].request
    assert dict(request.headers)["authorization"] == "Bearer xoxb-2"


@pytest.mark.parametrize(
    "content",
    [b"", b"short", NoSecret("the file cannot be read: No such file or directory")],
    ids=["empty", "no secret", "gone"],
)
def test_broken_files_keep_the_old_secrets(content: Any) -> None:
    platform = changing()

    (fault,) = platform.load_secrets({**NEW, "/crm": content})

    assert fault.path.startswith("channels.crm")
    assert getattr(platform.context.registry.channels["crm"].codec, "secret", None) == STANDARD
    assert platform.context.registry.channels["s"].codec.secrets == (b"one",)


def test_a_model_that_was_replaced_stays_when_secrets_change() -> None:
    platform = changing()
    other = Platform(agents=[Agent("b")]).registry.agents["b"].model
    platform.replace_models(lambda _: other)

    assert platform.load_secrets(NEW) == ()

    assert platform.context.registry.agents["a"].model is other
    assert platform.context.registry.channels["s"].codec.secrets == (b"two",)


def test_weak_secrets_are_noted_with_their_key() -> None:
    weak = {fault.path for fault in changing().registry.weak}

    assert weak == {"channels.s.bot_token_file", "channels.s.signing_secret_file"}
