"""The refusals of the server itself, given before the platform is asked, in its envelope."""

from __future__ import annotations

import os

from attrs import frozen

from legation.http.refusals import Refusal, UriTooLong

__all__ = [
    "HeadTooLarge",
    "NotImplementedHere",
    "RequestTimeout",
    "UriTooLong",
    "VersionNotSupported",
    "new_incident",
]


@frozen
class RequestTimeout(Refusal, status=408, code="REQUEST_TIMEOUT"):
    """The client was too slow to send its request (RFC 9110 section 15.5.9)."""

    detail: str = "The request did not arrive in time"


@frozen
class HeadTooLarge(Refusal, status=431, code="REQUEST_HEADER_FIELDS_TOO_LARGE"):
    """A header line, the header block or the number of fields is too large (RFC 6585)."""

    detail: str = "The header fields are too large"


@frozen
class NotImplementedHere(Refusal, status=501, code="NOT_IMPLEMENTED"):
    """The server has no such transfer coding or method (RFC 9110 section 15.6.2)."""


@frozen
class VersionNotSupported(Refusal, status=505, code="HTTP_VERSION_NOT_SUPPORTED"):
    """The major version of HTTP is not 1 (RFC 9110 section 15.6.6)."""

    detail: str = "This server speaks HTTP/1.1"


def new_incident() -> str:
    """Return an id that ties an answer to its line in the log."""
    return os.urandom(8).hex()
