"""The media of a run: uploads, and what clients send as JSON in their place."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from ..bodies import Reader, Upload
from ..refusals import BadRequest

__all__ = ["MEDIA_TYPES", "Media", "read_media"]

# What the reference system takes, by the kind it becomes.
MEDIA_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            *("image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp", "image/bmp"),
            *("image/tiff", "image/avif", "image/heic", "image/heif"),
        ),
        "images",
    ),
    **dict.fromkeys(
        (
            *("audio/wav", "audio/x-wav", "audio/mp3", "audio/mpeg", "audio/ogg", "audio/mp4"),
            *("audio/m4a", "audio/x-m4a", "audio/aac", "audio/flac"),
        ),
        "audio",
    ),
    **dict.fromkeys(
        (
            *("video/mp4", "video/webm", "video/quicktime", "video/mov", "video/x-flv"),
            *("video/flv", "video/wmv", "video/x-ms-wmv", "video/mpeg", "video/mpegs"),
            *("video/mpg", "video/3gpp"),
        ),
        "videos",
    ),
    **dict.fromkeys(
        (
            *("application/pdf", "application/json", "text/plain", "text/html", "text/css"),
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            *("text/md", "text/markdown", "text/csv", "text/xml", "application/xml", "text/rtf"),
            *("application/rtf", "text/javascript", "application/javascript"),
            *("application/x-javascript", "text/x-python", "application/x-python"),
        ),
        "files",
    ),
}
_KINDS: Final = ("images", "audio", "videos", "files")


@frozen
class Media:
    """The media that were sent; kinds of which there are none are absent."""

    by_kind: Mapping[str, list[dict[str, Any]]]


def read_media(read: Reader) -> Media | BadRequest:
    """Take the fields of media from `read`, which hears of every other fault.

    An empty upload is no file: browsers send one for a field that was left alone.
    """
    by_kind = {kind: _listed(read, kind) for kind in _KINDS}
    for upload in read.uploads("files"):
        kind = MEDIA_TYPES.get(upload.content_type.lower())
        if not upload.data:
            continue
        if kind is None:
            return BadRequest("Unsupported file type")
        by_kind[kind].append(_stored(upload))
    return Media({kind: items for kind, items in by_kind.items() if items})


def _listed(read: Reader, kind: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for index, item in enumerate(read.json_list(kind) or ()):
        if isinstance(item, dict):
            items.append(item)
        else:
            read.fault(f"{kind}[{index}]", "must be a JSON object")
    return items


def _stored(upload: Upload) -> dict[str, Any]:
    return {
        "filename": upload.filename,
        "mime_type": upload.content_type,
        "size": len(upload.data),
        "content": b64encode(upload.data).decode("ascii"),
    }
