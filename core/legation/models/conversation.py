"""What an agent says to a model and hears back, whatever the provider."""

from __future__ import annotations

from typing import Protocol

from attrs import frozen

from ..effects import Program

__all__ = ["Listener", "Message", "ModelProtocol", "Reply", "Usage"]


@frozen
class Message:
    """One message of a conversation; `role` is system, user or assistant."""

    role: str
    content: str


@frozen
class Usage:
    """What a call cost, in tokens as the provider counts them."""

    input_tokens: int = 0
    output_tokens: int = 0


@frozen
class Reply:
    """The whole answer of one call."""

    content: str
    usage: Usage = Usage()


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

    def respond(self, messages: tuple[Message, ...], listener: Listener) -> Program[Reply]:
        """Answer `messages`, telling the pieces on the way."""
        ...
