"""The models of a configuration, made from its tables with every fault reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from attrs import asdict, fields

from .. import models
from ..config import AnyModel
from ..models.conversation import ModelProtocol
from ..models.echo import Echo
from ..values import frozen
from .abilities import is_duration
from .secret_sources import SecretReader

if TYPE_CHECKING:
    from ..models.anthropic import AnthropicMessages
    from ..models.chat_completions import ChatCompletions

__all__ = ["Codec", "model_of"]

Codec: TypeAlias = "ChatCompletions | AnthropicMessages"
"""The models of a provider, which can be asked for the list of them."""

Say: TypeAlias = Callable[[str, str], None]  # takes the path and the text of a fault


@frozen
class _Provider:
    """A provider of models: its codec, and the variable that has the key by default."""

    find_codec: Callable[[], type[Codec]]
    key: str


_HOSTED: Final[Mapping[str, _Provider]] = {
    "anthropic": _Provider(lambda: models.anthropic.AnthropicMessages, "ANTHROPIC_API_KEY"),
    "openai": _Provider(lambda: models.chat_completions.ChatCompletions, "OPENAI_API_KEY"),
}
_KNOWN: Final = ", ".join(sorted(["echo", *_HOSTED]))
_OF_ALL: Final = frozenset({"name", "provider", "id"})
_KEY: Final = "api_key"


def model_of(model: AnyModel, secrets: SecretReader) -> ModelProtocol:
    """Return the model that `model` describes; one that echoes where that has a fault."""
    say = secrets.say
    path = f"models.{model.name}"
    delay = getattr(model, "delay_seconds", 0.0)
    echo = Echo(model.id or model.name, delay)
    if delay != 0 and not is_duration(delay):
        say(f"{path}.delay_seconds", "must be a finite number of at least 0")
    if model.provider == "echo":
        _refuse(model, {"delay_seconds"}, path, say)
        return echo
    provider = _HOSTED.get(model.provider)
    if provider is None:
        say(f"{path}.provider", f"{model.provider!r} is none of: {_KNOWN}")
        return echo
    codec = provider.find_codec()
    taken = {a.name for a in fields(codec)}
    _refuse(model, {*taken, f"{_KEY}_env", f"{_KEY}_file"}, path, say)
    if not model.id:
        say(f"{path}.id", "missing: how the provider calls the model")
        return echo
    given: Mapping[str, Any] = asdict(model, recurse=False)
    settings = {name: given[name] for name in taken & given.keys() if given[name] is not None}
    try:
        return codec(api_key=_key(path, given, provider, secrets), **settings)
    except ValueError as error:
        say(path, str(error))
        return echo


def _refuse(model: AnyModel, taken: set[str], path: str, say: Say) -> None:
    """Tell of each setting that the provider has no use for."""
    defaults = {a.name: a.default for a in fields(cast(Any, type(model)))}
    for name in sorted(defaults.keys() - taken - _OF_ALL):
        if getattr(model, name) != defaults[name]:
            say(f"{path}.{name}", f"is not allowed together with the provider {model.provider}")


def _key(
    path: str, given: Mapping[str, Any], provider: _Provider, secrets: SecretReader
) -> str | None:
    """Return the API key; an endpoint of one's own may ask for none."""
    variable, file = given[f"{_KEY}_env"], given[f"{_KEY}_file"]
    if variable is None and file is None and not given["base_url"]:
        variable = provider.key
    return secrets.read(f"{path}.{_KEY}", variable, file, least=0)  # the provider has chosen it
