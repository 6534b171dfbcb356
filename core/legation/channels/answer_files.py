"""The files of an answer: what an agent returned as a file, and the form that uploads it.

A function that is an agent returns a `RunFile`, or a list of texts and such files.  In the content
of its run each file is an object of a name, a media type and its bytes in base64.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, TypeAlias, cast

from attrs import field

from ..effects import Fetch
from ..http.bodies.media_types import clean_name
from ..values import frozen

__all__ = ["AnswerFile", "Shown", "find_files", "post_form"]

_MEMBERS: Final = frozenset({"name", "media_type", "content"})
_QUOTED: Final = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})
_UNKNOWN: Final = "application/octet-stream"


@frozen
class AnswerFile:
    """A file of an answer; `content` is in base64."""

    name: str = field(repr=False)
    media_type: str
    content: str = field(repr=False)

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
        return b64decode(self.content)


Shown: TypeAlias = tuple[str, tuple[AnswerFile, ...]]
"""The text of an answer, and its files."""


def find_files(content: object) -> Shown | None:
    """Return the text and the files of an answer that is a file, or a list of texts and files.

    None for any other answer, and for one without a file.
    """
    items = cast("list[object]", content if isinstance(content, list) else [content])
    texts, files = list[str](), list[AnswerFile]()
    for item in items:
        file = _read(item)
        if file is not None:
            files.append(file)
        elif isinstance(item, str):
            texts.append(item.strip())
        else:
            return None
    return ("\n\n".join(filter(None, texts)), tuple(files)) if files else None


def _read(item: object) -> AnswerFile | None:
    if not isinstance(item, dict):
        return None
    values = cast("dict[str, Any]", item)
    if values.keys() != _MEMBERS or not all(isinstance(value, str) for value in values.values()):
        return None
    try:
        data = b64decode(values["content"], validate=True)
    except (Error, ValueError):  # the latter of what is not ASCII
        return None
    media_type = clean_name(values["media_type"], _UNKNOWN)
    name = clean_name(values["name"])
    return AnswerFile(name, media_type, values["content"]) if data else None


def post_form(
    url: str,
    fields: Mapping[str, str],
    part: str,
    file: AnswerFile,
    key: str,
    credentials: tuple[tuple[str, str], ...] = (),
) -> Fetch:
    """Return the request that sends `fields`, and `file` as `part`, as a form (RFC 7578).

    `key` is its idempotency key.
    """
    data = file.data
    boundary = f"legation-{sha256(data).hexdigest()}"
    lines = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    filename = file.name.translate(_QUOTED)
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="{part}"; filename="{filename}"\r\n'
        f"Content-Type: {file.media_type}\r\n\r\n"
    )
    tail = f"\r\n--{boundary}--\r\n"
    body = b"".join(("".join((*lines, head)).encode(), data, tail.encode()))
    content_type = f"multipart/form-data; boundary={boundary}"
    headers = (*credentials, ("content-type", content_type), ("idempotency-key", key))
    return Fetch("POST", url, headers, body)
