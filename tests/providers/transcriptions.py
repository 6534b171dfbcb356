"""A strict endpoint of transcriptions, by OpenAI's API reference, "Create transcription".

A form is judged part by part: a file with an ending that the provider knows, of 25 MB at most, and
the name of a model; a field that is not documented is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from attrs import define, field, frozen

from legation.effects import FetchReply

from .strict import Headers, Reply

__all__ = ["Transcriptions"]

_ENDINGS: Final = ("flac", "mp3", "mp4", "mpeg", "mpga", "m4a", "ogg", "wav", "webm")
_FIELDS: Final = ("chunking_strategy", "file", "include[]", "language", "model", "prompt")
_MOST: Final = 25 * 1024 * 1024
_BOUNDARY: Final = r"[0-9A-Za-z'()+_,./:=?-]{1,70}"
_HEAD: Final = re.compile(
    rb'Content-Disposition: form-data; name="(?P<name>[a-z_\[\]]+)"'
    rb'(?:; filename="(?P<filename>[A-Za-z0-9._-]+)")?\r\n'
    rb"(?:Content-Type: (?P<type>[a-z0-9.+-]+/[a-z0-9.+-]+)\r\n)?\r\n"
)


@define(eq=False)
class Transcriptions:
    """The endpoint, with a key and one model.

    Attributes:
        answers: What comes in order: a text that is spoken, or a response; then "hello".
        heard: The recordings with their types, as they came.
        faults: What requests did that the reference does not allow.
    """

    path: ClassVar[str] = "/v1/audio/transcriptions"

    key: str = "transcription-key"
    model: str = "whisper-1"
    answers: list[str | Reply] = field(factory=list[str | Reply])
    heard: list[tuple[str, bytes]] = field(factory=list[tuple[str, bytes]], init=False)
    faults: list[str] = field(factory=list[str], init=False)

    def __call__(self, fetch: Any) -> FetchReply:
        """Be the network of a `Client`."""
        headers = {name.lower(): value for name, value in fetch.headers}
        reply = self.take(fetch.method, "/" + fetch.url.split("/", 3)[3], headers, fetch.body)
        return FetchReply(reply.status, dict(reply.headers), reply.body)

    def take(self, method: str, path: str, headers: Headers, body: bytes) -> Reply:
        """Judge one request, and return the answer."""
        fault = self._judge(method, path, headers, body)
        if fault is not None:
            self.faults.append(fault)
            error = {"message": fault, "type": "invalid_request_error", "code": None}
            return _say(400, {"error": error})
        answer = self.answers.pop(0) if self.answers else "hello"
        if isinstance(answer, Reply):
            return answer
        return _say(200, {"text": answer, "usage": {"type": "duration", "seconds": 3}})

    def _judge(self, method: str, path: str, headers: Headers, body: bytes) -> str | None:
        if (method, path) != ("POST", self.path):
            return f"no such path: {method} {path}"
        if headers.get("authorization") != f"Bearer {self.key}":
            return "incorrect API key"
        kind = headers.get("content-type", "")
        found = re.fullmatch(f"multipart/form-data; boundary=({_BOUNDARY})", kind)
        if found is None:
            return f"content type: {kind}"
        parts = _split(body, found[1].encode())
        return "not a form" if parts is None else self._judge_parts(parts)

    def _judge_parts(self, parts: Mapping[str, _Part]) -> str | None:
        if unknown := sorted(parts.keys() - set(_FIELDS)):
            return f"unknown: {unknown}"
        if not {"file", "model"} <= parts.keys():
            return "file and model are required"
        if parts["model"].content != self.model.encode():
            return "no such model"
        file = parts["file"]
        if file.filename.rpartition(".")[2] not in _ENDINGS:
            return f"Invalid file format: {file.filename}"
        if not 0 < len(file.content) <= _MOST:
            return f"a file of {len(file.content)} bytes"
        self.heard.append((file.content_type, file.content))
        return None


def _say(status: int, value: Any) -> Reply:
    return Reply(status, json.dumps(value).encode(), {"content-type": "application/json"})


@frozen
class _Part:
    filename: str
    content_type: str
    content: bytes


def _split(body: bytes, boundary: bytes) -> dict[str, _Part] | None:
    """Return the parts of a form by their names (RFC 7578, RFC 2046 section 5.1.1)."""
    begin, end = b"--" + boundary + b"\r\n", b"\r\n--" + boundary + b"--\r\n"
    if not body.startswith(begin) or not body.endswith(end) or body.count(end) != 1:
        return None
    parts: dict[str, _Part] = {}
    for part in body[len(begin) : -len(end)].split(b"\r\n" + begin):
        found = _HEAD.match(part)
        if found is None or found["name"].decode() in parts:
            return None
        filename, kind = found["filename"] or b"", found["type"] or b"text/plain"
        parts[found["name"].decode()] = _Part(filename.decode(), kind.decode(), part[found.end() :])
    return parts
