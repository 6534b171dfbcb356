"""The kinds of models and of channels: a class for each, with the settings that it takes.

An editor completes these, and a type checker refuses a setting of another kind.  In a file the
kind is a key of the table: `provider` of a model, `kind` of a channel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, TypeGuard, cast

from attrs import field

from .values import frozen

__all__ = [
    "CHANNELS",
    "MODELS",
    "AnthropicModel",
    "CustomChannel",
    "EchoModel",
    "Identified",
    "OpenAIModel",
    "SlackChannel",
    "StandardChannel",
    "TelegramChannel",
    "Texts",
    "TextsOrNone",
    "WhatsAppChannel",
    "make_tuple",
    "strings",
    "texts_or_none",
    "texts_or_text",
]


Texts: TypeAlias = Annotated[tuple[str, ...], "one or several"]
"""One text, or several."""

TextsOrNone: TypeAlias = Annotated[tuple[str, ...] | None, "one or several"]


def _is_list(items: object) -> TypeGuard[Iterable[Any]]:
    return isinstance(items, Iterable) and not isinstance(items, str | bytes | Mapping)


def make_tuple(items: Any) -> Any:
    """Return `items` as a tuple; what is no list stays, for the sentence of `type_faults`."""
    return tuple(items) if _is_list(items) else items


# Named one by one: a type checker takes the type of an argument from its converter.
def strings(items: Iterable[str]) -> tuple[str, ...]:
    """Return texts as a tuple."""
    return cast(tuple[str, ...], make_tuple(items))


def texts_or_text(items: str | Iterable[str]) -> tuple[str, ...]:
    """Return texts as a tuple, of which one may stand alone."""
    return (items,) if isinstance(items, str) else strings(items)


def texts_or_none(items: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Return texts as a tuple, of which one may stand alone; or none."""
    return None if items is None else texts_or_text(items)


@frozen
class Identified:
    """Base of what has an id, which may be given without its keyword."""

    id: str


# --- models --------------------------------------------------------------------------------------


@frozen
class EchoModel:
    """A model that repeats what it is told, word by word; for tests and first tries.

    Attributes:
        name: Its name in the configuration.
        id: Its name for clients; unset, that is `name`.
        delay_seconds: The time that it takes for one answer.
    """

    provider: ClassVar[Literal["echo"]] = "echo"

    name: str
    id: str | None = None
    delay_seconds: float = field(default=0.0, kw_only=True)


@frozen
class _HostedModel:
    """Base of the models that a provider hosts.

    Attributes:
        name: Its name in the configuration.
        id: The provider's name for it.
        api_key_env: The environment variable that holds the key.  Unset, it is the provider's
            usual one, or none where there is a `base_url`.
        timeout_seconds: The time until an answer begins.
        idle_seconds: The time from one piece of an answer to the next.
        max_output_tokens: The length of an answer; unset, as the provider has it.
        retries: How often a request that failed is sent again.
        accepts: The media types of the files that it is sent; unset, as the provider takes them.
    """

    name: str
    id: str
    api_key_env: str | None = field(default=None, kw_only=True)
    timeout_seconds: float = field(default=120.0, kw_only=True)
    idle_seconds: float = field(default=120.0, kw_only=True)
    max_output_tokens: int | None = field(default=None, kw_only=True)
    retries: int = field(default=2, kw_only=True)
    accepts: TextsOrNone = field(default=None, converter=texts_or_none, kw_only=True)


@frozen(kw_only=True)
class OpenAIModel(_HostedModel):
    """A model that speaks OpenAI's chat completions, of OpenAI or at another `base_url`.

    Attributes:
        base_url: The address in front of `/chat/completions`.
        temperature: From 0 to 2; unset, as the provider has it.
    """

    provider: ClassVar[Literal["openai"]] = "openai"

    base_url: str | None = None
    temperature: float | None = None


@frozen(kw_only=True)
class AnthropicModel(_HostedModel):
    """A model that speaks Anthropic's messages.

    Attributes:
        base_url: The address in front of `/v1/messages`.
    """

    provider: ClassVar[Literal["anthropic"]] = "anthropic"

    base_url: str | None = None


# --- channels ------------------------------------------------------------------------------------


@frozen(kw_only=True)
class _Answered(Identified):
    """Base of the channels: one of `agent` and `team` answers.

    Attributes:
        id: It is served at `/{id}/webhook`.
        agent: The agent that answers.
        team: Or the team.
        apology: The text for a person whose message cannot be answered.
    """

    agent: str | None = None
    team: str | None = None
    apology: str | None = None


@frozen(kw_only=True)
class WhatsAppChannel(_Answered):
    """A number of WhatsApp's Cloud API.  Secrets are named by their environment variables."""

    kind: ClassVar[Literal["whatsapp"]] = "whatsapp"

    phone_number_id: str
    app_secret_env: str
    verify_token_env: str
    access_token_env: str
    previous_app_secret_env: str | None = None
    api_base_url: str | None = None


@frozen(kw_only=True)
class TelegramChannel(_Answered):
    """A bot of Telegram.  Secrets are named by their environment variables."""

    kind: ClassVar[Literal["telegram"]] = "telegram"

    secret_token_env: str
    bot_token_env: str
    previous_secret_token_env: str | None = None
    api_base_url: str | None = None
    mentions_only: bool | None = None


@frozen(kw_only=True)
class SlackChannel(_Answered):
    """An app of Slack.  Secrets are named by their environment variables."""

    kind: ClassVar[Literal["slack"]] = "slack"

    signing_secret_env: str
    bot_token_env: str
    previous_signing_secret_env: str | None = None
    api_base_url: str | None = None
    mentions_only: bool | None = None


@frozen(kw_only=True)
class StandardChannel(_Answered):
    """Any other system, by Standard Webhooks.  Secrets are named by their environment variables."""

    kind: ClassVar[Literal["standard"]] = "standard"

    secret_env: str
    reply_url: str
    previous_secret_env: str | None = None


@frozen(kw_only=True)
class CustomChannel(_Answered):
    """A channel of a kind that the application brings, with the settings of its codec.

    Attributes:
        kind: The `kind` of the codec.
        settings: Its fields; a secret by the environment variable that holds it, as `…_env`.
    """

    kind: str
    settings: Mapping[str, Any] = field(factory=dict[str, Any])


MODELS: Final[Mapping[str, type[Any]]] = {
    cls.provider: cls for cls in (EchoModel, OpenAIModel, AnthropicModel)
}
"""The class of each provider."""

CHANNELS: Final[Mapping[str, type[Any]]] = {
    cls.kind: cls for cls in (WhatsAppChannel, TelegramChannel, SlackChannel, StandardChannel)
}
"""The class of each kind of channels that is ours."""
