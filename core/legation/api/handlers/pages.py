"""The sending of pages and of their files: to a client that has one already, nothing is sent."""

from __future__ import annotations

from typing import Final

from ...http.messages import Headers, Response, empty_response
from ..call import Call
from ..documentation import Asset

__all__ = ["CHECKED", "find_root", "send_asset"]

CHECKED: Final = b"no-cache"
"""What is kept by clients, and asked for again each time."""


def find_root(target: str) -> str:
    """Return the way from the page at `target` to the root, relative."""
    path, _, _ = target.partition("?")
    return "../" * (path.count("/") - 1) or "./"


def send_asset(
    call: Call, found: Asset, more: Headers = (), *, cache_control: bytes = CHECKED
) -> Response:
    """Return `found`, or 304 where the client has it (RFC 9110 section 13.1.2)."""
    headers: Headers = (
        (b"cache-control", cache_control),
        (b"etag", found.etag),
        (b"x-content-type-options", b"nosniff"),
        *more,
    )
    if _has(call.request.header(b"if-none-match"), found.etag):
        return empty_response(304, headers)
    length = b"%d" % len(found.body)
    typed = ((b"content-type", found.media_type), (b"content-length", length))
    return Response(200, (*typed, *headers), bytes(found.body))


def _has(if_none_match: bytes | None, etag: bytes) -> bool:
    if if_none_match is None:
        return False
    known = {one.strip().removeprefix(b"W/") for one in if_none_match.split(b",")}
    return etag in known or b"*" in known
