"""The conversation with a model: prompt, reply and tool calls, whatever the provider."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

from attrs import field

from ..effects import Program
from ..values import frozen

__all__ = [
    "NO_USAGE",
    "Document",
    "Image",
    "Listener",
    "Message",
    "ModelFailed",
    "ModelProtocol",
    "Prompt",
    "Reply",
    "SilentListener",
    "Thought",
    "ToolCall",
    "ToolSpec",
    "Usage",
    "storable",
]

_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")


def storable(text: str) -> str:
    """Return `text` without what has no UTF-8 or no place in a database."""
    if text.isascii() and "\0" not in text:  # a hundred times as fast as the pattern
        return text
    return _UNSTORABLE.sub("\ufffd", text)


@frozen
class ToolCall:
    """A tool that the model wants called; `arguments` is the text it gave, meant as JSON."""

    id: str
    name: str
    arguments: str


@frozen
class Image:
    """A picture to look at: its bytes in base64 and their media type, or a URL."""

    media_type: str = ""
    data: str = field(default="", repr=False)
    url: str | None = None


@frozen
class Document:
    """A file to read: its bytes in base64, or a URL, and what was read out of it as text.

    Attributes:
        name: As it can be shown, without control characters.
        media_type: The type of its content.
        data: Empty where the bytes are elsewhere.
        text: For models that take no such files; None where nothing was read out.
    """

    name: str
    media_type: str
    data: str = field(default="", repr=False)
    url: str | None = None
    text: str | None = field(default=None, repr=False)


@frozen
class Thought:
    """A thought of a model before its calls, which is sent back to that model and nobody else.

    The provider signs it, so nothing of it may change: neither its content nor its place.

    Attributes:
        model: The id of the model whose it is.
        block: As the provider wrote it, a JSON text in ASCII: whatever is in it can be stored.
        characters: How much of the text of the answer stands before it.
        calls: How many of the calls do.
    """

    model: str
    block: str = field(repr=False)
    characters: int = 0
    calls: int = 0


@frozen
class Message:
    """One message of a conversation; `role` is system, user, assistant or tool.

    `calls` are what an assistant wanted called, and `thoughts` what it thought on the way there;
    the tool message that answers a call has its id in `call_id`.  `images` and `documents` stand
    beside the text of a user.  `reasoning` is the visible part of an assistant's thoughts; no model
    reads it.
    """

    role: str
    content: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    images: tuple[Image, ...] = ()
    thoughts: tuple[Thought, ...] = ()
    reasoning: str = field(default="", repr=False)
    documents: tuple[Document, ...] = ()


@frozen
class ToolSpec:
    """The description of a tool for a model; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@frozen
class Prompt:
    """A question to a model: a conversation, tools to choose from, and the shape of the answer.

    `output_schema`: the answer is to be JSON that satisfies it.  `max_tokens` bounds the answer.
    `tool_choice` names the one tool that must be called, `*` any; None leaves it to the model.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    output_schema: Mapping[str, Any] | None = None
    max_tokens: int | None = None
    tool_choice: str | None = None


@frozen
class Usage:
    """The cost of a call, in tokens as the provider counts them.

    Of the input, `cache_read_tokens` came from the provider's cache and `cache_write_tokens` went
    into it; of the output, `reasoning_tokens` were thought and not said.  `cost_nano` is the price
    in nano-USD; None where nobody knows it.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_nano: int | None = field(default=None, kw_only=True)

    @property
    def total_tokens(self) -> int:
        """All that went in and came out."""
        return self.input_tokens + self.output_tokens

    def plus(self, other: Usage) -> Usage:
        """Return the sum of both; a cost that nobody knows adds nothing."""
        if self is NO_USAGE:  # as before the first request of a turn
            return other
        known = self.cost_nano is not None or other.cost_nano is not None
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            cost_nano=(self.cost_nano or 0) + (other.cost_nano or 0) if known else None,
        )


NO_USAGE: Final = Usage()
"""The usage of what nobody asked a model for: known by itself, so that no other means it."""

_NOT_REPORTED: Final = Usage()


@frozen
class Reply:
    """The whole answer of one call: text, tools to call, or both.

    `thoughts` are those that lead to the calls, and have to be sent again with them.  `reasoning`
    is the visible part of the model's thoughts, for people to read.
    """

    content: str
    usage: Usage = Usage()
    calls: tuple[ToolCall, ...] = ()
    thoughts: tuple[Thought, ...] = ()
    reasoning: str = field(default="", repr=False)


class ModelFailed(Exception):
    """A model gave no answer that can be used.

    Attributes:
        reason: One word for programs: unreachable, timeout, rejected, rate_limited, refused,
            broken (half an answer, or nonsense), too_large, truncated, failed (a function raised),
            exhausted (a script's end).
        sentence: For the caller; holds nothing the provider said, and no address or key.
        usage: What was paid for nothing, as far as the provider reported it.
    """

    def __init__(self, reason: str, sentence: str, usage: Usage = _NOT_REPORTED) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence
        self.usage = usage

    def describe(self) -> tuple[tuple[str, str | int], ...]:
        """Return what the operator is told beside the reason, as fields of the log."""
        return ()


class Listener(Protocol):
    """A listener follows an answer while it is made."""

    def listen(self) -> None:
        """Begin anew with the answer: the pieces until now are no part of it."""
        ...

    def hear(self, piece: str) -> None:
        """Take the next piece of the answer."""
        ...

    def think(self, piece: str) -> None:
        """Take the next piece of the visible part of the model's thoughts."""
        ...

    def settle(self) -> Program[None]:
        """Store and show what was heard; a model does this before it waits for more."""
        ...


@frozen
class SilentListener:
    """A listener to an answer that nobody hears: of a judge, a transcript, one that is recorded."""

    def listen(self) -> None:
        """Do nothing."""

    def hear(self, piece: str) -> None:
        """Do nothing."""

    def think(self, piece: str) -> None:
        """Do nothing."""

    def settle(self) -> Program[None]:
        """Store nothing."""
        yield from ()


class ModelProtocol(Protocol):
    """A model, as a codec: it says what to send and reads what came back.

    One that can read files has `accepts`, too: their media types, as `("image/*",)`, which is
    taken to be meant where it is absent (`models/media`).  One that cannot call tools, or cannot
    answer in a shape, says so: `takes_tools` or `takes_schema` is False.
    """

    @property
    def id(self) -> str:
        """The provider's name for the model."""
        ...

    @property
    def name(self) -> str:
        """The name of the protocol's implementation, shown beside the provider."""
        ...

    @property
    def provider(self) -> str:
        """The provider that runs the model."""
        ...

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        """Answer `prompt`, telling the pieces of its text on the way.

        Raises:
            ModelFailed: There is no answer; what was heard until then stands.
        """
        ...
