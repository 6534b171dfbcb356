"""The providers of models: the cheapest question to each, and the judgement of the answer.

It is the list of models, which no provider charges for.  Any answer says that the provider is
reached; only what it says against the key, and its own errors, are findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import urlsplit

from ..effects import Fetch, FetchReply, Now, Program, Unreachable
from ..findings import Finding, find
from ..hosted.providers import Codec
from ..hosted.registry import Component, Registry
from ..http.refusals import Fault
from ..http.retry_after import parse_http_date
from ..models.anthropic import AnthropicMessages
from ..models.chat_completions import ChatCompletions
from ..values import frozen
from .clocks import judge_clock

__all__ = ["Provider", "ask_provider", "find_providers", "judge_answer"]

SECOND_US: Final = 1_000_000
_WORDS: Final = {
    "connect": "no connection: its name is unknown, or nobody listens",
    "tls": "its certificate is not accepted, or TLS fails",
    "timeout": "no answer in time",
    "protocol": "what answers does not speak HTTP as it should",
}


@frozen
class Provider:
    """A provider that a model is asked of: `path` is the model's, `keyed` that it has its key."""

    path: str
    host: str
    question: Fetch
    keyed: bool


def find_providers(registry: Registry, missing: Iterable[Fault]) -> tuple[Provider, ...]:
    """Return the providers of all models that are in use, each address and key once."""
    lost = {fault.path.rpartition(".")[0] for fault in missing}
    found: dict[tuple[str, str | None], Provider] = {}
    for component in (*registry.agents.values(), *registry.teams.values()):
        for model in _models_of(component):
            key = (model.base_url, model.api_key)
            if key not in found:
                path = _find_path(registry, model)
                keyed = bool(model.api_key) and path not in lost
                host = urlsplit(model.base_url).netloc
                found[key] = Provider(path, host, model.list_models(with_key=keyed), keyed)
    return tuple(found.values())


def _models_of(component: Component) -> Iterator[Codec]:
    for model in (component.model, *component.fallback, component.summarizer):
        if isinstance(model, ChatCompletions | AnthropicMessages):
            yield model


def _find_path(registry: Registry, model: Codec) -> str:
    """Return the path of the table that describes `model`."""
    for named in registry.config.models:
        address = getattr(named, "base_url", None)
        if named.id == model.id and address in (None, model.base_url):
            return f"models.{named.name}"
    return f"models.{model.id}"


def ask_provider(provider: Provider) -> Program[tuple[Finding, ...]]:
    """Ask, and return what is wrong."""
    asked_us = yield from Now()
    answer = yield from provider.question
    now_us = yield from Now()
    return tuple(judge_answer(provider, answer, asked_us, now_us))


def judge_answer(
    provider: Provider, answer: FetchReply | Unreachable, asked_us: int, now_us: int
) -> Iterator[Finding]:
    """Yield what an answer, which came at `now_us`, says against the provider or the clock."""
    path, host = provider.path, provider.host
    if isinstance(answer, Unreachable):
        if answer.reason in _WORDS:  # else the list is longer than was to be read
            message = f"cannot be asked at {host}: {_WORDS[answer.reason]}"
            yield find("provider_unreachable", path, message)
        return
    if answer.status in (401, 403):
        if provider.keyed:
            message = f"has a key that {host} refuses, with status {answer.status}"
            yield find("provider_refuses_key", path, message)
    elif answer.status == 429 or answer.status >= 500:
        message = f"is asked at {host}, which answers with status {answer.status}"
        yield find("provider_failing", path, message)
    if (other_us := _read_date(answer)) is not None:
        middle_us, half_us = (asked_us + now_us) // 2, (now_us - asked_us) // 2
        yield from judge_clock(path, middle_us, other_us, half_us + SECOND_US)


def _read_date(answer: FetchReply) -> int | None:
    """Return the time in the header `Date` (RFC 9110 section 6.6.1); None of a stored answer."""
    if "age" in answer.headers:
        return None
    at_us = parse_http_date(answer.headers.get("date", "").strip())
    return None if at_us is None else at_us + SECOND_US // 2
