"""The media types and the content of files that a run takes, by upload or by message."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

__all__ = [
    "MEDIA_TYPES",
    "PDF",
    "TEXT",
    "WORD",
    "clean_name",
    "decode_base64",
    "decode_content",
    "decode_text",
    "encode_file",
    "is_text_type",
    "normalize",
]

PDF: Final = "application/pdf"
WORD: Final = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"

TEXT: Final = "text"
"""The member of a file, in the input of a run, that is the text which was read out of it."""

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
            *(PDF, "application/json", "text/plain", "text/html", "text/css", WORD),
            *("text/md", "text/markdown", "text/csv", "text/xml", "application/xml", "text/rtf"),
            *("application/rtf", "text/javascript", "application/javascript"),
            *("application/x-javascript", "text/x-python", "application/x-python"),
        ),
        "files",
    ),
}

_TEXTS: Final = frozenset(
    media_type
    for media_type, kind in MEDIA_TYPES.items()
    if kind == "files" and media_type not in (PDF, WORD)
)

_UNICODE: Final = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_CONTROLS: Final = re.compile("[\x01-\x08\x0e-\x1a\x1c-\x1f]")  # ESC is the one of terminals
_UNFIT: Final = re.compile(
    # Controls, what has no UTF-8, and what turns the direction of the text around it.
    "[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_LONGEST_NAME: Final = 200


def normalize(media_type: str) -> str:
    """Return a media type in lower case, without its parameters (RFC 9110 section 8.3.1)."""
    return media_type.partition(";")[0].strip().lower()


def is_text_type(media_type: str) -> bool:
    """Return whether a file of this type is read as text."""
    base = normalize(media_type)
    return base.startswith("text/") or base in _TEXTS


def decode_text(data: bytes) -> str | None:
    """Return `data` as text in UTF-8, or in UTF-16 with a mark; None where it is none.

    Control characters that no text has speak against it.  U+0000 is replaced: no database takes
    it.
    """
    encoding = next((name for mark, name in _UNICODE if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if _CONTROLS.search(text) else text.replace("\0", "\ufffd")


def decode_base64(content: str) -> bytes | None:
    """Return the bytes of base64 with its padding (RFC 4648 section 4), None where it is none."""
    try:
        return b64decode(content, validate=True)
    except ValueError:  # binascii.Error is one, and so is what a letter beyond ASCII raises
        return None


def decode_content(item: Mapping[str, Any]) -> bytes | None:
    """Return the bytes of a file as the input of a run has it; None where they are elsewhere.

    The content is base64; of a file of text it may also be the text itself.
    """
    content = item.get("content")
    if not isinstance(content, str):
        return None
    data = decode_base64(content)
    return content.encode("utf-8", "replace") if data is None else data


def clean_name(name: object, otherwise: str = "file") -> str:
    """Return the name of a file as it can be shown: without controls, and not too long."""
    text = name if isinstance(name, str) else ""
    return _UNFIT.sub(" ", text).strip()[:_LONGEST_NAME] or otherwise


def encode_file(name: str, mime_type: str, data: bytes) -> dict[str, Any]:
    """Return a file as the input of a run keeps it; its content is base64 (RFC 4648)."""
    return {
        "filename": name,
        "mime_type": mime_type,
        "size": len(data),
        "content": b64encode(data).decode("ascii"),
    }
