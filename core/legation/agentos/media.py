"""The files of a foreign run, as the input of a run keeps them.

AgentOS stores the content of a file as base64, and that of a file of text as the text itself.  A
file on the disk of its server, or in an object store, is not in its database: its name comes in,
and its content does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from attrs import field

from ..http.bodies.data_urls import is_data_url, is_public_url
from ..http.bodies.media_types import clean_name, decode_base64, encode_file, is_text_type
from ..tools.accepted import is_object
from ..values import define
from .values import list_of, object_of, text_of

__all__ = ["KINDS", "MOST_CONTENT", "MOST_FILES", "FileReader"]

KINDS: Final[Mapping[str, str]] = {
    "images": "images",
    "videos": "videos",
    "audios": "audio",
    "audio": "audio",
    "files": "files",
}
"""The kinds of media, by their name there; the value is that of `MEDIA`."""

MOST_FILES: Final = 100
"""How many files of a kind a run keeps."""

MOST_CONTENT: Final = 8 << 20
"""How much content the files of a run have together, in characters of base64."""

_KEPT: Final = ("id", "format", "detail", "duration", "transcript")
_TOO_MANY: Final = f"{{}}: more than {MOST_FILES}"
_TOO_LARGE: Final = f"more than {MOST_CONTENT >> 20} MiB of content in a run"
_ON_DISK: Final = "on a disk of the other server"
_STORED: Final = "in an object store"
_NOT_PUBLIC: Final = "its URL is not a public one"
_NO_BASE64: Final = "its content is not base64"


@define
class FileReader:
    """Reads the files of one run, and notes what is left out of them.

    Attributes:
        faults: Names, each with the reason.
        count: How many files there are.
    """

    faults: list[str] = field(factory=list[str], init=False)
    count: int = field(default=0, init=False)
    _room: int = field(default=MOST_CONTENT, init=False)

    def read(self, members: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
        """Return the files among the `members` of a run or its input, by their kind."""
        found: dict[str, list[dict[str, Any]]] = {}
        for name, kind in KINDS.items():
            items = list_of(members.get(name))
            if len(items) > MOST_FILES:
                self.faults.append(_TOO_MANY.format(kind))
            files = [self._read_file(item, kind) for item in items[:MOST_FILES] if is_object(item)]
            if files:
                found[kind] = [*found.get(kind, ()), *files]
        self.count += sum(map(len, found.values()))
        return found

    def _read_file(self, item: Mapping[str, Any], kind: str) -> dict[str, Any]:
        name = clean_name(item.get("filename") or item.get("name"), "")
        media_type = clean_name(item.get("mime_type"), "")
        kept = {one: item[one] for one in _KEPT if isinstance(item.get(one), str | int | float)}
        named = {"filename": name} if name else {}
        typed = {"mime_type": media_type} if media_type else {}
        place = dict(self._place(item, name or kind))
        return {**kept, **named, **typed, **self._content(item, name or kind, media_type), **place}

    def _place(self, item: Mapping[str, Any], name: str) -> Iterator[tuple[str, str]]:
        """Yield the URL of a file, where it may be kept."""
        reference = object_of(item.get("media_reference"))
        url = text_of(item.get("url"))
        if is_public_url(url):
            yield "url", url
        elif url and not is_data_url(url):
            self._fault(name, _NOT_PUBLIC)
        if item.get("filepath") is not None:
            self._fault(name, _ON_DISK)
        elif reference:
            self._fault(name, _STORED)

    def _content(self, item: Mapping[str, Any], name: str, media_type: str) -> dict[str, Any]:
        content, url = text_of(item.get("content")), text_of(item.get("url"))
        if is_data_url(url) and not content:
            content = url.partition(",")[2]
        if not content:
            return {}
        if is_text_type(media_type):
            encoded = encode_file(name, media_type, content.encode("utf-8", "replace"))
        elif (data := decode_base64(content)) is not None:
            encoded = encode_file(name, media_type, data)
        else:
            self._fault(name, _NO_BASE64)
            return {}
        if len(encoded["content"]) > self._room:
            self._fault(name, _TOO_LARGE)
            return {"size": encoded["size"]}
        self._room -= len(encoded["content"])
        return {"size": encoded["size"], "content": encoded["content"]}

    def _fault(self, name: str, reason: str) -> None:
        self.faults.append(f"{name}: {reason}")
