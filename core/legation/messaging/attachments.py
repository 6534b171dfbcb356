"""Attachments of a message: fetched, and handed to the run like an upload.

A file that cannot be had costs nobody the answer: the agent reads in its place that it could not.
Where nothing else is left of the message, the person reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from attrs import define, field

from ..channels.deliveries import Attachment, IncomingMessage, may_be_read
from ..channels.media import MOST_BYTES, fetch_media
from ..effects import Log, Program
from ..hosted.registry import HostedChannel
from ..http.bodies.file_types import Unidentified, identify
from ..http.bodies.media_types import MEDIA_TYPES, encode_file
from ..runs.files import find_unsent, read_out
from ..values import frozen
from .unread import ABSENT, DAMAGED, MANY, MOST_FILES, Unread, refuse_content, refuse_type

__all__ = ["Attached", "attachments"]

_WORDLESS: Final = "(The message has no text, only what is attached.)"
_UNREAD: Final = "({} was attached and could not be read: {}.)"

Files: TypeAlias = dict[str, list[dict[str, Any]]]


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

    files: Files = field(factory=Files)
    notes: list[str] = field(factory=list[str])
    advice: dict[str, None] = field(factory=dict[str, None])
    room: int = MOST_BYTES

    def add(self, files: Files) -> None:
        for kind, items in files.items():
            self.files.setdefault(kind, []).extend(items)

    def miss(self, media: Attachment, unread: Unread) -> None:
        self.notes.append(_UNREAD.format(media.name, unread.reason))
        self.advice[unread.advice] = None


def attachments(channel: HostedChannel, message: IncomingMessage, text: str) -> Program[Attached]:
    """Return what is attached to `message`, and `text` with a note on what could not be had."""
    found = _Found()
    for number, media in enumerate(message.media):
        kept: Files | Unread = MANY
        if number < MOST_FILES:
            kept = yield from _read(channel, message, media, found)
        if isinstance(kept, Unread):
            found.miss(media, kept)
            yield from _log_unread(channel, media, kept)
        else:
            found.add(kept)
    words = text if text.strip() else ""
    if found.notes and not words and not found.files:
        return Attached("", {}, " ".join(found.advice))
    return Attached("\n\n".join((words or _WORDLESS, *found.notes)), found.files)


def _read(
    channel: HostedChannel, message: IncomingMessage, media: Attachment, found: _Found
) -> Program[Files | Unread]:
    """Return a file as its kind, or why the agent cannot have it."""
    if not media.id:
        return ABSENT
    if not may_be_read(media, message.kind):
        return refuse_type(media.mime_type)
    data = yield from fetch_media(channel.codec, media, found.room)
    if isinstance(data, str):
        return refuse_content(data)
    found.room -= len(data)
    return (yield from _admit(channel, media, data))


def _admit(channel: HostedChannel, media: Attachment, data: bytes) -> Program[Files | Unread]:
    kind = identify(media.name, media.mime_type, data)
    if isinstance(kind, Unidentified):
        return Unread(f"it {kind.reason}", DAMAGED)
    kept = encode_file(media.name, kind, data)
    files = yield from read_out(channel.component, {MEDIA_TYPES[kind]: [kept]})
    return files if find_unsent(channel.component, files) is None else refuse_type(kind)


def _log_unread(channel: HostedChannel, media: Attachment, unread: Unread) -> Program[None]:
    fields = (("channel", channel.id), ("type", media.mime_type), ("reason", unread.reason))
    yield from Log("warning", "attachment_failed", fields)
