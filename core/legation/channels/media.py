"""The attachments of messages, and their download: first the address, then the file itself.

Only the provider's own addresses are asked.  The token of a channel stands in these requests, so
an address in an answer is used only where it is the provider's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Protocol
from urllib.parse import urlsplit

from attrs import evolve

from ..backoff import Backoff
from ..effects import Fetch, FetchReply, Program, Unreachable
from ..http.bodies.json_text import JsonValue
from .deliveries import Attachment
from .provider_values import identifier

__all__ = [
    "FAILED",
    "GONE",
    "MOST_BYTES",
    "TOO_LARGE",
    "Source",
    "describe_media",
    "fetch_media",
    "is_provider",
    "media_of",
]

MOST_BYTES: Final = 10 << 20
"""Of all files of one message together, in bytes: as much as a form may bring."""

TOO_LARGE: Final = "it is too large"
GONE: Final = "the provider does not give it out"
FAILED: Final = "the provider did not answer"
"""Why there is no content, in a few words."""

_BACKOFF: Final = Backoff(0.5, 2.0)
_TRIES: Final = 3
_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"[a-z0-9.-]+", re.ASCII)


_MEDIA_TYPE: Final = re.compile(r"[a-z0-9.+-]{1,100}/[a-z0-9.+-]{1,100}", re.ASCII)
_EXTENSIONS: Final = {"image/jpeg": "jpg", "audio/ogg": "ogg", "audio/mpeg": "mp3"}


def media_of(
    media_id: str, mime_type: JsonValue, name: JsonValue = None, size: JsonValue = None
) -> tuple[Attachment, ...]:
    """Return the file that a provider tells of, or nothing without an id."""
    return (describe_media(media_id, mime_type, name, size),) if media_id else ()


def describe_media(
    media_id: str, mime_type: JsonValue, name: JsonValue = None, size: JsonValue = None
) -> Attachment:
    """Return the file that a provider tells of; one without a name is called by what it is.

    Without an id it cannot be had, which is told.
    """
    given = mime_type.partition(";")[0].strip().lower() if isinstance(mime_type, str) else ""
    kind = given if _MEDIA_TYPE.fullmatch(given) else "application/octet-stream"
    called = identifier(name).replace("\\", "/").rpartition("/")[2] if isinstance(name, str) else ""
    if called in ("", ".", ".."):
        family, _, subtype = kind.partition("/")
        called = f"{family}.{_EXTENSIONS.get(kind, subtype)}"
    known = isinstance(size, int) and not isinstance(size, bool) and size >= 0
    # `known` narrows nothing for a type checker.
    return Attachment(media_id, kind, called, size if known else None)  # type: ignore[arg-type]


class Source(Protocol):
    """The requests by which a channel gets files from its provider."""

    def locate(self, media: Attachment) -> Fetch | None:
        """Return the question where `media` is; None when there is nothing to ask."""
        ...

    def download(self, media: Attachment, found: FetchReply | None) -> Fetch | None:
        """Return the request for the file itself; None when `found` names no place to ask."""
        ...


def fetch_media(source: Source, media: Attachment, most_bytes: int) -> Program[bytes | str]:
    """Return the content of `media`, or in a few words why there is none."""
    if media.size is not None and media.size > most_bytes:
        return TOO_LARGE
    found: FetchReply | None = None
    question = source.locate(media)
    if question is not None:
        located = yield from _ask(question)
        if isinstance(located, str):
            return located
        found = located
    request = source.download(media, found)
    if request is None:
        return GONE
    answer = yield from _ask(evolve(request, max_bytes=most_bytes))
    if isinstance(answer, str):
        return answer
    return GONE if _is_page(answer, media) else answer.body


def _is_page(answer: FetchReply, media: Attachment) -> bool:
    """Whether a page to log in came in the place of the file, as Slack sends it with 200."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "text/html" != media.mime_type


def _ask(request: Fetch) -> Program[FetchReply | str]:
    """Return a successful answer, after a few tries if need be, else what went wrong."""
    for attempt in range(1, _TRIES + 1):
        answer = yield from request
        if isinstance(answer, Unreachable):
            if answer.reason == "too-large":
                return TOO_LARGE
        elif 200 <= answer.status < 300:
            return answer
        elif answer.status != 429 and answer.status < 500:
            return GONE
        if attempt < _TRIES:
            yield from _BACKOFF.wait(attempt)
    return FAILED


def is_provider(url: str, base: str, domains: Iterable[str] = ()) -> bool:
    """Whether `url` is at the origin of `base`, or by https on one of `domains` or under it."""
    try:
        asked, known = urlsplit(url), urlsplit(base)
        ports = asked.port or _PORTS.get(asked.scheme), known.port or _PORTS.get(known.scheme)
    except ValueError:
        return False
    host = asked.hostname or ""
    if not _HOST.fullmatch(host) or "@" in asked.netloc or not url.isascii():
        return False
    if (asked.scheme, host, ports[0]) == (known.scheme, known.hostname, ports[1]):
        return True
    inside = any(host == domain or host.endswith(f".{domain}") for domain in domains)
    return inside and asked.scheme == "https" and ports[0] == 443
