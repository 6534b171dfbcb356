"""The settings that every model behind HTTP has."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from attrs import Attribute, field

from ..effects import Fetch
from ..values import frozen
from .conversation import Prompt
from .exchange import Question

__all__ = ["MAX_BYTES", "PDF", "PICTURES", "HostedModel", "base_url"]

PDF: Final = "application/pdf"
PICTURES: Final = ("image/gif", "image/jpeg", "image/png", "image/webp")
"""The pictures that every provider takes which takes any."""

MAX_BYTES: Final = 32 << 20
"""Of one answer on the wire: a token takes 200 to 300 bytes there."""

LIST_SECONDS: Final = 5.0
"""For the list of models."""

_VISIBLE: Final = re.compile(r"[!-~]+")
_MOST_RETRIES: Final = 10


def _is_key(_: object, __: Attribute[Any], value: str | None) -> None:
    # The text of a key stands in no message.
    if value is not None and not _VISIBLE.fullmatch(value):
        raise ValueError("the API key holds white space, or what is not ASCII")


def _is_sound(url: str) -> bool:
    try:
        parts = urlsplit(url)
        placed = parts.hostname is not None and parts.port != 0
    except ValueError:
        return False
    bare = not (parts.query or parts.fragment or "@" in parts.netloc)
    return parts.scheme in ("http", "https") and placed and bare


def _is_url(_: object, __: Attribute[Any], value: str) -> None:
    # It is not quoted: a person may have put a password in it.
    if not _VISIBLE.fullmatch(value) or not _is_sound(value):
        raise ValueError("base_url must be http://… or https://…, without user, query or fragment")


def base_url(default: str) -> str:
    """Return the field of that name with a default, checked like the one without."""
    checked: str = field(default=default, validator=_is_url)
    return checked


# The types for which the protocols have a form, as far as a provider behind them takes one.
_SENDABLE: Final = re.compile(r"image/(\*|[a-z0-9][a-z0-9.+-]{0,99})|application/pdf", re.ASCII)


def _are_sendable(_: object, __: Attribute[Any], value: tuple[str, ...] | None) -> None:
    for one in value or ():
        if not _SENDABLE.fullmatch(one):
            raise ValueError(f"accepts: {one!r} can be sent to no model: image/… or {PDF} can")


def _positive(_: object, attribute: Attribute[Any], value: float | None) -> None:
    if value is not None and not 0 < value < float("inf"):
        raise ValueError(f"{attribute.name} must be more than 0")


def _is_retries(_: object, __: Attribute[Any], value: int) -> None:
    if not 0 <= value <= _MOST_RETRIES:
        raise ValueError(f"retries must be 0 to {_MOST_RETRIES}")


@frozen(kw_only=True)
class HostedModel:
    """The address of a model, with its time limits and retries.

    Attributes:
        pdf_hosts: The domains of providers whose documentation says that they take PDF.
        id: The provider's name for the model.
        base_url: What the path of the protocol is appended to.
        api_key: None where none is asked for.
        timeout_seconds: Until the answer begins.
        idle_seconds: Between two pieces of it.
        max_output_tokens: Of one answer, at most.
        retries: How often it is asked again after a failure that may pass.
        max_bytes: Of one answer, as sent.
        accepts: The media types of the files that it is sent; None is what the provider takes.

    Raises:
        ValueError: A setting that cannot be meant.
    """

    pdf_hosts: ClassVar[tuple[str, ...]] = ()

    id: str
    base_url: str = field(validator=_is_url)
    api_key: str | None = field(default=None, repr=False, validator=_is_key)
    timeout_seconds: float = field(default=120.0, validator=_positive)
    idle_seconds: float = field(default=120.0, validator=_positive)
    max_output_tokens: int | None = field(default=None, validator=_positive)
    retries: int = field(default=2, validator=_is_retries)
    max_bytes: int = field(default=MAX_BYTES, validator=_positive)
    accepts: tuple[str, ...] | None = field(default=None, validator=_are_sendable)

    def __attrs_post_init__(self) -> None:
        """Say which files it takes: pictures, and PDF where the provider is known to."""
        if self.accepts is None:
            host = f".{urlsplit(self.base_url).hostname or ''}"
            known = any(host.endswith(f".{name}") for name in self.pdf_hosts)
            object.__setattr__(self, "accepts", (PDF, *PICTURES) if known else PICTURES)

    def question(self, path: str, headers: tuple[tuple[str, str], ...], body: bytes) -> Question:
        """Return the request to `path`, with what every request has."""
        return Question(
            model=self.id,
            url=self.base_url.rstrip("/") + path,
            headers=(
                ("content-type", "application/json"),
                ("accept", "text/event-stream, application/json"),
                *headers,
            ),
            body=body,
            timeout_seconds=self.timeout_seconds,
            idle_seconds=self.idle_seconds,
            retries=self.retries,
            max_bytes=self.max_bytes,
        )

    def small_question(self, path: str, headers: tuple[tuple[str, str], ...]) -> Fetch:
        """Return a request to `path` that asks for a little, and waits for no longer than that."""
        url = self.base_url.rstrip("/") + path
        accept = ("accept", "application/json")
        return Fetch("GET", url, (accept, *headers), timeout_seconds=LIST_SECONDS)

    def token_limit(self, prompt: Prompt) -> int | None:
        """Return the lower of the two limits of tokens, None without any."""
        limits = (self.max_output_tokens, prompt.max_tokens)
        return min((limit for limit in limits if limit is not None), default=None)
