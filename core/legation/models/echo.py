"""The built-in model that answers with the text it was given.

It needs no key and no network, and says the same thing every time: for a first try, for tests
and for measuring everything but the model.
"""

from __future__ import annotations

import re
from typing import Final

from ..effects import Program, Sleep
from ..values import frozen
from .conversation import Listener, Message, Prompt, Reply, Usage
from .media import describe

__all__ = ["Echo"]

# Matches everywhere, if only nothing: what is not a word is passed once, and never looked at again.
_WORD: Final = re.compile(r"\s*+\S*+")
_SILENCE: Final = Message("user", "")
_MOST_PIECES: Final = 1024
_LONGEST_BY_WORD: Final = 4096


@frozen
class Echo:
    """Repeats the last message of the user, word by word, after `delay_seconds`."""

    name = "Echo"
    provider = "Legation"
    accepts = ("*/*",)
    document_urls = True

    id: str = "echo"
    delay_seconds: float = 0.0

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        """Answer with the last message of the user, its files by name; a token is a word."""
        if self.delay_seconds:
            yield from listener.settle()
            yield from Sleep(self.delay_seconds)
        said = prompt.messages
        asked = next((m for m in reversed(said) if m.role == "user"), _SILENCE)
        text = "\n\n".join((asked.content, *map(describe, asked.documents)))
        for piece in _pieces(text):
            listener.hear(piece)
        words = len(text.split())
        heard = sum([words if m is asked else len(m.content.split()) for m in said])
        return Reply(text, Usage(heard, words))


def _pieces(text: str) -> list[str]:
    """Return `text` word by word; a long one in at most 1,024 pieces of one length.

    The white space before a word belongs to it, and to the last one also that behind it.
    """
    if len(text) > _LONGEST_BY_WORD:
        size = -(-len(text) // _MOST_PIECES)
        return [text[at : at + size] for at in range(0, len(text), size)]
    *words, _ = _WORD.findall(text)
    if len(words) > 1 and words[-1].isspace():
        words[-2:] = ["".join(words[-2:])]
    return words or [text]
