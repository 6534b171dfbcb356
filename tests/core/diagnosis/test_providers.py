"""The providers of models: who is asked what, and what an answer says."""

from __future__ import annotations

from typing import Any, Final

import pytest

from legation import Agent, AnthropicModel, EchoModel, OpenAIModel, Platform
from legation.config import PlatformConfig, Summaries
from legation.diagnosis.providers import Provider, ask_provider, find_providers, judge_answer
from legation.effects import Fetch, FetchReply, Now, Unreachable
from legation.models.anthropic import VERSION
from legation.models.chat_completions import ChatCompletions
from legation_testing import play

NOW_US: Final = 1_767_225_600_000_000
NOW: Final = "Thu, 01 Jan 2026 00:00:00 GMT"
LOCAL: Final = "http://127.0.0.1:9/v1"
MODELS: Final = (
    OpenAIModel("large", "gpt", api_key_env="OPENAI"),
    OpenAIModel("small", "gpt-mini", api_key_env="OPENAI"),
    OpenAIModel("local", "llama", base_url=LOCAL),
    AnthropicModel("wise", "claude", api_key_env="ANTHROPIC"),
    EchoModel("echo"),
)
KEYS: Final = {"OPENAI": "sk-1", "ANTHROPIC": "sk-2"}
PROVIDER: Final = Provider("models.m", "host", Fetch("GET", "https://host/models"), keyed=True)


def platform(environ: dict[str, str] = KEYS) -> Platform:
    config = PlatformConfig(
        models=MODELS,
        agents=[
            Agent("a", model="large", fallback=["wise"], summaries=Summaries(model="local")),
            Agent("b", model="small"),
            Agent("c", model=ChatCompletions(id="mine", base_url="http://127.0.0.1:8/v1")),
            Agent("d"),
        ],
    )
    return Platform.from_config(config, environ=environ, needs_secrets=False)


def test_each_provider_in_use_is_asked_once_for_its_models() -> None:
    found = find_providers(platform().registry, ())

    accept = ("accept", "application/json")
    assert [(one.path, one.question.url, one.question.headers, one.keyed) for one in found] == [
        (
            "models.large",
            "https://api.openai.com/v1/models",
            (accept, ("authorization", "Bearer sk-1")),
            True,
        ),
        (
            "models.wise",
            "https://api.anthropic.com/v1/models?limit=1",
            (accept, ("anthropic-version", VERSION), ("x-api-key", "sk-2")),
            True,
        ),
        ("models.local", f"{LOCAL}/models", (accept,), False),
        ("models.mine", "http://127.0.0.1:8/v1/models", (accept,), False),
    ]
    assert {one.question.method for one in found} == {"GET"}
    assert max(one.question.timeout_seconds for one in found) <= 5


def test_a_key_that_is_missing_is_not_sent() -> None:
    made = platform({})
    found = find_providers(made.registry, made.missing)

    assert not any(one.keyed for one in found)
    sent = {name for one in found for name, _ in one.question.headers}
    assert sent == {"accept", "anthropic-version"}


def test_a_provider_is_asked_between_two_looks_at_the_clock() -> None:
    script: list[tuple[Any, Any]] = [
        (Now(), NOW_US),
        (PROVIDER.question, FetchReply(500, {}, b"")),
        (Now(), NOW_US),
    ]

    assert [one.code for one in play(ask_provider(PROVIDER), script)] == ["provider_failing"]


def codes(answer: FetchReply | Unreachable, *, keyed: bool = True, took_us: int = 0) -> list[str]:
    provider = Provider("models.m", "host", PROVIDER.question, keyed)
    found = judge_answer(provider, answer, NOW_US - took_us, NOW_US)
    return [one.code for one in found]


@pytest.mark.parametrize("reason", ["connect", "tls", "timeout", "protocol"])
def test_a_provider_that_cannot_be_asked_is_named(reason: str) -> None:
    assert codes(Unreachable(reason)) == ["provider_unreachable"]


def test_a_list_that_is_too_long_is_an_answer() -> None:
    assert codes(Unreachable("too-large")) == []


@pytest.mark.parametrize(
    ("status", "keyed", "found"),
    [
        (200, True, []),
        (404, True, []),
        (401, True, ["provider_refuses_key"]),
        (403, True, ["provider_refuses_key"]),
        (401, False, []),
        (429, True, ["provider_failing"]),
        (500, False, ["provider_failing"]),
        (503, True, ["provider_failing"]),
    ],
)
def test_an_answer_is_judged_by_its_status(status: int, keyed: bool, found: list[str]) -> None:
    assert codes(FetchReply(status, {}, b""), keyed=keyed) == found


@pytest.mark.parametrize(
    ("headers", "took_us", "found"),
    [
        ({"date": NOW}, 0, []),
        ({"date": "Thu, 01 Jan 2026 00:00:05 GMT"}, 0, []),
        ({"date": "Thu, 01 Jan 2026 00:00:07 GMT"}, 0, ["clock_differs"]),
        ({"date": "Thu, 01 Jan 2026 00:00:07 GMT"}, 4_000_000, ["clock_differs"]),
        ({"date": "Wed, 31 Dec 2025 23:59:00 GMT"}, 0, ["clock_differs"]),
        ({"date": "Wed, 31 Dec 2025 23:59:00 GMT", "age": "60"}, 0, []),
        ({"date": "yesterday"}, 0, []),
        ({"date": "Thu, 99 Jan 2026 00:00:00 GMT"}, 0, []),
    ],
    ids=str,
)
def test_the_clock_is_compared_with_the_date_of_an_answer(
    headers: dict[str, str], took_us: int, found: list[str]
) -> None:
    assert codes(FetchReply(200, headers, b""), took_us=took_us) == found
