"""The media types of files that a run takes, from an upload or from a message."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["MEDIA_TYPES", "encode_file"]

# What AgentOS takes, by the kind it becomes.
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


def encode_file(name: str, mime_type: str, data: bytes) -> dict[str, Any]:
    """Return a file as the input of a run keeps it; its content is base64 (RFC 4648)."""
    return {
        "filename": name,
        "mime_type": mime_type,
        "size": len(data),
        "content": b64encode(data).decode("ascii"),
    }
