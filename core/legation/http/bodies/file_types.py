"""The type of a file, found by its content, its declared type and its name.

A file is what its content says: programs of the command line send `application/octet-stream` for
most of them, and Windows calls a table of commas a spreadsheet.  Where the content has no signature
the sender is believed, then the name.  Whatever is text in Unicode can be read as that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ...values import frozen
from .media_types import MEDIA_TYPES, PDF, WORD, decode_text, is_text_type, normalize

__all__ = ["Unidentified", "identify", "is_promising", "signature_of"]

_BY_EXTENSION: Final[Mapping[str, str]] = {
    "pdf": PDF,
    "docx": WORD,
    "json": "application/json",
    "rtf": "application/rtf",
    "csv": "text/csv",
    "html": "text/html",
    "htm": "text/html",
    "css": "text/css",
    "md": "text/markdown",
    "markdown": "text/markdown",
    "xml": "text/xml",
    "js": "text/javascript",
    "mjs": "text/javascript",
    "py": "text/x-python",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "bmp": "image/bmp",
    "tif": "image/tiff",
    "tiff": "image/tiff",
    "avif": "image/avif",
    "heic": "image/heic",
    "heif": "image/heif",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "ogg": "audio/ogg",
    "oga": "audio/ogg",
    "opus": "audio/ogg",
    "m4a": "audio/mp4",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "mp4": "video/mp4",
    "m4v": "video/mp4",
    "webm": "video/webm",
    "mov": "video/quicktime",
    "flv": "video/x-flv",
    "wmv": "video/x-ms-wmv",
    "mpeg": "video/mpeg",
    "mpg": "video/mpeg",
    "3gp": "video/3gpp",
}

# --- by content ----------------------------------------------------------------------------------

_ZIP: Final = "application/zip"
_SIGNATURES: Final = (
    (b"%PDF-", PDF),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"OggS\0", "audio/ogg"),
    (b"fLaC\0", "audio/flac"),
    (b"ID3\2", "audio/mpeg"),
    (b"ID3\3", "audio/mpeg"),
    (b"ID3\4", "audio/mpeg"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"FLV\1", "video/x-flv"),
    (b"0&\xb2u\x8ef\xcf\x11", "video/x-ms-wmv"),
    (b"\0\0\1\xba", "video/mpeg"),
    (b"\0\0\1\xb3", "video/mpeg"),
    (b"PK\3\4", _ZIP),
    (b"PK\5\6", _ZIP),
)
"""What the formats begin with, none of which is text, but for that of a PDF."""

# ISO/IEC 14496-12 section 4.3: the major brand stands behind `ftyp`.
_BRANDS: Final[Mapping[bytes, str]] = {
    **dict.fromkeys((b"avif", b"avis"), "image/avif"),
    **dict.fromkeys((b"heic", b"heix", b"hevc", b"hevx"), "image/heic"),
    **dict.fromkeys((b"mif1", b"msf1"), "image/heif"),
    **dict.fromkeys((b"M4A ", b"M4B "), "audio/mp4"),
    b"qt  ": "video/quicktime",
    **dict.fromkeys((b"3gp4", b"3gp5", b"3gp6", b"3gp7"), "video/3gpp"),
}
_RIFF: Final[Mapping[bytes, str]] = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_WORD_PART: Final = b"word/document.xml"
_JUNK_BEFORE_PDF: Final = 1024
"""How many bytes may stand before the header of a PDF, as every reader allows."""


def signature_of(data: bytes) -> str | None:
    """Return the media type whose signature `data` begins with; a container is looked into.

    It may be one that no run takes, as `application/zip`.
    """
    found = next((name for begin, name in _SIGNATURES if data.startswith(begin)), None)
    if found == _ZIP and _WORD_PART in data:
        return WORD
    if found is None and data[4:8] == b"ftyp":
        return _BRANDS.get(data[8:12], "video/mp4")
    if found is None and data[:4] == b"RIFF":
        return _RIFF.get(data[8:12])
    if found is None and data[:2] == b"BM" and data[2:6] == len(data).to_bytes(4, "little"):
        return "image/bmp"
    return found


# --- by all that is known ------------------------------------------------------------------------


@frozen
class Unidentified:
    """A file of no type that a run takes; `reason` goes on from its name: `is no PDF`."""

    reason: str


_SHAPE: Final = re.compile(r"[a-z0-9][a-z0-9.+-]{0,99}/[a-z0-9][a-z0-9.+-]{0,99}", re.ASCII)
_NOT_TAKEN: Final = "is {}, which no run takes"
_NO_TYPE: Final = "is of no type that is known: neither its name nor its content shows one"
_OTHER: Final = "calls itself {}, and is not"
_NOT_TEXT: Final = "calls itself {}, and is no text in UTF-8 or UTF-16"
_LIKE: Final = {"image/jpg": "image/jpeg"}  # a common name for what providers take under another
# The content of these always has a signature; others begin in ways that nobody can list.
_SIGNED: Final = frozenset({PDF, WORD})


def is_promising(name: str, declared: str) -> bool:
    """Return whether a file that is called `name` may be of a type that a run takes."""
    return is_text_type(declared) or _claim(name, declared) is not None


def identify(name: str, declared: str, data: bytes) -> str | Unidentified:
    """Return the media type of a file that is called `name` and declared to be `declared`.

    Both are a stranger's word.  The type is one of `MEDIA_TYPES`.
    """
    claimed = _claim(name, declared)
    if claimed is not None and is_text_type(claimed):
        return _identify_text(claimed, data)
    seen = signature_of(data)
    if seen is None and claimed == PDF and b"%PDF-" in data[: _JUNK_BEFORE_PDF + 5]:
        seen = PDF
    if seen is not None:
        return _settle(claimed, seen)
    if claimed is not None:
        return Unidentified(_OTHER.format(claimed)) if claimed in _SIGNED else claimed
    text, given = decode_text(data), normalize(declared)
    if text is not None and "\ufffd" not in text:  # which stands for what no text has
        return "text/plain"
    shown = _SHAPE.fullmatch(given) and not given.endswith("/octet-stream")
    return Unidentified(_NOT_TAKEN.format(given) if shown else _NO_TYPE)


def _claim(name: str, declared: str) -> str | None:
    """Return the type that a file claims: the declared one where it is taken, else the name's."""
    given = normalize(declared)
    if given in MEDIA_TYPES and given != "text/plain":
        return given
    _, dot, extension = name.rpartition(".")
    by_name = _BY_EXTENSION.get(extension.lower()) if dot else None
    if given == "text/plain":  # what browsers say of any text
        return by_name if by_name is not None and is_text_type(by_name) else given
    return by_name


def _identify_text(claimed: str, data: bytes) -> str | Unidentified:
    if decode_text(data) is not None:
        return claimed
    seen = signature_of(data)
    if seen is not None and seen in MEDIA_TYPES:
        return seen
    return Unidentified(_NOT_TEXT.format(claimed))


def _settle(claimed: str | None, seen: str) -> str | Unidentified:
    """Return the type of a file that claims one thing, and whose content says another."""
    if claimed is None:
        return seen if seen in MEDIA_TYPES else Unidentified(_NOT_TAKEN.format(seen))
    if _LIKE.get(claimed, claimed) == seen:
        return claimed
    if seen not in MEDIA_TYPES or claimed in _SIGNED:
        return Unidentified(_OTHER.format(claimed))
    # Sound and moving pictures share their containers: there the sender knows better.
    shared = {MEDIA_TYPES[claimed], MEDIA_TYPES[seen]} <= {"audio", "videos"}
    return claimed if shared else seen
