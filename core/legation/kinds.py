"""The kinds of models and of channels: a class for each, with the settings that it takes.

An editor completes these, and a type checker refuses a setting of another kind.  In a file the
kind is a key of the table: `provider` of a model, `kind` of a channel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, TypeGuard, cast

from attrs import field

from .values import frozen

__all__ = [
    "CHANNELS",
    "MODELS",
    "AnthropicModel",
    "CustomChannel",
    "EchoModel",
    "FunctionLike",
    "Identified",
    "OpenAIModel",
    "Sender",
    "SessionOf",
    "SlackChannel",
    "StandardChannel",
    "SubjectsLike",
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
        api_key_file: Or the file that holds it.
        timeout_seconds: The time until an answer begins.
        idle_seconds: The time from one piece of an answer to the next.
        max_output_tokens: The length of an answer; unset, as the provider has it.
        retries: How often a request that failed is sent again.
        accepts: The media types of the files that it is sent; unset, as the provider takes them.
    """

    name: str
    id: str
    api_key_env: str | None = field(default=None, kw_only=True)
    api_key_file: str | None = field(default=None, kw_only=True)
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


SessionOf: TypeAlias = Literal["thread and person", "thread", "person"]
"""Who has a session of its own in a channel."""


FunctionLike: TypeAlias = str | Callable[..., Any]
"""A function; a file names it as `module:attribute`."""

SubjectsLike: TypeAlias = Mapping[str, str] | FunctionLike
"""The subjects that people are, by their ids; or a function that knows them."""


@frozen(kw_only=True)
class Sender:
    """The sender of a message in a channel, as a function of the application is given it.

    Attributes:
        channel: The id of the channel.
        id: Of the sender at the provider, which signs it.
        name: That the sender gives itself, or "".
        conversation: Where it was written: a chat, a Slack channel.
        thread: Within the conversation, or "".
        in_group: Whether others read there, too.
    """

    channel: str
    id: str
    name: str = ""
    conversation: str = ""
    thread: str = ""
    in_group: bool = False


@frozen(kw_only=True)
class _Answered(Identified):
    """Base of the channels: one of `agent` and `team` answers.

    Attributes:
        id: It is served at `/{id}/webhook`.
        agent: The agent that answers.
        team: Or the team.
        apology: The text for a person whose message cannot be answered.
        show_typing: Whether the person sees that a run works on their message.
        stream_answers: Whether the person reads the answer as it grows, where messages can be
            edited.
        approve: Who may answer a paused run in the chat: `sender`, ids of people, or `nobody`.
        session: Who has a session: each person in each thread, all who write in a `thread`, or
            each `person` wherever it writes.
        allow: The ids of the people who are answered; everybody is unless it is given.
        waiting: How many messages of one person may wait; 0 for any number.
        subjects: The subjects that people are, by their ids: their direct chats are those of it.
            Or a function that returns the subject of a `sender`, or None.
        router: A function that returns the id of one of `agents`, who is to answer: of a `sender`,
            the `text`, and the `agent` who has answered.
        agents: Other agents or teams, by the commands with which a conversation with one begins.
        commands: Whether `/new`, `/help`, `/start` and `/stop` are answered without a run.
        transcribe: The model that makes text of voice messages, by its name.
        gather_seconds: For how long messages of one person are gathered, to be one for the agent.
    """

    agent: str | None = None
    team: str | None = None
    apology: str | None = None
    show_typing: bool = False
    stream_answers: bool = False
    approve: Texts = field(default=("nobody",), converter=texts_or_text)
    session: SessionOf = "thread and person"
    commands: bool = True
    allow: TextsOrNone = field(default=None, converter=texts_or_none)
    waiting: int = 100
    subjects: SubjectsLike = field(factory=dict[str, str])
    router: FunctionLike | None = None
    agents: Mapping[str, str] = field(factory=dict[str, str])
    transcribe: str | None = None
    gather_seconds: float = 0.0


@frozen(kw_only=True)
class WhatsAppChannel(_Answered):
    """A number of WhatsApp's Cloud API.

    A secret is named by its variable (`…_env`) or its file.
    """

    kind: ClassVar[Literal["whatsapp"]] = "whatsapp"

    phone_number_id: str
    app_secret_env: str | None = None
    app_secret_file: str | None = None
    verify_token_env: str | None = None
    verify_token_file: str | None = None
    access_token_env: str | None = None
    access_token_file: str | None = None
    previous_app_secret_env: str | None = None
    previous_app_secret_file: str | None = None
    api_base_url: str | None = None


@frozen(kw_only=True)
class TelegramChannel(_Answered):
    """A bot of Telegram.  A secret is named by its variable (`…_env`) or its file."""

    kind: ClassVar[Literal["telegram"]] = "telegram"

    secret_token_env: str | None = None
    secret_token_file: str | None = None
    bot_token_env: str | None = None
    bot_token_file: str | None = None
    previous_secret_token_env: str | None = None
    previous_secret_token_file: str | None = None
    api_base_url: str | None = None
    mentions_only: bool | None = None


@frozen(kw_only=True)
class SlackChannel(_Answered):
    """An app of Slack.  A secret is named by its variable (`…_env`) or its file."""

    kind: ClassVar[Literal["slack"]] = "slack"

    signing_secret_env: str | None = None
    signing_secret_file: str | None = None
    bot_token_env: str | None = None
    bot_token_file: str | None = None
    previous_signing_secret_env: str | None = None
    previous_signing_secret_file: str | None = None
    api_base_url: str | None = None
    mentions_only: bool | None = None


@frozen(kw_only=True)
class StandardChannel(_Answered):
    """Any other system, by Standard Webhooks.

    A secret is named by its variable (`…_env`) or its file.
    """

    kind: ClassVar[Literal["standard"]] = "standard"

    secret_env: str | None = None
    secret_file: str | None = None
    reply_url: str
    previous_secret_env: str | None = None
    previous_secret_file: str | None = None


@frozen(kw_only=True)
class CustomChannel(_Answered):
    """A channel of a kind that the application brings, with the settings of its codec.

    Attributes:
        kind: The `kind` of the codec.
        settings: Its fields; a secret by the variable that holds it, as `…_env`, or by its file.
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
