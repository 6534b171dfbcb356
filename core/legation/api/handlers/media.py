"""The media of a run: uploads, and what clients send as JSON in their place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

from ...effects import Program
from ...hosted.registry import Component
from ...http.bodies.data_urls import NO_BASE64, encode_inline, is_data_url, is_public_url
from ...http.bodies.file_types import Unidentified, identify, signature_of
from ...http.bodies.json_text import JsonObject
from ...http.bodies.media_types import (
    MEDIA_TYPES,
    clean_name,
    decode_base64,
    encode_file,
    is_text_type,
)
from ...http.bodies.reader import Reader, Upload
from ...http.refusals import BadRequest
from ...runs.files import find_unsent, read_out
from ...values import frozen

__all__ = [
    "MOST_FILES",
    "NO_MEDIA",
    "Media",
    "UnsupportedFile",
    "add_uploads",
    "admit",
    "take_media_list",
]

MOST_FILES: Final = 100
"""In one list of a request."""

_UNSUPPORTED: Final = "Unsupported file type"
UnsupportedFile: TypeAlias = Annotated[
    BadRequest, f"{_UNSUPPORTED}: a.gz is application/gzip, which no run takes"
]
_OTHER_KIND: Final = "is {}, which does not belong to the {}"
_WEB: Final = re.compile(r"https?://", re.IGNORECASE)
_NOT_PUBLIC: Final = (
    "must be an https URL with the name of a public host: the server of the model fetches it;"
    " send any other picture or file as content"
)
_TOO_MANY: Final = f"must have at most {MOST_FILES} items"


@frozen
class Media:
    """The media that were sent; kinds of which there are none are absent."""

    by_kind: Mapping[str, list[dict[str, Any]]]


NO_MEDIA: Final = Media({})


def add_uploads(
    uploads: Iterable[Upload], listed: Mapping[str, Sequence[dict[str, Any]]]
) -> Media | UnsupportedFile:
    """Return `uploads` behind what was `listed` of their kind, each under the type that it is of.

    An empty upload is no file: browsers send one for a field that was left alone.
    """
    by_kind = {kind: list(items) for kind, items in listed.items()}
    for upload in uploads:
        if not upload.data:
            continue
        found = identify(upload.filename, upload.content_type, upload.data)
        if isinstance(found, Unidentified):
            return BadRequest(f"{_UNSUPPORTED}: {clean_name(upload.filename)} {found.reason}")
        by_kind[MEDIA_TYPES[found]].append(encode_file(upload.filename, found, upload.data))
    return Media({kind: items for kind, items in by_kind.items() if items})


def admit(component: Component, media: Media) -> Program[Media | UnsupportedFile]:
    """Return `media` with the text of files, where that is needed; 400 for what nothing takes."""
    files = yield from read_out(component, media.by_kind)
    unsent = find_unsent(component, files)
    return Media(files) if unsent is None else BadRequest(f"{_UNSUPPORTED}: {unsent}")


def take_media_list(read: Reader, name: str) -> list[dict[str, Any]]:
    """Take the field `name`, a list of media: its last word is their kind."""
    kind = name.rpartition("_")[2]
    items: list[dict[str, Any]] = []
    sent = read.json_list(name) or ()
    if len(sent) > MOST_FILES:
        read.fault(name, _TOO_MANY)
    for index, item in enumerate(sent[:MOST_FILES]):
        if isinstance(item, dict):
            items.append(_with_content(read, f"{name}[{index}]", kind, item))
        else:
            read.fault(f"{name}[{index}]", "must be a JSON object")
    return items


def _with_content(read: Reader, at: str, kind: str, item: JsonObject) -> dict[str, Any]:
    """Return `item` with the content that its URL is; any other URL is kept, if it may be sent."""
    url = item.get("url")
    if not is_data_url(url):
        if isinstance(url, str) and _WEB.match(url) and not is_public_url(url):
            read.fault(f"{at}.url", _NOT_PUBLIC)
        return _with_type(read, f"{at}.content", kind, item)
    if item.get("content") is not None:
        read.fault(f"{at}.content", "is not allowed together with a data: URL")
    kept = encode_inline(url, kind)
    if isinstance(kept, str):
        read.fault(f"{at}.url", kept)
        return item
    inline = {**{name: value for name, value in item.items() if name != "url"}, **kept}
    return _with_type(read, f"{at}.url", kind, inline)


def _with_type(read: Reader, at: str, kind: str, item: JsonObject) -> dict[str, Any]:
    """Return `item` with the type that its content is of, if it has content."""
    content = item.get("content")
    if content is None or content == "":
        return item
    name, declared = _text(item, "filename", "name"), _text(item, "mime_type")
    data = decode_base64(content) if isinstance(content, str) else None
    if data is None:
        # The text itself, perhaps; no other file could stand here as it is.
        if not isinstance(content, str) or kind != "files" or not _may_be_text(name, declared):
            read.fault(at, NO_BASE64)
        return item
    found = _identify(kind, name, declared, data)
    if isinstance(found, Unidentified):
        read.fault(at, found.reason)
        return item
    return item if found is None else {**item, "mime_type": found}


def _text(item: JsonObject, *keys: str) -> str:
    return next((value for key in keys if isinstance(value := item.get(key), str)), "")


def _may_be_text(name: str, declared: str) -> bool:
    found = identify(name, declared, b"")
    return isinstance(found, str) and is_text_type(found)


def _identify(kind: str, name: str, declared: str, data: bytes) -> str | Unidentified | None:
    """Return the type of a file that is meant to be of `kind`; None where only its sender knows."""
    found = identify(name, declared, data) if kind == "files" else signature_of(data)
    if found is None or isinstance(found, Unidentified):
        return found
    belongs = MEDIA_TYPES.get(found)
    if {kind, belongs} == {"audio", "videos"}:  # they share their containers
        return None
    return found if belongs == kind else Unidentified(_OTHER_KIND.format(found, kind))
