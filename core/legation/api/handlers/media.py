"""The media of a run: uploads, and what clients send as JSON in their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

from ...http.bodies import JsonObject, Reader, Upload
from ...http.bodies.data_urls import encode_inline, is_data_url
from ...http.bodies.media_types import MEDIA_TYPES, encode_file
from ...http.refusals import BadRequest
from ...values import frozen

__all__ = ["Media", "UnsupportedFile", "add_uploads", "take_media_list"]

_UNSUPPORTED: Final = "Unsupported file type"
UnsupportedFile: TypeAlias = Annotated[BadRequest, _UNSUPPORTED]


@frozen
class Media:
    """The media that were sent; kinds of which there are none are absent."""

    by_kind: Mapping[str, list[dict[str, Any]]]


def add_uploads(
    uploads: Iterable[Upload], listed: Mapping[str, Sequence[dict[str, Any]]]
) -> Media | UnsupportedFile:
    """Return `uploads` behind what was `listed` of their kind.

    An empty upload is no file: browsers send one for a field that was left alone.
    """
    by_kind = {kind: list(items) for kind, items in listed.items()}
    for upload in uploads:
        kind = MEDIA_TYPES.get(upload.content_type.lower())
        if not upload.data:
            continue
        if kind is None:
            return BadRequest(_UNSUPPORTED)
        by_kind[kind].append(encode_file(upload.filename, upload.content_type, upload.data))
    return Media({kind: items for kind, items in by_kind.items() if items})


def take_media_list(read: Reader, name: str) -> list[dict[str, Any]]:
    """Take the field `name`, a list of media: its last word is their kind."""
    kind = name.rpartition("_")[2]
    items: list[dict[str, Any]] = []
    for index, item in enumerate(read.json_list(name) or ()):
        if isinstance(item, dict):
            items.append(_with_content(read, f"{name}[{index}]", kind, item))
        else:
            read.fault(f"{name}[{index}]", "must be a JSON object")
    return items


def _with_content(read: Reader, at: str, kind: str, item: JsonObject) -> dict[str, Any]:
    """Return `item` with the content that its URL is; any other URL is kept as it is."""
    url = item.get("url")
    if not is_data_url(url):
        return item
    if item.get("content") is not None:
        read.fault(f"{at}.content", "is not allowed together with a data: URL")
    kept = encode_inline(url, kind)
    if isinstance(kept, str):
        read.fault(f"{at}.url", kept)
        return item
    return {**{name: value for name, value in item.items() if name != "url"}, **kept}
