"""The codec of a channel: the base of every kind, with what most of them say alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ..effects import Fetch, FetchReply
from .deliveries import Attachment, Handshake
from .signatures import Secrets, SignatureRefused

__all__ = ["Codec"]


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

    def locate(self, media: Attachment) -> Fetch | None:
        """Ask nothing: the address of a file stands in its message."""
        return None

    def download(self, media: Attachment, found: FetchReply | None) -> Fetch | None:
        """Ask for nothing: no message has a file."""
        return None
