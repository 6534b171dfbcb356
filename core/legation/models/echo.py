"""The built-in model that answers with the text it was given.

It needs no key and no network, and says the same thing every time: for a first try, for tests
and for measuring everything but the model.
"""

from __future__ import annotations

import re
from typing import Final

from ..effects import Program, Sleep
from ..values import frozen
from .conversation import Listener, Prompt, Reply, Usage

__all__ = ["Echo"]

_WORD: Final = re.compile(r"\s*\S+\s*$|\s*\S+")


@frozen
class Echo:
    """Repeats the last message of the user, word by word, after `delay_seconds`."""

    id: str = "echo"
    delay_seconds: float = 0.0

    @property
    def name(self) -> str:
        """Return the name shown to clients."""
        return "Echo"

    @property
    def provider(self) -> str:
        """Return the provider shown to clients."""
        return "Legation"

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        """Answer with the last message of the user; a token is a word."""
        if self.delay_seconds:
            yield from listener.settle()
            yield from Sleep(self.delay_seconds)
        said = prompt.messages
        text = next((m.content for m in reversed(said) if m.role == "user"), "")
        words = _WORD.findall(text) or [text]
        for word in words:
            listener.hear(word)
        heard = sum(len(message.content.split()) for message in said)
        return Reply("".join(words), Usage(heard, len(text.split())))
