"""Attachments of a message: fetched, and handed to the run like an upload.

What is spoken in one becomes words, where the channel has a model that transcribes.

A file that cannot be had costs nobody the answer: the agent reads in its place that it could not.
Where nothing else is left of the message, the person reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import evolve, field

from ..channels.deliveries import Attachment, IncomingMessage, may_be_read
from ..channels.media import MOST_BYTES, fetch_media
from ..effects import Log, Program
from ..hosted.registry import HostedChannel
from ..http.bodies.file_types import Unidentified, identify
from ..http.bodies.media_types import MEDIA_TYPES, encode_file
from ..models.conversation import ModelFailed
from ..runs.files import find_unsent, read_out
from ..values import define, frozen
from .unread import (
    ABSENT,
    DAMAGED,
    MANY,
    MOST_FILES,
    SILENT,
    UNHEARD,
    Unread,
    refuse_content,
    refuse_type,
)

if TYPE_CHECKING:
    from ..models.transcription import Transcriber

__all__ = ["Attached", "attachments"]

_WORDLESS: Final = "(The message has no text, only what is attached.)"
_UNREAD: Final = "({} was attached and could not be read: {}.)"
_SPOKEN: Final = '"{}"\n(This was spoken in {}, and transcribed.)'

Files: TypeAlias = dict[str, list[dict[str, Any]]]
Keep: TypeAlias = Callable[[IncomingMessage], Program[None]]
"""Stores a message with what was learned of it."""


@frozen
class Attached:
    """The words for the agent, and the files as members of the run's input, by their kind.

    Where nothing is left for the agent, `advice` is for the person.
    """

    text: str
    files: Mapping[str, list[dict[str, Any]]]
    advice: str = ""


@define
class _Found:
    """The files of a message that were found until now, and the room for more."""

    channel: HostedChannel
    message: IncomingMessage
    keep: Keep
    files: Files = field(factory=Files)
    spoken: list[str] = field(factory=list[str])
    notes: list[str] = field(factory=list[str])
    advice: dict[str, None] = field(factory=dict[str, None])
    room: int = MOST_BYTES

    def merge(self, text: str) -> Attached:
        """Return what is left of the message, whose own words are `text`."""
        words = (*((text,) if text.strip() else ()), *self.spoken)
        if self.notes and not words and not self.files:
            return Attached("", {}, " ".join(self.advice))
        return Attached("\n\n".join((*(words or (_WORDLESS,)), *self.notes)), self.files)

    def take(self, place: int) -> Program[None]:
        """Take the file at `place` of the message, or note why it is not to be had."""
        media = self.message.media[place]
        missed = MANY if place >= MOST_FILES else (yield from self._read(place, media))
        if missed is not None:
            self.notes.append(_UNREAD.format(media.name, missed.reason))
            self.advice[missed.advice] = None
            yield from _log_unread(self.channel, media, missed)

    def _read(self, place: int, media: Attachment) -> Program[Unread | None]:
        if not media.id:
            return ABSENT
        if not may_be_read(media, self.message.kind):
            return refuse_type(media.mime_type)
        data = yield from fetch_media(self.channel.codec, media, self.room)
        if isinstance(data, str):
            return refuse_content(data)
        self.room -= len(data)
        kind = identify(media.name, media.mime_type, data)
        refused = yield from self._admit(media, kind, data)
        transcriber = self.channel.options.transcribe
        if transcriber is None or not _is_spoken(media, kind):
            return refused
        return (yield from self._hear(transcriber, place, data))

    def _admit(
        self, media: Attachment, kind: str | Unidentified, data: bytes
    ) -> Program[Unread | None]:
        """Add a file under its kind, unless the agent cannot have it."""
        if isinstance(kind, Unidentified):
            return Unread(f"it {kind.reason}", DAMAGED)
        component = self.channel.component
        kept = encode_file(media.name, kind, data)
        files = yield from read_out(component, {MEDIA_TYPES[kind]: [kept]})
        if find_unsent(component, files) is not None:
            return refuse_type(kind)
        for family, items in files.items():
            self.files.setdefault(family, []).extend(items)
        return None

    def _hear(self, transcriber: Transcriber, place: int, data: bytes) -> Program[Unread | None]:
        """Add what is spoken in a file; it is paid for once, whatever becomes of this attempt."""
        media = self.message.media[place]
        text = media.transcript
        if text is None:
            try:
                text = yield from transcriber.transcribe(data, media.mime_type)
            except ModelFailed:
                return UNHEARD
            yield from self._note(place, text)
        if not text:
            return SILENT
        self.spoken.append(_SPOKEN.format(text, media.name))
        return None

    def _note(self, place: int, text: str) -> Program[None]:
        media = list(self.message.media)
        media[place] = evolve(media[place], transcript=text)
        self.message = evolve(self.message, media=tuple(media))
        yield from self.keep(self.message)


def attachments(
    channel: HostedChannel, message: IncomingMessage, text: str, keep: Keep
) -> Program[Attached]:
    """Return what is attached to `message`, and `text` with a note on what could not be had.

    `keep` is called with the message as soon as something that costs money was learned of it.
    """
    found = _Found(channel, message, keep)
    for place in range(len(message.media)):
        yield from found.take(place)
    return found.merge(text)


def _is_spoken(media: Attachment, kind: str | Unidentified) -> bool:
    """Whether somebody may speak in a file: its content may be of a type that no run takes."""
    content = media.mime_type if isinstance(kind, Unidentified) else kind
    return media.mime_type.startswith("audio/") and content.startswith(("audio/", "video/"))


def _log_unread(channel: HostedChannel, media: Attachment, unread: Unread) -> Program[None]:
    fields = (("channel", channel.id), ("type", media.mime_type), ("reason", unread.reason))
    yield from Log("warning", "attachment_failed", fields)
