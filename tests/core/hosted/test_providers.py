"""Models as a configuration describes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from legation import Agent, Platform
from legation.config import Model
from legation.hosted.providers import model_of
from legation.hosted.secret_sources import SecretReader, SecretSources
from legation.models.anthropic import AnthropicMessages
from legation.models.chat_completions import ChatCompletions
from legation.models.conversation import ModelProtocol
from legation.models.echo import Echo
from legation_testing import Client

KEYS = {"OPENAI_API_KEY": "key-1", "ANTHROPIC_API_KEY": "key-2", "MINE": "key-3", "BAD": "key 4"}


def made(environ: dict[str, str] = KEYS, **settings: Any) -> tuple[ModelProtocol, list[str]]:
    faults: list[str] = []
    sources = SecretSources(environ)
    secrets = SecretReader(sources, lambda path, told: faults.append(f"{path}: {told}"))
    return model_of(Model("m", **settings), secrets), faults


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("openai", ChatCompletions(id="large", api_key="key-1")),
        ("anthropic", AnthropicMessages(id="large", api_key="key-2")),
    ],
)
def test_a_provider_needs_a_name_of_the_model_and_a_key(
    provider: str, expected: ModelProtocol
) -> None:
    assert made(provider=provider, id="large") == (expected, [])


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_every_setting_arrives(provider: str) -> None:
    settings: dict[str, Any] = {
        "base_url": "http://127.0.0.1:9",
        "timeout_seconds": 1.0,
        "idle_seconds": 2.0,
        "max_output_tokens": 3,
        "retries": 4,
        "accepts": ("application/pdf",),
    }
    if provider == "openai":
        settings["temperature"] = 0.5

    model, faults = made(provider=provider, id="m", api_key_env="MINE", **settings)

    assert faults == []
    assert {name: getattr(model, name) for name in settings} == settings
    assert getattr(model, "api_key", None) == "key-3"


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_an_endpoint_of_ones_own_is_sent_a_key_only_when_one_is_named(provider: str) -> None:
    model, faults = made(provider=provider, id="m", base_url="http://127.0.0.1:9")

    assert faults == []
    assert getattr(model, "api_key", "") is None


def test_echo_is_called_as_its_table_or_as_it_says() -> None:
    assert made(provider="echo", delay_seconds=2.0) == (Echo("m", 2.0), [])
    assert made(provider="echo", id="e") == (Echo("e"), [])


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"provider": "ollama"}, "models.m.provider: 'ollama' is none of: anthropic, echo, openai"),
        ({"provider": "openai"}, "models.m.id: missing: how the provider calls the model"),
        (
            {"provider": "openai", "id": "a", "api_key_env": "NONE"},
            "models.m.api_key_env: the environment variable NONE is not set",
        ),
        (
            {"provider": "openai", "id": "a", "api_key_env": "BAD"},
            "models.m: the API key holds white space, or what is not ASCII",
        ),
        (
            {"provider": "openai", "id": "a", "base_url": "localhost"},
            "models.m: base_url must be http://… or https://…, without user, query or fragment",
        ),
        (
            {"provider": "openai", "id": "a", "retries": 11},
            "models.m: retries must be 0 to 10",
        ),
        (
            {"provider": "openai", "id": "a", "delay_seconds": 1.0},
            "models.m.delay_seconds: is not allowed together with the provider openai",
        ),
        (
            {"provider": "anthropic", "id": "a", "temperature": 1.0},
            "models.m.temperature: is not allowed together with the provider anthropic",
        ),
        (
            {"provider": "echo", "retries": 1},
            "models.m.retries: is not allowed together with the provider echo",
        ),
        (
            {"provider": "echo", "api_key_env": "MINE"},
            "models.m.api_key_env: is not allowed together with the provider echo",
        ),
    ],
)
def test_a_fault_is_told_with_its_path_and_without_the_key(
    settings: dict[str, Any], fault: str
) -> None:
    _, faults = made(**settings)

    assert faults == [fault]


@pytest.mark.parametrize(
    ("provider", "variable"), [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")]
)
def test_the_usual_variable_is_named_when_it_is_not_set(provider: str, variable: str) -> None:
    _, faults = made({"OTHER": "x"}, provider=provider, id="m")

    assert faults == [f"models.m.api_key_env: the environment variable {variable} is not set"]


def test_clients_are_shown_the_models_and_no_key() -> None:
    platform = Platform(
        models=[Model("large", "openai", "gpt"), Model("small", "anthropic", "claude")],
        agents=[Agent(id="a", model="large"), Agent(id="b", model="small")],
        environ=KEYS,
    )
    with Client(platform) as client:
        shown = [agent["model"] for agent in client.get("/agents").json()]
        listed = client.get("/models").json()
        everything = json.dumps([shown, listed, client.get("/config").json()])

    assert shown == [
        {"name": "OpenAIChat", "model": "gpt", "provider": "OpenAI"},
        {"name": "Claude", "model": "claude", "provider": "Anthropic"},
    ]
    assert listed == [
        {"id": "gpt", "provider": "OpenAI"},
        {"id": "claude", "provider": "Anthropic"},
    ]
    assert "key-" not in everything
