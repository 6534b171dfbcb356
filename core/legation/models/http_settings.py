"""The settings that every model behind HTTP has."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import Attribute, field

from ..values import frozen
from .conversation import Prompt
from .exchange import Question

__all__ = ["MAX_BYTES", "HostedModel", "base_url"]

MAX_BYTES: Final = 32 << 20
"""Of one answer on the wire: a token takes 200 to 300 bytes there."""

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
        id: The provider's name for the model.
        base_url: What the path of the protocol is appended to.
        api_key: None where none is asked for.
        timeout_seconds: Until the answer begins.
        idle_seconds: Between two pieces of it.
        max_output_tokens: Of one answer, at most.
        retries: How often it is asked again after a failure that may pass.
        max_bytes: Of one answer, as sent.

    Raises:
        ValueError: A setting that cannot be meant.
    """

    id: str
    base_url: str = field(validator=_is_url)
    api_key: str | None = field(default=None, repr=False, validator=_is_key)
    timeout_seconds: float = field(default=120.0, validator=_positive)
    idle_seconds: float = field(default=120.0, validator=_positive)
    max_output_tokens: int | None = field(default=None, validator=_positive)
    retries: int = field(default=2, validator=_is_retries)
    max_bytes: int = field(default=MAX_BYTES, validator=_positive)

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

    def token_limit(self, prompt: Prompt) -> int | None:
        """Return the lower of the two limits of tokens, None without any."""
        limits = (self.max_output_tokens, prompt.max_tokens)
        return min((limit for limit in limits if limit is not None), default=None)
