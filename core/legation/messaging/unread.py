"""The files that an agent cannot have, in words: a note for the agent, advice for the person.

The agent reads the note beside the rest of a message.  Where nothing else is left of it there is
nothing to ask the agent, and the person reads what to do.
"""

from __future__ import annotations

from typing import Final

from ..channels.media import FAILED, GONE, TOO_LARGE
from ..values import frozen

__all__ = [
    "ABSENT",
    "DAMAGED",
    "MANY",
    "MOST_FILES",
    "SILENT",
    "UNHEARD",
    "Unread",
    "refuse_content",
    "refuse_type",
]

MOST_FILES: Final = 10
"""Of one message."""

DAMAGED: Final = "I cannot open the file. Please send it in another format, or write to me instead."

_AGAIN: Final = "I could not get the file. Please send it again, or write to me instead."
_ADVICE: Final = {
    TOO_LARGE: "The file is too large for me. Please send one of at most 10 MB, or write to me"
    " instead.",
    GONE: _AGAIN,
    FAILED: _AGAIN,
}
_FAMILIES: Final = {
    "audio": "I cannot listen to voice messages.",
    "video": "I cannot watch videos.",
}
_OTHERS: Final = "I cannot read files of this type ({})."
_INSTEAD: Final = "{} Please write to me instead."


@frozen
class Unread:
    """A file that is not read.

    Attributes:
        reason: In a few words, for the agent and for the log.
        advice: For the person, who reads it where nothing is left of the message.
    """

    reason: str
    advice: str


UNHEARD: Final = Unread(
    "what is spoken in it could not be transcribed",
    "I could not listen to your voice message. Please send it again later, or write to me instead.",
)
SILENT: Final = Unread(
    "nothing is spoken in it",
    "I heard no words in your voice message. Please say it again, or write to me instead.",
)
ABSENT: Final = Unread(
    "it does not come through this channel", "I cannot get files here. Please write to me instead."
)
MANY: Final = Unread(
    "there were too many", f"Please send at most {MOST_FILES} files in one message."
)


def refuse_type(mime_type: str) -> Unread:
    """Return why a file of a type is not read that nobody here takes."""
    family = mime_type.partition("/")[0]
    said = _FAMILIES.get(family) or _OTHERS.format(mime_type)
    return Unread(f"files of type {mime_type} are not read", _INSTEAD.format(said))


def refuse_content(reason: str) -> Unread:
    """Return why a file is not read whose content could not be had, for one of those reasons."""
    return Unread(reason, _ADVICE[reason])
