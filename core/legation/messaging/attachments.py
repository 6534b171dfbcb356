"""Attachments of a message: fetched, and handed to the run like an upload.

A file that cannot be had costs nobody the answer: the agent reads in its place that it could not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..channels.deliveries import Attachment, IncomingMessage
from ..channels.media import MOST_BYTES, fetch_media
from ..effects import Log, Program
from ..hosted.registry import HostedChannel
from ..http.bodies.file_types import Unidentified, identify
from ..http.bodies.media_types import MEDIA_TYPES, encode_file
from ..runs.files import find_unsent, read_out
from ..values import frozen

__all__ = ["MOST_FILES", "Attached", "attachments"]

MOST_FILES: Final = 10
"""Of one message."""

_WORDLESS: Final = "(The message has no text, only what is attached.)"
_UNREAD: Final = "({} was attached and could not be read: {}.)"
_TYPE: Final = "files of type {} are not read"
_MANY: Final = "there were too many"


@frozen
class Attached:
    """The words for the agent, and the files as members of the run's input, by their kind."""

    text: str
    files: Mapping[str, list[dict[str, Any]]]


def attachments(channel: HostedChannel, message: IncomingMessage, text: str) -> Program[Attached]:
    """Return what is attached to `message`, and `text` with a note on what could not be had."""
    files: dict[str, list[dict[str, Any]]] = {}
    notes: list[str] = []
    room = MOST_BYTES
    for number, media in enumerate(message.media):
        found: bytes | str = _MANY
        if number < MOST_FILES:
            found = yield from _content(channel, media, room)
        kept: str | dict[str, list[dict[str, Any]]]
        if isinstance(found, str):
            kept = found
        else:
            room -= len(found)
            kept = yield from _admit(channel, media, found)
        if isinstance(kept, str):
            notes.append(_UNREAD.format(media.name, kept))
            yield from _log_unread(channel, media, kept)
        else:
            for kind, items in kept.items():
                files.setdefault(kind, []).extend(items)
    words = text if text.strip() else _WORDLESS
    return Attached("\n\n".join((words, *notes)), files)


def _content(channel: HostedChannel, media: Attachment, room: int) -> Program[bytes | str]:
    if media.mime_type not in MEDIA_TYPES:
        return _TYPE.format(media.mime_type)
    return (yield from fetch_media(channel.codec, media, room))


def _admit(
    channel: HostedChannel, media: Attachment, data: bytes
) -> Program[dict[str, list[dict[str, Any]]] | str]:
    """Return a file as its kind, or in a few words why the agent cannot have it."""
    found = identify(media.name, media.mime_type, data)
    if isinstance(found, Unidentified):
        return f"it {found.reason}"
    kept = encode_file(media.name, found, data)
    files = yield from read_out(channel.component, {MEDIA_TYPES[found]: [kept]})
    return files if find_unsent(channel.component, files) is None else _TYPE.format(found)


def _log_unread(channel: HostedChannel, media: Attachment, reason: str) -> Program[None]:
    fields = (("channel", channel.id), ("type", media.mime_type), ("reason", reason))
    yield from Log("warning", "attachment_failed", fields)
