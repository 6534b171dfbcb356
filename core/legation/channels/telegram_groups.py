"""The addressing of messages in a Telegram group: which are for us, where other bots are present.

Source: core.telegram.org/bots/features, "Privacy mode" and "Global commands"; "MessageEntity" of
the Bot API.  A command with a name is for the bot of that name.  One without is for every bot
where it is a global command, and otherwise for us only if Telegram itself chose us: a bot in
privacy mode gets such a command when it was the last bot to write in the group.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..http.bodies.json_text import JsonObject, JsonValue
from ..values import frozen
from .identity import Identity
from .provider_values import at, identifier, objects, text_at

__all__ = ["FOR_ANOTHER", "NAME_UNKNOWN", "NOT_MENTIONED", "Addressee", "words_without_us"]

FOR_ANOTHER: Final = "for another bot"
NAME_UNKNOWN: Final = "own name not known"
NOT_MENTIONED: Final = "not mentioned"

_WORDS: Final = (("text", "entities"), ("caption", "caption_entities"))
_FOR_EVERY_BOT: Final = frozenset({"/start", "/help", "/settings", "/new", "/stop"})
"""Telegram's global commands, and ours."""

_SPACE: Final = " ".encode("utf-16-le")


@frozen
class _Mark:
    """A part of the words with a meaning; its place is in bytes of UTF-16."""

    kind: str
    words: str
    start: int
    end: int
    user: str

    @property
    def bot(self) -> str:
        """The bot that a command or a mention names, in lower case, or ""."""
        if self.kind in ("mention", "bot_command"):
            return self.words.partition("@")[2].lower()
        return ""


def _read_marks(message: JsonValue, words: str, entities: str) -> Iterator[_Mark]:
    units = text_at(message, words).encode("utf-16-le", "replace")
    for entity in objects(at(message, entities)):
        offset, length = entity.get("offset"), entity.get("length")
        if isinstance(offset, int) and isinstance(length, int) and offset >= 0 < length:
            start, end = 2 * offset, 2 * (offset + length)
            marked = units[start:end].decode("utf-16-le", "replace")
            user = identifier(at(entity, "user", "id"))
            yield _Mark(text_at(entity, "type"), marked, start, end, user)


@frozen
class Addressee:
    """Ourselves, as others name us in a group.

    Attributes:
        id: Of the bot, which its token has in it.
        identity: As Telegram says it, or None while that is not known.
    """

    id: str
    identity: Identity | None

    def find_reason(self, message: JsonObject, *, replies: bool, mentions_only: bool) -> str | None:
        """Return why `message`, in a group, is not for us; None where it is.

        Args:
            message: As Telegram sends it.
            replies: Whether it answers a message of ours.
            mentions_only: Whether we answer only what is meant for us.
        """
        marks = [mark for pair in _WORDS for mark in _read_marks(message, *pair)]
        begun = next((m.bot for m in marks if m.kind == "bot_command" and m.start == 0), "")
        if begun and self.identity is not None and not self._is_named(begun):
            return FOR_ANOTHER
        if replies or any(map(self._is_ours, marks)):
            return None
        if self.identity is None and (begun or (mentions_only and any(m.bot for m in marks))):
            return NAME_UNKNOWN
        return NOT_MENTIONED if mentions_only else None

    def _is_named(self, bot: str) -> bool:
        return self.identity is not None and bot == self.identity.name.lower()

    def _is_ours(self, mark: _Mark) -> bool:
        if mark.kind == "bot_command" and not mark.bot:
            chosen = self.identity is not None and self.identity.reads_groups is False
            return chosen or mark.words.lower() in _FOR_EVERY_BOT
        return self.is_us(mark)

    def is_us(self, mark: _Mark) -> bool:
        """Return whether `mark` names us."""
        return mark.user == self.id if mark.kind == "text_mention" else self._is_named(mark.bot)


def words_without_us(message: JsonObject, text: str, us: Addressee) -> str:
    """Return `text`, the words of `message`, without our name; as it is where nothing else is said.

    Of a command the name alone goes: `/new@desk_bot` becomes `/new`.
    """
    units = text.encode("utf-16-le", "replace")
    found = (
        m for pair in _WORDS if at(message, pair[0]) == text for m in _read_marks(message, *pair)
    )
    for mark in sorted(filter(us.is_us, found), key=_place, reverse=True):
        head, tail = units[: mark.start], units[mark.end :]
        if mark.kind == "bot_command":
            head += mark.words.partition("@")[0].encode("utf-16-le", "replace")
        elif head.endswith(_SPACE):
            tail = tail.removeprefix(_SPACE)
        units = head + tail
    return units.decode("utf-16-le", "replace").strip() or text


def _place(mark: _Mark) -> int:
    return mark.start
