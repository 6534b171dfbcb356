"""The codec of a channel: the base of every kind, with what most of them say alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from ..effects import Fetch, FetchReply, Unreachable
from ..http.bodies.json_text import JsonObject
from ..http.messages import Headers, compact_json
from .deliveries import Attachment, Handshake, Parsed, read_object
from .replies import Outcome, Part, Reply, split_text
from .signatures import Secrets, SignatureRefused, Verified

__all__ = ["Codec", "post"]


class Codec(ABC):
    """Base of the kinds, which are frozen values of their settings.

    A kind is a frozen class of attrs.  Its fields are the settings of a channel of the kind; one
    that is not shown (`repr=False`) is a secret, and a configuration names the variable that holds
    it, as `…_env`.  No input from outside makes a method raise.

    Attributes:
        kind: The name of the kind in a configuration.
        text_limit: The characters that one reply may have; a longer one is sent in parts.
        receives: Whether messages come in; else it only sends.
        sender: The fields that make a channel the one which a delivery is for.  Two channels
            that agree in all of them are a fault of the configuration.
        name: The id of the channel.
    """

    __slots__ = ()

    kind: ClassVar[str]
    text_limit: ClassVar[int]
    receives: ClassVar[bool] = True
    sender: ClassVar[tuple[str, ...]] = ("name",)

    name: str

    def __attrs_post_init__(self) -> None:
        """Refuse to be without a usable secret.

        Raises:
            ValueError: There is none.
        """
        _ = self.secrets

    @property
    @abstractmethod
    def secrets(self) -> Secrets:
        """The secrets that what comes in is verified with."""

    @abstractmethod
    def verify(self, headers: Headers, body: bytes, now_us: int) -> Verified | SignatureRefused:
        """Check who sent a delivery, over its bytes as they came, in constant time."""

    def compose(self, text: str) -> Iterator[Part]:
        """Yield the parts of an answer in Markdown: of at most `text_limit` units, as it is."""
        return map(Part, split_text(text, self.text_limit))

    @abstractmethod
    def encode(self, reply: Reply, now_us: int) -> Fetch:
        """Return the request that sends `reply`, under a key that stays the same."""

    @abstractmethod
    def read_reply(self, reply: FetchReply | Unreachable, now_us: int) -> Outcome:
        """Judge the provider's answer to a reply: it is sent, to be tried again, or given up."""

    def handshake(self, query: Sequence[tuple[str, str]]) -> Handshake:
        """Refuse: most providers ask nothing by GET."""
        return SignatureRefused("no handshake")

    def parse(self, verified: Verified) -> Parsed:
        """Return what is in a delivery: a JSON object, as every provider sends it."""
        root = read_object(verified.body)
        return self.read_delivery(root, verified.delivery_id) if isinstance(root, dict) else root

    @abstractmethod
    def read_delivery(self, root: JsonObject, delivery_id: str) -> Parsed:
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
