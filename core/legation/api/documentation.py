"""The API documentation: the description of the interface, and the files of the pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any, Final

from attrs import field

from ..http.messages import compact_json
from ..values import define, frozen

__all__ = ["ApiDocumentation", "Asset"]

_MEDIA_TYPES: Final = {
    "css": b"text/css; charset=utf-8",
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "json": b"application/json",
    "txt": b"text/plain; charset=utf-8",
}


@frozen(eq=False)
class Asset:
    """A file as it is sent; the end of its name says what it is."""

    name: str
    body: bytes | memoryview = field(repr=False)

    @property
    def media_type(self) -> bytes:
        """The type to send it as; what is not known is bytes."""
        return _MEDIA_TYPES.get(self.name.rpartition(".")[2], b"application/octet-stream")

    @cached_property
    def etag(self) -> bytes:
        """A strong validator (RFC 9110 section 8.8.3)."""
        return b'"%s"' % sha256(self.body).hexdigest()[:32].encode("ascii")


@define(eq=False)
class ApiDocumentation:
    """The documentation of one platform.

    The description is made when somebody first asks for it.  `assets` are the files that a host
    brings: the pages need them, the description does not.
    """

    describe: Callable[[], Mapping[str, Any]]
    assets: Mapping[str, Asset] = field(factory=dict[str, Asset])

    @cached_property
    def document(self) -> Asset:
        """The description of the interface."""
        return Asset("openapi.json", compact_json(self.describe()).encode())

    def bring(self, files: Mapping[str, bytes | memoryview]) -> None:
        """Take the files of the pages, by name."""
        self.assets = {name: Asset(name, body) for name, body in files.items()}
