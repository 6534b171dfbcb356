"""The models of a configuration, made from its tables with every fault reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from attrs import fields

from ..config import Model
from ..models.anthropic import AnthropicMessages
from ..models.chat_completions import ChatCompletions
from ..models.conversation import ModelProtocol
from ..models.echo import Echo
from ..values import frozen

__all__ = ["model_of", "unset"]

Say: TypeAlias = Callable[[str, str], None]  # takes the path and the text of a fault


@frozen
class _Provider:
    """A provider of models: its codec, and the variable that has the key by default."""

    codec: type[ChatCompletions | AnthropicMessages]
    key: str


_HOSTED: Final[Mapping[str, _Provider]] = {
    "anthropic": _Provider(AnthropicMessages, "ANTHROPIC_API_KEY"),
    "openai": _Provider(ChatCompletions, "OPENAI_API_KEY"),
}
_KNOWN: Final = ", ".join(sorted(["echo", *_HOSTED]))
_DEFAULTS: Final[Mapping[str, Any]] = {a.name: a.default for a in fields(Model)}
_OF_ALL: Final = frozenset({"name", "provider", "id"})
_KEY: Final = "api_key_env"


def model_of(model: Model, environ: Mapping[str, str], say: Say) -> ModelProtocol:
    """Return the model that `model` describes; one that echoes where that has a fault."""
    path = f"models.{model.name}"
    echo = Echo(model.id or model.name, model.delay_seconds)
    if model.provider == "echo":
        _refuse(model, {"delay_seconds"}, path, say)
        return echo
    provider = _HOSTED.get(model.provider)
    if provider is None:
        say(f"{path}.provider", f"{model.provider!r} is none of: {_KNOWN}")
        return echo
    taken = {a.name for a in fields(provider.codec)}
    _refuse(model, {*taken, _KEY}, path, say)
    if not model.id:
        say(f"{path}.id", "missing: how the provider calls the model")
        return echo
    given = {name: getattr(model, name) for name in taken & _DEFAULTS.keys()}
    settings = {name: value for name, value in given.items() if value is not None}
    try:
        return provider.codec(api_key=_key(model, provider, environ, say), **settings)
    except ValueError as error:
        say(path, str(error))
        return echo


def _refuse(model: Model, taken: set[str], path: str, say: Say) -> None:
    """Tell of each setting that the provider has no use for."""
    for name in sorted(_DEFAULTS.keys() - taken - _OF_ALL):
        if getattr(model, name) != _DEFAULTS[name]:
            say(f"{path}.{name}", f"is not allowed together with the provider {model.provider}")


def _key(model: Model, provider: _Provider, environ: Mapping[str, str], say: Say) -> str | None:
    """Return the API key; an endpoint of one's own may ask for none."""
    variable = model.api_key_env or (None if model.base_url else provider.key)
    if variable is None:
        return None
    key = environ.get(variable)
    if not key:
        say(f"models.{model.name}.{_KEY}", unset(variable, environ))
    return key or None


def unset(variable: str, environ: Mapping[str, str]) -> str:
    """Return the sentence that says that a variable has no value, or that none was given."""
    if not environ:
        return f"the environment variable {variable} was not read: pass environ=os.environ"
    return f"the environment variable {variable} is not set"
