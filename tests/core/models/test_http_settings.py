"""The settings of a model behind HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.models.anthropic import AnthropicMessages
from legation.models.chat_completions import ChatCompletions
from legation.models.conversation import Prompt
from legation.models.http_settings import PDF, HostedModel


def test_a_key_is_never_shown() -> None:
    model = HostedModel(id="m", base_url="https://example.org", api_key="k-123")

    assert "k-123" not in repr(model)
    assert "k-123" not in repr(model.question("/x", (("authorization", "k-123"),), b"k-123"))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"api_key": "k-123\n"}, "the API key holds"),
        ({"api_key": "ключ"}, "the API key holds"),
        ({"api_key": ""}, "the API key holds"),
        ({"base_url": "ftp://example.org"}, "base_url must be"),
        ({"base_url": "example.org"}, "base_url must be"),
        ({"base_url": "https://"}, "base_url must be"),
        ({"base_url": "https://user:k-123@example.org"}, "base_url must be"),
        ({"base_url": "https://@example.org"}, "base_url must be"),
        ({"base_url": "https://example.org?key=k-123"}, "base_url must be"),
        ({"base_url": "https://example.org#a"}, "base_url must be"),
        ({"base_url": "https://example.org:0"}, "base_url must be"),
        ({"base_url": "https://example.org:99999"}, "base_url must be"),
        ({"base_url": "https://[::1"}, "base_url must be"),
        ({"base_url": "https://example.org/a b"}, "base_url must be"),
        ({"base_url": "https://example.org\n"}, "base_url must be"),
        ({"timeout_seconds": 0}, "timeout_seconds must be more than 0"),
        ({"idle_seconds": -1}, "idle_seconds must be more than 0"),
        ({"timeout_seconds": float("nan")}, "timeout_seconds must be more than 0"),
        ({"timeout_seconds": float("inf")}, "timeout_seconds must be more than 0"),
        ({"max_output_tokens": 0}, "max_output_tokens must be more than 0"),
        ({"max_bytes": 0}, "max_bytes must be more than 0"),
        ({"retries": -1}, "retries must be 0 to 10"),
        ({"retries": 11}, "retries must be 0 to 10"),
        ({"accepts": ("audio/wav",)}, "accepts: 'audio/wav' can be sent to no model"),
        ({"accepts": ("*/*",)}, "accepts: "),
        ({"accepts": ("image/",)}, "accepts: "),
    ],
)
@pytest.mark.parametrize("kind", [ChatCompletions, AnthropicMessages])
def test_a_setting_that_cannot_be_meant(kind: Any, settings: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        kind(id="m", **settings)

    assert "k-123" not in str(caught.value)


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
def test_a_slash_at_the_end_makes_no_difference(path: str) -> None:
    model = HostedModel(id="m", base_url=f"http://[::1]:8000{path}")

    assert model.question("/x", (), b"").url == f"http://[::1]:8000{path.rstrip('/')}/x"


def test_the_lower_limit_of_tokens_counts() -> None:
    free, bound = (HostedModel(id="m", base_url="http://a", max_output_tokens=n) for n in (None, 5))

    assert free.token_limit(Prompt(())) is None
    assert bound.token_limit(Prompt(())) == 5
    assert bound.token_limit(Prompt((), max_tokens=3)) == 3
    assert bound.token_limit(Prompt((), max_tokens=9)) == 5


@given(st.text(max_size=30))
def test_any_address_is_taken_or_refused(url: str) -> None:
    for address in (url, f"https://{url}"):
        try:
            HostedModel(id="m", base_url=address)
        except ValueError as error:
            assert "base_url" in str(error)  # noqa: PT017 (it may also be taken)


@pytest.mark.parametrize(
    ("model", "takes"),
    [
        (ChatCompletions(id="m"), True),
        (ChatCompletions(id="m", base_url="https://eu.api.openai.com/v1"), True),
        (ChatCompletions(id="m", base_url="https://openrouter.ai/api/v1"), True),
        (ChatCompletions(id="m", base_url="https://notopenai.com/v1"), False),
        (ChatCompletions(id="m", base_url="http://127.0.0.1:8000/v1"), False),
        (ChatCompletions(id="m", base_url="http://127.0.0.1:8000", accepts=(PDF,)), True),
        (ChatCompletions(id="m", accepts=("image/*",)), False),
        (AnthropicMessages(id="m"), True),
        (AnthropicMessages(id="m", base_url="https://api.deepseek.com/anthropic"), False),
    ],
)
def test_a_pdf_is_sent_where_the_provider_is_known_to_take_it(model: Any, takes: bool) -> None:
    assert (PDF in model.accepts) == takes
    assert all(name == PDF or name.startswith("image/") for name in model.accepts)
