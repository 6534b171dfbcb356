"""The codec of a channel: the base of every kind, with what most of them say alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from ..effects import Fetch, FetchReply
from ..http.bodies.json_text import JsonObject
from ..http.messages import compact_json
from .deliveries import Attachment, Handshake, Parsed, read_object
from .signatures import Secrets, SignatureRefused, Verified

__all__ = ["Codec", "post"]


class Codec(ABC):
    """Base of the kinds, which are frozen values of their settings."""

    __slots__ = ()

    def __attrs_post_init__(self) -> None:
        """Refuse to be without a usable secret.

        Raises:
            ValueError: There is none.
        """
        _ = self._secrets

    @property
    @abstractmethod
    def _secrets(self) -> Secrets:
        """The secrets that what comes in is verified with."""

    def handshake(self, query: Sequence[tuple[str, str]]) -> Handshake:
        """Refuse: most providers ask nothing by GET."""
        return SignatureRefused("no handshake")

    def parse(self, verified: Verified) -> Parsed:
        """Return what is in a delivery: a JSON object, as every provider sends it."""
        root = read_object(verified.body)
        return self._read(root, verified.delivery_id) if isinstance(root, dict) else root

    @abstractmethod
    def _read(self, root: JsonObject, delivery_id: str) -> Parsed:
        """Return what `root` says."""

    def locate(self, media: Attachment) -> Fetch | None:
        """Ask nothing: the address of a file stands in its message."""
        return None

    def download(self, media: Attachment, found: FetchReply | None) -> Fetch | None:
        """Ask for nothing: no message has a file."""
        return None


def post(
    url: str,
    message: Mapping[str, object],
    key: str,
    credentials: tuple[tuple[str, str], ...] = (),
    *,
    content_type: str = "application/json",
) -> Fetch:
    """Return the request that sends `message` as JSON under the idempotency key `key`."""
    headers = (*credentials, ("content-type", content_type), ("idempotency-key", key))
    return Fetch("POST", url, headers, compact_json(message).encode())
