"""What an agent says to a model and hears back, whatever the provider."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

from attrs import field, frozen

from ..effects import Program

__all__ = [
    "Image",
    "Listener",
    "Message",
    "ModelFailed",
    "ModelProtocol",
    "Prompt",
    "Reply",
    "ToolCall",
    "ToolSpec",
    "Usage",
    "storable",
]

_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")


def storable(text: str) -> str:
    """Return `text` without what has no UTF-8 or no place in a database."""
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
class Message:
    """One message of a conversation; `role` is system, user, assistant or tool.

    `calls` are what an assistant wanted called; the tool message that answers one of them has its
    id in `call_id`.  `images` stand beside the text of a user.
    """

    role: str
    content: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    images: tuple[Image, ...] = ()


@frozen
class ToolSpec:
    """A tool as a model is told of it; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@frozen
class Prompt:
    """What a model is asked: a conversation, tools to choose from, and the shape of the answer.

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
    """What a call cost, in tokens as the provider counts them."""

    input_tokens: int = 0
    output_tokens: int = 0


@frozen
class Reply:
    """The whole answer of one call: text, tools to call, or both."""

    content: str
    usage: Usage = Usage()
    calls: tuple[ToolCall, ...] = ()


class ModelFailed(Exception):
    """A model gave no answer that can be used.

    Attributes:
        reason: One word for programs: unreachable, timeout, rejected, rate_limited, refused,
            broken (half an answer, or nonsense), too_large, truncated, exhausted (a script's end).
        sentence: For the caller; holds nothing the provider said, and no address or key.
    """

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence


class Listener(Protocol):
    """Who follows an answer while it is made."""

    def hear(self, piece: str) -> None:
        """Take the next piece of the answer."""
        ...

    def settle(self) -> Program[None]:
        """Store and show what was heard; a model does this before it waits for more."""
        ...


class ModelProtocol(Protocol):
    """A model, as a codec: it says what to send and reads what came back."""

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
        """Who runs the model."""
        ...

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        """Answer `prompt`, telling the pieces of its text on the way.

        Raises:
            ModelFailed: There is no answer; what was heard until then stands.
        """
        ...
